package machine

import (
	"context"
	"errors"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/placement"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Reader is a graph that reads at least so many bytes of memory of its own, which evicts everything else from the
// caches. It writes next to nothing, so the cache then has no lines to write back. free releases what was
// allocated.
func Reader(ctx context.Context, d hal.Device, bytes int) (g hal.Graph, free func() error, err error) {
	return readerOf(ctx, d, bytes, hal.DeviceMemory)
}

// WeightsHome measures where weights lie best: memory of the device's own and memory that the host sees too, both read again and again by one
// kernel, as many bytes as L2 holds easily and four times as many as it holds.
func WeightsHome(ctx context.Context, d hal.Device, t *target.Target) (h placement.Placement, err error) {
	measure := func(bytes int) (x placement.Times, err error) {
		x.Bytes = bytes
		for _, c := range []struct {
			kind hal.MemoryKind
			us   *float64
		}{{hal.DeviceMemory, &x.DeviceUS}, {hal.HostVisible, &x.HostUS}} {
			if *c.us, err = readTime(ctx, d, bytes, c.kind); err != nil {
				return x, err
			}
		}
		return x, nil
	}
	if h.Cached, err = measure(t.L2Bytes / 4); err == nil {
		h.Memory, err = measure(4 * t.L2Bytes)
	}
	h.Decide()
	return h, err
}

// readTime is the median time of reading so many bytes once more, in µs.
func readTime(ctx context.Context, d hal.Device, bytes int, kind hal.MemoryKind) (us float64, err error) {
	g, free, err := readerOf(ctx, d, bytes, kind)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, free()) }()
	const warm, runs = 3, 15
	r := &rig{ctx: ctx}
	var times []float64
	for i := range warm + runs {
		took, err := r.took(g)
		if err != nil {
			return 0, err
		}
		if i >= warm {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// readerOf is Reader of memory of a kind.
func readerOf(ctx context.Context, d hal.Device, bytes int, kind hal.MemoryKind) (g hal.Graph, free func() error, err error) {
	t, err := target.For(d.Info().Target)
	if err != nil {
		return nil, nil, err
	}
	r := &rig{ctx: ctx, device: d, on: cost.Of(t)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.code, err = d.Load(ctx, hal.Image{Name: "machine", Target: t.Name, PTX: kernels(t).String()}); err != nil {
		return nil, nil, err
	}
	r.held = append(r.held, r.code.Close)
	blocks := min(t.SMs, (bytes+streamUnit-1)/streamUnit)
	part := (bytes + blocks*streamUnit - 1) / (blocks * streamUnit) * streamUnit
	m, err := r.alloc(part*blocks, kind)
	if err != nil {
		return nil, nil, err
	}
	if r.out, err = r.alloc(4*streamThreads*blocks, hal.DeviceMemory); err != nil {
		return nil, nil, err
	}
	op := r.op("read", blocks, streamThreads, 1, m, part)
	op.Writes = slices.DeleteFunc(op.Writes, func(at hal.Range) bool { return at.Memory == m })
	if g, err = r.graph(op); err != nil {
		return nil, nil, err
	}
	return g, r.close, nil
}
