package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/runtime"
)

// Version is the version of the JSON.
const Version = 1

// Report is all that was measured in one run of the command.
type Report struct {
	Version int      `json:"version"`
	Machine string   `json:"machine"`
	Device  string   `json:"device"`
	Driver  string   `json:"driver,omitempty"`
	Runs    int      `json:"runs"`
	Warmup  int      `json:"warmup"`
	Results []Result `json:"results"`
	// Concurrent is there if the models also ran at the same time.
	Concurrent *Concurrent `json:"concurrent,omitempty"`
}

// Result is one model in one precision.
type Result struct {
	Model        string    `json:"model"`
	Precision    string    `json:"precision"`
	Target       string    `json:"target"`
	Launches     int       `json:"launches"`
	ArenaBytes   int       `json:"arena_bytes"`
	LiveBytes    int       `json:"live_bytes"`
	WeightsBytes int       `json:"weights_bytes"`
	MACs         int64     `json:"macs"`
	CompileMS    float64   `json:"compile_ms,omitempty"`
	LoadMS       float64   `json:"load_ms"`  // code and weights onto the device, memory, graph
	FirstMS      float64   `json:"first_ms"` // the first run
	Summary                // steady runs, inputs and outputs included
	Samples      []float64 `json:"samples_ms"`
	// Replay is the graph alone, by the device's clock where it has one. Cold is the same with the L2 cache flushed.
	Replay *Summary `json:"replay,omitempty"`
	Cold   *Summary `json:"cold,omitempty"`

	State   State    `json:"state"`
	Layers  []Layer  `json:"layers,omitempty"`
	Outputs []Output `json:"outputs,omitempty"` // against the same model in fp32

	ONNXRuntime *Peer       `json:"onnx_runtime,omitempty"`
	Baseline    *Difference `json:"baseline,omitempty"`
}

// Output is how far an output is from the same model's in fp32.
type Output struct {
	Name string `json:"name"`
	runtime.Metrics
}

// State is how the GPU was while the model ran: means over the samples that were taken.
type State struct {
	Samples     int          `json:"samples"`
	ClockMHz    nvml.Figure  `json:"clock_mhz"`
	PowerWatts  nvml.Figure  `json:"power_watts"`
	Celsius     nvml.Figure  `json:"celsius"`
	Utilisation nvml.Figure  `json:"utilisation_percent"`
	Throttle    nvml.Reasons `json:"throttle"`
	Capped      bool         `json:"clock_capped"`
}

// Layer is the time of one launch by itself.
type Layer struct {
	Index  int     `json:"index"`
	Kernel string  `json:"kernel"`
	Note   string  `json:"note,omitempty"`
	MS     float64 `json:"ms"`
}

// Difference is what changed against a baseline.
type Difference struct {
	P50   float64 `json:"p50_ms"`  // the baseline's
	Ratio float64 `json:"ratio"`   // median now over median then
	P     float64 `json:"p_value"` // Mann–Whitney U, two-sided
	// Verdict is faster, slower, or same where the test does not tell them apart.
	Verdict string `json:"verdict"`
}

// significance is the probability of a false alarm that a verdict is given at.
const significance = .01

// Compare holds the results against those of a baseline for the same model, precision and device. It returns what has no
// counterpart.
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

// Read reads a report that Write wrote.
func Read(path string) (*Report, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("%s: version %d of the report, this program reads %d: measure the baseline again", path, r.Version, Version)
	}
	return &r, nil
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return writeFile(path, append(raw, '\n'))
}

// writeFile writes a whole file or none.
func writeFile(path string, raw []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".bench-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(raw)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
