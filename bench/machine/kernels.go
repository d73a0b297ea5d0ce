package machine

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// unrolled is how often a loop's body stands in it, and accumulators how many of them do not wait for each other.
const (
	unrolled     = 64
	accumulators = 8
)

// builder is a kernel under construction. All take an address to write to and a number of rounds.
type builder struct {
	*ptx.Kernel
	out    ptx.Reg // address of what a block writes
	rounds ptx.Reg
	tid    ptx.Reg
	block  ptx.Reg
}

// newKernel begins a kernel of so many threads a block.
func newKernel(m *ptx.Module, name string, threads int) *builder {
	k := m.NewKernel(name, threads)
	b := &builder{Kernel: k, out: k.Reg(ptx.B64), rounds: k.Reg(ptx.B32), tid: k.Reg(ptx.B32), block: k.Reg(ptx.B32)}
	k.I("ld.param.u64", b.out, ptx.At(k.AddParam("out", "u64"), 0))
	k.I("ld.param.u32", b.rounds, ptx.At(k.AddParam("rounds", "u32"), 0))
	k.I("mov.u32", b.tid, ptx.Special("%tid.x"))
	k.I("mov.u32", b.block, ptx.Special("%ctaid.x"))
	return b
}

// address is a further parameter.
func (b *builder) address(name string) ptx.Reg {
	r := b.Reg(ptx.B64)
	b.I("ld.param.u64", r, ptx.At(b.AddParam(name, "u64"), 0))
	return r
}

// number is a further parameter.
func (b *builder) number(name string) ptx.Reg {
	r := b.Reg(ptx.B32)
	b.I("ld.param.u32", r, ptx.At(b.AddParam(name, "u32"), 0))
	return r
}

// loop emits a body that is executed as often as rounds says, at least once.
func (b *builder) loop(body func(round ptx.Reg)) {
	i, more := b.Reg(ptx.B32), b.Reg(ptx.Pred)
	b.I("mov.b32", i, ptx.Imm(0))
	top := b.NewLabel("loop")
	b.Place(top)
	b.NoUnroll()
	body(i)
	b.I("add.s32", i, i, ptx.Imm(1))
	b.I("setp.lt.s32", more, i, b.rounds)
	b.If(more, "bra", top)
}

// own is the address of a thread's word of what the kernel writes.
func (b *builder) own() ptx.Reg {
	at, i, threads := b.Reg(ptx.B64), b.Reg(ptx.B32), b.Reg(ptx.B32)
	b.I("mov.u32", threads, ptx.Special("%ntid.x"))
	b.I("mad.lo.s32", i, b.block, threads, b.tid)
	b.I("mad.wide.u32", at, i, ptx.Imm(4), b.out)
	return at
}

// done writes a thread's result, which keeps what computed it alive.
func (b *builder) done(x ptx.Reg) {
	b.I("st.global.b32", ptx.At(b.own(), 0), x)
	b.I("ret")
}

// floats are registers with small numbers that differ from thread to thread.
func (b *builder) floats(n int) []ptx.Reg {
	out := b.RegVec(ptx.F32, n)
	for i := range out {
		b.I("cvt.rn.f32.s32", out[i], b.tid)
		if i > 0 {
			b.I("add.rn.f32", out[i], out[i], ptx.FImm(i))
		}
	}
	return out
}

// multiplyAdds emits rounds of f32 multiply-adds in chains that do not wait for each other, and returns the sum of
// the chains.
func (b *builder) multiplyAdds(independent int) ptx.Reg {
	x := b.floats(independent + 2)
	b.loop(func(ptx.Reg) {
		for range unrolled {
			for c := range independent {
				b.I("fma.rn.f32", x[c], x[c], x[independent], x[independent+1])
			}
		}
	})
	for c := 1; c < independent; c++ {
		b.I("add.rn.f32", x[0], x[0], x[c])
	}
	return x[0]
}

