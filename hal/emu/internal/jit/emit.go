package jit

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Registers with a fixed role; the others are free within an instruction.
const (
	rCtx    = rdi
	rR      = rsi // 32-bit rows, biased
	rQ      = r8  // 64-bit rows, biased
	rP      = r9
	rShared = r10
	rSites  = r11
	rMask   = rbx // running lanes, in masked code
	rEM     = r15 // lanes of a guarded or masked instruction
)

// On amd64, pointers to rows are biased, so that compressed displacements of one byte, which are signed, reach the most
// rows.
const (
	biasR = 64 * 128
	biasQ = 32 * 256
)

const (
	nan32 = 0x7fffffff
	nan16 = 0x7fff
)

// emitter translates one kernel.
type emitter struct {
	*buffer
	machine
	x      *x86     // amd64's own instructions
	arm    *aarch64 // and aarch64's
	wide   bool     // AVX-512
	masked bool     // code for warps that lack lanes
	steps  bool     // each instruction returns
	insts  []Inst
	known  map[int32]uint32   // constant rows
	likely map[int]*ptx.Row32 // examples of the addresses of loads
	siteOf []int32
	pcs    []label // native code of each instruction
	exits  map[[2]int]label
	cold   []func() // emit what is rarely executed, after the rest
	pc     int
	m      bool // the instruction being emitted writes under the mask in rEM
	vNaN   int  // the register that holds f32's NaN
	subs   map[string]label
	subOf  []func()
	leader []bool
	left   map[string]int
	layout CopyLayout
	entry  []label // where native code is entered for each instruction; -1: not there
	run    run
	out    int // where a lanewise form leaves its result

	biasR, biasQ int
}

// newEmitter returns an emitter for an instruction set; far: code is longer than its short branches reach.
func newEmitter(level Level, far bool) *emitter {
	e := &emitter{wide: level == AVX512}
	if level == NEON {
		e.arm = newAArch64(far)
		e.buffer, e.machine = e.arm.buffer, e.arm
		return e
	}
	e.x = newX86(e.wide)
	e.buffer, e.machine = e.x.buffer, e.x
	e.biasR, e.biasQ = biasR, biasQ
	return e
}

func (e *emitter) field(off uintptr) mem { return at(rCtx, int(off)) }

var ctx Context

// file is a file of rows.
type file struct {
	bytes                  int // of a lane
	move, broadcast, equal vop
}

var (
	r = file{4, vmovups, vbroadcastd, vpcmpeqd}
	q = file{8, vmovupd, vbroadcastq, vpcmpeqq}
)

// chunks is the number of vectors in a 32-bit row; a 64-bit row has twice as many.
func (e *emitter) chunks() int { return e.chunksOf(r) }

// chunksOf is the number of vectors in a row of a file, lanesOf the number of lanes in a vector, at the operand of
// chunk c.
func (e *emitter) chunksOf(f file) int { return 32 / e.lanesOf(f) }
func (e *emitter) lanesOf(f file) int  { return e.bytes() / f.bytes }

func (e *emitter) at(f file, row int32, c int) mem {
	if f == q {
		return e.q(row, c)
	}
	return e.r(row, c)
}

func (e *emitter) bytes() int {
	if e.wide {
		return 64
	}
	return 32
}

func (e *emitter) r(row int32, c int) mem { return at(rR, int(row)*128-e.biasR+c*e.bytes()) }
func (e *emitter) q(row int32, c int) mem { return at(rQ, int(row)*256-e.biasQ+c*e.bytes()) }
func (e *emitter) p(row int32) mem        { return at(rP, int(row)*4) }

// half is the part of a 32-bit row that belongs to chunk c of a 64-bit row.
func (e *emitter) half(row int32, c int) mem { return at(rR, int(row)*128-e.biasR+c*e.bytes()/2) }

func (e *emitter) full() width {
	if e.wide {
		return w512
	}
	return w256
}

// v emits a vector instruction at full width.
func (e *emitter) v(o vop, reg, vvvv int, rm any) { e.vw(o, e.full(), reg, vvvv, rm, nil) }

// vi is v with an immediate byte.
func (e *emitter) vi(o vop, reg, vvvv int, rm any, imm byte) {
	e.vw(o, e.full(), reg, vvvv, rm, []byte{imm})
}

// vw emits a vector instruction of any width.
func (e *emitter) vw(o vop, w width, reg, vvvv int, rm any, imm []byte) {
	e.vector(o, w, reg, vvvv, rm, imm)
}

