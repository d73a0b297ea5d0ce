package loop

import (
	"slices"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/ir"
)

// updateOf is the scatter that a region ends with, if it makes the new value of a state binding from the old one and
// its updates go to different places: then a kernel writes only the updates, over the old value. nil: the kernel
// writes all elements.
func updateOf(region *ir.Node, ctx *kernel.Context) *ir.Node {
	body := region.Region.Body
	if ctx.Updates == nil || region.Region.Members > 0 || len(body.Outputs) != 1 {
		return nil
	}
	n := renamed(body.Outputs[0]).Def
	if n == nil || !n.WritesEach() || n.Inputs[2].Type.Numel() == 0 || n.Outputs[0].Type.DType.Bits() < 8 {
		return nil
	}
	i := slices.Index(body.Inputs, renamed(n.Inputs[0]))
	if i < 0 || !ctx.Updates(region.Outputs[0], region.Inputs[i]) {
		return nil
	}
	for old, uses := n.Inputs[0], body.Uses(); ; old = old.Def.Inputs[0] { // updates read nothing that others write
		if len(uses[old]) > 1 {
			return nil
		}
		if old.Def == nil {
			return n
		}
	}
}

// renamed follows Reshapes to what they rename.
func renamed(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Op.Name == "Reshape" {
		v = v.Def.Inputs[0]
	}
	return v
}

// scattered makes the updates the output.
func (p *problem) scattered(n *ir.Node) {
	value, at := p.l.Scattered(n, p.index)
	value, stored := lower.Storage(p.b, value, n.Outputs[0].Type.DType)
	p.outs = []output{{value: value, dtype: stored, sub: 1, linear: at}}
	out := p.l.Output(0)
	i := slices.Index(p.region.Region.Body.Inputs, renamed(n.Inputs[0]))
	p.l.Operands[out].Over, p.l.Operands[out].Read = p.region.Inputs[i], true // what it leaves is as if it had read it
	p.outputs = []int{out}
}
