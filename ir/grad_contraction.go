package ir

import (
	"math"
	"slices"
)

// gradMatMul: dA = dY·Bᵀ and dB = Aᵀ·dY, each in the orientation in which the operand is stored.
func gradMatMul(g *Gradient, n *Node) []*Value {
	a, b, dy := n.Inputs[0], n.Inputs[1], g.Dy[0]
	shapeA, shapeB := a.Type.Shape, b.Type.Shape
	transA, transB := n.Attrs.Bool("transA"), n.Attrs.Bool("transB")
	shape := slices.Clone(dy.Type.Shape)
	if len(shapeB) == 1 {
		shapeB = []int{shapeB[0], 1}
		shape = append(shape, 1)
	}
	if len(shapeA) == 1 {
		shapeA = []int{1, shapeA[0]}
		shape = slices.Insert(shape, len(shape)-1, 1)
	}
	a, b, dy = g.shaped(a, shapeA...), g.shaped(b, shapeB...), g.shaped(dy, shape...)
	product := func(left *Value, transL bool, right *Value, transR bool, like *Value, shape []int) *Value {
		v := g.Add("MatMul", Attrs{"transA": transL, "transB": transR}, left, right)
		return g.shaped(g.sumTo(v, shape), like.Type.Shape...)
	}
	dx := make([]*Value, 2)
	if g.Wants(0) {
		if transA {
			dx[0] = product(b, transB, dy, true, n.Inputs[0], shapeA)
		} else {
			dx[0] = product(dy, false, b, !transB, n.Inputs[0], shapeA)
		}
	}
	if g.Wants(1) {
		if transB {
			dx[1] = product(dy, true, a, transA, n.Inputs[1], shapeB)
		} else {
			dx[1] = product(a, !transA, dy, false, n.Inputs[1], shapeB)
		}
	}
	return dx
}

// channelsFirst brings an image to layout NCHW; channelsLast back to the node's.
func (g *Gradient) channelsFirst(n *Node, v *Value) *Value {
	if _, c := n.spatial(); c != 1 {
		perm := []int{0, c}
		for i := 1; i < c; i++ {
			perm = append(perm, i)
		}
		return g.transposed(v, perm...)
	}
	return v
}

func (g *Gradient) toLayout(n *Node, v *Value) *Value {
	if _, c := n.spatial(); c != 1 {
		perm := []int{0}
		for i := 2; i <= c; i++ {
			perm = append(perm, i)
		}
		return g.transposed(v, append(perm, 1)...)
	}
	return v
}

// slidingAttrs are the attributes of a convolution over the windows.
func slidingAttrs(ws []window) Attrs {
	var stride, dilation, begin, end []int
	for _, w := range ws {
		stride, dilation, begin, end = append(stride, w.stride), append(dilation, w.dilation), append(begin, w.begin), append(end, w.end)
	}
	return Attrs{"strides": stride, "dilations": dilation, "pads": append(begin, end...)}
}

// inputGradient spreads dy, in layout NCHW, over the windows of weights w: the transposed convolution. ws has the
// geometry of the convolution; its result has their input sizes.
func (g *Gradient) inputGradient(dy, w *Value, ws []window, group int) *Value {
	if g.err != nil {
		return dy
	}
	back, extra := slices.Clone(ws), make([]int, len(ws))
	for i := range back {
		b := &back[i]
		missing := b.in - ((dy.Type.Shape[2+i]-1)*b.stride + b.span() - b.begin)
		extra[i], b.end = max(missing, 0), max(-missing, 0)
	}
	attrs := slidingAttrs(back)
	attrs["output_padding"], attrs["group"] = extra, group
	return g.Add("ConvTranspose", attrs, dy, w)
}

