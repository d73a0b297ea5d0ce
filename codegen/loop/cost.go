package loop

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// registers is an estimate for a thread of any kernel: only ptxas knows.
const registers = 40

// work counts the instructions of the kernel that a schedule makes and sets the schedule's shared memory. It takes constants to
// come from DRAM once, and activations from L2 at least once and at most once a block. Results are written by sectors. The problem is built anew, because a
// builder has room for the variables of one kernel.
func (p *problem) work(s *schedule, m *cost.Machine) (*cost.Work, error) {
	p, err := newProblem(p.region, p.ctx)
	if err != nil {
		return nil, err
	}
	k := ptx.NewModule(m.Name).NewKernel("counted", s.threads)
	params := make([]ptx.Sym, len(p.l.Operands))
	w := &cost.Work{Blocks: s.blocks, Warps: (s.threads + 31) / 32}
	read := 0.0 // activations
	for i, o := range p.l.Operands {
		params[i] = k.AddParam(fmt.Sprintf("p%d", i), "u64")
		switch {
		case o.Value == nil:
			w.DRAMBytes += float64(len(o.Const))
		case o.Value.IsConst():
			w.DRAMBytes += float64(o.Value.Type.Bytes())
		case !o.Write:
			read += float64(o.Value.Type.Bytes())
		}
	}
	sectors := map[int]float64{}
	s.shared = p.emit(s, k, params, func(f *frame, index *expr.Expr, bytes, size int) {
		sectors[len(k.Body)] = f.sectors(s, index, bytes, size)
	})
	w.Resident = m.Resident(s.threads, s.shared, registers)
	asked, written := w.Code(k, sectors)
	w.L2Read, w.L2Written = max(read+w.DRAMBytes, min(32*asked, float64(float64(s.blocks)*read)+w.DRAMBytes)), 32*written
	return w, nil
}

// sectors is the number of 32-byte sectors that the first warp asks for when each lane reads or writes bytes from an element index on
// (elements of size bytes), in the first round of every loop.
func (f *frame) sectors(s *schedule, index *expr.Expr, bytes, size int) float64 {
	b := f.p.b
	with := map[*expr.Expr]*expr.Expr{}
	expr.Walk([]*expr.Expr{index}, func(e *expr.Expr) {
		if e.Op == expr.OpVar {
			with[e] = b.Int(0)
		}
	})
	near := s.near()
	seen := map[int64]bool{}
	for lane := range 32 {
		with[f.far] = b.Int(lane / near)
		with[f.near] = b.Int(lane % near)
		at := b.Subst(index, with, nil)
		if at.Op != expr.OpConst { // a gather
			seen[int64(-lane)] = true
			continue
		}
		for first := at.I * int64(size); first/32 <= (at.I*int64(size)+int64(bytes)-1)/32; first += 32 {
			seen[first/32] = true
		}
	}
	return float64(len(seen))
}

// near is the number of lanes of a warp that f.near counts.
func (s *schedule) near() int {
	switch {
	case s.adjacent:
		return min(s.team, 32)
	case s.team > 1:
		return min(s.teams, 32)
	}
	return 32
}
