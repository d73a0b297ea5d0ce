// Package report defines the JSON that spark-compile --report and spark-run --json write, one schema for both.
package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/trace"
	"github.com/spark-compile/spark-compile/runtime"
)

// Version is the version of the schema.
const Version = 1

// Program describes a compiled program.
type Program struct {
	Model        string `json:"model"`
	Target       string `json:"target"`
	Precision    string `json:"precision"`
	Launches     int    `json:"launches"`                      // graph nodes of a run, copies included
	MicroBatches int    `json:"micro_batches,omitempty"`       // in which the batch runs, one after the other; absent: as one
	Fronts       int    `json:"front_micro_batches,omitempty"` // in which the first layers run; absent: in the same
	ArenaBytes   int    `json:"arena_bytes"`
	LiveBytes    int    `json:"live_bytes"`
	WeightsBytes int    `json:"weights_bytes"`
	MACs         *int64 `json:"macs"`          // of the model; nil: an older package does not say
	Executed     int64  `json:"executed_macs"` // of the kernels: with padding, split operands and what is computed again
}

// MMAC is the model's multiply-accumulates in millions, as text.
func (p *Program) MMAC() string {
	if p.MACs == nil {
		return "?"
	}
	millions := float64(*p.MACs) / 1e6
	if millions < 1 {
		return fmt.Sprintf("%.2g", millions)
	}
	return fmt.Sprintf("%.1f", millions)
}

// Describe describes a variant of a program.
func Describe(p *runtime.Program, v *runtime.Variant) Program {
	d := Program{Model: p.Model, Target: v.Target, Precision: p.Precision, Launches: v.Launches(), ArenaBytes: v.ArenaBytes, LiveBytes: v.LiveBytes, WeightsBytes: len(p.Weights)}
	if e := v.Entry("run"); e != nil {
		d.MicroBatches, d.Fronts = e.Repeats, e.Fronts
	}
	if macs := p.Provenance.MACs; macs > 0 {
		d.MACs = &macs
	}
	for _, k := range v.Kernels {
		d.Executed += k.MACs * int64(k.Launches)
	}
	return d
}

// Report describes a compiled program and, if it was run, the results of the run.
type Report struct {
	Version int `json:"version"`
	Program
	Device      string             `json:"device,omitempty"`       // that ran it
	SwitchesOff []string           `json:"switches_off,omitempty"` // mechanisms that the device was opened without
	CompileMS   float64            `json:"compile_ms,omitempty"`   // without ptxas
	PtxasMS     float64            `json:"ptxas_ms,omitempty"`
	*Summary                       // of runs, the first included; nil: it was not run
	Runs        int                `json:"runs,omitempty"`
	Kernels     []Kernel           `json:"kernels"`
	Outputs     []Output           `json:"outputs"`
	Compared    *ComparedWith      `json:"compared_with,omitempty"`
	Fallbacks   []Fallback         `json:"fallbacks,omitempty"`
	Profile     *profile.Profile   `json:"profile,omitempty"` // of spark-run --profile
	Trace       *trace.Trace       `json:"trace,omitempty"`   // of spark-run --trace
	Stages      map[string]Summary `json:"stages,omitempty"`  // of spark-run --replay: prepare, run and parse; the runs above are whole steps
	Missed      int                `json:"missed,omitempty"`  // frames, of spark-run --replay

	Verdict     *Verdict               `json:"verdict,omitempty"`     // where accuracy was measured
	Layers      []Layer                `json:"layers,omitempty"`      // of precisions that calibrate; of others those that the file has quantised
	Slices      []calibrate.Quality    `json:"slices,omitempty"`      // outputs and their named parts: what the budget is compared with, or against --expect
	Sets        []calibrate.SetQuality `json:"sets,omitempty"`        // the same on each set of inputs, against the file by Reference
	Definitions map[string]string      `json:"definitions,omitempty"` // of the figures of Slices and Sets
	Reference   *compile.Reference     `json:"reference,omitempty"`   // what Slices and Sets are against
	Others      []compile.Measured     `json:"other_targets,omitempty"`
	Calibration *Calibration           `json:"calibration,omitempty"`
	Kept        *compile.FP16Fallback  `json:"kept_fp16,omitempty"` // what was asked for is no faster, or no layer is
	Predicted   []Prediction           `json:"predicted,omitempty"` // this program, and the same file in fp16
}

