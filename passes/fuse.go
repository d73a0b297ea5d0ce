package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// fuse wraps every node into a Region, as few of them as the contract in docs/architecture.md ("Regions") allows:
//
//	fuse_prepare.go   rewrites on nodes that let more of them meet
//	fuse.go           which nodes go together
//	fuse_classify.go  what a node may be within a region
//	fuse_emit.go      groups of nodes → Region nodes
func fuse(ctx *Context, g *ir.Graph) error {
	if err := prepare(ctx, g); err != nil {
		return err
	}
	f := newFuser(g)
	f.growAnchors()
	f.growLoops()
	f.peelViews()
	f.mergeTails()
	return f.emit()
}

// cluster is a region in the making. Values leave it only through its outputs; until mergeTails there is one.
type cluster struct {
	family string
	nodes  map[*ir.Node]bool
	heavy  *ir.Node // its anchor or heavy node, if any
	root   *ir.Node // the node whose output leaves it
	reads  map[*ir.Node]int
}

type fuser struct {
	g    *ir.Graph
	uses map[*ir.Value][]ir.Use
	pos  map[*ir.Node]int
	of   map[*ir.Node]*cluster
	// placed are values that a Concat in place has claimed.
	placed map[*ir.Value]bool
	all    []*cluster
}

func newFuser(g *ir.Graph) *fuser {
	f := &fuser{g: g, uses: g.Uses(), pos: map[*ir.Node]int{}, of: map[*ir.Node]*cluster{}, placed: map[*ir.Value]bool{}}
	for i, n := range g.Nodes {
		f.pos[n] = i
	}
	return f
}

func (f *fuser) start(family string, n *ir.Node) *cluster {
	c := &cluster{family: family, nodes: map[*ir.Node]bool{n: true}, root: n, reads: map[*ir.Node]int{n: 1}}
	f.of[n] = c
	f.all = append(f.all, c)
	return c
}

func (f *fuser) join(c *cluster, n *ir.Node) {
	c.nodes[n] = true
	f.of[n] = c
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
	for _, v := range d.Outputs {
		for _, u := range f.uses[v] {
			if u.Node == nil || !c.nodes[u.Node] {
				return false
			}
		}
	}
	return true
}

// growAnchors makes the contraction and window regions, the last anchor first: where two anchors meet in an addition,
// the later one takes it.
func (f *fuser) growAnchors() {
	for i := len(f.g.Nodes) - 1; i >= 0; i-- {
		n := f.g.Nodes[i]
		var c *cluster
		switch roleOf(n) {
		case roleContraction:
			c = f.start(ir.FamilyContraction, n)
		case roleWindow:
			c = f.start(ir.FamilyWindow, n)
		default:
			continue
		}
		c.heavy = n
		f.growPrologue(c)
		f.growEpilogue(c)
		f.growSides(c)
	}
}

// growPrologue takes in what stands between region inputs and the anchor's matrix operands and only moves or widens.
func (f *fuser) growPrologue(c *cluster) {
	for changed := true; changed; {
		changed = false
		for _, n := range f.sorted(c) {
			for i, v := range n.Inputs {
				if v == nil || v.Def == nil || f.of[v.Def] != nil {
					continue
				}
				if n == c.heavy && !slices.Contains(matrixInputs(n), i) {
					continue
				}
				if f.isOperandStep(c.heavy, v.Def) && f.inside(c, v.Def) {
					f.join(c, v.Def)
					changed = true
				}
			}
		}
	}
}

// isOperandStep reports whether d may stand between a region input and a matrix operand of the anchor.
func (f *fuser) isOperandStep(anchor, d *ir.Node) bool {
	switch d.Op.Name {
	case "Cast":
		return widensHalf(d)
	case "Reshape":
		return true
	case "Transpose", "Slice":
		return anchor.Op.Name == "Attention"
	}
	return false
}

// growEpilogue follows the anchor's output while a single elementwise or bijective node reads it.
func (f *fuser) growEpilogue(c *cluster) {
	transposed := false
	for {
		v := c.root.Outputs[0]
		n := f.reader(v)
		if n == nil || f.of[n] != nil || len(n.Outputs) != 1 || n.Outputs[0].Type.Numel() != v.Type.Numel() {
			return
		}
		switch {
		case n.Op.Name == "Reshape":
		case n.Op.Name == "Transpose":
			transposed = transposed || !isViewNode(n)
		case n.Op.Name == "Cast":
		case !isPlainElementwise(n) || transposed:
			return
		}
		f.join(c, n)
		c.root = n
	}
}