// vk is v under a mask register (AVX-512).
func (e *emitter) vk(o vop, reg, vvvv int, rm any, k int) {
	e.x.evex(o, w512, reg, vvvv, rm, mod{k: k}, 0)
}

// vector32 and vector64 return the operand of a constant vector, given by element.
func (e *emitter) vector32(f func(i int) uint32) mem {
	var b []byte
	for i := range e.bytes() / 4 {
		b = binary.LittleEndian.AppendUint32(b, f(i))
	}
	return e.constant(b)
}

func (e *emitter) vector64(f func(i int) uint64) mem {
	var b []byte
	for i := range e.bytes() / 8 {
		b = binary.LittleEndian.AppendUint64(b, f(i))
	}
	return e.constant(b)
}

// exit returns the label of code that returns with a pc; interpret asks the interpreter to execute that instruction.
func (e *emitter) exit(pc int, interpret bool) label {
	key := [2]int{pc, 0}
	if interpret {
		key[1] = 1
	}
	l, ok := e.exits[key]
	if !ok {
		l = e.newLabel()
		e.exits[key] = l
		e.cold = append(e.cold, func() {
			e.place(l)
			e.movi32(e.field(unsafe.Offsetof(ctx.PC)), int32(pc))
			e.movi32(e.field(unsafe.Offsetof(ctx.Interpret)), int32(key[1]))
			e.leave()
		})
	}
	return l
}

// bail is the exit that lets the interpreter execute the current instruction.
func (e *emitter) bail() label { return e.exit(e.pc, true) }

// sub returns the label of a subroutine, whose body is emitted once.
func (e *emitter) sub(name string, body func()) label {
	l, ok := e.subs[name]
	if !ok {
		l = e.newLabel()
		e.subs[name] = l
		e.subOf = append(e.subOf, func() {
			e.place(l)
			body()
			e.ret()
		})
	}
	return l
}

// emit translates the kernel and returns its code and the offset at which each instruction is entered; 0: not there. It
// returns false if code is too long for short branches.
func (e *emitter) emit() (code []byte, entries []uint32, ok bool) {
	e.exits, e.subs, e.left = map[[2]int]label{}, map[string]label{}, map[string]int{}
	e.vNaN = 15
	if e.wide {
		e.vNaN = 31
	}
	if e.steps {
		e.ret() // no instruction's code is at offset 0
	} else {
		e.registers(true, true)
		e.mov64(rShared, e.field(unsafe.Offsetof(ctx.Shared)))
		e.mov64(rSites, e.field(unsafe.Offsetof(ctx.Sites)))
		e.jumpTo(e.field(unsafe.Offsetof(ctx.Entry)))
	}
	for range e.insts {
		e.pcs = append(e.pcs, e.newLabel())
	}
	e.entry = slices.Clone(e.pcs)
	e.leader = make([]bool, len(e.insts)+1)
	for pc := range e.insts {
		if e.insts[pc].Def.Does == ptx.Branch {
			e.leader[e.insts[pc].Imm], e.leader[pc+1] = true, true
		}
	}
	for pc := 0; pc < len(e.insts); pc++ {
		e.pc = pc
		e.place(e.pcs[pc])
		if n := e.length(pc); n > 0 {
			e.emitRun(n)
			pc += n - 1
		} else if n := e.sequence(pc); n > 0 {
			e.emitSequence(n)
			pc += n - 1
		} else if !e.steps {
			e.inst(&e.insts[pc])
		} else if !e.step(&e.insts[pc]) {
			e.entry[pc] = -1
		}
	}
	for len(e.cold) > 0 || len(e.subOf) > 0 {
		cold, subs := e.cold, e.subOf
		e.cold, e.subOf = nil, nil
		for _, f := range cold {
			f()
		}
		for _, f := range subs {
			f()
		}
	}
	if code, ok = e.finish(); !ok {
		return nil, nil, false
	}
	for _, l := range e.entry {
		at := 0
		if l >= 0 {
			at = e.labels[l]
		}
		entries = append(entries, uint32(at))
	}
	return code, entries, true
}

