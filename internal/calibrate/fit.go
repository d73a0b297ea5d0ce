package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Fitted is the outcome of a fit.
type Fitted struct {
	Plan    *passes.Quantisation
	Formats Assignment         // what the plan stores, which may be wider than what was asked for
	Ranges  map[string]Range   // of the activations that layers multiply, by site name
	Local   map[string]float64 // relative L2 of each layer's anchor, quantised against exact
}

func newFitted(a Assignment) *Fitted {
	return &Fitted{Plan: &passes.Quantisation{Values: map[string]ir.Storage{}, Layers: map[string]passes.Layer{}}, Formats: a, Ranges: map[string]Range{}, Local: map[string]float64{}}
}

// fit walks the graph with all calibration inputs and quantises each layer as assigned.
func (c *Calibration) fit(ctx context.Context, a Assignment, tech Technique) (*Fitted, error) {
	st := c.store(a)
	a = st.formats
	f := newFitted(a)
	w := c.walk
	hat, exact := w.lane(w.inputs), w.lane(w.inputs)
	now := newFound(a)
	defer c.pool.leave()
	work, done := c.Work(), 0.0
	c.progress.Begin(work.Fit, "fitting %s to %s", console.Count(len(w.steps), "region"), console.Count(w.inputs, "input"))
	for i, s := range w.steps {
		var hatOut [][]*ir.Tensor
		exactOut, err := c.exactStep(ctx, i, w.inputs, exact, func(acc []*ir.Tensor) (err error) {
			hatOut, err = c.fitStep(ctx, s, a, tech, st, f, now, exact, hat, acc)
			return err
		})
		switch {
		case err != nil || s.channels > 0:
		case hat.same(exact, s.node):
			hatOut = copies(exactOut, c.pool)
		default:
			hatOut, err = c.evaluator.Evaluate(ctx, s.node, hat.all(s.node, 0, w.inputs), c.pool)
		}
		if err != nil {
			return nil, fmt.Errorf("region %q: %w", s.node.Name, err)
		}
		for at := range hatOut {
			if err := c.finite(s.node, hatOut[at], at); err != nil {
				return nil, fmt.Errorf("region %q, quantised: %w", s.node.Name, err)
			}
		}
		for k, v := range s.node.Outputs {
			g := st.group(v)
			o, scale := st.narrow[g], 1.0
			switch {
			case s.node.IsFamily(ir.FamilyView): // has the values of its operands
				continue
			case o.Format != nil:
				r := observe(c.fitted(column(hatOut, k)), o)
				r.Scale = tech.fault.of(scales, r.Scale)
				f.Plan.Values[v.Name], now.scales[scaleKey{g, o}], scale = storage(o, r.Scale), r, r.Scale
			case st.half[v]:
				o = precision.Half.Activations
			default:
				continue
			}
			for at := range hatOut {
				store(floats(hatOut[at][k]), o, scale)
			}
		}
		exact.put(s.node, exactOut)
		hat.put(s.node, hatOut)
		exact.release(w, i, c.memory.inputs, c.pool)
		hat.release(w, i, 0, c.pool)
		c.pool.next()
		done += c.fitting(s)
		c.progress.Step(i+1, len(w.steps), done/work.Fit)
	}
	if c.several {
		c.found.fits = append(c.found.fits, now)
	}
	c.exact = exact.outputs(w.g, c.given)
	return f, nil
}

