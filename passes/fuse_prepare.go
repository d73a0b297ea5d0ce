package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// prepare rewrites nodes so that more of them meet in a region and every anchor is f32. It returns what groupOperands
// does.
func prepare(ctx *Context, g *ir.Graph) (grouped map[*ir.Node]bool, err error) {
	visit := []func(s *sweep, n *ir.Node) bool{sliceBeforeRowOp, promoteAnchor, castIntoConcat, castForEachReader, viewForEachConv, moveForEachAttention, splitSum}
	if ctx.Precision != precision.File {
		visit = append(visit, alignOperand)
	}
	err = rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
		for _, v := range visit {
			if v(s, n) {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if err := padOnce(g); err != nil {
		return nil, err
	}
	if ctx.Siblings {
		if err := fuseAdapters(g); err != nil {
			return nil, err
		}
		if err := computeAgain(g); err != nil {
			return nil, err
		}
		if err := ownOperands(g); err != nil {
			return nil, err
		}
	}
	if err := ownOutputs(g); err != nil {
		return nil, err
	}
	return groupOperands(g)
}

// computeAgain lets each elementwise reader of a value recompute it from one that is stored anyway, so that the value
// itself need not be: a gradient reads the product before an adapter's gain, and the value after the gain.
func computeAgain(g *ir.Graph) error {
	uses := g.Uses()
	for _, n := range slices.Clone(g.Nodes) {
		if len(n.Outputs) != 1 {
			continue
		}
		v := n.Outputs[0]
		path := fromStored(v, uses)
		if path == nil || len(uses[v]) < 2 || !elementwiseReaders(uses[v]) {
			continue
		}
		for _, u := range uses[v][1:] {
			var last *ir.Value
			for i, d := range path {
				inputs := slices.Clone(d.Inputs)
				if i > 0 {
					inputs[slices.Index(inputs, path[i-1].Outputs[0])] = last
				}
				c, err := g.Add(d.Op.Name, d.Name, d.Attrs, inputs...)
				if err != nil {
					return err
				}
				c.From, last = d.From, c.Outputs[0]
			}
			u.Node.Inputs[u.Index] = last
		}
	}
	return g.Toposort()
}

// elementwiseReaders reports whether all readers but the first are elementwise nodes.
func elementwiseReaders(uses []ir.Use) bool {
	for i, u := range uses {
		if u.Node == nil || i > 0 && !u.Node.Op.Pointwise() {
			return false
		}
	}
	return true
}

// fromStored lists the elementwise nodes, few and cheap, that compute v from a value of its size that others read
// too, and from smaller ones.
func fromStored(v *ir.Value, uses map[*ir.Value][]ir.Use) []*ir.Node {
	var path []*ir.Node
	size, cost := v.Type.Numel(), 0
	for d := v.Def; d != nil && d.Op.Pointwise() && len(d.Outputs) == 1; d = v.Def {
		if cost += d.Op.Cost; cost > maxRecompute {
			return nil
		}
		path = append(path, d)
		v = nil
		for _, x := range d.Inputs {
			switch {
			case x == nil || x.Type.Numel() < size:
			case v != nil:
				return nil
			default:
				v = x
			}
		}
		switch {
		case v == nil || v.Def == nil:
			return nil
		case len(uses[v]) > 1:
			slices.Reverse(path)
			return path
		}
	}
	return nil
}

// manyOperands is the number of operands above which a Concat is too long for one kernel: each of its elements would be
// searched among them, and a launch has at most 512 pointers.
const manyOperands = 32

// groupOperands makes every Concat of many operands one in place: neighbours that need no kernel of their own, or
// that cannot be written in place, become Concats that a kernel gathers. It returns those of many operands.
func groupOperands(g *ir.Graph) (grouped map[*ir.Node]bool, err error) {
	grouped = map[*ir.Node]bool{}
	for _, n := range slices.Clone(g.Nodes) {
		if !n.IsFlatConcat() || len(n.Inputs) <= manyOperands {
			continue
		}
		f := newFuser(g)
		f.growAnchors()
		seen := map[*ir.Value]bool{}
		var groups [][]*ir.Value
		gathers, must := false, false // the last group, and that it needs a neighbour
		for _, v := range n.Inputs {
			cannot := !f.placeable(v, seen)
			light := cannot || f.isLight(v)
			if k := len(groups) - 1; k >= 0 && (light && gathers || must || cannot) && len(groups[k]) < manyOperands {
				groups[k] = append(groups[k], v)
				gathers, must = true, false
				continue
			}
			groups = append(groups, []*ir.Value{v})
			gathers, must = light, cannot
		}
		inputs := make([]*ir.Value, len(groups))
		for i, group := range groups {
			if inputs[i] = group[0]; len(group) == 1 {
				continue
			}
			c, err := g.Add("Concat", n.Name, n.Attrs, group...)
			if err != nil {
				return nil, err
			}
			inputs[i] = c.Outputs[0]
		}
		if len(groups) > 1 {
			n.Inputs, grouped[n] = inputs, true
		}
	}
	if len(grouped) > 0 {
		err = g.Toposort()
	}
	return grouped, err
}

// ownOperands gives a Concat an elementwise copy of each operand that is an output of the graph too, or an operand
// before, where all are of one size and computed element by element: the kernel that computes it stores it in both
// places.
func ownOperands(g *ir.Graph) error {
	taken := map[*ir.Value]bool{}
	for _, v := range g.Outputs {
		taken[v] = true
	}
	for _, n := range slices.Clone(g.Nodes) {
		if !n.IsFlatConcat() || len(n.Inputs) < 2 {
			continue
		}
		other := func(v *ir.Value) bool {
			d := viewedWhole(v).Def
			return d == nil || !d.Op.Pointwise() || v.Type.Numel() != n.Inputs[0].Type.Numel()
		}
		if slices.ContainsFunc(n.Inputs, other) {
			continue
		}
		for i, v := range n.Inputs {
			base := viewedWhole(v)
			if !taken[base] {
				taken[base] = true
				continue
			}
			c, err := g.Add("Cast", base.Name, ir.Attrs{"to": base.Type.DType}, base)
			if err != nil {
				return err
			}
			r, err := g.Add("Reshape", base.Name, ir.Attrs{"shape": slices.Clone(v.Type.Shape)}, c.Outputs[0])
			if err != nil {
				return err
			}
			n.Inputs[i] = r.Outputs[0]
		}
	}
	return g.Toposort()
}

// ownOutputs gives every output of the graph a node of its own to write it: an output may be an input, a constant or
// another output.
func ownOutputs(g *ir.Graph) error {
	seen := map[*ir.Value]bool{}
	for i, v := range g.Outputs {
		if v.Def != nil && !seen[v] {
			seen[v] = true
			continue
		}
		n, err := g.Add("Reshape", v.Name, ir.Attrs{"shape": slices.Clone(v.Type.Shape)}, v)
		if err != nil {
			return err
		}
		g.Outputs[i] = n.Outputs[0]
		if v.IsConst() { // the name is the port's; an input keeps its own
			v.Name, n.Outputs[0].Name = n.Outputs[0].Name, v.Name
		}
	}
	return nil
}

// sliceBeforeRowOp normalises only the rows that are read: Slice(LayerNorm(x)) = LayerNorm(Slice(x)).
func sliceBeforeRowOp(s *sweep, n *ir.Node) bool {
	if n.Op.Name != "Slice" || !s.only(n.Inputs[0]) {
		return false
	}
	row := n.Inputs[0].Def
	axis, ok := isRowOp(row)
	if !ok || n.Outputs[0].Type.Numel() == 0 {
		return false
	}
	x := row.Inputs[0]
	for d := axis; d < x.Type.Rank(); d++ {
		if n.Attrs.Ints("sizes")[d] != x.Type.Shape[d] || sliceSteps(n)[d] != 1 {
			return false
		}
	}
	for _, p := range row.Inputs[1:] {
		if p != nil && p.Type.Rank() > x.Type.Rank()-axis {
			return false
		}
	}
	inputs := slices.Clone(row.Inputs)
	inputs[0] = s.add("Slice", n.Name, n.Attrs, x)
	s.replace(n.Outputs[0], s.add(row.Op.Name, row.Name, row.Attrs, inputs...))
	return true
}

// promoteAnchor computes a narrow contraction or pool in f32 and rounds once: what a kernel does, and what the types
// of the body then say.
func promoteAnchor(s *sweep, n *ir.Node) bool {
	if n.Op.Kind != ir.KindContraction && n.Op.Kind != ir.KindWindow {
		return false
	}
	d := n.Inputs[0].Type.DType
	if d != ir.Float16 && d != ir.BFloat16 || len(n.Outputs) != 1 {
		return false
	}
	inputs := slices.Clone(n.Inputs)
	for i, v := range inputs {
		switch {
		case v == nil || v.Type.DType != d:
		case v.IsConst():
			inputs[i] = s.g.Constant(v.Name, castTensor(v.Const, ir.Float32))
		default:
			inputs[i] = s.add("Cast", n.Name, ir.Attrs{"to": ir.Float32}, v)
		}
	}
	y := s.add(n.Op.Name, n.Name, n.Attrs, inputs...)
	s.replace(n.Outputs[0], s.add("Cast", n.Name, ir.Attrs{"to": d}, y))
	return true
}

// castIntoConcat casts the parts instead of the whole, so that each is cast where it is computed.
func castIntoConcat(s *sweep, n *ir.Node) bool {
	if n.Op.Name != "Cast" || !s.only(n.Inputs[0]) || !n.Inputs[0].Def.IsFlatConcat() {
		return false
	}
	c := n.Inputs[0].Def
	parts := make([]*ir.Value, len(c.Inputs))
	for i, v := range c.Inputs {
		parts[i] = s.add("Cast", n.Name, n.Attrs, v)
	}
	s.replace(n.Outputs[0], s.add("Concat", c.Name, c.Attrs, parts...))
	return true
}

// castForEachReader gives every reader of a promoted graph input a Cast of its own, which then becomes part of it.
func castForEachReader(s *sweep, n *ir.Node) bool {
	done := false
	for i, v := range n.Inputs {
		c := defOp(v, "Cast")
		if c == nil || c.Inputs[0].Def != nil || c.Inputs[0].IsConst() || s.uses[v] < 2 {
			continue
		}
		s.setInput(n, i, s.add("Cast", c.Name, c.Attrs, c.Inputs[0]))
		done = true
	}
	return done
}

// viewForEachConv copies the Transposes before each convolution with variable weights, so that they can join its
// region.
func viewForEachConv(s *sweep, n *ir.Node) bool {
	if n.Op.Name != "Conv" || n.Role() != ir.RoleContraction || n.Inputs[1].IsConst() {
		return false
	}
	done := false
	for i, v := range n.Inputs[:2] {
		if t := defOp(v, "Transpose"); t != nil && s.uses[v] > 1 && !aligns(t) {
			s.setInput(n, i, s.add("Transpose", t.Name, t.Attrs, t.Inputs[0]))
			done = true
		}
	}
	return done
}

// moveForEachAttention copies the movement before an attention, or its gradient, where others read it too, so that it
// can join the region.
func moveForEachAttention(s *sweep, n *ir.Node) bool {
	if n.Op.Name != "Attention" && n.Op.Name != "AttentionGrad" || n.Role() != ir.RoleContraction {
		return false
	}
	own := map[*ir.Value]*ir.Value{} // copies, by what they are copies of
	readers := map[*ir.Value]int{}   // that are n or movement before it
	moves := func(v *ir.Value) bool {
		return v.Def != nil && (v.Def.Op.Name == "Reshape" || slices.Contains(n.Op.Moved, v.Def.Op.Name))
	}
	for _, i := range n.Op.Matrix {
		v := n.Inputs[i]
		readers[v]++
		for ; moves(v) && readers[v] == 1; v = v.Def.Inputs[0] {
			readers[v.Def.Inputs[0]]++
		}
	}
	var copied func(v *ir.Value) *ir.Value
	copied = func(v *ir.Value) *ir.Value {
		if !moves(v) {
			return v
		}
		if own[v] == nil {
			own[v] = s.add(v.Def.Op.Name, v.Def.Name, v.Def.Attrs, copied(v.Def.Inputs[0]))
		}
		return own[v]
	}
	inputs := slices.Clone(n.Inputs)
	for _, i := range n.Op.Matrix {
		shared, view := false, true
		for v := n.Inputs[i]; moves(v); v = v.Def.Inputs[0] {
			shared, view = shared || s.uses[v] > readers[v], view && v.Def.IsView()
		}
		if shared && !view {
			inputs[i] = copied(n.Inputs[i])
		}
	}
	if slices.Equal(inputs, n.Inputs) {
		return false
	}
	for i, v := range inputs {
		s.setInput(n, i, v)
	}
	return true
}

// operandAlign is the multiple to which channels are padded: 16 bytes of f16.
const operandAlign = 8

// alignOperand pads the channels of a Conv, or K of a MatMul, whose operand is converted from graph inputs by a loop
// region anyway, and the constant weights alike, so that rows begin at multiples of 16 bytes.
func alignOperand(s *sweep, n *ir.Node) bool {
	g, ok := n.Weights()
	if !ok || n.Role() != ir.RoleContraction {
		return false
	}
	x, w := n.Inputs[0], n.Inputs[1]
	last := x.Type.Rank() - 1
	if g.Group != 1 || g.InAxis != last || !w.IsConst() || !isConversion(x, true) {
		return false
	}
	k := x.Type.Shape[last]
	extra := (k+operandAlign-1)/operandAlign*operandAlign - k
	if extra == 0 {
		return false
	}
	end := make([]int, last+1)
	end[last] = extra
	padded := s.add("Pad", x.Name, ir.Attrs{"begin": make([]int, last+1), "end": end}, x)
	s.setInput(n, 1, s.g.Constant(w.Name, moved(w.Const, func(t *ir.Tensor) *ir.Tensor { return padConst(t, g.InputAxis(), extra) })))
	s.setInput(n, 0, padded)
	return true
}

// padOnce makes one of the Pads that alignOperand has given to several readers of a value.
func padOnce(g *ir.Graph) error {
	seen, ids := map[string]*ir.Node{}, map[*ir.Value]int{}
	_, err := rewrite(g, func(s *sweep, n *ir.Node) {
		if n.Op.Name != "Pad" {
			return
		}
		key := expressionKey(n, ids)
		if first := seen[key]; first != nil && !s.keepsName(n.Outputs[0], first.Outputs[0]) {
			s.replace(n.Outputs[0], first.Outputs[0])
			return
		}
		seen[key] = n
	})
	return err
}

// isConversion reports whether v is made from graph inputs by light nodes alone, at least one of which (if some is
// true) needs a kernel: a contraction can convert and reshape its operand itself.
func isConversion(v *ir.Value, some bool) bool {
	if v.Def == nil {
		return !some
	}
	if v.Def.Role() != ir.RoleLight {
		return false
	}
	works := !v.Def.IsView() && !promotesHalf(v.Def)
	for _, u := range v.Def.Inputs {
		if u != nil && !u.IsConst() && !isConversion(u, some && !works) {
			return false
		}
	}
	return true
}

// promotesHalf reports whether n is a Cast before an anchor that a kernel sees through.
func promotesHalf(n *ir.Node) bool {
	if n.Op.Name != "Cast" || n.Outputs[0].Type.DType != ir.Float32 {
		return false
	}
	from := n.Inputs[0].Type.DType
	return from == ir.Float16 || from == ir.BFloat16 || from == ir.Float8E4M3FN
}

// padConst appends extra zeros along an axis.
func padConst(t *ir.Tensor, axis, extra int) *ir.Tensor {
	inner := ir.Type{Shape: t.Shape[axis+1:]}.Numel()
	shape := slices.Clone(t.Shape)
	shape[axis] += extra
	run, grown := t.Shape[axis]*inner, shape[axis]*inner
	a, in := ir.NewArray(ir.Type{DType: t.DType, Shape: shape}), t.Floats()
	for o := 0; o*run < len(in); o++ {
		copy(a.F[o*grown:], in[o*run:(o+1)*run])
	}
	return a.Tensor()
}
