package emu

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// sharedAt is smem + scale·i.
func sharedAt(k *ptx.Kernel, i ptx.Reg, scale int) ptx.Reg {
	base, r := k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("mov.u32", base, ptx.Sym(ptx.SharedName))
	k.I("mad.lo.s32", r, i, ptx.Imm(scale), base)
	return r
}

func tidX(k *ptx.Kernel) ptx.Reg {
	r := k.Reg(ptx.B32)
	k.I("mov.u32", r, ptx.Special("%tid.x"))
	return r
}

func ctaX(k *ptx.Kernel) ptx.Reg {
	r := k.Reg(ptx.B32)
	k.I("mov.u32", r, ptx.Special("%ctaid.x"))
	return r
}

// pred is i op n.
func pred(k *ptx.Kernel, op string, i ptx.Reg, n int) ptx.Reg {
	p := k.Reg(ptx.Pred)
	k.I("setp."+op+".s32", p, i, ptx.Imm(n))
	return p
}

func storeShared(k *ptx.Kernel, at, v ptx.Reg) { k.I("st.shared.b32", ptx.At(at, 0), v) }
func loadShared(k *ptx.Kernel, at ptx.Reg, off int) ptx.Reg {
	r := k.Reg(ptx.B32)
	k.I("ld.shared.b32", r, ptx.At(at, off))
	return r
}
func barrier(k *ptx.Kernel) { k.I("bar.sync", ptx.Imm(0)) }

// countShared adds to a word that a thread has set, and reads it.
func countShared(k *ptx.Kernel, before, after bool) {
	i := tidX(k)
	at := ptx.At(ptx.Sym(ptx.SharedName), 0)
	k.If(pred(k, "eq", i, 0), "st.shared.b32", at, i)
	if before {
		barrier(k)
	}
	k.I("atom.shared.add.u32", k.Reg(ptx.B32), at, i)
	if after {
		barrier(k)
	}
	k.I("ld.shared.b32", k.Reg(ptx.B32), at)
}

// kernelCase is a kernel over two buffers of 4096 bytes, and the rule that it breaks; "" for none.
type kernelCase struct {
	name    string
	rule    Rule
	text    string // of the line that breaks it
	other   string // of the conflicting access's line
	target  string
	threads int
	blocks  int
	shared  int
	body    func(k *ptx.Kernel, p []ptx.Reg)
}

