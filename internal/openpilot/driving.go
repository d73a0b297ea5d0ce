package openpilot

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Names of inputs and slices of openpilot's driving models.
const (
	features   = "features_buffer"
	hidden     = "hidden_state"
	curvatures = "prev_desired_curv"
	curvature  = "desired_curvature"
	warped     = "warped" // of models that keep the pictures themselves
	desires    = 8
)

// pictures are the names of inputs with pictures: those of the road camera, then those of the wide one.
var pictures = []string{"img", openCL, "big_img", "big_input_imgs", warped}

// openCL is a name that pictures have in models of up to 0.10.0.
const openCL = "input_imgs"

// desireNames are those of inputs with desires.
var desireNames = []string{"desire", "desire_pulse"}

// group is how many steps of 20 Hz a step of histories at 5 Hz has; spare is how many steps a model's history at the full rate has
// at least: those at 5 Hz have 25 for the same time.
const (
	group = 4
	spare = 50
)

// phases of the four planes of luma (openpilot's loadyuv): row and column.
var phases = []int{0, 0, 1, 0, 0, 1, 1, 1}

// What makes samples for these models needs the same facts.
const (
	OldRoadPicture = openCL
	Features       = features
	Hidden         = hidden
	Curvatures     = curvatures
	Desires        = desires
	Group          = group
	Spare          = spare
)

// RoadPictures and WidePictures are the names of inputs with pictures of the cameras.
func RoadPictures() []string { return pictures[:2] }
func WidePictures() []string { return pictures[2:4] }

// DesireInputs are the names of inputs with desires.
func DesireInputs() []string { return desireNames }

// driving makes the step of a driving model, or of a vision model and a policy.
func (s *step) driving(parts []*part) error {
	first, last := parts[0], parts[len(parts)-1]
	if !first.sees() || !last.has(features) && !last.remembers() {
		return first.missing("it is no driving model: want pictures (img and big_img, or input_imgs and big_input_imgs) and %s, or a vision model and a policy; or input_img of a driver-monitoring model", features)
	}
	every := 1
	if b := last.input(features); b == nil || b.Type.Rank() > 1 && b.Type.Shape[1] < spare {
		every = group
	}
	s.by = map[*ir.Value]*ir.Value{}
	s.Loop.Kind, s.Loop.Rule = runtime.Driving, rule(first, last, every)
	if err := s.see(first, every); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, p := range parts {
		for _, in := range p.graph.Inputs {
			switch {
			case s.by[in] != nil || in.Name == features || in.Name == curvatures:
			case slices.Contains(desireNames, in.Name):
				if err := s.desire(p, in); err != nil {
					return err
				}
			case names[in.Name]:
				return p.missing("both models take %q: only pictures, features and desires are known to be shared", in.Name)
			default:
				s.g.Inputs, names[in.Name] = append(s.g.Inputs, in), true
			}
		}
	}
	if s.err != nil {
		return s.err
	}
	s.skip()
	for i, p := range parts {
		if i == len(parts)-1 {
			if err := s.feedBack(p, first, every); err != nil {
				return err
			}
		}
		s.take(p)
		for _, v := range p.graph.Outputs {
			if v == p.output {
				continue
			}
			s.g.Outputs = append(s.g.Outputs, v)
			if in := p.input(strings.TrimPrefix(v.Name, "next_")); in != nil && !in.Type.Equal(v.Type) {
				return p.missing("output %q is %v, but %q, of which it is the new value, is %v", v.Name, v.Type, in.Name, in.Type)
			}
		}
	}
	return s.err
}

// remembers reports whether the model keeps its history itself.
func (p *part) remembers() bool {
	return slices.ContainsFunc(p.graph.Inputs, func(v *ir.Value) bool { return strings.HasPrefix(v.Name, "state_") })
}

// rule is how modeld of the models' time makes commands of outputs, and parses.
func rule(first, last *part, every int) string {
	names := map[string]bool{}
	for _, p := range []*part{first, last} {
		for _, sl := range p.slices {
			names[sl.Name] = true
		}
	}
	switch {
	case every == 1 || first == last && first.input(openCL) != nil: // vision and policy in one file, up to 0.9.8
		return runtime.RuleOld
	case names["action"] || last.has("action_t"):
		return runtime.RuleAction
	case names[curvature]:
		return runtime.RuleCurvature
	}
	return runtime.RulePlan
}

