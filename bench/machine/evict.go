package machine

import (
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Copies to shared memory that a thread of policies has on the way.
const (
	policyVectors = 4
	policyUnit    = 16 * policyVectors * streamThreads // bytes of a block
)

// policies are copies of many bytes to shared memory by asynchronous copies, as panels of weights are read: with a
// cache policy, by which what was read leaves L2 first, and without.
func policies(m *ptx.Module) {
	for _, c := range []struct {
		name string
		hint bool
	}{{"copy_in", false}, {"copy_in_evict_first", true}} {
		b := newKernel(m, c.name, streamThreads)
		from, part := b.address("from"), b.number("part") // bytes of a block's part, a multiple of policyUnit
		at, begin, end := b.Reg(ptx.B64), b.Reg(ptx.B32), b.Reg(ptx.B32)
		to, size, policy, more := b.Reg(ptx.B32), b.Reg(ptx.B32), b.Reg(ptx.B64), b.Reg(ptx.Pred)
		op, last := "cp.async.cg.shared.global", []ptx.Operand{ptx.Imm(16), size}
		if c.hint {
			b.I("createpolicy.fractional.L2::evict_first.b64", policy, ptx.FImm(1))
			op, last = "cp.async.cg.shared.global.L2::cache_hint", append(last, policy)
		}
		b.I("mov.b32", size, ptx.Imm(16))
		b.I("mov.u32", to, ptx.Sym(ptx.SharedName))
		b.I("mad.lo.u32", to, b.tid, ptx.Imm(16), to)
		b.I("mul.lo.s32", begin, b.block, part)
		b.I("add.u32", end, begin, part)
		b.I("mad.lo.u32", begin, b.tid, ptx.Imm(16), begin)
		top := b.NewLabel("part")
		b.Place(top)
		b.NoUnroll()
		b.I("mad.wide.u32", at, begin, ptx.Imm(1), from)
		for i := range policyVectors {
			offset := 16 * streamThreads * i
			b.I(op, append([]ptx.Operand{ptx.At(to, offset), ptx.At(at, offset)}, last...)...)
		}
		b.I("cp.async.wait_all")
		b.I("add.u32", begin, begin, ptx.Imm(policyUnit))
		b.I("setp.lt.u32", more, begin, end)
		b.If(more, "bra", top)
		word := b.Reg(ptx.B32)
		b.I("ld.shared.b32", word, ptx.At(to, 0))
		b.done(word)
	}
}

// evictions finds whether what is read as evict-first leaves L2 before all else: what L2 held before stays there,
// although more than it holds is read. Bytes read without the policy put it out.
func evictions(r *rig) error {
	return r.scoped(func() error {
		resident, err := r.alloc(streamUnit*r.sizes.fill, hal.DeviceMemory)
		if err != nil {
			return err
		}
		if err := ring(resident); err != nil {
			return err
		}
		unit := r.sizes.fill * streamUnit
		passing, err := r.alloc((2*r.sizes.l2+unit-1)/unit*unit, hal.DeviceMemory)
		if err != nil {
			return err
		}
		flush, err := r.flush()
		if err != nil {
			return err
		}
		pass := func(kernel string) []hal.Op {
			o := r.op(kernel, r.sizes.fill, streamThreads, 1, constants{passing}, passing.Size()/r.sizes.fill)
			o.Shared = policyUnit
			return []hal.Op{o}
		}
		var took [3]cost.Figure
		for i, between := range [][]hal.Op{pass("copy_in"), pass("copy_in_evict_first"), nil} {
			before := append(append([]hal.Op{}, flush...), r.read(resident))
			if took[i], err = r.after(inOrder(append(before, between...)...), r.sample(resident)); err != nil {
				return err
			}
		}
		r.foundBetween("evict_first", took[0], took[1], took[2])
		return nil
	})
}
