package profile

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// Planned estimates how long an entry takes, in µs, and each launch by itself, from the works that its launches' schedules were chosen by, in launch order, where nothing
// was counted: a run behind others of the same, whose inputs and outputs are in DRAM. A launch without a work moves what it reads and writes.
func Planned(v *runtime.Variant, e *runtime.Entry, works []*cost.Work, t *target.Target) (us float64, times []cost.Time) {
	m := cost.Of(t)
	warm, _ := misses(&followed{v: v, launches: e.Launches}, m)
	times = make([]cost.Time, len(e.Launches))
	dependent := make([]bool, len(e.Launches))
	var front *Launch
	for i := range e.Launches {
		op := &e.Launches[i]
		l := Launch{Grid: op.Grid, Block: op.Block, Shared: op.Shared, room: math.Inf(1)}
		ports := l.touch(v, op)
		if op.Copy != nil {
			times[i], front = m.Copy(op.Copy.Bytes), nil
			continue
		}
		if l.Work = works[i]; l.Work == nil {
			threads := op.Block[0] * op.Block[1] * op.Block[2]
			l.Work = &cost.Work{Blocks: op.Grid[0] * op.Grid[1] * op.Grid[2], Warps: max(1, (threads+31)/32), Resident: cost.OccupancyOf(t, threads, op.Shared, 0).Blocks,
				L2Read: l.touched.constants + l.touched.reads, L2Written: l.touched.writes, Loads: 1}
		}
		if dependent[i] = op.Dependent; op.Dependent && front != nil {
			l.room = l.beside(front, t)
		}
		w := l.served(warm[i])
		w.DRAMBytes += ports
		times[i], front = m.Estimate(w), &l
	}
	return cost.Sequence(times, dependent), times
}

// touch fills in what a launch touches by what it declares, but for inputs and outputs, whose bytes it returns.
func (l *Launch) touch(v *runtime.Variant, op *runtime.Launch) (ports float64) {
	add := func(list []runtime.Access, others *float64) {
		for _, a := range list {
			to := others
			switch v.Buffers[a.Buffer].Kind {
			case runtime.InputBuffer, runtime.OutputBuffer:
				to = &ports
			case runtime.ConstantBuffer:
				to = &l.touched.constants
			}
			*to += float64(a.Bytes)
		}
	}
	add(op.Reads, &l.touched.reads)
	add(op.Writes, &l.touched.writes)
	return ports
}