// Verdict is what a program gains and costs, in one place. Figures that were not measured are null.
type Verdict struct {
	US          *float64 `json:"predicted_us"`
	HalfUS      *float64 `json:"predicted_fp16_us"` // of the same file
	Faster      *float64 `json:"times_as_fast_as_fp16"`
	LeastCosine float64  `json:"least_cosine"` // of any output or slice, on any set of inputs
	Output      string   `json:"least_cosine_output"`
	Set         string   `json:"least_cosine_set,omitempty"`
	Expected    *float64 `json:"expected_cosine"` // on other inputs
	ExpectedOf  string   `json:"expected_cosine_output,omitempty"`
	MinCosine   *float64 `json:"min_cosine"` // the budget
	WithinIt    *bool    `json:"within_budget"`
}

// verdict puts the figures together.
func (r *Report) verdict() *Verdict {
	if len(r.Slices) == 0 {
		return nil
	}
	least := slices.MinFunc(r.Slices, func(a, b calibrate.Quality) int { return cmp.Compare(a.Cosine, b.Cosine) })
	v := &Verdict{LeastCosine: least.Cosine, Output: least.Name, Set: least.Set}
	expected := slices.MinFunc(r.Slices, func(a, b calibrate.Quality) int { return cmp.Compare(a.Expected, b.Expected) })
	if expected.Expected != 0 {
		v.Expected, v.ExpectedOf = &expected.Expected, expected.Name
	}
	if budget := r.Calibration.MinCosine; budget != nil {
		within := len(calibrate.Below(r.Slices, *budget)) == 0
		v.MinCosine, v.WithinIt = budget, &within
	}
	if n := len(r.Predicted); n > 0 {
		v.US = &r.Predicted[n-1].US
		if n > 1 {
			ratio := r.Predicted[0].US / *v.US
			v.HalfUS, v.Faster = &r.Predicted[0].US, &ratio
		}
	}
	return v
}

// Layer is a layer that can be quantised: the chosen format, its weights' size and its predicted time.
type Layer struct {
	calibrate.LayerChoice
	compile.Weight
	US float64 `json:"predicted_us,omitempty"` // of its launch, whatever else that computes
}

// Prediction is the predicted cost of a run on the target's device, from internal/profile.
type Prediction struct {
	Program
	Device string  `json:"device"`
	US     float64 `json:"us"`      // weights in L2 where they fit
	ColdUS float64 `json:"cold_us"` // weights from DRAM

	Range     cost.Figure `json:"range_us"`      // of US, by what is known of each constant of the model
	ColdRange cost.Figure `json:"cold_range_us"` // of ColdUS
	Waited    cost.Figure `json:"waited_us"`     // of US and what launching a graph and waiting for it takes

	ReadBytes  int64 `json:"read_bytes"` // of global memory, each byte once a launch
	WriteBytes int64 `json:"write_bytes"`
}

// Predict counts the work of a run of a variant on the CPU device and predicts the run's time on a target's device; nil: the variant's own.
func Predict(ctx context.Context, p *runtime.Program, v *runtime.Variant, t *target.Target) (Prediction, *profile.Profile, error) {
	prof, err := profile.Run(ctx, p, v, "run", t)
	if err != nil {
		return Prediction{}, nil, fmt.Errorf("%s %s: predicting the time on %s: %w", p.Model, p.Precision, v.Target, err)
	}
	return predicted(p, v, prof), prof, nil
}

func predicted(p *runtime.Program, v *runtime.Variant, prof *profile.Profile) Prediction {
	t := prof.Total
	return Prediction{Describe(p, v), prof.Device, t.US, t.ColdUS, prof.Range, prof.ColdRange, prof.Waited, t.UniqueRead, t.UniqueWrite}
}

// Accuracy adds what was measured, if anything was. For precisions that calibrate it also adds every layer, and compares
// weights and predicted time with the same file in fp16, which takes another compilation and a run of both programs in the
// interpreter. For the others it adds the layers that the file has quantised.
func (r *Report) Accuracy(ctx context.Context, c *compile.Result) error {
	defer func() { r.Verdict = r.verdict() }()
	layers := c.File
	if a := c.Accuracy; a != nil {
		r.Slices, r.Sets, r.Others, r.Definitions = a.Slices, a.Sets, a.Others, calibrate.Definitions()
		r.Reference = &a.Reference
		r.Calibration = &Calibration{Generated: a.Generated}
		if a.MinCosine > 0 {
			r.Calibration.MinCosine = &a.MinCosine
		}
		for _, s := range a.Sets {
			r.Calibration.Inputs += s.Inputs
		}
		if r.Kept = a.Fallback; len(a.Layers) > 0 {
			layers = a.Layers
		}
	}
	if len(layers) == 0 {
		return nil
	}
	half := c
	if r.Precision != precision.FP16 {
		var err error
		if half, err = c.Half(ctx); err != nil {
			return err
		}
		then, err := half.Profile(ctx)
		if err != nil {
			return err
		}
		p := predicted(half.Program, &half.Program.Variants[0], then)
		p.MACs = r.MACs
		r.Predicted = append(r.Predicted, p)
	}
	now, err := c.Profile(ctx)
	if err != nil {
		return err
	}
	r.Predicted = append(r.Predicted, predicted(c.Program, &c.Program.Variants[0], now))
	for i, w := range c.LayerWeights(half, layers) {
		r.Layers = append(r.Layers, Layer{layers[i], w, now.Launches[w.Launch].Time.US})
	}
	return nil
}