// fitStep fits and runs a region that is split after its anchor.
func (c *Calibration) fitStep(ctx context.Context, s *step, a Assignment, tech Technique, st *stores, f *Fitted, now *found, exact, hat *lane, accExact []*ir.Tensor) ([][]*ir.Tensor, error) {
	inputs := c.walk.inputs
	name := s.node.Outputs[0].Name
	format := a.of(name)
	hatIn := hat.all(s.node, 0, inputs)
	anchorIn := make([][]*ir.Tensor, inputs) // operands of the head
	for at := range inputs {
		anchorIn[at] = slices.Clone(hatIn[at])
	}
	var layer passes.Layer
	if format != precision.Half {
		if st.read[name] {
			r := observe(c.fitted(column(hatIn, s.site.X)), format.Activations)
			r.Scale = tech.fault.of(scales, r.Scale)
			layer.Read, f.Ranges[name] = storage(format.Activations, r.Scale), r
			now.scales[scaleKey{st.group(s.node.Inputs[s.site.X]), format.Activations}] = r
			for at := range inputs {
				anchorIn[at][s.site.X] = stored(hatIn[at][s.site.X], format.Activations, r.Scale, c.pool)
			}
		} else if g := st.group(s.node.Inputs[s.site.X]); st.narrow[g].Format != nil {
			f.Ranges[name] = now.scales[scaleKey{g, st.narrow[g]}]
		}
		if format.Weights.Narrow() {
			var x, xHat []*ir.Tensor
			if tech.Feedback || tech.Recover {
				var err error
				if x, err = s.multiplied(ctx, c.evaluator, exact.all(s.node, 0, inputs), c.pool); err != nil {
					return nil, err
				}
				if xHat, err = s.multiplied(ctx, c.evaluator, anchorIn, c.pool); err != nil {
					return nil, err
				}
			}
			r := newRounder(s.site, format.Weights, tech)
			if x == nil {
				r.patches = nil
			} else if r.patches != nil {
				r.patches.pool = c.pool
			}
			r.fit(ctx, x, xHat, c.held)
			if !s.site.Direct {
				c.pool.Give(append(x, xHat...))
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fitted := r.layer()
			fitted.Read = layer.Read
			layer = fitted
			s = s.with(r.tensor())
		}
	}
	accHat, err := s.anchors(ctx, c.evaluator, anchorIn, c.pool)
	if err != nil {
		return nil, err
	}
	if layer.Read.DType != 0 {
		c.pool.Give(column(anchorIn, s.site.X))
	}
	f.Local[name] = distance(accHat, accExact)
	if c.several && c.found.means[name] == nil {
		c.found.means[name] = meansOf(c.fitted(accExact), s.axis, s.node.Region.Members > 0)
	}
	if batched := s.node.Region.Members > 0; tech.Bias && a.narrows() {
		layer.Bias = shift(c.fitted(accExact), c.fitted(accHat), s.axis, batched)
		spoil(tech.fault, means, layer.Bias)
		parallel.For(len(accHat), func(at int) { move(accHat[at], layer.Bias, s.axis, batched) })
	}
	if format != precision.Half || layer.Bias != nil {
		f.Plan.Layers[name] = layer
	}
	layer.Read = ir.Storage{}
	now.layers[name] = finding{layer, f.Local[name]}
	return s.finish(ctx, c.evaluator, hatIn, accHat, 0, c.pool)
}

// shift is the mean of exact − hat for every channel, members one after another, less the part that chance explains: means
// vary between inputs, and the fewer inputs there are, the less their average predicts another input.
func shift(exact, hat []*ir.Tensor, axis int, batched bool) []float64 {
	members, channels, inner := layout(exact[0].Type, axis, batched)
	ones := make([][]float64, len(exact)) // mean by channel of each input
	parallel.For(len(exact), func(at int) {
		one := make([]float64, members*channels)
		want, got := floats(exact[at]), floats(hat[at])
		size := len(want) / members
		if inner == 1 {
			for m := range members {
				blas.ColumnDifferences(one[m*channels:][:channels], want[m*size:][:size], got[m*size:][:size])
			}
		}
		for p := 0; inner > 1 && p < len(want); p += channels * inner { // all channels at one position
			sums := one[p/size*channels:][:channels]
			for k := range sums {
				w, g := want[p+k*inner:][:inner], got[p+k*inner:][:inner]
				for i, x := range w {
					sums[k] += float64(x) - float64(g[i])
				}
			}
		}
		for i := range one {
			one[i] /= float64(size / channels)
		}
		ones[at] = one
	})
	return reliable(ones)
}

// reliable is the mean over inputs for every channel, less the part that chance explains.
func reliable(ones [][]float64) []float64 {
	inputs := float64(len(ones))
	out := make([]float64, len(ones[0]))
	for i := range out {
		var sum, square float64
		for _, one := range ones {
			sum += one[i]
			square += float64(one[i] * one[i])
		}
		mean := sum / inputs
		chance := 0.0 // variance of the mean
		if inputs > 1 {
			chance = max(square/inputs-float64(mean*mean), 0) / (inputs - 1)
		}
		if mean != 0 {
			out[i] = float64(float32(mean * max(0, 1-chance/float64(mean*mean))))
		}
	}
	return out
}

// move adds a number to each channel, in place.
func move(a *ir.Tensor, by []float64, axis int, batched bool) {
	members, channels, inner := layout(a.Type, axis, batched)
	xs := floats(a)
	size := len(xs) / members
	add := make([]float32, len(by))
	for i, x := range by {
		add[i] = float32(x)
	}
	for p := 0; p < len(xs); p += channels * inner { // all channels at one position
		of := add[p/size*channels:][:channels]
		if inner == 1 {
			blas.Axpy(1, of, xs[p:][:channels])
			continue
		}
		for k, x := range of {
			at := xs[p+k*inner:][:inner]
			for i := range at {
				at[i] += x
			}
		}
	}
}

// layout gives the layout of an anchor's output: members, channels, and elements per channel.
func layout(t ir.Type, axis int, batched bool) (members, channels, inner int) {
	members, inner = 1, 1
	if batched {
		members = t.Shape[0]
	}
	for _, d := range t.Shape[axis+1:] {
		inner *= d
	}
	return members, t.Shape[axis], inner
}
