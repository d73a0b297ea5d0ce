package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var lossOperators = []operator{
	{name: "NegativeLogLikelihoodLoss", since: 12, convert: func(s *site) {
		x := s.in(0)
		s.out(0, s.cast(s.nllLoss(s.wide(x)), x.Type.DType))
	}},
	{name: "SoftmaxCrossEntropyLoss", since: 12, convert: func(s *site) {
		x := s.in(0)
		s.rank(x, 2)
		logp := s.add("LogSoftmax", ir.Attrs{"axis": 1}, s.wide(x))
		s.out(0, s.cast(s.nllLoss(logp), x.Type.DType))
		s.out(1, s.cast(logp, x.Type.DType))
	}},
}

// nllLoss picks the target's log probability of every position of [N,C,D…]: inputs 1 and 2 are targets and weights.
func (s *site) nllLoss(logp *ir.Value) *ir.Value {
	s.rank(logp, 2)
	target := s.in(1)
	classes := logp.Type.Shape[1]
	if want := slices.Delete(slices.Clone(logp.Type.Shape), 1, 2); !slices.Equal(want, target.Type.Shape) {
		s.fail("targets are %v, want shape %v", target.Type, want)
	}
	var weight *ir.Value // of every position
	index := target
	if s.hasAttr("ignore_index") {
		ignored := s.op("Equal", target, s.like(target, float64(s.int("ignore_index", 0))))
		index = s.where(ignored, s.like(target, 0), target)
		weight = s.where(ignored, s.like(logp, 0), s.like(logp, 1))
	}
	if w := s.opt(2); w != nil {
		if !slices.Equal(w.Type.Shape, []int{classes}) {
			s.fail("weights are %v, want one for each of %d classes", w.Type, classes)
		}
		each := s.add("Gather", ir.Attrs{"axis": 0}, s.cast(w, logp.Type.DType), index)
		if weight != nil {
			each = s.op("Mul", each, weight)
		}
		weight = each
	}
	picked := s.add("GatherElements", ir.Attrs{"axis": 1}, logp, s.unsqueeze(index, 1))
	loss := s.op("Neg", s.reshape(picked, target.Type.Shape...))
	if weight != nil {
		loss = s.op("Mul", loss, weight)
	}
	all := iotaInts(target.Type.Rank())
	switch s.choice("reduction", "mean", "sum", "none") {
	case "none":
		return loss
	case "sum":
		return s.reduce("ReduceSum", loss, all, false)
	}
	if weight == nil {
		return s.reduce("ReduceMean", loss, all, false)
	}
	total := s.expand(weight, target.Type.Shape...)
	return s.op("Div", s.reduce("ReduceSum", loss, all, false), s.reduce("ReduceSum", total, all, false))
}
