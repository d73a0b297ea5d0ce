package openpilot

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Sight is how a driver-monitoring model sees the driver camera's picture: what WarpFrame makes of it.
type Sight struct {
	*generation.Face
	Rule          string // runtime.Loop.Rule
	Width, Height int
	Linear        bool
}

// DriverSight reads the type of a model's input with the driver's picture. Sampling is Options.Sampling. The error says what is wanted.
func DriverSight(t ir.Type, sampling string) (Sight, error) {
	var want []string
	for _, r := range generation.Faces() {
		f := r.Face
		s := Sight{Face: f, Rule: r.Name, Linear: cmp.Or(sampling, f.Sampling) == runtime.Linear}
		switch {
		case f.Planes > 0 && t.Rank() == 4 && t.Shape[0] == 1 && t.Shape[1] == f.Planes && t.DType.IsFloat():
			s.Width, s.Height = 2*t.Shape[3], 2*t.Shape[2]
			return s, nil
		case f.Planes > 0:
			want = append(want, fmt.Sprintf("floats [1,%d,height/2,width/2]", f.Planes))
		case t.Rank() == 2 && t.Shape[0] == 1 && t.DType == ir.Uint8:
			for s.Height*s.Height*f.Aspect[0] < t.Shape[1]*f.Aspect[1] {
				s.Height++
			}
			s.Width = s.Height * f.Aspect[0] / f.Aspect[1]
			if s.Width*s.Height != t.Shape[1] || s.Height == 0 {
				return Sight{}, fmt.Errorf("input %q is %v, want u8[1,width·height] of a picture with width : height = %d : %d",
					generation.DriverPicture, t, f.Aspect[0], f.Aspect[1])
			}
			return s, nil
		default:
			want = append(want, "u8[1,width·height]")
		}
	}
	return Sight{}, fmt.Errorf("input %q is %v, want %s", generation.DriverPicture, t, strings.Join(want, " or "))
}

// monitoring makes the step of a driver-monitoring model. It keeps nothing.
func (s *step) monitoring(p *part) error {
	in := p.input(generation.DriverPicture)
	s.by = map[*ir.Value]*ir.Value{}
	s.Loop.Kind = generation.Monitoring
	sight, err := DriverSight(in.Type, s.opt.Sampling)
	if err != nil {
		return p.missing("%v", err)
	}
	s.Loop.Rule = sight.Rule
	attrs := ir.Attrs{"linear": sight.Linear}
	if sight.Fill >= 0 {
		attrs["fill"] = sight.Fill
	}
	if sight.Phases != nil {
		attrs["phases"] = sight.Phases
	}
	name, x := "luma", s.frames(sight.Height, sight.Width, attrs, Frame)
	if sight.Grey > 0 {
		name, x = "picture", s.cast("planes", x, ir.Float32)
		x = s.add("Sub", "centred", nil, x, s.g.Constant("grey", ir.ScalarFloat(ir.Float32, sight.Grey)))
		x = s.add("Mul", "scaled", nil, x, s.g.Constant("scale", ir.ScalarFloat(ir.Float32, 1/sight.Grey)))
	}
	s.by[in] = s.like(name, x, in)
	for _, v := range p.graph.Inputs {
		if v != in {
			s.g.Inputs = append(s.g.Inputs, v)
		}
	}
	s.take(p)
	return s.err
}
