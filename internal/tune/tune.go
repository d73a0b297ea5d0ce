// Package tune searches for better schedules than the cost model chooses by itself. A kernel is judged by what the CPU device counts of the real
// one, or by its time on a device; then the launch list as a whole, by the predicted time of all launches in a row.
//
//	search.go   the search through the schedules of one kernel
//	count.go    what a kernel costs by counts
//	program.go  choices for a program as a whole
//	trace.go    what was tried, as a table
//	device.go   what a kernel takes on a device, in a process of its own; worker.go: that process
package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Tuner searches for the schedules of programs, within a budget.
type Tuner struct {
	Budget      time.Duration   // 0: no bound
	Evaluations int             // of kernels, in all; 0: no bound. With this bound alone the result is the same on every machine
	Beam        int             // plans from which a search goes on; at least 1
	Table       *tunefile.Table // what is known and is not searched again, and where findings are added
	Path        string          // file that Table is written to after each kernel; "": none
	Trace       *Trace          // what was tried, written with Table; nil: nobody wants to know
	Families    *kernel.Families

	// Measure times a kernel on a device, in µs; nil: kernels are judged by counts.
	Measure func(ctx context.Context, s *kernel.Spec, t *target.Target) (float64, error)

	// MeasureProgram times a run of a program on a device, in µs; nil, and Measure is not: launch lists as a whole are not searched.
	MeasureProgram func(ctx context.Context, p *runtime.Program) (float64, error)

	Closing func() // ends what Measure needs; nil: nothing

	Found []string // what was found, in lines for people

	tried int
	ends  time.Time
	now   func() time.Time // nil: time.Now
	done  func(kernel int) // nil: nobody wants to know that a kernel is written; for tests
}

// task is one kernel of a program.
type task struct {
	signature string
	region    *ir.Node
	family    string
	launches  int
	us        float64 // of all launches, as the family estimates them
	space     *kernel.Space
	best      []string           // schedules that were evaluated, the best first
	known     map[version]counts // of those
}

// version is a kernel with a schedule, and whether it begins with a prefetch.
type version struct {
	schedule string
	fetches  bool
}

// fixed is a choice of one schedule, or of several by signature.
type fixed map[string]string

func (f fixed) Schedule(signature string) (string, bool) { s, ok := f[signature]; return s, ok }

// Tune searches for the schedules of an entry's kernels that the table does not know, and then for the best of the whole.
func (u *Tuner) Tune(ctx context.Context, model string, e codegen.Entry, t *target.Target, meter *console.Meter, program func(v runtime.Variant, weights []byte) *runtime.Program) error {
	if u.now == nil {
		u.now = time.Now
	}
	if u.Budget > 0 {
		u.ends = u.now().Add(u.Budget)
	}
	name := e.Signature()
	if u.Table.Program(name) != nil {
		u.Found = append(u.Found, "this program is tuned already: "+u.Path)
		return nil
	}
	e.Schedules = nil
	plan, err := codegen.Schedule(e, t, u.Families)
	if err != nil {
		return err
	}
	tasks := tasksOf(plan, t)
	meter.Begin(0, "%s: tuning", t.Name)
	better, left := 0, 0
	for i, k := range tasks {
		meter.Step(i, len(tasks), float64(i)/float64(len(tasks)))
		if err := ctx.Err(); err != nil {
			return err
		}
		if u.Table.Kernel(k.signature) == nil {
			searched, err := u.kernel(ctx, k, plan.Context, t, len(tasks)-i)
			if err != nil {
				return err
			}
			if !searched {
				left++
				continue
			}
			if err := u.keep(); err != nil {
				return err
			}
			if u.done != nil {
				u.done(i)
			}
		}
		if x := u.Table.Kernel(k.signature); x.Schedule != x.Default {
			better++
		}
	}
	u.Found = append(u.Found, fmt.Sprintf("%d of %s have a faster schedule than by default, by %s", better, console.Count(len(tasks), "kernel"), console.Count(u.tried, "evaluation")))
	if left > 0 {
		u.Found = append(u.Found, fmt.Sprintf("the budget ended before %s: run again with the same --tune-file to go on", console.Count(left, "kernel")))
		return nil
	}
	if u.Measure != nil && u.MeasureProgram == nil { // counts would not confirm what was measured
		return nil
	}
	p, err := u.program(ctx, e, t, plan, tasks, meter, program)
	if err != nil {
		return err
	}
	p.Name, p.Model = name, model
	u.Table.Programs = append(u.Table.Programs, *p)
	u.Found = append(u.Found, u.verdict(p, t))
	return u.keep()
}

// verdict says what the search made of a program.
func (u *Tuner) verdict(p *tunefile.Program, t *target.Target) string {
	verdict := "the default schedules are best"
	if p.US+p.ColdUS < p.DefaultUS+p.DefaultColdUS {
		verdict = fmt.Sprintf("%.1f %% less", 100*(1-(p.US+p.ColdUS)/(p.DefaultUS+p.DefaultColdUS)))
	}
	if u.MeasureProgram != nil {
		return fmt.Sprintf("measured: %.1f µs, by default %.1f: %s", p.US, p.DefaultUS, verdict)
	}
	return fmt.Sprintf("predicted on %s: %.1f µs, by default %.1f; with cold weights %.1f, by default %.1f: %s", t.Device, p.US, p.DefaultUS, p.ColdUS, p.DefaultColdUS, verdict)
}

// Close ends what measuring needs.
func (u *Tuner) Close() {
	if u.Closing != nil {
		u.Closing()
	}
}

// keep writes the table.
func (u *Tuner) keep() error {
	if u.Path == "" {
		return nil
	}
	if err := u.Table.Write(u.Path); err != nil {
		return err
	}
	return u.Trace.write()
}