// see feeds pictures: those of now and of some steps ago, or now's alone to a model that keeps them itself.
func (s *step) see(p *part, every int) error {
	var shape []int
	var fed [][]*ir.Value // of the road camera, and of the wide one
	if in := p.input(warped); in != nil {
		if in.Type.DType != ir.Uint8 || in.Type.Rank() != 4 || in.Type.Shape[0] != 2 || in.Type.Shape[1] != 6 {
			return p.missing("input %q is %v, want u8[2,6,height/2,width/2]", in.Name, in.Type)
		}
		shape = in.Type.Shape[2:]
	} else {
		for camera := range 2 {
			var list []*ir.Value
			for _, name := range pictures[2*camera : 2*camera+2] {
				in := p.input(name)
				if in == nil {
					continue
				}
				t := in.Type
				if t.Rank() != 4 || t.Shape[0] != 1 || t.Shape[1] != 12 || shape != nil && !slices.Equal(shape, t.Shape[2:]) {
					return p.missing("input %q is %v, want [1,12,height/2,width/2], two pictures of six planes, of both cameras alike", in.Name, t)
				}
				shape, list = t.Shape[2:], append(list, in)
			}
			if len(list) != 1 {
				return p.missing("it has %d inputs for one of two cameras: want img and big_img, or input_imgs and big_input_imgs", len(list))
			}
			fed = append(fed, list)
		}
	}
	// Up to 0.10.3 modeld sampled with OpenCL, the four pixels around. The names of models until 0.10.0 tell; those of later ones are today's.
	linear := s.opt.Sampling == runtime.Linear || s.opt.Sampling == "" && p.input(openCL) != nil
	now := s.frames(2*shape[0], 2*shape[1], ir.Attrs{"phases": phases, "linear": linear}, Frame, WideFrame)
	if in := p.input(warped); in != nil {
		s.by[in] = now
		return s.err
	}
	var old *ir.Value
	if s.opt.Planes {
		old = s.g.AddInput(OldPlanes, now.Type)
		delayed(old, every)
	} else {
		old = s.keep(strings.TrimPrefix(OldPlanes, "state_"), now.Type, every, func(*ir.Value) *ir.Value { return now })
	}
	for camera, list := range fed {
		name := []string{"road", "wide"}[camera]
		one := func(x *ir.Value) *ir.Value {
			sizes := slices.Clone(x.Type.Shape)
			sizes[0] = 1
			return s.add("Slice", name, ir.Attrs{"starts": []int{camera, 0, 0, 0}, "sizes": sizes}, x)
		}
		s.by[list[0]] = s.like(name, s.concat(name, 1, one(old), one(now)), list[0])
	}
	return s.err
}

// desire feeds desires: of each group of steps the greatest, of the last group first, or those of every step; or those of now to a model
// that keeps them itself.
func (s *step) desire(p *part, in *ir.Value) error {
	t := in.Type
	if t.Numel()%desires != 0 || t.Numel() == 0 || t.Shape[t.Rank()-1] != desires {
		return p.missing("input %q is %v, want %d desires a row", in.Name, t, desires)
	}
	rows := t.Numel() / desires
	now := s.g.AddInput(Desire, ir.T(ir.Float32, desires))
	row := s.add("Reshape", "desire", ir.Attrs{"shape": []int{1, desires}}, now)
	var all *ir.Value
	switch {
	case rows == 1:
		all = row
	case rows >= spare:
		s.keep("desires", ir.T(ir.Float32, rows-1, desires), 1, func(old *ir.Value) *ir.Value {
			all = s.concat("desires", 0, old, row)
			return s.push("desires", old, row)
		})
	default:
		greatest := row
		s.keep("pulses", ir.T(ir.Float32, group-1, desires), 1, func(old *ir.Value) *ir.Value {
			for i := range group - 1 {
				one := s.add("Slice", "pulse", ir.Attrs{"starts": []int{i, 0}, "sizes": []int{1, desires}}, old)
				greatest = s.add("Max", "greatest", nil, greatest, one)
			}
			return s.push("pulses", old, row)
		})
		s.keep("desires", ir.T(ir.Float32, rows-1, desires), group, func(old *ir.Value) *ir.Value {
			all = s.concat("desires", 0, old, greatest)
			return s.push("desires", old, greatest)
		})
	}
	s.by[in] = s.like("desires", all, in)
	return s.err
}

