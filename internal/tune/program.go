package tune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

const (
	alternatives = 4     // schedules of a kernel that the whole program is tried with
	scatter      = 0.005 // of a measured time
)

// estimate is the time of what a family planned; 0 where it planned nothing.
func estimate(w *cost.Work, t *target.Target) float64 {
	if w == nil {
		return 0
	}
	return cost.Of(t).Estimate(w).US
}

// whole is a program in the making: choices, its launch list, and the predicted time of that.
type whole struct {
	choices  fixed
	prefetch tunefile.Prefetch
	plan     *codegen.Schedules
	variant  *runtime.Variant
	us, cold float64
	failed   string // why it cannot run; "": it can
}

func (w *whole) total() float64 { return w.us + w.cold }

// judge is what programs are made and predicted with.
type judge struct {
	*Tuner
	entry    codegen.Entry
	target   *target.Target
	runnable func(v runtime.Variant, weights []byte) *runtime.Program
	tasks    map[string]*task // by signature
	others   map[other]counts
	tried    int
}

// other is the launch of a region whose kernel is not searched.
type other struct {
	region  *ir.Node
	fetches bool
}

// program chooses for the launch list as a whole: each kernel's schedule among the best of its own, then how
// weights are prefetched. A choice stays only if the whole is predicted to be faster.
func (u *Tuner) program(ctx context.Context, e codegen.Entry, t *target.Target, plan *codegen.Schedules, tasks []*task, meter *console.Meter, runnable func(v runtime.Variant, weights []byte) *runtime.Program) (*tunefile.Program, error) {
	meter.Begin(0, "%s: tuning the program as a whole", t.Name)
	j := &judge{Tuner: u, entry: e, target: t, runnable: runnable, tasks: map[string]*task{}, others: map[other]counts{}}
	usual, best := fixed{}, fixed{}
	for _, k := range tasks {
		j.tasks[k.signature] = k
		x := u.Table.Kernel(k.signature)
		usual[k.signature], best[k.signature] = x.Default, x.Schedule
		if len(k.best) == 0 { // found earlier
			k.best = []string{x.Schedule}
		}
	}
	base, err := j.make(ctx, usual, tunefile.Prefetch{}, plan)
	if err != nil {
		return nil, err
	}
	if base.failed != "" {
		return nil, fmt.Errorf("the program with its default schedules does not run on the device: %s", base.failed)
	}
	now, err := j.make(ctx, best, tunefile.Prefetch{}, plan)
	if err != nil {
		return nil, err
	}
	j.Trace.add("default", "", "", "", micro(base.us), micro(base.cold), "")
	j.Trace.add("best", "", "each kernel's own best schedule", "", micro(now.us), micro(now.cold), now.failed)
	if !j.better(now, base) {
		now = base
	}
	if now, err = j.split(ctx, now, tasks); err != nil {
		return nil, err
	}
	for range 2 {
		next, err := j.swap(ctx, now, tasks)
		if err != nil {
			return nil, err
		}
		if !j.better(next, now) {
			break
		}
		now = next
	}
	for _, a := range prefetches(t) {
		if j.over() {
			break
		}
		next, err := j.make(ctx, now.choices, a, now.plan)
		if err != nil {
			return nil, err
		}
		j.Trace.add("prefetch", "", a.String(), "", micro(next.us), micro(next.cold), next.failed)
		if j.better(next, now) {
			now = next
		}
	}
	out := &tunefile.Program{Kernels: now.choices, US: nanoseconds(now.us), ColdUS: nanoseconds(now.cold), DefaultUS: nanoseconds(base.us), DefaultColdUS: nanoseconds(base.cold), Evaluations: j.tried}
	if now.prefetch != (tunefile.Prefetch{}) {
		out.Prefetch = &now.prefetch
	}
	return out, nil
}

// prefetches are the alternatives to the default weight prefetch.
func prefetches(t *target.Target) (out []tunefile.Prefetch) {
	if !t.DependentLaunch {
		return nil
	}
	out = append(out, tunefile.Prefetch{Off: true}, tunefile.Prefetch{NoHints: true})
	for _, mb := range []int{1, 2, 4, 8, 12, 16} {
		out = append(out, tunefile.Prefetch{Window: mb << 20})
	}
	for _, us := range []float64{1, 2, 8, 16} {
		out = append(out, tunefile.Prefetch{BacklogUS: us})
	}
	return out
}

