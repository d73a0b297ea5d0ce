package jit

// vop is a vector instruction. Most have the same map, prefix and opcode in VEX and EVEX form.
type vop struct {
	mp, pp, op byte
	w          byte // EVEX.W; VEX.W too, which most ignore
	unit       byte // of a compressed displacement: 0 the vector, else bytes; unitHalf half a vector
}

const unitHalf = 255

var (
	vmovups     = vop{1, 0, 0x10, 0, 0}
	vstoreups   = vop{1, 0, 0x11, 0, 0}
	vmovupd     = vop{1, 1, 0x10, 1, 0}
	vaddps      = vop{1, 0, 0x58, 0, 0}
	vmulps      = vop{1, 0, 0x59, 0, 0}
	vsubps      = vop{1, 0, 0x5c, 0, 0}
	vminps      = vop{1, 0, 0x5d, 0, 0}
	vdivps      = vop{1, 0, 0x5e, 0, 0}
	vmaxps      = vop{1, 0, 0x5f, 0, 0}
	vsqrtps     = vop{1, 0, 0x51, 0, 0}
	vaddpd      = vop{1, 1, 0x58, 1, 0}
	vmulpd      = vop{1, 1, 0x59, 1, 0}
	vsubpd      = vop{1, 1, 0x5c, 1, 0}
	vminpd      = vop{1, 1, 0x5d, 1, 0}
	vdivpd      = vop{1, 1, 0x5e, 1, 0}
	vmaxpd      = vop{1, 1, 0x5f, 1, 0}
	vfmadd213ps = vop{2, 1, 0xa8, 0, 0}
	vfmadd231ps = vop{2, 1, 0xb8, 0, 0}
	vpaddd      = vop{1, 1, 0xfe, 0, 0}
	vpsubd      = vop{1, 1, 0xfa, 0, 0}
	vpaddw      = vop{1, 1, 0xfd, 0, 0}
	vpaddq      = vop{1, 1, 0xd4, 1, 0}
	vpsubq      = vop{1, 1, 0xfb, 1, 0}
	vpmulld     = vop{2, 1, 0x40, 0, 0}
	vpmuldq     = vop{2, 1, 0x28, 1, 0}
	vpmuludq    = vop{1, 1, 0xf4, 1, 0}
	vpand       = vop{1, 1, 0xdb, 0, 0}
	vpandn      = vop{1, 1, 0xdf, 0, 0}
	vpor        = vop{1, 1, 0xeb, 0, 0}
	vpxor       = vop{1, 1, 0xef, 0, 0}
	vpsllvd     = vop{2, 1, 0x47, 0, 0}
	vpsrlvd     = vop{2, 1, 0x45, 0, 0}
	vpsravd     = vop{2, 1, 0x46, 0, 0}
	vpsllvq     = vop{2, 1, 0x47, 1, 0}
	vpsrlvq     = vop{2, 1, 0x45, 1, 0}
	vpminsd     = vop{2, 1, 0x39, 0, 0}
	vpmaxsd     = vop{2, 1, 0x3d, 0, 0}
	vpminud     = vop{2, 1, 0x3b, 0, 0}
	vpmaxud     = vop{2, 1, 0x3f, 0, 0}
	vpmaxuq     = vop{2, 1, 0x3f, 1, 0} // EVEX
	vpabsd      = vop{2, 1, 0x1e, 0, 0}
	vpermilps   = vop{3, 1, 0x04, 0, 0} // imm
	vpermilpsV  = vop{2, 1, 0x0c, 0, 0} // by a vector
	vpermps     = vop{2, 1, 0x16, 0, 0} // the indices are the second operand
	vpternlogd  = vop{3, 1, 0x25, 0, 0} // EVEX, imm
	vshufps     = vop{1, 0, 0xc6, 0, 0}
	vunpcklps   = vop{1, 0, 0x14, 0, 0}
	vunpckhps   = vop{1, 0, 0x15, 0, 0}
	vunpcklpd   = vop{1, 1, 0x14, 1, 0}
	vunpckhpd   = vop{1, 1, 0x15, 1, 0}
	vpunpcklwd  = vop{1, 1, 0x61, 0, 0}
	vpunpckhwd  = vop{1, 1, 0x69, 0, 0}
	vpunpckldq  = vop{1, 1, 0x62, 0, 0}
	vpunpckhdq  = vop{1, 1, 0x6a, 0, 0}
	vcvtph2ps   = vop{2, 1, 0x13, 0, unitHalf}
	vcvtps2ph   = vop{3, 1, 0x1d, 0, unitHalf} // imm; store form
	vcvtps2pd   = vop{1, 0, 0x5a, 0, unitHalf}
	vcvtpd2ps   = vop{1, 1, 0x5a, 1, 0}
	vcvtdq2ps   = vop{1, 0, 0x5b, 0, 0}
	vcvttps2dq  = vop{1, 2, 0x5b, 0, 0}
	vcvttpd2dq  = vop{1, 1, 0xe6, 1, 0}
	vcvtqq2ps   = vop{1, 0, 0x5b, 1, 0}        // EVEX
	vcvtsi2ss   = vop{1, 2, 0x2a, 1, 0}        // VEX, of 64 bits
	vmovss      = vop{1, 2, 0x11, 0, 0}        // VEX, store
	vcvtudq2pd  = vop{1, 2, 0x7a, 0, unitHalf} // EVEX
	vcvttpd2udq = vop{1, 0, 0x78, 1, 0}        // EVEX
	vroundps    = vop{3, 1, 0x08, 0, 0}        // imm; EVEX vrndscaleps
	vroundpd    = vop{3, 1, 0x09, 1, 0}
	vpmovdw     = vop{2, 2, 0x33, 0, unitHalf} // EVEX, store form
	vpmovzxwd   = vop{2, 1, 0x33, 0, unitHalf}
	vpmovzxdq   = vop{2, 1, 0x35, 0, unitHalf}
	vpmovsxdq   = vop{2, 1, 0x25, 0, unitHalf}
	vbroadcast  = vop{2, 1, 0x18, 0, 4} // ss
	vbroadcastq = vop{2, 1, 0x59, 1, 8} // vpbroadcastq
	vbroadcastd = vop{2, 1, 0x58, 0, 4} // vpbroadcastd
	vbroadcastX = vop{2, 1, 0x1a, 0, 16}
	vinsertX    = vop{3, 1, 0x38, 0, 16} // vinserti32x4, vinserti128
	vinsertY    = vop{3, 1, 0x3a, 1, 32} // EVEX: vinserti64x4
	vextractY   = vop{3, 1, 0x3b, 1, 32} // EVEX: vextracti64x4, store form
	vshufX      = vop{3, 1, 0x43, 1, 0}  // EVEX: vshufi64x2, imm
	vextractX   = vop{3, 1, 0x39, 0, 16} // store form
	vpermi2d    = vop{2, 1, 0x76, 0, 0}  // EVEX
	vpermq      = vop{3, 1, 0x00, 1, 0}
	vpackusdw   = vop{2, 1, 0x2b, 0, 0}
	vblendvps   = vop{3, 1, 0x4a, 0, 0} // VEX
	vpcmpeqd    = vop{1, 1, 0x76, 0, 0} // VEX
	vpcmpgtd    = vop{1, 1, 0x66, 0, 0} // VEX
	vpcmpeqq    = vop{2, 1, 0x29, 0, 0} // VEX
	vpcmpgtq    = vop{2, 1, 0x37, 0, 0} // VEX
	vmovmskps   = vop{1, 0, 0x50, 0, 0} // VEX
	vmovmskpd   = vop{1, 1, 0x50, 0, 0} // VEX
	vcmpps      = vop{1, 0, 0xc2, 0, 0} // imm; EVEX: into a mask
	vcmppd      = vop{1, 1, 0xc2, 1, 0}
	vpcmpd      = vop{3, 1, 0x1f, 0, 0} // EVEX
	vpcmpud     = vop{3, 1, 0x1e, 0, 0} // EVEX
	vpcmpq      = vop{3, 1, 0x1f, 1, 0} // EVEX
	vpcmpuq     = vop{3, 1, 0x1e, 1, 0} // EVEX
	vptest      = vop{2, 1, 0x17, 0, 0} // VEX
	vptestmd    = vop{2, 1, 0x27, 0, 0} // EVEX
	vptestmq    = vop{2, 1, 0x27, 1, 0} // EVEX
	vgatherdd   = vop{2, 1, 0x90, 0, 4}
	vgatherqd   = vop{2, 1, 0x91, 0, 4}
	vmovq       = vop{1, 2, 0x7e, 1, 8}
	vmovhps     = vop{1, 0, 0x16, 0, 8}
	vmovlpsS    = vop{1, 0, 0x13, 0, 8} // store
	vmovhpsS    = vop{1, 0, 0x17, 0, 8} // store
	vmovd       = vop{1, 1, 0x6e, 0, 4}
	vpslldI     = vop{1, 1, 0x72, 0, 0} // /6
	vpsrldI     = vop{1, 1, 0x72, 0, 0} // /2
	vpsradI     = vop{1, 1, 0x72, 0, 0} // /4
	vpsllqI     = vop{1, 1, 0x73, 1, 0} // /6
	vpsrlqI     = vop{1, 1, 0x73, 1, 0} // /2
	vpsllwI     = vop{1, 1, 0x71, 0, 0} // /6
	vpsrawI     = vop{1, 1, 0x71, 0, 0} // /4
)

