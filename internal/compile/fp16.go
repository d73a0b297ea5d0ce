package compile

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Weight is the size of a layer's weights in the weights file: packed and padded, with the scales of blocks and channels.
type Weight struct {
	Nodes     []string `json:"nodes"`          // of the file that multiply: several where towers or heads share a launch
	Launch    int      `json:"launch"`         // of the program's entry run
	With      []string `json:"with,omitempty"` // regions that the launch computes too: of a chain all but the layer, in their order
	Bytes     int      `json:"bytes"`          // what is in f32, as biases and scales, left out
	HalfBytes int      `json:"fp16_bytes"`     // of the same file in fp16
}

// Half compiles the same file in fp16 for the first target, once, for comparison.
func (r *Result) Half(ctx context.Context) (*Result, error) {
	if r.half != nil {
		return r.half, nil
	}
	r.opt.meter.Begin(compiling(r.Source), "compiling the same in fp16 to compare")
	half, err := Graph(ctx, r.path, r.Source, Options{Precision: precision.FP16, Targets: r.opt.Targets[:1], Machine: r.opt.Machine, Tuning: r.opt.Tuning, Passes: r.opt.Passes, Unfused: r.opt.Unfused, Slices: r.opt.Slices, Assembler: r.opt.Assembler,
		Trace: r.opt.Trace, F32Inputs: r.opt.F32Inputs, F32Outputs: r.opt.F32Outputs, chosen: r.opt.chosen})
	r.half = half
	return half, err
}

// Profile counts a run of the first target's program and predicts its time, once.
func (r *Result) Profile(ctx context.Context) (*profile.Profile, error) {
	if r.profile != nil {
		return r.profile, nil
	}
	v := &r.Program.Variants[0]
	r.opt.meter.Begin(float64(multiplications(r.Source))*console.CostCount, "%s: predicting the time in %s", v.Target, r.Program.Precision)
	t, err := r.opt.target(v.Target)
	if err != nil {
		return nil, err
	}
	p, err := profile.Run(ctx, r.Program, v, "run", t)
	if err != nil {
		return nil, fmt.Errorf("%s %s: predicting the time on %s: %w", r.Program.Model, r.Program.Precision, v.Target, err)
	}
	r.profile = p
	return p, nil
}

// FP16Fallback says that a program of another precision was asked for, and is predicted to be no faster than the file in fp16.
type FP16Fallback struct {
	Precision string  `json:"precision"` // asked for
	Layers    int     `json:"layers"`    // that would be in it; 0: each is slower in it, or costs more than the budget
	Launches  int     `json:"launches"`
	Weights   int     `json:"weights_bytes"`
	US        float64 `json:"us"` // as in a Prediction
	ColdUS    float64 `json:"cold_us"`
}

// keepHalf replaces a program that was searched for within a budget by fp16, if that is predicted to be as fast (weights in
// L2 where they fit), or if no layer went lower.
func (r *Result) keepHalf(ctx context.Context, y *accuracyEvaluator) error {
	if !precision.Calibrates(r.opt.Precision) || r.opt.MinCosine <= 0 || r.opt.Smaller {
		return nil
	}
	half, err := r.Half(ctx)
	if err != nil {
		return err
	}
	then, err := half.Profile(ctx)
	if err != nil {
		return err
	}
	now, err := r.Profile(ctx)
	if err != nil {
		return err
	}
	a := r.Accuracy
	free, low := 0, 0
	for _, l := range a.Layers {
		if !l.File && !l.Fixed {
			free++
			if l.Precision != precision.Half.Name {
				low++
			}
		}
	}
	if none := free > 0 && low == 0; !none && now.Total.US < then.Total.US {
		return nil
	}
	if len(r.opt.Targets) > 1 {
		opt := r.opt
		opt.Precision, opt.Keep, opt.MinCosine = precision.FP16, nil, 0
		opt.Calibrate, opt.Validate, opt.CalibrationCache, opt.Observe = nil, nil, "", nil
		if half, err = Graph(ctx, r.path, r.Source, opt); err != nil {
			return err
		}
	}
	more, keeps := "--prefer size takes smaller weights, a lower --min-cosine more layers", "--prefer size keeps smaller weights"
	if r.opt.part {
		more, keeps = "a lower --min-cosine takes more layers", "--min-cosine 0 keeps it"
	}
	switch {
	case free == 0:
		r.opt.warn("%s changes nothing: no layer is left that could be stored in fewer bits", r.opt.Precision)
	case low == 0:
		r.opt.warn("no layer is faster in %s within a budget of %g: the program is in fp16; %s", r.opt.Precision, r.opt.MinCosine, more)
	default:
		r.opt.warn("%s is predicted to be no faster than fp16 on %s, %.1f µs against %.1f (with cold weights %.1f against %.1f): the program is in fp16; %s",
			r.opt.Precision, now.Device, now.Total.US, then.Total.US, now.Total.ColdUS, then.Total.ColdUS, keeps)
	}
	a.Fallback = &FP16Fallback{r.opt.Precision, low, now.Total.Launches, len(r.Program.Weights), now.Total.US, now.Total.ColdUS}
	for i := range a.Layers {
		l := &a.Layers[i]
		if l.File || l.Fixed {
			continue
		}
		if l.Precision != precision.Half.Name {
			l.Why = fmt.Sprintf("the program in %s is predicted to be no faster", r.opt.Precision)
		}
		l.Precision, l.InPlace, l.Scale = precision.Half.Name, 0, nil
	}
	r.Program, r.Graph, r.Fallbacks, r.regions, r.made, r.Origins = half.Program, half.Graph, half.Fallbacks, half.regions, half.made, half.Origins
	r.half, r.profile = half, then
	r.opt.Precision = precision.FP16
	a.Others = nil
	for i := range y.sets {
		y.sets[i].Fitted = false
	}
	return r.judge(ctx, y)
}

