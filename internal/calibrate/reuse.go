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
	fits  []*found               // in the order in which they were made or taken
	saved []*found               // of a file; a search takes one where it would make one
	alone map[layerKey]float64   // errors of the outputs
	means map[string][][]float32 // of the exact anchors' channels, by step and input that is fitted to
}

type layerKey struct {
	name   string
	format precision.Layer
}

// found is what one fit has found. The search assembles candidates from findings without walking the graph again,
// and measures each as a program. Weights and means compensate for errors of the preceding layers as they were in
// the fit. Quantised layers do little harm where those errors are gone: 1 − cosine of candidates is 0.6 to 2.4
// times that of a fit of their own (2026-11-22). Means of layers that went back to 16 bits are left out: they made
// it 10 times as large in driver monitoring in nvfp4.
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

func newFound(a Assignment) *found {
	return &found{formats: a, layers: map[string]finding{}, scales: map[scaleKey]Range{}}
}

// differs counts the layers that have another format.
func (f *found) differs(a Assignment) (count int) {
	for name := range a {
		if a.of(name) != f.formats.of(name) {
			count++
		}
	}
	return count
}

// assemble makes a plan of findings: of the nearest fit, completed by others. It is nil if none has found what is needed.
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

// nearestFits sorts fits by how many layers differ from an assignment, and the last of those that are as near first.
func nearestFits(fits []*found, a Assignment) []*found {
	fits = slices.Clone(fits)
	slices.Reverse(fits)
	return slices.SortedStableFunc(slices.Values(fits), func(x, y *found) int { return cmp.Compare(x.differs(a), y.differs(a)) })
}

// has reports whether a layer's weights are found in a format.
func (f *found) has(site string, format precision.Layer) bool {
	was := f.formats.of(site)
	return was == format || was.Weights == format.Weights && !format.Activations.Narrow()
}

// seen is the part of ladders of which assignments can be assembled.
func (c *Calibration) seen(sites []passes.Site, ladders [][]precision.Layer) [][]precision.Layer {
	out := make([][]precision.Layer, len(ladders))
	for i, l := range ladders {
		for _, f := range l {
			if f == precision.Half || slices.ContainsFunc(c.found.fits, func(g *found) bool { return g.has(sites[i].Name(), f) }) {
				out[i] = append(out[i], f)
			}
		}
	}
	return out
}

// made takes the fit of an assignment from a file, or makes one.
func (c *Calibration) made(ctx context.Context, a Assignment, tech Technique) (*Fitted, error) {
	formats := c.store(a).formats
	if f := nearestFits(c.found.saved, formats); len(f) > 0 && f[0].differs(formats) == 0 {
		c.found.fits = append(c.found.fits, f[0])
		if f := c.assemble(a); f != nil {
			return f, nil
		}
	}
	return c.fit(ctx, a, tech)
}

// farther bounds the squared errors alone of a fit of a file that stands for another one: relative to the other's.
const farther = 20

// begin finds a first fit for the assignments on a path from some demotions on: that of just these, or those of a file that have errors
// not much greater, or a new one.
func (c *Calibration) begin(ctx context.Context, p *path, at int, tech Technique) error {
	formats := c.store(p.after(at)).formats
	if !slices.ContainsFunc(c.found.saved, func(f *found) bool { return f.differs(formats) == 0 }) {
		for _, f := range c.found.saved {
			if p.errorOf(f.formats) <= farther*p.error(at) {
				c.found.fits = append(c.found.fits, f)
			}
		}
		if len(c.found.fits) > 0 {
			return nil
		}
	}
	_, err := c.made(ctx, p.after(at), tech)
	return err
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
	if format == precision.Half && fits[0].differs(st.formats) > 0 { // its means would make up for errors of another assignment
		return true
	}
	at := slices.IndexFunc(fits, func(f *found) bool { return f.has(name, format) })
	if at < 0 {
		return false
	}
	was := fits[at].layers[name]
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
