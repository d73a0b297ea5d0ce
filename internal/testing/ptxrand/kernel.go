// Package ptxrand generates random kernels from the instruction table, with fully defined results, to compare one executor
// of PTX with another, and shrinks those that fail.
//
// A kernel reads a buffer, computes on a pool of registers of every class, branches and loops by lane and by warp,
// exchanges by shuffles, shared memory and asynchronous copies, and at its end stores every register of every thread.
// Threads write only their own shared and global memory, and read that of others after a barrier, so that the result does
// not depend on the order of warps.
package ptxrand

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Case is a kernel, "k", of two parameters: the address of Input and that of Output bytes.
type Case struct {
	Seed    uint64
	Text    string
	Threads int // of the one block
	Shared  int
	Input   []uint64
	Output  int // bytes
}

const (
	inputWords   = 1024
	threadShared = 64 // bytes of shared memory that a thread owns
	threadOutput = 512
)

// New returns the kernel of a seed.
func New(seed uint64) Case {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	c := Case{Seed: seed, Threads: []int{32, 64, 128, 45, 7}[r.IntN(5)], Input: make([]uint64, inputWords)}
	for i := range c.Input {
		c.Input[i] = Bits(r)
	}
	c.Shared = 128 * threadShared
	c.Output = c.Threads * threadOutput
	m := ptx.NewModule(target.Default().Name + "a")
	g := &generator{r: r, k: m.NewKernel("k", 0), whole: c.Threads%32 == 0}
	g.kernel()
	c.Text = m.String()
	return c
}

// Bits are 64 random bits, often at the edges of 16-, 32- and 64-bit numbers.
func Bits(r *rand.Rand) uint64 {
	edges := [...]uint64{0x7f800000, 0xff800000, 0x7fc00001, 0xffffffff, 1, 0x80000000, 0x7fffffff, 0x007fffff, 0x00800000,
		0x4f000000, 0xcf000000, 0x4effffff, 0x7c00, 0xfc00, 0x7e01, 0x8000, 0x03ff}
	switch r.IntN(8) {
	case 0:
		return uint64(r.IntN(64))
	case 1:
		return -uint64(r.IntN(64))
	case 2:
		return uint64(math.Float32bits(float32(r.NormFloat64()))) | r.Uint64()<<32
	case 3:
		return edges[r.IntN(len(edges))]
	case 4:
		return math.Float64bits(r.NormFloat64() * math.Exp(r.NormFloat64()*40))
	case 5:
		return uint64(math.Float32bits(float32(r.NormFloat64() * math.Exp(r.NormFloat64()*30))))
	case 6:
		return r.Uint64() & (1<<(1+r.IntN(63)) - 1)
	}
	return r.Uint64()
}

// generator writes one kernel.
type generator struct {
	r     *rand.Rand
	k     *ptx.Kernel
	pool  [ptx.NumClasses][]ptx.Reg
	whole bool // every warp has all its lanes
	depth int

	tid, own    ptx.Reg // the thread, and its shared memory
	shared      ptx.Reg
	input       ptx.Reg
	output      ptx.Reg
	together    bool // all threads of the block execute this
	pendingCopy bool
}

// pooled are the classes of registers that kernels compute on.
var pooled = []struct {
	class ptx.Class
	n     int
}{{ptx.B32, 10}, {ptx.F32, 8}, {ptx.B64, 5}, {ptx.F64, 3}, {ptx.B16, 5}, {ptx.B8, 2}, {ptx.Pred, 4}}