// weightGradient is the gradient of the weights [O, I, K…] of a convolution from the image x [N, group·I, S…] to [N,
// O, P…] whose gradient is dy: itself a convolution of x by dy, over positions in place of taps and the batch in
// place of channels. Positions that a stride passes over are left out first where there is one tap.
func (g *Gradient) weightGradient(x, dy *Value, ws []window, group int) *Value {
	if g.err != nil {
		return x
	}
	x, ws = g.met(x, dy, ws)
	s := x.Type.Shape
	spatial := s[2:]
	in := s[1] / group
	split := slices.Concat([]int{s[0], group, in}, spatial)
	perm := []int{2, 1, 0}
	for i := range spatial {
		perm = append(perm, 3+i)
	}
	image := g.Reshape(g.transposed(g.Reshape(x, split...), perm...), slices.Concat([]int{in, group * s[0]}, spatial)...)
	swapped := []int{1, 0}
	for i := range spatial {
		swapped = append(swapped, 2+i)
	}
	over := slices.Clone(ws)
	for i := range over {
		o := &over[i]
		span := (dy.Type.Shape[2+i]-1)*o.stride + 1
		o.stride, o.dilation = o.dilation, o.stride
		o.end = (o.kernel-1)*o.stride + span - o.in - o.begin
	}
	attrs := slidingAttrs(over)
	attrs["group"] = group
	return g.transposed(g.Add("Conv", attrs, image, g.transposed(dy, swapped...)), swapped...)
}

// met is an image, in layout NCHW, without the positions between windows of a single tap, one for each of dy, and
// those windows on it.
func (g *Gradient) met(x, dy *Value, ws []window) (*Value, []window) {
	ws, sizes, steps := slices.Clone(ws), slices.Clone(x.Type.Shape), slices.Repeat([]int{1}, x.Type.Rank())
	for i := range ws {
		w, out := &ws[i], dy.Type.Shape[2+i]
		if w.kernel == 1 && w.stride > 1 && w.begin == 0 && (out-1)*w.stride < w.in {
			sizes[2+i], steps[2+i] = out, w.stride
			w.in, w.end, w.stride = out, 0, 1
		}
	}
	if slices.Equal(sizes, x.Type.Shape) {
		return x, ws
	}
	return g.Add("Slice", Attrs{"starts": make([]int, len(sizes)), "sizes": sizes, "steps": steps}, x), ws
}

// biasGradient sums over all but the channels.
func (g *Gradient) biasGradient(dy *Value) *Value {
	axes := []int{0}
	for i := 2; i < dy.Type.Rank(); i++ {
		axes = append(axes, i)
	}
	return g.Add("ReduceSum", Attrs{"axes": axes}, dy)
}

func gradConv(g *Gradient, n *Node) []*Value {
	ws, err := n.convWindows()
	if err != nil {
		return g.Refuse("%w", err)
	}
	group := n.Attrs.Int("group", 1)
	dy := g.channelsFirst(n, g.Dy[0])
	dx := make([]*Value, 3)
	if g.Wants(0) {
		dx[0] = g.toLayout(n, g.inputGradient(dy, n.Inputs[1], ws, group))
	}
	if g.Wants(1) {
		dx[1] = g.weightGradient(g.channelsFirst(n, n.Inputs[0]), dy, ws, group)
	}
	if g.Wants(2) {
		dx[2] = g.biasGradient(dy)
	}
	return dx
}

// gradConvTranspose: the roles of image and result are those of Conv exchanged.
func gradConvTranspose(g *Gradient, n *Node) []*Value {
	ws, err := n.convWindows()
	if err != nil {
		return g.Refuse("%w", err)
	}
	group := n.Attrs.Int("group", 1)
	dy := g.channelsFirst(n, g.Dy[0])
	if g.err != nil {
		return nil
	}
	over := slices.Clone(ws) // the windows of the convolution from dy to x
	for i := range over {
		o := &over[i]
		positions := o.in
		o.in = dy.Type.Shape[2+i]
		o.end = (positions-1)*o.stride + o.span() - o.in - o.begin
	}
	dx := make([]*Value, 3)
	if g.Wants(0) {
		attrs := slidingAttrs(over)
		attrs["group"] = group
		dx[0] = g.toLayout(n, g.Add("Conv", attrs, dy, n.Inputs[1]))
	}
	if g.Wants(1) {
		dx[1] = g.weightGradient(dy, g.channelsFirst(n, n.Inputs[0]), over, group)
	}
	if g.Wants(2) {
		dx[2] = g.biasGradient(dy)
	}
	return dx
}

// pooledWindows are the windows of a pool.
func (n *Node) pooledWindows() []window {
	ws, err := n.windows(n.Attrs.Ints("kernel"))
	if err == nil {
		err = slide(ws, n.Attrs.Bool("ceil"))
	}
	if err != nil {
		panic(err) // the node was inferred
	}
	return ws
}

