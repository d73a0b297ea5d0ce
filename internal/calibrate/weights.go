package calibrate

import (
	"context"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// Weights rounds the weights of all sites with a format to their stored form, in order: each layer sees the errors
// of those that are already rounded. Values between layers have 16 bits. It returns the weights by the site's
// name.
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
