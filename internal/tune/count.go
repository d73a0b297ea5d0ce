package tune

import (
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
)

// counts are those of a kernel by itself, and its time by them in µs.
type counts struct {
	of *emu.Counts
	us float64
}

// count runs a kernel by itself on the CPU device, which counts what the real kernel does.
func count(s *kernel.Spec, t *target.Target) (counts, error) {
	var n *emu.Counts
	var args []any
	for _, o := range s.Operands {
		switch {
		case o.Const != nil:
			args = append(args, emu.Const{Data: o.Const})
		case o.Value != nil && o.Value.IsConst():
			args = append(args, emu.Const{Data: o.Value.Const.Dense()}) // indices of a table decide what else is read
		case o.Value != nil:
			args = append(args, make([]byte, o.Value.Type.Bytes()))
		case o.Number != nil && o.Bytes() == 8:
			args = append(args, o.Number.Bits)
		case o.Number != nil:
			args = append(args, uint32(o.Number.Bits))
		default:
			args = append(args, make([]byte, o.Workspace+o.Counter))
		}
	}
	opt := emu.Options{CountOnly: true, Profile: func(c *emu.Counts) { n = c }}
	if err := emu.RunKernelWith(opt, s.Build(t, "k").String(), "k", s.Grid, s.Block, s.Shared, args...); err != nil {
		return counts{}, err
	}
	out := counts{n, predict(n, s.Work, t)}
	for i := range n.Memories {
		n.Memories[i].Memory = nil // as large as the weights
	}
	return out, nil
}

// predict is the time of a kernel by its counts: the mean of a run that finds its weights in L2, since a run of the same or a prefetch brought them, and of
// one that does not. What the family knows of registers limits the blocks that a multiprocessor holds, as counts do not show it.
func predict(c *emu.Counts, planned *cost.Work, t *target.Target) float64 {
	m, w := cost.Of(t), profile.WorkOf(cost.Of(t), c)
	if planned != nil {
		w.Resident = min(w.Resident, planned.Resident)
	}
	warm := m.Estimate(w).US
	for _, x := range c.Memories {
		if x.Constant {
			w.DRAMBytes += float64(32 * x.ReadSectors)
		}
	}
	return (warm + m.Estimate(w).US) / 2
}
