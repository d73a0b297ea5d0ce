package jit

// What NEON does otherwise than by an instruction for each of AVX2's.

// testBits sets the lanes whose bits are set in a general register.
func (a *aarch64) testBits(f file, t pair, bits mem, mask uint32) {
	dup, test := uint32(nDUPW), uint32(nCMTST)
	if f == q {
		dup, test = nDUPX, nCMTSTD
	}
	b := a.operand(bits)
	a.w(dup | mask<<5 | uint32(t[0]))
	a.vvv(test, t[1], t[0], b[1])
	a.vvv(test, t[0], t[0], b[0])
}

// blendNEON writes vector v to chunk c of a row under the mask in rEM.
func (e *emitter) blendNEON(f file, to mem, c, v int) {
	const old = vMem / 2
	e.lanes(f, vTemp/2, c, rEM)
	e.v(vmovups, old, 0, to)
	e.arm.each(nBIT, pairOf(old), pairOf(v), temporaries)
	e.v(vstoreups, old, 0, to)
}

// canon replaces NaNs by f32's canonical one.
func (a *aarch64) canon(v pair) {
	for i := range 2 {
		a.vvv(nFCMEQ, vTemp, v[i], v[i])
		a.vvv(nBIF, v[i], vIsNaN+i, vTemp)
	}
}

// shiftRight shifts words by counts of no more than a byte's range, which are clobbered.
func (a *aarch64) shiftRight(v, counts pair) {
	a.each1(nNEG, counts, counts)
	a.each(nUSHL, v, v, counts)
}

// wideNEON is mul.wide and mad.wide.
func (e *emitter) wideNEON(in *Inst, c int, signed, add bool) {
	const x, y = 2, 3
	e.arm.loadQ(x, e.half(in.A, c))
	e.arm.loadQ(y, e.half(in.B, c))
	low, high := uint32(nUMULL), uint32(nUMULL2)
	if signed {
		low, high = nSMULL, nSMULL2
	}
	e.arm.vvv(low, 0, x, y)
	e.arm.vvv(high, 1, x, y)
	if add {
		e.v(vpaddq, 0, 0, e.q(in.C, c))
	}
}

// truncateNEON is cvt.u32.u64.
func (e *emitter) truncateNEON(in *Inst, c int) {
	for h := range 2 {
		t := pair{2, 3}
		e.arm.loadPair(t, e.q(in.A, 2*c+h))
		e.arm.vvv(nUZP1, h, t[0], t[1])
	}
}

// upper32 leaves the upper halves of products in a.
func (a *aarch64) upper32(x, y pair, signed bool) {
	low, high := uint32(nUMULL), uint32(nUMULL2)
	if signed {
		low, high = nSMULL, nSMULL2
	}
	for i := range 2 {
		a.vvv(low, vTemp, x[i], y[i])
		a.vvv(high, vTemp+1, x[i], y[i])
		a.vvv(nUZP2, x[i], vTemp, vTemp+1)
	}
}

// divideNEON divides lane by lane: by zero, quotient and remainder are all ones.
func (e *emitter) divideNEON(in *Inst, c int, rem bool, to mem) {
	n, d, quotient := general[rax], general[rcx], general[rdx]
	for l := range e.lanesOf(r) {
		e.mov32(rax, e.lane(in.A, e.lanesOf(r)*c+l))
		e.mov32(rcx, e.lane(in.B, e.lanesOf(r)*c+l))
		e.arm.w(rrr(nUDIV, quotient, n, d))
		if rem {
			e.arm.w(rrr(nMSUB, quotient, quotient, d) | n<<10)
		}
		e.alu32i(aluCmp, rcx, 0)
		e.arm.w(rrr(nCSINVNE, quotient, quotient, xZero))
		e.put32(to.plus(4*l), rdx)
	}
	e.v(vmovups, 0, 0, to)
}

// extreme is min or max: a NaN wins if so said, otherwise the other operand does. Of zeros, the positive one is
// greater.
func (a *aarch64) extreme(greater, nan bool, out, x, y, t pair) {
	op := uint32(nFMIN)
	if greater {
		op = nFMAX
	}
	if !nan {
		a.copyPair(t, x)
		for i := range 2 {
			a.vvv(nFCMEQ, vTemp, x[i], x[i])
			a.vvv(nFCMEQ, vTemp+1, y[i], y[i])
			a.vvv(nBIF, x[i], y[i], vTemp)
			a.vvv(nBIF, y[i], t[i], vTemp+1)
		}
	}
	a.each(op, out, x, y)
	a.canon(out)
}

