package jit

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// NEON instructions (Arm ARM, DDI 0487, C7), of four words or of two doublewords. Operands d, n and m go to bits 0, 5
// and 16.
const (
	nADD    = 0x4ea08400
	nADDD   = 0x4ee08400
	nADDH   = 0x4e608400
	nSUB    = 0x6ea08400
	nSUBD   = 0x6ee08400
	nMUL    = 0x4ea09c00
	nSMAX   = 0x4ea06400
	nUMAX   = 0x6ea06400
	nSMIN   = 0x4ea06c00
	nUMIN   = 0x6ea06c00
	nCMGT   = 0x4ea03400
	nCMGTD  = 0x4ee03400
	nCMEQ   = 0x6ea08c00
	nCMEQD  = 0x6ee08c00
	nCMTST  = 0x4ea08c00
	nCMTSTD = 0x4ee08c00
	nSSHL   = 0x4ea04400
	nUSHL   = 0x6ea04400
	nUSHLD  = 0x6ee04400
	nADDPB  = 0x4e20bc00 // of bytes
	nAND    = 0x4e201c00
	nBIC    = 0x4e601c00
	nORR    = 0x4ea01c00
	nEOR    = 0x6e201c00
	nBSL    = 0x6e601c00
	nBIT    = 0x6ea01c00
	nBIF    = 0x6ee01c00
	nFADD   = 0x4e20d400
	nFADDD  = 0x4e60d400
	nFSUB   = 0x4ea0d400
	nFSUBD  = 0x4ee0d400
	nFMUL   = 0x6e20dc00
	nFMULD  = 0x6e60dc00
	nFDIV   = 0x6e20fc00
	nFMLA   = 0x4e20cc00
	nFMAX   = 0x4e20f400
	nFMIN   = 0x4ea0f400
	nFCMEQ  = 0x4e20e400
	nFCMEQD = 0x4e60e400
	nFCMGE  = 0x6e20e400
	nFCMGED = 0x6e60e400
	nFCMGT  = 0x6ea0e400
	nFCMGTD = 0x6ee0e400
	nZIP1   = 0x4e803800
	nZIP2   = 0x4e807800
	nZIP1D  = 0x4ec03800
	nZIP2D  = 0x4ec07800
	nZIP1H  = 0x4e403800
	nZIP2H  = 0x4e407800
	nUZP1   = 0x4e801800
	nUZP2   = 0x4e805800
	nUZP1H  = 0x4e401800
	nUZP1B  = 0x4e001800
	nUMULL  = 0x2ea0c000
	nUMULL2 = 0x6ea0c000
	nSMULL  = 0x0ea0c000
	nSMULL2 = 0x4ea0c000
	nTBL1   = 0x4e000000
	nTBL2   = 0x4e002000
	nTBL4   = 0x4e006000
	nTBX4   = 0x4e007000

	// with one source
	nABS     = 0x4ea0b800
	nNEG     = 0x6ea0b800
	nNEGD    = 0x6ee0b800
	nNOT     = 0x6e205800
	nFSQRT   = 0x6ea1f800
	nFRINTN  = 0x4e218800
	nFRINTM  = 0x4e219800
	nFRINTMD = 0x4e619800
	nFRINTP  = 0x4ea18800
	nFRINTZ  = 0x4ea19800
	nFCVTZS  = 0x4ea1b800
	nFCVTZSD = 0x4ee1b800
	nSCVTF   = 0x4e21d800
	nFCVTL   = 0x0e217800 // of four halves
	nFCVTL2  = 0x4e217800
	nFCVTLS  = 0x0e617800 // of two words
	nFCVTLS2 = 0x4e617800
	nFCVTN   = 0x0e216800 // to four halves
	nFCVTN2  = 0x4e216800
	nFCVTNS  = 0x0e616800 // to two words
	nFCVTNS2 = 0x4e616800
	nXTN     = 0x0e612800 // to four halves
	nXTN2    = 0x4e612800
	nXTNS    = 0x0ea12800 // to two words
	nXTNS2   = 0x4ea12800
	nUXTL    = 0x2f10a400 // of four halves
	nUXTL2   = 0x6f10a400
	nUXTLS   = 0x2f20a400 // of two words
	nUXTLS2  = 0x6f20a400
	nSXTLS   = 0x0f20a400
	nSXTLS2  = 0x4f20a400
	nSHRN16  = 0x0f108400 // the upper halves of four words
	nADDV    = 0x4eb1b800
	nSMAXV   = 0x4eb0a800
	nSMINV   = 0x4eb1a800
	nUMAXV   = 0x6eb0a800
	nUMINV   = 0x6eb1a800
	nDUPS    = 0x4e040400 // of word 0
	nDUPW    = 0x4e040c00 // of a general register
	nDUPX    = 0x4e080c00

	nMOVI    = 0x4f000400 // an immediate byte, to words
	nMVNI    = 0x6f000400 // its complement
	nMOVIMSL = 0x4f00c400 // with ones below it
	nBICI    = 0x6f001400 // clears an immediate byte of words
	nFMLAS   = 0x4f801000 // by a word
	nUMOV    = 0x0e043c00 // of word 0
	nLD1R    = 0x4d40c800
	nLD1RD   = 0x4d40cc00
	nSCVTFX  = 0x9e220000 // of a general register, to a word
	nMOVI64  = 0x4f02e400 // 64 in each byte
	nSUBB    = 0x6e208400 // of bytes

	// of general registers
	nUDIV    = 0x1ac00800
	nMSUB    = 0x1b008000
	nCSINVNE = 0x5a801000
)

