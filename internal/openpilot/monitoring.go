package openpilot

import (
	"fmt"

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

// What makes samples for these models needs the same facts. The model of 2021 is shown (level - Grey) / Grey.
const (
	DriverPicture = face
	Grey          = 128
)

// Sight is how a driver-monitoring model sees the driver camera's picture: the rule of its loop, and what WarpFrame makes of the picture.
type Sight struct {
	Rule          string
	Width, Height int
	Phases        []int // none: luma alone
	Linear        bool
	Fill          int // -1: the edge goes on
}

// DriverSight reads the type of a model's input DriverPicture. Sampling is Options.Sampling. The error says what is wanted.
func DriverSight(t ir.Type, sampling string) (Sight, error) {
	switch {
	case t.Rank() == 2 && t.Shape[0] == 1 && t.DType == ir.Uint8:
		height := 0
		for height*height*lumaWide < t.Shape[1]*lumaHigh {
			height++
		}
		width := height * lumaWide / lumaHigh
		if width*height != t.Shape[1] || height == 0 {
			return Sight{}, fmt.Errorf("input %q is %v, want u8[1,width·height] of a picture with width : height = %d : %d", face, t, lumaWide, lumaHigh)
		}
		return Sight{runtime.RuleLuma, width, height, nil, sampling == runtime.Linear, black}, nil
	case t.Rank() == 4 && t.Shape[0] == 1 && t.Shape[1] == seatChannel && t.DType.IsFloat():
		return Sight{runtime.RuleSeat, 2 * t.Shape[3], 2 * t.Shape[2], seatPhases, sampling != runtime.Nearest, -1}, nil
	}
	return Sight{}, fmt.Errorf("input %q is %v, want u8[1,width·height] or floats [1,6,height/2,width/2]", face, t)
}

// monitoring makes the step of a driver-monitoring model. It keeps nothing.
func (s *step) monitoring(p *part) error {
	in := p.input(face)
	s.by = map[*ir.Value]*ir.Value{}
	s.Loop.Kind = runtime.Monitoring
	sight, err := DriverSight(in.Type, s.opt.Sampling)
	if err != nil {
		return p.missing("%v", err)
	}
	s.Loop.Rule = sight.Rule
	attrs := ir.Attrs{"linear": sight.Linear}
	if sight.Rule == runtime.RuleLuma {
		attrs["fill"] = sight.Fill
		s.by[in] = s.like("luma", s.frames(sight.Height, sight.Width, attrs, Frame), in)
	} else {
		attrs["phases"] = sight.Phases
		x := s.cast("planes", s.frames(sight.Height, sight.Width, attrs, Frame), ir.Float32)
		x = s.add("Sub", "centred", nil, x, s.g.Constant("grey", ir.ScalarFloat(ir.Float32, Grey)))
		x = s.add("Mul", "scaled", nil, x, s.g.Constant("scale", ir.ScalarFloat(ir.Float32, 1./Grey)))
		s.by[in] = s.like("picture", x, in)
	}
	for _, v := range p.graph.Inputs {
		if v != in {
			s.g.Inputs = append(s.g.Inputs, v)
		}
	}
	s.take(p)
	return s.err
}
