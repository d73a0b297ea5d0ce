package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Fitted is the outcome of a fit.
type Fitted struct {
	Plan    *passes.Quantisation
	Formats Assignment         // as values can be stored
	Ranges  map[string]Range   // of what layers multiply, by name of the site
	Local   map[string]float64 // relative L2 of what each layer's anchor yields, exact inputs against quantised ones
}

// fit walks the graph with all calibration inputs and quantises what the assignment says.
func (c *Calibration) fit(ctx context.Context, a Assignment, tech Technique) (*Fitted, error) {
	st := c.store(a)
	a = st.formats
	f := &Fitted{Plan: &passes.Quantisation{Values: map[string]float64{}, Blocks: map[string]float64{}, Layers: map[string]passes.Layer{}}, Formats: a, Ranges: map[string]Range{}, Local: map[string]float64{}}
	w := c.walk
	hat := newLane(w.g, w.inputs)
	exact := newLane(w.g, w.inputs)
	half := minifloat.Float16
	for i, s := range w.steps {
		hatOut := make([][]*ir.Array, len(w.inputs))
		accExact, exactOut, err := c.exactStep(ctx, i, len(w.inputs), exact)
		switch {
		case err != nil:
		case s.channels > 0:
			hatOut, err = c.fitStep(ctx, s, a, tech, st, f, exact, hat, accExact)
		default:
			for at := range w.inputs {
				if err = ctx.Err(); err != nil {
					break
				}
				if hatOut[at], err = ir.EvaluateNode(s.node, hat.operands(s.node, at)); err != nil {
					break
				}
			}
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
			list := make([]*ir.Array, len(hatOut))
			for at := range hatOut {
				list[at] = hatOut[at][k]
			}
			view := s.node.IsFamily(ir.FamilyView)
			switch {
			case view: // has the values of its operands
			case st.byte1[g]:
				r := observe(list, minifloat.E4M3FN)
				f.Plan.Values[v.Name] = r.Scale
				c.ranges[g] = r
				for at := range hatOut {
					hatOut[at][k] = stored(list[at], minifloat.E4M3FN, r.Scale)
				}
			case st.blocks[g]:
				r := observeBlocks(list)
				f.Plan.Blocks[v.Name] = r.Scale
				c.ranges[g] = r
				for at := range hatOut {
					hatOut[at][k] = storedBlocks(list[at], r.Scale)
				}
			case st.half[v]:
				for at := range hatOut {
					hatOut[at][k] = stored(list[at], half, 1)
				}
			}
		}
		exact.put(s.node, exactOut)
		hat.put(s.node, hatOut)
		exact.release(w.done(i))
		hat.release(w.done(i))
		c.say("layer %d of %d", i+1, len(w.steps))
	}
	return f, nil
}

// fitStep runs a region that is cut behind its anchor.
func (c *Calibration) fitStep(ctx context.Context, s *step, a Assignment, tech Technique, st *stores, f *Fitted, exact, hat *lane, accExact []*ir.Array) ([][]*ir.Array, error) {
	inputs := len(c.walk.inputs)
	name := s.node.Outputs[0].Name
	format := Half
	if s.site != nil {
		if got, ok := a[name]; ok {
			format = got
		}
	}
	hatIn := make([][]*ir.Array, inputs)
	var accHat []*ir.Array
	for at := range inputs {
		hatIn[at] = hat.operands(s.node, at)
	}
	front := make([][]*ir.Array, inputs) // operands of the head
	for at := range inputs {
		front[at] = slices.Clone(hatIn[at])
	}
	var layer passes.Layer
	if format != Half {
		if st.read[name] {
			r := observe(column(hatIn, s.site.X), minifloat.E4M3FN)
			layer.Read, f.Ranges[name] = r.Scale, r
			for at := range inputs {
				front[at][s.site.X] = stored(hatIn[at][s.site.X], minifloat.E4M3FN, r.Scale)
			}
		} else if g := st.group(s.node.Inputs[s.site.X]); st.byte1[g] || st.blocks[g] {
			f.Ranges[name] = c.ranges[g]
		}
		if format.Weights != ir.Float16 {
			var x, xHat []*ir.Array
			if tech.Feedback || tech.Recover {
				for at := range inputs {
					o, err := ir.EvaluateNode(s.operand, exact.operands(s.node, at))
					if err != nil {
						return nil, err
					}
					h, err := ir.EvaluateNode(s.operand, front[at])
					if err != nil {
						return nil, err
					}
					x, xHat = append(x, o[0]), append(xHat, h[0])
				}
			}
			r := newRounder(s.site, format.Weights, tech)
			if x == nil {
				r.patches = nil
			}
			r.fit(x, xHat)
			read := layer.Read
			layer = r.layer()
			layer.Read = read
			for at := range inputs {
				front[at][s.site.Weight] = r.fake
			}
		}
	}
	for at := range inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, err := ir.EvaluateNode(s.head, front[at])
		if err != nil {
			return nil, err
		}
		accHat = append(accHat, out[0])
	}
	f.Local[name] = distance(accHat, accExact)
	if tech.Bias && low(a) {
		layer.Bias = shift(accExact, accHat, s.axis, s.node.Region.Members > 0)
		for at := range accHat {
			move(accHat[at], layer.Bias, s.axis, s.node.Region.Members > 0)
		}
	}
	if format != Half || layer.Bias != nil {
		f.Plan.Layers[name] = layer
	}
	hatOut := make([][]*ir.Array, inputs)
	for at := range inputs {
		var err error
		if hatOut[at], err = ir.EvaluateNode(s.tail, append(hatIn[at], accHat[at])); err != nil {
			return nil, err
		}
	}
	return hatOut, nil
}

// low reports whether an assignment quantises anything.
func low(a Assignment) bool {
	for _, f := range a {
		if f != Half {
			return true
		}
	}
	return false
}

func column(in [][]*ir.Array, i int) []*ir.Array {
	out := make([]*ir.Array, len(in))
	for at := range in {
		out[at] = in[at][i]
	}
	return out
}

// shift is the mean of exact − hat for every channel, members one after another, less the part of it that chance would
// give: inputs differ in their means, and the fewer there are, the less the mean of those means says about another input.
func shift(exact, hat []*ir.Array, axis int, stacked bool) []float64 {
	members, channels, inner := layout(exact[0].Type, axis, stacked)
	ones := make([][]float64, len(exact)) // mean by channel of each input
	each(len(exact), func(at int) {
		one := make([]float64, members*channels)
		size := len(exact[at].F) / members
		want, got := exact[at].F, hat[at].F
		for p := 0; p < len(want); p += inner {
			sum := 0.0
			for i := p; i < p+inner; i++ {
				sum += want[i] - got[i]
			}
			one[p/size*channels+p/inner%channels] += sum / float64(size/channels)
		}
		ones[at] = one
	})
	inputs := float64(len(exact))
	out := make([]float64, members*channels)
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
func move(a *ir.Array, by []float64, axis int, stacked bool) {
	members, channels, inner := layout(a.Type, axis, stacked)
	size := len(a.F) / members
	for p := 0; p < len(a.F); p += inner {
		x := by[p/size*channels+p/inner%channels]
		for i := p; i < p+inner; i++ {
			a.F[i] += x
		}
	}
}

// layout says how an anchor's output lies: members, channels, elements behind the channel.
func layout(t ir.Type, axis int, stacked bool) (members, channels, inner int) {
	members, inner = 1, 1
	if stacked {
		members = t.Shape[0]
	}
	for _, d := range t.Shape[axis+1:] {
		inner *= d
	}
	return members, t.Shape[axis], inner
}
