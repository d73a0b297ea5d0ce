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
)

// refit makes a candidate of findings whose weights are rounded again, and whose means are corrected again, for just
// that assignment, by a walk of the quantised graph alone: weights make up for no earlier errors, and of the exact
// graph the means of channels are known from an earlier walk. Vision is better without recovery where few layers are
// quantised (1 − cosine 0.00069 instead of 0.00145), the trained network is not, so only the first walk has it
// (2026-11-22). It is nil if the findings lack something.
func (c *Calibration) refit(ctx context.Context, a Assignment, tech Technique) (*Fitted, error) {
	f := c.assemble(a)
	if f == nil {
		return nil, nil
	}
	st, w := c.store(a), c.walk
	hat, now := w.lane(w.inputs), newFound(st.formats)
	defer c.pool.leave()
	work, done := c.Work().Fit, 0.0
	c.progress.Begin(work/2, "fitting %s again", console.Count(len(w.steps), "region"))
	for i, s := range w.steps {
		var outs [][]*ir.Tensor
		var err error
		if in := hat.all(s.node, 0, w.inputs); s.channels > 0 {
			outs, err = c.refitStep(ctx, s, st, tech, f, in)
			name := s.node.Outputs[0].Name
			layer := f.Plan.Layers[name]
			layer.Read = ir.Storage{}
			now.layers[name] = finding{layer, f.Local[name]}
		} else {
			outs, err = c.evaluator.Evaluate(ctx, s.node, in, c.pool)
		}
		if err != nil {
			return nil, fmt.Errorf("region %q: %w", s.node.Name, err)
		}
		for k, v := range s.node.Outputs {
			o, scale := st.narrow[st.group(v)], 1.0
			switch {
			case s.node.IsFamily(ir.FamilyView): // has the values of its operands
				continue
			case o.Format != nil:
				scale = f.Plan.Values[v.Name].Scale
			case st.half[v]:
				o = precision.Half.Activations
			default:
				continue
			}
			for at := range outs {
				store(floats(outs[at][k]), o, scale)
			}
		}
		hat.put(s.node, outs)
		hat.release(w, i, 0, c.pool)
		c.pool.next()
		done += c.fitting(s)
		c.progress.Step(i+1, len(w.steps), done/work)
	}
	for _, g := range c.found.fits {
		for k, r := range g.scales {
			if _, ok := now.scales[k]; !ok {
				now.scales[k] = r
			}
		}
	}
	c.found.fits = append(c.found.fits, now)
	return f, nil
}

// refitStep fits and runs a region that is split after its anchor.
func (c *Calibration) refitStep(ctx context.Context, s *step, st *stores, tech Technique, f *Fitted, in [][]*ir.Tensor) ([][]*ir.Tensor, error) {
	name := s.node.Outputs[0].Name
	format, layer := st.formats.of(name), f.Plan.Layers[name]
	anchorIn := in
	if layer.Read.DType != 0 {
		anchorIn = make([][]*ir.Tensor, len(in))
		for at := range in {
			anchorIn[at] = slices.Clone(in[at])
			anchorIn[at][s.site.X] = stored(in[at][s.site.X], format.Activations, layer.Read.Scale, c.pool)
		}
	}
	if format.Weights.Narrow() {
		r := newRounder(s.site, format.Weights, Technique{Feedback: tech.Feedback})
		var x []*ir.Tensor
		if tech.Feedback {
			var err error
			if x, err = s.multiplied(ctx, c.evaluator, anchorIn, c.pool); err != nil {
				return nil, err
			}
		} else {
			r.patches = nil
		}
		if r.patches != nil {
			r.patches.pool = c.pool
		}
		r.fit(ctx, nil, x, c.held)
		if !s.site.Direct {
			c.pool.Give(x)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fitted := r.layer()
		fitted.Read = layer.Read
		layer = fitted
		s = s.with(r.tensor())
	}
	acc, err := s.anchors(ctx, c.evaluator, anchorIn, c.pool)
	if err != nil {
		return nil, err
	}
	if layer.Read.DType != 0 {
		c.pool.Give(column(anchorIn, s.site.X))
	}
	if exact := c.found.means[name]; exact != nil && tech.Bias && st.formats.narrows() {
		batched := s.node.Region.Members > 0
		miss := make([][]float64, len(exact))
		for at, got := range meansOf(c.fitted(acc), s.axis, batched) {
			for k, x := range got {
				miss[at] = append(miss[at], float64(exact[at][k])-float64(x))
			}
		}
		layer.Bias = reliable(miss)
		parallel.For(len(acc), func(at int) { move(acc[at], layer.Bias, s.axis, batched) })
	}
	if format != precision.Half || layer.Bias != nil {
		f.Plan.Layers[name] = layer
	}
	return s.finish(ctx, c.evaluator, in, acc, 0, c.pool)
}

// meansOf is the mean of every channel, members one after another, by tensor.
func meansOf(list []*ir.Tensor, axis int, batched bool) [][]float32 {
	members, channels, inner := layout(list[0].Type, axis, batched)
	out := make([][]float32, len(list))
	parallel.For(len(list), func(at int) {
		sums, xs := make([]float64, members*channels), floats(list[at])
		size := len(xs) / members
		if inner == 1 {
			for m := range members {
				blas.ColumnSums(sums[m*channels:][:channels], xs[m*size:][:size])
			}
		}
		for p := 0; inner > 1 && p < len(xs); p += channels * inner { // all channels at one position
			of := sums[p/size*channels:][:channels]
			for k := range of {
				for _, x := range xs[p+k*inner:][:inner] {
					of[k] += float64(x)
				}
			}
		}
		out[at] = make([]float32, len(sums))
		for i, x := range sums {
			out[at][i] = float32(x / float64(size/channels))
		}
	})
	return out
}