var kernelCases = []kernelCase{
	{name: "load past the end", rule: OutOfBounds, text: "ld.global.u32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(element(k, p[0], tidX(k)), 4096-4*31))
	}},
	{name: "load before the beginning", rule: OutOfBounds, text: "ld.global.u32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(p[0], -4))
	}},
	{name: "load of the last element", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(element(k, p[0], tidX(k)), 4096-4*32))
	}},
	{name: "misaligned vector load", rule: Misaligned, text: "ld.global.v4.f32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.global.v4.f32", ptx.V(k.RegVec(ptx.F32, 4)...), ptx.At(p[0], 8))
	}},
	{name: "store to a constant", rule: Undeclared, text: "st.global.u32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("st.global.u32", ptx.At(p[0], 0), tidX(k))
	}},
	{name: "prefetch of what is no constant", rule: Undeclared, text: "cp.async.bulk.prefetch.L2.global", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("cp.async.bulk.prefetch.L2.global", ptx.At(p[1], 0), ptx.Imm(4096))
	}},
	{name: "prefetch of a line of what is no constant", rule: Undeclared, text: "prefetch.global.L2", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("prefetch.global.L2", ptx.At(p[1], 0))
	}},
	{name: "prefetch past the end", rule: OutOfBounds, text: "cp.async.bulk.prefetch.L2.global", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("cp.async.bulk.prefetch.L2.global", ptx.At(p[0], 16), ptx.Imm(4096))
	}},
	{name: "misaligned prefetch", rule: Misaligned, text: "cp.async.bulk.prefetch.L2.global", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("cp.async.bulk.prefetch.L2.global", ptx.At(p[0], 8), ptx.Imm(32))
	}},
	{name: "prefetch of 1 MiB", rule: PrefetchSize, text: "cp.async.bulk.prefetch.L2.global", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("cp.async.bulk.prefetch.L2.global", ptx.At(p[0], 0), ptx.Imm(1<<20))
	}},
	{name: "prefetch of bytes that are not whole units", rule: Misaligned, text: "cp.async.bulk.prefetch.L2.global", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("cp.async.bulk.prefetch.L2.global", ptx.At(p[0], 16), ptx.Imm(40))
	}},
	{name: "prefetch of a constant", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("cp.async.bulk.prefetch.L2.global", ptx.At(p[0], 16), ptx.Imm(4080))
		k.I("prefetch.global.L2", ptx.At(p[0], 4095))
	}},
	{name: "load of an output before it is written", rule: Uninitialized, text: "ld.global.u32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(p[1], 0))
	}},
	{name: "load of an output after it is written", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		at := element(k, p[1], i)
		k.I("st.global.u32", ptx.At(at, 0), i)
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(at, 0))
	}},
	{name: "shared store past the launch's size", rule: OutOfBounds, text: "st.shared.b32", shared: 124, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		storeShared(k, sharedAt(k, i, 4), i)
	}},
	{name: "shared access without the base", rule: OutOfBounds, text: "st.shared.b32", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		storeShared(k, i, i)
	}},
	{name: "misaligned shared load", rule: Misaligned, text: "ld.shared.v2.b32", shared: 1024, body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.shared.v2.b32", ptx.V(k.RegVec(ptx.B32, 2)...), ptx.At(sharedAt(k, tidX(k), 4), 0))
	}},
	{name: "shared load of what nobody wrote", rule: Uninitialized, text: "ld.shared.b32", shared: 256, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		at := sharedAt(k, i, 4)
		storeShared(k, at, i)
		barrier(k)
		loadShared(k, at, 4)
	}},
	{name: "neighbour's word without a barrier", rule: SharedRace, text: "ld.shared.b32", other: "st.shared.b32", shared: 512, threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) {
			i := tidX(k)
			at := sharedAt(k, i, 4)
			storeShared(k, at, i)
			j := k.Reg(ptx.B32)
			k.I("and.b32", j, i, ptx.Imm(31))
			loadShared(k, sharedAt(k, j, 4), 0)
		}},
	{name: "neighbour's word after a barrier", shared: 512, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		storeShared(k, sharedAt(k, i, 4), i)
		barrier(k)
		j := k.Reg(ptx.B32)
		k.I("xor.b32", j, i, ptx.Imm(33))
		loadShared(k, sharedAt(k, j, 4), 0)
	}},
	{name: "neighbour lane's word without a warp barrier", rule: SharedRace, text: "ld.shared.b32", other: "st.shared.b32", shared: 128,
		body: func(k *ptx.Kernel, p []ptx.Reg) { exchange(k, false) }},
	{name: "neighbour lane's word after a warp barrier", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) { exchange(k, true) }},
	{name: "a lane's word read by all without a warp barrier", rule: SharedRace, text: "ld.shared.b32", other: "st.shared.b32", shared: 128,
		body: func(k *ptx.Kernel, p []ptx.Reg) { broadcast(k, false) }},
	{name: "a lane's word read by all after a warp barrier", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) { broadcast(k, true) }},
	{name: "lanes that read pairwise the same word write one back", rule: SharedRace, text: "st.shared.b32", other: "ld.shared.b32", shared: 128,
		body: func(k *ptx.Kernel, p []ptx.Reg) { pairs(k, false) }},
	{name: "lanes of which some read the same word write their own back", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) { pairs(k, true) }},
	{name: "write of what another warp still reads", rule: SharedRace, text: "st.shared.b32", other: "ld.shared.b32", shared: 128, threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { reuse(k, false) }},
	{name: "write of what another warp has read", shared: 128, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) { reuse(k, true) }},
	{name: "two lanes write a word", rule: SharedRace, text: "st.shared.b32", other: "st.shared.b32", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		h := k.Reg(ptx.B32)
		k.I("shr.u32", h, i, ptx.Imm(1))
		storeShared(k, sharedAt(k, h, 4), i)
	}},
	{name: "lanes of two warps add atomically to a word, read after a barrier", shared: 128, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) { countShared(k, true, true) }},
	{name: "read of a word to which other lanes add", rule: SharedRace, text: "ld.shared.b32", other: "atom.shared.add.u32", shared: 128, threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { countShared(k, true, false) }},
	{name: "atomic addition to a word that another lane has just set", rule: SharedRace, text: "atom.shared.add.u32", other: "st.shared.b32", shared: 128, threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { countShared(k, false, true) }},
	{name: "stmatrix read by other lanes without a barrier", rule: SharedRace, text: "ld.shared.b32", other: "stmatrix", target: "sm_90", shared: 512,
		body: func(k *ptx.Kernel, p []ptx.Reg) {
			at := sharedAt(k, tidX(k), 16)
			k.I("stmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.At(at, 0), zeros(k, ptx.B32, 4))
			loadShared(k, at, 4)
		}},
	{name: "reduction over lanes that are elsewhere", rule: Divergence, text: "redux.sync", body: func(k *ptx.Kernel, p []ptx.Reg) {
		r := tidX(k)
		k.If(pred(k, "lt", r, 16), "redux.sync.add.s32", k.Reg(ptx.B32), r, ptx.Imm(-1))
	}},
	{name: "lanes of a warp store one value to a word in one instruction", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, h := tidX(k), k.Reg(ptx.B32)
		k.I("shr.u32", h, i, ptx.Imm(3))
		storeShared(k, sharedAt(k, h, 4), h)
		k.I("st.global.b32", ptx.At(element(k, p[1], h), 0), h)
	}},
	{name: "lanes of a warp store one value to a word in two instructions", rule: SharedRace, text: "st.shared.b32", other: "st.shared.b32", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, v := tidX(k), k.Reg(ptx.B32)
		at, q := sharedAt(k, zeros(k, ptx.B32, 1)[0].(ptx.Reg), 4), pred(k, "lt", i, 16)
		k.I("mov.b32", v, ptx.Imm(5))
		k.If(q, "st.shared.b32", ptx.At(at, 0), v)
		k.Unless(q, "st.shared.b32", ptx.At(at, 0), v)
	}},
	{name: "lanes of two warps store one value to a word", shared: 128, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		zero := zeros(k, ptx.B32, 1)[0].(ptx.Reg)
		storeShared(k, sharedAt(k, zero, 4), zero)
	}},
	{name: "lanes of two warps store two values to a word", rule: SharedRace, text: "st.shared.b32", other: "st.shared.b32", shared: 128, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		warp := k.Reg(ptx.B32)
		k.I("shr.u32", warp, tidX(k), ptx.Imm(5))
		storeShared(k, sharedAt(k, zeros(k, ptx.B32, 1)[0].(ptx.Reg), 4), warp)
	}},
	{name: "lanes of two warps store one value to a word of global memory", rule: GlobalRace, text: "st.global.b32", other: "st.global.b32", threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("st.global.b32", ptx.At(p[1], 0), zeros(k, ptx.B32, 1)[0])
	}},
	{name: "read without a barrier of a word that all threads store alike", rule: SharedRace, text: "ld.shared.b32", other: "st.shared.b32", shared: 128, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		zero := zeros(k, ptx.B32, 1)[0].(ptx.Reg)
		at := sharedAt(k, zero, 4)
		k.I("st.shared.b32", ptx.At(at, 0), zero)
		loadShared(k, at, 0)
	}},
	{name: "two lanes store a word that differs in its last byte", rule: GlobalRace, text: "st.global.v2.b32", other: "st.global.v2.b32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, h := tidX(k), k.Reg(ptx.B32)
		k.I("shl.b32", h, i, ptx.Imm(24))
		k.I("st.global.v2.b32", ptx.At(p[1], 0), ptx.V(zeros(k, ptx.B32, 1)[0].(ptx.Reg), h))
	}},
	{name: "two lanes write halves of a word", shared: 128, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, h := tidX(k), k.Reg(ptx.B16)
		k.I("cvt.u16.u32", h, i)
		k.I("st.shared.b16", ptx.At(sharedAt(k, i, 2), 0), h)
	}},
	{name: "ldmatrix of another warp's rows without a barrier", rule: SharedRace, text: "ldmatrix", other: "st.shared.v4.b32", shared: 1024, threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { matrix(k, false) }},
	{name: "ldmatrix after a barrier", shared: 1024, threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) { matrix(k, true) }},
	{name: "cp.async data without a wait", rule: AsyncUnwaited, text: "ld.shared.b32", other: "cp.async", shared: 512,
		body: func(k *ptx.Kernel, p []ptx.Reg) { async(k, p, false, true) }},
	{name: "cp.async data of another thread without a barrier", rule: SharedRace, text: "ld.shared.b32", other: "cp.async", shared: 512,
		body: func(k *ptx.Kernel, p []ptx.Reg) { async(k, p, true, false) }},
	{name: "cp.async data after wait and barrier", shared: 512, body: func(k *ptx.Kernel, p []ptx.Reg) { async(k, p, true, true) }},
	{name: "cp.async of one group too many left in flight", rule: AsyncUnwaited, text: "ld.shared.b32", other: "cp.async", shared: 1024,
		body: func(k *ptx.Kernel, p []ptx.Reg) { pipeline(k, p, 1, 512) }},
	{name: "cp.async with the newest group in flight", shared: 1024, body: func(k *ptx.Kernel, p []ptx.Reg) { pipeline(k, p, 1, 0) }},
	{name: "barrier in divergent code", rule: Divergence, text: "bar.sync", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.If(pred(k, "lt", tidX(k), 7), "bar.sync", ptx.Imm(0))
	}},
	{name: "barrier after some threads have exited", rule: Divergence, text: "bar.sync", threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.If(pred(k, "ge", tidX(k), 32), "exit")
		barrier(k)
	}},
	{name: "warps at different barriers", rule: Deadlock, text: "bar.sync", threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		q := pred(k, "ge", tidX(k), 32)
		k.If(q, "bar.sync", ptx.Imm(1))
		k.Unless(q, "bar.sync", ptx.Imm(2))
	}},
	{name: "shuffle of lanes that are elsewhere", rule: Divergence, text: "shfl.sync", body: func(k *ptx.Kernel, p []ptx.Reg) {
		r := tidX(k)
		k.If(pred(k, "lt", r, 16), "shfl.sync.bfly.b32", ptx.Pair{D: k.Reg(ptx.B32), P: k.Reg(ptx.Pred)}, r, ptx.Imm(1), ptx.Imm(31), ptx.Imm(-1))
	}},
	{name: "shuffle among half a warp", body: func(k *ptx.Kernel, p []ptx.Reg) {
		r := tidX(k)
		k.If(pred(k, "lt", r, 16), "shfl.sync.bfly.b32", ptx.Pair{D: k.Reg(ptx.B32), P: k.Reg(ptx.Pred)}, r, ptx.Imm(1), ptx.Imm(31), ptx.Imm(0xffff))
	}},
	{name: "mma with half a warp", rule: Divergence, text: "mma.sync", body: func(k *ptx.Kernel, p []ptx.Reg) {
		c := zeros(k, ptx.F32, 4)
		k.If(pred(k, "lt", tidX(k), 16), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", c, zeros(k, ptx.B32, 4), zeros(k, ptx.B32, 2), c)
	}},
	{name: "mma in a block of 48 threads", rule: Divergence, text: "mma.sync", threads: 48, body: func(k *ptx.Kernel, p []ptx.Reg) {
		c := zeros(k, ptx.F32, 4)
		k.I("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", c, zeros(k, ptx.B32, 4), zeros(k, ptx.B32, 2), c)
	}},
	{name: "two blocks write one word", rule: GlobalRace, text: "st.global.u32", other: "st.global.u32", blocks: 2, body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), i)
	}},
	{name: "two blocks write two halves of a word", blocks: 2, threads: 1, body: func(k *ptx.Kernel, p []ptx.Reg) {
		a := k.Reg(ptx.B64)
		k.I("mad.wide.u32", a, ctaX(k), ptx.Imm(2), p[1])
		h := k.Reg(ptx.B16)
		k.I("mov.b16", h, ptx.Imm(7))
		k.I("st.global.b16", ptx.At(a, 0), h)
	}},
	{name: "store before griddepcontrol.wait", rule: DependentEarly, text: "st.global.u32", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), i)
		k.I("griddepcontrol.wait")
	}},
	{name: "constant before griddepcontrol.wait", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, r := tidX(k), k.Reg(ptx.B32)
		k.I("ld.global.u32", r, ptx.At(element(k, p[0], i), 0))
		k.I("griddepcontrol.wait")
		k.I("griddepcontrol.launch_dependents")
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), r)
	}},
	{name: "griddepcontrol.wait in some threads", rule: DependentEarly, text: "st.global.u32", target: "sm_90", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		k.If(pred(k, "lt", i, 31), "griddepcontrol.wait")
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), i)
	}},
	{name: "mma of an accumulator that nobody set", rule: UndefinedRegister, text: "mma.sync", body: func(k *ptx.Kernel, p []ptx.Reg) {
		c := ptx.V(k.RegVec(ptx.F32, 4)...)
		k.I("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", c, zeros(k, ptx.B32, 4), zeros(k, ptx.B32, 2), c)
	}},
	{name: "register set in some lanes and read in all", rule: UndefinedRegister, text: "st.global.u32", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, r := tidX(k), k.Reg(ptx.B32)
		k.If(pred(k, "lt", i, 31), "mov.b32", r, ptx.Imm(1))
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), r)
	}},
	{name: "register set and read in the same lanes", body: func(k *ptx.Kernel, p []ptx.Reg) {
		i, r, sel := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32)
		some := pred(k, "lt", i, 31)
		k.If(some, "mov.b32", r, ptx.Imm(1))
		k.If(some, "st.global.u32", ptx.At(element(k, p[1], i), 0), r)
		k.I("selp.b32", sel, r, ptx.Imm(2), some) // takes r where it is set
		k.Unless(some, "mov.b32", r, ptx.Imm(3))
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), r)
	}},
	{name: "selp that takes what is not set", rule: UndefinedRegister, text: "selp", body: func(k *ptx.Kernel, p []ptx.Reg) {
		r, some := k.Reg(ptx.B32), pred(k, "lt", tidX(k), 31)
		k.If(some, "mov.b32", r, ptx.Imm(1))
		k.I("selp.b32", k.Reg(ptx.B32), ptx.Imm(2), r, some)
	}},
	{name: "register set on one way to a join", rule: UndefinedRegister, text: "add.s32", threads: 64, body: func(k *ptx.Kernel, p []ptx.Reg) {
		r, join := k.Reg(ptx.B32), k.NewLabel("join")
		k.If(pred(k, "ge", tidX(k), 32), "bra", join)
		k.I("mov.b32", r, ptx.Imm(1))
		k.Place(join)
		k.I("add.s32", r, r, ptx.Imm(1))
	}},
	{name: "guard that nobody set", rule: UndefinedRegister, text: "@%p0", body: func(k *ptx.Kernel, p []ptx.Reg) {
		k.If(k.Reg(ptx.Pred), "st.global.u32", ptx.At(p[1], 0), ptx.Imm(1))
	}},
	{name: "uniform branch that some lanes take", rule: Divergence, text: "bra.uni", body: func(k *ptx.Kernel, p []ptx.Reg) {
		l := k.NewLabel("l")
		k.If(pred(k, "lt", tidX(k), 31), "bra.uni", l)
		k.Place(l)
	}},
	{name: "two threads of a block write one word", rule: GlobalRace, text: "st.global.u32", other: "st.global.u32", threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { k.I("st.global.u32", ptx.At(p[1], 0), tidX(k)) }},
	{name: "neighbour warp's word of global memory without a barrier", rule: Uninitialized, text: "ld.global.u32", threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { swapGlobal(k, p[1], 32, "") }},
	{name: "neighbour warp's word of global memory after a barrier", threads: 64,
		body: func(k *ptx.Kernel, p []ptx.Reg) { swapGlobal(k, p[1], 32, "bar.sync") }},
	{name: "neighbour lane's word of global memory without a barrier", rule: GlobalRace, text: "ld.global.u32", other: "st.global.u32",
		body: func(k *ptx.Kernel, p []ptx.Reg) { swapGlobal(k, p[1], 1, "") }},
	{name: "neighbour lane's word of global memory after a warp barrier",
		body: func(k *ptx.Kernel, p []ptx.Reg) { swapGlobal(k, p[1], 1, "bar.warp.sync") }},
	{name: "write of a word of global memory that the neighbour still reads", rule: GlobalRace, text: "st.global.u32", other: "ld.global.u32",
		body: func(k *ptx.Kernel, p []ptx.Reg) {
			i := tidX(k)
			at := swapGlobal(k, p[1], 1, "bar.warp.sync")
			k.I("st.global.u32", ptx.At(at, 0), i)
		}},
	{name: "loop without end", rule: StepLimit, text: "bra", body: func(k *ptx.Kernel, p []ptx.Reg) {
		l := k.NewLabel("forever")
		k.Place(l)
		k.I("bra", l)
	}},
}