// kernels are all that the measurements launch, for a target.
func kernels(t *target.Target) *ptx.Module {
	m := ptx.NewModule(t.Name)

	// A launch that does nothing but what kernels of models do for the next one.
	b := newKernel(m, "empty", 32)
	if t.DependentLaunch {
		b.I("griddepcontrol.wait")
		b.I("griddepcontrol.launch_dependents")
	}
	b.I("ret")

	// A launch that computes what models' kernels compute before a dependent launch. It would write sums below 0,
	// and there are none.
	b = newKernel(m, "work", workThreads)
	if t.DependentLaunch {
		b.I("griddepcontrol.wait")
		b.I("griddepcontrol.launch_dependents")
	}
	x, negative := b.multiplyAdds(accumulators), b.Reg(ptx.Pred)
	b.I("setp.lt.f32", negative, x, ptx.FImm(0))
	b.If(negative, "st.global.f32", ptx.At(b.own(), 0), x)
	b.I("ret")

	// A block that reads its parameters and its coordinates.
	b = newKernel(m, "start", 32)
	b.done(b.block)

	// f32 multiply-adds that wait for each other, or that do not.
	for _, independent := range []int{1, accumulators} {
		b = newKernel(m, fmt.Sprintf("fma%d", independent), 1024)
		b.I("st.global.f32", ptx.At(b.own(), 0), b.multiplyAdds(independent))
		b.I("ret")
	}

	for _, p := range products {
		if t.Multiplies(p.dtype) {
			p.kernel(m)
		}
	}

	// Barriers of a block.
	b = newKernel(m, "barrier", 256)
	b.loop(func(ptx.Reg) {
		for range unrolled {
			b.I("bar.sync", ptx.Imm(0))
		}
	})
	b.done(b.tid)

	// An atomic of a block, and the barrier that it takes for all to know of it.
	b = newKernel(m, "atomic", 256)
	mine, old, first := b.Reg(ptx.B64), b.Reg(ptx.B32), b.Reg(ptx.Pred)
	b.I("mad.wide.u32", mine, b.block, ptx.Imm(4), b.address("counters"))
	b.I("setp.eq.u32", first, b.tid, ptx.Imm(0))
	b.loop(func(ptx.Reg) {
		b.If(first, "atom.acq_rel.gpu.global.add.u32", old, ptx.At(mine, 0), ptx.Imm(1))
		b.I("bar.sync", ptx.Imm(0))
	})
	b.done(b.tid)

	handshake(m)

	// Loads that wait for each other: every word holds the offset of the next.
	b = newKernel(m, "chase", 32)
	from, at, next := b.address("from"), b.Reg(ptx.B64), b.Reg(ptx.B32)
	b.I("mov.b32", next, ptx.Imm(0))
	b.loop(func(ptx.Reg) {
		b.I("mad.wide.u32", at, next, ptx.Imm(1), from)
		b.I("ld.global.u32", next, ptx.At(at, 0))
	})
	b.done(next)

	// Likewise, with one pointer chase for each block; their starts are a fixed number of bytes from each other.
	b = newKernel(m, "chains", 32)
	from, at, next = b.address("from"), b.Reg(ptx.B64), b.Reg(ptx.B32)
	b.I("mul.lo.s32", next, b.block, b.number("apart"))
	b.loop(func(ptx.Reg) {
		b.I("mad.wide.u32", at, next, ptx.Imm(1), from)
		b.I("ld.global.u32", next, ptx.At(at, 0))
	})
	b.done(next)

	// Loads of a thread that do not wait for each other, a line each.
	b = newKernel(m, "loads", 32)
	from, at = b.address("from"), b.Reg(ptx.B64)
	words, sum, offset := b.RegVec(ptx.B32, together), b.Reg(ptx.B32), b.Reg(ptx.B32)
	b.I("mov.b32", sum, ptx.Imm(0))
	b.loop(func(round ptx.Reg) {
		b.I("mad.lo.u32", offset, round, ptx.Imm(together*lineBytes), b.tid)
		b.I("sub.u32", offset, offset, b.tid)
		b.I("mad.lo.u32", offset, b.tid, ptx.Imm(4), offset)
		b.I("mad.wide.u32", at, offset, ptx.Imm(1), from)
		for i := range words {
			b.I("ld.global.u32", words[i], ptx.At(at, i*lineBytes))
		}
		for i := range words {
			b.I("add.u32", sum, sum, words[i])
		}
	})
	b.done(sum)

	streams(m)
	policies(m)
	if bulkPrefetches(t) {
		prefetchKernels(m)
	}
	return m
}