// LayerWeights finds the launch and the weights of each of the layers, here and in the result of Half.
func (r *Result) LayerWeights(half *Result, layers []calibrate.LayerChoice) []Weight {
	now, then := r.weights(), half.weights()
	take := func(of map[string][]Weight, name string) (w Weight) {
		if list := of[name]; len(list) > 0 {
			w, of[name] = list[0], list[1:]
		}
		return w
	}
	var out []Weight
	for _, l := range layers {
		w := take(now, l.Name)
		w.HalfBytes = take(then, l.Name).Bytes
		out = append(out, w)
	}
	return out
}

// weights lists those of the first target by the name of the region; regions of one name keep their order. Layers of a chain share a launch.
func (r *Result) weights() map[string][]Weight {
	out := map[string][]Weight{}
	multiplies := r.multiplying()
	v := &r.Program.Variants[0]
	for i, n := range r.regions {
		if n == nil {
			continue
		}
		parts := n.Parts()
		for k, part := range parts {
			if part.Region.Anchor() == nil {
				continue
			}
			w := Weight{Nodes: []string{}, Launch: i, Bytes: constants(v, &v.Entries[0].Launches[i]) - biases(n)}
			for _, o := range part.Region.Anchor().From {
				if multiplies[o.Name] {
					w.Nodes = append(w.Nodes, o.Name)
				}
			}
			if len(parts) > 1 {
				w.Bytes = r.made[i][len(parts)-1-k]
			}
			for j, other := range parts {
				if j != k {
					w.With = append(w.With, other.Name)
				}
			}
			out[part.Name] = append(out[part.Name], w)
		}
	}
	return out
}

// multiplying are the names of the file's nodes with multiply-accumulates.
func (r *Result) multiplying() map[string]bool {
	names := map[string]bool{}
	for _, n := range r.Source.Nodes {
		for _, o := range n.From {
			names[o.Name] = names[o.Name] || n.MACs() > 0
		}
	}
	return names
}

// constants is the number of bytes that a launch reads of the weights blob, each buffer padded to its alignment.
func constants(v *runtime.Variant, l *runtime.Launch) int {
	sum := 0
	var seen []int
	for _, r := range l.Reads {
		b := &v.Buffers[r.Buffer]
		if b.Kind != runtime.ConstantBuffer || slices.Contains(seen, r.Buffer) {
			continue
		}
		seen = append(seen, r.Buffer)
		sum += (b.Bytes + 255) &^ 255
	}
	return sum
}

// biases is the number of bytes of a region's constants that are the same in every precision: all but the weights.
func biases(n *ir.Node) int {
	sum := 0
	for i, o := range n.Region.Operands {
		if v := n.Inputs[i]; v.IsConst() && o.DType.Bits() == 32 {
			sum += (v.Type.Bytes() + 255) &^ 255
		}
	}
	return sum
}
