package ir

import (
	"fmt"
	"slices"
)

func inferMatMul(n *Node) ([]Type, error) {
	ta, tb := n.Inputs[0].Type, n.Inputs[1].Type
	a, b := slices.Clone(ta.Shape), slices.Clone(tb.Shape)
	mismatch := fmt.Errorf("%v × %v (transA=%v, transB=%v) do not multiply", ta, tb, n.Attrs.Bool("transA"), n.Attrs.Bool("transB"))
	if len(a) == 0 || len(b) == 0 || len(a) == 1 && n.Attrs.Bool("transA") || len(b) == 1 && n.Attrs.Bool("transB") {
		return nil, mismatch
	}
	vecA, vecB := len(a) == 1, len(b) == 1
	if vecA {
		a = []int{1, a[0]}
	}
	if vecB {
		b = []int{b[0], 1}
	}
	swapLast(a, n.Attrs.Bool("transA"))
	swapLast(b, n.Attrs.Bool("transB"))
	if a[len(a)-1] != b[len(b)-2] {
		return nil, mismatch
	}
	batch, err := Broadcast(a[:len(a)-2], b[:len(b)-2])
	if err != nil {
		return nil, mismatch
	}
	if !vecA {
		batch = append(batch, a[len(a)-2])
	}
	if !vecB {
		batch = append(batch, b[len(b)-1])
	}
	return one(ta.DType, batch...)
}

// inferMatMulSum wants as many rows of a as of c, and as many columns of b as of d.
func inferMatMulSum(n *Node) ([]Type, error) {
	a, b, c, d := n.Inputs[0].Type, n.Inputs[1].Type, n.Inputs[2].Type, n.Inputs[3].Type
	mismatch := fmt.Errorf("%v × %v (transB=%v) + %v × %v (transD=%v) do not multiply", a, b, n.Attrs.Bool("transB"), c, d, n.Attrs.Bool("transD"))
	if a.Rank() < 2 || c.Rank() != a.Rank() || b.Rank() != 2 || d.Rank() != 2 {
		return nil, mismatch
	}
	last := a.Rank() - 1
	x, y := slices.Clone(b.Shape), slices.Clone(d.Shape)
	swapLast(x, n.Attrs.Bool("transB"))
	swapLast(y, n.Attrs.Bool("transD"))
	if a.Shape[last] != x[0] || c.Shape[last] != y[0] || x[1] != y[1] || !slices.Equal(a.Shape[:last], c.Shape[:last]) {
		return nil, mismatch
	}
	if f := n.In(4); f != nil && !slices.Equal(f.Type.Shape, a.Shape[last:]) {
		return nil, fmt.Errorf("factors %v of the columns of %v", f.Type, a)
	}
	return one(a.DType, append(slices.Clone(a.Shape[:last]), x[1])...)
}

// expandMatMulSum are the two products.
func expandMatMulSum(x *Expansion, n *Node) []*Value {
	a := n.Inputs[0]
	if f := n.In(4); f != nil {
		a = x.Add("Mul", nil, a, f)
	}
	y := x.Add("MatMul", Attrs{"transB": n.Attrs.Bool("transB")}, a, n.Inputs[1])
	return []*Value{x.Add("Add", nil, y, x.Add("MatMul", Attrs{"transB": n.Attrs.Bool("transD")}, n.Inputs[2], n.Inputs[3]))}
}

func swapLast(s []int, swap bool) {
	if k := len(s); swap {
		s[k-1], s[k-2] = s[k-2], s[k-1]
	}
}

// window is the geometry of one spatial dimension of a convolution or pool.
type window struct {
	in, out, kernel, stride, dilation, begin, end int
}

// span is the number of input positions between the first and the last tap, both included.
func (w window) span() int { return (w.kernel-1)*w.dilation + 1 }

// spatial returns the index of the first spatial dimension and of the channel dimension under the node's layout.
func (n *Node) spatial() (first, channel int) {
	if n.Attrs.String("layout", "NCHW") == "NHWC" {
		return 1, n.Inputs[0].Type.Rank() - 1
	}
	return 2, 1
}

