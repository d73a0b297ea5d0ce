package bench

import (
	"context"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/hal/nvml"
)

// watch reads the state of a GPU at an interval until done is called: of the GPU at a bus address, or of the only one.
func watch(source nvml.Source, bus string, every time.Duration) (done func() State) {
	if source == nil {
		return func() State { return State{} }
	}
	ctx, stop := context.WithCancel(context.Background())
	var seen []nvml.GPU
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			if snapshot, err := source.Read(ctx); err == nil {
				for _, g := range snapshot.GPUs {
					if g.Bus == bus || len(snapshot.GPUs) == 1 {
						seen = append(seen, g)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	})
	return func() State {
		stop()
		wait.Wait()
		return stateOf(seen)
	}
}

// stateOf averages each figure over the samples that have it, and collects every slowdown.
func stateOf(seen []nvml.GPU) State {
	mean := func(figure func(g *nvml.GPU) nvml.Figure) nvml.Figure {
		var sum, n float64
		for i := range seen {
			if f := figure(&seen[i]); f.OK {
				sum, n = sum+f.Value, n+1
			}
		}
		return nvml.Figure{Value: sum / max(n, 1), OK: n > 0}
	}
	s := State{
		Samples:     len(seen),
		ClockMHz:    mean(func(g *nvml.GPU) nvml.Figure { return g.ClockMHz }),
		PowerWatts:  mean(func(g *nvml.GPU) nvml.Figure { return g.PowerWatts }),
		Celsius:     mean(func(g *nvml.GPU) nvml.Figure { return g.Celsius }),
		Utilisation: mean(func(g *nvml.GPU) nvml.Figure { return g.Utilisation }),
	}
	for i := range seen {
		s.Throttle |= seen[i].Throttle
		s.Capped = s.Capped || seen[i].Capped()
	}
	return s
}