// size of a vector.
type width uint8

const (
	w128 width = iota
	w256
	w512
)

func (w width) bytes() int { return 16 << w }

// mod is what EVEX adds: a mask register (0: none), zeroing, broadcast of a memory element.
type mod struct {
	k     int
	zero  bool
	bcast bool
}

// evex encodes an EVEX instruction.
func (a *x86) evex(o vop, w width, reg, vvvv int, rm any, m mod, trailing int) {
	var x, bb byte
	v4 := byte(vvvv >> 4 & 1)
	switch r := rm.(type) {
	case int:
		bb, x = byte(r>>3&1), byte(r>>4&1)
	case mem:
		if r.base >= 0 {
			bb = byte(r.base >> 3 & 1)
		}
		if r.index >= 0 {
			x = byte(r.index >> 3 & 1)
			if r.vector {
				v4 = byte(r.index >> 4 & 1)
			}
		}
	}
	r3, r4 := byte(reg>>3&1), byte(reg>>4&1)
	p3 := byte(w)<<5 | (v4^1)<<3 | byte(m.k)
	n := int(o.unit)
	switch {
	case n == 0:
		n = w.bytes()
	case n == unitHalf:
		n = w.bytes() / 2
	}
	if m.zero {
		p3 |= 0x80
	}
	if m.bcast {
		p3 |= 0x10
		n = 4 << o.w
	}
	a.b(0x62, (r3^1)<<7|(x^1)<<6|(bb^1)<<5|(r4^1)<<4|o.mp, o.w<<7|byte(^vvvv&15)<<3|4|o.pp, p3, o.op)
	a.modrm(reg, rm, trailing, n)
}

