package calibrate

import (
	"cmp"
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// splitBytes bounds what weights in two terms add: of the bytes of all layers' weights. With it driver monitoring's
// relative L2 is 11 % lower over six sets of inputs, in 8 of 9 fits, for 0.7 % more time and 4.5 % more bytes
// (2026-11-23).
const splitBytes = 0.2

// split replaces the narrowest candidate of small layers by the format whose weights are two numbers, in place. It
// goes by bytes of weights, fewest first, up to a share of all weights, where kernels take about as long with it.
// The kernel reads both numbers and multiplies twice as often. Small layers are the first ones, whose errors
// propagate through all others: without rounding the first 12, in 8 % of the weights, relative L2 on pictures is
// 0.0137 instead of 0.0197 (3 fits, 2026-11-23). None is split if the caller prefers size. Cached findings keep
// their decisions.
func (c *Calibration) split(ctx context.Context, trial Trial, opt Options, sites []passes.Site, ladders [][]precision.Layer) error {
	p, err := precision.Lookup(opt.Precision)
	if err != nil || opt.Smaller {
		return err
	}
	one, two := Assignment{}, Assignment{}
	var order []int
	all, added := 0.0, make([]float64, len(sites))
	wide := make([]precision.Layer, len(sites))
	for i, s := range sites {
		f := ladders[i][0]
		one[s.Name()], two[s.Name()] = f, f
		all += weightBytes(f, &s)
		g, ok := f.Split()
		if !ok || !slices.Contains(p.Candidates, g) {
			continue
		}
		_, was := c.found.alone[layerKey{s.Name(), f}]
		_, wasSplit := c.found.alone[layerKey{s.Name(), g}]
		switch {
		case wasSplit && !was:
			ladders[i][0] = g
		case was == wasSplit:
			wide[i], added[i] = g, weightBytes(g, &s)-weightBytes(f, &s)
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(added[a], added[b]) })
	left := float64(all * splitBytes)
	order = slices.DeleteFunc(order, func(i int) bool {
		if added[i] > left {
			return true
		}
		left -= added[i]
		two[sites[i].Name()] = wide[i]
		return false
	})
	if len(order) == 0 {
		return nil
	}
	price, total, err := c.dearer(ctx, trial, sites, one, two)
	if err != nil {
		return err
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(price[a], price[b]) })
	us := float64(total * dearerAll)
	for _, i := range order {
		if price[i] <= float64(total*dearerLayer) && price[i] <= us {
			us -= max(price[i], 0)
			ladders[i][0] = wide[i]
		}
	}
	return nil
}
