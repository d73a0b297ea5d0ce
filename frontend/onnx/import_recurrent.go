package onnx

import (
	"github.com/spark-compile/spark-compile/ir"
)

var recurrentOperators = []operator{
	{name: "RNN", since: 7, convert: recurrent("RNN", 1)},
	{name: "GRU", since: 7, convert: recurrent("GRU", 1)},
	{name: "LSTM", since: 7, convert: recurrent("LSTM", 2)},
}

// recurrent converts RNN, GRU and LSTM, which have the given number of states. With layout 1 the batch comes first in
// inputs, states and outputs; the ops have it second.
func recurrent(op string, states int) func(*site) {
	return func(s *site) {
		batchFirst := s.int("layout", 0) == 1
		x := s.in(0)
		inputs := []*ir.Value{x, s.in(1), s.in(2), s.opt(3), s.opt(4)}
		s.rank(x, 3)
		if batchFirst {
			inputs[0] = s.swapAxes(x, 0, 1)
		}
		for i := range states {
			h := s.opt(5 + i)
			if h != nil && batchFirst {
				s.rank(h, 3)
				h = s.swapAxes(h, 0, 1)
			}
			inputs = append(inputs, h)
		}
		if op == "LSTM" {
			inputs = append(inputs, s.opt(7))
		}
		outs := s.addAll(op, s.recurrentAttrs(op), inputs...)
		for i, y := range outs {
			if !s.wants(i) {
				continue
			}
			switch {
			case batchFirst && i == 0: // [T,dirs,B,H] → [B,T,dirs,H]
				y = s.transpose(y, 2, 0, 1, 3)
			case batchFirst:
				y = s.swapAxes(y, 0, 1)
			}
			s.out(i, y)
		}
	}
}

func (s *site) recurrentAttrs(op string) ir.Attrs {
	attrs := ir.Attrs{"direction": s.choice("direction", "forward", "reverse", "bidirectional")}
	if a := s.strings("activations"); a != nil {
		attrs["activations"] = a
	}
	if a := s.floats("activation_alpha"); a != nil {
		attrs["alpha"] = a
	}
	if a := s.floats("activation_beta"); a != nil {
		attrs["beta"] = a
	}
	if s.hasAttr("clip") {
		attrs["clip"] = s.float("clip", 0)
	}
	switch op {
	case "GRU":
		attrs["linear_before_reset"] = s.bool("linear_before_reset", false)
	case "LSTM":
		attrs["input_forget"] = s.bool("input_forget", false)
	}
	return attrs
}