// windows reads strides, pads and dilations of a convolution or pool with the given kernel. Sizes are bounded so that
// no product of two of them overflows.
func (n *Node) windows(kernel []int) ([]window, error) {
	const limit = 1 << 30
	x := n.Inputs[0].Type
	r := x.Rank() - 2
	if r < 1 || len(kernel) != r {
		return nil, fmt.Errorf("x is %v: a kernel %v wants %d dimensions", x, kernel, len(kernel)+2)
	}
	strides, errS := n.intsOf("strides", r)
	dilations, errD := n.intsOf("dilations", r)
	pads, errP := n.intsOf("pads", 2*r)
	if err := firstError(n.oneOf("layout", "NCHW", "NCHW", "NHWC"), errS, errD, errP); err != nil {
		return nil, err
	}
	first, _ := n.spatial()
	ws := make([]window, r)
	for i := range ws {
		w := window{in: x.Shape[first+i], kernel: kernel[i], stride: strides[i], dilation: dilations[i], begin: pads[i], end: pads[r+i]}
		if min(w.kernel, w.stride, w.dilation) < 1 || max(w.in, w.kernel, w.stride, w.dilation, w.begin, w.end) > limit ||
			min(w.begin, w.end) < -limit {
			return nil, fmt.Errorf("spatial dimension %d: kernel %d, stride %d, dilation %d, pads %d and %d are out of range",
				i, w.kernel, w.stride, w.dilation, w.begin, w.end)
		}
		ws[i] = w
	}
	return ws, nil
}

// slide fills in the output sizes of a convolution or pool.
func slide(ws []window, ceil bool) error {
	for i := range ws {
		w := &ws[i]
		slack := w.in + w.begin + w.end - w.span()
		if slack < 0 {
			return fmt.Errorf("spatial dimension %d: a window of %d is larger than the padded input of %d", i, w.span(), w.in+w.begin+w.end)
		}
		w.out = slack/w.stride + 1
		if !ceil {
			continue
		}
		if slack%w.stride != 0 {
			w.out++
		}
		// With ceil the last window must start inside the input or its leading padding.
		if (w.out-1)*w.stride >= w.in+w.begin {
			w.out--
		}
	}
	return nil
}

// imageShape puts batch, channels and spatial sizes in the order of the node's layout.
func (n *Node) imageShape(batch, channels int, ws []window) []int {
	s := []int{batch}
	for _, w := range ws {
		s = append(s, w.out)
	}
	_, channel := n.spatial()
	return slices.Insert(s, channel, channels)
}

// convWindows is windows of a convolution, by its weights.
func (n *Node) convWindows() ([]window, error) {
	x, w := n.Inputs[0].Type, n.Inputs[1].Type
	if x.Rank() < 3 || w.Rank() != x.Rank() {
		return nil, fmt.Errorf("x %v and w %v: want one rank of at least 3", x, w)
	}
	return n.windows(w.Shape[2:])
}

func inferConv(n *Node) ([]Type, error) {
	x, w := n.Inputs[0].Type, n.Inputs[1].Type
	ws, err := n.convWindows()
	if err != nil {
		return nil, err
	}
	if err := slide(ws, false); err != nil {
		return nil, err
	}
	_, c := n.spatial()
	group, out := n.Attrs.Int("group", 1), w.Shape[0]
	if group < 1 || x.Shape[c]%group != 0 || out%group != 0 {
		return nil, fmt.Errorf("group=%d does not divide %d input and %d output channels", group, x.Shape[c], out)
	}
	if x.Shape[c]/group != w.Shape[1] {
		return nil, fmt.Errorf("x %v has %d channels a group, w %v wants %d", x, x.Shape[c]/group, w, w.Shape[1])
	}
	if err := n.shaped(2, out); err != nil {
		return nil, err
	}
	return one(x.DType, n.imageShape(x.Shape[0], out, ws)...)
}

func inferConvTranspose(n *Node) ([]Type, error) {
	x, w := n.Inputs[0].Type, n.Inputs[1].Type
	ws, err := n.convWindows()
	if err != nil {
		return nil, err
	}
	extra, err := n.intsOf("output_padding", len(ws))
	if err != nil {
		return nil, err
	}
	for i := range ws {
		ws[i].out = (ws[i].in-1)*ws[i].stride + extra[i] + ws[i].span() - ws[i].begin - ws[i].end
		if ws[i].out < 1 || ws[i].out > maxElements || extra[i] < 0 || extra[i] > maxElements {
			return nil, fmt.Errorf("spatial dimension %d: %+v with output padding %d yields size %d", i, ws[i], extra[i], ws[i].out)
		}
	}
	_, c := n.spatial()
	group := n.Attrs.Int("group", 1)
	if x.Shape[c] != w.Shape[0] {
		return nil, fmt.Errorf("x %v has %d channels, w %v wants %d", x, x.Shape[c], w, w.Shape[0])
	}
	if group < 1 || w.Shape[0]%group != 0 || w.Shape[1] > maxElements/group {
		return nil, fmt.Errorf("group=%d does not divide %d channels", group, w.Shape[0])
	}
	out := w.Shape[1] * group
	if err := n.shaped(2, out); err != nil {
		return nil, err
	}
	return one(x.DType, n.imageShape(x.Shape[0], out, ws)...)
}

