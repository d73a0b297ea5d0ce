package machine

import (
	"context"
	"errors"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Reader is a graph that reads at least so many bytes of memory of its own, which puts all else out of the caches. It writes next to nothing, so
// that a cache behind it has no lines to write back. free releases what was allocated.
func Reader(ctx context.Context, d hal.Device, bytes int) (g hal.Graph, free func() error, err error) {
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
	m, err := r.alloc(part*blocks, hal.DeviceMemory)
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
