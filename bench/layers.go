package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

const (
	prefixRounds = 9                       // of which each launch's median is reported
	prefixTime   = 2500 * time.Millisecond // of all rounds together, as far as fewestRuns and mostRuns allow
	fewestRuns   = 5                       // of a prefix in a round
	mostRuns     = 200

	singleRuns = 5 // of a launch by itself, of which the median is reported
)

// hasClock reports whether graphs of a device time themselves (hal.Timer).
func hasClock(d hal.Device) bool { return d.Info().Target != "" }

// layers times every launch of a run. On a device with a clock a launch takes what it adds to the launches before it: the time of launches 0
// to i, launch to launch and with the edges that they have in the program, less that of launches 0 to i-1. So the times add up to a run's,
// and what overlaps, or is prefetched, counts where it saves time. On a device without a clock every launch runs by itself, as the host
// sees it.
func layers(ctx context.Context, p *runtime.Program, v *runtime.Variant, d hal.Device, most time.Duration, w *watcher) ([]Layer, error) {
	parts := singles
	if hasClock(d) {
		parts = prefixes
	}
	list := parts(v)
	separate := *p
	separate.Variants = []runtime.Variant{list}
	s, err := runtime.Open(ctx, &separate, d, runtime.ModelOptions{Target: v.Target})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out := make([]Layer, len(list.Entries))
	for i := range out {
		l := &v.Entry("run").Launches[i]
		out[i] = Layer{Index: i, Kernel: l.Kernel, Note: l.Note}
		if l.Kernel == "" {
			out[i].Kernel = "copy"
		}
	}
	err = w.during(func() error {
		if hasClock(d) {
			return timePrefixes(ctx, s, cmp.Or(most, prefixTime), out)
		}
		return timeSingles(ctx, s, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func entryName(i int) string { return fmt.Sprintf("launch %d", i) }

// prefixes is a variant with an entry for each launch of a run: that launch and all preceding ones, unchanged. Any
// prefix of the list may run by itself, since launches may run in the order of the list.
func prefixes(v *runtime.Variant) runtime.Variant {
	out := *v
	out.Entries = nil
	if e := v.Entry("run"); e != nil {
		for i := range e.Launches {
			out.Entries = append(out.Entries, runtime.Entry{Name: entryName(i), Launches: e.Launches[:i+1]})
		}
	}
	return out
}

// singles is a variant with an entry for each launch of a run, which has nothing else.
func singles(v *runtime.Variant) runtime.Variant {
	out := *v
	out.Entries = nil
	if e := v.Entry("run"); e != nil {
		for i, l := range e.Launches {
			l.After, l.Dependent = nil, false
			out.Entries = append(out.Entries, runtime.Entry{Name: entryName(i), Launches: []runtime.Launch{l}})
		}
	}
	return out
}

// timePrefixes times all prefixes in turn, again and again, so that a clock that drifts has the same share in neighbours.
func timePrefixes(ctx context.Context, s *runtime.Session, most time.Duration, out []Layer) error {
	took := func(i, runs int) (float64, error) {
		t, err := s.ReplayEntry(ctx, entryName(i), hal.Timing{Runs: runs})
		if err != nil {
			return 0, fmt.Errorf("launches 0 to %d (%s): %w", i, out[i].Kernel, err)
		}
		return report.Milliseconds(t) / float64(runs), nil
	}
	var once time.Duration // all prefixes
	for i := range out {
		ms, err := took(i, 1)
		if err != nil {
			return err
		}
		once += time.Duration(ms * float64(time.Millisecond))
	}
	runs := min(max(int(most/prefixRounds/max(once, 1)), fewestRuns), mostRuns)
	added := make([][]float64, len(out))
	for range prefixRounds {
		preceding := 0.0
		for i := range out {
			ms, err := took(i, runs)
			if err != nil {
				return err
			}
			added[i] = append(added[i], ms-preceding)
			preceding = ms
		}
	}
	for i := range out {
		out[i].MS = report.Summarise(added[i]).P50
	}
	return nil
}

func timeSingles(ctx context.Context, s *runtime.Session, out []Layer) error {
	for i := range out {
		times, err := sample(1+singleRuns, func() (float64, error) {
			t, err := s.ReplayEntry(ctx, entryName(i), hal.Timing{})
			return report.Milliseconds(t), err
		})
		if err != nil {
			return fmt.Errorf("launch %d (%s) by itself: %w", i, out[i].Kernel, err)
		}
		out[i].MS = report.Summarise(times[1:]).P50
	}
	return nil
}

// predict counts a run on the CPU device and predicts it for the device that is measured, and what each launch adds to those in
// front of it.
func (r *Result) predict(ctx context.Context, p *runtime.Program, v *runtime.Variant, on *target.Target) error {
	counts, err := profile.Count(ctx, p, v, "run")
	if err != nil {
		return fmt.Errorf("predicting the time: %w", err)
	}
	prof, err := profile.New(p, v, "run", counts, on)
	if err != nil {
		return fmt.Errorf("predicting the time: %w", err)
	}
	r.Predicted = &Predicted{Range: prof.Range, Waited: prof.Waited}
	for i := range r.Layers {
		r.Layers[i].By = prof.Launches[i].Time.By
	}
	if err := r.predictPrefixes(p, v, counts, on); err != nil {
		return err
	}
	var measured, predicted []float64
	for _, l := range r.Layers {
		measured, predicted = append(measured, l.MS), append(predicted, *l.PredictedUS)
	}
	if r.Timeline != nil {
		for i := range r.Timeline.Launches {
			l := &r.Timeline.Launches[i]
			l.PredictedUS = prof.Launches[l.Index].Time.US
		}
	}
	if len(measured) > 1 {
		rank := Spearman(measured, predicted)
		r.Predicted.Rank = &rank
	}
	return nil
}

// predictPrefixes predicts what each launch adds to the preceding ones, where prefixes run repeatedly: each finds
// in the cache what its last run left there. Nobody fills the inputs meanwhile, so they count as states.
func (r *Result) predictPrefixes(p *runtime.Program, v *runtime.Variant, counts []*emu.Counts, on *target.Target) error {
	list := prefixes(v)
	list.Buffers = slices.Clone(v.Buffers)
	for i := range list.Buffers {
		if list.Buffers[i].Kind == runtime.InputBuffer {
			list.Buffers[i].Kind = runtime.StateBuffer
		}
	}
	preceding := 0.0
	for i := range r.Layers {
		n := len(counts)
		if at := slices.IndexFunc(counts, func(c *emu.Counts) bool { return c.Op > i }); at >= 0 {
			n = at
		}
		us, err := profile.Total(p, &list, entryName(i), counts[:n], on)
		if err != nil {
			return fmt.Errorf("predicting launches 0 to %d: %w", i, err)
		}
		added := us - preceding
		r.Layers[i].PredictedUS = &added
		preceding = us
	}
	return nil
}
