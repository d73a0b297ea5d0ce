package bench

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/report"
)

// Version is the version of the JSON schema.
const Version = 1

// Report holds the measurements of one run of spark-bench.
type Report struct {
	Version int    `json:"version"`
	Machine string `json:"machine"`
	Device  string `json:"device"`
	Driver  string `json:"driver,omitempty"`
	Runs    int    `json:"runs"`
	Warmup  int    `json:"warmup"`
	// SwitchesOff are the mechanisms that the device was opened without (hal.Switches).
	SwitchesOff []string          `json:"switches_off"`
	Definitions map[string]string `json:"definitions"` // of the figures of Results
	Results     []Result          `json:"results"`
	// Concurrent is set if the models also ran at the same time.
	Concurrent *Concurrent `json:"concurrent,omitempty"`
}

// Result is one model in one precision.
type Result struct {
	report.Program
	CompileMS      *float64  `json:"compile_ms"` // nil: it was compiled before
	LoadMS         float64   `json:"load_ms"`    // loading code and weights, allocating memory, capturing the graph
	FirstMS        float64   `json:"first_ms"`   // the first run
	report.Summary           // steady runs as a caller waits for them, inputs and outputs included
	Samples        []float64 `json:"samples_ms"`
	// LaunchToLaunch is the graph alone, on a busy stream; Cold is one launch of it with the L2 cache flushed. They need a device
	// with a clock, as do predictions: those are of GPUs.
	LaunchToLaunch *report.Summary `json:"launch_to_launch"`
	Cold           *report.Summary `json:"cold"`
	HostMS         *float64        `json:"host_ms"` // what a caller waits beyond LaunchToLaunch, by medians

	// ClocksMHz is the multiprocessors' clock after each of Samples, where it can be read quickly.
	ClocksMHz []float64  `json:"sample_clocks_mhz,omitempty"`
	Predicted *Predicted `json:"predicted"`

	State  *State  `json:"state"` // nil: nobody read it
	Layers []Layer `json:"layers,omitempty"`
	// Timeline is when launches ran, by stamps that kernels write.
	Timeline *Timeline       `json:"timeline,omitempty"`
	Outputs  []report.Output `json:"outputs,omitempty"` // against the same model in fp32

	Ablations   []Ablation  `json:"ablations,omitempty"`
	ONNXRuntime *Peer       `json:"onnx_runtime,omitempty"`
	Baseline    *Difference `json:"baseline,omitempty"`
}

// State is the mean state of the GPU while the model ran: what a caller waits for, launch to launch, launches and timeline.
type State struct {
	Samples     int          `json:"samples"`
	ClockMHz    nvml.Figure  `json:"clock_mhz"`
	ClockMinMHz nvml.Figure  `json:"clock_min_mhz"`
	ClockMaxMHz nvml.Figure  `json:"clock_max_mhz"`
	PowerWatts  nvml.Figure  `json:"power_watts"`
	Celsius     nvml.Figure  `json:"celsius"`
	Utilisation nvml.Figure  `json:"utilisation_percent"`
	Throttle    nvml.Reasons `json:"throttle"`
	Capped      bool         `json:"clock_capped"`
}

// Layer is the time of one launch: what it adds to the preceding ones, or by itself on a device without a clock.
type Layer struct {
	Index  int     `json:"index"`
	Kernel string  `json:"kernel"`
	Note   string  `json:"note,omitempty"`
	MS     float64 `json:"ms"`

	PredictedUS *float64 `json:"predicted_us"`
	By          string   `json:"bound,omitempty"` // what bounds it, by prediction
}

// Predicted is what the cost model says of the run.
type Predicted struct {
	Range  cost.Figure `json:"us"`                         // of the graph alone, with warm weights
	Waited cost.Figure `json:"waited_us"`                  // with launching the graph and waiting for it
	Rank   *float64    `json:"rank_correlation,omitempty"` // of Layers, measured and predicted
}

// Difference compares a result with its baseline.
type Difference struct {
	P50   float64 `json:"p50_ms"`  // the baseline's
	Ratio float64 `json:"ratio"`   // median now over median then
	P     float64 `json:"p_value"` // Mann–Whitney U, two-sided
	// Verdict is faster or slower, or same if the difference is not significant.
	Verdict string `json:"verdict"`
}

// Definitions say what the figures of a device's results are, by their names in JSON.
func Definitions(d hal.Device) map[string]string {
	const waits = "what a caller of Run waits: inputs sent, the graph launched and waited for, outputs fetched; likewise mean_ms, p99_ms, " +
		"min_ms, max_ms, per_second and samples_ms"
	if !hasClock(d) {
		return map[string]string{"p50_ms": waits, "layers": "each launch by itself, by the host's clock"}
	}
	return map[string]string{
		"p50_ms":           waits,
		"launch_to_launch": fmt.Sprintf("from a launch of the graph to the next on a busy stream, by the device's clock; a sample is the mean of %d", launchRuns),
		"cold":             "a launch of the graph right behind one that flushes the L2 cache, by the device's clock",
		"host_ms":          "p50_ms without that of launch_to_launch: launching, waiting, inputs and outputs",
		"layers":           "what each launch adds, launch to launch, to those in front of it",
	}
}

// significance is the p-value below which a difference counts.
const significance = .01

// Compare compares each result with the baseline's for the same model, precision and device. It returns the results that the
// baseline lacks.
func (r *Report) Compare(base *Report) (unmatched []string) {
	for i := range r.Results {
		now := &r.Results[i]
		at := slices.IndexFunc(base.Results, func(b Result) bool { return b.Model == now.Model && b.Precision == now.Precision })
		if at < 0 || base.Device != r.Device {
			unmatched = append(unmatched, now.Model+" "+now.Precision)
			continue
		}
		then := base.Results[at]
		d := &Difference{P50: then.P50, P: MannWhitney(now.Samples, then.Samples), Verdict: "same"}
		if then.P50 > 0 {
			d.Ratio = now.P50 / then.P50
		}
		if d.P < significance {
			if d.Verdict = "slower"; d.Ratio < 1 {
				d.Verdict = "faster"
			}
		}
		now.Baseline = d
	}
	return unmatched
}

// Read reads a report written by Write.
func Read(path string) (*Report, error) {
	raw, err := memory.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := memory.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("%s: report version %d, want %d: measure the baseline again", path, r.Version, Version)
	}
	return &r, nil
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error { return atomicfile.WriteJSON(path, r) }
