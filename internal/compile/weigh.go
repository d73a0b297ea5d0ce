package compile

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Weight is the size of a layer's weights in the weights file: packed and padded, with the scales of blocks and channels.
type Weight struct {
	Launch    int `json:"launch"` // of the program's entry run
	Bytes     int `json:"bytes"`
	HalfBytes int `json:"fp16_bytes"` // of the same file in fp16
}

// Half compiles the same file in fp16 for the first target, for comparison.
func (r *Result) Half(ctx context.Context) (*Result, error) {
	r.opt.progress("the same in fp16")
	return Graph(ctx, r.path, r.Source, Options{Precision: precision.FP16, Targets: r.opt.Targets[:1], Passes: r.opt.Passes, Assembler: r.opt.Assembler})
}

// Weigh finds the launch and the weights of each layer of Accuracy, here and in the result of Half.
func (r *Result) Weigh(half *Result) []Weight {
	now, then := r.weights(), half.weights()
	take := func(of map[string][]Weight, name string) (w Weight) {
		if list := of[name]; len(list) > 0 {
			w, of[name] = list[0], list[1:]
		}
		return w
	}
	var out []Weight
	for _, l := range r.Accuracy.Layers {
		w := take(now, l.Name)
		w.HalfBytes = take(then, l.Name).Bytes
		out = append(out, w)
	}
	return out
}

// weights lists those of the first target by the name of the region; regions of one name keep their order.
func (r *Result) weights() map[string][]Weight {
	out := map[string][]Weight{}
	v := &r.Program.Variants[0]
	for i, n := range r.regions {
		if n != nil && n.Region.Anchor() != nil {
			out[n.Name] = append(out[n.Name], Weight{Launch: i, Bytes: constants(v, &v.Entries[0].Launches[i]) - biases(n)})
		}
	}
	return out
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
