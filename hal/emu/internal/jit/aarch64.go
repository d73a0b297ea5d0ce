package jit

import (
	"encoding/binary"
)

// aarch64 is an assembler for the Arm A64 instructions that the emitter needs (Arm ARM, DDI 0487, C6 and C7). A vector
// of 256 bits is a pair of SIMD registers: 2n and 2n+1 are the emitter's vector register n.
type aarch64 struct {
	*buffer
	far      bool // labels are more than 1 MiB away
	contents map[label]string
	cached   [8]cachedAddress
	next     int // of cached to overwrite
	valid    int // labels that were placed when cached held
}

// cachedAddress says that a register holds the address base + disp.
type cachedAddress struct {
	base int8
	disp int32
	used bool
}

func newAArch64(far bool) *aarch64 {
	return &aarch64{buffer: &buffer{}, far: far, contents: map[label]string{}}
}

// The registers of aarch64 that stand for those of amd64. Not used are those that Go reserves: 18, 28 (g), 29 and SP.
var general = [...]uint32{rax: 9, rcx: 10, rdx: 11, rbx: 12, rbp: 13, rsi: 14, rdi: 0, r8: 1, r9: 2, r10: 3, r11: 4, r12: 5,
	r13: 6, r14: 7, r15: 8}

// Registers of aarch64 with a role of their own.
const (
	xAddress = 16 // of one access
	xValue   = 17 // an immediate
	xCached  = 19 // to 26: addresses
	xReturn  = 27 // where code returns to
	xLink    = 30
	xZero    = 31
)

func (a *aarch64) w(word uint32) { a.imm32(int32(word)) }

// Bits of instructions: 64-bit operands, and the places of operands.
const wide64 = 1 << 31

func rrr(op uint32, d, n, m uint32) uint32 { return op | m<<16 | n<<5 | d }

// moveImmediate sets a register to a value, of 64 bits if wide.
func (a *aarch64) moveImmediate(d uint32, v uint64, wide bool) {
	const movz, movn, movk = 0x52800000, 0x12800000, 0x72800000
	size, parts := uint32(0), 2
	if wide {
		size, parts = wide64, 4
	} else {
		v &= 1<<32 - 1
	}
	part := func(v uint64, i int) uint32 { return uint32(v>>(16*i)) & 0xffff }
	zeros, ones := 0, 0
	for i := range parts {
		switch part(v, i) {
		case 0:
			zeros++
		case 0xffff:
			ones++
		}
	}
	first, flip := uint32(movz), uint64(0)
	if ones > zeros {
		first, flip = movn, ^uint64(0)
	}
	started := false
	for i := range parts {
		p := part(v^flip, i)
		switch {
		case p == 0 && (started || i < parts-1):
		case !started:
			a.w(size | first | uint32(i)<<21 | p<<5 | d)
			started = true
		default:
			a.w(size | movk | uint32(i)<<21 | part(v, i)<<5 | d)
		}
	}
}

// addImmediate sets d to n + v, of 64 bits.
func (a *aarch64) addImmediate(d, n uint32, v int) {
	const add, sub, shifted = wide64 | 0x11000000, wide64 | 0x51000000, 1 << 22
	op, m := uint32(add), v
	if v < 0 {
		op, m = sub, -v
	}
	if m >= 1<<24 {
		a.moveImmediate(xValue, uint64(v), true)
		a.w(rrr(wide64|0x0b000000, d, n, xValue))
		return
	}
	if m >= 1<<12 {
		a.w(op | shifted | uint32(m>>12)<<10 | n<<5 | d)
		m, n = m&0xfff, d
		if m == 0 {
			return
		}
	}
	a.w(op | uint32(m)<<10 | n<<5 | d)
}