// zeros is a vector of registers that hold 0.
func zeros(k *ptx.Kernel, class ptx.Class, n int) ptx.Vec {
	rs := k.RegVec(class, n)
	for _, r := range rs {
		if class == ptx.F32 {
			k.I("mov.f32", r, ptx.FImm(0))
		} else {
			k.I("mov.b32", r, ptx.Imm(0))
		}
	}
	return ptx.V(rs...)
}

// exchange writes a word a lane and reads the neighbour's.
func exchange(k *ptx.Kernel, sync bool) {
	i, j := tidX(k), k.Reg(ptx.B32)
	storeShared(k, sharedAt(k, i, 4), i)
	k.I("xor.b32", j, i, ptx.Imm(1))
	at := sharedAt(k, j, 4)
	if sync {
		k.I("bar.warp.sync", ptx.Imm(-1))
	}
	loadShared(k, at, 0)
}

// swapGlobal writes a word a thread and reads that of the thread whose number differs in a bit.
func swapGlobal(k *ptx.Kernel, base ptx.Reg, bit int, sync string) ptx.Reg {
	i, j := tidX(k), k.Reg(ptx.B32)
	at := element(k, base, i)
	k.I("st.global.u32", ptx.At(at, 0), i)
	switch sync {
	case "bar.sync":
		barrier(k)
	case "bar.warp.sync":
		k.I(sync, ptx.Imm(-1))
	}
	k.I("xor.b32", j, i, ptx.Imm(bit))
	k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(element(k, base, j), 0))
	return at
}

