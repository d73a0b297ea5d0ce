package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "fuse",
	Summary: "group all nodes into regions: contraction, window, loop or view",
	After: map[string]string{
		"group-gemv": "it looks for MatMul and Conv nodes, which fuse moves into regions",
	},
	Run: fuse,
})

// FuseOptions are for programs with adapters, which train: contractions may have several results, cheap values are
// computed again for each reader, elementwise loops that read one value share a kernel, and so do the products of a
// layer and its adapter. Other programs would gain by the first alone, in precision file: 4 to 5 % of vision and
// supercombo, predicted (2026-11-23). It is untried with random graphs there.
type FuseOptions struct{ Siblings bool }

// fuse wraps every node into a Region, in as few regions as the contract in docs/design/regions.md allows:
//
//	fuse_prepare.go   rewrites that let more nodes share a region
//	fuse.go           groups of nodes: contractions and windows
//	fuse_loops.go     groups of nodes: loops, and Concats in place
//	fuse_edges.go     views at the border of a group, second outputs
//	fuse_classify.go  the part that a node may play in a region
//	fuse_emit.go      groups of nodes → Region nodes
func fuse(ctx *Context, g *ir.Graph) error {
	grouped, err := prepare(ctx, g)
	if err != nil {
		return err
	}
	f := newFuser(g)
	f.grouped, f.several = grouped, ctx.Siblings
	f.growAnchors()
	f.growLoops()
	f.peelViews()
	f.mergeTails()
	if ctx.Siblings {
		f.mergeSiblings()
	}
	return f.emit()
}

// cluster is a region under construction. Values leave it only through its outputs, of which there is one until
// mergeTails.
type cluster struct {
	family string
	nodes  map[*ir.Node]bool
	heavy  *ir.Node          // its anchor or heavy node, if any
	before map[*ir.Node]bool // nodes between its inputs and the heavy node
	root   *ir.Node          // the node whose output leaves it
	reads  map[*ir.Node]int  // how often an element of a node's output is computed
}

type fuser struct {
	g    *ir.Graph
	uses map[*ir.Value][]ir.Use
	pos  map[*ir.Node]int
	of   map[*ir.Node]*cluster
	// placed are values that a Concat in place has claimed.
	placed map[*ir.Value]bool
	// grouped are the Concats that groupOperands has made.
	grouped map[*ir.Node]bool
	several bool // contractions may have several outputs
	all     []*cluster
}

func newFuser(g *ir.Graph) *fuser {
	f := &fuser{g: g, uses: g.Uses(), pos: map[*ir.Node]int{}, of: map[*ir.Node]*cluster{}, placed: map[*ir.Value]bool{}}
	for i, n := range g.Nodes {
		f.pos[n] = i
	}
	return f
}

func (f *fuser) start(family string, n *ir.Node) *cluster {
	c := &cluster{family: family, nodes: map[*ir.Node]bool{n: true}, before: map[*ir.Node]bool{}, root: n, reads: map[*ir.Node]int{n: 1}}
	if n.Role() != ir.RoleLight {
		c.heavy = n
	}
	f.of[n] = c
	f.all = append(f.all, c)
	return c
}

// join adds n to c. A producer joins after all its readers.
func (f *fuser) join(c *cluster, n *ir.Node) {
	c.reads[n] = f.readsOf(c, n)
	c.before[n] = f.feedsHeavy(c, n)
	if n.Role() != ir.RoleLight {
		c.heavy = n
	}
	c.nodes[n] = true
	f.of[n] = c
}

// feedsHeavy reports whether n would stand between the inputs of c and its heavy node.
func (f *fuser) feedsHeavy(c *cluster, n *ir.Node) bool {
	for _, v := range n.Outputs {
		for _, u := range f.uses[v] {
			if u.Node != nil && (u.Node == c.heavy || c.before[u.Node]) {
				return true
			}
		}
	}
	return false
}

// reader returns the only node that reads v, or nil if there are several or v is an output of the graph.
func (f *fuser) reader(v *ir.Value) *ir.Node {
	var n *ir.Node
	for _, u := range f.uses[v] {
		if u.Node == nil || n != nil && u.Node != n {
			return nil
		}
		n = u.Node
	}
	return n
}

// inside reports whether everything that reads d is in c.
func (f *fuser) inside(c *cluster, d *ir.Node) bool {
	return !slices.ContainsFunc(d.Outputs, func(v *ir.Value) bool { return f.leaves(c, v) })
}

// growAnchors makes the contraction and window regions, the last anchor first: where two anchors meet in an addition,
// the later one takes it.
func (f *fuser) growAnchors() {
	for i := len(f.g.Nodes) - 1; i >= 0; i-- {
		n := f.g.Nodes[i]
		var c *cluster
		switch n.Role() {
		case ir.RoleContraction:
			c = f.start(ir.FamilyContraction, n)
		case ir.RoleWindow:
			c = f.start(ir.FamilyWindow, n)
		default:
			continue
		}
		f.growPrologue(c)
		f.growEpilogue(c)
		f.growSides(c)
		if f.several && c.family == ir.FamilyContraction {
			f.growSums(c)
		}
	}
}

