package bench

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

const (
	layerRuns   = 5  // times that each launch is timed; the median is reported
	layerCopies = 20 // of a launch in a graph, where the device has a clock
)

// layers times every launch by itself: what twenty more of it add to a graph that has it once, so that neither launching the graph nor
// waiting for it counts. On a device without a clock it is a graph of the one launch, as the host sees it. The times add up to more than a
// run, in which launches overlap; but launches find what they read in the cache, as they have just read it.
func layers(ctx context.Context, p *runtime.Program, v *runtime.Variant, d hal.Device) ([]Layer, error) {
	copies := 0
	if d.Info().Target != "" {
		copies = layerCopies
	}
	apart := *p
	single := *v
	single.Entries = nil
	var launches []runtime.Launch
	if e := v.Entry("run"); e != nil {
		launches = e.Launches
	}
	for i, l := range launches {
		l.After, l.Dependent = nil, false
		list := []runtime.Launch{l}
		single.Entries = append(single.Entries, runtime.Entry{Name: entryName(i, 0), Launches: list})
		for n := range copies {
			l.After = []int{n}
			list = append(list, l)
		}
		if copies > 0 {
			single.Entries = append(single.Entries, runtime.Entry{Name: entryName(i, copies), Launches: list})
		}
	}
	apart.Variants = []runtime.Variant{single}
	s, err := runtime.Open(ctx, &apart, d, runtime.ModelOptions{Target: v.Target})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out []Layer
	for i, l := range launches {
		ms, err := layer(ctx, s, i, copies)
		if err != nil {
			return nil, fmt.Errorf("launch %d (%s) by itself: %w", i, l.Kernel, err)
		}
		kernel := l.Kernel
		if kernel == "" {
			kernel = "copy"
		}
		out = append(out, Layer{Index: i, Kernel: kernel, Note: l.Note, MS: ms})
	}
	return out, nil
}

func entryName(i, copies int) string { return fmt.Sprintf("launch %d and %d more", i, copies) }

func layer(ctx context.Context, s *runtime.Session, i, copies int) (float64, error) {
	took := func(copies int) (float64, error) {
		t, err := s.ReplayEntry(ctx, entryName(i, copies), hal.Timing{})
		return report.Milliseconds(t), err
	}
	if _, err := took(0); err != nil {
		return 0, err
	}
	times, err := sample(layerRuns, func() (float64, error) {
		one, err := took(0)
		if err != nil || copies == 0 {
			return one, err
		}
		more, err := took(copies)
		return (more - one) / float64(copies), err
	})
	if err != nil {
		return 0, err
	}
	return report.Summarise(times).P50, nil
}

// predict counts a run on the CPU device and predicts it for the device that is measured, each launch beside what it took: by itself and again and again, so that what
// it touches is in L2.
func (r *Result) predict(ctx context.Context, p *runtime.Program, v *runtime.Variant, on *target.Target) error {
	prof, err := profile.Run(ctx, p, v, "run", on)
	if err != nil {
		return fmt.Errorf("predicting the time: %w", err)
	}
	r.Predicted = &Predicted{Range: prof.Range, Waited: prof.Waited}
	var measured, predicted []float64
	for i := range r.Layers {
		l := &r.Layers[i]
		again := prof.Launches[i].Time
		if w := prof.Launches[i].Work; w != nil {
			again = cost.Of(on).Estimate(w)
		}
		l.PredictedUS, l.By = again.US, again.By
		measured, predicted = append(measured, l.MS), append(predicted, l.PredictedUS)
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