// broadcast has lane 0 write a word and all lanes read it.
func broadcast(k *ptx.Kernel, sync bool) {
	i, base := tidX(k), k.Reg(ptx.B32)
	k.I("mov.u32", base, ptx.Sym(ptx.SharedName))
	k.If(pred(k, "eq", i, 0), "st.shared.b32", ptx.At(base, 0), i)
	if sync {
		k.I("bar.warp.sync", ptx.Imm(-1))
	}
	loadShared(k, base, 0)
}

// pairs has lanes 0 and 1 read word 0, the others word i; then lane 0, or every other lane, writes the word that it
// read.
func pairs(k *ptx.Kernel, others bool) {
	i, j := tidX(k), k.Reg(ptx.B32)
	storeShared(k, sharedAt(k, i, 4), i)
	barrier(k)
	k.I("selp.b32", j, ptx.Imm(0), i, pred(k, "eq", i, 1))
	at := sharedAt(k, j, 4)
	loadShared(k, at, 0)
	op := "eq"
	if others {
		op = "gt"
	}
	q := pred(k, op, j, 0)
	k.If(q, "st.shared.b32", ptx.At(at, 0), i)
}

// reuse has all warps read what warp 0 wrote, and warp 0 write again.
func reuse(k *ptx.Kernel, sync bool) {
	i, j := tidX(k), k.Reg(ptx.B32)
	k.I("and.b32", j, i, ptx.Imm(31))
	at := sharedAt(k, j, 4)
	first := pred(k, "lt", i, 32)
	k.If(first, "st.shared.b32", ptx.At(at, 0), i)
	barrier(k)
	loadShared(k, at, 0)
	if sync {
		barrier(k)
	}
	last := pred(k, "ge", i, 32)
	k.If(last, "st.shared.b32", ptx.At(at, 0), i)
}