// registers fills those with a fixed role that computing needs; those of 64-bit rows and of predicates if they are
// used.
func (e *emitter) registers(rowsQ, predicates bool) {
	e.prologue()
	e.mov64(rR, e.field(unsafe.Offsetof(ctx.R)))
	if e.biasR != 0 {
		e.alu64i(aluAdd, rR, int32(e.biasR))
	}
	if rowsQ {
		e.mov64(rQ, e.field(unsafe.Offsetof(ctx.Q)))
		if e.biasQ != 0 {
			e.alu64i(aluAdd, rQ, int32(e.biasQ))
		}
	}
	if predicates {
		e.mov64(rP, e.field(unsafe.Offsetof(ctx.P)))
	}
	if e.masked {
		e.mov32(rMask, e.field(unsafe.Offsetof(ctx.Mask)))
	}
	e.splat32(e.vNaN, nan32)
}

// inst emits one instruction.
func (e *emitter) inst(in *Inst) {
	e.await()
	switch in.Def.Does {
	case ptx.Branch:
		e.branch(in) // a leader follows
		return
	case ptx.Prefetch:
		if len(in.Def.Args) == 1 {
			return
		} // a bulk prefetch, of which a block has one, is interpreted: its range and alignment are checked
	case ptx.Fence, ptx.GridWait, ptx.GridLaunch: // without checks these have no effect
		return
	}
	end := label(-1)
	e.m = e.masked || in.Guard >= 0
	if in.Guard >= 0 {
		e.mov32(rEM, e.p(in.Guard))
		if in.Negate {
			e.not32(rEM)
		}
		if e.masked {
			e.alu32(aluAnd, rEM, rMask)
		} else {
			e.test32(rEM, rEM)
		}
		end = e.newLabel()
		e.jcc(ccE, end)
	} else if e.masked {
		e.mov32(rEM, rMask)
	}
	// With lanes missing, the interpreter reports what is wrong. A later warp may have all of its lanes.
	if e.m && in.Def.Together != ptx.AnyLanes || !e.translate(in) {
		e.jmp(e.bail())
	}
	if end >= 0 {
		e.place(end)
	}
}

// await returns from masked code where other lanes wait at the current pc or a lower one, so that the interpreter
// merges them.
func (e *emitter) await() {
	if e.masked && e.leader[e.pc] {
		e.alu32i(aluCmp, e.field(unsafe.Offsetof(ctx.NextPC)), int32(e.pc))
		e.jcc(ccLE, e.exit(e.pc, false))
	}
}

// step emits an instruction that computes on registers alone, without its guard. For any other it returns false.
func (e *emitter) step(in *Inst) bool {
	e.m = e.masked
	if in.Def.Does != ptx.Compute && in.Def.Does != ptx.Multiply || e.m && in.Def.Together != ptx.AnyLanes {
		return false
	}
	uses := func(classes ...ptx.Class) bool {
		return slices.ContainsFunc(in.Def.Args, func(a ptx.Arg) bool { return slices.Contains(classes, ptx.ClassOf(a.Type)) })
	}
	e.registers(uses(ptx.B64, ptx.F64), uses(ptx.Pred))
	if e.m {
		e.mov32(rEM, rMask)
	}
	ok := e.translate(in)
	e.leave()
	return ok
}

// translate emits the instruction's native form, or returns false and emits nothing.
func (e *emitter) translate(in *Inst) bool {
	switch d := in.Def; d.Does {
	case ptx.Load, ptx.Store:
		switch {
		case d.Order != ptx.Plain: // the interpreter's
			return false
		case in.space() == "param":
			e.loadParam(in)
		case in.space() == "shared":
			e.shared(in)
		default:
			e.global(in)
		}
		return true
	case ptx.LoadMatrix:
		e.loadMatrix(in)
		return true
	case ptx.CopyAsync:
		e.copyAsync(in)
		return true
	case ptx.CommitCopies:
		e.commit()
		return true
	case ptx.WaitCopies:
		e.waitGroup(in)
		return true
	case ptx.Compute, ptx.Multiply, ptx.MoveMatrix, ptx.StoreMatrix, ptx.Shuffle, ptx.Reduce, ptx.Atomic:
		if f, ok := native[d.Op]; ok {
			f.translate(e, in)
			return true
		}
		if d.Does != ptx.Atomic {
			e.left[d.Op]++
		}
	}
	return false // it ends or stops the warp, or is rare
}

// space is where a load or store finds memory.
func (in *Inst) space() string {
	for _, a := range in.Def.Args {
		if a.Kind == ptx.ArgAddr {
			return a.Space
		}
	}
	return ""
}

