package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// peelViews moves nodes that only view a region's input out of the region: they cost nothing there, and regions that
// differ only in their views become isomorphic.
func (f *fuser) peelViews() {
	for _, c := range slices.Clone(f.all) {
		for changed := true; changed && len(c.nodes) > 1; {
			changed = false
			for _, n := range f.sorted(c) {
				if n == c.root || !n.IsView() || f.readsInside(c, n) {
					continue
				}
				delete(c.nodes, n)
				f.start(ir.FamilyView, n)
				changed = true
			}
		}
	}
	for _, c := range f.all {
		if c.family == ir.FamilyLoop && len(c.nodes) == 1 && c.root.IsView() && !f.mustCopy(c.root) {
			c.family = ir.FamilyView
		}
	}
}

func (f *fuser) readsInside(c *cluster, n *ir.Node) bool {
	for _, v := range n.Inputs {
		if v != nil && v.Def != nil && c.nodes[v.Def] {
			return true
		}
	}
	return false
}

// mustCopy reports whether a view is an output of the graph whose bytes no kernel would otherwise write.
func (f *fuser) mustCopy(n *ir.Node) bool {
	if !f.isGraphOutput(n.Outputs[0]) {
		return false
	}
	return viewed(n.Inputs[0]).Def == nil
}

// mergeTails merges an elementwise loop that reads a single value, of its own size, into the loop that computes it,
// which then has two outputs.
func (f *fuser) mergeTails() {
	for _, c := range f.all {
		if c.family != ir.FamilyLoop || c.heavy != nil || c.root.Role() == ir.RoleRegion {
			continue
		}
		v := f.tailOf(c)
		if v == nil || v.Def == nil {
			continue
		}
		p := f.of[v.Def]
		if p == c || p.family != ir.FamilyLoop || p.root.Role() == ir.RoleRegion || p.root.Outputs[0].Type.Numel() != v.Type.Numel() {
			continue
		}
		for _, n := range f.sorted(c) {
			f.join(p, n)
		}
		c.nodes = nil
	}
	f.all = slices.DeleteFunc(f.all, func(c *cluster) bool { return len(c.nodes) == 0 })
}

// tailOf returns the one value that cluster c reads, if c is elementwise and of its size.
func (f *fuser) tailOf(c *cluster) *ir.Value {
	var only *ir.Value
	for _, n := range f.sorted(c) {
		if !n.Op.Pointwise() && !bijective(n) {
			return nil
		}
		for _, v := range n.Inputs {
			if v == nil || v.IsConst() || v.Def != nil && c.nodes[v.Def] {
				continue
			}
			if only != nil && only != v {
				return nil
			}
			only = v
		}
	}
	if only == nil || only.Type.Numel() != c.root.Outputs[0].Type.Numel() {
		return nil
	}
	return only
}
