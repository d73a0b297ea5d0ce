package calibrate

import (
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// findings are what fits have found, by what it depends on most: a layer's weights on its format, a scale on what it is of.
// What they depend on less, the formats of earlier layers, is let go: a candidate that is made of findings needs no walk
// through the graph, and is measured as a program all the same.
type findings struct {
	layers map[layerKey]finding
	scales map[scaleKey]Range
}

type layerKey struct {
	name   string
	format precision.Layer
}

type scaleKey struct {
	group  *ir.Value
	format precision.Operand
}

// finding is one layer as it was fitted first.
type finding struct {
	layer passes.Layer // without Read
	fake  *ir.Tensor   // what its weights represent; nil if they are exact
	local float64      // relative L2 of its anchor
}

func newFindings() *findings {
	return &findings{map[layerKey]finding{}, map[scaleKey]Range{}}
}

// assemble makes a plan of findings; nil if one is missing. A layer that no fit has seen in 16 bits has no correction.
func (c *Calibration) assemble(a Assignment) *Fitted {
	st := c.store(a)
	f := newFitted(st.formats)
	for _, s := range c.walk.steps {
		if s.node.IsFamily(ir.FamilyView) {
			continue
		}
		for _, v := range s.node.Outputs {
			if o := st.narrow[st.group(v)]; o.Format != nil {
				r, ok := c.found.scales[scaleKey{st.group(v), o}]
				if !ok {
					return nil
				}
				f.Plan.Values[v.Name] = storage(o, r.Scale)
			}
		}
		if s.channels > 0 && !c.reuse(f, st, s) {
			return nil
		}
	}
	return f
}

// reuse adds one layer to a plan, and reports whether all of it was found.
func (c *Calibration) reuse(f *Fitted, st *stores, s *step) bool {
	name := s.node.Outputs[0].Name
	format := st.formats.of(name)
	was, ok := c.found.layers[layerKey{name, format}]
	switch {
	case format != precision.Half && !ok:
		return false
	case format == precision.Half:
		if was.layer.Bias != nil && st.formats.narrows() {
			f.Plan.Layers[name] = was.layer
		}
		f.Local[name] = was.local
		return true
	}
	layer := was.layer
	group := st.group(s.node.Inputs[s.site.X])
	o := st.narrow[group]
	if st.read[name] {
		o = format.Activations
	}
	if o.Format != nil {
		r, ok := c.found.scales[scaleKey{group, o}]
		if !ok {
			return false
		}
		if f.Ranges[name] = r; st.read[name] {
			layer.Read = storage(o, r.Scale)
		}
	}
	f.Plan.Layers[name], f.Local[name] = layer, was.local
	return true
}