// Registers that vector instructions use themselves: temporaries, an operand from memory, and f32's NaN.
const (
	vTemp  = 26 // and 27
	vMem   = 28 // and 29
	vIsNaN = 30 // and 31: the emitter's 15
)

func (a *aarch64) vvv(op uint32, d, n, m int) { a.w(rrr(op, uint32(d), uint32(n), uint32(m))) }
func (a *aarch64) vv(op uint32, d, n int)     { a.w(op | uint32(n)<<5 | uint32(d)) }

// each computes d = n op m on both registers of pairs.
func (a *aarch64) each(op uint32, d, n, m pair) {
	for i := range 2 {
		a.vvv(op, d[i], n[i], m[i])
	}
}

func (a *aarch64) each1(op uint32, d, n pair) {
	for i := range 2 {
		a.vv(op, d[i], n[i])
	}
}

// pair are the registers of the emitter's vector.
type pair [2]int

func pairOf(v int) pair { return pair{2 * v, 2*v + 1} }

var temporaries = pair{vTemp, vTemp + 1}

func (a *aarch64) copyPair(d, n pair) {
	for i := range 2 {
		if d[i] != n[i] {
			a.vvv(nORR, d[i], n[i], n[i])
		}
	}
}

// fitsPair are the displacements of ldp and stp of 16 bytes a register.
func fitsPair(d int) bool { return d&15 == 0 && d >= -1024 && d < 1024-15 }

// loadPair loads 32 bytes, storePair stores them.
func (a *aarch64) loadPair(t pair, m mem)  { a.movePair(0xad400000, t, m) }
func (a *aarch64) storePair(m mem, t pair) { a.movePair(0xad000000, t, m) }

func (a *aarch64) movePair(op uint32, t pair, m mem) {
	n, disp := a.address(m, fitsPair)
	a.w(op | uint32(disp>>4)&0x7f<<15 | uint32(t[1])<<10 | n<<5 | uint32(t[0]))
}

func (a *aarch64) loadQ(t int, m mem)  { a.accessQ(3<<22, t, m) }
func (a *aarch64) storeQ(m mem, t int) { a.accessQ(2<<22, t, m) }

func (a *aarch64) accessQ(kind uint32, t int, m mem) {
	n, disp := a.address(m, func(d int) bool { return d >= -256 && d < 256 || d >= 0 && d < 16*4096 && d&15 == 0 })
	if disp >= 0 && disp&15 == 0 {
		a.w(0x3d000000 | kind | uint32(disp>>4)<<10 | n<<5 | uint32(t))
		return
	}
	a.w(0x3c000000 | kind | uint32(disp&0x1ff)<<12 | n<<5 | uint32(t))
}

