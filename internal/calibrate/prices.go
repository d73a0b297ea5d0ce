package calibrate

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// prices is what a layer costs in each format of its ladder: predicted microseconds, or bytes of weights.
type prices map[precision.Layer]float64

// why says that a format was not chosen since another, more accurate one, costs no more.
func (p prices) why(f, chosen precision.Layer, smaller bool) string {
	if smaller {
		return fmt.Sprintf("%s would be no smaller", f.Name)
	}
	return fmt.Sprintf("%s would take %.2f µs, %s %.2f", f.Name, p[f], chosen.Name, p[chosen])
}

// prices are those of every site. Times are those of programs in which every layer has the same place of its ladder.
func (c *Calibration) prices(trial Trial, smaller bool, sites []passes.Site, ladders [][]precision.Layer) ([]prices, error) {
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
	for k := 0; k < places && !smaller; k++ {
		c.say("predicting times: format %d of %d", k+1, places)
		a := Assignment{}
		for i := range sites {
			a[sites[i].Name()] = ladders[i][min(k, len(ladders[i])-1)]
		}
		us, err := trial.Times(c.unfitted(a))
		if err != nil {
			return nil, err
		}
		for i := range sites {
			if f := ladders[i][min(k, len(ladders[i])-1)]; k < len(ladders[i]) {
				out[i][f] = us[sites[i].Name()]
			}
		}
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
		var l passes.Layer
		if f.Weights.Narrow() {
			l = newRounder(s.site, f.Weights, Technique{}).layer()
		}
		if st.read[name] {
			l.Read = storage(f.Activations, 1)
		}
		plan.Layers[name] = l
	}
	return plan
}

// weightBytes is the size of a layer's weights in a format, with their scales.
func weightBytes(f precision.Layer, s *passes.Site) float64 {
	channels := s.Members * s.N
	bytes := channels * s.K * f.Weights.Bits() / 8
	if f.Weights.Narrow() {
		bytes += 4 * channels
	}
	if f.Weights.Blocks {
		bytes += channels * s.Blocks()
	}
	return float64(bytes)
}
