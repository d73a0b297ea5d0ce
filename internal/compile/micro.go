package compile

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// enoughWorse is how many sizes of a micro-batch in a row may take longer than the best before larger ones are left out. Time a frame falls
// while launches fill the device and share weights, and rises once the arena has left L2.
const enoughWorse = 2

// micro returns the graph that the launch list for a target computes, and how often that list repeats: the batch as one, or micro-batches
// whose arena stays in L2. names are the passes.
func (r *Result) micro(ctx context.Context, t *target.Target, names []string) (*ir.Graph, int, error) {
	batch, size := r.opt.Import.Batch, r.opt.MicroBatch
	if err := r.opt.divisible(); err != nil {
		return nil, 0, err
	}
	if size == 0 {
		var err error
		if size, err = r.fastest(ctx, t, names); err != nil {
			return nil, 0, err
		}
	}
	if size == batch || size == 0 {
		return r.Source.Clone(), 1, nil
	}
	g, err := r.opt.sample.Batch(size)
	return g, batch / size, err
}

// divisible says why the batch cannot run in micro-batches of the size that was asked for.
func (opt *Options) divisible() error {
	batch, size := opt.Import.Batch, opt.MicroBatch
	switch {
	case size == 0 || size == batch:
		return nil
	case size < 0 || batch%size != 0:
		return fmt.Errorf("a batch of %d has no micro-batches of %d samples: give a divisor of it, or 0 for the fastest", batch, size)
	}
	if err := opt.whole(); err != nil {
		return fmt.Errorf("micro-batches of %d samples: %w", size, err)
	}
	return nil
}

// whole says why a batch must run as one; nil if it need not.
func (opt *Options) whole() error {
	switch {
	case opt.sample == nil:
		return errors.New("the file does not say that samples are computed apart: it has no batch of 1 inside, or --batch was not given")
	case precision.Calibrates(opt.Precision):
		return fmt.Errorf("precision %s is chosen on the graph of the whole batch: take fp16, bf16 or fp32", opt.Precision)
	case opt.Trace:
		return errors.New("traces compare launches with the graph of the whole batch")
	}
	return nil
}

// fastest is the size of the micro-batches that take the least time by estimate: the batch itself if it must run as one.
func (r *Result) fastest(ctx context.Context, t *target.Target, names []string) (int, error) {
	batch := r.opt.Import.Batch
	if batch <= 1 || r.opt.GraphOnly || r.opt.whole() != nil {
		return batch, nil
	}
	best, least, worse := batch, math.Inf(1), 0
	for size := 1; size <= batch; size++ {
		if batch%size != 0 {
			continue
		}
		us, err := r.planned(ctx, t, names, size)
		if err != nil {
			return 0, err
		}
		if us = float64(us * float64(batch/size)); us < least {
			best, least, worse = size, us, 0
			continue
		}
		if worse++; worse == enoughWorse {
			break
		}
	}
	return best, nil
}

// planned is the estimated time of a micro-batch of so many samples, in µs, behind others of the same.
func (r *Result) planned(ctx context.Context, t *target.Target, names []string, size int) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r.opt.meter.Begin(0, "%s: micro-batches of %d", t.Name, size)
	g, err := r.opt.sample.Batch(size)
	if err != nil {
		return 0, err
	}
	if err := passes.Run(r.opt.passContext(t), g, names, nil); err != nil {
		return 0, err
	}
	out, err := codegen.Plan(entries(g), t, families)
	if err != nil {
		return 0, err
	}
	return profile.Planned(&out.Variant, &out.Variant.Entries[0], out.Works[0], t), nil
}
