package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spark-compile/spark-compile/dora"
)

// measured is what a rank found of a micro-batch.
type measured struct {
	Loss  float64            `json:"loss"`
	Terms map[string]float64 `json:"terms"`
}

// judge is the mean loss over the samples that are kept from training. Ranks share them out by micro-batch, and all have the same
// result, which does not depend on how many ranks there are. Where the last micro-batch is not full, samples from the beginning fill it, and count again.
func (r *run) judge(ctx context.Context) (*Evaluation, error) {
	size, count := r.opt.MicroBatch, r.held.Len()
	parts := (count + size - 1) / size
	var order []int
	for k := r.group.Rank(); k < parts; k += r.group.Size() {
		for i := range size {
			order = append(order, (k*size+i)%count)
		}
	}
	lessons, stop := r.lessons(ctx, r.held, order, size)
	defer stop()
	var own []measured
	for range len(order) / size {
		l, err := r.next(ctx, lessons)
		if err != nil {
			return nil, err
		}
		if err := r.set(l); err != nil {
			return nil, err
		}
		loss, err := r.trainer.Evaluate(ctx)
		if err != nil {
			return nil, err
		}
		own = append(own, measured{loss, r.trainer.Terms()})
	}
	data, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("validation: the loss is not finite: %w", err)
	}
	gathered, err := r.group.Gather(ctx, data)
	if err != nil {
		return nil, err
	}
	all := make([]measured, parts)
	for rank, data := range gathered {
		var list []measured
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, err
		}
		for i, m := range list {
			all[rank+i*r.group.Size()] = m
		}
	}
	mean := newSums(parts)
	for _, m := range all {
		mean.add(m.Loss, m.Terms)
	}
	return &Evaluation{mean.loss, mean.terms()}, nil
}

// asBase calls f while the adapter changes nothing. What the device keeps is afterwards what it was.
func (r *run) asBase(ctx context.Context, f func() error) error {
	before, err := r.trainer.Snapshot()
	if err != nil {
		return err
	}
	var kept []dora.Layer
	for _, l := range r.adapter.Layers {
		kept = append(kept, *l)
	}
	r.adapter.Reset(r.opt.Seed)
	if err := r.trainer.Write(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	for i, l := range r.adapter.Layers {
		l.A, l.B, l.M = kept[i].A, kept[i].B, kept[i].M
	}
	return r.trainer.Restore(before)
}

// evaluateBase judges the model without its adapter.
func (r *run) evaluateBase(ctx context.Context) error {
	err := r.asBase(ctx, func() (err error) {
		r.pos.Base, err = r.judge(ctx)
		return err
	})
	if err != nil || !r.first() {
		return err
	}
	return r.keep(Record{Validation: r.pos.Base})
}

// evaluated judges the adapter as it is, and keeps it if it is the best.
func (r *run) evaluated(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	e, err := r.judge(ctx)
	if err != nil {
		return err
	}
	better := r.pos.Best == nil || e.Loss < r.pos.Best.Loss
	if !r.first() {
		if better {
			r.pos.Best, r.pos.BestAt = e, r.pos.Update
		}
		return nil
	}
	if better {
		if err := errors.Join(r.saveBest(e), r.draw(ctx)); err != nil {
			return err
		}
	}
	return r.keep(Record{Update: r.pos.Update, Epoch: float64(r.pos.Update) / float64(r.each), Validation: e})
}