// matrix has warp 1 read by ldmatrix the rows that warp 0 wrote.
func matrix(k *ptx.Kernel, sync bool) {
	i, j := tidX(k), k.Reg(ptx.B32)
	k.I("and.b32", j, i, ptx.Imm(31))
	at := sharedAt(k, j, 16)
	k.If(pred(k, "lt", i, 32), "st.shared.v4.b32", ptx.At(at, 0), ptx.V(i, i, i, i))
	if sync {
		barrier(k)
	}
	end := k.NewLabel("end")
	k.If(pred(k, "lt", i, 32), "bra", end)
	k.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(k.RegVec(ptx.B32, 4)...), ptx.At(at, 0))
	k.Place(end)
}

// async copies 16 bytes a thread and reads the neighbour's.
func async(k *ptx.Kernel, p []ptx.Reg, wait, sync bool) {
	i, j, src := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B64)
	k.I("mad.wide.u32", src, i, ptx.Imm(16), p[0])
	k.I("cp.async.cg.shared.global", ptx.At(sharedAt(k, i, 16), 0), ptx.At(src, 0), ptx.Imm(16), ptx.Imm(16))
	k.I("cp.async.commit_group")
	if wait {
		k.I("cp.async.wait_group", ptx.Imm(0))
	}
	if sync {
		barrier(k)
	}
	k.I("xor.b32", j, i, ptx.Imm(1))
	loadShared(k, sharedAt(k, j, 16), 0)
}

// pipeline copies two groups, waits for all but keep, and reads at off.
func pipeline(k *ptx.Kernel, p []ptx.Reg, keep, off int) {
	i, src := tidX(k), k.Reg(ptx.B64)
	k.I("mad.wide.u32", src, i, ptx.Imm(16), p[0])
	at := sharedAt(k, i, 16)
	for g := range 2 {
		k.I("cp.async.cg.shared.global", ptx.At(at, 512*g), ptx.At(src, 512*g), ptx.Imm(16), ptx.Imm(16))
		k.I("cp.async.commit_group")
	}
	k.I("cp.async.wait_group", ptx.Imm(keep))
	barrier(k)
	loadShared(k, at, off)
}