// Calibration describes the data and the budget that layers and slices come from.
type Calibration struct {
	Inputs    int      `json:"inputs"`     // of all sets
	Generated bool     `json:"generated"`  // calibration inputs were made up, not the model's own
	MinCosine *float64 `json:"min_cosine"` // the budget; nil: none
}

// Kernel is a kernel of the program. Registers and spills are nil where ptxas did not assemble it.
type Kernel struct {
	runtime.KernelInfo
	Regs   *int `json:"regs"`
	Spills *int `json:"spills"` // bytes
}

func kernels(list []runtime.KernelInfo) []Kernel {
	out := make([]Kernel, len(list))
	for i, k := range list {
		if out[i].KernelInfo = k; k.Regs > 0 {
			out[i].Regs, out[i].Spills = &k.Regs, &k.Spills
		}
	}
	return out
}

// Output is the comparison of one output with its reference.
type Output struct {
	Name string `json:"name"`
	runtime.Metrics
	Bounds *Bounds `json:"bounds"` // nil: it was not judged
	Met    *bool   `json:"within_bounds"`
}

// Bounds are what an output must meet; nil: any.
type Bounds struct {
	MinCosine *float64 `json:"min_cosine"`
	MaxRelL2  *float64 `json:"max_rel_l2"`
	Rtol      *float64 `json:"rtol"` // with Atol, of every element
	Atol      *float64 `json:"atol"`
}

// ComparedWith is what Outputs are compared with, of spark-run --compare.
type ComparedWith struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Model   string `json:"model"` // the file that it ran
}

// Fallback is a region that did not get its intended kernel family.
type Fallback struct {
	Region string `json:"region"`
	Family string `json:"family"`
	Reason string `json:"reason"`
}

// Of describes a program that has not been run.
func Of(p *runtime.Program, v *runtime.Variant) *Report {
	return &Report{Version: Version, Program: Describe(p, v), Kernels: kernels(v.Kernels), Outputs: []Output{}}
}

// RanOn says which device ran the program, and how it was opened.
func (r *Report) RanOn(d hal.Info) {
	r.Device, r.SwitchesOff = fmt.Sprintf("%s (%s)", d.Name, d.Backend), d.Switches.Off()
}

// Write writes the report to a file. On an error the file stays as it was.
func (r *Report) Write(path string) error {
	s, err := r.Stage(path)
	if err != nil {
		return err
	}
	defer s.Discard()
	return s.Commit()
}

// Stage writes the report to a temporary file, so that a command can write what may fail before the report
// appears. The caller commits or discards it.
func (r *Report) Stage(path string) (*atomicfile.Staged, error) {
	finite := *r
	finite.Outputs = slices.Clone(r.Outputs)
	for i := range finite.Outputs { // JSON has no infinity
		o := &finite.Outputs[i]
		o.MaxAbs, o.RelL2 = min(o.MaxAbs, math.MaxFloat64), min(o.RelL2, math.MaxFloat64)
	}
	finite.Slices, finite.Sets = finiteSlices(r.Slices), finiteSets(r.Sets)
	finite.Others = slices.Clone(r.Others)
	for i := range finite.Others {
		o := &finite.Others[i]
		o.Slices, o.Sets = finiteSlices(o.Slices), finiteSets(o.Sets)
	}
	raw, err := json.MarshalIndent(&finite, "", " ")
	if err != nil {
		return nil, fmt.Errorf("report %s: %w", path, err)
	}
	return atomicfile.Stage(path, append(raw, '\n'))
}

func finiteSlices(list []calibrate.Quality) []calibrate.Quality {
	list = slices.Clone(list)
	for i := range list {
		q := &list[i]
		q.MaxAbs, q.RelL2 = min(q.MaxAbs, math.MaxFloat64), min(q.RelL2, math.MaxFloat64)
		if x := q.Explained; x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0)) {
			least := -math.MaxFloat64
			q.Explained = &least
		}
	}
	return list
}

func finiteSets(list []calibrate.SetQuality) []calibrate.SetQuality {
	list = slices.Clone(list)
	for i := range list {
		list[i].Slices = finiteSlices(list[i].Slices)
	}
	return list
}

// CheckPath checks, before long work, that a report can be written to path.
func CheckPath(path string) error {
	s, err := atomicfile.Stage(path, nil)
	if err == nil {
		s.Discard()
	}
	return err
}