// tasksOf lists the kernels of a program that may have other schedules, those first that take longest.
func tasksOf(plan *codegen.Schedules, t *target.Target) []*task {
	var out []*task
	for i, s := range plan.Specs {
		if s == nil || s.Signature == "" {
			continue
		}
		at := slices.IndexFunc(out, func(k *task) bool { return k.signature == s.Signature })
		if at < 0 {
			at = len(out)
			out = append(out, newTask(s.Signature, plan.Regions[i], s.Family))
		}
		out[at].launches++
		out[at].us += estimate(s.Work, t)
	}
	slices.SortStableFunc(out, func(a, b *task) int {
		switch {
		case a.us > b.us:
			return -1
		case a.us < b.us:
			return 1
		}
		return strings.Compare(a.signature, b.signature)
	})
	return out
}

func newTask(signature string, region *ir.Node, family string) *task {
	return &task{signature: signature, region: region, family: family, known: map[version]counts{}}
}

// spec lowers a task's kernel with a schedule.
func (u *Tuner) spec(k *task, schedule string, c *kernel.Context) (*kernel.Spec, error) {
	in := *c
	in.Schedules = fixed{k.signature: schedule}
	return u.Families.Lower(k.region, &in)
}

// counted are the counts of a version of a task's kernel.
func (u *Tuner) counted(k *task, v version, c *kernel.Context, t *target.Target) (counts, error) {
	if have, ok := k.known[v]; ok {
		return have, nil
	}
	s, err := u.spec(k, v.schedule, c)
	if err != nil {
		return counts{}, err
	}
	n, err := countVersion(s, v.fetches, t)
	if err == nil {
		k.known[v] = n
	}
	return n, err
}

// countVersion counts a kernel, preceded by an empty prefetch if it fetches.
func countVersion(s *kernel.Spec, fetches bool, t *target.Target) (counts, error) {
	if fetches {
		s = codegen.Fetching(s)
	}
	return count(s, t)
}

// kernel searches the schedules of one kernel, with its share of the budget, and adds what it found to the table. It reports whether there was time.
func (u *Tuner) kernel(ctx context.Context, k *task, c *kernel.Context, t *target.Target, left int) (searched bool, err error) {
	if !u.remains() {
		return false, nil
	}
	if k.space, err = u.Families.Space(k.region, c); err != nil {
		return false, fmt.Errorf("tuning %q: %w", k.signature, err)
	}
	if k.space == nil || k.space.Signature != k.signature {
		return false, fmt.Errorf("tuning %q: its family knows no schedules of it: this is a bug, please report it", k.signature)
	}
	most, until := -1, time.Time{}
	if u.Evaluations > 0 {
		most = max(1, (u.Evaluations-u.tried)/left)
	}
	if u.Budget > 0 {
		// A part of the time is for the program as a whole.
		until = u.now().Add(time.Duration(float64(u.ends.Sub(u.now())) * kernelsShare / float64(left)))
	}
	s := &search{space: k.space, beam: u.Beam, more: func(n int) bool {
		return ctx.Err() == nil && (most < 0 || n < most) && (until.IsZero() || u.now().Before(until))
	}, cost: func(p kernel.Candidate) (float64, error) {
		u.tried++
		us, err := u.cost(ctx, k, p.Schedule, c, t)
		failed := (*FailedError)(nil)
		switch {
		case err == nil:
			u.Trace.add("kernel", k.signature, p.Schedule, micro(p.US), micro(us), "", "")
		case errors.As(err, &failed):
			u.Trace.add("kernel", k.signature, p.Schedule, micro(p.US), "", "", failed.Why)
		}
		return us, err
	}}
	order, err := s.run()
	if err == nil {
		err = ctx.Err() // half a search is no finding
	}
	if err != nil {
		return false, err
	}
	if len(order) == 0 {
		return false, fmt.Errorf("tuning %q: no schedule works, not even the default %s: %s", k.signature, k.space.Default, s.bad[0].Why)
	}
	cost := map[string]float64{}
	for _, i := range order {
		p := k.space.Candidates[i].Schedule
		cost[p] = s.seen[i]
		k.best = append(k.best, p)
	}
	found := tunefile.Kernel{Name: k.signature, Default: k.space.Default, Schedule: k.best[0], DefaultUS: nanoseconds(cost[k.space.Default]), US: nanoseconds(cost[k.best[0]]), Evaluations: s.tried, Bad: s.bad}
	if found.DefaultUS > 0 && found.US > found.DefaultUS*(1-leastGain) {
		found.Schedule, found.US = found.Default, found.DefaultUS
	}
	u.Table.Kernels = append(u.Table.Kernels, found)
	return true, nil
}

// cost is the time of a task's kernel with a schedule: measured where there is a device, else by counts.
func (u *Tuner) cost(ctx context.Context, k *task, schedule string, c *kernel.Context, t *target.Target) (float64, error) {
	if u.Measure == nil {
		n, err := u.counted(k, version{schedule: schedule}, c, t)
		return n.us, err
	}
	s, err := u.spec(k, schedule, c)
	if err != nil {
		return 0, err
	}
	return u.Measure(ctx, s, t)
}

// nanoseconds is a time in µs that a file shows: to the nanosecond.
func nanoseconds(us float64) float64 { return math.Round(us*1e3) / 1e3 }

const (
	leastGain    = 0.001 // of a kernel's time that makes another schedule worth an entry
	kernelsShare = 0.8   // of the time, for kernels by themselves
)

// remains reports whether the budget allows another kernel.
func (u *Tuner) remains() bool {
	return (u.Evaluations == 0 || u.tried < u.Evaluations) && (u.Budget == 0 || u.now().Before(u.ends))
}