// handshake is that of split-K blocks (codegen/contraction, partials), 1 << shift of which share a counter. A
// block's threads store their partial sums. Then its first thread counts the block and tells the others how many
// came before.
func handshake(m *ptx.Module) {
	b := newKernel(m, "handshake", handshakeThreads)
	counter, mine, group, i := b.Reg(ptx.B64), b.Reg(ptx.B64), b.Reg(ptx.B32), b.Reg(ptx.B32)
	old, sum, first := b.Reg(ptx.B32), b.Reg(ptx.B32), b.Reg(ptx.Pred)
	counters, partials, shift := b.address("counters"), b.address("partials"), b.number("shift")
	b.I("shr.u32", group, b.block, shift)
	b.I("mad.wide.u32", counter, group, ptx.Imm(4), counters)
	b.I("mad.lo.u32", i, b.block, ptx.Imm(handshakeThreads), b.tid)
	b.I("mad.wide.u32", mine, i, ptx.Imm(16), partials)
	b.I("setp.eq.u32", first, b.tid, ptx.Imm(0))
	b.I("mov.b32", sum, ptx.Imm(0))
	ticket := ptx.At(ptx.Sym(ptx.SharedName), 0)
	b.loop(func(round ptx.Reg) {
		b.I("st.global.v4.b32", ptx.At(mine, 0), ptx.V(round, b.tid, b.block, round))
		b.I("fence.acq_rel.gpu")
		b.I("bar.sync", ptx.Imm(0))
		b.If(first, "atom.acq_rel.gpu.global.add.u32", old, ptx.At(counter, 0), ptx.Imm(1))
		b.If(first, "st.shared.b32", ticket, old)
		b.I("bar.sync", ptx.Imm(0))
		b.I("ld.shared.b32", old, ticket)
		b.I("add.u32", sum, sum, old)
	})
	b.done(sum)
}

const (
	workThreads      = 256
	handshakeThreads = 256
	splitBlocks      = 8 // that share a counter
)

const (
	lineBytes = 128 // of the caches
	together  = 16  // loads that do not wait for each other
)

// streams are reads and writes of many bytes by all threads, 16 a thread at a time. Each round goes over all
// bytes. A block reads the part that the next one had in the previous round, so that its first-level cache holds
// none of it. It always writes its own part: of the buffer, or, if it copies, of a second half.
func streams(m *ptx.Module) {
	for _, s := range []struct {
		name          string
		reads, writes bool
	}{{"read", true, false}, {"write", false, true}, {"copy", true, true}} {
		b := newKernel(m, s.name, streamThreads)
		from, part := b.address("from"), b.number("part") // bytes of a block's part, a multiple of streamUnit
		blocks, begin, end, at, who := b.Reg(ptx.B32), b.Reg(ptx.B32), b.Reg(ptx.B32), b.Reg(ptx.B64), b.Reg(ptx.B32)
		offset, to := b.Reg(ptx.B32), at // from what a block reads to what it writes
		sum, words := b.Reg(ptx.B32), make([][]ptx.Reg, streamVectors)
		b.I("mov.u32", blocks, ptx.Special("%nctaid.x"))
		b.I("mov.b32", sum, ptx.Imm(0))
		for i := range words {
			words[i] = b.RegVec(ptx.B32, 4)
			for j := range words[i] {
				b.I("add.u32", words[i][j], b.tid, ptx.Imm(4*i+j))
			}
		}
		b.loop(func(round ptx.Reg) {
			if b.I("mov.b32", who, b.block); s.reads {
				b.I("add.u32", who, who, round)
				b.I("rem.u32", who, who, blocks)
			}
			b.I("mul.lo.s32", begin, who, part)
			b.I("add.u32", end, begin, part)
			b.I("mad.lo.u32", begin, b.tid, ptx.Imm(16), begin)
			if s.reads && s.writes {
				to = b.Reg(ptx.B64)
				b.I("add.u32", offset, b.block, blocks)
				b.I("sub.u32", offset, offset, who)
				b.I("mul.lo.s32", offset, offset, part)
			}
			more, inner := b.Reg(ptx.Pred), b.NewLabel("part")
			b.Place(inner)
			b.NoUnroll()
			b.I("mad.wide.u32", at, begin, ptx.Imm(1), from)
			if to != at {
				b.I("mad.wide.u32", to, offset, ptx.Imm(1), at)
			}
			for i := range words {
				if s.reads {
					b.I("ld.global.v4.b32", ptx.V(words[i]...), ptx.At(at, 16*streamThreads*i))
				}
			}
			for i := range words {
				switch {
				case s.writes:
					b.I("st.global.v4.b32", ptx.At(to, 16*streamThreads*i), ptx.V(words[i]...))
				default:
					for j := range words[i] {
						b.I("xor.b32", sum, sum, words[i][j])
					}
				}
			}
			b.I("add.u32", begin, begin, ptx.Imm(streamUnit))
			b.I("setp.lt.u32", more, begin, end)
			b.If(more, "bra", inner)
		})
		b.done(sum)
	}
}

