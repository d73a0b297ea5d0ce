package openpilot

import (
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// face is the input with the driver's picture.
const face = "input_img"

// Of driver-monitoring models: what lies outside the picture (black in limited range), and the shape of luma.
const (
	black       = 16
	lumaWide    = 3 // the picture's width to its height is as 3 to 2
	lumaHigh    = 2
	seatChannel = 6
)

// seatPhases of the planes that the model of 2021 takes: columns 1 and 2 twice, and no odd rows (dmonitoring.cc of that time).
var seatPhases = []int{0, 0, 0, 1, 0, 1, 0, 2}

// monitoring makes the step of a driver-monitoring model. It keeps nothing.
func (s *step) monitoring(p *part) error {
	in := p.input(face)
	s.by = map[*ir.Value]*ir.Value{}
	s.Loop.Kind = runtime.Monitoring
	t := in.Type
	linear := s.opt.Sampling == runtime.Linear
	switch {
	case t.Rank() == 2 && t.Shape[0] == 1 && t.DType == ir.Uint8:
		height := 0
		for height*height*lumaWide < t.Shape[1]*lumaHigh {
			height++
		}
		width := height * lumaWide / lumaHigh
		if width*height != t.Shape[1] || height == 0 {
			return p.missing("input %q is %v, want u8[1,width·height] of a picture with width : height = %d : %d", in.Name, t, lumaWide, lumaHigh)
		}
		s.Loop.Rule = runtime.RuleLuma
		s.by[in] = s.like("luma", s.frames(height, width, ir.Attrs{"linear": linear, "fill": black}, Frame), in)
	case t.Rank() == 4 && t.Shape[0] == 1 && t.Shape[1] == seatChannel && t.DType.IsFloat():
		s.Loop.Rule = runtime.RuleSeat
		linear = s.opt.Sampling != runtime.Nearest
		planes := s.frames(2*t.Shape[2], 2*t.Shape[3], ir.Attrs{"linear": linear, "phases": seatPhases}, Frame)
		x := s.cast("planes", planes, ir.Float32)
		x = s.add("Sub", "centred", nil, x, s.g.Constant("grey", ir.ScalarFloat(ir.Float32, 128)))
		x = s.add("Mul", "scaled", nil, x, s.g.Constant("scale", ir.ScalarFloat(ir.Float32, 1./128)))
		s.by[in] = s.like("picture", x, in)
	default:
		return p.missing("input %q is %v, want u8[1,width·height] or floats [1,6,height/2,width/2]", in.Name, t)
	}
	for _, v := range p.graph.Inputs {
		if v != in {
			s.g.Inputs = append(s.g.Inputs, v)
		}
	}
	s.take(p)
	return s.err
}