// overWindows adds dy, in layout NCHW, to every position of its window.
func (g *Gradient) overWindows(dy *Value, ws []window) *Value {
	if g.err != nil {
		return dy
	}
	channels := dy.Type.Shape[1]
	shape := []int{channels, 1}
	for _, w := range ws {
		shape = append(shape, w.kernel)
	}
	return g.inputGradient(dy, g.Constant(Splat(T(dy.dtype(), shape...), 1)), ws, channels)
}

// gradMaxPool gives the gradient to the first of the greatest, as the op's indices do.
func gradMaxPool(g *Gradient, n *Node) []*Value {
	if g.Dy[0] == nil {
		return nil
	}
	x, dy := g.channelsFirst(n, n.Inputs[0]), g.channelsFirst(n, g.Dy[0])
	attrs := n.Attrs.Clone()
	attrs["indices"], attrs["layout"], attrs["column_major"] = true, "NCHW", false
	y := g.Add("MaxPool", attrs, x)
	if g.err != nil {
		return nil
	}
	count := dy.Type.Numel()
	flat := g.Add("ScatterElements", Attrs{"axis": 0, "reduction": "add"},
		g.zeros(dy, x.Type.Numel()), g.Reshape(y.Def.Outputs[1], count), g.Reshape(dy, count))
	return []*Value{g.toLayout(n, g.Reshape(flat, x.Type.Shape...))}
}

func gradAveragePool(g *Gradient, n *Node) []*Value {
	ws := n.pooledWindows()
	dy := g.channelsFirst(n, g.Dy[0])
	if g.err != nil {
		return nil
	}
	// The divisors of one plane: each dimension has as many taps inside as it has, whatever the others do.
	shape := []int{1, 1}
	for _, w := range ws {
		shape = append(shape, w.out)
	}
	share := NewArray(T(dy.dtype(), shape...))
	c := newCursor(shape, 0)
	for i := range share.F {
		count := 1
		for k, w := range ws {
			count *= w.taps(c.index[2+k], n.Attrs.Bool("include_pad"))
		}
		share.F[i] = 1 / float64(count)
		c.next()
	}
	return []*Value{g.toLayout(n, g.overWindows(g.op("Mul", dy, g.Constant(share.Tensor())), ws))}
}

// taps counts the taps of the window at an output position that lie inside the input, or inside its padding too.
func (w window) taps(at int, padding bool) int {
	lo, hi, count := 0, w.in, 0
	if padding {
		lo, hi = -w.begin, w.in+w.end
	}
	for k := range w.kernel {
		if p := at*w.stride + k*w.dilation - w.begin; p >= lo && p < hi {
			count++
		}
	}
	return count
}

// gradLpPool: y = (Σ|x|^p)^(1/p) has the slope sign(x)·(|x|/y)^(p-1), taken as 0 where y is.
func gradLpPool(g *Gradient, n *Node) []*Value {
	ws := n.pooledWindows()
	p := float64(n.Attrs.Int("p", 2))
	x, y, dy := g.channelsFirst(n, n.Inputs[0]), g.channelsFirst(n, n.Outputs[0]), g.channelsFirst(n, g.Dy[0])
	one, none := g.Like(y, 1), g.op("Equal", y, g.Like(y, 0))
	per := g.op("Div", dy, g.op("Pow", g.op("Where", none, one, y), g.Like(y, p-1)))
	sum := g.overWindows(g.op("Where", none, g.Like(y, 0), per), ws)
	own := g.op("Mul", g.op("Sign", x), g.op("Pow", g.op("Abs", x), g.Like(x, p-1)))
	return []*Value{g.toLayout(n, g.op("Mul", own, sum))}
}

