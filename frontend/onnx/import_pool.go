package onnx

import (
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

var poolOperators = []operator{
	{name: "MaxPool", since: 7, convert: pool("MaxPool", func(s *site, attrs ir.Attrs) {
		if s.wants(1) {
			attrs["indices"], attrs["column_major"] = true, s.int("storage_order", 0) == 1
		}
	})},
	{name: "AveragePool", since: 7, convert: pool("AveragePool", func(s *site, attrs ir.Attrs) {
		attrs["include_pad"] = s.bool("count_include_pad", false)
	})},
	{name: "LpPool", since: 7, convert: pool("LpPool", func(s *site, attrs ir.Attrs) { attrs["p"] = s.int("p", 2) })},
	{name: "GlobalMaxPool", since: 7, convert: globalPool("ReduceMax")},
	{name: "GlobalAveragePool", since: 7, convert: globalPool("ReduceMean")},
	{name: "GlobalLpPool", since: 7, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.norm(x, s.int("p", 2), iotaInts(s.rank(x, 2))[2:])
	})},
	{name: "MaxRoiPool", since: 7, convert: maxRoiPool},
	{name: "MaxUnpool", since: 9, shapes: []int{2}, convert: maxUnpool},
}

// pool converts a pool; more adds its own attributes. The op handles windows that, with ceil_mode, start in the
// padding at the end.
func pool(op string, more func(*site, ir.Attrs)) func(*site) {
	return func(s *site) {
		x := s.in(0)
		s.need("kernel_shape")
		kernel := s.listOf("kernel_shape", s.rank(x, 3)-2, 0)
		win := s.window(x.Type.Shape[2:], kernel, true)
		cropped, starts := s.cropped(x, &win)
		attrs := win.attrs()
		attrs["kernel"] = kernel
		// SAME pads until the windows fit exactly.
		attrs["ceil"] = s.bool("ceil_mode", false) && !strings.HasPrefix(s.string("auto_pad", ""), "SAME_")
		more(s, attrs)
		for i, y := range s.addAll(op, attrs, cropped) {
			if i == 1 && cropped != x {
				y = s.uncropped(y, cropped.Type.Shape, x.Type.Shape, starts, attrs["column_major"] == true)
			}
			s.out(i, y)
		}
	}
}

// uncropped makes positions in an image of positions in a part of it that begins at starts.
func (s *site) uncropped(at *ir.Value, part, whole, starts []int, columnMajor bool) *ir.Value {
	number := func(i int) *ir.Value { return s.like(at, float64(i)) }
	var sum *ir.Value
	stride := 1
	for k := range part {
		i := len(part) - 1 - k
		if spatial := len(part) - 2; columnMajor && k < spatial {
			i = 2 + k
		}
		digit := s.op("Mod", at, number(part[i]))
		if i >= 2 && starts[i-2] > 0 {
			digit = s.op("Add", digit, number(starts[i-2]))
		}
		digit = s.op("Mul", digit, number(stride))
		if sum == nil {
			sum = digit
		} else {
			sum = s.op("Add", sum, digit)
		}
		at = s.op("Div", at, number(part[i]))
		stride *= whole[i]
	}
	return sum
}

func globalPool(reduce string) func(*site) {
	return func(s *site) {
		x := s.in(0)
		s.out(0, s.reduce(reduce, x, iotaInts(s.rank(x, 2))[2:], true))
	}
}

// norm is the p-norm over axes, which stay as 1.
func (s *site) norm(x *ir.Value, p int, axes []int) *ir.Value {
	switch p {
	case 1:
		return s.reduce("ReduceSum", s.op("Abs", x), axes, true)
	case 2:
		return s.op("Sqrt", s.reduce("ReduceSum", s.op("Mul", x, x), axes, true))
	}
	sum := s.reduce("ReduceSum", s.op("Pow", s.op("Abs", x), s.like(x, float64(p))), axes, true)
	return s.op("Pow", sum, s.like(x, 1/float64(p)))
}

