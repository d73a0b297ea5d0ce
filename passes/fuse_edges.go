package passes

import (
	"maps"
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
		if p == c || p.family != ir.FamilyLoop || p.root.Role() == ir.RoleRegion ||
			p.root.Outputs[0].Type.Numel() != v.Type.Numel() || !f.fitRegisters(p, c) {
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

// mergeSiblings merges elementwise loops of one size of which one reads what another computes, or which read the same
// value: one kernel with several outputs, which loads that value once. The last ones come first: what only these read
// joins them.
func (f *fuser) mergeSiblings() {
	slices.SortFunc(f.all, func(a, b *cluster) int { return f.pos[b.root] - f.pos[a.root] })
	near := map[*ir.Value][]*cluster{} // the elementwise loops that read or compute a value
	for _, c := range f.all {
		if f.isElementwise(c) {
			for _, v := range f.wholes(c) {
				near[v] = append(near[v], c)
			}
		}
	}
	for _, c := range f.all {
		for merged := len(c.nodes) > 0 && f.isElementwise(c); merged; {
			merged = false
			for _, v := range f.wholes(c) {
				for _, p := range near[v] {
					if p == c || len(p.nodes) == 0 || f.between(p, c) || f.between(c, p) ||
						!neitherMoves(p, c) || !f.fitRegisters(p, c) {
						continue
					}
					if f.pos[p.root] > f.pos[c.root] {
						c.root = p.root
					}
					for _, n := range f.sorted(p) {
						f.of[n], c.nodes[n], c.reads[n] = c, true, p.reads[n]
					}
					p.nodes, merged = nil, true
				}
			}
		}
	}
	f.all = slices.DeleteFunc(f.all, func(c *cluster) bool { return len(c.nodes) == 0 })
}

// maxLive bounds the values that a kernel of merged loops holds at a time, in registers of 32 bits: a thread has 255.
const maxLive = 208

// neitherMoves reports whether neither of two elementwise loops moves what the other one computes.
func neitherMoves(p, c *cluster) bool {
	for _, part := range []*cluster{p, c} {
		for n := range part.nodes {
			for i, v := range n.Inputs {
				if !n.PullsSame(i) && (p.nodes[v.Def] || c.nodes[v.Def]) {
					return false
				}
			}
		}
	}
	return true
}

// fitRegisters reports whether the registers of a thread hold what it computes of two loops.
func (f *fuser) fitRegisters(p, c *cluster) bool {
	if len(p.nodes)+len(c.nodes) <= maxCluster {
		return true
	}
	nodes := slices.AppendSeq(slices.Collect(maps.Keys(p.nodes)), maps.Keys(c.nodes))
	slices.SortFunc(nodes, func(a, b *ir.Node) int { return f.pos[a] - f.pos[b] })
	return f.mostLive(nodes, func(n *ir.Node) bool { return p.nodes[n] || c.nodes[n] }) <= maxLive
}

// mostLive is the greatest number of registers of what nodes, in order, have read or computed and still need. Results
// that others read are needed to the end: threads store all of them last.
func (f *fuser) mostLive(nodes []*ir.Node, in func(n *ir.Node) bool) (most int) {
	last := map[*ir.Value]int{}
	for i, n := range nodes {
		for _, v := range n.Inputs {
			if v != nil && v.Type.Numel() > 1 {
				last[v] = max(last[v], i)
			}
		}
		for _, v := range n.Outputs {
			for _, u := range f.uses[v] {
				if !in(u.Node) {
					last[v] = len(nodes)
				}
			}
		}
	}
	ends := make([]int, len(nodes)+1)
	live, seen := 0, map[*ir.Value]bool{}
	for i, n := range nodes {
		for _, v := range slices.Concat(n.Inputs, n.Outputs) {
			if end, ok := last[v]; ok && !seen[v] {
				seen[v] = true
				size := max(1, v.Type.DType.Bits()/32)
				live += size
				ends[max(end, i)] += size
			}
		}
		most = max(most, live)
		live -= ends[i]
	}
	return most
}

// isElementwise reports whether c is a loop of light nodes of its own size, which move only what it does not compute.
func (f *fuser) isElementwise(c *cluster) bool {
	if c.family != ir.FamilyLoop || c.heavy != nil || c.root.Role() != ir.RoleLight {
		return false
	}
	for n := range c.nodes {
		if len(n.Outputs) != 1 || n.Outputs[0].Type.Numel() != c.root.Outputs[0].Type.Numel() {
			return false
		}
		for i, v := range n.Inputs {
			if !n.PullsSame(i) && c.nodes[v.Def] {
				return false
			}
		}
	}
	return true
}

// wholes lists the values of c's own size that it reads or computes, constants left out.
func (f *fuser) wholes(c *cluster) (list []*ir.Value) {
	for _, n := range f.sorted(c) {
		for _, v := range append(slices.Clone(n.Inputs), n.Outputs...) {
			if v != nil && !v.IsConst() && v.Type.Numel() == c.root.Outputs[0].Type.Numel() && !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	}
	return list
}

// between reports whether a cluster other than p and c depends on p while c depends on it: then they cannot be one.
func (f *fuser) between(p, c *cluster) bool {
	seen := map[*cluster]bool{p: true}
	var reaches func(from *cluster) bool
	reaches = func(from *cluster) bool {
		for n := range from.nodes {
			for _, v := range n.Outputs {
				for _, u := range f.uses[v] {
					if u.Node == nil {
						continue
					}
					to := f.of[u.Node]
					if to == c && from != p {
						return true
					}
					if to != c && !seen[to] {
						seen[to] = true
						if reaches(to) {
							return true
						}
					}
				}
			}
		}
		return false
	}
	return reaches(p)
}
