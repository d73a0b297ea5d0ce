// Package recovery damages a model and brings it back with an adapter, by distillation from the original.
package recovery

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/testdata/gen/damage"
)

// Apply damages a model so that its outputs on the inputs are off by a mean relative L2, or by what a rounding does. It also
// says how strong the damage is.
func Apply(ctx context.Context, d damage.Kind, m *dora.Model, b *Bench, chosen []*dora.Weight, relative float64, seed uint64) (*dora.Model, float64, error) {
	at := func(strength float64) (*dora.Model, float64, error) {
		file, err := m.WithRows(d.Rows(m, chosen, strength, seed))
		if err != nil {
			return nil, 0, err
		}
		damaged, err := dora.Open(file, onnx.ImportOptions{})
		if err != nil || d.Rounds() {
			return damaged, 0, err
		}
		q, err := b.Model(ctx, damaged)
		return damaged, q.Relative, err
	}
	if d.Rounds() {
		damaged, _, err := at(0)
		return damaged, 0, err
	}
	lo, hi := 0.0, 1.0
	var best *dora.Model
	for range 7 {
		mid := float64(0.5 * (lo + hi))
		damaged, off, err := at(mid)
		if err != nil {
			return nil, 0, err
		}
		if best = damaged; off < relative {
			lo = mid
		} else {
			hi = mid
		}
	}
	return best, float64(0.5 * (lo + hi)), nil
}

// Names are those of the layers.
func Names(weights []*dora.Weight) (out []string) {
	for _, w := range weights {
		out = append(out, w.Module)
	}
	slices.Sort(out)
	return out
}
