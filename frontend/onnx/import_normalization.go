package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var normalizationOperators = []operator{
	{name: "BatchNormalization", since: 7, convert: batchNormalization},
	{name: "InstanceNormalization", since: 7, convert: groupNormalization(func(s *site) int { return s.in(0).Type.Shape[1] })},
	{name: "GroupNormalization", since: 18, convert: groupNormalization(func(s *site) int { return s.int("num_groups", 0) })},
	{name: "LayerNormalization", since: 7, convert: layerNormalization}, // of opset 17; ONNX Runtime writes it into older files too
	{name: "RMSNormalization", since: 23, convert: func(s *site) {
		x := s.in(0)
		s.out(0, s.add("RMSNorm", ir.Attrs{"axis": s.axisOf(x, -1), "epsilon": s.epsilon()}, x, s.cast(s.in(1), x.Type.DType)))
	}},
	{name: "LRN", since: 7, convert: lrn},
	{name: "LpNormalization", since: 7, convert: composite(lpNormalization)},
	{name: "MeanVarianceNormalization", since: 9, convert: composite(meanVarianceNormalization)},
}

// epsilon is the attribute that all normalisations have; its default is the float32 nearest to 1e-5.
func (s *site) epsilon() float64 { return s.float("epsilon", float64(float32(1e-5))) }

func batchNormalization(s *site) {
	x := s.in(0)
	params := []*ir.Value{s.in(1), s.in(2), s.in(3), s.in(4)}
	if s.opset >= 14 && s.bool("training_mode", false) {
		batchNormalizationTraining(s, x, params)
		return
	}
	if s.opset < 9 && !s.bool("spatial", true) {
		s.out(0, s.normalizeEach(x, params))
		return
	}
	rows := x
	if x.Type.Rank() == 1 { // N elements of one channel
		rows = s.reshape(x, x.Type.Shape[0], 1)
	}
	y := s.add("BatchNorm", ir.Attrs{"epsilon": s.epsilon()}, append([]*ir.Value{rows}, params...)...)
	s.out(0, s.reshape(y, x.Type.Shape...))
}

// normalizeEach is BatchNormalization with spatial=0 (opset 7 and 8): parameters of the shape of one sample.
func (s *site) normalizeEach(x *ir.Value, params []*ir.Value) *ir.Value {
	for _, p := range params {
		if !slices.Equal(p.Type.Shape, x.Type.Shape[min(1, x.Type.Rank()):]) {
			s.fail("spatial=0 wants parameters of the shape of a sample of %v, not %v", x.Type, p.Type)
		}
	}
	operands := mapped(append([]*ir.Value{x}, params...), s.wide)
	return s.cast(parseFormula("(x-u) / sqrt(v+epsilon) * y + z", defaults{"epsilon": 1e-5}).on(s, operands...), x.Type.DType)
}

// batchNormalizationTraining normalises by the statistics of the batch and returns the running ones.
func batchNormalizationTraining(s *site, x *ir.Value, params []*ir.Value) {
	r := s.rank(x, 2)
	w := s.wide(x)
	mean, d, variance := s.moments(w, slices.Delete(iotaInts(r), 1, 2))
	y := s.eval("x / sqrt(y+z)", d, variance, s.like(w, s.epsilon()))
	s.out(0, s.affine(y, s.alongChannel(params[0], r), s.alongChannel(params[1], r), x.Type.DType))
	running := parseFormula("x*momentum + y*(1-momentum)", defaults{"momentum": 0.9})
	for i, now := range []*ir.Value{mean, variance} {
		old := params[2+i]
		y := running.on(s, s.cast(old, now.Type.DType), s.reshape(now, old.Type.Shape...))
		s.out(1+i, s.cast(y, old.Type.DType))
	}
}

// moments are the mean of w over axes, which stay as 1, the differences from it, and their mean square.
func (s *site) moments(w *ir.Value, axes []int) (mean, centred, variance *ir.Value) {
	mean = s.reduce("ReduceMean", w, axes, true)
	centred = s.op("Sub", w, mean)
	return mean, centred, s.reduce("ReduceMean", s.op("Mul", centred, centred), axes, true)
}

