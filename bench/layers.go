package bench

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/runtime"
)

// layerRuns is the number of times each launch is timed; the median is reported.
const layerRuns = 5

// layers times every launch as a graph of its own. The times add up to more than a run, in which launches overlap and find
// their inputs in the cache.
func layers(ctx context.Context, p *runtime.Program, v *runtime.Variant, d hal.Device) ([]Layer, error) {
	apart := *p
	single := *v
	single.Entries = nil
	var launches []runtime.Launch
	if e := v.Entry("run"); e != nil {
		launches = e.Launches
	}
	for i, l := range launches {
		l.After, l.Dependent = nil, false
		single.Entries = append(single.Entries, runtime.Entry{Name: entryName(i), Launches: []runtime.Launch{l}})
	}
	apart.Variants = []runtime.Variant{single}
	s, err := runtime.Open(ctx, &apart, d, runtime.ModelOptions{Target: v.Target})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out []Layer
	for i, l := range launches {
		ms, err := layer(ctx, s, i)
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

func entryName(i int) string { return fmt.Sprintf("launch %d", i) }

func layer(ctx context.Context, s *runtime.Session, i int) (float64, error) {
	if _, err := s.ReplayEntry(ctx, entryName(i)); err != nil {
		return 0, err
	}
	times, err := sample(layerRuns, func() (float64, error) {
		took, err := s.ReplayEntry(ctx, entryName(i))
		return report.Milliseconds(took), err
	})
	if err != nil {
		return 0, err
	}
	return report.Summarise(times).P50, nil
}
