package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// problem is a contraction in normal form: for every z, C[m,n] = Σ_k A[m,k]·B[k,n]. z runs over members, batches and
// groups of channels; m over output pixels or rows; k over window taps and input channels.
type problem struct {
	stored *ir.Node // the region
	region *ir.Node // with its storage spelled out
	anchor *ir.Node // of that

	quantise *ir.Node // BlockQuantize at the end of the epilogue; nil: none

	z       []int // extents: member, batch …, group
	m, n, k int
	num     numerics

	a, b    operand
	scalesA *operand // of a variable in blocks
	added   *added   // nil: none
	outs    []output // where the epilogue stores
	sums    *sums    // of a value after the anchor; nil: none
	conv    *window  // of a convolution
	attn    *attend  // of an attention

	producer producer // of A; nil: A lies in memory
	traits   traits   // of that
	// spread sorts the modes of a view of the anchor's output into z, rows and columns.
	spread func(v layout.View) (operand, error)
}

// operand is a matrix in memory: for every coordinate its modes, in elements.
type operand struct {
	src    *source
	value  *ir.Value
	dtype  ir.DType
	z      [][]layout.Mode // for every dimension of problem.z
	row    []layout.Mode   // m of A and C, k of B
	col    []layout.Mode   // k of A, n of B and C
	offset int
}

// output is where the epilogue stores a value after the anchor.
type output struct {
	operand
	result *ir.Value // the region's output, or what is quantised
}

// sums is where the epilogue stores, for every column, the sum of each part of so many rows of a value after the
// anchor: in f32, [members, parts, n].
type sums struct {
	result int       // of the region
	of     *ir.Value // what is summed
	part   int       // rows
}

// window says where a tap of A is outside the image. Column modes of A are (ky, kx, c …). Its row modes at index oy
// are oy, then ox.
type window struct {
	batch, oh, ow   int
	oy              int // index of the row mode oy; ox is the next one
	kh, kw, c       int
	h, w            int
	sh, sw, dh, dw  int
	padTop, padLeft int
	padded          bool // some tap of some pixel lies outside
}

func (p *problem) batches() int {
	x := 1
	for _, d := range p.z {
		x *= d
	}
	return x
}

