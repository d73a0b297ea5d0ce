package openpilot

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// driving makes the step of a driving model, or of a vision model and a policy.
func (s *step) driving(parts []*part) error {
	first, last := parts[0], parts[len(parts)-1]
	if !first.sees() || !last.has(generation.Features) && !last.remembers() {
		return first.missing("it is no driving model: want pictures (%s) and %s, or a vision model and a policy; or %s of a driver-monitoring model",
			pictureNames(), generation.Features, generation.DriverPicture)
	}
	every := 1
	if b := last.input(generation.Features); b == nil {
		every = generation.Group
	} else if b.Type.Rank() > 1 {
		every = generation.Every(b.Type.Shape[1])
	}
	s.by = map[*ir.Value]*ir.Value{}
	s.row = row(first, last, every)
	s.Loop.Kind, s.Loop.Rule = s.row.Kind, s.row.Name
	if err := s.see(first, every); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, p := range parts {
		for _, in := range p.graph.Inputs {
			switch {
			case s.by[in] != nil || in.Name == generation.Features || in.Name == generation.PrevCurvatures:
			case slices.Contains(generation.DesireInputs(), in.Name):
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

// row is the generation of the models.
func row(first, last *part, every int) *generation.Row {
	m := generation.Model{OneFile: first == last, FullRate: every == 1}
	for _, p := range []*part{first, last} {
		m.Inputs = append(m.Inputs, p.inputs()...)
		for _, sl := range p.slices {
			m.Slices = append(m.Slices, sl.Name)
		}
	}
	return generation.Of(m)
}

// see feeds pictures: those of now and of some steps ago, or now's alone to a model that keeps them itself.
func (s *step) see(p *part, every int) error {
	var shape []int
	var fed [][]*ir.Value // of the road camera, and of the wide one
	shared := p.shared()
	if in := shared; in != nil {
		if in.Type.DType != ir.Uint8 || in.Type.Rank() != 4 || in.Type.Shape[0] != 2 || in.Type.Shape[1] != 6 {
			return p.missing("input %q is %v, want u8[2,6,height/2,width/2]", in.Name, in.Type)
		}
		shape = in.Type.Shape[2:]
	} else {
		for _, names := range [][]string{generation.RoadInputs(), generation.WideInputs()} {
			var list []*ir.Value
			for _, name := range names {
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
				return p.missing("it has %d inputs for one of two cameras: want %s", len(list), pictureNames())
			}
			fed = append(fed, list)
		}
	}
	// Models of 0.10.3, which sampled with OpenCL, have the input names of later ones, whose sampling they get.
	seen := shared
	if seen == nil {
		seen = fed[0][0]
	}
	linear := cmp.Or(s.opt.Sampling, generation.Sampling(seen.Name)) == runtime.Linear
	now := s.frames(2*shape[0], 2*shape[1], ir.Attrs{"phases": generation.Phases(), "linear": linear}, Frame, WideFrame)
	if in := shared; in != nil {
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

// shared is the input with the pictures of both cameras, of a model that keeps earlier ones itself; nil: it has none.
func (p *part) shared() *ir.Value {
	for _, name := range generation.SharedInputs() {
		if in := p.input(name); in != nil {
			return in
		}
	}
	return nil
}

// pictureNames are those of inputs with pictures: of both cameras, or of both cameras in other releases.
func pictureNames() string {
	var pairs []string
	road, wide := generation.RoadInputs(), generation.WideInputs()
	for i := range road {
		pairs = append(pairs, road[i]+" and "+wide[i])
	}
	return strings.Join(pairs, ", or ")
}

// desire feeds desires: of each group of steps the greatest, of the last group first, or those of every step; or those of now to a model
// that keeps them itself.
func (s *step) desire(p *part, in *ir.Value) error {
	t := in.Type
	if t.Numel()%generation.Desires != 0 || t.Numel() == 0 || t.Shape[t.Rank()-1] != generation.Desires {
		return p.missing("input %q is %v, want %d desires a row", in.Name, t, generation.Desires)
	}
	rows := t.Numel() / generation.Desires
	now := s.g.AddInput(Desire, ir.T(ir.Float32, generation.Desires))
	row := s.add("Reshape", "desire", ir.Attrs{"shape": []int{1, generation.Desires}}, now)
	var all *ir.Value
	switch {
	case rows == 1:
		all = row
	case generation.Every(rows) == 1:
		s.keep("desires", ir.T(ir.Float32, rows-1, generation.Desires), 1, func(old *ir.Value) *ir.Value {
			all = s.concat("desires", 0, old, row)
			return s.push("desires", old, row)
		})
	default:
		greatest := row
		s.keep("pulses", ir.T(ir.Float32, generation.Group-1, generation.Desires), 1, func(old *ir.Value) *ir.Value {
			for i := range generation.Group - 1 {
				one := s.add("Slice", "pulse", ir.Attrs{"starts": []int{i, 0}, "sizes": []int{1, generation.Desires}}, old)
				greatest = s.add("Max", "greatest", nil, greatest, one)
			}
			return s.push("pulses", old, row)
		})
		s.keep("desires", ir.T(ir.Float32, rows-1, generation.Desires), generation.Group, func(old *ir.Value) *ir.Value {
			all = s.concat("desires", 0, old, greatest)
			return s.push("desires", old, greatest)
		})
	}
	s.by[in] = s.like("desires", all, in)
	return s.err
}

// skip copies what a missed frame changes, before the models come: pictures, and in releases that moved them on first, desires.
func (s *step) skip() {
	s.Loop.Missed = s.row.Missed
	if s.opt.Planes || !slices.ContainsFunc(s.g.Inputs, func(v *ir.Value) bool { return v.Name == OldPlanes }) {
		s.Loop.Missed = generation.MissedRuns
		return
	}
	g := s.g.Clone()
	g.Name = "skip"
	if s.row.Missed != generation.MissedMovesDesires {
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
	if in := p.input(generation.Features); in != nil {
		from, size := vision.find(generation.HiddenState)
		if t := in.Type; t.Rank() != 3 || t.Shape[0] != 1 || t.Shape[2] != size {
			if size == 0 {
				return vision.missing("it has no slice %q among its output_slices, which %s needs", generation.HiddenState, generation.Features)
			}
			return p.missing("input %q is %v, want [1,steps,%d] as %s's %s", in.Name, t, size, vision.file(), generation.HiddenState)
		}
		row := s.add("Reshape", "feature", ir.Attrs{"shape": []int{1, size}}, s.slice(vision, generation.HiddenState, from, size))
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
	if in := p.input(generation.PrevCurvatures); in != nil {
		from, size := p.find(generation.Curvature)
		switch t := in.Type; {
		case size == 0:
			return p.missing("it has no slice %q among its output_slices, which %s needs", generation.Curvature, generation.PrevCurvatures)
		case t.Rank() != 3 || t.Shape[0] != 1 || t.Shape[2] != 1:
			return p.missing("input %q is %v, want [1,steps,1]", in.Name, t)
		}
		row := s.add("Reshape", "curvature", ir.Attrs{"shape": []int{1, 1}}, s.slice(p, generation.Curvature, from, 1))
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
