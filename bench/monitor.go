package bench

import (
	"context"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/hal/nvml"
)

// watchEvery is how often a watcher reads.
const watchEvery = 100 * time.Millisecond

// watcher reads the state of a GPU while it is measured: of the GPU at a bus address, or of the only one.
type watcher struct {
	source nvml.Source // nil: nothing is read
	bus    string
	seen   []nvml.GPU
}

// during measures something and meanwhile reads the state, at least once. A source that is slow to read is read
// right after the measurement: nvidia-smi is a process that asks the driver for its locks, which the timed runs
// would wait for.
func (w *watcher) during(measure func() error) error {
	if w.source == nil {
		return measure()
	}
	if _, quick := w.source.(nvml.Clock); !quick {
		err := measure()
		w.read(context.Background())
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			w.read(ctx)
			select {
			case <-ctx.Done():
				return
			case <-time.After(watchEvery):
			}
		}
	})
	defer wait.Wait()
	defer stop()
	return measure()
}

// read adds the GPU's state now. A source that fails adds nothing.
func (w *watcher) read(ctx context.Context) {
	snapshot, err := w.source.Read(ctx)
	if err != nil {
		return
	}
	for _, g := range snapshot.GPUs {
		if g.Bus == w.bus || len(snapshot.GPUs) == 1 {
			w.seen = append(w.seen, g)
		}
	}
}

// stateOf averages each figure over the samples that have it, and collects every slowdown. It is nil without samples.
func stateOf(seen []nvml.GPU) *State {
	if len(seen) == 0 {
		return nil
	}
	mean := func(figure func(g *nvml.GPU) nvml.Figure) nvml.Figure {
		var sum, n float64
		for i := range seen {
			if f := figure(&seen[i]); f.OK {
				sum, n = sum+f.Value, n+1
			}
		}
		return nvml.Figure{Value: sum / max(n, 1), OK: n > 0}
	}
	s := &State{
		Samples:     len(seen),
		ClockMHz:    mean(func(g *nvml.GPU) nvml.Figure { return g.ClockMHz }),
		PowerWatts:  mean(func(g *nvml.GPU) nvml.Figure { return g.PowerWatts }),
		Celsius:     mean(func(g *nvml.GPU) nvml.Figure { return g.Celsius }),
		Utilisation: mean(func(g *nvml.GPU) nvml.Figure { return g.Utilisation }),
	}
	for i := range seen {
		if f := seen[i].ClockMHz; f.OK {
			if low := &s.ClockMinMHz; !low.OK || f.Value < low.Value {
				*low = f
			}
			if high := &s.ClockMaxMHz; !high.OK || f.Value > high.Value {
				*high = f
			}
		}
		s.Throttle |= seen[i].Throttle
		s.Capped = s.Capped || seen[i].Capped()
	}
	return s
}
