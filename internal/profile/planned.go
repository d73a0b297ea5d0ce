package profile

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// Planned estimates how long an entry takes, in µs, and each launch by itself. It uses the works by which the
// launches' schedules were chosen, in launch order, where nothing was counted. It assumes a run after others of
// the same program, with inputs and outputs in DRAM. A launch without a work moves what it reads and writes.
func Planned(v *runtime.Variant, e *runtime.Entry, works []*cost.Work, t *target.Target) (us float64, times []cost.Time) {
	m := cost.Of(t)
	warm, _ := misses(&followed{v: v, launches: e.Launches}, m)
	times, dependent := planned(v, e, works, m, warm, false)
	return cost.Sequence(times, dependent), times
}

// PlannedLoop is Planned of a step with states of its own: of a run after others of the same program, and of one
// that finds no constants in L2. Weights are followed in coarse steps.
func PlannedLoop(v *runtime.Variant, e *runtime.Entry, works []*cost.Work, states []runtime.State, t *target.Target) (warm, cold float64) {
	m := cost.Of(t)
	f := &followed{v: v, launches: e.Launches, states: states}
	f.coarse()
	for i := range e.Launches {
		l := Launch{}
		part, all := 1.0, l.touch(v, &e.Launches[i])
		if w := works[i]; w != nil && w.Sparse > 0 {
			part = min(1, w.Sparse/all)
		}
		f.read = append(f.read, slices.Repeat([]float64{part}, len(e.Launches[i].Reads)))
	}
	hot, late := misses(f, m)
	times, dependent := planned(v, e, works, m, hot, true)
	warm = cost.Sequence(times, dependent)
	times, dependent = planned(v, e, works, m, late, true)
	return warm, cost.Sequence(times, dependent)
}

// planned are the times of launches by their works. Of inputs launches read no more than their works say, if sparse.
func planned(v *runtime.Variant, e *runtime.Entry, works []*cost.Work, m *cost.Machine, served []missing, sparse bool) (times []cost.Time, dependent []bool) {
	times, dependent = make([]cost.Time, len(e.Launches)), make([]bool, len(e.Launches))
	var preceding *Launch
	for i := range e.Launches {
		op := &e.Launches[i]
		l := Launch{Grid: op.Grid, Block: op.Block, Shared: op.Shared, early: math.Inf(1)}
		ports := l.touch(v, op)
		if op.Copy != nil {
			times[i], preceding = m.Copy(op.Copy.Bytes), nil
			continue
		}
		if l.Work = works[i]; l.Work == nil {
			threads := op.Block[0] * op.Block[1] * op.Block[2]
			l.Work = &cost.Work{Blocks: op.Grid[0] * op.Grid[1] * op.Grid[2], Warps: max(1, (threads+31)/32), Resident: cost.OccupancyOf(m.Target, threads, op.Shared, 0).Blocks,
				L2Read: l.touched.constants + l.touched.reads, L2Written: l.touched.writes, Loads: 1}
		}
		l.dependent, dependent[i] = op.Dependent, op.Dependent
		if op.Dependent && preceding != nil {
			l.early = l.earlyBytes(preceding, m.Target)
		}
		w := l.served(served[i])
		if sparse && l.Work.Sparse > 0 {
			ports = l.Work.Sparse
		}
		w.DRAMBytes += ports
		times[i], preceding = m.Estimate(w), &l
	}
	return times, dependent
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