// operand returns the registers of an operand, which are vMem's if it is memory.
func (a *aarch64) operand(rm any) pair {
	m, ok := rm.(mem)
	if !ok {
		return pairOf(rm.(int))
	}
	if m.base == ripBase && m.disp == 0 {
		if c := a.contentOf(m); len(c) == 32 && c[:16] == c[16:] {
			a.repeated(vMem, c, m)
			return pair{vMem, vMem}
		}
	}
	p := pair{vMem, vMem + 1}
	a.loadPair(p, m)
	return p
}

// repeated fills a register with a constant of 16 bytes.
func (a *aarch64) repeated(t int, content string, m mem) {
	word := content[:4]
	if content[4:8] == word && content[8:12] == word && content[12:16] == word {
		v := binary.LittleEndian.Uint32([]byte(word))
		if a.moveWord(t, v) {
			return
		}
		if a.far {
			a.splat(t, v)
			return
		}
	}
	if a.far {
		a.loadQ(t, m)
		return
	}
	a.branch(0x9c000000|uint32(t), m.label, 19, 5) // ldr of a literal
}

// moveByte fills a register with words of a byte.
func (a *aarch64) moveByte(t int, v byte) { a.modified(nMOVI, t, v) }

// modified emits an instruction with an immediate byte.
func (a *aarch64) modified(op uint32, t int, v byte) {
	a.w(op | uint32(v>>5)<<16 | uint32(v&31)<<5 | uint32(t))
}

// moveWord fills a register with a word by one instruction, or returns false: a byte of it differs from zeros, or from
// ones, or only ones are below a byte.
func (a *aarch64) moveWord(t int, v uint32) bool {
	const negated = nMVNI - nMOVI
	for i, op := range []uint32{nMOVI, nMVNI} {
		v := v ^ -uint32(i)
		for shift := range uint32(4) {
			if v&^(0xff<<(8*shift)) == 0 {
				a.modified(op|shift<<13, t, byte(v>>(8*shift)))
				return true
			}
		}
		for shift := uint32(1); shift < 3; shift++ { // with ones shifted in
			ones := uint32(1)<<(8*shift) - 1
			if v&ones == ones && v>>(8*shift) < 256 {
				a.modified(nMOVIMSL|op&negated|(shift-1)<<12, t, byte(v>>(8*shift)))
				return true
			}
		}
	}
	return false
}

// splat fills a register with a word.
func (a *aarch64) splat(t int, v uint32) {
	if a.moveWord(t, v) {
		return
	}
	a.moveImmediate(xValue, uint64(v), false)
	a.vv(nDUPW, t, xValue)
}

func (a *aarch64) splat32(reg int, v uint32) {
	p := pairOf(reg)
	a.splat(p[0], v)
	a.vvv(nORR, p[1], p[0], p[0])
}

func (a *aarch64) splat64(reg int, v uint64) {
	p := pairOf(reg)
	if a.far {
		a.moveImmediate(xValue, v, true)
		a.vv(nDUPX, p[0], xValue)
	} else {
		data := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, v), v)
		a.branch(0x9c000000|uint32(p[0]), a.constant(data).label, 19, 5)
	}
	a.vvv(nORR, p[1], p[0], p[0])
}

// neon3 are the instructions of amd64 that are one of NEON's: d = a op b.
var neon3 = map[vop]uint32{
	vaddps: nFADD, vsubps: nFSUB, vmulps: nFMUL, vdivps: nFDIV, vaddpd: nFADDD, vsubpd: nFSUBD, vmulpd: nFMULD,
	vpaddd: nADD, vpsubd: nSUB, vpaddq: nADDD, vpsubq: nSUBD, vpaddw: nADDH, vpmulld: nMUL,
	vpand: nAND, vpor: nORR, vpxor: nEOR,
	vpminsd: nSMIN, vpmaxsd: nSMAX, vpminud: nUMIN, vpmaxud: nUMAX,
	vpcmpeqd: nCMEQ, vpcmpgtd: nCMGT, vpcmpeqq: nCMEQD, vpcmpgtq: nCMGTD,
	vunpcklps: nZIP1, vunpckhps: nZIP2, vpunpckldq: nZIP1, vpunpckhdq: nZIP2, vunpcklpd: nZIP1D, vunpckhpd: nZIP2D,
	vpunpcklwd: nZIP1H, vpunpckhwd: nZIP2H,
}

