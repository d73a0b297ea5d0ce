package compile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// mostFronts is how many pairs of sizes are planned as a whole, of those that the plans of their parts put first.
const mostFronts = 3

// micro is how the launch list for a target computes a batch.
type micro struct {
	graph   *ir.Graph // of the samples that it computes at a time, in front of all passes
	repeats int       // how often it runs
	front   *fronted  // what computes the first layers of fewer samples; nil: none
}

// micro finds it: the batch as one, or micro-batches whose arena stays in L2. names are the passes.
func (r *Result) micro(ctx context.Context, t *target.Target, names []string) (*micro, error) {
	batch := r.opt.Import.Batch
	if err := r.opt.divisible(); err != nil {
		return nil, err
	}
	whole := &micro{graph: r.Source.Clone(), repeats: 1}
	if batch <= 1 || r.opt.MicroBatch == 0 && (r.opt.GraphOnly || r.opt.whole() != nil) {
		return whole, nil
	}
	size, front, err := r.fastest(ctx, t, names)
	if err != nil || size == batch && front == nil {
		return whole, err
	}
	g, err := r.opt.Sample.Batch(size)
	return &micro{g, batch / size, front}, err
}

// entry is the entry of a program; g is the graph behind all passes.
func (m *micro) entry(g *ir.Graph) (e codegen.Entry, err error) {
	e = entries(g)[0]
	if m.front != nil {
		e, err = m.front.entry(g)
	}
	e.Repeats = m.repeats
	return e, err
}

// divisible says why the batch cannot run in micro-batches of the sizes that were asked for.
func (opt *Options) divisible() error {
	batch, size, front := opt.Import.Batch, opt.MicroBatch, opt.Front
	switch {
	case size != 0 && size != batch && (size < 0 || batch%size != 0):
		return fmt.Errorf("a batch of %d has no micro-batches of %d samples: give a divisor of it, or 0 for the fastest", batch, size)
	case front != 0 && (size == 0 || front < 0 || front >= size || size%front != 0):
		return fmt.Errorf("micro-batches of %d samples have no front of %d: give a size, and a divisor of it that is smaller", size, front)
	case size == 0 || size == batch && front == 0:
		return nil
	}
	if err := opt.whole(); err != nil {
		return fmt.Errorf("micro-batches of %d samples: %w", size, err)
	}
	return nil
}

// whole says why a batch must run as one; nil if it need not.
func (opt *Options) whole() error {
	switch {
	case opt.Sample == nil:
		return errors.New("the file does not say that samples are computed apart: it has no batch of 1 inside, or --batch was not given")
	case precision.Calibrates(opt.Precision):
		return fmt.Errorf("precision %s is chosen on the graph of the whole batch: take fp16, bf16 or fp32", opt.Precision)
	case opt.Trace:
		return errors.New("traces compare launches with the graph of the whole batch")
	}
	return nil
}

// fastest is the size of the micro-batches that take the least time by estimate, and what runs in front of them. Sizes that were asked for are the
// only ones.
func (r *Result) fastest(ctx context.Context, t *target.Target, names []string) (size int, front *fronted, err error) {
	batch, asked := r.opt.Import.Batch, r.opt.MicroBatch
	if asked != 0 && r.opt.Front == 0 {
		return asked, nil, nil
	}
	var trials []*trial
	least := math.Inf(1) // a sample
	for n := 1; n <= batch; n++ {
		if batch%n != 0 || asked != 0 && n != asked && n != r.opt.Front {
			continue
		}
		p, err := r.try(ctx, t, names, n)
		if err != nil {
			return 0, nil, err
		}
		trials = append(trials, p)
		if us := p.us / float64(n); asked == 0 && us < least {
			size, least = n, us
		}
	}
	for _, f := range bestFronts(trials, mostFronts) {
		e, err := f.entry(f.rest.graph)
		if err != nil {
			return 0, nil, err
		}
		if f.us, _, err = plan(e, t, families.New(r.opt.chosen)); err != nil {
			return 0, nil, err
		}
		if us := f.us / float64(f.rest.size); us < least {
			size, front, least = f.rest.size, f, us
		}
	}
	if front == nil && asked != 0 {
		return 0, nil, fmt.Errorf("micro-batches of %d samples have no front of %d: no single value, with samples along an axis of its own, goes from first layers to the others", asked, r.opt.Front)
	}
	return size, front, nil
}

// trial is a plan of the launches for so many samples.
type trial struct {
	size  int
	graph *ir.Graph // behind all passes
	cuts  []cutPoint
	us    float64   // behind others of the same
	upTo  []float64 // of the launches of each node and of those in front of it, one by one
}

// try plans a micro-batch of so many samples.
func (r *Result) try(ctx context.Context, t *target.Target, names []string, size int) (*trial, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.opt.meter.Begin(0, "%s: micro-batches of %d", t.Name, size)
	g, err := r.opt.Sample.Batch(size)
	if err != nil {
		return nil, err
	}
	if err := passes.Run(r.opt.passContext(t), g, names, nil); err != nil {
		return nil, err
	}
	p := &trial{size: size, graph: g, cuts: cutsOf(g)}
	p.us, p.upTo, err = plan(entries(g)[0], t, families.New(r.opt.chosen))
	return p, err
}

// plan is the estimated time of an entry, and the sums of the times of its launches up to each node.
func plan(e codegen.Entry, t *target.Target, families codegen.Families) (us float64, upTo []float64, err error) {
	out, err := codegen.Plan([]codegen.Entry{e}, t, families)
	if err != nil {
		return 0, nil, err
	}
	us, times := profile.Planned(&out.Variant, &out.Variant.Entries[0], out.Works[0], t)
	upTo = make([]float64, len(e.Graph.Nodes))
	at := 0
	for i, n := range out.Regions[0] { // those of parts count as the node in front of them
		if k := slices.Index(e.Graph.Nodes[at:], n); k >= 0 {
			at += k
		}
		upTo[at] += times[i].US
	}
	for i := range upTo[1:] {
		upTo[i+1] += upTo[i]
	}
	return us, upTo, nil
}
