package tune

import (
	"context"
	"fmt"
	"maps"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/progress"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/tuning"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// alternatives is how many schedules of a kernel the whole program is tried with.
const alternatives = 4

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
	ahead    tuning.Ahead
	plan     *codegen.Schedules
	variant  *runtime.Variant
	us, cold float64
}

func (w *whole) total() float64 { return w.us + w.cold }

// judge is what programs are made and predicted with.
type judge struct {
	*Tuner
	entry  codegen.Entry
	target *target.Target
	tasks  map[string]*task // by signature
	others map[other]counts
	tried  int
}

// other is the launch of a region whose kernel is not searched.
type other struct {
	region  *ir.Node
	fetches bool
}

// program chooses for the launch list as a whole: each kernel's schedule among the best of its own, then how weights come ahead. A choice stays only if
// the whole is predicted to be faster.
func (u *Tuner) program(ctx context.Context, e codegen.Entry, t *target.Target, plan *codegen.Schedules, tasks []*task, meter *progress.Meter) (*tuning.Program, error) {
	meter.Begin(0, "%s: tuning the program as a whole", t.Name)
	j := &judge{Tuner: u, entry: e, target: t, tasks: map[string]*task{}, others: map[other]counts{}}
	usual, best := fixed{}, fixed{}
	for _, k := range tasks {
		j.tasks[k.signature] = k
		x := u.Table.Kernel(k.signature)
		usual[k.signature], best[k.signature] = x.Default, x.Schedule
		if len(k.best) == 0 { // found earlier
			k.best = []string{x.Schedule}
		}
	}
	base, err := j.make(usual, tuning.Ahead{}, plan)
	if err != nil {
		return nil, err
	}
	now, err := j.make(best, tuning.Ahead{}, plan)
	if err != nil {
		return nil, err
	}
	j.Trace.add("default", "", "", "", micro(base.us), micro(base.cold), "")
	j.Trace.add("best", "", "each kernel's own best schedule", "", micro(now.us), micro(now.cold), "")
	if base.total() <= now.total() {
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
		if next == nil || next.total() >= now.total() {
			break
		}
		now = next
	}
	for _, a := range aheads(t) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		next, err := j.make(now.choices, a, now.plan)
		if err != nil {
			return nil, err
		}
		j.Trace.add("ahead", "", a.String(), "", micro(next.us), micro(next.cold), "")
		if next.total() < now.total() {
			now = next
		}
	}
	out := &tuning.Program{Kernels: now.choices, US: nanoseconds(now.us), ColdUS: nanoseconds(now.cold), DefaultUS: nanoseconds(base.us), DefaultColdUS: nanoseconds(base.cold), Evaluations: j.tried}
	if now.ahead != (tuning.Ahead{}) {
		out.Ahead = &now.ahead
	}
	return out, nil
}

// aheads are the ways in which weights may come ahead, beside the default.
func aheads(t *target.Target) (out []tuning.Ahead) {
	if !t.DependentLaunch {
		return nil
	}
	out = append(out, tuning.Ahead{Off: true}, tuning.Ahead{NoHints: true})
	for _, mb := range []int{1, 2, 4, 8, 12, 16} {
		out = append(out, tuning.Ahead{Window: mb << 20})
	}
	for _, us := range []float64{1, 2, 8, 16} {
		out = append(out, tuning.Ahead{BacklogUS: us})
	}
	return out
}

// make generates the program and predicts it. A plan has the same launches, whatever schedules they have; nil: it is made.
func (j *judge) make(choices fixed, a tuning.Ahead, plan *codegen.Schedules) (*whole, error) {
	e := j.entry
	e.Choices, e.Ahead = choices, codegen.Ahead{Off: a.Off, NoHints: a.NoHints, Window: a.Window, Backlog: a.BacklogUS}
	if plan == nil {
		var err error
		if plan, err = codegen.Schedule(e, j.target, j.Families); err != nil {
			return nil, err
		}
	}
	r, err := codegen.Generate([]codegen.Entry{e}, j.target, j.Families, codegen.NewWeights())
	if err != nil {
		return nil, err
	}
	w := &whole{choices: maps.Clone(choices), ahead: a, plan: plan, variant: &r.Variant}
	w.us, w.cold, err = j.predict(w, choices)
	return w, err
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

// swap tries the best schedules of each kernel in the launch list of now, and makes the program of those that were better; nil: none was.
func (j *judge) swap(ctx context.Context, now *whole, tasks []*task) (*whole, error) {
	choices, least, found := maps.Clone(now.choices), now.total(), false
	for _, k := range tasks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list := append([]string{j.Table.Kernel(k.signature).Default}, k.best[:min(len(k.best), alternatives)]...)
		for _, s := range list {
			was := choices[k.signature]
			if s == was || was == kernel.Apart {
				continue
			}
			choices[k.signature] = s
			us, cold, err := j.predict(now, choices)
			if err != nil {
				return nil, err
			}
			j.Trace.add("swap", k.signature, s, "", micro(us), micro(cold), "")
			if us+cold < least {
				least, found = us+cold, true
			} else {
				choices[k.signature] = was
			}
		}
	}
	if !found {
		return nil, nil
	}
	return j.make(choices, now.ahead, now.plan)
}

// split tries each chain as launches of its own, whose kernels have their default schedules.
func (j *judge) split(ctx context.Context, now *whole, tasks []*task) (*whole, error) {
	for _, k := range tasks {
		if k.family != ir.FamilyChain {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		choices := maps.Clone(now.choices)
		choices[k.signature] = kernel.Apart
		next, err := j.make(choices, now.ahead, nil)
		if err != nil {
			return nil, err
		}
		j.Trace.add("split", k.signature, kernel.Apart, "", micro(next.us), micro(next.cold), "")
		if next.total() < now.total() {
			now = next
		}
	}
	return now, nil
}