// growPrologue adds the movement and widening nodes between region inputs and the anchor's matrix operands.
func (f *fuser) growPrologue(c *cluster) {
	f.growUp(c, func(n *ir.Node, i int, d *ir.Node) bool {
		return (n != c.heavy || slices.Contains(n.Op.Matrix, i)) && f.isOperandStep(c.heavy, d)
	})
}

// isOperandStep reports whether d may stand between a region input and a matrix operand of the anchor.
func (f *fuser) isOperandStep(anchor, d *ir.Node) bool {
	switch d.Op.Name {
	case "Cast":
		return promotesHalf(d)
	case "Reshape":
		return true
	}
	// Constant weights are in order, and so is an image that they are made for.
	return slices.Contains(anchor.Op.Moved, d.Op.Name) && (anchor.Op.Name != "Conv" || !anchor.Inputs[1].IsConst() && !aligns(d))
}

// aligns reports whether a Transpose before an anchor makes rows that a kernel can copy 16 bytes of f16 at a time,
// and there are none without it: the kernel could copy along the last dimension, or along the first, of which its
// operand is made.
func aligns(d *ir.Node) bool {
	x, y := d.Inputs[0].Type, d.Outputs[0].Type
	last := x.Rank() - 1
	if d.Op.Name != "Transpose" || y.Shape[last]%operandAlign != 0 {
		return false
	}
	to := slices.Index(d.Attrs.Ints("perm"), last)
	return x.Shape[last]%operandAlign != 0 || to != 0 && to != last
}

// growEpilogue follows the anchor's output while a single elementwise or bijective node reads it. A contraction that
// may have several outputs stores a value that others read too, and goes on with what is computed from it alone.
func (f *fuser) growEpilogue(c *cluster) {
	transposed, stored := false, false
	for {
		v := c.root.Outputs[0]
		n := f.reader(v)
		if n == nil && f.several && c.family == ir.FamilyContraction && c.heavy.Op.Name != "Attention" {
			n, stored = f.next(v), true
		}
		if n == nil || f.of[n] != nil || len(n.Outputs) != 1 || n.Outputs[0].Type.Numel() != v.Type.Numel() {
			return
		}
		// What others compute from a stored value cannot be read before they run.
		if stored && slices.ContainsFunc(n.Inputs, func(x *ir.Value) bool { return x != nil && !c.nodes[x.Def] && f.follows(x, c.heavy) }) {
			return
		}
		switch {
		case n.Op.Name == "Reshape":
		case n.Op.Name == "Transpose" && c.family == ir.FamilyWindow && !n.IsView():
			return // its kernels store what they have summed
		case n.Op.Name == "Transpose":
			transposed = transposed || !n.IsView()
		case n.Op.Name == "Cast":
		case !n.Op.Pointwise() || transposed:
			return
		}
		f.join(c, n)
		c.root = n
	}
}

// follows reports whether v is computed from what a node computes.
func (f *fuser) follows(v *ir.Value, n *ir.Node) bool {
	seen := map[*ir.Node]bool{}
	var from func(v *ir.Value) bool
	from = func(v *ir.Value) bool {
		d := v.Def
		if d == nil || seen[d] || f.pos[d] < f.pos[n] {
			return false
		}
		seen[d] = true
		return d == n || slices.ContainsFunc(d.Inputs, func(x *ir.Value) bool { return x != nil && from(x) })
	}
	return from(v)
}

// next is the first of several elementwise nodes that read v and nothing else of its size: it can be computed where v
// is.
func (f *fuser) next(v *ir.Value) *ir.Node {
	var first *ir.Node
	for _, u := range f.uses[v] {
		n := u.Node
		if n == nil || !n.Op.Pointwise() || first != nil && f.pos[n] >= f.pos[first] {
			continue
		}
		if !slices.ContainsFunc(n.Inputs, func(x *ir.Value) bool { return x != nil && x != v && x.Type.Numel() >= v.Type.Numel() }) {
			first = n
		}
	}
	return first
}

// growSides adds elementwise producers, of the output's size, of the epilogue's other operands.
func (f *fuser) growSides(c *cluster) {
	size := c.root.Outputs[0].Type.Numel()
	f.growUp(c, func(_ *ir.Node, _ int, d *ir.Node) bool {
		return d.Op.Pointwise() && d.Outputs[0].Type.Numel() == size && !f.feedsHeavy(c, d)
	})
}

// growUp adds each producer d of input i of a node n in c that accept approves and nothing outside reads, until none
// is left.
func (f *fuser) growUp(c *cluster, accept func(n *ir.Node, i int, d *ir.Node) bool) {
	for changed := true; changed; {
		changed = false
		for _, n := range f.sorted(c) {
			for i, v := range n.Inputs {
				if v == nil || v.Def == nil || f.of[v.Def] != nil || len(c.nodes) >= maxCluster {
					continue
				}
				if d := v.Def; f.inside(c, d) && accept(n, i, d) {
					f.join(c, d)
					changed = true
				}
			}
		}
	}
}

// maxCluster bounds the nodes of a loop region: expressions grow with it.
const maxCluster = 96

// sorted lists the cluster's nodes, last first.
func (f *fuser) sorted(c *cluster) []*ir.Node {
	nodes := make([]*ir.Node, 0, len(c.nodes))
	for n := range c.nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *ir.Node) int { return f.pos[b] - f.pos[a] })
	return nodes
}
