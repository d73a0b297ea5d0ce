package randgraph

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// listInput gives a list of integers as an attribute before an opset, and as input 1 from there on.
func (b *build) listInput(op string, x *value, since int64, name string, list []int, outs int, attrs ...onnx.Attr) []*value {
	in := []*value{x}
	if list != nil {
		if b.opset < since {
			attrs = append(attrs, a(name, list))
		} else {
			in = append(in, b.ints(list...))
		}
	}
	return b.node(op, in, outs, attrs...)
}

var movementRows = []row{
	{"Identity", 1, unary},
	{"Reshape", 3, func(b *build, op string) {
		x := b.x()
		shape := b.regrouped(x.Numel())
		known := slices.Clone(shape)
		if len(shape) > 0 && b.chance(.4) {
			shape[b.r.IntN(len(shape))] = -1
		}
		for i := range shape {
			if i < x.Rank() && shape[i] == x.Shape[i] && b.chance(.3) {
				shape[i] = 0
			}
		}
		if b.chance(.15) && b.opset >= 13 { // the shape is that of another value
			other := b.fresh(tensorOf(ir.T(ir.Float32, known...), func(int) float64 { return 1 }), isInput)
			b.s = b.schema("Shape")
			b.one(op, []*value{x, b.one("Shape", []*value{other})})
			return
		}
		b.one(op, []*value{x, b.ints(shape...)})
	}},
	{"Flatten", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 5)
		b.one(op, []*value{x}, b.maybe(a("axis", b.between(0, x.Rank())))...)
	}},
	{"Transpose", 4, func(b *build, op string) {
		x := b.x()
		if x.Rank() == 0 {
			b.redraw()
		}
		if b.chance(.2) {
			b.one(op, []*value{x})
			return
		}
		b.one(op, []*value{x}, a("perm", b.r.Perm(x.Rank())))
	}},
	{"Squeeze", 1, func(b *build, op string) {
		x := b.pick(func(v *value) bool { return slices.Contains(b.types(0), v.DType) && slices.Contains(v.Shape, 1) }, func() *value {
			s := b.shape(1, 4)
			return b.given(b.plain(b.dtype(b.types(0)), slices.Insert(s, b.between(0, len(s)), 1)...))
		})
		var axes []int
		for i, d := range x.Shape {
			if d == 1 && b.chance(.7) {
				axes = append(axes, i)
			}
		}
		if len(axes) == 0 {
			axes = nil
		}
		b.listInput(op, x, 13, "axes", axes, 1)
	}},
	{"Unsqueeze", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 0, 4)
		n := b.between(1, 5-x.Rank())
		b.listInput(op, x, 13, "axes", b.r.Perm(x.Rank() + n)[:n], 1)
	}},
	{"Split", 3, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 5)
		axis := b.axis(x.Rank())
		dim := x.Shape[(axis+x.Rank())%x.Rank()]
		n := b.between(1, min(dim, 4))
		if dim%n == 0 && b.chance(.4) {
			attrs := []onnx.Attr{a("axis", axis)}
			if b.opset >= 18 {
				attrs = append(attrs, a("num_outputs", n))
			}
			b.node(op, []*value{x}, n, attrs...)
			return
		}
		parts := make([]int, n)
		for i := range parts {
			parts[i] = 1
		}
		for range dim - n {
			parts[b.r.IntN(n)]++
		}
		b.listInput(op, x, 13, "split", parts, n, a("axis", axis))
	}},
	{"Expand", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 0, 4)
		s := b.broadcast(x.Shape)
		if b.chance(.5) {
			s = slices.Clone(x.Shape)
			for i, d := range s {
				if d == 1 {
					s[i] = b.between(1, 5)
				} else if b.chance(.4) {
					s[i] = 1
				}
			}
		}
		b.one(op, []*value{x, b.ints(s...)})
	}},
	{"Tile", 1, func(b *build, op string) {
		x := b.x()
		by := make([]int, x.Rank())
		for i := range by {
			by[i] = oneOf(b, 1, 1, 2, 3)
		}
		b.one(op, []*value{x, b.ints(by...)})
	}},
	{"Concat", 4, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 5)
		axis := b.axis(x.Rank())
		at := (axis + x.Rank()) % x.Rank()
		list := []*value{x}
		for range b.between(0, 3) {
			list = append(list, b.pick(func(v *value) bool {
				if v.DType != x.DType || v.Rank() != x.Rank() {
					return false
				}
				s := slices.Clone(v.Shape)
				s[at] = x.Shape[at]
				return slices.Equal(s, x.Shape)
			}, func() *value {
				s := slices.Clone(x.Shape)
				s[at] = b.between(1, 6)
				return b.given(b.plain(x.DType, s...))
			}))
		}
		b.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		b.one(op, list, a("axis", axis))
	}},
	{"Slice", 3, slice},
	{"Pad", 4, pad},
	{"DepthToSpace", 1, func(b *build, op string) {
		n := b.between(2, 3)
		x := b.image(2, 2, func(s []int) bool { return s[1]%(n*n) == 0 }, func(s []int) { s[1] = n * n * b.between(1, 2) })
		attrs := []onnx.Attr{a("blocksize", n)}
		if b.opset >= 11 && b.chance(.6) {
			attrs = append(attrs, a("mode", oneOf(b, "DCR", "CRD")))
		}
		b.one(op, []*value{x}, attrs...)
	}},
	{"SpaceToDepth", 1, func(b *build, op string) {
		n := b.between(2, 3)
		x := b.image(2, 2, func(s []int) bool { return s[2]%n == 0 && s[3]%n == 0 }, func(s []int) { s[2], s[3] = n*b.between(1, 3), n*b.between(1, 3) })
		b.one(op, []*value{x}, a("blocksize", n))
	}},
	{"CenterCropPad", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axes := b.axes(x.Rank(), 1)
		shape := make([]int, len(axes))
		for i := range shape {
			shape[i] = b.between(1, 9)
		}
		b.one(op, []*value{x, b.ints(shape...)}, a("axes", axes))
	}},
	{"Trilu", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 2, 4)
		in := []*value{x}
		if b.chance(.6) {
			in = append(in, b.scalarInt(b.between(-4, 4)))
		}
		b.one(op, in, b.maybe(a("upper", b.chance(.5)))...)
	}},
	{"ReverseSequence", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 2, 4)
		batch := b.r.IntN(2)
		lengths := b.given(tensorOf(ir.T(ir.Int64, x.Shape[batch]), func(int) float64 { return float64(b.between(1, x.Shape[1-batch])) }))
		b.one(op, []*value{x, lengths}, a("batch_axis", batch), a("time_axis", 1-batch))
	}},
}