// Mask registers (VEX).
func (a *x86) kmovd(k int, r int)    { a.vex(false, 1, 3, 0, 0x92, k, 0, r, 0) }  // from a general register
func (a *x86) kmovdM(k int, m mem)   { a.vex(false, 1, 1, 1, 0x90, k, 0, m, 0) }  // from memory
func (a *x86) kget(r int, k int)     { a.vex(false, 1, 3, 0, 0x93, r, 0, k, 0) }  // kmovd to a general register
func (a *x86) kunpck(d, hi, lo int)  { a.vex(true, 1, 0, 0, 0x4b, d, hi, lo, 0) } // kunpckwd
func (a *x86) kunpckb(d, hi, lo int) { a.vex(true, 1, 1, 0, 0x4b, d, hi, lo, 0) } // kunpckbw
func (a *x86) kputd(m mem, k int)    { a.vex(false, 1, 1, 1, 0x91, k, 0, m, 0) }  // kmovd to memory
func (a *x86) kmovwM(k int, m mem)   { a.vex(false, 1, 0, 0, 0x90, k, 0, m, 0) }  // kmovw from memory
func (a *x86) kputw(m mem, k int)    { a.vex(false, 1, 0, 0, 0x91, k, 0, m, 0) }  // and to it
func (a *x86) kand(d, x, y int)      { a.vex(true, 1, 0, 0, 0x41, d, x, y, 0) }   // kandw
func (a *x86) kandn(d, x, y int)     { a.vex(true, 1, 0, 0, 0x42, d, x, y, 0) }   // kandnw: not x, and y
func (a *x86) kor(d, x, y int)       { a.vex(true, 1, 0, 0, 0x45, d, x, y, 0) }   // korw
func (a *x86) kshiftr(d, s int, n byte) { // kshiftrd
	a.vex(false, 3, 1, 0, 0x31, d, 0, s, 1)
	a.b(n)
}
func (a *x86) kortest(x, y int)  { a.vex(false, 1, 0, 0, 0x98, x, 0, y, 0) } // kortestw
func (a *x86) kortestb(x, y int) { a.vex(false, 1, 1, 0, 0x98, x, 0, y, 0) }
func (a *x86) kones(k int)       { a.vex(true, 1, 0, 0, 0x46, k, k, k, 0) } // kxnorw

// vector emits a vector instruction of any width.
func (a *x86) vector(o vop, w width, reg, vvvv int, rm any, imm []byte) {
	if a.wide {
		a.evex(o, w, reg, vvvv, rm, mod{}, len(imm))
	} else {
		ww := o.w
		if o == vbroadcastq {
			ww = 0
		}
		a.vex(w == w256, o.mp, o.pp, ww, o.op, reg, vvvv, rm, len(imm))
	}
	a.b(imm...)
}

func (a *x86) full() width {
	if a.wide {
		return w512
	}
	return w256
}

func (a *x86) shiftI(o vop, ext, dst, src int, n byte) {
	a.vector(o, a.full(), ext, dst, src, []byte{n})
}

func (a *x86) splat32(reg int, v uint32) { a.vector(vbroadcast, a.full(), reg, 0, a.const32(v), nil) }
func (a *x86) splat64(reg int, v uint64) { a.vector(vbroadcastq, a.full(), reg, 0, a.const64(v), nil) }
