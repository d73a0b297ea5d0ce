package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora"
)

// measured is what a rank found of a micro-batch.
type measured struct {
	Loss  float64            `json:"loss"`
	Terms map[string]float64 `json:"terms"`
	Wrong string             `json:"wrong,omitempty"` // its first sample, where the loss is not finite
}

// portion is a micro-batch of an evaluation, and what its mean counts in that of all samples.
type portion struct {
	samples []int
	weight  float64
}

// portions are micro-batches of which the weighted sum is the mean over so many samples, each counted once. A last one that is not full is filled with its last sample;
// another one, of this sample alone, takes away what that adds.
func portions(count, size int) (out []portion) {
	for from := 0; from < count; from += size {
		p := portion{weight: float64(size) / float64(count)}
		for i := range size {
			p.samples = append(p.samples, min(from+i, count-1))
		}
		out = append(out, p)
	}
	switch rest := count % size; {
	case rest == 1: // the last one is of one sample already
		out[len(out)-1].weight = 1 / float64(count)
	case rest > 1:
		out = append(out, portion{slices.Repeat([]int{count - 1}, size), -float64(size-rest) / float64(count)})
	}
	return out
}

// judge is the mean loss over the samples that are kept from training. Ranks share them out by micro-batch, and all have the same
// result, which does not depend on how many ranks there are.
func (r *run) judge(ctx context.Context) (*Evaluation, error) {
	parts := portions(r.held.Len(), r.opt.MicroBatch)
	var order []int
	for k := r.group.Rank(); k < len(parts); k += r.group.Size() {
		order = append(order, parts[k].samples...)
	}
	own, err := r.measure(ctx, order)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	gathered, err := r.group.Gather(ctx, data)
	if err != nil {
		return nil, err
	}
	all := make([]measured, len(parts))
	for rank, data := range gathered {
		var list []measured
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, err
		}
		for i, m := range list {
			all[rank+i*r.group.Size()] = m
		}
	}
	mean := newSums(1)
	for k, m := range all {
		if m.Wrong != "" {
			return nil, r.notFinite(m.Wrong)
		}
		for name := range m.Terms {
			m.Terms[name] *= parts[k].weight
		}
		mean.add(float64(m.Loss*parts[k].weight), m.Terms)
	}
	return &Evaluation{mean.loss, mean.terms()}, nil
}

// notFinite is the error of a validation loss that is none, of a micro-batch that begins with a sample. No adapter is
// the best by it, so training ends: on all ranks after the same update, with the last checkpoint and the best adapter
// as they are. The model without an adapter is judged first, so what comes later is not the data's fault.
func (r *run) notFinite(sample string) error {
	where := fmt.Sprintf("the loss is not finite of sample %s or one of the %d behind it", sample, r.opt.MicroBatch-1)
	if r.pos.Base == nil {
		return fmt.Errorf("validation: %s: take it out of %s, or train in --precision fp32", where, r.opt.Data)
	}
	remedy := "begin anew with a smaller --lr or --clip, or in --precision fp32"
	if r.pos.Best != nil {
		remedy += fmt.Sprintf("; %s is the adapter of update %d", filepath.Join(r.opt.Output, bestFile), r.pos.BestAt)
	}
	return fmt.Errorf("validation after update %d: %s, and it was without the adapter: %s", r.pos.Update, where, remedy)
}

// measure evaluates held samples, a micro-batch at a time.
func (r *run) measure(ctx context.Context, order []int) (out []measured, err error) {
	lessons, stop := r.lessons(ctx, r.held, order, r.opt.MicroBatch)
	defer stop()
	for range len(order) / r.opt.MicroBatch {
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
		m := measured{Loss: loss, Terms: r.trainer.Terms()}
		if finite(loss) != loss {
			m = measured{Wrong: l.samples[0].Key}
		}
		out = append(out, m)
	}
	return out, nil
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