// address returns a register and a displacement that an access can encode. Addresses of rows are kept until the next
// label.
func (a *aarch64) address(m mem, fits func(disp int) bool) (base uint32, disp int) {
	if m.base == ripBase {
		a.adr(xAddress, m.label)
		if !fits(int(m.disp)) {
			a.addImmediate(xAddress, xAddress, int(m.disp))
			return xAddress, 0
		}
		return xAddress, int(m.disp)
	}
	base, disp = general[m.base], int(m.disp)
	if m.index != none {
		a.w(rrr(wide64|0x0b000000, xAddress, base, general[m.index]) | uint32(m.scale)<<10)
		if !fits(disp) {
			a.addImmediate(xAddress, xAddress, disp)
			disp = 0
		}
		return xAddress, disp
	}
	if fits(disp) {
		return base, disp
	}
	if m.base != rR && m.base != rQ {
		a.addImmediate(xAddress, base, disp)
		return xAddress, 0
	}
	if a.valid != a.placed {
		a.cached, a.valid = [len(a.cached)]cachedAddress{}, a.placed
	}
	for i, c := range a.cached {
		if c.used && c.base == m.base && fits(disp-int(c.disp)) {
			return xCached + uint32(i), disp - int(c.disp)
		}
	}
	i := a.next
	a.next = (a.next + 1) % len(a.cached)
	from := disp
	if page := disp &^ 0xfff; fits(disp-page) && fits(disp-page+96) {
		from = page
	} else if page += 0x1000; fits(disp - page) {
		from = page
	}
	a.addImmediate(xCached+uint32(i), base, from)
	a.cached[i] = cachedAddress{m.base, int32(from), true}
	return xCached + uint32(i), disp - from
}

// access is a load or store of a register of 1 << size bytes: op with bits 22 and 23 set, and bit 26 for vectors.
func (a *aarch64) access(op uint32, size int, t uint32, m mem) {
	n, disp := a.address(m, func(d int) bool {
		return d >= -256 && d < 256 || d >= 0 && d>>size < 4096 && d&(1<<size-1) == 0
	})
	if disp >= 0 && disp&(1<<size-1) == 0 {
		a.w(op | 0x39000000 | uint32(disp>>size)<<10 | n<<5 | t)
		return
	}
	a.w(op | 0x38000000 | uint32(disp&0x1ff)<<12 | n<<5 | t)
}

// The kinds of access, but for the size, in the upper two bits.
const (
	accStore      = 0
	accLoad       = 1 << 22
	accLoadSigned = 2 << 22 // to 64 bits
	accLoadShort  = 3 << 22 // signed, to 32
	accVector     = 1 << 26
)

// from returns the register of an operand, which it loads to t if it is memory.
func (a *aarch64) from(rm any, size int, t uint32) uint32 {
	if r, ok := rm.(int); ok {
		return general[r]
	}
	a.access(uint32(size)<<30|accLoad, size, t, rm.(mem))
	return t
}

func (a *aarch64) mov32(dst int, rm any) { a.move(dst, rm, 2) }
func (a *aarch64) mov64(dst int, rm any) { a.move(dst, rm, 3) }

func (a *aarch64) move(dst int, rm any, size int) {
	d := general[dst]
	if r, ok := rm.(int); ok {
		a.w(rrr(uint32(size&1)<<31|0x2a000000, d, xZero, general[r])) // orr
		return
	}
	a.from(rm, size, d)
}

func (a *aarch64) put(m mem, src, size int) {
	a.access(uint32(size)<<30|accStore, size, general[src], m)
}

func (a *aarch64) put64(m mem, src int) { a.put(m, src, 3) }
func (a *aarch64) put32(m mem, src int) { a.put(m, src, 2) }
func (a *aarch64) put16(m mem, src int) { a.put(m, src, 1) }
func (a *aarch64) put8(m mem, src int)  { a.put(m, src, 0) }

func (a *aarch64) movzx8(dst int, rm any)  { a.extend(dst, rm, 0, accLoad, 0x53001c00) }      // uxtb
func (a *aarch64) movzx16(dst int, rm any) { a.extend(dst, rm, 1, accLoad, 0x53003c00) }      // uxth
func (a *aarch64) movsx8(dst int, rm any)  { a.extend(dst, rm, 0, accLoadShort, 0x13001c00) } // sxtb
func (a *aarch64) movsx32(dst int, rm any) { a.extend(dst, rm, 2, accLoadSigned, wide64|0x13407c00) }

// extend widens memory, or by op a register.
func (a *aarch64) extend(dst int, rm any, size int, kind, op uint32) {
	if r, ok := rm.(int); ok {
		a.w(op | general[r]<<5 | general[dst])
		return
	}
	a.access(uint32(size)<<30|kind, size, general[dst], rm.(mem))
}