// neon1 are those with one operand.
var neon1 = map[vop]uint32{vsqrtps: nFSQRT, vpabsd: nABS, vcvtdq2ps: nSCVTF, vcvttps2dq: nFCVTZS}

// toPairs are those that widen 128 bits: of the lower half, and of the upper.
var toPairs = map[vop][2]uint32{
	vcvtps2pd: {nFCVTLS, nFCVTLS2}, vcvtph2ps: {nFCVTL, nFCVTL2}, vpmovzxwd: {nUXTL, nUXTL2},
	vpmovzxdq: {nUXTLS, nUXTLS2}, vpmovsxdq: {nSXTLS, nSXTLS2},
}

// fromPairs are those that narrow to 128 bits, after an instruction of their own.
var fromPairs = map[vop][3]uint32{
	vcvtpd2ps: {0, nFCVTNS, nFCVTNS2}, vcvtps2ph: {0, nFCVTN, nFCVTN2}, vcvttpd2dq: {nFCVTZSD, nXTNS, nXTNS2},
}

// vector emits what an AVX2 instruction computes.
func (a *aarch64) vector(o vop, w width, reg, vvvv int, rm any, imm []byte) {
	if w == w128 {
		a.quad(o, 2*reg, 2*vvvv, rm)
		return
	}
	d, n := pairOf(reg), pairOf(vvvv)
	if o == vpand && d == n && a.clear(d, rm) {
		return
	}
	if op, ok := neon3[o]; ok {
		a.each(op, d, n, a.operand(rm))
		return
	}
	if op, ok := neon1[o]; ok {
		a.each1(op, d, a.operand(rm))
		return
	}
	if ops, ok := toPairs[o]; ok {
		s := vMem
		if m, ok := rm.(mem); ok {
			a.loadQ(s, m)
		} else {
			s = 2 * rm.(int)
		}
		a.vv(ops[1], d[1], s) // before d[0], which may be s
		a.vv(ops[0], d[0], s)
		return
	}
	if ops, ok := fromPairs[o]; ok {
		var s pair
		if o == vcvtps2ph { // store form
			s, d = d, pairOf(rm.(int))
		} else {
			s = a.operand(rm)
		}
		if ops[0] != 0 {
			a.each1(ops[0], temporaries, s)
			s = temporaries
		}
		a.vv(ops[1], d[0], s[0])
		a.vv(ops[2], d[0], s[1])
		return
	}
	a.otherVector(o, d, n, rm, imm)
}

// clear ands with a constant that lacks bits of one byte of each word, or returns false.
func (a *aarch64) clear(d pair, rm any) bool {
	m, ok := rm.(mem)
	if !ok || m.base != ripBase || m.disp != 0 {
		return false
	}
	c := a.contentOf(m)
	if len(c) != 32 || c != strings.Repeat(c[:4], 8) {
		return false
	}
	v := ^binary.LittleEndian.Uint32([]byte(c))
	for shift := range uint32(4) {
		if v&^(0xff<<(8*shift)) == 0 {
			a.modified(nBICI|shift<<13, d[0], byte(v>>(8*shift)))
			a.modified(nBICI|shift<<13, d[1], byte(v>>(8*shift)))
			return true
		}
	}
	return false
}

