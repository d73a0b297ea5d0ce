package calibrate

import (
	"context"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// Weights rounds the weights of sites as they are to be stored, those without a format excepted: one layer after the other, behind those that
// are rounded already. What goes from layer to layer has 16 bits. It yields them by the name of the site.
func (c *Calibration) Weights(ctx context.Context, storage func(s *passes.Site) precision.Operand, tech Technique) (map[string]passes.Layer, error) {
	a := Assignment{}
	for _, s := range c.Sites() {
		if to := storage(&s); to.Format != nil {
			a[s.Name()] = precision.Layer{Weights: to, Activations: precision.Half.Activations}
		}
	}
	f, err := c.fit(ctx, a, tech)
	if err != nil {
		return nil, err
	}
	return f.Plan.Layers, nil
}