func (a *aarch64) movi32(rm any, v int32) {
	if r, ok := rm.(int); ok {
		a.moveImmediate(general[r], uint64(uint32(v)), false)
		return
	}
	t := uint32(xZero)
	if v != 0 {
		t = xValue
		a.moveImmediate(t, uint64(uint32(v)), false)
	}
	a.access(2<<30|accStore, 2, t, rm.(mem))
}

func (a *aarch64) lea(dst int, m mem) {
	d := general[dst]
	if m.base == ripBase {
		a.adr(d, m.label)
		a.addIf(d, int(m.disp))
		return
	}
	n := general[m.base]
	if m.index != none {
		a.w(rrr(wide64|0x0b000000, d, n, general[m.index]) | uint32(m.scale)<<10)
		a.addIf(d, int(m.disp))
		return
	}
	a.addImmediate(d, n, int(m.disp))
}

func (a *aarch64) addIf(d uint32, v int) {
	if v != 0 {
		a.addImmediate(d, d, v)
	}
}

// arithmetic are the forms with registers, which set the flags if they can.
var arithmetic = map[int]uint32{aluAdd: 0x2b000000, aluSub: 0x6b000000, aluCmp: 0x6b000000, aluAnd: 0x6a000000,
	aluOr: 0x2a000000, aluXor: 0x4a000000}

func (a *aarch64) alu32(op, dst int, rm any) { a.alu(op, general[dst], rm, 2) }
func (a *aarch64) alu64(op, dst int, rm any) { a.alu(op, general[dst], rm, 3) }

func (a *aarch64) alu(op int, dst uint32, rm any, size int) {
	m := a.from(rm, size, xValue)
	d := dst
	if op == aluCmp {
		d = xZero
	}
	a.w(rrr(uint32(size&1)<<31|arithmetic[op], d, dst, m))
}

func (a *aarch64) alu32i(op int, rm any, v int32) { a.aluImmediate(op, rm, v, 2) }
func (a *aarch64) alu64i(op int, rm any, v int32) { a.aluImmediate(op, rm, v, 3) }

func (a *aarch64) aluImmediate(op int, rm any, v int32, size int) {
	const value = 15 // of an operand in memory
	n, inMemory := uint32(value), true
	if r, ok := rm.(int); ok {
		n, inMemory = general[r], false
	} else {
		a.from(rm, size, value)
	}
	d := n
	if op == aluCmp {
		d, inMemory = xZero, false
	}
	wide := uint32(size&1) << 31
	switch {
	case (op == aluAdd || op == aluSub || op == aluCmp) && v > -4096 && v < 4096:
		adding := op == aluAdd
		m := v
		if v < 0 {
			adding, m = !adding, -v
		}
		form := uint32(0x71000000) // subs
		if adding {
			form = 0x31000000
		}
		a.w(wide | form | uint32(m)<<10 | n<<5 | d)
	default:
		a.moveImmediate(xValue, uint64(int64(v)), size == 3)
		a.w(rrr(wide|arithmetic[op], d, n, xValue))
	}
	if inMemory {
		a.access(uint32(size)<<30|accStore, size, value, rm.(mem))
	}
}

func (a *aarch64) imul64i(dst int, rm any, v int32) {
	a.moveImmediate(xValue, uint64(int64(v)), true)
	n := a.from(rm, 3, xAddress)
	a.w(rrr(wide64|0x1b007c00, general[dst], n, xValue)) // mul
}

func (a *aarch64) test32(x, y int) { a.w(rrr(0x6a000000, xZero, general[x], general[y])) }
func (a *aarch64) test64(x, y int) { a.w(rrr(wide64|0x6a000000, xZero, general[x], general[y])) }

func (a *aarch64) test32i(r int, v int32) {
	a.moveImmediate(xValue, uint64(uint32(v)), false)
	a.w(rrr(0x6a000000, xZero, general[r], xValue))
}

func (a *aarch64) shl32(r int, n byte) {
	a.w(0x53000000 | uint32(-n&31)<<16 | uint32(31-n&31)<<10 | general[r]<<5 | general[r])
}

