package machine

import (
	"context"

	"github.com/spark-compile/spark-compile/hal"
)

// LaunchUS is the time in µs of a launch after others of the same kernel: what copies more of it add to a graph
// that has it once, so neither launching the graph nor waiting for it counts. It is the median of samples.
func LaunchUS(ctx context.Context, d hal.Device, op hal.Op, copies, samples int) (float64, error) {
	r := &rig{ctx: ctx, device: d, opt: Options{Samples: samples}}
	f, err := r.slope(1, 1+copies, func(n int) []hal.Op { return row(op, n, false) })
	return f.Middle, err
}
