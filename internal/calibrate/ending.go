package calibrate

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// ending is what follows an anchor in a region where that is a chain of Relus and sums with operands, on whole arrays: with the bits
// of the kernel, whose every instruction the CPU device imitates. An empty one leaves the anchor's output as it is.
type ending []endingOp

// endingOp adds an operand of the region, over and over from the start of a member's array on, or is a Relu.
type endingOp struct {
	relu bool
	add  int
}

// endingOf returns nil if a tail, whose last operand is the anchor's output, does anything else.
func endingOf(tail *ir.Node) ending {
	r := tail.Region
	anchor := r.Body.Inputs[len(r.Body.Inputs)-1]
	if len(r.Body.Outputs) != 1 || anchor.Type.DType != ir.Float32 || tail.Outputs[0].Type.DType != ir.Float32 {
		return nil
	}
	out, at := ending{}, anchor
	for _, n := range r.Body.Nodes {
		if n.Inputs[0] != at && (n.Op.Name != "Add" || n.Inputs[1] != at) {
			return nil
		}
		switch n.Op.Name {
		case "Relu":
			out = append(out, endingOp{relu: true})
		case "Add":
			with := n.Inputs[0]
			if with == at {
				with = n.Inputs[1]
			}
			i := slices.Index(r.Body.Inputs, with)
			if i < 0 || with == at || !repeats(with.Type.Shape, at.Type.Shape) {
				return nil
			}
			out = append(out, endingOp{add: i})
		case "Reshape":
		default:
			return nil
		}
		at = n.Outputs[0]
	}
	if at != r.Body.Outputs[0] {
		return nil
	}
	return out
}

// repeats reports whether broadcasting repeats an array as a whole.
func repeats(shape, to []int) bool {
	for len(shape) > 0 && shape[0] == 1 {
		shape = shape[1:]
	}
	return len(shape) <= len(to) && slices.Equal(shape, to[len(to)-len(shape):])
}

// of ends an anchor's output, of a node with some operands, in place.
func (e ending) of(xs []float32, n *ir.Node, operands []*ir.Tensor) {
	for _, op := range e {
		if op.relu {
			blas.Positive(xs, xs)
			continue
		}
		t := n.Inputs[op.add].Const
		if t == nil {
			t = operands[op.add]
		}
		with, parts := runtime.View[float32](t.Dense()), 1
		if n.Region.Operands[op.add].Batched {
			parts = n.Region.Count()
		}
		size, part := len(xs)/parts, len(with)/parts
		for i := 0; i < len(xs); i += part {
			blas.Axpy(1, with[i/size*part:][:part], xs[i:])
		}
	}
}