// otherVector are the instructions of amd64 that take more than one of NEON's, or differ by their immediate.
func (a *aarch64) otherVector(o vop, d, n pair, rm any, imm []byte) {
	switch o {
	case vmovups, vmovupd:
		if m, ok := rm.(mem); ok && m.base != ripBase {
			a.loadPair(d, m)
			return
		}
		a.copyPair(d, a.operandTo(rm, d))
	case vstoreups:
		if m, ok := rm.(mem); ok {
			a.storePair(m, d)
			return
		}
		a.copyPair(pairOf(rm.(int)), d)
	case vbroadcast, vbroadcastd, vbroadcastq:
		op := uint32(nLD1R)
		if o == vbroadcastq {
			op = nLD1RD
		}
		base, _ := a.address(rm.(mem), func(d int) bool { return d == 0 })
		a.w(op | base<<5 | uint32(d[0]))
		a.vvv(nORR, d[1], d[0], d[0])
	case vpandn:
		a.each(nBIC, d, a.operand(rm), n)
	case vfmadd231ps:
		a.each(nFMLA, d, n, a.operand(rm))
	case vfmadd213ps: // d·n + m
		m := a.operand(rm)
		a.copyPair(temporaries, m)
		a.each(nFMLA, temporaries, d, n)
		a.copyPair(d, temporaries)
	case vminps, vmaxps, vminpd, vmaxpd:
		a.second(o, d, n, a.operand(rm))
	case vpsllvd, vpsrlvd, vpsravd, vpsllvq, vpsrlvq:
		a.shiftBy(o, d, n, a.operand(rm))
	case vroundps:
		a.each1([...]uint32{nFRINTN, nFRINTM, nFRINTP, nFRINTZ}[imm[0]-8], d, a.operand(rm))
	case vroundpd: // towards -∞
		a.each1(nFRINTMD, d, a.operand(rm))
	case vcmpps, vcmppd:
		a.compareFloats(o == vcmppd, d, n, a.operand(rm), imm[0])
	case vblendvps:
		a.blend(d, n, a.operand(rm), pairOf(int(imm[0]>>4)))
	case vinsertX:
		s := a.operand(rm)
		a.vvv(nORR, d[1], s[0], s[0])
		if d[0] != n[0] {
			a.vvv(nORR, d[0], n[0], n[0])
		}
	case vpermilpsV: // words of each four, by the low two bits
		m := a.operand(rm)
		a.byteIndices(temporaries, m)
		for i := range 2 {
			a.vvv(nTBL1, d[i], n[i], temporaries[i])
		}
	default:
		panic(fmt.Sprintf("no form of %+v on aarch64", o))
	}
}

// operandTo is operand, but for constants loads to t.
func (a *aarch64) operandTo(rm any, t pair) pair {
	m, ok := rm.(mem)
	if !ok {
		return pairOf(rm.(int))
	}
	if c := a.contentOf(m); len(c) == 32 && c[:16] == c[16:] && m.disp == 0 {
		a.repeated(t[0], c, m)
		return pair{t[0], t[0]}
	}
	a.loadPair(t, m)
	return t
}

// byteIndices turns words into indices of their bytes: of the low two bits' word.
func (a *aarch64) byteIndices(d, words pair) {
	for i := range 2 {
		a.moveByte(d[i], 3)
		a.vvv(nAND, d[i], d[i], words[i])
	}
	a.splat(vMem, 0x04040404)
	a.splat(vMem+1, 0x03020100)
	for i := range 2 {
		a.vvv(nMUL, d[i], d[i], vMem)
		a.vvv(nADD, d[i], d[i], vMem+1)
	}
}

// second is min or max as amd64 has it: the second operand, unless the first is less, or greater.
func (a *aarch64) second(o vop, d, n, m pair) {
	op := map[vop]uint32{vminps: nFCMGT, vmaxps: nFCMGT, vminpd: nFCMGTD, vmaxpd: nFCMGTD}[o]
	for i := range 2 {
		greater, less := n[i], m[i]
		if o == vminps || o == vminpd {
			greater, less = less, greater
		}
		a.vvv(op, vTemp, greater, less)
		a.choose(d[i], m[i], n[i], vTemp)
	}
}

// shiftBy shifts each word by another's number of bits. NEON takes it from the low byte, and shifts to the right by a
// negative one; beyond the width both give zeros, or the sign.
func (a *aarch64) shiftBy(o vop, d, n, m pair) {
	const count, most = vTemp, vTemp + 1
	a.moveByte(most, 64)
	for i := range 2 {
		op := uint32(nUSHL)
		switch o {
		case vpsllvq, vpsrlvq: // counts come from words
			a.vvv(nUMIN, count, m[i], most)
			op = nUSHLD
			if o == vpsrlvq {
				a.vv(nNEGD, count, count)
			}
		default:
			a.vvv(nUMIN, count, m[i], most)
			if o != vpsllvd {
				a.vv(nNEG, count, count)
			}
			if o == vpsravd {
				op = nSSHL
			}
		}
		a.vvv(op, d[i], n[i], count)
	}
}

