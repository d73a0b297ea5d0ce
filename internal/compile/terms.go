package compile

import (
	"context"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/linear"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// terms is a region that is nothing but what pass split-image puts in front of a convolution: images [1, C, H, W] whose pixels become
// [H, W, 2·C], the nearest e4m3 of every channel and then what these leave, perhaps with zeros behind. The bits are those of its kernel, which
// finds out for every element where it comes from.
type terms struct {
	images   []image
	channels int // C
	pixels   int // of an image
	room     int // elements of a pixel: 2·C, and zeros
}

// image is one of those that lie behind each other.
type image struct {
	from  int      // operand
	bytes bool     // not f32
	add   *float32 // to every element; nil: nothing
	scale float64  // of the e4m3, a power of two
}

// termsOf returns nil for any other region.
func termsOf(n *ir.Node) *terms {
	r := n.Region
	if !n.IsFamily(ir.FamilyLoop) || r.Members > 0 || len(n.Outputs) != 1 || r.Results[0] != (ir.Storage{DType: ir.Float32}) {
		return nil
	}
	m := matcher{n}
	v, room := r.Body.Outputs[0], 0
	if pad := m.is(v, "Pad"); pad != nil {
		begin, end := pad.Attrs.Ints("begin"), pad.Attrs.Ints("end")
		last := len(end) - 1
		if last == 0 || slices.Max(begin) > 0 || slices.Max(end[:last]) > 0 || min(slices.Min(begin), slices.Min(end)) < 0 {
			return nil
		}
		v, room = pad.Inputs[0], end[last]
	}
	parts := []*ir.Value{v}
	if join := m.is(v, "Concat"); join != nil && join.Attrs.Int("axis", 0) == 0 && room == 0 {
		parts = join.Inputs
	}
	t := &terms{}
	for i, v := range parts {
		one, shape := m.image(v)
		if one == nil || i > 0 && !slices.Equal(shape, []int{t.channels, t.pixels}) {
			return nil
		}
		t.images, t.channels, t.pixels = append(t.images, *one), shape[0], shape[1]
	}
	t.room = 2*t.channels + room
	if n.Outputs[0].Type.Numel() != len(t.images)*t.pixels*t.room {
		return nil
	}
	return t
}

// matcher looks into the body of a region.
type matcher struct{ region *ir.Node }

// is the node that computes a value, behind what only changes its shape, if it is of an op.
func (m matcher) is(v *ir.Value, op string) *ir.Node {
	if v = m.behind(v); v.Def == nil || v.Def.Op.Name != op {
		return nil
	}
	return v.Def
}

// behind is a value before it changed its shape.
func (matcher) behind(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Op.Name == "Reshape" {
		v = v.Def.Inputs[0]
	}
	return v
}

// constant are the elements of a value of the body; nil if they vary.
func (m matcher) constant(v *ir.Value) []float64 {
	if at := slices.Index(m.region.Region.Body.Inputs, v); at >= 0 {
		v = m.region.Inputs[at]
	}
	if !v.IsConst() {
		return nil
	}
	return v.Const.Floats()
}

// image finds the image whose two terms are a value, its channels and its pixels; nil if that is not what it is.
func (m matcher) image(v *ir.Value) (*image, []int) {
	sum := m.is(v, "Add")
	if sum == nil {
		return nil, nil
	}
	near, all := m.is(sum.Inputs[0], "Mul"), m.is(sum.Inputs[1], "Mul")
	if near == nil || all == nil || !slices.Equal(m.constant(near.Inputs[1]), []float64{1, -1}) || !slices.Equal(m.constant(all.Inputs[1]), []float64{0, 1}) {
		return nil, nil
	}
	q := m.is(near.Inputs[0], "FakeQuantize")
	if q == nil || q.Inputs[0] != all.Inputs[0] || q.Attrs.DType("to") != ir.Float8E4M3FN || q.Attrs.Bool("codes") || !q.Flag("saturate") {
		return nil, nil
	}
	out := &image{scale: q.Attrs.Float("scale", 1)}
	if half, _ := math.Frexp(out.scale); half != .5 {
		return nil, nil
	}
	x := m.behind(q.Inputs[0])
	channels := q.Inputs[0].Type.Shape[q.Inputs[0].Type.Rank()-1]
	if plus := m.is(x, "Add"); plus != nil {
		by := m.constant(plus.Inputs[1])
		if len(by) != 1 {
			return nil, nil
		}
		add := float32(by[0])
		out.add, x = &add, m.behind(plus.Inputs[0])
	}
	if cast := m.is(x, "Cast"); cast != nil {
		x = m.behind(cast.Inputs[0])
	}
	turn := m.is(x, "Transpose")
	if turn == nil || !slices.Equal(turn.Attrs.Ints("perm"), []int{0, 2, 3, 1}) {
		return nil, nil
	}
	from := turn.Inputs[0]
	shape := from.Type.Shape
	if out.from = slices.Index(m.region.Region.Body.Inputs, from); out.from < 0 || shape[0] != 1 || shape[1] != channels {
		return nil, nil
	}
	stored := m.region.Region.Operands[out.from].Storage
	switch {
	case stored != (ir.Storage{DType: from.Type.DType}):
		return nil, nil
	case from.Type.DType == ir.Uint8:
		out.bytes = true
	case from.Type.DType != ir.Float32:
		return nil, nil
	}
	return out, []int{channels, shape[2] * shape[3]}
}

// pixelsAtOnce is the number of pixels whose terms are computed together.
const pixelsAtOnce = 256

// evaluate evaluates a region that is an image in two terms.
func (t *terms) evaluate(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, room *calibrate.Room) (outs [][]*ir.Tensor, err error) {
	for range in {
		outs = append(outs, []*ir.Tensor{room.Tensor(n.Outputs[0].Type)})
	}
	blocks := (t.pixels + pixelsAtOnce - 1) / pixelsAtOnce
	count := len(t.images) * blocks
	spread(ctx, len(in)*count, func(i int) {
		at, image, first := i/count, i%count/blocks, i%blocks*pixelsAtOnce
		size := min(pixelsAtOnce, t.pixels-first)
		to := runtime.View[float32](outs[at][0].Data)[(image*t.pixels+first)*t.room:][:size*t.room]
		t.of(to, &t.images[image], in[at][t.images[image].from].Data, first, size)
	})
	return outs, ctx.Err()
}

// of computes the terms of some pixels of an image.
func (t *terms) of(to []float32, m *image, data []byte, first, size int) {
	f := ir.Float8E4M3FN.Format()
	rounding := linear.NewRounding(f.Mantissa, 1-f.Bias, f.Max(), m.scale)
	var room [2][pixelsAtOnce]float32
	xs, near := room[0][:size], room[1][:size]
	for c := range t.channels {
		if from := c*t.pixels + first; m.bytes {
			for i, b := range data[from:][:size] {
				xs[i] = float32(b)
			}
		} else {
			copy(xs, runtime.View[float32](data)[from:][:size])
		}
		if m.add != nil {
			for i := range xs {
				xs[i] += *m.add
			}
		}
		copy(near, xs)
		rounding.Requantise(near)
		for i, x := range xs {
			// The kernel's zeros have the sign of what they were.
			y := math.Float32frombits(math.Float32bits(near[i])&^(1<<31) | math.Float32bits(x)&(1<<31))
			pixel := to[i*t.room:][:t.room]
			pixel[c], pixel[t.channels+c] = y, x-y
		}
	}
	for rest := to; len(rest) > 0; rest = rest[t.room:] {
		clear(rest[2*t.channels : t.room])
	}
}