// isPlainElementwise reports whether a node only needs its operands at the (broadcast) index of its output.
func isPlainElementwise(n *ir.Node) bool {
	switch n.Op.Name {
	case "QuantizeLinear", "DequantizeLinear", "BatchNorm":
		return false
	}
	return n.Op.Kind == ir.KindElementwise
}

// growSides takes in elementwise producers of the epilogue's other operands that have the size of the output.
func (f *fuser) growSides(c *cluster) {
	size := c.root.Outputs[0].Type.Numel()
	f.growUp(c, func(d *ir.Node) bool {
		return isPlainElementwise(d) && d.Outputs[0].Type.Numel() == size && !f.feedsAnchor(c, d)
	})
}

func (f *fuser) feedsAnchor(c *cluster, d *ir.Node) bool {
	for _, u := range f.uses[d.Outputs[0]] {
		if u.Node == c.heavy || f.before(c, u.Node) {
			return true
		}
	}
	return false
}

// before reports whether n stands between region inputs and the cluster's heavy node.
func (f *fuser) before(c *cluster, n *ir.Node) bool {
	if c.heavy == nil || n == c.heavy {
		return false
	}
	for _, v := range n.Outputs {
		for _, u := range f.uses[v] {
			if u.Node == c.heavy || u.Node != nil && c.nodes[u.Node] && f.before(c, u.Node) {
				return true
			}
		}
	}
	return false
}