// pooled is the rule of pools.
func pooled(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	ws, err := n.windows(n.Attrs.Ints("kernel"))
	if err != nil {
		return nil, err
	}
	for i, w := range ws {
		if min(w.begin, w.end) < 0 {
			return nil, fmt.Errorf("spatial dimension %d: negative pads %d and %d", i, w.begin, w.end)
		}
	}
	if err := slide(ws, n.Attrs.Bool("ceil")); err != nil {
		return nil, err
	}
	if n.Op.Name == "LpPool" && n.Attrs.Int("p", 2) < 1 {
		return nil, fmt.Errorf("p=%d, want at least 1", n.Attrs.Int("p", 2))
	}
	_, ch := n.spatial()
	y := Type{x.DType, n.imageShape(x.Shape[0], x.Shape[ch], ws)}
	if !n.Attrs.Bool("indices") {
		return []Type{y}, nil
	}
	if n.Attrs.String("layout", "NCHW") != "NCHW" {
		return nil, fmt.Errorf("indices are defined for layout NCHW only")
	}
	return []Type{y, {Int64, slices.Clone(y.Shape)}}, nil
}

func inferAttention(n *Node) ([]Type, error) {
	q, k, v := n.Inputs[0].Type, n.Inputs[1].Type, n.Inputs[2].Type
	if q.Rank() != 4 || k.Rank() != 4 || v.Rank() != 4 {
		return nil, fmt.Errorf("q %v, k %v, v %v: want rank 4", q, k, v)
	}
	heads, kv := q.Shape[1], k.Shape[1]
	if q.Shape[0] != k.Shape[0] || !slices.Equal(k.Shape[:3], v.Shape[:3]) || q.Shape[3] != k.Shape[3] || kv == 0 || heads%kv != 0 {
		return nil, fmt.Errorf("q %v, k %v, v %v do not fit: want [B,H,S,D], [B,Hk,T,D], [B,Hk,T,Dv] with Hk dividing H", q, k, v)
	}
	scores := []int{q.Shape[0], heads, q.Shape[2], k.Shape[2]}
	if m := n.In(3); m != nil && !BroadcastsTo(m.Type.Shape, scores) {
		return nil, fmt.Errorf("mask %v does not broadcast to %v", m.Type, scores)
	}
	return one(q.DType, q.Shape[0], heads, q.Shape[2], v.Shape[3])
}

func inferAttentionGrad(n *Node) ([]Type, error) {
	attention := *n
	attention.Inputs = slices.Delete(slices.Clone(n.Inputs), 3, 4)
	ys, err := inferAttention(&attention)
	if err != nil {
		return nil, err
	}
	q, k, v, dy := n.Inputs[0].Type, n.Inputs[1].Type.Shape, n.Inputs[2].Type.Shape, n.Inputs[3].Type
	s := slices.Clone(q.Shape)
	switch {
	case k[1] != s[1]:
		return nil, fmt.Errorf("%d heads share %d of k and v", s[1], k[1])
	case !dy.Equal(ys[0]):
		return nil, fmt.Errorf("the gradient of the result is %v, want %v", dy, ys[0])
	}
	s[2], s[3] = max(s[2], k[2]), max(s[3], v[3])
	return one(q.DType, slices.Concat([]int{3}, s)...)
}

func inferSegmentedMatVec(n *Node) ([]Type, error) {
	x, w := n.Inputs[0].Type, n.Inputs[1].Type
	if x.Rank() != 1 || w.Rank() != 2 {
		return nil, fmt.Errorf("x %v and w %v: want [L] and [N,Kmax]", x, w)
	}
	rows := w.Shape[0]
	if err := firstError(n.shaped(2, rows), n.shaped(3, rows), n.shaped(4, rows)); err != nil {
		return nil, err
	}
	return one(x.DType, rows)
}
