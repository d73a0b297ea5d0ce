package compile

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// weigh finds the layers' launches, and replaces their bytes by what the program really keeps of their weights: packed and padded, with the scales of
// blocks and of channels. A layer's launch computes the region of its name; regions of one name keep their order.
func (a *Accuracy) weigh(v *runtime.Variant, regions []*ir.Node) {
	launches := map[string][]int{}
	for i, n := range regions {
		if n != nil && passes.FrontAnchor(n) != nil {
			launches[n.Name] = append(launches[n.Name], i)
		}
	}
	for i := range a.Layers {
		l := &a.Layers[i]
		if at := launches[l.Name]; len(at) > 0 {
			l.Launch, launches[l.Name] = at[0], at[1:]
			l.Bytes = constants(v, &v.Entries[0].Launches[l.Launch]) - biases(regions[l.Launch])
		}
	}
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