// groupNormalization is normalisation in groups of channels, with scale and bias by channel, or by group before
// GroupNormalization 21. InstanceNormalization has a group for each channel.
func groupNormalization(groupsOf func(*site) int) func(*site) {
	return func(s *site) {
		x := s.in(0)
		r := s.rank(x, 2)
		n, c, groups := x.Type.Shape[0], x.Type.Shape[1], groupsOf(s)
		if groups < 1 || c%groups != 0 {
			s.fail("%d groups do not divide %d channels", groups, c)
		}
		rows := s.reshape(s.wide(x), n, groups, product(x.Type.Shape[1:])/groups)
		y := s.add("LayerNorm", ir.Attrs{"axis": 2, "epsilon": s.epsilon()}, rows)
		parameter := func(i int) *ir.Value {
			v := s.in(i)
			if s.opset < 21 {
				v = s.reshape(s.expand(s.reshape(v, groups, 1), groups, c/groups), c)
			}
			return s.alongChannel(v, r)
		}
		s.out(0, s.affine(s.reshape(y, x.Type.Shape...), parameter(1), parameter(2), x.Type.DType))
	}
}

// affine is y·scale+bias, rounded to d.
func (s *site) affine(y, scale, bias *ir.Value, d ir.DType) *ir.Value {
	w := y.Type.DType
	return s.cast(s.eval("x*y + z", y, s.cast(scale, w), s.cast(bias, w)), d)
}

func layerNormalization(s *site) {
	x := s.in(0)
	axis := s.axisOf(x, -1)
	s.out(0, s.add("LayerNorm", ir.Attrs{"axis": axis, "epsilon": s.epsilon()}, x, s.in(1), s.opt(2)))
	if !s.wants(1) && !s.wants(2) {
		return
	}
	stash, err := DType(int32(s.int("stash_type", 1)))
	s.check(err)
	mean, _, variance := s.moments(s.wide(x), iotaInts(x.Type.Rank())[axis:])
	inverse := s.eval("reciprocal(sqrt(x + y))", variance, s.like(variance, s.epsilon()))
	s.out(1, s.cast(mean, stash))
	s.out(2, s.cast(inverse, stash))
}

// lrn divides by (bias + alpha/size · Σ x²)^beta, the sum over size channels around each: an average pool over channels
// whose padding counts.
func lrn(s *site) {
	x := s.in(0)
	s.rank(x, 2)
	size := s.int("size", 0)
	if size < 1 {
		s.fail("size=%d, want at least 1", size)
	}
	w := s.wide(x)
	n, c := x.Type.Shape[0], x.Type.Shape[1]
	squares := s.reshape(s.op("Mul", w, w), n, 1, c, product(x.Type.Shape[2:]))
	mean := s.add("AveragePool", ir.Attrs{
		"kernel": []int{size, 1}, "strides": []int{1, 1}, "dilations": []int{1, 1},
		"pads": []int{(size - 1) / 2, 0, size - 1 - (size-1)/2, 0}, "include_pad": true,
	}, squares)
	scale := parseFormula("pow(x*alpha + bias, beta)", defaults{"alpha": 0.0001, "bias": 1, "beta": 0.75}).on(s, mean)
	s.out(0, s.cast(s.op("Div", w, s.reshape(scale, x.Type.Shape...)), x.Type.DType))
}

// lpNormalization divides by the 1- or 2-norm along an axis; where that is 0, so is the result.
func lpNormalization(s *site, x *ir.Value) *ir.Value {
	p := s.int("p", 2)
	if p != 1 && p != 2 {
		s.fail("p=%d, want 1 or 2", p)
	}
	return s.eval("where(y == 0, 0, x/y)", x, s.norm(x, p, []int{s.axisOf(x, -1)}))
}

// meanVarianceNormalization is (x-mean)/(σ+1e-9) (function body of MeanVarianceNormalization 13).
func meanVarianceNormalization(s *site, x *ir.Value) *ir.Value {
	axes := s.ints("axes")
	if axes == nil {
		axes = []int{0, 2, 3}
	}
	axes = s.axes(axes, x.Type.Rank())
	_, d, variance := s.moments(x, axes)
	return s.eval("x / (sqrt(y) + 1e-9)", d, variance)
}
