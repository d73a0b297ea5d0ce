//go:build linux && amd64

package jit

import (
	"encoding/binary"
)

// General registers.
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

type label int

// asm is an assembler for the instructions that the emitter needs (Intel SDM volume 2; AMD APM volumes 3 and 4).
type asm struct {
	buf    []byte
	labels []int // offset, or -1
	fixups []fixup
	pool   []byte // constants, placed after the code
	consts map[string]label
	inPool map[label]int
}

// fixup is a 32-bit displacement at an offset, relative to the offset end.
type fixup struct {
	at, end int
	to      label
}

func (a *asm) newLabel() label {
	a.labels = append(a.labels, -1)
	return label(len(a.labels) - 1)
}

func (a *asm) place(l label) { a.labels[l] = len(a.buf) }

func (a *asm) b(bs ...byte) { a.buf = append(a.buf, bs...) }

func (a *asm) imm32(v int32) { a.buf = binary.LittleEndian.AppendUint32(a.buf, uint32(v)) }

// constant returns the operand of bytes in the pool, aligned to their size.
func (a *asm) constant(data []byte) mem {
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

func (a *asm) const32(v uint32) mem { return a.constant(binary.LittleEndian.AppendUint32(nil, v)) }
func (a *asm) const64(v uint64) mem { return a.constant(binary.LittleEndian.AppendUint64(nil, v)) }

// finish resolves labels and appends the pool.
func (a *asm) finish() []byte {
	for len(a.buf)%64 != 0 {
		a.b(0xcc)
	}
	base := len(a.buf)
	for l, off := range a.inPool {
		a.labels[l] = base + off
	}
	a.buf = append(a.buf, a.pool...)
	for _, f := range a.fixups {
		binary.LittleEndian.PutUint32(a.buf[f.at:], uint32(a.labels[f.to]-f.end))
	}
	return a.buf
}

// modrm encodes a register or memory operand. trailing is the number of immediate bytes that follow, n the unit of a
// compressed displacement (1: none).
func (a *asm) modrm(reg int, rm any, trailing, n int) {
	reg &= 7
	switch m := rm.(type) {
	case int:
		a.b(0xc0 | byte(reg)<<3 | byte(m&7))
	case mem:
		if m.base == ripBase {
			a.b(byte(reg)<<3 | 5)
			a.fixups = append(a.fixups, fixup{len(a.buf), len(a.buf) + 4 + trailing, m.label})
			a.imm32(0)
			return
		}
		mod, small := byte(0x80), int32(0)
		if m.disp%int32(n) == 0 && m.disp/int32(n) == int32(int8(m.disp/int32(n))) {
			mod, small = 0x40, m.disp/int32(n)
			if m.disp == 0 && m.base&7 != rbp {
				mod = 0
			}
		}
		if m.index != none || m.base&7 == rsp {
			idx := byte(4)
			if m.index != none {
				idx = byte(m.index & 7)
			}
			a.b(mod|byte(reg)<<3|4, m.scale<<6|idx<<3|byte(m.base&7))
		} else {
			a.b(mod | byte(reg)<<3 | byte(m.base&7))
		}
		switch mod {
		case 0x40:
			a.b(byte(int8(small)))
		case 0x80:
			a.imm32(m.disp)
		}
	}
}

// gp encodes a general instruction with an optional mandatory prefix and up to two escape bytes.
func (a *asm) gp(w bool, prefix byte, esc []byte, op byte, reg int, rm any, trailing int) {
	a.gpByte(w, prefix, esc, op, reg, rm, trailing, false)
}

func (a *asm) gpByte(w bool, prefix byte, esc []byte, op byte, reg int, rm any, trailing int, byteReg bool) {
	if prefix != 0 {
		a.b(prefix)
	}
	rex := byte(0)
	if w {
		rex |= 8
	}
	rex |= byte(reg>>3&1) << 2
	switch m := rm.(type) {
	case int:
		rex |= byte(m >> 3 & 1)
	case mem:
		if m.base >= 0 {
			rex |= byte(m.base >> 3 & 1)
		}
		if m.index >= 0 {
			rex |= byte(m.index>>3&1) << 1
		}
	}
	if rex != 0 || byteReg {
		a.b(0x40 | rex)
	}
	a.b(esc...)
	a.b(op)
	a.modrm(reg, rm, trailing, 1)
}

var esc0F = []byte{0x0f}

func (a *asm) mov32(dst int, rm any)   { a.gp(false, 0, nil, 0x8b, dst, rm, 0) }
func (a *asm) mov64(dst int, rm any)   { a.gp(true, 0, nil, 0x8b, dst, rm, 0) }
func (a *asm) put32(m mem, src int)    { a.gp(false, 0, nil, 0x89, src, m, 0) }
func (a *asm) put64(m mem, src int)    { a.gp(true, 0, nil, 0x89, src, m, 0) }
func (a *asm) put16(m mem, src int)    { a.gp(false, 0x66, nil, 0x89, src, m, 0) }
func (a *asm) put8(m mem, src int)     { a.gpByte(false, 0, nil, 0x88, src, m, 0, true) }
func (a *asm) movzx8(dst int, rm any)  { a.gp(false, 0, esc0F, 0xb6, dst, rm, 0) }
func (a *asm) movzx16(dst int, rm any) { a.gp(false, 0, esc0F, 0xb7, dst, rm, 0) }
func (a *asm) movsx8(dst int, rm any)  { a.gp(false, 0, esc0F, 0xbe, dst, rm, 0) }
func (a *asm) lea(dst int, m mem)      { a.gp(true, 0, nil, 0x8d, dst, m, 0) }
func (a *asm) tzcnt(dst, src int)      { a.gp(false, 0xf3, esc0F, 0xbc, dst, src, 0) }
func (a *asm) inc64(rm any)            { a.gp(true, 0, nil, 0xff, 0, rm, 0) }
func (a *asm) not32(r int)             { a.gp(false, 0, nil, 0xf7, 2, r, 0) }
func (a *asm) div32(rm any)            { a.gp(false, 0, nil, 0xf7, 6, rm, 0) }
func (a *asm) test32(x, y int)         { a.gp(false, 0, nil, 0x85, x, y, 0) }
func (a *asm) test64(x, y int)         { a.gp(true, 0, nil, 0x85, x, y, 0) }

// Group-1 arithmetic: the opcode r, r/m is 8·op+3.
const (
	aluAdd = 0
	aluOr  = 1
	aluAnd = 4
	aluSub = 5
	aluXor = 6
	aluCmp = 7
)

func (a *asm) alu32(op, dst int, rm any) { a.gp(false, 0, nil, byte(8*op+3), dst, rm, 0) }
func (a *asm) alu64(op, dst int, rm any) { a.gp(true, 0, nil, byte(8*op+3), dst, rm, 0) }

func (a *asm) alu32i(op int, rm any, v int32) { a.aluI(false, op, rm, v) }
func (a *asm) alu64i(op int, rm any, v int32) { a.aluI(true, op, rm, v) }

func (a *asm) aluI(wide bool, op int, rm any, v int32) {
	if v == int32(int8(v)) {
		a.gp(wide, 0, nil, 0x83, op, rm, 1)
		a.b(byte(v))
		return
	}
	a.gp(wide, 0, nil, 0x81, op, rm, 4)
	a.imm32(v)
}

func (a *asm) imul64i(dst int, rm any, v int32) {
	a.gp(true, 0, nil, 0x69, dst, rm, 4)
	a.imm32(v)
}

func (a *asm) test32i(r int, v int32) {
	a.gp(false, 0, nil, 0xf7, 0, r, 4)
	a.imm32(v)
}

func (a *asm) shl32(r int, n byte) { a.gp(false, 0, nil, 0xc1, 4, r, 1); a.b(n) }

func (a *asm) movi32(m any, v int32) { // to a register or memory
	a.gp(false, 0, nil, 0xc7, 0, m, 4)
	a.imm32(v)
}

// blsr clears the lowest set bit: dst = src & (src-1).
func (a *asm) blsr(dst, src int) {
	a.vex(false, 2, 0, 0, 0xf3, 1, dst, src, 0)
}

// Conditions of jumps.
const (
	ccB  = 2
	ccAE = 3
	ccE  = 4
	ccNE = 5
	ccA  = 7
	ccGE = 13
	ccLE = 14
)

func (a *asm) rel(to label) {
	a.fixups = append(a.fixups, fixup{len(a.buf), len(a.buf) + 4, to})
	a.imm32(0)
}

func (a *asm) jcc(cc byte, to label) { a.b(0x0f, 0x80|cc); a.rel(to) }
func (a *asm) jmp(to label)          { a.b(0xe9); a.rel(to) }
func (a *asm) call(to label)         { a.b(0xe8); a.rel(to) }
func (a *asm) ret()                  { a.b(0xc3) }

// vex encodes a VEX instruction; l is 1 for 256 bits.
func (a *asm) vex(wide bool, mp, pp, w, op byte, reg, vvvv int, rm any, trailing int) {
	var x, bb byte
	switch m := rm.(type) {
	case int:
		bb = byte(m >> 3 & 1)
	case mem:
		if m.base >= 0 {
			bb = byte(m.base >> 3 & 1)
		}
		if m.index >= 0 {
			x = byte(m.index >> 3 & 1)
		}
	}
	r, l := byte(reg>>3&1), byte(0)
	if wide {
		l = 1
	}
	a.b(0xc4, (r^1)<<7|(x^1)<<6|(bb^1)<<5|mp, w<<7|byte(^vvvv&15)<<3|l<<2|pp, op)
	a.modrm(reg, rm, trailing, 1)
}