// gradAttention computes the probabilities again instead of keeping them (FlashAttention, Dao and others 2022,
// section 3.1). It is one op where no gradient of the mask is asked for and no heads share their keys.
func gradAttention(g *Gradient, n *Node) []*Value {
	q, k, v := n.Inputs[0], n.Inputs[1], n.Inputs[2]
	if g.Wants(3) || q.Type.Shape[1] != k.Type.Shape[1] || n.Attrs.Float("softcap", 0) != 0 {
		return g.attention(n.Attrs, q, k, v, g.Dy[0], n.In(3))
	}
	in := []*Value{q, k, v, g.Dy[0]}
	if m := n.In(3); m != nil {
		in = append(in, m)
	}
	y := g.Add("AttentionGrad", Attrs{"scale": n.Attrs.Float("scale", 1), "causal": n.Attrs.Bool("causal")}, in...)
	dx := make([]*Value, 3)
	for i, x := range in[:3] {
		if g.Wants(i) {
			shape := x.Type.Shape
			part := g.Add("Slice", Attrs{"starts": []int{i, 0, 0, 0, 0}, "sizes": slices.Concat([]int{1}, shape)}, y)
			dx[i] = g.shaped(part, shape...)
		}
	}
	return dx
}

// expandAttentionGrad pads the three gradients to one shape.
func expandAttentionGrad(x *Expansion, n *Node) []*Value {
	g := &Gradient{Expansion: x, want: []bool{true, true, true}}
	shape := slices.Concat([]int{1}, n.Outputs[0].Type.Shape[1:])
	var parts []*Value
	for i, d := range g.attention(n.Attrs, n.Inputs[0], n.Inputs[1], n.Inputs[2], n.Inputs[3], n.In(4))[:3] {
		part := g.shaped(d, slices.Concat([]int{1}, n.Inputs[i].Type.Shape)...)
		parts = append(parts, g.padTo(part, make([]int, len(shape)), shape))
	}
	return []*Value{x.Add("Concat", Attrs{"axis": 0}, parts...)}
}

// attention are the gradients of an Attention's q, k, v and mask.
func (g *Gradient) attention(attrs Attrs, q, k, v, dy, mask *Value) []*Value {
	b, heads, kv, s, t := q.Type.Shape[0], q.Type.Shape[1], k.Type.Shape[1], q.Type.Shape[2], k.Type.Shape[2]
	scale, limit := attrs.Float("scale", 1), attrs.Float("softcap", 0)
	// The queries of the heads that share keys are rows of one matrix.
	grouped := func(x *Value) *Value {
		if g.err != nil {
			return x
		}
		return g.shaped(x, b, kv, heads/kv*s, x.Type.Shape[3])
	}
	byHead := func(x *Value) *Value { return g.shaped(x, b, heads, s, t) }
	scores := byHead(g.Add("MatMul", Attrs{"transB": true}, grouped(q), k))
	scores = g.times(scores, scale)
	var bent *Value
	if limit > 0 {
		bent = g.op("Tanh", g.times(scores, 1/limit))
		scores = g.times(bent, limit)
	}
	if mask != nil {
		scores = g.op("Add", scores, g.cast(mask, q.dtype()))
	}
	never := g.Like(q, math.Inf(-1))
	if attrs.Bool("causal") {
		seen := NewArray(T(Bool, s, t))
		for i := range seen.I {
			if i%t <= i/t {
				seen.I[i] = 1
			}
		}
		scores = g.op("Where", g.Constant(seen.Tensor()), scores, never)
	}
	p := g.Add("Softmax", Attrs{"axis": 3}, scores)
	if mask != nil { // no key is seen: 0
		top := g.Add("ReduceMax", Attrs{"axes": []int{3}, "keepdims": true}, scores)
		p = g.op("Where", g.op("Equal", top, never), g.Like(q, 0), p)
	}

	dx := make([]*Value, 4)
	do := grouped(dy)
	if g.Wants(2) {
		dx[2] = g.Add("MatMul", Attrs{"transA": true}, g.shaped(p, b, kv, heads/kv*s, t), do)
	}
	ds := g.softmaxBack(p, byHead(g.Add("MatMul", Attrs{"transB": true}, do, v)), 3)
	dx[3] = ds
	if limit > 0 {
		ds = g.op("Mul", ds, g.less1(g.square(bent)))
	}
	ds = g.shaped(g.times(ds, scale), b, kv, heads/kv*s, t)
	if g.Wants(0) {
		dx[0] = g.shaped(g.op("MatMul", ds, k), q.Type.Shape...)
	}
	if g.Wants(1) {
		dx[1] = g.Add("MatMul", Attrs{"transA": true}, ds, grouped(q))
	}
	return dx
}