// compareFloats sets the lanes in which a predicate of amd64's cmpps holds.
func (a *aarch64) compareFloats(double bool, d, n, m pair, imm byte) {
	size := uint32(0)
	if double {
		size = nFCMEQD - nFCMEQ
	}
	for i := range 2 {
		x, y := n[i], m[i]
		ordered := func(t int) { // neither is NaN
			a.vvv(nFCMEQ|size, t, x, x)
			if x != y {
				a.vvv(nFCMEQ|size, vTemp+1, y, y)
				a.vvv(nAND, t, t, vTemp+1)
			}
		}
		switch imm {
		case 0x00: // eq
			a.vvv(nFCMEQ|size, d[i], x, y)
		case 0x04: // not eq
			a.vvv(nFCMEQ|size, d[i], x, y)
			a.vv(nNOT, d[i], d[i])
		case 0x0c: // less or greater
			a.vvv(nFCMGT|size, vTemp, x, y)
			a.vvv(nFCMGT|size, vTemp+1, y, x)
			a.vvv(nORR, d[i], vTemp, vTemp+1)
		case 0x11:
			a.vvv(nFCMGT|size, d[i], y, x)
		case 0x12:
			a.vvv(nFCMGE|size, d[i], y, x)
		case 0x1e:
			a.vvv(nFCMGT|size, d[i], x, y)
		case 0x1d:
			a.vvv(nFCMGE|size, d[i], x, y)
		case 0x03, 0x07:
			ordered(vTemp)
			if imm == 3 {
				a.vv(nNOT, d[i], vTemp)
			} else {
				a.vvv(nORR, d[i], vTemp, vTemp)
			}
		default:
			panic(fmt.Sprintf("no predicate %#x", imm))
		}
	}
}

// blend is n, but m where the mask is set.
func (a *aarch64) blend(d, n, m, mask pair) {
	for i := range 2 {
		a.choose(d[i], n[i], m[i], mask[i])
	}
}

// choose is blend of single registers.
func (a *aarch64) choose(d, n, m, mask int) {
	switch d {
	case n:
		a.vvv(nBIT, d, m, mask)
	case m:
		a.vvv(nBIF, d, n, mask)
	case mask:
		a.vvv(nBSL, d, m, n)
	default:
		a.vvv(nORR, d, n, n)
		a.vvv(nBIT, d, m, mask)
	}
}

// quad emits an instruction of 128 bits, on the first registers of pairs.
func (a *aarch64) quad(o vop, d, n int, rm any) {
	m, inMemory := rm.(mem)
	switch {
	case o == vmovups && inMemory:
		a.loadQ(d, m)
	case o == vstoreups && inMemory:
		a.storeQ(m, d)
	case o == vmovups:
		s := 2 * rm.(int)
		a.vvv(nORR, d, s, s)
	default:
		a.vvv(neon3[o], d, n, 2*rm.(int))
	}
}

// shiftI shifts by a constant: of words, doublewords or halfwords by the opcode, and by ext to the left (6), to the
// right (2), or with the sign (4).
func (a *aarch64) shiftI(o vop, ext, dst, src int, n byte) {
	size := map[byte]int{0x71: 16, 0x72: 32, 0x73: 64}[o.op]
	d, s := pairOf(dst), pairOf(src)
	op, count := uint32(0x4f005400), size+int(n) // shl
	switch {
	case int(n) >= size && ext != 4: // nothing is left
		for _, v := range d {
			a.moveByte(v, 0)
		}
		return
	case ext != 6 && n == 0:
		a.copyPair(d, s)
		return
	case ext != 6:
		op, count = 0x6f000400, 2*size-min(int(n), size) // ushr
		if ext == 4 {
			op = 0x4f000400 // sshr
		}
	}
	for i := range 2 {
		a.vv(op|uint32(count)<<16, d[i], s[i])
	}
}
