package onnx

import (
	"github.com/spark-compile/spark-compile/ir"
)

var indexingOperators = []operator{
	{name: "Gather", since: 7, convert: oneOp("Gather", axisAttr(0))},
	{name: "GatherElements", since: 11, convert: oneOp("GatherElements", axisAttr(0))},
	{name: "GatherND", since: 11, convert: oneOp("GatherND", func(s *site) ir.Attrs {
		return ir.Attrs{"batch_dims": s.int("batch_dims", 0)}
	})},
	{name: "Scatter", since: 9, until: 10, convert: oneOp("ScatterElements", axisAttr(0))},
	{name: "ScatterElements", since: 11, convert: oneOp("ScatterElements", func(s *site) ir.Attrs {
		return ir.Attrs{"axis": s.axisOf(s.in(0), 0), "reduction": s.scatterReduction()}
	})},
	{name: "ScatterND", since: 11, convert: oneOp("ScatterND", func(s *site) ir.Attrs {
		return ir.Attrs{"reduction": s.scatterReduction()}
	})},
	{name: "TensorScatter", since: 24, convert: tensorScatter},
	{name: "OneHot", since: 9, shapes: []int{1}, convert: oneHot},
	{domain: "ai.onnx.ml", name: "ArrayFeatureExtractor", since: 1, convert: arrayFeatureExtractor},
}

// axisAttr reads the axis of input 0 that an operator works along.
func axisAttr(def int) func(*site) ir.Attrs {
	return func(s *site) ir.Attrs { return ir.Attrs{"axis": s.axisOf(s.in(0), def)} }
}

func (s *site) scatterReduction() string {
	return s.choice("reduction", "none", "add", "mul", "max", "min")
}

// tensorScatter writes update into the cache at every sample's index: for each position of the cache, the element of
// update that lies there, if there is one.
func tensorScatter(s *site) {
	cache, update := s.in(0), s.in(1)
	r := s.rank(cache, 2)
	axis := s.axis(s.int("axis", -2), r)
	if axis == 0 || update.Type.Rank() != r {
		s.fail("axis is the batch dimension, or update %v does not fit the cache %v", update.Type, cache.Type)
	}
	length, n := cache.Type.Shape[axis], update.Type.Shape[axis]
	if n > length {
		s.fail("update %v is longer than the cache %v", update.Type, cache.Type)
	}
	if n == 0 {
		s.out(0, cache)
		return
	}
	// position of the cache relative to the write index, [B,1,…,length,…,1]
	at := s.iota(ir.Int64, length, axis, r)
	if s.opt(2) != nil {
		start := ones(r)
		start[0] = cache.Type.Shape[0]
		at = s.op("Sub", at, s.reshape(s.in(2), start...))
	}
	if s.choice("mode", "linear", "circular") == "circular" {
		at = s.op("Mod", at, s.scalar(ir.Int64, float64(length)))
	}
	picked := s.add("GatherElements", ir.Attrs{"axis": axis}, update, s.expand(s.clamped(at, n), cache.Type.Shape...))
	s.out(0, s.where(s.within(at, n), picked, cache))
}

func oneHot(s *site) {
	idx := s.in(0)
	depth := s.known(1, "depth")
	if depth == nil || depth.Numel() != 1 {
		s.fail("depth is missing or has more than one element")
	}
	axis := s.axis(s.int("axis", -1), idx.Type.Rank()+1)
	if d := idx.Type.DType; d.IsFloat() || d.Bits() != 64 {
		idx = s.cast(idx, ir.Int64)
	}
	s.out(0, s.add("OneHot", ir.Attrs{"depth": int(depth.FloatAt(0)), "axis": axis}, idx, s.in(2)))
}

// arrayFeatureExtractor picks columns of the last dimension; its result has at least two dimensions.
func arrayFeatureExtractor(s *site) {
	x, y := s.in(0), s.in(1)
	r := s.rank(x, 1)
	idx := s.reshape(y, y.Type.Numel())
	v := s.add("Gather", ir.Attrs{"axis": r - 1}, x, idx)
	if r == 1 {
		v = s.reshape(v, 1, y.Type.Numel())
	}
	s.out(0, v)
}
