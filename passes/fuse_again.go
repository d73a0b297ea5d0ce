package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

const (
	alwaysStored   = 1 << 14 // elements that cost nothing to store
	lessThanStored = 4       // simple instructions an element that cost less than to store and to read it
)

// computeAgain takes a loop apart that computes a value by a few cheap elementwise nodes from another one of its size: every cluster
// that reads it gets these nodes for its own, and reads the other value. A layer with a gain is stored before the gain, where the
// gain's gradient reads it; the activation behind it, and the gradient of that, need not have it stored once more.
func (f *fuser) computeAgain() error {
	for _, c := range slices.Clone(f.all) {
		readers := f.computing(c)
		for _, r := range readers {
			if err := f.copyInto(r, c); err != nil {
				return err
			}
		}
		if len(readers) > 0 {
			f.g.Nodes = slices.DeleteFunc(f.g.Nodes, func(n *ir.Node) bool { return c.nodes[n] })
			c.nodes, f.uses = nil, f.g.Uses()
		}
	}
	f.all = slices.DeleteFunc(f.all, func(c *cluster) bool { return len(c.nodes) == 0 })
	return nil
}

// computing lists the clusters that read what c computes if all of them had better compute it, else none.
func (f *fuser) computing(c *cluster) (readers []*cluster) {
	y := c.root.Outputs[0]
	if !f.isElementwise(c) || y.Type.Numel() <= alwaysStored {
		return nil
	}
	cost := 0
	var whole *ir.Value
	for n := range c.nodes {
		cost += n.Op.Cost
		for _, v := range n.Inputs {
			switch {
			case v == nil, v.Def != nil && c.nodes[v.Def], v.Type.Numel()*16 <= y.Type.Numel():
			case v.IsConst() || whole != nil && whole != v:
				return nil
			default:
				whole = v
			}
		}
	}
	if whole == nil || cost > lessThanStored {
		return nil
	}
	tails := 0
	for _, u := range f.uses[y] {
		r := f.of[u.Node]
		if r == nil || !f.mayCompute(r, u.Node, len(c.nodes), y.Type.Numel(), cost) {
			return nil
		}
		if slices.Contains(readers, r) {
			continue
		}
		if readers = append(readers, r); r.family == ir.FamilyLoop && r.heavy == nil && f.tailOf(r) != nil {
			tails++
		}
	}
	if tails > 1 || tails == len(readers) {
		return nil // mergeTails makes one kernel of c and these
	}
	return readers
}

// mayCompute reports whether more nodes, of that size and cost, may stand in front of node n of cluster r.
func (f *fuser) mayCompute(r *cluster, n *ir.Node, nodes, size, cost int) bool {
	switch {
	case !n.Op.Pointwise() || n.Outputs[0].Type.Numel() != size || len(r.nodes)+nodes > maxCluster:
		return false
	case r.family == ir.FamilyLoop:
		return !r.before[n] || !rereads(r.heavy) && r.reads[n]*cost <= maxRecompute
	}
	return r.family != ir.FamilyView && !r.before[n]
}

// copyInto makes copies of c's nodes nodes of r.
func (f *fuser) copyInto(r, c *cluster) error {
	y, by := c.root.Outputs[0], map[*ir.Value]*ir.Value{}
	substituted := func(vs []*ir.Value) []*ir.Value {
		vs = slices.Clone(vs)
		for i, v := range vs {
			if by[v] != nil {
				vs[i] = by[v]
			}
		}
		return vs
	}
	nodes := f.sorted(c)
	slices.Reverse(nodes)
	var copies []*ir.Node
	for _, n := range nodes {
		again, err := f.g.Add(n.Op.Name, n.Name, n.Attrs, substituted(n.Inputs)...)
		if err != nil {
			return err
		}
		again.From, f.pos[again], by[n.Outputs[0]] = n.From, f.pos[n], again.Outputs[0]
		copies = append(copies, again)
	}
	for _, u := range f.uses[y] {
		if f.of[u.Node] == r {
			u.Node.Inputs = substituted(u.Node.Inputs)
		}
	}
	f.uses = f.g.Uses()
	slices.Reverse(copies)
	for _, n := range copies {
		f.join(r, n)
	}
	return nil
}