func (g *generator) kernel() {
	k, r := g.k, g.r
	in, out := k.AddParam("in", "u64"), k.AddParam("out", "u64")
	g.input, g.output = k.Reg(ptx.B64), k.Reg(ptx.B64)
	k.I("ld.param.u64", g.input, ptx.At(in, 0))
	k.I("ld.param.u64", g.output, ptx.At(out, 0))
	g.tid, g.own, g.shared = k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("mov.u32", g.tid, ptx.Special("%tid.x"))
	k.I("mov.u32", g.shared, ptx.Sym(ptx.SharedName))
	k.I("mad.lo.u32", g.own, g.tid, ptx.Imm(threadShared), g.shared)
	k.I("mad.wide.u32", g.output, g.tid, ptx.Imm(threadOutput), g.output)
	for _, p := range pooled {
		for range p.n {
			reg := k.Reg(p.class)
			g.pool[p.class] = append(g.pool[p.class], reg)
			g.load(reg)
		}
	}
	for i := 0; i < threadShared; i += 16 {
		v := [4]ptx.Reg{g.any(ptx.B32), g.any(ptx.B32), g.any(ptx.B32), g.any(ptx.B32)}
		k.I("st.shared.v4.b32", ptx.At(g.own, i), ptx.V(v[:]...))
	}
	k.I("bar.sync", ptx.Imm(0))
	g.together = true
	g.block(8 + r.IntN(50))
	if g.pendingCopy {
		k.I("cp.async.wait_all")
	}
	at := 0
	for _, p := range pooled {
		for _, reg := range g.pool[p.class] {
			g.store(reg, at)
			at += 8
		}
	}
	k.I("ret")
}

// any returns a random register of the pool.
func (g *generator) any(c ptx.Class) ptx.Reg { return g.pool[c][g.r.IntN(len(g.pool[c]))] }

// load loads a register from a random place of the input: one per thread or, sometimes, the same for all.
func (g *generator) load(reg ptx.Reg) {
	k, r := g.k, g.r
	a := k.Reg(ptx.B64)
	off := 8 * r.IntN(inputWords-128*4)
	switch r.IntN(4) {
	case 0:
		k.I("mov.b64", a, g.input)
	case 1:
		k.I("mad.wide.u32", a, g.tid, ptx.Imm(4), g.input)
	default:
		k.I("mad.wide.u32", a, g.tid, ptx.Imm(8*(1+r.IntN(4))), g.input)
	}
	at := ptx.At(a, off)
	switch reg.Class {
	case ptx.B64, ptx.F64:
		// 4-byte steps misalign 8-byte loads.
		k.I("mad.wide.u32", a, g.tid, ptx.Imm(16), g.input)
		k.I(map[ptx.Class]string{ptx.B64: "ld.global.b64", ptx.F64: "ld.global.nc.f64"}[reg.Class], reg, at)
	case ptx.F32:
		k.I("ld.global.f32", reg, at)
	case ptx.B32:
		k.I("ld.global.nc.b32", reg, at)
	case ptx.B16:
		k.I([]string{"ld.global.b16", "ld.global.s8", "ld.global.u8"}[r.IntN(3)], reg, at)
	case ptx.B8:
		v := k.Reg(ptx.F32)
		k.I("ld.global.f32", v, at)
		k.I("cvt.rn.satfinite.e2m1x2.f32", reg, v, v)
	case ptx.Pred:
		v := k.Reg(ptx.B32)
		k.I("ld.global.u32", v, at)
		k.I("setp.lt.s32", reg, v, ptx.Imm(r.IntN(100)))
	}
}

// store writes a register to the thread's output.
func (g *generator) store(reg ptx.Reg, off int) {
	at := ptx.At(g.output, off)
	switch reg.Class {
	case ptx.B8, ptx.Pred:
		v := g.k.Reg(ptx.B32)
		if reg.Class == ptx.B8 {
			g.k.I("cvt.u32.u8", v, reg)
		} else {
			g.k.I("selp.b32", v, ptx.Imm(7), ptx.Imm(9), reg)
		}
		g.k.I("st.global.b32", at, v)
	default:
		g.k.I("st.global"+reg.Class.Decl(), at, reg)
	}
}

// block writes n statements.
func (g *generator) block(n int) {
	for range n {
		switch x := g.r.IntN(40); {
		case x < 22:
			from := plain
			if x == 0 {
				from = plainForeign
			}
			g.instruction(from[g.r.IntN(len(from))], true)
		case x < 25:
			g.float()
		case x < 28:
			g.globalMemory()
		case x < 31:
			g.sharedMemory()
		case x < 34 && g.together && g.whole:
			g.warp()
		case x < 35:
			g.copyAsync()
		case x < 36 && g.together:
			g.k.I("bar.sync", ptx.Imm(0))
		case x < 38 && g.depth < 3:
			g.branch()
		case x < 40 && g.depth < 2:
			g.loop()
		}
	}
}

