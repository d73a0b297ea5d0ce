package calibrate

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// check is an error if findings of a file cannot be those of a calibration, whatever the file's digest says: a list of
// another length, a name that the graph lacks, a number that no fit makes. Its text names the region.
func (c *Calibration) check(s *Saved) error {
	n := c.named(s.Precision)
	if len(s.Fits) == 0 {
		return fmt.Errorf("it holds no fit")
	}
	for _, f := range s.Fits {
		if err := c.checkFit(n, f); err != nil {
			return err
		}
	}
	alone := map[savedAlone]bool{}
	for _, x := range s.Alone {
		key := savedAlone{Site: x.Site, Format: x.Format}
		switch site, f := n.sites[x.Site], n.formats[x.Format]; {
		case site == nil:
			return fmt.Errorf("error of layer %.100q alone: no layer has that name", x.Site)
		case alone[key]:
			return fmt.Errorf("layer %s: its error in %s alone is there twice", x.Site, x.Format)
		case f.Name == "" || f == precision.Half || !storable(site, f):
			return fmt.Errorf("layer %s: error alone in format %.100q, which is none of its formats", x.Site, x.Format)
		case !(x.Error >= 0):
			return fmt.Errorf("layer %s: its error in %s alone is %v, want 0 or more", x.Site, x.Format, x.Error)
		}
		alone[key] = true
	}
	return c.checkMeans(n, s.Means)
}

// storable reports whether a layer's weights and activations can be stored in a format, however slow that is.
func storable(s *passes.Site, f precision.Layer) bool {
	if !s.Segmented() {
		return true
	}
	// It reads weights as they lie in memory, where elements may have gaps.
	return !f.Activations.Narrow() && !f.Weights.HiLo && f.Weights.Bits() == ir.DTypeOf(f.Weights.Format).Bits()
}