// branch emits a branch. If the running lanes disagree, it is left to the interpreter.
func (e *emitter) branch(in *Inst) {
	target := int(in.Imm)
	jump := func(conditional func(to label)) {
		if target > e.pc {
			conditional(e.pcs[target])
			return
		}
		// Backward: count the loop's instructions, and return when the budget is used up.
		back, enough := e.newLabel(), e.exit(target, false)
		n := int32(e.pc - target + 1)
		conditional(back)
		e.cold = append(e.cold, func() {
			e.place(back)
			e.alu64i(aluSub, e.field(unsafe.Offsetof(ctx.Steps)), n)
			e.jcc(ccLE, enough)
			e.jmp(e.pcs[target])
		})
	}
	if in.Guard < 0 {
		jump(e.jmp)
		return
	}
	e.mov32(rax, e.p(in.Guard))
	if in.Negate {
		e.not32(rax)
	}
	if e.masked {
		e.alu32(aluAnd, rax, rMask)
		e.jcc(ccE, e.pcs[e.pc+1])
		e.alu32(aluCmp, rax, rMask)
	} else {
		e.test32(rax, rax)
		e.jcc(ccE, e.pcs[e.pc+1])
		e.alu32i(aluCmp, rax, -1)
	}
	e.jcc(ccNE, e.bail())
	jump(e.jmp)
}

// masks loads the mask registers of a masked instruction: k6 the lanes 0–15, k7 the lanes 16–31, k5 all.
func (e *emitter) masks() {
	if e.m && e.wide {
		e.x.kmovd(5, rEM)
		e.x.kshiftr(7, 5, 16)
	}
}

// write writes vector v to chunk c of a row, under the mask if there is one. t is clobbered, in AVX2 also t+1.
func (e *emitter) write(f file, row int32, c, v, t int) {
	to := e.at(f, row, c)
	if e.m && e.arm != nil {
		e.blendNEON(f, to, c, v)
		return
	}
	if e.m && e.wide {
		k := 5 + 2*c
		if f == q {
			k = 4
			e.x.kshiftr(4, 5, byte(8*c))
		}
		e.v(vmovups, t, 0, to)
		e.vk(f.move, t, 0, v, k)
		v = t
	} else if e.m {
		e.lanes(f, t, c, rEM)
		e.v(vmovups, t+1, 0, to)
		e.vi(vblendvps, t, t+1, v, byte(t<<4))
		v = t
	}
	e.v(vstoreups, v, 0, to)
}

// lanes sets the lanes of vector t whose bits of chunk c are set in a general register (AVX2 and NEON).
func (e *emitter) lanes(f file, t, c, mask int) {
	bits := e.vector32(func(i int) uint32 { return 1 << (8*c + i) })
	if f == q {
		bits = e.vector64(func(i int) uint64 { return 1 << (4*c + i) })
	}
	if e.arm != nil {
		e.arm.testBits(f, pairOf(t), bits, general[mask])
		return
	}
	e.x.vex(false, 1, 1, 0, vmovd.op, t, 0, mask, 0)
	e.v(f.broadcast, t, 0, t)
	e.v(vpand, t, t, bits)
	e.v(f.equal, t, t, bits)
}

// toP writes the predicate in a general register, under the mask if there is one; rcx is clobbered.
func (e *emitter) toP(row int32, src int) {
	if e.m {
		// p ^= (p ^ src) & mask
		e.mov32(rcx, e.p(row))
		e.alu32(aluXor, src, rcx)
		e.alu32(aluAnd, src, rEM)
		e.alu32(aluXor, src, rcx)
	}
	e.put32(e.p(row), src)
}

// compare compares vectors into mask register k (AVX-512); imm is the predicate of the instruction.
func (e *emitter) compare(o vop, k, a int, b any, imm byte) {
	e.x.evex(o, w512, k, a, b, mod{}, 1)
	e.b(imm)
}

// unordered sets mask register k, or with AVX2 vector t, where a or b is NaN.
func (e *emitter) unordered(k, t, a, b int) {
	if e.wide {
		e.compare(vcmpps, k, a, b, 3)
		return
	}
	e.vi(vcmpps, t, a, b, 3)
}

// pick replaces v by x where mask register k, or with AVX2 vector m, is set.
func (e *emitter) pick(k, m, v, x int) {
	if e.wide {
		e.vk(vmovups, v, 0, x, k)
		return
	}
	e.vi(vblendvps, v, v, x, byte(m<<4))
}

// canon replaces NaNs in v by f32's canonical one; t is clobbered.
func (e *emitter) canon(v, t int) {
	if e.arm != nil {
		e.arm.canon(pairOf(v))
		return
	}
	e.unordered(1, t, v, v)
	e.pick(1, t, v, e.vNaN)
}