func (c kernelCase) run(opts Options) error {
	target := c.target
	if target == "" {
		target = "sm_80"
	}
	text := build(target, 0, 2, c.body)
	return RunKernelWith(opts, text, "k", [3]int{max(c.blocks, 1), 1, 1}, [3]int{max(c.threads+32*(1-min(c.threads, 1)), 1), 1, 1}, c.shared,
		Const{make([]byte, 4096)}, Out{make([]byte, 4096)})
}

func TestEachCheckFindsItsKernelAndOnlyThat(t *testing.T) {
	for _, c := range kernelCases {
		t.Run(c.name, func(t *testing.T) {
			err := c.run(Options{Check: true, StepLimit: 1 << 20})
			if c.rule == "" {
				require.NoError(t, err)
				return
			}
			var v *Violation
			require.ErrorAs(t, err, &v)
			require.Equal(t, c.rule, v.Rule, err)
			require.Equal(t, "k", v.Kernel)
			require.Contains(t, v.Text, c.text)
			require.Positive(t, v.Line)
			if c.other != "" {
				require.NotNil(t, v.Conflict, err)
				require.Contains(t, v.Conflict.Text, c.other)
			}
		})
	}
}

func TestWithoutChecksAKernelStillCannotLeaveItsMemoryOrHang(t *testing.T) {
	for _, c := range kernelCases {
		switch c.rule {
		case OutOfBounds, Misaligned, PrefetchSize, StepLimit, Deadlock:
			var v *Violation
			require.ErrorAs(t, c.run(Options{StepLimit: 1 << 20}), &v, c.name)
			require.Equal(t, c.rule, v.Rule, c.name)
		}
	}
}

func TestAViolationNamesEverything(t *testing.T) {
	at := slices.IndexFunc(kernelCases, func(c kernelCase) bool { return c.name == "neighbour's word without a barrier" })
	err := kernelCases[at].run(Options{Check: true})
	require.ErrorContains(t, err, "emu: kernel k: race in shared memory: shared memory at offset")
	require.ErrorContains(t, err, "(ld.shared.b32 %r6, [%r5];), block [0 0 0], thread [32 0 0]; conflicts with the write of line")
}

// splitK has every block store its part, count itself, and the last to arrive read all parts.
func splitK(op string, before, after string) string {
	return build("sm_90", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i, b := tidX(k), ctaX(k)
		slot := k.Reg(ptx.B32)
		k.I("mad.lo.s32", slot, b, ptx.Imm(32), i)
		k.I("st.global.u32", ptx.At(element(k, p[0], slot), 0), slot)
		barrier(k)
		first, n, smem := pred(k, "eq", i, 0), k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("mov.u32", smem, ptx.Sym(ptx.SharedName))
		end, skip := k.NewLabel("end"), k.NewLabel("skip")
		k.Unless(first, "bra", skip)
		if before != "" {
			k.I(before)
		}
		k.I(op, n, ptx.At(p[1], 0), ptx.Imm(1))
		if after != "" {
			k.I(after)
		}
		storeShared(k, smem, n)
		k.Place(skip)
		barrier(k)
		got := loadShared(k, smem, 0)
		k.If(pred(k, "ne", got, 7), "bra", end)
		sum := k.Reg(ptx.B32)
		k.I("mov.u32", sum, ptx.Imm(0))
		for part := range 8 {
			v := k.Reg(ptx.B32)
			k.I("ld.global.u32", v, ptx.At(element(k, p[0], i), 128*part))
			k.I("add.s32", sum, sum, v)
		}
		k.I("st.global.u32", ptx.At(element(k, p[0], i), 1024), sum)
		k.If(pred(k, "eq", i, 0), "st.global.u32", ptx.At(p[1], 0), ptx.Imm(0))
		k.Place(end)
	})
}

func TestTheLastBlockToArriveMayReadAllParts(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"acquire and release":        {splitK("atom.acq_rel.gpu.global.add.u32", "", ""), true},
		"relaxed between two fences": {splitK("atom.global.add.u32", "fence.acq_rel.gpu", "fence.acq_rel.gpu"), true},
		"relaxed alone":              {splitK("atom.global.add.u32", "", ""), false},
		"relaxed, fence only after":  {splitK("atom.global.add.u32", "", "fence.acq_rel.gpu"), false},
		"relaxed, fence only before": {splitK("atom.global.add.u32", "fence.acq_rel.gpu", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				parts, count := make([]uint32, 8*32+32), make([]uint32, 1)
				err := RunKernel(c.text, "k", [3]int{8, 1, 1}, [3]int{32, 1, 1}, 4, parts, count)
				if !c.ok {
					var v *Violation
					require.ErrorAs(t, err, &v)
					require.Equal(t, GlobalRace, v.Rule)
					continue
				}
				require.NoError(t, err)
				for i := range 32 {
					require.Equal(t, uint32(8*i+32*28), parts[256+i])
				}
				require.Zero(t, count[0])
			}
		})
	}
}

// TestCountingBlocksAreOrderedAsTheyCount: many blocks count at a time, and what is known of their order is what memory
// says.
func TestCountingBlocksAreOrderedAsTheyCount(t *testing.T) {
	text := splitK("atom.acq_rel.gpu.global.add.u32", "", "")
	for range 4000 { // the mistake that this is about shows in one of a thousand
		parts, count := make([]uint32, 8*32+32), make([]uint32, 1)
		require.NoError(t, RunKernelWith(Options{Check: true, Workers: 8}, text, "k", [3]int{8, 1, 1}, [3]int{32, 1, 1}, 4, parts, count))
	}
}

