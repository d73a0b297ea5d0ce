package calibrate

import (
	"cmp"
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// What a more accurate format may cost where a narrower one is forced: of the predicted time of all regions, a layer's and those of
// all layers that have it.
const (
	dearerLayer = 0.003
	dearerAll   = 0.01
)

// twice leaves every layer, in place, either the candidate whose activations are one number or the one whose
// activations are two. It chooses two where that is predicted to cost little, cheapest layers first. The kernel
// multiplies twice as often, and the producer stores its activations in 16 bits instead of 8. Most of fp8's error
// comes from rounding activations, and no layer has more than 11 % of it. With two terms, driver monitoring's
// relative L2 on pictures falls from 0.0272 to 0.0202, with 16-bit activations to 0.0175 (3 fits, 2026-11-22).
// Without two-term formats no program of vision in fp8 within 0.999 is faster than fp16's 224.8 µs; with them one
// takes 199.8 (predicted, 2026-11-29). Cached findings keep their decisions, even from another target, since a
// layer in the other format would need a new fit.
func (c *Calibration) twice(ctx context.Context, trial Trial, sites []passes.Site, ladders [][]precision.Layer) error {
	one, two := Assignment{}, Assignment{}
	at := make([]int, len(sites)) // of the format in two terms; -1: there is none
	some := false
	for i, s := range sites {
		name := s.Name()
		at[i] = slices.IndexFunc(ladders[i], func(f precision.Layer) bool { return f.Activations.HiLo })
		if at[i] > 0 {
			_, once := c.found.alone[layerKey{name, ladders[i][at[i]-1]}]
			_, twice := c.found.alone[layerKey{name, ladders[i][at[i]]}]
			switch {
			case once && !twice:
				ladders[i], at[i] = slices.Delete(ladders[i], at[i], at[i]+1), -1
			case twice && !once:
				ladders[i], at[i] = slices.Delete(ladders[i], at[i]-1, at[i]), -1
			}
		}
		one[name], two[name] = ladders[i][0], ladders[i][0]
		if at[i] > 0 {
			one[name], two[name], some = ladders[i][at[i]-1], ladders[i][at[i]], true
		}
	}
	if !some {
		return nil
	}
	price, total, err := c.dearer(ctx, trial, sites, one, two)
	if err != nil {
		return err
	}
	var order []int
	for i := range sites {
		if at[i] >= 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(price[a], price[b]) })
	left := float64(total * dearerAll)
	for _, i := range order {
		drop := at[i]
		if price[i] <= float64(total*dearerLayer) && price[i] <= left {
			left -= max(price[i], 0)
			drop--
		}
		ladders[i] = slices.Delete(ladders[i], drop, drop+1)
	}
	return nil
}

// dearer is what every layer of an assignment is predicted to cost more, in microseconds, than the same layer of another one, and
// what all regions take in that one. The region that stores a layer's activations in fewer bits there alone counts with it, if it gets slower.
func (c *Calibration) dearer(ctx context.Context, trial Trial, sites []passes.Site, from, to Assignment) (price []float64, total float64, err error) {
	us, err := trial.Times(ctx, c.unfitted(from))
	if err != nil {
		return nil, 0, err
	}
	more, err := trial.Times(ctx, c.unfitted(to))
	if err != nil {
		return nil, 0, err
	}
	for _, n := range c.walk.g.Nodes {
		total += us[n.Outputs[0].Name]
		more[n.Outputs[0].Name] -= us[n.Outputs[0].Name]
	}
	stored, otherwise := c.store(from).narrow, c.store(to).narrow
	for _, s := range sites {
		x := more[s.Name()]
		if g := c.storage.Group(s.Node.Inputs[s.X]); stored[g].Format != nil && stored[g] != otherwise[g] {
			x += max(more[c.producer(g)], 0)
		}
		price = append(price, x)
	}
	return price, total, nil
}

// producer is the name of the region that computes a value and what views make of it.
func (c *Calibration) producer(group *ir.Value) string {
	for _, n := range c.walk.g.Nodes {
		if !n.IsFamily(ir.FamilyView) && slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool { return c.storage.Group(v) == group }) {
			return n.Outputs[0].Name
		}
	}
	return ""
}
