package calibrate

import (
	"cmp"
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// findings are what was found by going through the graph.
type findings struct {
	fits  []*found             // in the order in which they were made or taken
	saved []*found             // of a file; a search takes one where it would make one
	alone map[layerKey]float64 // errors of the outputs
}

type layerKey struct {
	name   string
	format precision.Layer
}

// found is what one fit has found. A layer's weights make up for the errors of those in front of it, so that they are right
// in one assignment, and nearly so in those that differ in few layers. Such a candidate of a search is made of findings
// without a walk through the graph, and measured as a program all the same.
type found struct {
	formats Assignment
	layers  map[string]finding // by site
	scales  map[scaleKey]Range
}

type scaleKey struct {
	group  *ir.Value
	format precision.Operand
}

// finding is one layer of a fit.
type finding struct {
	layer passes.Layer // without Read
	local float64      // relative L2 of its anchor
}

func newFound(a Assignment) *found { return &found{a, map[string]finding{}, map[scaleKey]Range{}} }

// differs counts the layers that have another format.
func (f *found) differs(a Assignment) (count int) {
	for name := range a {
		if a.of(name) != f.formats.of(name) {
			count++
		}
	}
	return count
}

// nearPart is the fraction of the layers in which a fit's assignment may differ from one that is made of its findings.
// Weights of vision in fp8, fitted with all layers down, cost more than the layers that they are in when 29 of 35 steps up
// had been taken: cosine 0.9986, and 0.99993 fitted for those.
const nearPart = 8

// assemble makes a plan of findings: of the nearest fit, completed by others. It is nil if no fit is near, or none has
// found what is needed. A layer that no fit has seen in 16 bits has no correction.
func (c *Calibration) assemble(a Assignment) *Fitted {
	st := c.store(a)
	f := newFitted(st.formats)
	if !st.formats.narrows() {
		return f
	}
	fits := nearestFits(c.found.fits, st.formats)
	if len(fits) == 0 {
		return nil
	}
	for _, s := range c.walk.steps {
		if s.node.IsFamily(ir.FamilyView) {
			continue
		}
		for _, v := range s.node.Outputs {
			if o := st.narrow[st.group(v)]; o.Format != nil {
				r, ok := scaleOf(fits, scaleKey{st.group(v), o})
				if !ok {
					return nil
				}
				f.Plan.Values[v.Name] = storage(o, r.Scale)
			}
		}
		if s.channels > 0 && !reuse(f, st, s, fits) {
			return nil
		}
	}
	return f
}

// nearestFits sorts fits by how many layers differ from an assignment; none if all are far from it.
func nearestFits(fits []*found, a Assignment) []*found {
	fits = slices.SortedStableFunc(slices.Values(fits), func(x, y *found) int { return cmp.Compare(x.differs(a), y.differs(a)) })
	if len(fits) > 0 && fits[0].differs(a) > max(1, len(a)/nearPart) {
		return nil
	}
	return fits
}

// made takes a fit for an assignment, or near it, from a file, or makes one. It reports whether the plan is of a fit for
// just this assignment.
func (c *Calibration) made(ctx context.Context, a Assignment, tech Technique) (f *Fitted, exact bool, err error) {
	formats := c.store(a).formats
	if near := nearestFits(c.found.saved, formats); len(near) > 0 {
		c.found.fits = append(c.found.fits, near[0])
		if f := c.assemble(a); f != nil {
			return f, near[0].differs(formats) == 0, nil
		}
	}
	f, err = c.fit(ctx, a, tech)
	return f, true, err
}

// scaleOf is the scale that the first of some fits has found which has one.
func scaleOf(fits []*found, k scaleKey) (r Range, ok bool) {
	for _, f := range fits {
		if r, ok = f.scales[k]; ok {
			return r, true
		}
	}
	return r, false
}

// reuse adds one layer to a plan, and reports whether all of it was found.
func reuse(f *Fitted, st *stores, s *step, fits []*found) bool {
	name := s.node.Outputs[0].Name
	format := st.formats.of(name)
	at := slices.IndexFunc(fits, func(f *found) bool { return f.formats.of(name) == format })
	if at < 0 && format != precision.Half {
		return false
	}
	var was finding
	if at >= 0 {
		was = fits[at].layers[name]
	}
	layer := was.layer
	f.Local[name] = was.local
	if format == precision.Half {
		if layer.Bias != nil {
			f.Plan.Layers[name] = layer
		}
		return true
	}
	group := st.group(s.node.Inputs[s.site.X])
	o := st.narrow[group]
	if st.read[name] {
		o = format.Activations
	}
	if o.Format != nil {
		r, ok := scaleOf(fits, scaleKey{group, o})
		if !ok {
			return false
		}
		if f.Ranges[name] = r; st.read[name] {
			layer.Read = storage(o, r.Scale)
		}
	}
	f.Plan.Layers[name] = layer
	return true
}