// TestGraphChecks: what needs several ops.
func TestGraphChecks(t *testing.T) {
	ctx := context.Background()
	d, err := Open(Options{Check: true})
	require.NoError(t, err)
	m, err := d.Load(ctx, hal.Image{Name: "copy", PTX: build("sm_90", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i, r := tidX(k), k.Reg(ptx.B32)
		k.I("ld.global.u32", r, ptx.At(element(k, p[0], i), 0))
		k.I("st.global.u32", ptx.At(element(k, p[1], i), 0), r)
	})})
	require.NoError(t, err)
	alloc := func(n int, kind hal.MemoryKind) hal.Memory {
		mem, err := d.Alloc(n, kind)
		require.NoError(t, err)
		return mem
	}
	in, arena, out := alloc(128, hal.HostVisible), alloc(512, hal.ScratchMemory), alloc(128, hal.HostVisible)
	op := func(src hal.Memory, so int, dst hal.Memory, do int, after ...int) hal.Op {
		return hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, After: after,
			Params: []uint64{src.Addr() + uint64(so), dst.Addr() + uint64(do)}, Sizes: []int{8, 8},
			Reads:  []hal.Range{{Memory: src, Offset: so, Bytes: 128}},
			Writes: []hal.Range{{Memory: dst, Offset: do, Bytes: 128}}}
	}
	run := func(ops ...hal.Op) *Violation {
		g, err := d.Capture(ctx, ops)
		if err == nil {
			err = g.Run(ctx)
		}
		if err == nil {
			err = g.Run(ctx)
		}
		if err == nil {
			return nil
		}
		var v *Violation
		require.ErrorAs(t, err, &v)
		return v
	}
	require.Nil(t, run(op(in, 0, arena, 0), op(arena, 0, arena, 256, 0), op(arena, 256, out, 0, 1)))

	v := run(op(in, 0, arena, 0), op(arena, 0, arena, 256), op(arena, 256, out, 0, 1))
	require.Equal(t, MissingEdge, v.Rule)
	require.Contains(t, v.Detail, "op 1 reads what op 0 (k) writes")

	v = run(op(in, 0, arena, 0), op(arena, 0, out, 0, 0), op(in, 0, arena, 64))
	require.Equal(t, MissingEdge, v.Rule)
	require.Contains(t, v.Detail, "op 2 writes what op 0 (k) writes")

	v = run(op(in, 0, arena, 0), op(arena, 0, out, 0, 0), op(in, 0, arena, 64, 0))
	require.Contains(t, v.Detail, "op 2 writes what op 1 (k) reads")

	// The arena holds nothing from a run before.
	require.Equal(t, Uninitialized, run(op(arena, 0, out, 0)).Rule)

	// A range that an op overwrites holds nothing of what was there, even if the op leaves it alone.
	idle := op(in, 0, out, 0, 0)
	idle.Writes = append(idle.Writes, hal.Range{Memory: arena, Offset: 0, Bytes: 128})
	v = run(op(in, 0, arena, 0), idle, op(arena, 0, out, 0, 1))
	require.Equal(t, Uninitialized, v.Rule)
	require.Contains(t, v.Where, "offset 0 of the 512-byte allocation")

	// Copies carry definedness along.
	cp := hal.Op{Src: arena, SrcOffset: 0, Dst: arena, DstOffset: 256, Bytes: 128, After: []int{0}}
	require.Nil(t, run(op(in, 0, arena, 0), cp, op(arena, 256, out, 0, 1)))
	cp.SrcOffset = 128
	require.Equal(t, Uninitialized, run(op(in, 0, arena, 0), cp, op(arena, 256, out, 0, 1)).Rule)

	// A dependent launch that never waits.
	dep := op(in, 0, out, 0, 0)
	dep.Dependent = true
	require.Equal(t, DependentEarly, run(op(in, 0, arena, 0), dep).Rule)
}

func TestLaunchesThatTheDriverWouldRefuse(t *testing.T) {
	text := build("sm_80", 64, 1, func(*ptx.Kernel, []ptx.Reg) {})
	one := [3]int{1, 1, 1}
	for name, c := range map[string]struct {
		grid, block [3]int
		shared      int
		kernel      string
		args        []any
		want        string
	}{
		"no kernel":          {one, one, 0, "z", []any{make([]byte, 4)}, "no kernel z"},
		"empty grid":         {[3]int{0, 1, 1}, one, 0, "k", []any{make([]byte, 4)}, "grid"},
		"grid too high":      {[3]int{1, 65536, 1}, one, 0, "k", []any{make([]byte, 4)}, "a grid has 1 to [2147483647 65535 65535] blocks"},
		"block too deep":     {one, [3]int{1, 1, 65}, 0, "k", []any{make([]byte, 4)}, "a block 1 to [1024 1024 64] threads"},
		"block over maxntid": {one, [3]int{65, 1, 1}, 0, "k", []any{make([]byte, 4)}, "65 threads"},
		"shared memory":      {one, one, 1 << 20, "k", []any{make([]byte, 4)}, "shared memory"},
		"missing parameter":  {one, one, 0, "k", nil, "0 parameters"},
		"wrong size":         {one, one, 0, "k", []any{uint32(1)}, "has 4 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, RunKernel(text, c.kernel, c.grid, c.block, c.shared, c.args...), c.want)
		})
	}
	require.ErrorContains(t, RunKernel(strings.Replace(text, "ret", "jump", 1), "k", one, one, 0), "line")
}