// maxUnpool moves every element to its index. Indices count in the tensor that MaxPool read. If output_shape is
// larger, that tensor is its corner at the origin.
func maxUnpool(s *site) {
	x, idx := s.in(0), s.in(1)
	r := s.rank(x, 3)
	s.need("kernel_shape")
	kernel := s.listOf("kernel_shape", r-2, 0)
	win := s.window(x.Type.Shape[2:], kernel, true)
	shape := append([]int{}, x.Type.Shape[:2]...)
	for i, d := range x.Type.Shape[2:] {
		shape = append(shape, (d-1)*win.strides[i]+kernel[i]-win.pads[i]-win.pads[r-2+i])
	}
	s.check(ir.CheckShape(shape))
	total := product(shape)
	flat := s.add("ScatterElements", ir.Attrs{"axis": 0}, s.fill(x.Type.DType, 0, total),
		s.reshape(idx, idx.Type.Numel()), s.reshape(x, x.Type.Numel()))
	y := s.reshape(flat, shape...)
	if want := s.knownInts(2, "output_shape"); want != nil {
		if len(want) != r {
			s.fail("output_shape %v does not fit %v", want, x.Type)
		}
		begin, end := make([]int, r), make([]int, r)
		for i := range r {
			end[i] = want[i] - shape[i]
		}
		y = s.pad(y, begin, end, 0)
	}
	s.out(0, y)
}

// maxRoiPool takes the maximum of each cell of a grid over every region, from the cell's first to its last whole
// element; a cell without elements is 0. Since the maximum of a rectangle is the maximum of its rows' maxima, two
// masked reductions suffice.
func maxRoiPool(s *site) {
	x, rois := s.in(0), s.in(1)
	grid := s.ints("pooled_shape")
	if x.Type.Rank() != 4 || rois.Type.Rank() != 2 || rois.Type.Shape[1] != 5 || len(grid) != 2 || min(grid[0], grid[1]) < 1 {
		s.fail("x is %v, rois %v, pooled_shape %v: want [N,C,H,W], [R,5] and two sizes", x.Type, rois.Type, grid)
	}
	regions, scale := rois.Type.Shape[0], s.float("spatial_scale", 1)
	w := s.wide(rois)
	batch := s.cast(s.index(w, 1, 0), ir.Int64)
	v := s.add("Gather", ir.Attrs{"axis": 0}, s.wide(x), batch) // [R,C,H,W]
	for axis := 3; axis >= 2; axis-- {
		// The columns of rois are batch, x1, y1, x2, y2. Cells go into a new dimension before the one that they cut.
		from, to := s.rounded(s.index(w, 1, 4-axis), scale), s.rounded(s.index(w, 1, 6-axis), scale)
		n := x.Type.Shape[axis]
		inside := s.cellMask(from, to, regions, grid[axis-2], n) // [R,cells,n]
		shape := append([]int{}, v.Type.Shape[:axis]...)
		mask := s.reshape(inside, append(append([]int{regions, 1}, ones(axis-2)...), append([]int{grid[axis-2], n}, ones(3-axis)...)...)...)
		each := s.reshape(v, append(append(shape, 1), v.Type.Shape[axis:]...)...)
		v = s.reduce("ReduceMax", s.where(mask, each, s.negInf(v.Type.DType)), []int{axis + 1}, false)
	}
	empty := s.op("Equal", v, s.negInf(v.Type.DType))
	s.out(0, s.cast(s.where(empty, s.like(v, 0), v), x.Type.DType))
}

// rounded is v·scale to the nearest integer, halves away from 0.
func (s *site) rounded(v *ir.Value, scale float64) *ir.Value {
	return s.eval("sign(x) * floor(abs(x) + 0.5)", s.op("Mul", v, s.like(v, scale)))
}

// cellMask marks which of n elements lie in which cell of a region [from,to], as [R,cells,n].
func (s *site) cellMask(from, to *ir.Value, regions, cells, n int) *ir.Value {
	d := from.Type.DType
	from, to = s.reshape(from, regions, 1, 1), s.reshape(to, regions, 1, 1)
	size := s.eval("max(y-x+1, 1) / z", from, to, s.scalar(d, float64(cells)))
	cell, at := s.iota(d, cells, 1, 3), s.iota(d, n, 2, 3)
	return s.eval("x >= y+floor(z*u) && x < y+ceil((z+1)*u)", at, from, cell, size)
}
