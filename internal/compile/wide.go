package compile

import (
	"github.com/spark-compile/spark-compile/ir"
)

// wideOutputs is a graph of f32 regions with outputs of f32, so that a reference is not rounded to what the file stores. It is
// the graph itself if its outputs are that already, or if regions read what is rounded for one.
func wideOutputs(g *ir.Graph) *ir.Graph {
	c := cone{wide: g.Clone(), taken: map[*ir.Value]bool{}}
	c.uses = c.wide.Uses()
	for _, v := range c.wide.Outputs {
		if v.Type.DType.IsFloat() && v.Type.DType.Bits() < 32 && !c.take(v) {
			return g
		}
	}
	if len(c.taken) == 0 {
		return g
	}
	for v := range c.taken {
		r := v.Def.Region
		v.Type.DType, r.Results[v.Index].DType = ir.Float32, ir.Float32
		if !v.Def.IsFamily(ir.FamilyView) {
			for in := r.Body.Outputs[v.Index]; ; in = in.Def.Inputs[0] {
				in.Type.DType = ir.Float32
				if in.Def.Op.Name == "Cast" {
					in.Def.Attrs["to"] = ir.Float32
					break
				}
			}
			continue
		}
		for i := range r.Operands {
			r.Operands[i].DType, r.Body.Inputs[i].Type.DType = ir.Float32, ir.Float32
		}
		for _, n := range r.Body.Nodes {
			for _, out := range n.Outputs {
				out.Type.DType = ir.Float32
			}
		}
	}
	return c.wide
}

// cone is what is rounded for the outputs of a graph.
type cone struct {
	wide  *ir.Graph
	uses  map[*ir.Value][]ir.Use
	taken map[*ir.Value]bool
}

// take adds a rounded value, what it is a view of and the views of it. It fails where something else reads one of them.
func (c *cone) take(v *ir.Value) bool {
	if c.taken[v] {
		return true
	}
	c.taken[v] = true
	if v.Def == nil || !v.Def.IsFamily(ir.FamilyView) && !rounded(v) {
		return false
	}
	for _, u := range c.uses[v] {
		if u.Node != nil && (!u.Node.IsFamily(ir.FamilyView) || !c.take(u.Node.Outputs[0])) {
			return false
		}
	}
	if v.Def.IsFamily(ir.FamilyView) {
		for _, in := range v.Def.Inputs {
			if !c.take(in) {
				return false
			}
		}
	}
	return true
}

// rounded reports whether a region computes an output in f32 and rounds it for nothing else, though it may still move it.
func rounded(v *ir.Value) bool {
	body := v.Def.Region.Body
	uses, in := body.Uses(), body.Outputs[v.Index]
	for in.Def != nil && len(uses[in]) == 1 {
		switch in.Def.Op.Name {
		case "Cast":
			return in.Def.Inputs[0].Type.DType == ir.Float32
		case "Reshape", "Transpose":
			in = in.Def.Inputs[0]
		default:
			return false
		}
	}
	return false
}