// regrouped is a shape with a number of elements.
func (b *build) regrouped(n int) []int {
	var s []int
	for n > 1 && len(s) < 4 {
		d := b.between(1, n)
		for n%d != 0 {
			d--
		}
		s, n = append(s, d), n/d
	}
	if n > 1 || len(s) == 0 && b.chance(.8) {
		s = append(s, n)
	}
	b.r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

func slice(b *build, op string) {
	x := b.tensor(b.types(0), 1, 5)
	axes := b.axes(x.Rank(), 1)
	var starts, ends, steps []int
	for i, ax := range axes {
		if b.opset < 10 && ax < 0 {
			axes[i] += x.Rank()
		}
		d := x.Shape[(ax+x.Rank())%x.Rank()]
		from, step := b.r.IntN(d), 1
		to := b.between(from+1, d)
		if b.opset >= 10 && b.chance(.4) {
			step = oneOf(b, 2, 3, -1, -2)
		}
		if step < 0 {
			from, to = to-1, from-1
			if to < 0 {
				to = -d - 1 - b.r.IntN(2)*1000
			}
		} else if b.chance(.2) {
			to = oneOf(b, d+3, math.MaxInt32, math.MaxInt64)
		}
		if from > 0 && b.chance(.3) {
			from -= d
		}
		starts, ends, steps = append(starts, from), append(ends, to), append(steps, step)
	}
	if b.opset < 10 {
		b.one(op, []*value{x}, a("starts", starts), a("ends", ends), a("axes", axes))
		return
	}
	in := []*value{x, b.ints(starts...), b.ints(ends...), b.ints(axes...), b.ints(steps...)}
	if !slices.ContainsFunc(steps, func(s int) bool { return s != 1 }) && b.chance(.5) {
		in = in[:4]
	}
	b.one(op, in)
}

func pad(b *build, op string) {
	x := b.tensor(b.types(0), 1, 5)
	r := x.Rank()
	axes := make([]int, r)
	for i := range axes {
		axes[i] = i
	}
	modes := []string{"constant", "constant", "reflect", "edge"}
	if b.opset >= 19 {
		modes = append(modes, "wrap")
	}
	mode := oneOf(b, modes...)
	some := b.opset >= 18 && b.chance(.4)
	if some {
		axes = b.axes(r, 1)
	}
	pads := make([]int, 2*len(axes))
	for i, ax := range axes {
		d := x.Shape[(ax+r)%r]
		for k := range 2 {
			most := 3
			switch mode {
			case "reflect":
				most = min(3, d-1)
			case "wrap":
				most = min(3, d)
			}
			if b.chance(.6) {
				pads[i+k*len(axes)] = b.between(0, most)
			}
		}
		if mode == "constant" && b.chance(.15) && d > 2 {
			pads[i+b.r.IntN(2)*len(axes)] = -b.between(1, d-2)
		}
	}
	if b.opset < 11 {
		attrs := []onnx.Attr{a("pads", pads), a("mode", mode)}
		if mode == "constant" {
			attrs = append(attrs, b.maybe(a("value", b.number(-2, 2)))...)
		}
		b.one(op, []*value{x}, attrs...)
		return
	}
	in := []*value{x, b.ints(pads...), nil, nil}
	if mode == "constant" && b.chance(.5) {
		in[2] = b.constant(b.plain(x.DType))
	}
	if some {
		in[3] = b.ints(axes...)
	}
	b.one(op, in, a("mode", mode))
}

// image is a value of [N,C,…] with lo to hi spatial dimensions; fits says which shapes will do, and set makes one so.
func (b *build) image(lo, hi int, fits func(s []int) bool, set func(s []int)) *value {
	allowed := b.types(0)
	return b.pick(func(v *value) bool {
		return slices.Contains(allowed, v.DType) && v.Rank() >= lo+2 && v.Rank() <= hi+2 && (fits == nil || fits(v.Shape))
	}, func() *value { return b.given(b.plain(b.dtype(allowed), b.imageShape(b.between(lo, hi), set)...)) })
}

func (b *build) imageShape(spatial int, set func(s []int)) []int {
	s := []int{b.between(1, 2), b.between(1, 8)}
	if b.chance(.1) {
		s[1] = oneOf(b, 9, 16, 17)
	}
	most := []int{0, 20, 9, 5}[spatial]
	for range spatial {
		s = append(s, b.between(1, most))
	}
	if set != nil {
		set(s)
	}
	return s
}

// indexOf are indices below a size, some of them counted from the end.
func (b *build) indices(d ir.DType, size int, negative bool, shape ...int) *value {
	return b.given(tensorOf(ir.T(d, append([]int{}, shape...)...), func(int) float64 {
		i := b.r.IntN(size)
		if negative && b.chance(.2) {
			i -= size
		}
		return float64(i)
	}))
}

var indexingRows = []row{
	{"Gather", 3, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axis := b.axis(x.Rank())
		idx := b.indices(oneOf(b, ir.Int32, ir.Int64), x.Shape[(axis+x.Rank())%x.Rank()], b.opset >= 11, b.shape(0, 2)...)
		b.one(op, []*value{x, idx}, a("axis", axis))
	}},
	{"GatherElements", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axis := b.axis(x.Rank())
		at := (axis + x.Rank()) % x.Rank()
		s := slices.Clone(x.Shape)
		for i := range s {
			if i == at {
				s[i] = b.between(1, 6)
			} else if b.chance(.3) {
				s[i] = b.between(1, s[i])
			}
		}
		b.one(op, []*value{x, b.indices(oneOf(b, ir.Int32, ir.Int64), x.Shape[at], true, s...)}, a("axis", axis))
	}},
	{"GatherND", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		batch := 0
		if b.opset >= 12 && x.Rank() > 1 && b.chance(.4) {
			batch = 1
		}
		last := b.between(1, x.Rank()-batch)
		s := slices.Concat(x.Shape[:batch], b.shape(0, 1), []int{last})
		idx := b.given(tensorOf(ir.T(ir.Int64, s...), func(i int) float64 { return float64(b.r.IntN(x.Shape[batch+i%last])) }))
		if batch > 0 {
			b.one(op, []*value{x, idx}, a("batch_dims", batch))
			return
		}
		b.one(op, []*value{x, idx})
	}},
	{"Scatter", 1, scatterElements},
	{"ScatterElements", 1, scatterElements},
	{"ScatterND", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		k := b.between(1, x.Rank())
		n := b.between(1, min(4, ir.T(x.DType, x.Shape[:k]...).Numel()))
		places := b.r.Perm(ir.T(x.DType, x.Shape[:k]...).Numel())[:n]
		at := make([]float64, 0, n*k)
		for _, p := range places {
			tuple := make([]float64, k)
			for i := k - 1; i >= 0; i-- {
				tuple[i] = float64(p % x.Shape[i])
				p /= x.Shape[i]
			}
			at = append(at, tuple...)
		}
		idx := b.given(tensorOf(ir.T(ir.Int64, n, k), func(i int) float64 { return at[i] }))
		u := b.given(b.plain(x.DType, append([]int{n}, x.Shape[k:]...)...))
		b.one(op, []*value{x, idx, u}, b.scatterReduction(x.DType)...)
	}},
	{"TensorScatter", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 3, 4)
		axis := b.between(1, x.Rank()-1)
		s := slices.Clone(x.Shape)
		s[axis] = b.between(1, s[axis])
		mode := oneOf(b, "linear", "circular")
		in := []*value{x, b.given(b.plain(x.DType, s...)), nil}
		if b.chance(.7) {
			slack := x.Shape[axis] - s[axis]
			if mode == "circular" {
				slack = x.Shape[axis] - 1
			}
			in[2] = b.given(tensorOf(ir.T(ir.Int64, x.Shape[0]), func(int) float64 { return float64(b.between(0, slack)) }))
		}
		b.one(op, in, a("axis", axis), a("mode", mode))
	}},
	{"OneHot", 1, func(b *build, op string) {
		depth := b.between(1, 7)
		d := oneOf(b, ir.Int64, ir.Int64, ir.Int32, ir.Float32)
		idx := b.given(tensorOf(ir.T(d, b.shape(1, 3)...), func(int) float64 { return float64(b.between(-depth, depth-1)) }))
		values := b.given(b.plain(oneOf(b, ir.Float32, ir.Int64, ir.Int32), 2))
		b.one(op, []*value{idx, b.scalarInt(depth), values}, a("axis", b.between(-1, idx.Rank())))
	}},
	{"Compress", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axis := b.axis(x.Rank())
		n := x.Shape[(axis+x.Rank())%x.Rank()]
		attrs := []onnx.Attr{a("axis", axis)}
		if b.chance(.3) {
			attrs, n = nil, x.Numel()
		}
		b.one(op, []*value{x, b.constant(b.plain(ir.Bool, b.between(1, n)))}, attrs...)
	}},
	{"NonZero", 1, func(b *build, op string) {
		b.one(op, []*value{b.constant(b.plain(b.dtype(b.types(0)), b.shape(1, 3)...))})
	}},
	{"ai.onnx.ml.ArrayFeatureExtractor", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 3)
		b.one(op, []*value{x, b.indices(ir.Int64, x.Shape[x.Rank()-1], false, 1, b.between(1, 4))})
	}},
}