// skip copies what a missed frame changes, before the models come: pictures, and in releases that moved them on first, desires.
func (s *step) skip() {
	s.Loop.Missed = runtime.MissedSkips
	if s.opt.Planes || !slices.ContainsFunc(s.g.Inputs, func(v *ir.Value) bool { return v.Name == OldPlanes }) {
		s.Loop.Missed = runtime.MissedRuns
		return
	}
	g := s.g.Clone()
	g.Name = "skip"
	if s.Loop.Rule == runtime.RuleOld || s.Loop.Rule == runtime.RuleCurvature {
		s.Loop.Missed = runtime.MissedMovesDesires
	} else {
		g.Outputs = slices.DeleteFunc(g.Outputs, func(v *ir.Value) bool { return v.Name != "next_"+OldPlanes })
	}
	g.RemoveDead()
	uses := g.Uses()
	g.Inputs = slices.DeleteFunc(g.Inputs, func(v *ir.Value) bool {
		return len(uses[v]) == 0 && !slices.ContainsFunc(g.Outputs, func(o *ir.Value) bool { return o.Name == "next_"+v.Name })
	})
	s.Skip = g
}

// feedBack feeds what earlier steps computed: features, up to those of now where another model computes them, and curvatures.
func (s *step) feedBack(p, vision *part, every int) error {
	if in := p.input(features); in != nil {
		from, size := vision.find(hidden)
		if t := in.Type; t.Rank() != 3 || t.Shape[0] != 1 || t.Shape[2] != size {
			if size == 0 {
				return vision.missing("it has no slice %q among its output_slices, which %s needs", hidden, features)
			}
			return p.missing("input %q is %v, want [1,steps,%d] as %s's %s", in.Name, t, size, vision.file(), hidden)
		}
		row := s.add("Reshape", "feature", ir.Attrs{"shape": []int{1, size}}, s.slice(vision, hidden, from, size))
		rows, fed := in.Type.Shape[1], (*ir.Value)(nil)
		if p != vision {
			rows--
		}
		old := s.keep("features", ir.T(ir.Float32, rows, size), every, func(old *ir.Value) *ir.Value {
			fed = s.concat("features", 0, old, row)
			return s.push("features", old, row)
		})
		if p == vision { // the newest features are what it computes
			fed = old
		}
		s.by[in] = s.like("features", fed, in)
	}
	if in := p.input(curvatures); in != nil {
		from, size := p.find(curvature)
		switch t := in.Type; {
		case size == 0:
			return p.missing("it has no slice %q among its output_slices, which %s needs", curvature, curvatures)
		case t.Rank() != 3 || t.Shape[0] != 1 || t.Shape[2] != 1:
			return p.missing("input %q is %v, want [1,steps,1]", in.Name, t)
		}
		row := s.add("Reshape", "curvature", ir.Attrs{"shape": []int{1, 1}}, s.slice(p, curvature, from, 1))
		old := s.keep("curvatures", ir.T(ir.Float32, every*(in.Type.Shape[1]-1)+1, 1), 1, func(old *ir.Value) *ir.Value {
			return s.push("curvatures", old, row)
		})
		s.by[in] = s.like("curvatures", s.rows("curvatures", old, 0, every), in)
	}
	return s.err
}

// find is where a slice of the output lies; 0 elements: there is none.
func (p *part) find(name string) (from, size int) {
	for _, sl := range p.slices {
		if sl.Name == name {
			return sl.Start, sl.End - sl.Start
		}
	}
	return 0, 0
}