// operand returns a source of a type: a register or, sometimes, an immediate.
func (g *generator) operand(a ptx.Arg) ptx.Operand {
	c := ptx.ClassOf(a.Type)
	if a.Count > 0 {
		v := make([]ptx.Reg, a.Count)
		for i := range v {
			v[i] = g.any(c)
		}
		return ptx.V(v...)
	}
	if g.r.IntN(4) == 0 {
		switch {
		case c == ptx.F32:
			return ptx.FImm(math.Float32frombits(uint32(Bits(g.r))))
		case c == ptx.F64:
			return ptx.DImm(math.Float64frombits(Bits(g.r)))
		case (c == ptx.B32 || c == ptx.B64) && strings.ContainsAny(a.Type[:1], "usb") && !strings.HasPrefix(a.Type, "bf"):
			return ptx.Imm(int32(Bits(g.r)) >> g.r.IntN(31))
		}
	}
	return g.any(c)
}

// instruction writes an instruction of the table, sometimes under a guard.
func (g *generator) instruction(d *ptx.Def, guards bool) {
	var ops []ptx.Operand
	for i, a := range d.Args {
		switch {
		case a.Kind == ptx.ArgImm:
			most := 256
			if d.Name == "bfi" { // position or length
				most = 40
			}
			ops = append(ops, ptx.Imm(g.r.IntN(most)))
		case a.Kind == ptx.ArgDst && a.Count > 0:
			// Distinct registers: nothing orders two results in one.
			perm := g.r.Perm(len(g.pool[ptx.ClassOf(a.Type)]))
			var v []ptx.Reg
			for j := range a.Count {
				v = append(v, g.pool[ptx.ClassOf(a.Type)][perm[j]])
			}
			ops = append(ops, ptx.V(v...))
		case a.Kind == ptx.ArgDst:
			ops = append(ops, g.any(ptx.ClassOf(a.Type)))
		case a.Kind == ptx.ArgPair:
			ops = append(ops, ptx.Pair{D: g.any(ptx.B32), P: g.any(ptx.Pred)})
		case d.Does == ptx.StoreMatrix && a.Kind == ptx.ArgAddr:
			ops = append(ops, g.within(g.own, 0, threadShared)(16))
		case a.Kind == ptx.ArgAddr: // of ldmatrix
			addr := g.k.Reg(ptx.B32)
			g.k.I("and.b32", addr, g.any(ptx.B32), ptx.Imm(31*16))
			g.k.I("add.u32", addr, addr, g.shared)
			ops = append(ops, ptx.At(addr, 16*g.r.IntN(8)))
		case d.Does == ptx.Multiply && a.Type == "u16": // {byte, thread} that select the scales of A, then of B
			ops = append(ops, ptx.Vec{ptx.Imm(0), ptx.Imm(g.r.IntN(map[int]int{5: 2, 7: 4}[i]))})
		case d.Does == ptx.Shuffle && i == 3:
			ops = append(ops, ptx.Imm([]int{0x1f, 0, 0x1c1f, 0x181f, 0x0f}[g.r.IntN(5)]))
		case d.Does == ptx.Shuffle && i == 4 || d.Does == ptx.Reduce && i == 2:
			ops = append(ops, ptx.Imm(-1))
		default:
			ops = append(ops, g.operand(a))
		}
	}
	switch {
	case guards && g.r.IntN(6) == 0:
		g.k.If(g.any(ptx.Pred), d.Op, ops...)
	case guards && g.r.IntN(8) == 0:
		g.k.Unless(g.any(ptx.Pred), d.Op, ops...)
	default:
		g.k.I(d.Op, ops...)
	}
}

