package codegen

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// smallBlocks is how many blocks a launch has at most that joins another one.
const smallBlocks = 64

// fuseHorizontally merges a small loop into another loop's launch: the nearest before it, or else after it, if
// neither that launch nor any between writes what the loop accesses, or accesses what it writes. A launch of its own
// would cost more than its work.
func (l *list) fuseHorizontally() {
	for j := 0; j < len(l.pending); j++ {
		if p := &l.pending[j]; !p.joins() || p.Grid[0] > smallBlocks {
			continue
		}
		if i := l.partner(j, -1); i >= 0 {
			l.pending[i] = joined(l.pending[i], l.pending[j])
		} else if i = l.partner(j, 1); i >= 0 {
			l.pending[i] = joined(l.pending[i], l.pending[j])
		} else {
			continue
		}
		l.pending = slices.Delete(l.pending, j, j+1)
		j--
	}
}

// partner is the nearest launch in a direction that can take launch j in, or -1.
func (l *list) partner(j, step int) int {
	p := &l.pending[j]
	for i := j + step; i >= 0 && i < len(l.pending); i += step {
		q := &l.pending[i]
		if ordered(p, q) {
			return -1
		}
		if q.joins() && (p.spec.Shared == 0 && p.Block[0] <= q.Block[0]) {
			return i
		}
	}
	return -1
}

// joins reports whether a launch is a loop that can be fused horizontally: one-dimensional, and with no memory of its
// own but the values that it computes.
func (l *launch) joins() bool {
	s := l.spec
	return s != nil && s.Family == ir.FamilyLoop && l.region.IsFamily(ir.FamilyLoop) && s.Hints == nil && s.Grid[1] == 1 && s.Grid[2] == 1 && s.Priority == 0 && s.Work != nil &&
		!slices.ContainsFunc(s.Operands, func(o kernel.Operand) bool { return o.Number != nil || o.Counter > 0 || o.Workspace > 0 })
}

// ordered reports whether one of two launches writes what the other touches.
func ordered(a, b *launch) bool {
	meets := func(x, y []span) bool {
		return slices.ContainsFunc(x, func(x span) bool {
			return slices.ContainsFunc(y, func(y span) bool { return x.at == y.at && x.offset < y.offset+y.bytes && y.offset < x.offset+x.bytes })
		})
	}
	return meets(a.writes, b.writes) || meets(a.writes, b.reads) || meets(a.reads, b.writes)
}

// joined is a launch whose blocks are those of a, then those of b.
func joined(a, b launch) launch {
	out := a
	out.joint = true
	out.spec = FuseHorizontally(a.spec, b.spec)
	out.Grid, out.work, out.Note = out.spec.Grid, out.spec.Work, out.spec.Note
	out.params, out.reads, out.writes = slices.Concat(a.params, b.params), slices.Concat(a.reads, b.reads), slices.Concat(a.writes, b.writes)
	return out
}

// FuseHorizontally is a spec of two independent kernels in one: the first blocks of the grid run a, the others b. A
// block has as many threads as the larger kernel's, and the surplus threads of the smaller one exit at once. So b has
// no barriers unless it has as many threads as a.
func FuseHorizontally(a, b *kernel.Spec) *kernel.Spec {
	out := *a
	blocks := a.Grid[0]
	out.Grid[0] = blocks + b.Grid[0]
	out.Block[0] = max(a.Block[0], b.Block[0])
	out.Shared = max(a.Shared, b.Shared)
	out.Operands = slices.Concat(a.Operands, b.Operands)
	out.MACs += b.MACs
	out.Work = bothWorks(a.Work, b.Work)
	out.Schedule, out.Note = a.Schedule+" | "+b.Schedule, strings.Join([]string{a.Note, b.Note}, " | ")
	out.Reason, out.Signature = strings.Trim(a.Reason+"; "+b.Reason, "; "), ""
	out.Emit = func(k *ptx.Kernel, params []ptx.Sym) {
		block, mine, p, second := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.Pred), k.NewLabel("beside")
		k.I("mov.u32", block, ptx.Special("%ctaid.x"))
		k.I("sub.s32", mine, block, ptx.Imm(blocks))
		k.I("setp.ge.s32", p, mine, ptx.Imm(0))
		k.If(p, "bra", second)
		emitPart(k, a, params[:len(a.Operands)], out.Block[0], block)
		k.Place(second)
		emitPart(k, b, params[len(a.Operands):], out.Block[0], mine)
	}
	return &out
}

// emitPart writes a kernel into a larger one, by the number of a block within it.
func emitPart(k *ptx.Kernel, s *kernel.Spec, params []ptx.Sym, threads int, block ptx.Reg) {
	if s.Block[0] < threads {
		tid, p := k.Reg(ptx.B32), k.Reg(ptx.Pred)
		k.I("mov.u32", tid, ptx.Special("%tid.x"))
		k.I("setp.ge.s32", p, tid, ptx.Imm(s.Block[0]))
		k.If(p, "exit")
	}
	from := len(k.Body)
	s.Emit(k, params)
	for _, st := range k.Body[from:] {
		if st.Instr == nil {
			continue
		}
		for i, o := range st.Instr.Operands {
			if o == ptx.Operand(ptx.Special("%ctaid.x")) {
				st.Instr.Operands[i] = block
			}
		}
	}
}

// bothWorks is the work of two kernels in one launch. Its latency is that of the slower one.
func bothWorks(a, b *cost.Work) *cost.Work {
	w := *a
	w.Blocks, w.Warps, w.Resident = a.Blocks+b.Blocks, max(a.Warps, b.Warps), min(a.Resident, b.Resident)
	w.Products = slices.Concat(a.Products, b.Products)
	for _, x := range []struct{ to, more *float64 }{{&w.Issued, &b.Issued}, {&w.Float, &b.Float}, {&w.Integer, &b.Integer}, {&w.Special, &b.Special}, {&w.Memory, &b.Memory},
		{&w.F64, &b.F64}, {&w.Wavefronts, &b.Wavefronts}, {&w.L2Read, &b.L2Read}, {&w.L2Written, &b.L2Written}, {&w.DRAMBytes, &b.DRAMBytes}} {
		*x.to += *x.more
	}
	w.Loads, w.Trips, w.Streamed = max(a.Loads, b.Loads), max(a.Trips, b.Trips), max(a.Streamed, b.Streamed)
	w.Atomics, w.Barriers = max(a.Atomics, b.Atomics), max(a.Barriers, b.Barriers)
	return &w
}
