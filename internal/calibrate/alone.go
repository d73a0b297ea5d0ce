package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// alone measures, on the first calibration input, how much each candidate format of a layer changes the outputs if
// nothing else is rounded. Weights are rounded to nearest, since this only ranks layers.
func (c *Calibration) alone(ctx context.Context, sites []passes.Site, ladders [][]precision.Layer) ([]map[precision.Layer]float64, error) {
	out, missing := make([]map[precision.Layer]float64, len(sites)), false
	for i := range sites {
		out[i] = map[precision.Layer]float64{}
		for _, f := range ladders[i] {
			if e, ok := c.found.alone[layerKey{sites[i].Name(), f}]; ok {
				out[i][f] = e
			} else {
				missing = missing || f != precision.Half
			}
		}
	}
	if !missing {
		return out, nil
	}
	c.progress.Begin(c.Work().Alone, "measuring the sensitivity of %s", console.Count(len(sites), "layer"))
	if err := c.evaluator.Keep(true); err != nil {
		return nil, err
	}
	defer c.pool.leave()
	w := c.walk
	exact := w.lane(1)
	for i, s := range w.steps {
		outs, err := c.exactStep(ctx, i, 1, exact, nil)
		if err != nil {
			return nil, fmt.Errorf("region %q: %w", s.node.Name, err)
		}
		exact.put(s.node, outs)
	}
	for i := range sites {
		c.progress.Step(i+1, len(sites), float64(i)/float64(len(sites)))
		for _, f := range ladders[i] {
			if _, known := out[i][f]; known || f == precision.Half {
				continue
			}
			e, err := c.disturb(ctx, w, exact, &sites[i], f)
			if err != nil {
				return nil, fmt.Errorf("region %q: %w", sites[i].Node.Name, err)
			}
			out[i][f], c.found.alone[layerKey{sites[i].Name(), f}] = e, e
		}
	}
	return out, c.evaluator.Keep(false)
}

// disturb quantises one site and evaluates everything that depends on it.
func (c *Calibration) disturb(ctx context.Context, w *walk, exact *lane, s *passes.Site, f precision.Layer) (float64, error) {
	changed := &lane{map[*ir.Value][]*ir.Tensor{}}
	for _, st := range w.steps {
		n := st.node
		in, dirty := exact.all(n, 0, 1), n == s.Node
		for i, v := range n.Inputs {
			if a := changed.values[v]; a != nil {
				in[0][i], dirty = a[0], true
			}
		}
		if !dirty {
			continue
		}
		anchorIn := in
		if n == s.Node {
			st, anchorIn = disturbed(ctx, st, f, in[0])
		}
		outs, err := evaluate(ctx, c.evaluator, st, anchorIn, in, c.pool)
		if err != nil {
			return 0, err
		}
		changed.put(n, outs)
	}
	var got, want []*ir.Tensor
	for _, v := range w.g.Outputs {
		want = append(want, asFloats(exact.values[v][0]))
		got = append(got, want[len(want)-1])
		if a := changed.values[v]; a != nil {
			got[len(got)-1] = asFloats(a[0])
		}
	}
	d := distance(got, want)
	for v, a := range changed.values {
		if w.own[v] {
			c.pool.Give(a)
		}
	}
	c.pool.next()
	return d, nil
}

// disturbed is a region with its weights rounded, and what its anchor sees if its activations are rounded too.
func disturbed(ctx context.Context, st *step, f precision.Layer, operands []*ir.Tensor) (*step, [][]*ir.Tensor) {
	anchorIn := slices.Clone(operands)
	if x := operands[st.site.X]; f.Activations.Narrow() {
		anchorIn[st.site.X] = stored(x, f.Activations, observe([]*ir.Tensor{x}, f.Activations).Scale, nil)
	}
	r := newRounder(st.site, f.Weights, Technique{})
	r.patches = nil
	r.fit(ctx, nil, nil, nil)
	return st.with(r.tensor()), [][]*ir.Tensor{anchorIn}
}