// fromLongNEON is s64 to f32, rounded once, lane by lane.
func (e *emitter) fromLongNEON(in *Inst, c int, to mem) {
	for l := range 8 {
		e.mov64(rax, at(rQ, int(in.A)*256-e.biasQ+8*(8*c+l)))
		e.arm.w(nSCVTFX | general[rax]<<5 | vTemp)
		e.arm.access(2<<30|accStore|accVector, 2, vTemp, to.plus(4*l))
	}
	e.v(vmovups, 0, 0, to)
}

// halves converts the low or the high f16 of words to f32.
func (a *aarch64) halves(d, s pair, high bool) {
	op := uint32(nXTN)
	if high {
		op = nSHRN16
	}
	for i := range 2 {
		a.vv(op, d[i], s[i])
		a.vv(nFCVTL, d[i], d[i])
	}
}

// unpackNEON looks e2m1 up by bytes: as f16 they differ from 0 in the upper byte alone, as an e5m2 is all of it.
func (e *emitter) unpackNEON(f element, s, n, t int, dst func(i int) int, done func(i int)) {
	a := e.arm
	table := make([]byte, 16)
	for i := range table {
		table[i] = [8]byte{0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46}[i%8] | byte(i>>3<<7)
	}
	codes := t + 1
	lookUp := func(bit byte) {
		e.shiftI(vpsrldI, 2, codes, s, bit)
		a.repeated(vMem, string(append(table, table...)), e.constant(append(table, table...)))
		a.splat(vMem+1, 0x0f0f0f0f)
		for _, v := range pairOf(codes) {
			a.vvv(nAND, v, v, vMem+1)
			a.vvv(nTBL1, v, vMem, v)
		}
	}
	if f == inByte {
		lookUp(2)
		e.unpack(e5m2, codes, n, t, dst, done)
		return
	}
	for odd := range min(n, 2) {
		lookUp(byte(4 * odd))
		nth := func(i int) int { return 2*i + odd }
		e.unpack(e5m2, codes, (n-odd+1)/2, t, func(i int) int { return dst(nth(i)) }, func(i int) { done(nth(i)) })
	}
}

// bitOfByte has in each byte the bit of its number, modulo 8.
const bitOfByte = 0x8040201008040201

// onNEON compares rows, narrows the outcome to a byte a lane, and adds the bits of bytes.
func (f comparison) onNEON(e *emitter, in *Inst) {
	const first = 8
	a := e.arm
	n := e.chunksOf(f.file)
	for c := range n {
		e.v(vmovups, 0, 0, e.at(f.file, in.A, c))
		f.lanes(e, e.at(f.file, in.B, c))
		if f.file == q {
			a.vvv(nUZP1, first+c, 0, 1)
		} else {
			a.vvv(nUZP1H, first+c, 0, 1)
		}
	}
	if f.file == q {
		for c := range 4 {
			a.vvv(nUZP1H, first+c, first+2*c, first+2*c+1)
		}
	}
	a.moveImmediate(xValue, bitOfByte, true)
	a.vv(nDUPX, vTemp, xValue)
	for h := range 2 {
		a.vvv(nUZP1B, first+h, first+2*h, first+2*h+1)
		a.vvv(nAND, first+h, first+h, vTemp)
	}
	a.vvv(nADDPB, first, first, first+1)
	a.vvv(nADDPB, first, first, first)
	a.vvv(nADDPB, first, first, first)
	a.w(nUMOV | first<<5 | general[rax])
	if f.inverted {
		e.not32(rax)
	}
	e.toP(in.D, rax)
}

// largest puts the largest word of a vector into rax.
func (a *aarch64) largest(v int) {
	p := pairOf(v)
	a.vvv(nUMAX, p[0], p[0], p[1])
	a.vv(nUMAXV, p[0], p[0])
	a.w(nUMOV | uint32(p[0])<<5 | general[rax])
}

func (e *emitter) everyMemberNEON(row int32) {
	a := e.arm
	e.v(vmovups, 0, 0, e.r(row, 0))
	for c := 1; c < 4; c++ {
		e.v(vpand, 0, 0, e.r(row, c))
	}
	a.vvv(nAND, 0, 0, 1)
	a.vv(nUMINV, 0, 0)
	a.w(nUMOV | general[rax])
	e.alu32i(aluCmp, rax, -1)
	e.jcc(ccNE, e.bail())
}

// across are the reductions of a register's words.
var across = map[vop]uint32{vpaddd: nADDV, vpmaxsd: nSMAXV, vpminsd: nSMINV, vpmaxud: nUMAXV, vpminud: nUMINV}

