package train

import (
	"context"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/console"
)

// rehearsed is the number of updates of a dry run.
const rehearsed = 3

// rehearse makes a few updates and says how long all of them would take. Nothing is written.
func (r *run) rehearse(ctx context.Context) error {
	say := func(format string, args ...any) {
		if r.first() {
			r.opt.Message(fmt.Sprintf(format, args...))
		}
	}
	held := 0
	if r.held != nil {
		held = r.held.Len()
	}
	say("%s: %s to train on, %d to judge on", r.opt.Data, console.Count(r.training.Len(), "sample"), held)
	say("%s in %s; %s of %s an epoch, %d in all", console.Count(r.adapter.Params(), "number"), console.Count(len(r.adapter.Layers), "layer"),
		console.Count(r.each, "update"), console.Count(r.opt.BatchSize*r.group.Size(), "sample"), r.each*r.opt.Epochs)
	say("%s", r.step.Explain())
	order := dataset.Shard(dataset.Shuffle(r.opt.Seed, 0, r.training.Len()), r.opt.BatchSize, r.group.Rank(), r.group.Size())
	lessons, stop := r.lessons(ctx, r.training, order, r.opt.BatchSize)
	defer stop()
	var took time.Duration
	for k := range min(rehearsed, r.each) {
		begun := time.Now()
		l, err := r.next(ctx, lessons)
		if err != nil {
			return err
		}
		sums, _, _, err := r.learn(ctx, l, r.schedule.at(r.pos.Update), false)
		if err != nil {
			return err
		}
		took = time.Since(begun)
		say("update %d: loss %.4g, %v", k+1, sums.loss, took.Round(time.Millisecond))
		r.pos.Update++
	}
	if r.teacher != nil {
		s := r.teacher.Stats()
		if s.Inferences == 0 {
			say("teacher: all that it says was in the cache")
		} else {
			say("teacher: %.3g inferences a second", s.Rate())
		}
	}
	say("all updates would take about %v, without evaluations; nothing was written", (took * time.Duration(r.each*r.opt.Epochs)).Round(time.Second))
	return nil
}