// growUp takes in producers that accept approves and that nothing outside reads, until none is left.
func (f *fuser) growUp(c *cluster, accept func(d *ir.Node) bool) {
	for changed := true; changed; {
		changed = false
		for _, n := range f.sorted(c) {
			for _, v := range n.Inputs {
				if v == nil || v.Def == nil || f.of[v.Def] != nil || len(c.nodes) >= maxCluster {
					continue
				}
				if d := v.Def; f.inside(c, d) && accept(d) {
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

// growLoops makes regions of what is left, from the outputs upwards.
func (f *fuser) growLoops() {
	for i := len(f.g.Nodes) - 1; i >= 0; i-- {
		n := f.g.Nodes[i]
		if f.of[n] != nil {
			continue
		}
		if isFlatConcat(n) && f.canPlace(n) {
			f.start(ir.FamilyView, n)
			for _, v := range n.Inputs {
				f.placed[v], f.placed[viewedWhole(v)] = true, true
			}
			continue
		}
		c := f.start(ir.FamilyLoop, n)
		switch roleOf(n) {
		case roleHeavy:
			c.heavy = n
		case roleRegion:
			continue
		}
		f.growUp(c, func(d *ir.Node) bool { return f.fitsLoop(c, d) })
	}
}

// canPlace reports whether the operands of a Concat are better written in place by their kernels than gathered by one:
// each is the output of a node, none is claimed twice, and at most one of them would not need a kernel otherwise.
func (f *fuser) canPlace(n *ir.Node) bool {
	seen := map[*ir.Value]bool{}
	light := 0
	for _, v := range n.Inputs {
		if v.Def == nil || f.placed[v] || seen[v] || f.isGraphOutput(v) || v.Type.Numel() == 0 {
			return false
		}
		seen[v] = true
		if base := viewedWhole(v); base.Def == nil || isViewNode(base.Def) || f.placed[base] {
			return false
		}
		if f.reader(v) != nil && !f.hasKernel(v.Def) {
			light++
		}
	}
	return light <= 1
}

// viewedWhole follows views of all of a value to that value.
func viewedWhole(v *ir.Value) *ir.Value {
	for v.Def != nil && isViewNode(v.Def) && v.Def.Inputs[0].Type.Numel() == v.Type.Numel() {
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

// hasKernel reports whether d will be computed by a kernel with a heavy node, whatever reads it.
func (f *fuser) hasKernel(d *ir.Node) bool {
	for {
		if f.of[d] != nil || roleOf(d) != roleLight {
			return true
		}
		var next *ir.Node
		for _, v := range d.Inputs {
			if v == nil || v.Def == nil {
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

// fitsLoop decides whether producer d may be computed inside loop cluster c.
func (f *fuser) fitsLoop(c *cluster, d *ir.Node) bool {
	if f.placed[d.Outputs[0]] || isFlatConcat(d) && f.canPlace(d) {
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
	switch roleOf(d) {
	case roleHeavy:
		if c.heavy != nil || reads != 1 || !f.onlyEpilogue(c, d) {
			return false
		}
		c.heavy = d
	case roleLight:
		if d.Op.Kind != ir.KindMovement {
			if c.heavy != nil && rereads(c.heavy) && f.feedsAnchor(c, d) && d.Op.Name != "Cast" {
				return false
			}
			if cost := reads * weight(d); reads > 1 && cost > maxRecompute && cost*d.Outputs[0].Type.Numel() > cheapTotal {
				return false
			}
		}
		if c.heavy != nil && c.heavy.Op.Kind == ir.KindOther && f.feedsAnchor(c, d) {
			return false
		}
	default:
		return false
	}
	c.reads[d] = reads
	return true
}

// readsOf estimates how often an element of d's output is computed if d joins c.
func (f *fuser) readsOf(c *cluster, d *ir.Node) int {
	most := 0
	for _, v := range d.Outputs {
		for _, u := range f.uses[v] {
			n := u.Node
			times := max(c.reads[n], 1)
			in, out := max(v.Type.Numel(), 1), n.Outputs[0].Type.Numel()
			switch {
			case n == c.heavy && n.Op.Kind == ir.KindReduction:
				if n.Op.Name != "ReduceSum" && n.Op.Name != "ReduceMean" && n.Op.Name != "ReduceMax" && n.Op.Name != "ReduceMin" && n.Op.Name != "ReduceProd" {
					times *= 2
				}
			case n.Op.Kind == ir.KindElementwise, n.Op.Name == "Expand", n.Op.Name == "Tile", n.Op.Name == "Gather", n.Op.Name == "Resize":
				times *= max((out+in-1)/in, 1)
			}
			most = max(most, times)
		}
	}
	return most
}

// onlyEpilogue reports whether all that stands between heavy node d and the cluster's root keeps its size.
func (f *fuser) onlyEpilogue(c *cluster, d *ir.Node) bool {
	size := d.Outputs[0].Type.Numel()
	for _, v := range d.Outputs {
		for _, u := range f.uses[v] {
			for n := u.Node; ; {
				if n.Outputs[0].Type.Numel() != size || !isPlainElementwise(n) && !bijective(n) {
					return false
				}
				if n == c.root {
					break
				}
				// Between d and the root every value has one reader, or diamonds of elementwise nodes: one path shows all.
				n = f.uses[n.Outputs[0]][0].Node
			}
		}
	}
	return true
}

// peelViews puts nodes that only view a region's input outside: they cost nothing there, and regions that differ
// only in what they view stay alike.
func (f *fuser) peelViews() {
	for _, c := range slices.Clone(f.all) {
		for changed := true; changed && len(c.nodes) > 1; {
			changed = false
			for _, n := range f.sorted(c) {
				if n == c.root || !isViewNode(n) || f.readsInside(c, n) {
					continue
				}
				delete(c.nodes, n)
				f.start(ir.FamilyView, n)
				changed = true
			}
		}
	}
	for _, c := range f.all {
		if c.family == ir.FamilyLoop && len(c.nodes) == 1 && isViewNode(c.root) && !f.mustCopy(c.root) {
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
	v := n.Inputs[0]
	for v.Def != nil && isViewNode(v.Def) {
		v = v.Def.Inputs[0]
	}
	return v.Def == nil
}

// mergeTails joins an elementwise loop that reads nothing but one value of its size to the loop that makes the value,
// which then has two outputs.
func (f *fuser) mergeTails() {
	for _, c := range f.all {
		if c.family != ir.FamilyLoop || c.heavy != nil || roleOf(c.root) == roleRegion {
			continue
		}
		v := f.tailOf(c)
		if v == nil || v.Def == nil {
			continue
		}
		p := f.of[v.Def]
		if p == c || p.family != ir.FamilyLoop || roleOf(p.root) == roleRegion || p.root.Outputs[0].Type.Numel() != v.Type.Numel() {
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
		if !isPlainElementwise(n) && !bijective(n) {
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