// A block that reads or writes much: its threads, and vectors of 16 bytes that each of them has in flight.
const (
	streamThreads = 1024
	streamVectors = 8
	streamUnit    = 16 * streamVectors * streamThreads
)

// product is an mma by the type of what it multiplies.
type product struct {
	dtype  string
	op     string
	macs   int
	a, b   int    // registers of its operands
	scaled bool   // with scales of blocks
	ones   uint32 // a register of ones
}

var products = []product{
	{dtype: "f16", op: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", macs: 16 * 8 * 16, a: 4, b: 2, ones: 0x3c003c00},
	{dtype: "bf16", op: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", macs: 16 * 8 * 16, a: 4, b: 2, ones: 0x3f803f80},
	{dtype: "e4m3", op: "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", macs: 16 * 8 * 32, a: 4, b: 2, ones: 0x38383838},
	{dtype: "e2m1", op: "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", macs: 16 * 8 * 64, a: 4, b: 2, scaled: true, ones: 0x22222222},
}

// kernel multiplies ones, rounds times unrolled times accumulators of them a warp.
func (p product) kernel(m *ptx.Module) {
	b := newKernel(m, "mma_"+p.dtype, 512)
	x, y := b.RegVec(ptx.B32, p.a), b.RegVec(ptx.B32, p.b)
	for _, r := range append(append([]ptx.Reg{}, x...), y...) {
		b.I("mov.b32", r, ptx.Imm(p.ones))
	}
	scale := b.Reg(ptx.B32)
	if p.scaled {
		b.I("mov.b32", scale, ptx.Imm(0x38383838))
	}
	sums := make([][]ptx.Reg, accumulators)
	for i := range sums {
		sums[i] = b.RegVec(ptx.F32, 4)
		for _, r := range sums[i] {
			b.I("mov.f32", r, ptx.FImm(0))
		}
	}
	b.loop(func(ptx.Reg) {
		for i := range sums {
			args := []ptx.Operand{ptx.V(sums[i]...), ptx.V(x...), ptx.V(y...), ptx.V(sums[i]...)}
			if p.scaled {
				zero := ptx.Vec{ptx.Imm(0), ptx.Imm(0)}
				args = append(args, ptx.V(scale), zero, ptx.V(scale), zero)
			}
			b.I(p.op, args...)
		}
	})
	for i := 1; i < accumulators; i++ {
		b.I("add.rn.f32", sums[0][0], sums[0][0], sums[i][0])
	}
	b.I("st.global.f32", ptx.At(b.own(), 0), sums[0][0])
	b.I("ret")
}
