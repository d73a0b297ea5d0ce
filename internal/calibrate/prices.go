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

// prices is the cost of a layer in each of its candidate formats: predicted microseconds, or bytes of weights.
type prices map[precision.Layer]float64

// why says that a format was not chosen since another, more accurate one, costs no more.
func (p prices) why(f, chosen precision.Layer, smaller bool) string {
	if smaller {
		return fmt.Sprintf("%s would be no smaller", f.Name)
	}
	return fmt.Sprintf("%s would take %.2f µs, %s %.2f", f.Name, p[f], chosen.Name, p[chosen])
}

// cheapest drops the candidate formats that cost as much as a more accurate one, in place, and returns the
// original candidates and the costs. Without a budget it keeps all candidates below the first format that takes
// less time.
func (c *Calibration) cheapest(ctx context.Context, trial Trial, opt Options, sites []passes.Site, ladders [][]precision.Layer) (full [][]precision.Layer, costs []prices, err error) {
	full = slices.Clone(ladders)
	parts := ladders
	if opt.MinCosine <= 0 {
		parts = make([][]precision.Layer, len(sites))
		for i, l := range ladders {
			parts[i] = undecided(l)
		}
	}
	if costs, err = c.prices(ctx, trial, opt.smaller(), sites, parts); err != nil {
		return nil, nil, err
	}
	for i, l := range parts {
		ladders[i] = append(worthwhile(l, costs[i]), ladders[i][len(l):]...)
	}
	return full, costs, nil
}

// prices are those of every site. Times are predicted for programs in which every layer uses the candidate of the
// same index. If no layer has two candidates, there is nothing to compare.
func (c *Calibration) prices(ctx context.Context, trial Trial, smaller bool, sites []passes.Site, ladders [][]precision.Layer) ([]prices, error) {
	out := make([]prices, len(sites))
	places := 0
	for i := range sites {
		out[i] = prices{}
		places = max(places, len(ladders[i]))
		for _, f := range ladders[i] {
			if smaller {
				out[i][f] = weightBytes(f, &sites[i])
			}
		}
	}
	if smaller || places < 2 {
		return out, nil
	}
	c.progress.Begin(c.Work().Prices, "predicting the times of layers in %s", console.Count(places, "format"))
	for k := range places {
		a := Assignment{}
		for i := range sites {
			a[sites[i].Name()] = ladders[i][min(k, len(ladders[i])-1)]
		}
		us, err := trial.Times(ctx, c.unfitted(a))
		if err != nil {
			return nil, err
		}
		for i := range sites {
			if f := ladders[i][min(k, len(ladders[i])-1)]; k < len(ladders[i]) {
				out[i][f] = us[sites[i].Name()]
			}
		}
		c.progress.Step(k+1, places, float64(k+1)/float64(places))
	}
	return out, nil
}

// unfitted is a plan of an assignment whose numbers mean nothing: what it compiles to is as fast as one that is fitted.
func (c *Calibration) unfitted(a Assignment) *passes.Quantisation {
	st := c.store(a)
	plan := &passes.Quantisation{Values: map[string]ir.Storage{}, Layers: map[string]passes.Layer{}}
	for _, s := range c.walk.steps {
		for _, v := range s.node.Outputs {
			if o := st.narrow[st.group(v)]; o.Format != nil && !s.node.IsFamily(ir.FamilyView) {
				plan.Values[v.Name] = storage(o, 1)
			}
		}
		if s.site == nil {
			continue
		}
		name := s.site.Name()
		f := st.formats.of(name)
		if f == precision.Half {
			continue
		}
		l := blank(s.site, f.Weights)
		if st.read[name] {
			l.Read = storage(f.Activations, 1)
		}
		plan.Layers[name] = l
	}
	return plan
}

// blank is a layer of zeros.
func blank(s *passes.Site, f precision.Operand) (l passes.Layer) {
	if !f.Narrow() {
		return l
	}
	zeros := func(d ir.DType, shape []int) *ir.Tensor {
		t := ir.Type{DType: d, Shape: slices.Clone(shape)}
		return &ir.Tensor{Type: t, Data: make([]byte, t.Bytes())}
	}
	l.Weights, l.Scales, l.Split = zeros(codeType(f), s.Weights().Type.Shape), make([]float64, s.Members*s.N), f.HiLo
	if f.Blocks {
		l.Blocks = zeros(ir.BlockScale, s.BlockShape())
	}
	return l
}

// codeType is the type that holds the numbers of weights: of two terms their sum.
func codeType(f precision.Operand) ir.DType {
	if f.HiLo {
		return ir.Float16
	}
	return ir.DTypeOf(f.Format)
}

// weightBytes is the size of a layer's weights in a format, with their scales.
func weightBytes(f precision.Layer, s *passes.Site) float64 {
	channels := s.Members * s.N
	bytes := channels * s.K * codeType(f.Weights).Bits() / 8
	if f.Weights.Narrow() {
		bytes += 4 * channels
	}
	if f.Weights.Blocks {
		bytes += channels * s.Blocks()
	}
	return float64(bytes)
}
