package cuda

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// How long a stream is kept busy while the host enqueues what is timed.
const (
	firstEnqueue = 25 * time.Microsecond // assumed host time of a graph launch before one was seen; 5 to 12 µs published
	longestHold  = 50 * time.Millisecond // of the delay kernel
	holdAttempts = 4                     // timed runs before a host that is slower than the device is an error

	enqueuedExtra = 2 // what takes about as long to enqueue as two launches: the graph before, and events
)

// errStarved says that the device waited for the host between timed runs.
var errStarved = errors.New("the host launches graphs more slowly than the device runs them")

// RunTimed keeps the stream busy with a kernel that spins, enqueues an event, the runs and another event, and waits.
// If enqueuing took longer than the device was busy, the time would include launches by the host: then it measures
// again with a longer delay.
func (g *graph) RunTimed(ctx context.Context, t hal.Timing) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	before, ok := t.Before.(*graph)
	if t.Before != nil && (!ok || before.device != g.device) {
		return 0, errors.New("the graph to run before is of another device")
	}
	var took time.Duration
	err := g.device.do(func() error {
		for left := max(t.Runs, 1); left > 0; {
			n, more, err := g.batch(ctx, left, before)
			if err != nil {
				return err
			}
			took, left, before = took+more, left-n, nil
		}
		return nil
	})
	return took, err
}

// batch times as many of the remaining runs as the host can enqueue during the longest delay, and returns their
// number.
func (g *graph) batch(ctx context.Context, left int, before *graph) (n int, took time.Duration, err error) {
	g.enqueue = max(g.enqueue, firstEnqueue)
	for range holdAttempts {
		enqueue := g.enqueue * 3 / 2
		n = min(left, max(1, int(longestHold/enqueue)-enqueuedExtra))
		hold := min(time.Duration(n+enqueuedExtra)*enqueue, longestHold)
		enqueued, err := g.timed(ctx, n, before, hold, &took)
		if err != nil {
			return 0, 0, err
		}
		each := enqueued / time.Duration(n)
		if enqueued <= hold+backlog(n, took) {
			g.enqueue = max(each, firstEnqueue) // the host may have been busy before
			return n, took, nil
		}
		g.enqueue = max(g.enqueue, each)
	}
	return 0, 0, fmt.Errorf("%w: %v a launch", errStarved, g.enqueue)
}

// backlog is how long after the delay the host may still enqueue: until two runs are left. The last run ends after
// its launch however slow the host is, so it must not be the only one.
func backlog(runs int, took time.Duration) time.Duration {
	return took / time.Duration(runs) * time.Duration(max(runs-2, 0))
}

// timed times runs after a delay. It returns how long the host took to enqueue them.
func (g *graph) timed(ctx context.Context, runs int, before *graph, hold time.Duration, took *time.Duration) (time.Duration, error) {
	if err := g.Wait(ctx); err != nil {
		return 0, err
	}
	if before != nil {
		if err := before.Wait(ctx); err != nil {
			return 0, err
		}
	}
	for i := range g.events {
		if g.events[i] == 0 {
			if err := g.device.call("cuEventCreate", addr(&g.events[i]), 0); err != nil {
				return 0, err
			}
		}
	}
	begin := time.Now()
	err := g.enqueueTimed(runs, before, hold)
	enqueued := g.device.delays.since(begin)
	if err = errors.Join(err, g.waitIfRunning(ctx)); err != nil {
		return 0, err
	}
	var ms float32
	if err := g.device.call("cuEventElapsedTime", addr(&ms), g.events[0], g.events[1]); err != nil {
		return 0, err
	}
	*took = time.Duration(float64(ms) * float64(time.Millisecond))
	return enqueued, nil
}

// enqueueTimed puts delay, the graph to run before, and runs between two events on the stream.
func (g *graph) enqueueTimed(runs int, before *graph, hold time.Duration) error {
	if err := g.device.delay(g.stream, hold); err != nil {
		return err
	}
	g.running = true
	if before != nil {
		if err := g.device.call("cuGraphLaunch", before.exec, g.stream); err != nil {
			return err
		}
		before.on = g
	}
	if err := g.device.call("cuEventRecord", g.events[0], g.stream); err != nil {
		return err
	}
	for range runs {
		if err := g.device.call("cuGraphLaunch", g.exec, g.stream); err != nil {
			return err
		}
	}
	return g.device.call("cuEventRecord", g.events[1], g.stream)
}

// waitIfRunning waits for what was enqueued, if anything was.
func (g *graph) waitIfRunning(ctx context.Context) error {
	if !g.running {
		return nil
	}
	return g.wait(ctx)
}

// delay enqueues a kernel that spins for a while.
func (d *Device) delay(stream uintptr, hold time.Duration) error {
	d.delays.Lock()
	defer d.delays.Unlock()
	if d.delays.module == nil {
		m, err := d.Load(context.Background(), hal.Image{Name: "delay", PTX: delayKernel().String()})
		if err != nil {
			return err
		}
		d.delays.module = m.(*module)
	}
	fn, err := d.delays.module.function("delay", 0)
	if err != nil {
		return err
	}
	cfg := launchConfig{grid: [3]uint32{1, 1, 1}, block: [3]uint32{1, 1, 1}, stream: stream}
	p := pointersTo([]uint64{uint64(hold.Nanoseconds())})
	err = d.call("cuLaunchKernelEx", addr(&cfg), fn, addr(&p.at[0]), 0)
	goruntime.KeepAlive(p)
	goruntime.KeepAlive(&cfg)
	return err
}

// delayKernel spins until so many nanoseconds have passed. The number of its rounds is bounded, should the clock
// stand still.
func delayKernel() *ptx.Module {
	m := ptx.NewModule(target.Oldest().Name)
	k := m.NewKernel("delay", 1)
	hold, begin, now, round := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("ld.param.u32", hold, ptx.At(k.AddParam("nanoseconds", "u32"), 0))
	k.I("mov.u32", begin, ptx.Clock)
	k.I("mov.b32", round, ptx.Imm(0))
	top, early, more := k.NewLabel("spin"), k.Reg(ptx.Pred), k.Reg(ptx.Pred)
	end := k.NewLabel("end")
	k.Place(top)
	k.NoUnroll()
	k.I("mov.u32", now, ptx.Clock)
	k.I("sub.u32", now, now, begin)
	k.I("setp.ge.u32", early, now, hold)
	k.If(early, "bra", end)
	k.I("add.s32", round, round, ptx.Imm(1))
	k.I("setp.lt.s32", more, round, ptx.Imm(1<<24))
	k.If(more, "bra", top)
	k.Place(end)
	k.I("ret")
	return m
}
