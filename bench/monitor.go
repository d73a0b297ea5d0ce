package bench

import (
	"context"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/hal/nvml"
)

// watch samples the GPU at a bus address, or the only one there is, until done is called.
func watch(source nvml.Source, bus string, every time.Duration) (done func() State) {
	if source == nil {
		return func() State { return State{} }
	}
	ctx, stop := context.WithCancel(context.Background())
	var sum accumulator
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			if snapshot, err := source.Read(ctx); err == nil {
				for i := range snapshot.GPUs {
					if g := &snapshot.GPUs[i]; g.Bus == bus || len(snapshot.GPUs) == 1 {
						sum.add(g)
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
		return sum.state()
	}
}

// accumulator adds up figures.
type accumulator struct {
	samples                     int
	clock, power, heat, percent mean
	throttle                    nvml.Reasons
	capped                      bool
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(f nvml.Figure) {
	if f.OK {
		m.sum += f.Value
		m.n++
	}
}

func (m *mean) figure() nvml.Figure {
	if m.n == 0 {
		return nvml.Figure{}
	}
	return nvml.Known(m.sum / float64(m.n))
}

func (a *accumulator) add(g *nvml.GPU) {
	a.samples++
	a.clock.add(g.ClockMHz)
	a.power.add(g.PowerWatts)
	a.heat.add(g.Celsius)
	a.percent.add(g.Utilisation)
	a.throttle |= g.Throttle
	a.capped = a.capped || g.Capped()
}

func (a *accumulator) state() State {
	return State{Samples: a.samples, ClockMHz: a.clock.figure(), PowerWatts: a.power.figure(), Celsius: a.heat.figure(), Utilisation: a.percent.figure(),
		Throttle: a.throttle, Capped: a.capped}
}