// scatterElements writes each place once, since ONNX leaves open which of two updates wins.
func scatterElements(b *build, op string) {
	x := b.tensor(b.types(0), 1, 4)
	axis := b.axis(x.Rank())
	at := (axis + x.Rank()) % x.Rank()
	s := slices.Clone(x.Shape)
	s[at] = b.between(1, s[at])
	inner := ir.T(x.DType, s[at+1:]...).Numel()
	order := b.r.Perm(x.Shape[at])
	idx := b.given(tensorOf(ir.T(oneOf(b, ir.Int32, ir.Int64), s...), func(i int) float64 { return float64(order[i/inner%s[at]]) }))
	attrs := []onnx.Attr{a("axis", axis)}
	if op == "ScatterElements" {
		attrs = append(attrs, b.scatterReduction(x.DType)...)
	}
	b.one(op, []*value{x, idx, b.given(b.plain(x.DType, s...))}, attrs...)
}

func (b *build) scatterReduction(d ir.DType) []onnx.Attr {
	if b.opset < 16 || d == ir.Bool || b.chance(.4) {
		return nil
	}
	modes := []string{"none", "add", "mul"}
	if b.opset >= 18 {
		modes = append(modes, "max", "min")
	}
	return []onnx.Attr{a("reduction", oneOf(b, modes...))}
}
