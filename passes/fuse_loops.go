package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// growLoops makes regions of the remaining nodes, from the outputs upwards.
func (f *fuser) growLoops() {
	for i := len(f.g.Nodes) - 1; i >= 0; i-- {
		n := f.g.Nodes[i]
		if f.of[n] != nil {
			continue
		}
		if n.IsFlatConcat() && f.canPlace(n) {
			f.start(ir.FamilyView, n)
			for _, v := range n.Inputs {
				f.placed[v], f.placed[viewedWhole(v)] = true, true
			}
			continue
		}
		c := f.start(ir.FamilyLoop, n)
		if n.Role() == ir.RoleRegion {
			continue
		}
		f.growUp(c, func(_ *ir.Node, _ int, d *ir.Node) bool { return f.fitsLoop(c, d) })
	}
}

// canPlace reports whether the operands of a Concat are better written in place by their kernels than gathered by
// one: each is the output of a node, none is claimed twice, and at most one of them would not need a kernel
// otherwise, unless groupOperands has seen to those, or they can join the kernel of others.
func (f *fuser) canPlace(n *ir.Node) bool {
	seen := map[*ir.Value]bool{}
	light := 0
	for _, v := range n.Inputs {
		if !f.placeable(v, seen) {
			return false
		}
		if f.isLight(v) && !(f.several && f.hasSiblings(v)) {
			light++
		}
	}
	return light <= 1 || f.grouped[n]
}

// placeable reports whether a kernel can write v where a Concat wants it, which has the operands in seen before.
func (f *fuser) placeable(v *ir.Value, seen map[*ir.Value]bool) bool {
	if v.Def == nil || f.placed[v] || seen[v] || f.isGraphOutput(v) || v.Type.Numel() == 0 {
		return false
	}
	seen[v] = true
	base := viewedWhole(v)
	return base.Def != nil && !base.Def.IsView() && !f.placed[base]
}

// isLight reports whether v would need no kernel if what reads it computed it.
func (f *fuser) isLight(v *ir.Value) bool { return f.reader(v) != nil && !f.hasKernel(v.Def) }

// hasSiblings reports whether an elementwise kernel that computes v would have others of its size to join
// (mergeSiblings): v is read elsewhere too, or some value that it is computed from, element by element, is.
func (f *fuser) hasSiblings(v *ir.Value) bool {
	size := v.Type.Numel()
	for v = viewedWhole(v); v.Type.Numel() == size; {
		if len(f.uses[v]) > 1 {
			return true
		}
		if v.Def == nil || !v.Def.Op.Pointwise() {
			return false
		}
		i := slices.IndexFunc(v.Def.Inputs, func(x *ir.Value) bool {
			return x != nil && !x.IsConst() && x.Type.Numel() == size
		})
		if i < 0 {
			return false
		}
		v = v.Def.Inputs[i]
	}
	return false
}

// viewedWhole follows views of all of a value to that value.
func viewedWhole(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.IsView() && v.Def.Inputs[0].Type.Numel() == v.Type.Numel() {
		v = v.Def.Inputs[0]
	}
	return v
}

// viewed follows views of a value to what they view.
func viewed(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.IsView() {
		v = v.Def.Inputs[0]
	}
	return v
}

func (f *fuser) isGraphOutput(v *ir.Value) bool {
	for _, u := range f.uses[v] {
		if u.Node == nil {
			return true
		}
	}
	return false
}

// hasKernel reports whether d ends up in a kernel with a heavy node, whatever reads it.
func (f *fuser) hasKernel(d *ir.Node) bool {
	for {
		if f.of[d] != nil || d.Role() != ir.RoleLight {
			return true
		}
		var next *ir.Node
		for _, v := range d.Inputs {
			if v == nil || viewed(v).Def == nil {
				continue
			}
			if next != nil && next != v.Def {
				return false
			}
			next = v.Def
		}
		if next == nil || f.reader(d.Outputs[0]) == nil {
			return false
		}
		d = next
	}
}

// fitsLoop reports whether producer d may be computed inside loop cluster c.
func (f *fuser) fitsLoop(c *cluster, d *ir.Node) bool {
	if f.placed[d.Outputs[0]] || d.IsFlatConcat() && f.canPlace(d) {
		return false
	}
	used := 0
	for _, v := range d.Outputs {
		if len(f.uses[v]) > 0 {
			used++
		}
	}
	if used != 1 {
		return false
	}
	reads := f.readsOf(c, d)
	switch d.Role() {
	case ir.RoleHeavy:
		return c.heavy == nil && reads == 1 && f.onlyEpilogue(c, d)
	case ir.RoleLight:
		if d.Op.Kind != ir.KindMovement {
			if c.heavy != nil && rereads(c.heavy) && f.feedsHeavy(c, d) && d.Op.Name != "Cast" {
				return false
			}
			if cost := reads * d.Op.Cost; reads > 1 && cost > maxRecompute && cost*d.Outputs[0].Type.Numel() > cheapTotal {
				return false
			}
		}
		if c.heavy != nil && c.heavy.Op.Kind == ir.KindOther && !c.heavy.WritesEach() && f.feedsHeavy(c, d) {
			return false
		}
	default:
		return false
	}
	return true
}

// readsOf estimates how often an element of d's output is computed if d joins c.
func (f *fuser) readsOf(c *cluster, d *ir.Node) int {
	most := 1
	for _, v := range d.Outputs {
		for _, u := range f.uses[v] {
			n := u.Node
			if n == nil || !c.nodes[n] {
				continue
			}
			times := max(c.reads[n], 1)
			in, out := max(v.Type.Numel(), 1), n.Outputs[0].Type.Numel()
			switch {
			case n == c.heavy && n.Op.Kind == ir.KindReduction:
				if n.Op.Rereads {
					times *= 2
				}
			case n.Op.Kind == ir.KindElementwise, n.Op.Rereads:
				times *= max((out+in-1)/in, 1)
			}
			most = max(most, times)
		}
	}
	return most
}

// onlyEpilogue reports whether all nodes of c that depend on heavy node d keep its size.
func (f *fuser) onlyEpilogue(c *cluster, d *ir.Node) bool {
	size := d.Outputs[0].Type.Numel()
	seen := map[*ir.Node]bool{}
	var keeps func(n *ir.Node) bool
	keeps = func(n *ir.Node) bool {
		for _, v := range n.Outputs {
			for _, u := range f.uses[v] {
				m := u.Node
				if m == nil || !c.nodes[m] || seen[m] {
					continue
				}
				seen[m] = true
				if m.Outputs[0].Type.Numel() != size || !m.Op.Pointwise() && !bijective(m) || !keeps(m) {
					return false
				}
			}
		}
		return true
	}
	return keeps(d)
}