// normalise brings the region into normal form; the error says why it has none.
func normalise(region *ir.Node) (*problem, error) {
	stored := region
	region, err := stored.Explicit()
	if err != nil {
		return nil, err
	}
	anchor := region.Region.Anchor()
	if anchor == nil {
		return nil, fmt.Errorf("no anchor")
	}
	p := &problem{stored: stored, region: region, anchor: anchor, quantise: region.Region.BlockQuantize(), z: []int{region.Region.Count()}}
	if d := anchor.Outputs[0].Type.DType; !isHalf(d) && d != ir.Float32 {
		return nil, fmt.Errorf("%s in %s", anchor.Op.Name, d)
	}
	for _, d := range anchor.Outputs[0].Type.Shape {
		if d == 0 {
			return nil, fmt.Errorf("no output elements")
		}
	}
	switch anchor.Op.Name {
	case "MatMul":
		err = p.matmul()
	case "MatMulSum":
		if err = p.matmul(); err == nil {
			err = p.add()
		}
	case "Conv":
		err = p.convolution()
	case "Attention":
		err = p.attention()
	case "AttentionGrad":
		err = p.attentionGrad()
	default:
		err = fmt.Errorf("no contraction kernel for %s", anchor.Op.Name)
	}
	if err != nil {
		return nil, err
	}
	for i, result := range region.Region.Body.Outputs {
		switch {
		case p.quantise == nil && result.Def.Op.Name == "ReduceSum":
			err = p.adds(i, result.Def)
		case p.quantise == nil:
			err = p.stores(region.Outputs[i], result)
		case i == 0: // the other output is its scales
			err = p.stores(region.Outputs[i], p.quantise.Inputs[0])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.wholeBlocks(); err != nil {
		return nil, err
	}
	if err := p.decide(); err != nil {
		return nil, err
	}
	if p.added != nil {
		if err := p.addedTypes(); err != nil {
			return nil, err
		}
	}
	if err := p.blockScaled(); err != nil {
		return nil, err
	}
	if p.m*p.n*p.k == 0 {
		return nil, fmt.Errorf("an extent is 0")
	}
	for _, v := range append(slices.Clone(region.Outputs), region.Inputs...) {
		if v.Type.Numel() >= 1<<31 {
			return nil, fmt.Errorf("%s %v has more elements than 32 bits index", v.Name, v.Type)
		}
	}
	return p, nil
}

// stores adds an output of the region, which holds a value after the anchor.
func (p *problem) stores(out, result *ir.Value) error {
	place, even, found := throughEpilogue(layout.Dense(result.Type.Shape), result, p.anchor.Outputs[0])
	switch {
	case !found:
		return fmt.Errorf("the result %v is not made of the anchor's output %v element by element", result.Type, p.anchor.Outputs[0].Type)
	case !even:
		return fmt.Errorf("what follows the anchor scatters its output unevenly")
	}
	o, err := p.spread(place)
	if err != nil {
		return err
	}
	o.value, o.dtype = out, out.Type.DType
	if p.region.Region.Members > 0 {
		o.z[0] = []layout.Mode{{Size: p.z[0], Stride: out.Type.Numel() / p.z[0]}}
	}
	p.outs = append(p.outs, output{o, result})
	return nil
}

// adds makes a result of sums over rows.
func (p *problem) adds(i int, n *ir.Node) error {
	of := n.Inputs[0]
	place, even, found := throughEpilogue(layout.Dense(of.Type.Shape), of, p.anchor.Outputs[0])
	switch {
	case !found || !even:
		return fmt.Errorf("what is summed, %v, is not made of the anchor's output %v element by element", of.Type, p.anchor.Outputs[0].Type)
	case p.sums != nil:
		return fmt.Errorf("two sums")
	case n.Outputs[0].Type.DType != ir.Float32:
		return fmt.Errorf("a sum of type %s", n.Outputs[0].Type.DType)
	}
	o, err := p.spread(place)
	if err != nil {
		return err
	}
	row, col := layout.Coalesce(o.row), layout.Coalesce(o.col)
	if o.offset != 0 || p.batches() != p.z[0] || len(row) != 1 || len(col) != 1 || col[0].Stride != 1 || row[0].Stride != p.n || of.Type.Shape[2] != p.n {
		return fmt.Errorf("what is summed, %v, has other rows than the product", of.Type)
	}
	p.sums = &sums{result: i, of: of, part: of.Type.Shape[1]}
	return nil
}

// operandOf traces an input of the anchor.
func (p *problem) operandOf(i int) (operand, error) {
	s, err := matrix(p.stored, p.stored.Region.Anchor().Inputs[i])
	if err != nil {
		return operand{}, err
	}
	switch d := s.dtype; {
	case d == ir.Float32, isHalf(d), d == ir.Float8E4M3FN:
	case s.data != nil && d.Format() != nil && ir.Float8E4M3FN.Format().Contains(d.Format()): // weights, which are packed in a type that kernels convert
	case d == ir.Float4E2M1:
		if i > 0 || s.scales == nil {
			return operand{}, fmt.Errorf("operand %d is a variable %s", i, d)
		}
	default:
		return operand{}, fmt.Errorf("operand %d is %s", i, s.dtype)
	}
	if i > 0 && s.round != 0 && !(s.data != nil && s.dtype == ir.Float16 && s.round == 1 && s.terms == 2) {
		return operand{}, fmt.Errorf("operand %d is rounded to e4m3", i)
	}
	return p.from(s), nil
}

// from is a source as an operand, whose modes but those of the members are still to be said.
func (p *problem) from(s *source) operand {
	o := operand{src: s, value: s.value, dtype: s.dtype, offset: s.view.Offset, z: make([][]layout.Mode, 1)}
	if s.member != 0 {
		o.z[0] = []layout.Mode{{Size: p.z[0], Stride: s.member}}
	}
	return o
}

// blockScaled turns a variable operand stored in blocks into one of bytes, and finds its scales.
func (p *problem) blockScaled() error {
	if !p.num.blockScaled() {
		return nil
	}
	scales, err := p.a.dividedBy(blockSize)
	if err != nil {
		return err
	}
	scales.value, scales.dtype = p.a.src.scales, ir.BlockScale
	p.scalesA = &scales
	if p.a, err = p.a.dividedBy(2); err != nil {
		return err
	}
	p.a.dtype = ir.Uint8
	return nil
}

// matmul: numpy.matmul with both ranks at least 2. If B has no batch dimensions, A's become rows.
func (p *problem) matmul() error {
	n := p.anchor
	ra, rb := n.Inputs[0].Type.Rank(), n.Inputs[1].Type.Rank()
	if ra < 2 || rb < 2 {
		return fmt.Errorf("MatMul of a vector")
	}
	var err error
	if p.a, err = p.operandOf(0); err != nil {
		return err
	}
	if p.b, err = p.operandOf(1); err != nil {
		return err
	}
	out := n.Outputs[0].Type.Shape
	r := len(out)
	batch := out[:r-2]
	av, ok := p.a.src.view.Broadcast(append(append([]int{}, batch...), n.Inputs[0].Type.Shape[ra-2:]...))
	if !ok {
		return fmt.Errorf("MatMul batch of A")
	}
	bv, ok := p.b.src.view.Broadcast(append(append([]int{}, batch...), n.Inputs[1].Type.Shape[rb-2:]...))
	if !ok {
		return fmt.Errorf("MatMul batch of B")
	}
	am, ak, bk, bn := av.Dims[r-2], av.Dims[r-1], bv.Dims[r-2], bv.Dims[r-1]
	if n.Attrs.Bool("transA") {
		am, ak = ak, am
	}
	if n.Attrs.Bool("transB") {
		bk, bn = bn, bk
	}
	p.m, p.n, p.k = out[r-2], out[r-1], layout.Size(ak)
	shared := true // B is the same for every batch
	for i := range batch {
		for _, m := range bv.Dims[i] {
			shared = shared && m.Stride == 0
		}
	}
	if shared {
		rows := append(append([][]layout.Mode{}, av.Dims[:r-2]...), am)
		p.a.row = layout.Concat(rows...)
		for _, d := range batch {
			p.m *= d
		}
	} else {
		for i, d := range batch {
			p.z = append(p.z, d)
			p.a.z = append(p.a.z, av.Dims[i])
			p.b.z = append(p.b.z, bv.Dims[i])
		}
		p.a.row = layout.Coalesce(am)
	}
	p.a.col = layout.Coalesce(ak)
	p.b.row, p.b.col = layout.Coalesce(bk), layout.Coalesce(bn)
	p.spread = func(v layout.View) (operand, error) {
		o := operand{z: make([][]layout.Mode, 1), offset: v.Offset, col: layout.Coalesce(v.Dims[r-1])}
		if shared {
			o.row = layout.Concat(v.Dims[:r-1]...)
		} else {
			o.z = append(o.z, v.Dims[:r-2]...)
			o.row = layout.Coalesce(v.Dims[r-2])
		}
		return o, nil
	}
	return nil
}

// convolution: implicit GEMM. One spatial dimension is viewed as two.
func (p *problem) convolution() (err error) {
	n := p.anchor
	switch spatial := n.Inputs[0].Type.Rank() - 2; {
	case spatial < 1 || spatial > 2:
		return fmt.Errorf("Conv with %d spatial dimensions", spatial)
	case n.Depthwise():
		return fmt.Errorf("a depthwise Conv")
	}
	if p.a, err = p.operandOf(0); err != nil {
		return err
	}
	if p.b, err = p.operandOf(1); err != nil {
		return err
	}
	im, group := newImage(n), n.Attrs.Int("group", 1)
	g, xv, wv := im.window(), im.view(p.a.src.view), p.b.src.view
	if im.flat {
		wv = insertDim(wv, 2)
	}
	var step [2]int // elements between neighbours along h, w
	for i := range step {
		switch modes := layout.Coalesce(xv.Dims[i+1]); {
		case len(modes) == 1:
			step[i] = modes[0].Stride
		case len(modes) > 1:
			return fmt.Errorf("Conv input is not evenly strided")
		}
	}
	hs, ws := step[0], step[1]
	az, ac, evenA := splitOuter(xv.Dims[3], group)
	wz, wcol, evenB := splitOuter(wv.Dims[0], group)
	if !evenA || !evenB {
		return fmt.Errorf("Conv groups do not divide the channels evenly")
	}
	p.conv, p.m, p.n, p.k = g, g.batch*g.oh*g.ow, n.Inputs[1].Type.Shape[0]/group, g.kh*g.kw*g.c
	places := []layout.Mode{{Size: g.oh, Stride: g.sh * hs}, {Size: g.ow, Stride: g.sw * ws}}
	images := layout.Coalesce(xv.Dims[0])
	// The images of a gradient's convolution are channels, and neighbours.
	inner := layout.Run(images) > 1 && layout.Run(ac) == 1
	if inner {
		p.a.row = append(places, images...)
	} else {
		g.oy = len(images)
		p.a.row = append(images, places...)
	}
	p.a.col = append([]layout.Mode{{Size: g.kh, Stride: g.dh * hs}, {Size: g.kw, Stride: g.dw * ws}}, layout.Coalesce(ac)...)
	p.a.offset += -g.padTop*hs - g.padLeft*ws
	if !g.padded {
		p.a.row, p.a.col = layout.Coalesce(p.a.row), layout.Coalesce(p.a.col)
		p.conv = nil
	}
	// B[k,n] = w[n, c, ky, kx] with k = (ky, kx, c)
	p.b.row, p.b.col = layout.Concat(wv.Dims[2], wv.Dims[3], wv.Dims[1]), wcol
	p.z, p.a.z, p.b.z = append(p.z, group), append(p.a.z, az), append(p.b.z, wz)
	p.spread = func(v layout.View) (operand, error) {
		v = im.view(v)
		o := operand{z: make([][]layout.Mode, 1), offset: v.Offset, row: layout.Concat(v.Dims[:3]...)}
		if inner {
			o.row = layout.Concat(v.Dims[1], v.Dims[2], v.Dims[0])
		}
		z, col, ok := splitOuter(v.Dims[3], group)
		if !ok {
			return o, fmt.Errorf("Conv groups do not divide the channels evenly")
		}
		o.z, o.col = append(o.z, z), col
		return o, nil
	}
	return nil
}

// image says which dimensions of a convolution's image and result are n, h, w and c.
type image struct {
	conv *ir.Node
	perm []int
	flat bool // one spatial dimension, which is viewed as the second of two
}

func newImage(conv *ir.Node) image {
	im := image{conv: conv, perm: []int{0, 2, 3, 1}, flat: conv.Inputs[0].Type.Rank() == 3}
	if conv.Attrs.String("layout", "NCHW") == "NHWC" {
		im.perm = []int{0, 1, 2, 3}
	}
	return im
}

// view is a view of an image as n, h, w and c.
func (im image) view(v layout.View) layout.View {
	if im.flat {
		v = insertDim(v, im.perm[1])
	}
	return v.Transpose(im.perm)
}

// window is the convolution's.
func (im image) window() *window {
	attrs := im.conv.Attrs
	pair := func(list []int, other int) (int, int) {
		if im.flat {
			return other, list[0]
		}
		return list[0], list[1]
	}
	size := func(v *ir.Value, at int) (h, w int) {
		if im.flat {
			at--
			return 1, v.Type.Shape[at]
		}
		return v.Type.Shape[at-1], v.Type.Shape[at]
	}
	x, w, y := im.conv.Inputs[0], im.conv.Inputs[1], im.conv.Outputs[0]
	g := &window{batch: y.Type.Shape[0], c: w.Type.Shape[1]}
	g.oh, g.ow = size(y, im.perm[2])
	g.h, g.w = size(x, im.perm[2])
	g.kh, g.kw = size(w, 3)
	g.sh, g.sw = pair(attrs.Ints("strides"), 1)
	g.dh, g.dw = pair(attrs.Ints("dilations"), 1)
	g.padTop, g.padLeft = pair(attrs.Ints("pads"), 0)
	g.padded = g.padTop > 0 || g.padLeft > 0 || (g.oh-1)*g.sh+(g.kh-1)*g.dh-g.padTop >= g.h || (g.ow-1)*g.sw+(g.kw-1)*g.dw-g.padLeft >= g.w
	return g
}

// splitOuter cuts a dimension into an outer one of the given size and the rest.
func splitOuter(modes []layout.Mode, outer int) (a, b []layout.Mode, ok bool) {
	v, ok := layout.View{Dims: [][]layout.Mode{modes}}.Reshape([]int{outer, layout.Size(modes) / outer})
	if !ok {
		return nil, nil, false
	}
	return v.Dims[0], v.Dims[1], true
}

func insertDim(v layout.View, at int) layout.View {
	return layout.View{Dims: slices.Insert(slices.Clone(v.Dims), at, nil), Offset: v.Offset}
}
