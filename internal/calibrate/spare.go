package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// spareBytes bounds what weights of 8 bits add where 4 are forced: of the bytes of all layers' weights. For driver
// monitoring 20 %, the fewest bytes first, lower relative L2 on pictures from 0.0488 to 0.0327 (6 fits, 2026-11-22);
// heads first and 30 % lower it by another 10 % over six sets, in 17 of 18 fits. Up to 38 % it is 11 %, but few 4-bit
// weights are left (2026-11-24). Small policy does not gain.
const spareBytes = 0.3

// spare makes e4m3 weights with 16-bit activations the narrowest candidate of some layers where 4-bit ones are
// forced, in place. Layers that multiply one vector an input come first: their weights are fitted to only that
// many vectors, and few later layers compensate for their errors. Then come the layers with the fewest bytes of
// weights: each adds as much error as a layer with many. Predicted times differ little, by 0.1 to 0.4 µs of 2 to
// 3.6, since reading weights does not bound these layers. It returns the reasons by site.
func (c *Calibration) spare(ctx context.Context, trial Trial, sites []passes.Site, ladders [][]precision.Layer) ([]string, error) {
	why := make([]string, len(sites))
	narrow, wide := Assignment{}, Assignment{}
	added, bytes := make([]float64, len(sites)), 0.0
	var order []int
	for i, s := range sites {
		narrow[s.Name()], wide[s.Name()] = ladders[i][0], ladders[i][0]
		bytes += weightBytes(ladders[i][0], &s)
		if at := slices.IndexFunc(ladders[i], eightBitWeights); at > 0 {
			order, wide[s.Name()] = append(order, i), ladders[i][at]
			added[i] = weightBytes(ladders[i][at], &s) - weightBytes(ladders[i][0], &s)
		}
	}
	if len(order) == 0 {
		return why, nil
	}
	price, total, err := c.dearer(ctx, trial, sites, narrow, wide)
	if err != nil {
		return nil, err
	}
	following := func(i int) int {
		if sites[i].Segmented() { // multiplies one vector an input
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(following(a), following(b)), cmp.Compare(added[a], added[b]), cmp.Compare(price[a], price[b]))
	})
	us, left := float64(total*dearerAll), float64(bytes*spareBytes)
	for _, i := range order {
		if price[i] > float64(total*dearerLayer) || price[i] > us || added[i] > left {
			continue
		}
		us, left = us-max(price[i], 0), left-added[i]
		from := ladders[i][0]
		ladders[i] = ladders[i][slices.IndexFunc(ladders[i], eightBitWeights):]
		why[i] = from.Name + " would be no faster"
		if price[i] > 0 {
			why[i] = fmt.Sprintf("%s would save %.2f µs", from.Name, price[i])
		}
		if added[i] > 0 {
			why[i] += fmt.Sprintf(", %.1f KB smaller", added[i]/1e3)
		}
	}
	return why, nil
}

// eightBitWeights reports whether a format has e4m3 weights alone.
func eightBitWeights(f precision.Layer) bool {
	return !f.Activations.Narrow() && f.Weights.Narrow() && f.Weights.Bits() == 8
}
