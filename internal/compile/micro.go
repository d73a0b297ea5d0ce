package compile

import (
	"context"
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

// maxPrefixes is how many pairs of sizes are planned as a whole, of those that the plans of their parts put first.
const maxPrefixes = 3

// batching is how many samples a micro-batch has, and how many its first layers compute at a time.
type batching struct{ size, prefix int }

// micro is how the launch list for a target computes a batch.
type micro struct {
	graph   *ir.Graph // of the samples that it computes at a time, before all passes
	repeats int       // how often it runs
	prefix  *prefixed // what computes the first layers of fewer samples; nil: none
}

// micro finds it: the batch as one, or micro-batches whose arena stays in L2. names are the passes.
func (r *Result) micro(ctx context.Context, t *target.Target, names []string) (*micro, error) {
	batch := r.opt.Import.Batch
	whole := &micro{graph: r.Source.Clone(), repeats: 1}
	if batch <= 1 || !r.opt.cuttable() {
		return whole, nil
	}
	size, prefix, err := r.fastest(ctx, t, names)
	if err != nil || size == batch && prefix == nil {
		return whole, err
	}
	g, err := r.opt.Sample.Batch(size)
	return &micro{g, batch / size, prefix}, err
}

// entry is the entry of a program; g is the graph after all passes.
func (m *micro) entry(g *ir.Graph) (e codegen.Entry, err error) {
	e = entries(g)[0]
	if m.prefix != nil {
		e, err = m.prefix.entry(g)
	}
	e.Repeats = m.repeats
	return e, err
}

// cuttable reports whether the batch may run in micro-batches: its samples are independent, and nothing is chosen
// or traced on the graph of the whole batch.
func (opt *Options) cuttable() bool {
	return opt.Sample != nil && !opt.GraphOnly && !precision.Calibrates(opt.Precision) && !opt.Trace
}

// fastest is the size of micro-batches with the lowest predicted time, and the batch prefix that runs before them.
func (r *Result) fastest(ctx context.Context, t *target.Target, names []string) (size int, prefix *prefixed, err error) {
	batch, asked := r.opt.Import.Batch, r.opt.batching
	if asked.size != 0 && asked.prefix == 0 {
		return asked.size, nil, nil
	}
	var trials []*trial
	least := math.Inf(1) // a sample
	for n := 1; n <= batch; n++ {
		if batch%n != 0 || asked.size != 0 && n != asked.size && n != asked.prefix {
			continue
		}
		p, err := r.try(ctx, t, names, n)
		if err != nil {
			return 0, nil, err
		}
		trials = append(trials, p)
		if us := p.us / float64(n); asked.size == 0 && us < least {
			size, least = n, us
		}
	}
	for _, f := range bestPrefixes(trials, maxPrefixes) {
		e, err := f.entry(f.rest.graph)
		if err != nil {
			return 0, nil, err
		}
		if f.us, _, err = launchTimes(e, t, families.New(r.opt.chosen)); err != nil {
			return 0, nil, err
		}
		if us := f.us / float64(f.rest.size); us < least {
			size, prefix, least = f.rest.size, f, us
		}
	}
	return size, prefix, nil
}

// trial is a plan of the launches for so many samples.
type trial struct {
	size  int
	graph *ir.Graph // after all passes
	cuts  []cutPoint
	us    float64   // after other runs of the same
	upTo  []float64 // up to and including the launches of each node
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
	p.us, p.upTo, err = launchTimes(entries(g)[0], t, families.New(r.opt.chosen))
	return p, err
}

// launchTimes is the estimated time of an entry, and the sums of the times of its launches up to each node.
func launchTimes(e codegen.Entry, t *target.Target, families codegen.Families) (us float64, upTo []float64, err error) {
	out, err := codegen.PlanLaunches([]codegen.Entry{e}, t, families)
	if err != nil {
		return 0, nil, err
	}
	us, times := profile.Planned(&out.Variant, &out.Variant.Entries[0], out.Works[0], t)
	upTo = make([]float64, len(e.Graph.Nodes))
	at := 0
	for i, n := range out.Regions[0] { // a region that is no node counts as the node before it
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
