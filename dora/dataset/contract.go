package dataset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// contract is what a model takes, as its inputs' names and shapes say.
type contract struct {
	inputs []Input
	look   camera.Look
	rule   string           // how a driver-monitoring model sees the driver (runtime.Loop.Rule); "": it is a driving model
	sees   bool             // it takes pictures
	step   int              // frames between the two pictures that it sees
	old    bool             // histories are of every frame
	row    *generation.Row  // of a driving model
	face   *generation.Face // of a driver-monitoring model
	dense  bool             // every frame's picture is needed
	rows   int              // of features; 0: none
	now    bool             // the last of them is the current frame's
	width  int              // of a feature
}

// contractOf reads a model's inputs, and those of the vision model that makes its features.
func contractOf(opt Options) (*contract, error) {
	if watchesDriver(opt.Inputs) {
		return driverContract(opt.Inputs)
	}
	c := &contract{inputs: opt.Inputs, step: every}
	known := slices.Concat(generation.RoadInputs(), generation.WideInputs(), generation.DesireInputs(), generation.VectorInputs(), []string{generation.PrevCurvatures})
	var unknown []string
	for _, in := range opt.Inputs {
		if err := fits(in); err != nil {
			return nil, err
		}
		switch shape := in.Type.Shape; {
		case in.Name == generation.Features:
			c.rows, c.width, c.old = shape[1], shape[2], generation.Every(shape[1]) == 1
		case slices.Contains(known, in.Name):
		default:
			unknown = append(unknown, in.Name)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("routes do not make the model's inputs %s: driving models take pictures, desires, conventions, features, those of driver monitoring input_img and calib; give .npz files with the arrays instead", strings.Join(unknown, ", "))
	}
	if c.old {
		c.step = 1
	}
	if err := c.pictures(opt.Inputs); err != nil {
		return nil, err
	}
	m := generation.Model{OneFile: c.rows > 0 && c.sees, FullRate: c.old}
	for _, in := range opt.Inputs {
		m.Inputs = append(m.Inputs, in.Name)
	}
	c.row = generation.Of(m)
	if c.rows == 0 {
		return c, nil
	}
	c.now = !c.sees // a model that sees appends the current features itself
	c.dense = c.old
	if opt.Features == nil {
		return nil, fmt.Errorf("the model reads %s, which logs do not have: name the vision model that makes them (--vision)", generation.Features)
	}
	if err := c.pictures(opt.Vision); err != nil {
		return nil, fmt.Errorf("vision model: %w", err)
	}
	if !c.sees {
		return nil, fmt.Errorf("vision model: it takes no pictures (%s and %s)", strings.Join(generation.RoadInputs(), ", "), strings.Join(generation.WideInputs(), ", "))
	}
	for _, in := range opt.Vision {
		if !in.Shows() {
			return nil, fmt.Errorf("vision model: it takes %q besides pictures", in.Name)
		}
	}
	return c, nil
}

// fits reports an input that is called as one of openpilot's and has another shape or type.
func fits(in Input) error {
	shape, n, want := in.Type.Shape, in.Type.Numel(), ""
	vector, told := generation.Told(in.Name)
	switch {
	case told:
		if n != len(vector.Terms) {
			want = fmt.Sprintf("%d numbers", len(vector.Terms))
		}
	case slices.Contains(generation.DesireInputs(), in.Name):
		if n == 0 || n%generation.Desires != 0 || shape[len(shape)-1] != generation.Desires {
			want = fmt.Sprintf("rows of %d desires", generation.Desires)
		}
	case in.Name == generation.PrevCurvatures:
		if n == 0 {
			want = "a number for each row"
		}
	case in.Name == generation.Features:
		if len(shape) != 3 || shape[0] != 1 || n == 0 {
			want = "[1,rows,features]"
		}
	default:
		return nil
	}
	if want == "" && in.Type.DType.IsFloat() {
		return nil
	}
	return fmt.Errorf("input %q is %v, want %s, of floats: its name is openpilot's, so routes make what openpilot shows it; give .npz files with the arrays instead", in.Name, in.Type, cmp.Or(want, "its numbers"))
}

// pictures takes the look from the inputs with pictures, if there are any.
func (c *contract) pictures(inputs []Input) error {
	for _, in := range inputs {
		if !in.Shows() {
			continue
		}
		t := in.Type
		if t.Rank() != 4 || t.Shape[0] != 1 || t.Shape[1] != 12 || t.Numel() == 0 || t.DType != ir.Uint8 && !t.DType.IsFloat() {
			return fmt.Errorf("input %q is %v, want [1,12,height/2,width/2] of bytes or floats: two pictures of six planes", in.Name, t)
		}
		l := camera.Driving(2*t.Shape[3], 2*t.Shape[2], slices.ContainsFunc(inputs, func(in Input) bool { return generation.Sampling(in.Name) == runtime.Linear }))
		if c.sees && (l.Width != c.look.Width || l.Height != c.look.Height || l.Linear != c.look.Linear) {
			return fmt.Errorf("input %q is %v, others show %d × %d pixels: want pictures of one size", in.Name, t, c.look.Width, c.look.Height)
		}
		c.look, c.sees = l, true
	}
	return nil
}

// dense elements of a type.
func elements(t ir.Type, x []float64) []byte { return ir.FromFloats(t, x).Dense() }

// bytesOf are pictures' levels in a type: bytes, or numbers from 0 to 255.
func bytesOf(t ir.Type, levels []byte) []byte {
	if t.DType == ir.Uint8 {
		return levels
	}
	x := make([]float64, len(levels))
	for i, b := range levels {
		x[i] = float64(b)
	}
	return elements(t, x)
}

// points are the times of a plan.
const points = modeld.Points
