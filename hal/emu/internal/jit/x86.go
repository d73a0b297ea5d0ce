package jit

import "encoding/binary"

// x86 is an assembler for the instructions that the emitter needs of amd64 (Intel SDM volume 2; AMD APM volumes 3 and 4).
type x86 struct {
	*buffer
	wide bool // AVX-512
}

func newX86(wide bool) *x86 { return &x86{&buffer{filler: 0xcc}, wide} }

// relative adds a displacement of 32 bits to a label, which counts from so many bytes after its beginning.
func (a *x86) relative(to label, end int) {
	at := len(a.buf)
	a.fixups = append(a.fixups, fixup{to, func(buf []byte, target int) bool {
		binary.LittleEndian.PutUint32(buf[at:], uint32(target-at-end))
		return true
	}})
	a.imm32(0)
}

// modrm encodes a register or memory operand. trailing is the number of immediate bytes that follow, n the unit of a
// compressed displacement (1: none).
func (a *x86) modrm(reg int, rm any, trailing, n int) {
	reg &= 7
	switch m := rm.(type) {
	case int:
		a.b(0xc0 | byte(reg)<<3 | byte(m&7))
	case mem:
		if m.base == ripBase {
			a.b(byte(reg)<<3 | 5)
			a.relative(m.label, 4+trailing)
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
func (a *x86) gp(w bool, prefix byte, esc []byte, op byte, reg int, rm any, trailing int) {
	a.gpByte(w, prefix, esc, op, reg, rm, trailing, false)
}

func (a *x86) gpByte(w bool, prefix byte, esc []byte, op byte, reg int, rm any, trailing int, byteReg bool) {
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

func (a *x86) mov32(dst int, rm any)   { a.gp(false, 0, nil, 0x8b, dst, rm, 0) }
func (a *x86) mov64(dst int, rm any)   { a.gp(true, 0, nil, 0x8b, dst, rm, 0) }
func (a *x86) put32(m mem, src int)    { a.gp(false, 0, nil, 0x89, src, m, 0) }
func (a *x86) put64(m mem, src int)    { a.gp(true, 0, nil, 0x89, src, m, 0) }
func (a *x86) put16(m mem, src int)    { a.gp(false, 0x66, nil, 0x89, src, m, 0) }
func (a *x86) put8(m mem, src int)     { a.gpByte(false, 0, nil, 0x88, src, m, 0, true) }
func (a *x86) movzx8(dst int, rm any)  { a.gp(false, 0, esc0F, 0xb6, dst, rm, 0) }
func (a *x86) movzx16(dst int, rm any) { a.gp(false, 0, esc0F, 0xb7, dst, rm, 0) }
func (a *x86) movsx8(dst int, rm any)  { a.gp(false, 0, esc0F, 0xbe, dst, rm, 0) }
func (a *x86) lea(dst int, m mem)      { a.gp(true, 0, nil, 0x8d, dst, m, 0) }
func (a *x86) tzcnt(dst, src int)      { a.gp(false, 0xf3, esc0F, 0xbc, dst, src, 0) }
func (a *x86) inc64(rm any)            { a.gp(true, 0, nil, 0xff, 0, rm, 0) }
func (a *x86) not32(r int)             { a.gp(false, 0, nil, 0xf7, 2, r, 0) }
func (a *x86) div32(rm any)            { a.gp(false, 0, nil, 0xf7, 6, rm, 0) }
func (a *x86) test32(x, y int)         { a.gp(false, 0, nil, 0x85, x, y, 0) }
func (a *x86) test64(x, y int)         { a.gp(true, 0, nil, 0x85, x, y, 0) }

// Group-1 arithmetic: the opcode r, r/m is 8·op+3.

func (a *x86) alu32(op, dst int, rm any) { a.gp(false, 0, nil, byte(8*op+3), dst, rm, 0) }
func (a *x86) alu64(op, dst int, rm any) { a.gp(true, 0, nil, byte(8*op+3), dst, rm, 0) }

func (a *x86) alu32i(op int, rm any, v int32) { a.aluI(false, op, rm, v) }
func (a *x86) alu64i(op int, rm any, v int32) { a.aluI(true, op, rm, v) }

func (a *x86) aluI(wide bool, op int, rm any, v int32) {
	if v == int32(int8(v)) {
		a.gp(wide, 0, nil, 0x83, op, rm, 1)
		a.b(byte(v))
		return
	}
	a.gp(wide, 0, nil, 0x81, op, rm, 4)
	a.imm32(v)
}

func (a *x86) imul64i(dst int, rm any, v int32) {
	a.gp(true, 0, nil, 0x69, dst, rm, 4)
	a.imm32(v)
}

func (a *x86) test32i(r int, v int32) {
	a.gp(false, 0, nil, 0xf7, 0, r, 4)
	a.imm32(v)
}

func (a *x86) shl32(r int, n byte) { a.gp(false, 0, nil, 0xc1, 4, r, 1); a.b(n) }

func (a *x86) movi32(m any, v int32) { // to a register or memory
	a.gp(false, 0, nil, 0xc7, 0, m, 4)
	a.imm32(v)
}

// blsr clears the lowest set bit: dst = src & (src-1).
func (a *x86) blsr(dst, src int) {
	a.vex(false, 2, 0, 0, 0xf3, 1, dst, src, 0)
}

func (a *x86) rel(to label) { a.relative(to, 4) }

func (a *x86) jumpTo(m mem) { a.gp(false, 0, nil, 0xff, 4, m, 0) }

func (a *x86) prologue() {}
func (a *x86) leave()    { a.ret() }

func (a *x86) setBit(r, bit int) { a.gp(false, 0, esc0F, 0xab, bit, r, 0) } // bts

func (a *x86) movsx32(dst int, rm any) { a.gp(true, 0, nil, 0x63, dst, rm, 0) } // movsxd

// forward is rep movsq, whose registers are rdi, rsi and rcx.
func (a *x86) forward(to, from, n int) {
	a.mov64(rax, rdi)
	a.mov64(r14, rsi)
	a.mov64(rcx, n)
	a.mov64(rdi, to)
	a.mov64(rsi, from)
	a.b(0xf3, 0x48, 0xa5)
	a.mov64(rdi, rax)
	a.mov64(rsi, r14)
}

func (a *x86) jcc(cc byte, to label) { a.b(0x0f, 0x80|cc); a.rel(to) }
func (a *x86) jmp(to label)          { a.b(0xe9); a.rel(to) }
func (a *x86) call(to label)         { a.b(0xe8); a.rel(to) }
func (a *x86) ret()                  { a.b(0xc3) }

// vex encodes a VEX instruction; l is 1 for 256 bits.
func (a *x86) vex(wide bool, mp, pp, w, op byte, reg, vvvv int, rm any, trailing int) {
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