func (a *aarch64) not32(r int)   { a.w(rrr(0x2a200000, general[r], xZero, general[r])) } // orn
func (a *aarch64) inc64(rm any)  { a.alu64i(aluAdd, rm, 1) }
func (a *aarch64) prologue()     { a.w(rrr(wide64|0x2a000000, xReturn, xZero, xLink)) }
func (a *aarch64) leave()        { a.w(0xd65f0000 | xReturn<<5) }
func (a *aarch64) ret()          { a.w(0xd65f0000 | xLink<<5) }
func (a *aarch64) jmp(to label)  { a.branch(0x14000000, to, 26, 0) }
func (a *aarch64) call(to label) { a.branch(0x94000000, to, 26, 0); a.placed++ }

func (a *aarch64) tzcnt(dst, src int) {
	a.w(0x5ac00000 | general[src]<<5 | general[dst]) // rbit
	a.w(0x5ac01000 | general[dst]<<5 | general[dst]) // clz
}

func (a *aarch64) blsr(dst, src int) {
	a.w(0x51000400 | general[src]<<5 | xValue) // sub by 1
	a.w(rrr(0x6a000000, general[dst], general[src], xValue))
}

func (a *aarch64) setBit(r, bit int) {
	a.w(0x52800020 | xValue) // 1
	a.w(rrr(0x1ac02000, xValue, xValue, general[bit]))
	a.w(rrr(0x2a000000, general[r], general[r], xValue))
}

func (a *aarch64) forward(to, from, n int) {
	top, end := a.newLabel(), a.newLabel()
	a.place(top)
	a.test64(n, n)
	a.jcc(ccE, end)
	a.mov64(rax, at(from, 0))
	a.put64(at(to, 0), rax)
	a.alu64i(aluAdd, from, 8)
	a.alu64i(aluAdd, to, 8)
	a.alu64i(aluSub, n, 1)
	a.jmp(top)
	a.place(end)
}

func (a *aarch64) jumpTo(m mem) {
	a.access(3<<30|accLoad, 3, xAddress, m)
	a.w(0xd61f0000 | xAddress<<5)
}

// conditions are aarch64's numbers of amd64's.
var conditions = [...]uint32{ccB: 3, ccAE: 2, ccE: 0, ccNE: 1, ccA: 8, ccGE: 10, ccLE: 13}

func (a *aarch64) jcc(cc byte, to label) {
	const conditional = 0x54000000
	c := conditions[cc]
	if a.far { // over a jump
		a.w(conditional | 2<<5 | c ^ 1)
		a.jmp(to)
		return
	}
	a.branch(conditional|c, to, 19, 5)
}

// branch emits an instruction with the distance to a label in so many bits from one on, in words.
func (a *aarch64) branch(op uint32, to label, size, from int) {
	at := len(a.buf)
	a.w(op)
	a.fixups = append(a.fixups, fixup{to, func(buf []byte, target int) bool {
		d := (target - at) / 4
		if d < -1<<(size-1) || d >= 1<<(size-1) {
			return false
		}
		binary.LittleEndian.PutUint32(buf[at:], op|uint32(d)&(1<<size-1)<<from)
		return true
	}})
}

// adr sets a register to a label's address.
func (a *aarch64) adr(d uint32, to label) {
	at := len(a.buf)
	if a.far {
		a.w(0x10000000 | d) // its own address, and the distance of 32 bits
		a.w(0x52800000 | xValue)
		a.w(0x72a00000 | xValue)
		a.w(0x8b20c000 | xValue<<16 | d<<5 | d) // add, sxtw
		a.fixups = append(a.fixups, fixup{to, func(buf []byte, target int) bool {
			v := uint32(target - at)
			binary.LittleEndian.PutUint32(buf[at+4:], 0x52800000|v&0xffff<<5|xValue)
			binary.LittleEndian.PutUint32(buf[at+8:], 0x72a00000|v>>16<<5|xValue)
			return true
		}})
		return
	}
	a.w(0)
	a.fixups = append(a.fixups, fixup{to, func(buf []byte, target int) bool {
		v := target - at
		if v < -1<<20 || v >= 1<<20 {
			return false
		}
		binary.LittleEndian.PutUint32(buf[at:], 0x10000000|uint32(v)&3<<29|uint32(v)>>2&(1<<19-1)<<5|d)
		return true
	}})
}

// constant remembers what a label holds.
func (a *aarch64) contentOf(m mem) string {
	if len(a.contents) < len(a.consts) {
		for data, l := range a.consts {
			a.contents[l] = data
		}
	}
	return a.contents[m.label]
}