// make generates the program and predicts it. A plan has the same launches, whatever schedules they have; nil: it is made.
func (j *judge) make(ctx context.Context, choices fixed, a tunefile.Prefetch, plan *codegen.Schedules) (*whole, error) {
	e := j.entry
	e.Schedules, e.Prefetch = choices, codegen.Prefetch{Off: a.Off, NoHints: a.NoHints, Window: a.Window, Backlog: a.BacklogUS}
	if plan == nil {
		var err error
		if plan, err = codegen.Schedule(e, j.target, j.Families); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	weights := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{e}, j.target, j.Families, weights)
	if err != nil {
		return nil, err
	}
	w := &whole{choices: maps.Clone(choices), prefetch: a, plan: plan, variant: &r.Variant}
	if j.MeasureProgram == nil {
		w.us, w.cold, err = j.predict(w, choices)
		return w, err
	}
	j.tried++
	w.us, err = j.MeasureProgram(ctx, j.runnable(r.Variant, weights.Bytes()))
	if failed := (*FailedError)(nil); errors.As(err, &failed) {
		w.us, w.failed, err = math.Inf(1), failed.Why, nil
	}
	return w, err
}

// better reports whether a program takes less time than another: of measured ones by more than they scatter.
func (j *judge) better(a, b *whole) bool {
	if j.MeasureProgram != nil {
		return a.total() < b.total()*(1-scatter)
	}
	return a.total() < b.total()
}

// over reports whether the time for measuring is over. Predictions are few, and always made.
func (j *judge) over() bool {
	return j.MeasureProgram != nil && j.Budget > 0 && !j.now().Before(j.ends)
}

// predict is the time of a program whose kernels have the schedules of choices instead.
func (j *judge) predict(w *whole, choices fixed) (us, cold float64, err error) {
	j.tried++
	launches := w.variant.Entries[0].Launches
	fetches := map[string]bool{}
	for _, l := range launches {
		fetches[l.Kernel] = fetches[l.Kernel] || l.Prefetch != nil
	}
	var list []*emu.Counts
	for i, s := range w.plan.Specs {
		if s == nil {
			continue
		}
		f := fetches[launches[i].Kernel]
		n, known := j.others[other{w.plan.Regions[i], f}]
		if k := j.tasks[s.Signature]; k != nil {
			n, err = j.counted(k, version{choices[s.Signature], f}, w.plan.Context, j.target)
		} else if !known {
			n, err = countVersion(s, f, j.target)
			j.others[other{w.plan.Regions[i], f}] = n
		}
		if err != nil {
			return 0, 0, err
		}
		at := *n.of
		at.Op, at.Kernel = i, launches[i].Kernel
		list = append(list, &at)
	}
	p, err := profile.New(&runtime.Program{}, w.variant, j.entry.Name, list, j.target)
	if err != nil {
		return 0, 0, fmt.Errorf("predicting the program as a whole: %w", err)
	}
	return p.Total.US, p.Total.ColdUS, nil
}

// swap tries the best schedules of each kernel in the launch list of now, and makes the program of those that were better.
func (j *judge) swap(ctx context.Context, now *whole, tasks []*task) (*whole, error) {
	best, found := now, false
	for _, k := range tasks {
		list := append([]string{j.Table.Kernel(k.signature).Default}, k.best[:min(len(k.best), alternatives)]...)
		for _, s := range list {
			was := best.choices[k.signature]
			if s == was || was == kernel.Unfused {
				continue
			}
			if j.over() {
				break
			}
			next, err := j.exchanged(ctx, best, k.signature, s)
			if err != nil {
				return nil, err
			}
			j.Trace.add("swap", k.signature, s, "", micro(next.us), micro(next.cold), next.failed)
			if j.better(next, best) {
				best, found = next, true
			}
		}
	}
	if !found || j.MeasureProgram != nil {
		return best, nil
	}
	return j.make(ctx, best.choices, now.prefetch, now.plan) // predicted without the launch list of before
}

// exchanged is a program with another schedule of one kernel: measured, or predicted with the launch list as it is.
func (j *judge) exchanged(ctx context.Context, now *whole, signature, schedule string) (*whole, error) {
	choices := maps.Clone(now.choices)
	choices[signature] = schedule
	if j.MeasureProgram != nil {
		return j.make(ctx, choices, now.prefetch, now.plan)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	next := *now
	var err error
	next.choices = choices
	next.us, next.cold, err = j.predict(now, choices)
	return &next, err
}

// split tries each chain as launches of its own, whose kernels have their default schedules.
func (j *judge) split(ctx context.Context, now *whole, tasks []*task) (*whole, error) {
	for _, k := range tasks {
		if k.family != ir.FamilyFused {
			continue
		}
		if j.over() {
			break
		}
		choices := maps.Clone(now.choices)
		choices[k.signature] = kernel.Unfused
		next, err := j.make(ctx, choices, now.prefetch, nil)
		if err != nil {
			return nil, err
		}
		j.Trace.add("split", k.signature, kernel.Unfused, "", micro(next.us), micro(next.cold), next.failed)
		if j.better(next, now) {
			now = next
		}
	}
	return now, nil
}
