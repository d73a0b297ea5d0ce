package onnx

import (
	"github.com/spark-compile/spark-compile/ir"
)

var poolOperators = []operator{
	{name: "MaxPool", since: 7, convert: maxPool},
	{name: "AveragePool", since: 7, convert: averagePool},
	{name: "LpPool", since: 7, convert: lpPool},
	{name: "GlobalMaxPool", since: 7, convert: globalPool("ReduceMax")},
	{name: "GlobalAveragePool", since: 7, convert: globalPool("ReduceMean")},
	{name: "GlobalLpPool", since: 7, convert: composite(globalLpPool)},
	{name: "MaxUnpool", since: 9, shapes: []int{2}, convert: maxUnpool},
}

// pool reads the attributes of a pool. Windows that ceil_mode starts in the padding at the end are left to the op.
func (s *site) pool() (*ir.Value, ir.Attrs) {
	x := s.in(0)
	s.rank(x, 3)
	kernel := s.ints("kernel_shape")
	if kernel == nil {
		s.fail("attribute \"kernel_shape\" is missing")
	}
	win := s.window(x.Type.Shape[2:], kernel)
	attrs := win.attrs()
	attrs["kernel"] = kernel
	ceil := s.bool("ceil_mode", false)
	if auto := s.string("auto_pad", "NOTSET"); auto == "SAME_UPPER" || auto == "SAME_LOWER" {
		ceil = false // the padding makes the sizes come out whole
	}
	attrs["ceil"] = ceil
	return x, attrs
}

func maxPool(s *site) {
	x, attrs := s.pool()
	indices := s.wants(1)
	if indices {
		attrs["indices"] = true
		attrs["column_major"] = s.int("storage_order", 0) == 1
	}
	outs := s.addAll("MaxPool", attrs, x)
	s.out(0, outs[0])
	if indices {
		s.out(1, outs[1])
	}
}

func averagePool(s *site) {
	x, attrs := s.pool()
	attrs["include_pad"] = s.bool("count_include_pad", false)
	s.out(0, s.add("AveragePool", attrs, x))
}

func lpPool(s *site) {
	x, attrs := s.pool()
	attrs["p"] = s.int("p", 2)
	s.out(0, s.add("LpPool", attrs, x))
}

func globalPool(reduce string) func(*site) {
	return func(s *site) {
		x := s.in(0)
		s.out(0, s.reduce(reduce, x, iotaInts(s.rank(x, 2))[2:], true))
	}
}

func globalLpPool(s *site, x *ir.Value) *ir.Value {
	axes := iotaInts(s.rank(x, 2))[2:]
	p := s.int("p", 2)
	switch p {
	case 1:
		return s.reduce("ReduceSum", s.op("Abs", x), axes, true)
	case 2:
		return s.op("Sqrt", s.reduce("ReduceSum", s.op("Mul", x, x), axes, true))
	}
	sum := s.reduce("ReduceSum", s.op("Pow", s.op("Abs", x), s.like(x, float64(p))), axes, true)
	return s.op("Pow", sum, s.like(x, 1/float64(p)))
}

// maxUnpool puts every element where its index says. Indices count in the tensor that MaxPool read, whose size
// output_shape may exceed: they then mean positions in the smaller one, the corner at the origin.
func maxUnpool(s *site) {
	x, idx := s.in(0), s.in(1)
	r := s.rank(x, 3)
	kernel := s.ints("kernel_shape")
	if len(kernel) != r-2 {
		s.fail("kernel_shape %v does not fit %v", kernel, x.Type)
	}
	win := s.window(x.Type.Shape[2:], kernel)
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
