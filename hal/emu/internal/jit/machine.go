package jit

import "encoding/binary"

// General registers, by their names on amd64; aarch64 has others for them.
const (
	rax = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8
	r9
	r10
	r11
	r12
	r13
	r14
	r15
)

const none = -1

// mem is a memory operand: [base + index·scale + disp], or the constant with a label if base is ripBase.
type mem struct {
	base, index int8
	scale       uint8 // log2
	disp        int32
	label       label
	vector      bool // the index is a vector register, of a gather
}

const ripBase = -2

func at(base int, disp int) mem { return mem{base: int8(base), index: none, disp: int32(disp)} }

func indexed(base, index int, scale uint8, disp int) mem {
	return mem{base: int8(base), index: int8(index), scale: scale, disp: int32(disp)}
}

func (m mem) plus(n int) mem { m.disp += int32(n); return m }

// Arithmetic, by the number that amd64 gives it.
const (
	aluAdd = 0
	aluOr  = 1
	aluAnd = 4
	aluSub = 5
	aluXor = 6
	aluCmp = 7
)

// Conditions of jumps, by the number that amd64 gives them. Those of unsigned numbers follow a subtraction.
const (
	ccB  = 2
	ccAE = 3
	ccE  = 4
	ccNE = 5
	ccA  = 7
	ccGE = 13
	ccLE = 14
)

// machine encodes what the emitter needs of a processor. Operands rm are registers (int) or memory (mem). An
// operation of 32 bits clears the upper half of its register. After alu…, blsr and test… jumps see the result, and
// after a subtraction or comparison what it compared; after alu… with Or and Xor they do not.
type machine interface {
	mov32(dst int, rm any)
	mov64(dst int, rm any)
	put32(m mem, src int)
	put64(m mem, src int)
	put16(m mem, src int)
	put8(m mem, src int)
	movzx8(dst int, rm any)
	movzx16(dst int, rm any)
	movsx8(dst int, rm any)  // to 32 bits
	movsx32(dst int, rm any) // to 64
	movi32(rm any, v int32)
	lea(dst int, m mem)
	alu32(op, dst int, rm any)
	alu64(op, dst int, rm any)
	alu32i(op int, rm any, v int32)
	alu64i(op int, rm any, v int32)
	imul64i(dst int, rm any, v int32)
	test32(x, y int)
	test64(x, y int)
	test32i(r int, v int32)
	shl32(r int, n byte)
	not32(r int)
	inc64(rm any)
	tzcnt(dst, src int)      // the lowest bit that is set
	blsr(dst, src int)       // src without it
	setBit(r, bit int)       // of 32
	forward(to, from, n int) // copies n times 8 bytes to a lower address; all three registers and rax, r14 are clobbered

	jcc(cc byte, to label)
	jmp(to label)
	jumpTo(m mem)
	prologue() // what comes before all else where code is entered
	leave()    // returns from code
	call(to label)
	ret() // from a subroutine

	vector(o vop, w width, reg, vvvv int, rm any, imm []byte)
	shiftI(o vop, ext, dst, src int, n byte)
	splat32(reg int, v uint32)
	splat64(reg int, v uint64)
}

type label int

// buffer is code and its constants.
type buffer struct {
	buf    []byte
	labels []int // offset, or -1
	placed int   // labels so far
	fixups []fixup
	pool   []byte // constants, placed after the code
	consts map[string]label
	inPool map[label]int
	filler byte
}

// fixup is a reference to a label. patch writes it, or reports that it is out of reach.
type fixup struct {
	to    label
	patch func(buf []byte, target int) bool
}

func (a *buffer) newLabel() label {
	a.labels = append(a.labels, -1)
	return label(len(a.labels) - 1)
}

func (a *buffer) place(l label) {
	a.labels[l] = len(a.buf)
	a.placed++
}

func (a *buffer) b(bs ...byte) { a.buf = append(a.buf, bs...) }

func (a *buffer) imm32(v int32) { a.buf = binary.LittleEndian.AppendUint32(a.buf, uint32(v)) }

// constant returns the operand of bytes in the pool, aligned to their size.
func (a *buffer) constant(data []byte) mem {
	l, ok := a.consts[string(data)]
	if !ok {
		if a.consts == nil {
			a.consts, a.inPool = map[string]label{}, map[label]int{}
		}
		l = a.newLabel()
		for len(a.pool)%len(data) != 0 {
			a.pool = append(a.pool, 0)
		}
		a.inPool[l] = len(a.pool)
		a.pool = append(a.pool, data...)
		a.consts[string(data)] = l
	}
	return mem{base: ripBase, index: none, label: l}
}

func (a *buffer) const32(v uint32) mem { return a.constant(binary.LittleEndian.AppendUint32(nil, v)) }
func (a *buffer) const64(v uint64) mem { return a.constant(binary.LittleEndian.AppendUint64(nil, v)) }

// finish appends the pool and resolves labels. It reports false if one is out of reach.
func (a *buffer) finish() ([]byte, bool) {
	for len(a.buf)%64 != 0 {
		a.b(a.filler)
	}
	base := len(a.buf)
	for l, off := range a.inPool {
		a.labels[l] = base + off
	}
	a.buf = append(a.buf, a.pool...)
	for _, f := range a.fixups {
		if !f.patch(a.buf, a.labels[f.to]) {
			return nil, false
		}
	}
	return a.buf, true
}
