package loop

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// registers is an estimate for a thread of any kernel: only ptxas knows.
const registers = 40

// work counts the instructions of the kernel that a schedule makes and sets the schedule's shared memory. It takes
// constants to come from DRAM once, and activations from L2 at least once and at most once a block. Results are
// written by sectors. The problem is built anew, because a builder has room for the variables of one kernel.
func (p *problem) work(s *schedule, m *cost.Machine) (*cost.Work, error) {
	p, err := newProblem(p.region, p.ctx)
	if err != nil {
		return nil, err
	}
	w := &cost.Work{Blocks: s.blocks, Warps: (s.threads + 31) / 32}
	count(w, p.l.Operands, m, s.threads, nil, func(k *ptx.Kernel, params []ptx.Sym, sectors map[int]float64) (int, int) {
		s.shared = p.emit(s, k, params, func(f *frame, index *expr.Expr, bytes, size int) {
			sectors[len(k.Body)] = f.sectors(s, index, bytes, size)
		})
		return s.shared, registers
	})
	for _, n := range p.region.Region.Body.Nodes {
		if n.Op.Name == "WarpFrame" {
			pixels := float64(n.Outputs[0].Type.Numel())
			w.L2Read, w.Sparse = min(w.L2Read, warpReads*pixels), warpBytes*pixels
		}
	}
	return w, nil
}

// Reads of a warp of frames for each element: from L2, and from memory, where planes read the same rows. Neighbouring
// elements sample one to three pixels from each other in openpilot's models, each on its own row. The addresses are
// only known at run time.
const (
	warpReads = 8
	warpBytes = 2
)

// count adds what a kernel does that is emitted with the sectors that its loads and stores ask for, and that returns
// its shared memory and an estimate of a thread's registers. Of some constants every block reads its own copy, as of
// activations.
func count(w *cost.Work, operands []kernel.Operand, m *cost.Machine, threads int, every map[int]bool,
	emit func(k *ptx.Kernel, params []ptx.Sym, sectors map[int]float64) (shared, registers int)) {
	k := ptx.NewModule(m.Name).NewKernel("counted", threads)
	params := make([]ptx.Sym, len(operands))
	read, again := 0.0, 0.0 // activations, and constants that every block reads
	for i, o := range operands {
		params[i] = k.AddParam(fmt.Sprintf("p%d", i), "u64")
		bytes := float64(len(o.Const))
		if o.Value != nil {
			bytes = float64(o.Value.Type.Bytes())
		}
		switch {
		case o.Value == nil || o.Value.IsConst():
			w.DRAMBytes += bytes
			if every[i] {
				again += bytes
			}
		case !o.Write:
			read += bytes
		}
	}
	sectors := map[int]float64{}
	shared, registers := emit(k, params, sectors)
	w.Resident = m.Resident(threads, shared, registers)
	asked, written := w.Code(k, sectors)
	w.L2Read, w.L2Written = max(read+w.DRAMBytes, min(32*asked, float64(float64(w.Blocks)*(read+again))+w.DRAMBytes-again)), 32*written
}

// sectors is the number of 32-byte sectors that the first warp asks for when each lane reads or writes bytes from an
// element index on (elements of size bytes), in the first round of every loop.
func (f *frame) sectors(s *schedule, index *expr.Expr, bytes, size int) float64 {
	near := s.near()
	return expr.Sectors(f.p.b, index, bytes, size, func(lane int, with map[*expr.Expr]*expr.Expr) {
		with[f.far] = f.p.b.Int(lane / near)
		with[f.near] = f.p.b.Int(lane % near)
	})
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
