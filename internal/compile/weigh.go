package compile

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// weigh finds the layers' launches, and says what the weights file really holds of them, here and in the same file in fp16:
// packed and padded, with the scales of blocks and of channels.
func (a *Accuracy) weigh(program, half *Result) {
	now, then := weights(program), weights(half)
	for i := range a.Layers {
		l := &a.Layers[i]
		if list := now[l.Name]; len(list) > 0 {
			l.Launch, l.Bytes, now[l.Name] = list[0].launch, list[0].bytes, list[1:]
		}
		if list := then[l.Name]; len(list) > 0 {
			l.HalfBytes, then[l.Name] = list[0].bytes, list[1:]
		}
	}
}

// weight is what a launch keeps of its weights.
type weight struct{ launch, bytes int }

// weights lists those of the first target by the name of the region; regions of one name keep their order.
func weights(r *Result) map[string][]weight {
	out := map[string][]weight{}
	v := &r.Program.Variants[0]
	for i, n := range r.regions {
		if n != nil && passes.FrontAnchor(n) != nil {
			out[n.Name] = append(out[n.Name], weight{i, constants(v, &v.Entries[0].Launches[i]) - biases(n)})
		}
	}
	return out
}

// constants are the bytes of the weights blob that a launch reads, with what pads them to the alignment of a buffer.
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

// biases are the bytes of a region's constants that are the same in any precision: neither weights and scales of blocks,
// which are narrow, nor the scales of channels, which are the operand of a Mul directly behind the anchor.
func biases(n *ir.Node) int {
	product := passes.FrontAnchor(n).Outputs[0]
	scales := func(v *ir.Value) bool {
		return slices.ContainsFunc(n.Body.Nodes, func(m *ir.Node) bool {
			return m.Op.Name == "Mul" && slices.Contains(m.Inputs, v) && slices.Contains(m.Inputs, product)
		})
	}
	narrow := []ir.DType{ir.Float16, ir.BFloat16, ir.Float8E4M3FN, ir.Float4E2M1}
	sum := 0
	for i, v := range n.Inputs {
		if v.IsConst() && !slices.Contains(narrow, v.Type.DType) && !scales(n.Body.Inputs[i]) {
			sum += (v.Type.Bytes() + 255) &^ 255
		}
	}
	return sum
}