// TestKnowledgeTravelsByReleaseAndAcquire: block 0 writes and raises flag 0; block 1 waits for it and raises flag 1;
// block 2 waits for that and reads what block 0 wrote. late has block 0 write after its release.
func TestKnowledgeTravelsByReleaseAndAcquire(t *testing.T) {
	sequence := func(late bool) string {
		return build("sm_90", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i, b := tidX(k), ctaX(k)
			data := element(k, p[0], i)
			first, wait, spin, last := pred(k, "eq", b, 0), k.NewLabel("wait"), k.NewLabel("spin"), k.NewLabel("last")
			k.Unless(first, "bra", wait)
			if !late {
				k.I("st.global.u32", ptx.At(data, 0), i)
			}
			barrier(k)
			k.I("st.release.gpu.global.u32", ptx.At(element(k, p[1], i), 0), ptx.Imm(1))
			barrier(k)
			if late {
				k.I("st.global.u32", ptx.At(data, 0), i)
			}
			k.I("ret")
			k.Place(wait)
			flag, v := k.Reg(ptx.B64), k.Reg(ptx.B32)
			k.I("mad.wide.s32", flag, b, ptx.Imm(128), p[1])
			flag = element(k, flag, i)
			k.Place(spin)
			k.I("ld.acquire.gpu.global.u32", v, ptx.At(flag, -128))
			k.If(pred(k, "eq", v, 0), "bra", spin)
			barrier(k)
			k.If(pred(k, "eq", b, 2), "bra", last)
			k.I("st.release.gpu.global.u32", ptx.At(flag, 0), ptx.Imm(1))
			k.I("ret")
			k.Place(last)
			k.I("ld.global.u32", v, ptx.At(data, 0))
		})
	}
	for _, workers := range []int{1, 3} {
		opts := Options{Check: true, Workers: workers}
		run := func(late bool) error {
			return RunKernelWith(opts, sequence(late), "k", [3]int{3, 1, 1}, [3]int{32, 1, 1}, 0, make([]uint32, 32), make([]uint32, 64))
		}
		require.NoError(t, run(false))
		var v *Violation
		require.ErrorAs(t, run(true), &v)
		require.Equal(t, GlobalRace, v.Rule)
	}
}

// TestAReleaseDoesNotCoverAnotherLane: lane 1 writes, lane 0 raises the flag, with or without a warp barrier between
// them.
func TestAReleaseDoesNotCoverAnotherLane(t *testing.T) {
	for _, sync := range []bool{false, true} {
		text := build("sm_90", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i, v := tidX(k), k.Reg(ptx.B32)
			data := element(k, p[0], i)
			other, spin := k.NewLabel("other"), k.NewLabel("spin")
			k.If(pred(k, "ne", ctaX(k), 0), "bra", other)
			k.I("st.global.u32", ptx.At(data, 0), i)
			if sync {
				k.I("bar.warp.sync", ptx.Imm(-1))
			}
			k.If(pred(k, "eq", i, 0), "st.release.gpu.global.u32", ptx.At(p[1], 0), ptx.Imm(1))
			k.I("ret")
			k.Place(other)
			k.Place(spin)
			k.I("ld.acquire.gpu.global.u32", v, ptx.At(p[1], 0))
			k.If(pred(k, "eq", v, 0), "bra", spin)
			k.I("ld.global.u32", v, ptx.At(data, 0))
		})
		err := RunKernelWith(Options{Check: true, Workers: 1}, text, "k", [3]int{2, 1, 1}, [3]int{32, 1, 1}, 0, make([]uint32, 64), make([]uint32, 1))
		if sync {
			require.NoError(t, err)
			continue
		}
		var v *Violation
		require.ErrorAs(t, err, &v)
		require.Equal(t, GlobalRace, v.Rule)
		require.Equal(t, [3]int{1, 0, 0}, v.Conflict.Thread)
	}
}

// TestAReleaseDoesNotCoverAnotherWarp: warp 1 writes, warp 0 raises the flag, with or without a barrier between them.
func TestAReleaseDoesNotCoverAnotherWarp(t *testing.T) {
	for _, sync := range []bool{false, true} {
		text := build("sm_90", 64, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i, v := tidX(k), k.Reg(ptx.B32)
			data := element(k, p[0], i)
			other, spin := k.NewLabel("other"), k.NewLabel("spin")
			k.If(pred(k, "ne", ctaX(k), 0), "bra", other)
			k.If(pred(k, "ge", i, 32), "st.global.u32", ptx.At(data, 0), i)
			if sync {
				barrier(k)
			}
			k.If(pred(k, "eq", i, 0), "st.release.gpu.global.u32", ptx.At(p[1], 0), ptx.Imm(1))
			k.I("ret")
			k.Place(other)
			k.Place(spin)
			k.I("ld.acquire.gpu.global.u32", v, ptx.At(p[1], 0))
			k.If(pred(k, "eq", v, 0), "bra", spin)
			k.I("ld.global.u32", v, ptx.At(data, 0))
		})
		err := RunKernelWith(Options{Check: true, Workers: 1}, text, "k", [3]int{2, 1, 1}, [3]int{64, 1, 1}, 0, make([]uint32, 64), make([]uint32, 1))
		if sync {
			require.NoError(t, err)
			continue
		}
		var v *Violation
		require.ErrorAs(t, err, &v)
		require.Equal(t, GlobalRace, v.Rule)
		require.Equal(t, [3]int{32, 0, 0}, v.Conflict.Thread)
	}
}