// float writes an instruction of inner loops. They would be too rare among all of the table.
func (g *generator) float() {
	ops := []string{"fma.rn.f32", "add.rn.f32", "mul.rn.f32", "max.f32", "cvt.f32.f16", "cvt.rn.f16x2.f32", "mad.lo.s32", "setp.lt.f32",
		"selp.f32", "ex2.approx.f32", "setp.lt.s32", "mov.b32", "cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e2m1x2.f32", "cvt.rn.f16x2.e4m3x2",
		"mul.rn.f16x2", "mul.rn.bf16x2", "lop3.b32"}
	g.instruction(ptx.Lookup(ops[g.r.IntN(len(ops))]), true)
}

// warp writes an instruction of a whole warp. Barriers separate its reads of shared memory from writes.
func (g *generator) warp() {
	d := warpWide[g.r.IntN(len(warpWide))]
	switch g.r.IntN(4) {
	case 0:
		d = warpWideForeign[g.r.IntN(len(warpWideForeign))]
	case 1, 2:
		d = ptx.Lookup([]string{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
			"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
			"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
			"shfl.sync.bfly.b32", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"}[g.r.IntN(7)])
	}
	if d.Does == ptx.LoadMatrix {
		g.k.I("bar.sync", ptx.Imm(0))
	}
	g.instruction(d, false)
	if d.Does == ptx.LoadMatrix {
		g.k.I("bar.sync", ptx.Imm(0))
	}
}

// data returns a register, or a vector of distinct registers, of the pool.
func (g *generator) data(c ptx.Class, n int) ptx.Operand {
	perm := g.r.Perm(len(g.pool[c]))
	if n == 1 {
		return g.pool[c][perm[0]]
	}
	var v []ptx.Reg
	for i := range n {
		v = append(v, g.pool[c][perm[i]])
	}
	return ptx.V(v...)
}

// access writes one of the accesses at the address that where returns, sometimes under a guard.
func (g *generator) access(of []access, where func(bytes int) ptx.Addr) {
	a := of[g.r.IntN(len(of))]
	ops := make([]ptx.Operand, 2)
	data := a.Args[a.data]
	ops[a.at], ops[a.data] = where(a.bytes()), g.data(ptx.ClassOf(data.Type), max(1, data.Count))
	if g.r.IntN(3) == 0 {
		g.k.If(g.any(ptx.Pred), a.Op, ops...)
	} else {
		g.k.I(a.Op, ops...)
	}
}

// within returns a random address in size bytes at an offset from base.
func (g *generator) within(base ptx.Reg, off, size int) func(bytes int) ptx.Addr {
	return func(bytes int) ptx.Addr { return ptx.At(base, off+bytes*g.r.IntN(size/bytes)) }
}

// globalMemory reads the input anywhere, or writes and reads back the thread's own output.
func (g *generator) globalMemory() {
	k, r := g.k, g.r
	if r.IntN(2) == 0 {
		g.access(loads["global"], func(bytes int) ptx.Addr {
			a := k.Reg(ptx.B64)
			if r.IntN(2) == 0 { // anywhere
				i := k.Reg(ptx.B32)
				k.I("and.b32", i, g.any(ptx.B32), ptx.Imm(8*(inputWords/2-1)&^15))
				k.I("cvt.u64.u32", a, i)
				k.I("add.s64", a, a, g.input)
			} else { // next to the neighbours
				k.I("mad.wide.u32", a, g.tid, ptx.Imm(bytes), g.input)
			}
			return ptx.At(a, bytes*r.IntN(8))
		})
		return
	}
	g.access(stores["global"], g.within(g.output, 384, 64))
	g.access(loads["global"], g.within(g.output, 384, 64))
}

// sharedMemory writes and reads the thread's own shared memory, or reads any thread's between two barriers.
func (g *generator) sharedMemory() {
	k, r := g.k, g.r
	if r.IntN(2) == 0 || !g.together {
		g.access(stores["shared"], g.within(g.own, 0, threadShared))
		if r.IntN(8) == 0 {
			k.I("atom.shared.add.u32", g.any(ptx.B32), g.within(g.own, 0, threadShared)(4), g.any(ptx.B32))
		}
		g.access(loads["shared"], g.within(g.own, 0, threadShared))
		return
	}
	a := k.Reg(ptx.B32)
	k.I("and.b32", a, g.any(ptx.B32), ptx.Imm(64*threadShared-16))
	k.I("add.u32", a, a, g.shared)
	k.I("bar.sync", ptx.Imm(0))
	g.access(loads["shared"], func(int) ptx.Addr { return ptx.At(a, 0) })
	k.I("bar.sync", ptx.Imm(0))
}

// copyAsync copies into the thread's own shared memory and waits, at once or later. Commit and wait must find all living
// lanes together.
func (g *generator) copyAsync() {
	k, r := g.k, g.r
	size := []int{16, 16, 8, 4}[r.IntN(4)]
	op := "cp.async.ca.shared.global"
	if size == 16 && r.IntN(2) == 0 {
		op = "cp.async.cg.shared.global"
	}
	a := k.Reg(ptx.B64)
	k.I("mad.wide.u32", a, g.tid, ptx.Imm(16), g.input)
	count := ptx.Operand(ptx.Imm(size))
	if n := r.IntN(4); n < 2 {
		v, some := k.Reg(ptx.B32), 0
		if n == 1 {
			some = r.IntN(size)
		}
		k.I("selp.b32", v, ptx.Imm(size), ptx.Imm(some), g.any(ptx.Pred))
		count = v
	}
	ops := []ptx.Operand{g.within(g.own, 0, threadShared)(size), ptx.At(a, 16*r.IntN(64)), ptx.Imm(size), count}
	if r.IntN(3) == 0 {
		k.If(g.any(ptx.Pred), op, ops...)
	} else {
		k.I(op, ops...)
	}
	g.pendingCopy = true
	if !g.together {
		return
	}
	k.I("cp.async.commit_group")
	switch r.IntN(3) {
	case 0:
		k.I("cp.async.wait_group", ptx.Imm(r.IntN(3)))
	case 1:
		k.I("cp.async.wait_all")
	}
}

// divergent writes something that not all threads execute together.
func (g *generator) divergent(f func()) {
	was := g.together
	g.together = false
	g.depth++
	f()
	g.depth--
	g.together = was
}

// branch writes an if, with or without an else; sometimes all threads agree on it.
func (g *generator) branch() {
	k, r := g.k, g.r
	p := g.any(ptx.Pred)
	other, end := k.NewLabel("else"), k.NewLabel("end")
	if r.IntN(3) == 0 { // decided by a number that all threads load
		v := k.Reg(ptx.B32)
		k.I("ld.global.u32", v, ptx.At(g.input, 8*r.IntN(inputWords)))
		k.I("setp.lt.s32", p, v, ptx.Imm(r.IntN(64)))
	}
	k.Unless(p, "bra", other)
	g.divergent(func() { g.block(1 + r.IntN(6)) })
	if r.IntN(2) == 0 {
		k.I("bra", end)
		k.Place(other)
		g.divergent(func() { g.block(1 + r.IntN(6)) })
		k.Place(end)
		return
	}
	k.Place(other)
}

// loop writes a loop of a few iterations: the same number for all threads, or one per thread.
func (g *generator) loop() {
	k, r := g.k, g.r
	i, n := k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("mov.u32", i, ptx.Imm(0))
	body := func() {
		more := k.Reg(ptx.Pred)
		top := k.NewLabel("top")
		k.Place(top)
		g.block(1 + r.IntN(8))
		k.I("add.u32", i, i, ptx.Imm(1))
		k.I("setp.lt.u32", more, i, n)
		k.If(more, "bra", top)
	}
	if r.IntN(2) == 0 {
		k.I("mov.u32", n, ptx.Imm(1+r.IntN(5)))
		g.depth++
		body()
		g.depth--
		return
	}
	k.I("and.b32", n, g.any(ptx.B32), ptx.Imm(3))
	g.divergent(body)
}
