package train

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/dora/loss"
	"github.com/spark-compile/spark-compile/dora/teacher"
)

// spreadSamples are as many as the variation of the teacher's values is measured on.
const spreadSamples = 64

// leastSpread is the least variation, as a part of the mean square, that errors are related to: a hundredth of the values' size. Of values that hardly change, what the
// teacher's precision rounds would count most.
const leastSpread = 1e-4

// related gives terms of squares the variation of the teacher's values over the first samples to train on, which the first rank measures for all. Relative to it
// a squared error is the variation that is not explained, whatever the values' mean.
func (r *run) related(ctx context.Context, terms loss.Terms) (loss.Terms, error) {
	if r.teacher == nil {
		return terms, nil
	}
	var data []byte
	if r.first() {
		spreads, err := r.spreads(ctx, terms)
		if err != nil {
			return nil, err
		}
		if data, err = json.Marshal(spreads); err != nil {
			return nil, err
		}
	}
	data, err := share(ctx, r.group, data)
	if err != nil {
		return nil, err
	}
	var spreads map[string]float64
	if err := json.Unmarshal(data, &spreads); err != nil {
		return nil, err
	}
	return terms.Spread(spreads), nil
}

// spreads are those of what terms of squares compare, by their names; there may be none.
func (r *run) spreads(ctx context.Context, terms loss.Terms) (map[string]float64, error) {
	order := dataset.Shuffle(r.opt.Seed, 0, r.training.Len())
	order = order[:min(len(order), spreadSamples)]
	lessons, stop := r.lessons(ctx, r.training, order, r.opt.TeacherBatch)
	defer stop()
	var v teacher.Variation
	for l := range lessons {
		if l.err != nil {
			return nil, l.err
		}
		for _, x := range l.values {
			squared := terms.Squared(x)
			if len(squared) == 0 {
				return nil, nil
			}
			if isFinite(squared) { // else the update leaves the sample out too
				v.Add(squared)
			}
		}
	}
	spreads := v.Spreads()
	for name, square := range v.Squares() {
		spreads[name] = max(spreads[name], leastSpread*square)
	}
	return spreads, ctx.Err()
}

func isFinite(values map[string][]float32) bool {
	for _, x := range values {
		if slices.ContainsFunc(x, func(v float32) bool { return finite(float64(v)) != float64(v) }) {
			return false
		}
	}
	return true
}