func (e *emitter) reduceNEON(in *Inst, o vop) {
	a := e.arm
	e.v(vmovups, 0, 0, e.r(in.A, 0))
	for c := 1; c < 4; c++ {
		e.v(o, 0, 0, e.r(in.A, c))
	}
	a.vvv(neon3[o], 0, 0, 1)
	a.vv(across[o], 0, 0)
	a.vv(nDUPS, 0, 0)
	for c := range 4 {
		a.storePair(e.r(in.D, c), pair{0, 0})
	}
}

// shuffleNEON looks words up by their bytes, in the 128 bytes of a row.
func (e *emitter) shuffleNEON(in *Inst, upwards bool, from func(e *emitter)) {
	a := e.arm
	const table, scale = 16, 24
	e.everyMember(in.Vec[1])
	for c := range 4 {
		e.v(vmovups, table/2+c, 0, e.r(in.A, c))
	}
	a.splat(scale, 0x04040404)
	a.splat(scale+1, 0x03020100)
	e.movi32(rcx, 0)
	for c := range 4 {
		const lane, bval, cval, seg, most, j, t, out = 0, 1, 2, 3, 4, 5, 6, 7
		e.v(vmovups, lane, 0, e.vector32(func(i int) uint32 { return uint32(8*c + i) }))
		e.v(vmovups, bval, 0, e.r(in.B, c))
		e.v(vpand, bval, bval, e.all32(31))
		e.v(vmovups, cval, 0, e.r(in.C, c))
		e.shiftI(vpsrldI, 2, seg, cval, 8)
		e.v(vpand, cval, cval, e.all32(31))
		e.v(vpand, seg, seg, e.all32(31))
		e.v(vpandn, most, seg, cval)
		e.v(vpand, t, lane, seg)
		e.v(vpor, most, most, t)
		from(e)
		if upwards {
			e.v(vpcmpgtd, out, most, j)
		} else {
			e.v(vpcmpgtd, out, j, most)
		}
		e.vi(vblendvps, j, j, lane, out<<4)
		a.gatherBits(pairOf(out), e.vector32(func(i int) uint32 { return 1 << i }), 8*c)
		for i := range 2 {
			index := pairOf(j)[i]
			a.vvv(nMUL, index, index, scale)
			a.vvv(nADD, index, index, scale+1)
			a.vvv(nTBL4, 2*t+i, table, index)
			a.w(nMOVI64 | vTemp)
			a.vvv(nSUBB, index, index, vTemp)
			a.vvv(nTBX4, 2*t+i, table+4, index)
		}
		e.v(vstoreups, t, 0, e.r(in.D, c))
	}
	e.put32(e.p(in.Vec[0]), rcx)
}

// gatherBits adds the bits of lanes that are not set, as many further up as said, to rcx.
func (a *aarch64) gatherBits(v pair, weights mem, up int) {
	w := a.operand(weights)
	for i := range 2 {
		a.vvv(nBIC, v[i], w[i], v[i])
	}
	a.vvv(nORR, v[0], v[0], v[1])
	a.vv(nADDV, v[0], v[0])
	a.w(nUMOV | uint32(v[0])<<5 | xValue)
	a.w(rrr(0x2a000000, general[rcx], general[rcx], xValue) | uint32(up)<<10) // orr, shifted
}

// fmlaBy adds the products of n with one word of m to d.
func (a *aarch64) fmlaBy(d, n, m, word int) {
	a.vvv(nFMLAS|uint32(word&1)<<21|uint32(word>>1)<<11, d, n, m)
}

// multiplyNEON adds the products of eight rows of A, in scratch memory, and a half of B's to the sums.
func (e *emitter) multiplyNEON(p *product, half int) {
	const columns, rows = 24, 16
	a, s, n := e.arm, at(r14, 0), p.a.perWord
	e.lea(r12, s.plus(scratchA))
	e.lea(r13, s.plus(p.rowOfB(half, 0, 0)))
	for thread := range 4 {
		for i := range n {
			a.loadPair(pair{columns, columns + 1}, at(r13, p.rowOfB(half, thread, i)-p.rowOfB(half, 0, 0)))
			for j := range 4 {
				a.loadPair(pair{rows + 2*j, rows + 2*j + 1}, at(r12, 128*i+32*j))
			}
			for g := range 8 {
				a.fmlaBy(g, columns, rows+g, thread)
				a.fmlaBy(8+g, columns+1, rows+g, thread)
			}
		}
	}
}
