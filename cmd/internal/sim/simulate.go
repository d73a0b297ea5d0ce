package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
)

// errStopped ends a rank whose loops have not ended, since another one was interrupted.
var errStopped = errors.New("another rank was interrupted")

// simulation is the loops that a report lacks, in units that the ranks run in turn.
type simulation struct {
	*report
	job    *job
	first  int // loop
	unit   int // loops of one
	rounds int // in each of which each rank runs a unit, or has none left
	round  int // the next one

	left  []scenario.Checkpoint // of units that are on their way when the run stops, First among all loops
	ended func() error          // loops have ended, of which the first rank's report has the metrics
}

// newSimulation cuts the loops from one on into units: of the checkpoints, if there are some, else the largest that
// run at once on each rank.
func newSimulation(r *report, j *job, s *start, most int) *simulation {
	x := &simulation{report: r, job: j, first: s.Ended}
	rest := r.total() - x.first
	x.unit = min(most, (rest+j.size()-1)/j.size())
	for _, c := range s.Checkpoints {
		if c.First == x.first && c.Loops <= most {
			x.unit = c.Loops
		}
	}
	x.unit = max(x.unit, 1)
	units := (rest + x.unit - 1) / x.unit
	x.rounds = (units + j.size() - 1) / j.size()
	return x
}

// at is the first loop of a rank's unit of a round.
func (x *simulation) at(round, rank int) int { return x.first + (round*x.job.size()+rank)*x.unit }

// own are the loops of this rank, and those of the checkpoints that belong to them.
func (x *simulation) own(list []scenario.Checkpoint) (loops []scenario.Scenario, own []scenario.Checkpoint, err error) {
	for round := range x.rounds {
		from := x.at(round, x.job.rank())
		for _, c := range list {
			if c.First == from {
				c.First = len(loops)
				own = append(own, c)
			}
		}
		for i := from; i < min(from+x.unit, x.total()); i++ {
			s, err := x.draw(i)
			if err != nil {
				return nil, nil, err
			}
			loops = append(loops, s)
		}
	}
	return loops, own, nil
}

// next ends a round of this rank: the first rank's report gets what all have done in it.
func (x *simulation) next(ctx context.Context, p part) error {
	parts, err := x.job.exchange(ctx, p)
	if err != nil {
		if p.Checkpoint != nil {
			x.keep(x.job.rank(), *p.Checkpoint)
		}
		return err
	}
	stopped, gap := false, false
	for rank, p := range parts {
		stopped = stopped || p.Stopped
		switch {
		case x.at(x.round, rank) >= x.total(): // it had none
		case p.Metrics == nil:
			gap = true
			if p.Checkpoint != nil {
				x.keep(rank, *p.Checkpoint)
			}
		case gap:
			x.keep(rank, scenario.Checkpoint{Loops: len(p.Metrics), Metrics: p.Metrics})
		case x.job.rank() == 0:
			x.Metrics = append(x.Metrics, p.Metrics...)
		}
	}
	x.round++
	if x.job.rank() == 0 {
		if err := x.ended(); err != nil {
			return err
		}
	}
	if stopped && x.round < x.rounds || gap {
		return errStopped
	}
	return nil
}

// keep notes a rank's unit of the round as one on its way.
func (x *simulation) keep(rank int, c scenario.Checkpoint) {
	c.First = x.at(x.round, rank)
	x.left = append(x.left, c)
}

// run runs the loops.
func (x *simulation) run(ctx context.Context, run *scenario.Runner, a scenario.Algorithm, list []scenario.Checkpoint) (
	result *scenario.Result, err error,
) {
	loops, own, err := x.own(list)
	if err != nil {
		return nil, err
	}
	run.Batch, run.Checkpoints = x.unit, own
	var at *scenario.Checkpoint
	run.Stopped = func(c *scenario.Checkpoint) {
		if c.Step > 0 {
			at = c
		}
	}
	var failed error // of a round: the others know
	run.Ended = func(_ int, metrics [][]float64) error {
		failed = x.next(ctx, part{Metrics: metrics, Stopped: ctx.Err() != nil})
		return failed
	}
	if len(loops) > 0 {
		work, cancel := x.job.watched(ctx)
		defer cancel()
		var err error
		result, err = run.RunBatch(work, loops, a, 1, x.Seed)
		if err != nil && failed == nil && errors.Is(err, context.Canceled) {
			failed = errors.Join(x.next(ctx, part{Stopped: true, Checkpoint: at}), ctx.Err())
		}
		if failed == nil {
			failed = err
		}
	}
	for failed == nil && x.round < x.rounds {
		failed = x.next(ctx, part{Stopped: ctx.Err() != nil})
	}
	if errors.Is(failed, errStopped) {
		failed = errors.Join(ctx.Err(), cli.ErrInterrupted)
	}
	return result, failed
}