// checkMeans holds the means of exact anchors against what fits find: those of every anchor, once.
func (c *Calibration) checkMeans(n *names, means []savedMeans) error {
	inputs, found := len(c.fitted(make([]*ir.Tensor, c.walk.inputs))), map[string]bool{}
	for _, m := range means {
		st := n.anchors[m.Region]
		switch {
		case st == nil:
			return fmt.Errorf("means of region %.100q: no region of that name has channels", m.Region)
		case found[m.Region]:
			return fmt.Errorf("region %s: its means are there twice", m.Region)
		case len(m.Inputs) != inputs:
			return fmt.Errorf("region %s: means of %d inputs, want %d", m.Region, len(m.Inputs), inputs)
		}
		found[m.Region] = true
		for at, x := range m.Inputs {
			if want := 4 * st.corrected(); len(x) != want {
				return fmt.Errorf("region %s, input %d: means of %d bytes, want %d", m.Region, at+1, len(x), want)
			}
			for k, v := range runtime.View[float32](x) {
				if !storedFloat(float64(v)) {
					return fmt.Errorf("region %s, input %d: the mean of channel %d is %v", m.Region, at+1, k, v)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.anchors)) {
		if !found[name] {
			return fmt.Errorf("region %s: its means are missing", name)
		}
	}
	return nil
}

// corrected is the number of means of an anchor's output, members included.
func (s *step) corrected() int {
	members, channels, _ := layout(s.head.Outputs[0].Type, s.axis, s.node.Region.Members > 0)
	return members * channels
}

// storedFloat reports whether x is a finite number of f32, as all that fits find.
func storedFloat(x float64) bool { return !math.IsInf(x, 0) && float64(float32(x)) == x }

func (c *Calibration) checkFit(n *names, s savedFit) error {
	a, biased := Assignment{}, 0
	for _, l := range s.Layers {
		st, f := n.anchors[l.Site], n.formats[l.Format]
		_, twice := a[l.Site]
		switch {
		case st == nil:
			return fmt.Errorf("layer %.100q: no region of that name has channels", l.Site)
		case twice:
			return fmt.Errorf("layer %s is there twice in one fit", l.Site)
		case f.Name == "":
			return fmt.Errorf("layer %s: format %.100q is none of the precision's", l.Site, l.Format)
		}
		if err := l.check(st, f); err != nil {
			return fmt.Errorf("layer %s: %w", l.Site, err)
		}
		if a[l.Site] = f; l.Bias != nil {
			biased++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.anchors)) {
		if _, ok := a[name]; !ok {
			return fmt.Errorf("layer %s: it is missing in a fit", name)
		}
	}
	if biased != 0 && biased != len(s.Layers) {
		return fmt.Errorf("corrections of means: %d of the %s of a fit have some", biased, console.Count(len(s.Layers), "layer"))
	}
	return c.checkScales(n, a, s.Scales)
}

// check holds a layer against the step that it is of, and its format.
func (l *savedLayer) check(st *step, f precision.Layer) error {
	switch {
	case !(l.Local >= 0):
		return fmt.Errorf("its error is %v, want 0 or more", l.Local)
	case l.Bias != nil && len(l.Bias) != st.corrected():
		return fmt.Errorf("%d corrections of means, want %d", len(l.Bias), st.corrected())
	}
	for k, x := range l.Bias {
		if !storedFloat(x) {
			return fmt.Errorf("the correction of channel %d is %v, which is no f32", k, x)
		}
	}
	if f == precision.Half {
		if l.Codes != nil || l.Blocks != nil || l.Scales != nil {
			return fmt.Errorf("weights in %s have neither codes nor scales", f.Name)
		}
		return nil
	}
	if st.site == nil || !storable(st.site, f) {
		return fmt.Errorf("it cannot have format %s", f.Name)
	}
	if want := st.site.Members * st.site.N; len(l.Scales) != want {
		return fmt.Errorf("%d scales, want %d", len(l.Scales), want)
	}
	for k, x := range l.Scales {
		if !(x > 0) || !storedFloat(x) {
			return fmt.Errorf("the scale of channel %d is %v, want a positive f32", k, x)
		}
	}
	if f.Weights.Blocks != (l.Blocks != nil) {
		return fmt.Errorf("%d bytes of blocks' scales in format %s", len(l.Blocks), f.Name)
	}
	codes, blocks, err := l.tensors(st.site, f)
	if err != nil {
		return err
	}
	for what, t := range map[string]*ir.Tensor{"code of weight": codes, "scale of block": blocks} {
		if t == nil {
			continue
		}
		for k, x := range t.Floats() {
			if math.IsNaN(x) || math.IsInf(x, 0) || t == blocks && x < 0 {
				return fmt.Errorf("the %s %d is %v", what, k, x)
			}
		}
	}
	return nil
}

// tensors are the weights that a layer of a file has in a format, and the scales of their blocks, if it has any.
func (l *savedLayer) tensors(site *passes.Site, f precision.Layer) (codes, blocks *ir.Tensor, err error) {
	shape := slices.Clone(site.Weights().Type.Shape)
	if codes, err = ir.NewTensor(ir.Type{DType: codeType(f.Weights), Shape: shape}, l.Codes); err != nil {
		return nil, nil, fmt.Errorf("codes of weights: %w", err)
	}
	if l.Blocks == nil {
		return codes, nil, nil
	}
	if blocks, err = ir.NewTensor(ir.Type{DType: ir.BlockScale, Shape: site.BlockShape()}, l.Blocks); err != nil {
		return nil, nil, fmt.Errorf("scales of blocks: %w", err)
	}
	return codes, blocks, nil
}

// checkScales holds the scales of a fit's activations against what the assignment stores. A fit may know others too, of
// earlier fits.
func (c *Calibration) checkScales(n *names, a Assignment, list []savedScale) error {
	found := map[scaleKey]bool{}
	for _, x := range list {
		k := n.key(x)
		_, octave := math.Frexp(x.Scale)
		switch {
		case k.group == nil || c.storage.Group(k.group) != k.group || k.group.IsConst():
			return fmt.Errorf("scale of value %.100q: no value of that name is stored", x.Value)
		case k.format.Format == nil:
			return fmt.Errorf("scale of %s: format %.100q is none of the precision's activations", x.Value, x.Format)
		case found[k]:
			return fmt.Errorf("scale of %s: it is there twice", x.Value)
		case !(x.Scale > 0) || !storedFloat(x.Scale):
			return fmt.Errorf("scale of %s: it is %v, want a positive f32", x.Value, x.Scale)
		case x.Twice && x.Scale != math.Ldexp(.5, octave):
			return fmt.Errorf("scale of %s: it is %v, want a power of two", x.Value, x.Scale)
		case !(x.Error >= 0) || !(x.Max >= 0) || !storedFloat(x.Max) || !(x.Headroom >= 0):
			return fmt.Errorf("scale of %s: error %v, max %v and headroom %v, want 0 or more",
				x.Value, x.Error, x.Max, x.Headroom)
		}
		found[k] = true
	}
	for _, k := range c.store(a).keys(c.walk) {
		if !found[k] {
			return fmt.Errorf("scale of %s in %s: it is missing", k.group.Name, k.format.Name)
		}
	}
	return nil
}

// keys are the scales that a fit finds.
func (st *stores) keys(w *walk) (out []scaleKey) {
	for _, s := range w.steps {
		if s.node.IsFamily(ir.FamilyView) {
			continue
		}
		if s.channels > 0 && s.site != nil && st.read[s.site.Name()] {
			out = append(out, scaleKey{st.group(s.node.Inputs[s.site.X]), st.formats.of(s.site.Name()).Activations})
		}
		for _, v := range s.node.Outputs {
			if o := st.narrow[st.group(v)]; o.Format != nil {
				out = append(out, scaleKey{st.group(v), o})
			}
		}
	}
	return out
}

// CheckReference is an error if what a file of findings says of the outputs of a graph cannot be of that graph.
func (s *Saved) CheckReference(outputs []*ir.Value) error {
	r := s.Reference
	if r == nil {
		return nil
	}
	inputs := len(r.Inputs)
	switch {
	case len(r.Float64) != inputs:
		return s.refuse("its reference says of %d inputs how they were evaluated, want %d", len(r.Float64), inputs)
	case slices.Contains(r.Float64, false) != (len(r.FP32RelL2) > 0):
		return s.refuse("its reference has %d errors of fp32, want some only where inputs were evaluated in fp32",
			len(r.FP32RelL2))
	case len(r.Outputs) != len(outputs):
		return s.refuse("its reference has %d outputs, want %d", len(r.Outputs), len(outputs))
	}
	for _, name := range slices.Sorted(maps.Keys(r.FP32RelL2)) {
		if !(r.FP32RelL2[name] >= 0) {
			return s.refuse("output %.100s: its reference has error %v, want 0 or more", name, r.FP32RelL2[name])
		}
	}
	for _, v := range outputs {
		rows, ok := r.Outputs[v.Name]
		if !ok || len(rows) != inputs {
			return s.refuse("output %s: its reference has %d inputs, want %d", v.Name, len(rows), inputs)
		}
		for at, row := range rows {
			if len(row) != v.Type.Numel() {
				return s.refuse("output %s, input %d: its reference has %d numbers, want %d",
					v.Name, at+1, len(row), v.Type.Numel())
			}
		}
	}
	return nil
}