// simulate runs the loops that a report does not have yet; end says how much that was. If it is stopped by an error,
// the report is partial and has those that ended before, and left are those on their way.
func (f *runFlags) simulate(ctx context.Context, j *job, s *start, out *lines, stderr io.Writer) (
	end string, left []scenario.Checkpoint, err error,
) {
	r := s.Report
	a, err := scenario.Named(r.Algorithm)
	if err != nil {
		return "", nil, err
	}
	d, notice, err := detect.Open(ctx, detect.Options{Name: f.Device, Called: "--device"})
	if err != nil {
		return "", nil, err
	}
	defer d.Close()
	if notice != "" {
		fmt.Fprintln(stderr, notice)
	}
	name := d.Info().Name
	if f.Resume != "" && r.Device != name {
		return "", nil, fmt.Errorf("%s is a report of another run: device is %s and %s, which round differently; give --device, or run "+
			"anew without --resume", f.Resume, r.Device, name)
	}
	r.Device = name
	if err := j.agree(ctx, r, a); err != nil {
		return "", nil, err
	}
	if s.Ended == r.total() {
		return fmt.Sprintf("%s: all %s had ended before", r.Algorithm, console.Count(s.Ended, "loop")), nil, nil
	}
	begin := time.Now()
	run, err := r.runner(ctx, d)
	if err != nil {
		return "", nil, err
	}
	if run.Warn = warnTo(stderr); j.rank() != 0 {
		run.Warn = func(string) {}
	}
	run.Batch = f.batch
	x := newSimulation(r, j, s, run.AtOnce(a))
	save := f.saver(s)
	if j.rank() == 0 {
		run.Every, run.Keep = cmp.Or(f.every, saveEvery), func(c *scenario.Checkpoint) error {
			at := *c
			at.First = x.at(x.round, 0)
			return save(at)
		}
	}
	from := len(r.Metrics)
	x.ended = func() error {
		begun := from
		from = len(r.Metrics)
		if f.ended != nil {
			f.ended(r)
		}
		if out != nil {
			if err := out.add(r, begun); err != nil {
				return err
			}
		}
		return save()
	}
	tell, clear := cli.Progress(stderr, f.Quiet || j.rank() != 0)
	if f.tell != nil {
		tell = f.tell
	}
	run.Progress = console.New(tell)
	run.Progress.Expect(float64((r.total() - x.first + j.size() - 1) / j.size()))
	result, err := x.run(ctx, run, a, s.Checkpoints)
	clear()
	if j.rank() != 0 {
		return "", nil, err
	}
	r.Partial = len(r.Metrics) < r.total()
	launches, steps := 0, 0
	if result != nil {
		launches, r.Layers = result.Launches, result.Layers
	}
	if f.Times && result != nil && ctx.Err() == nil {
		var failed error
		r.Times, failed = timesOf(ctx, r.Device, result)
		err = errors.Join(err, failed)
	}
	for _, row := range r.Metrics[x.first:] {
		steps += int(math.Round(row[len(row)-1] / scenario.Step))
	}
	end = fmt.Sprintf("%s: %s, %s, %s of 50 ms in %.1f s on %s, %s", r.Algorithm,
		console.Count(len(r.Metrics)-x.first, "loop"), r.Tier, console.Count(steps, "step"), time.Since(begin).Seconds(),
		r.Device, console.Count(launches, "launch"))
	if j.group != nil {
		end += ", " + collectives.Describe(j.group)
	}
	return end, x.left, err
}
