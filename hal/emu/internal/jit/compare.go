//go:build linux && amd64

package jit

import "strings"

// compareForms are setp. Integers compare as eq ne lt le gt ge; floats ordered, but neu and nan.
func compareForms(t map[string]translator) {
	for _, how := range []string{"eq", "ne", "lt", "le", "gt", "ge"} {
		for _, typ := range []string{"u32", "s32"} {
			t["setp."+how+"."+typ] = compareInt(how, typ[0] == 's')
		}
		for _, typ := range []string{"u64", "s64"} {
			t["setp."+how+"."+typ] = compareQ(how, typ[0] == 's')
		}
	}
	// The predicates of vcmpps.
	for how, imm := range map[string]byte{"eq": 0, "ne": 0x0c, "lt": 0x11, "le": 0x12, "gt": 0x1e, "ge": 0x1d, "neu": 4, "nan": 3} {
		t["setp."+how+".f32"] = compareFloat(imm, false)
		t["setp."+how+".f64"] = compareFloat(imm, true)
	}
}

// integerPredicates are the immediates of vpcmpd.
var integerPredicates = map[string]byte{"eq": 0, "lt": 1, "le": 2, "ne": 4, "ge": 5, "gt": 6}

// join collects 32-bit chunks' masks k1, k2 or, of 64-bit chunks, k1…k4 in rax.
func (e *emitter) join(chunks int) {
	if chunks == 4 {
		e.kunpckb(1, 2, 1)
		e.kunpckb(3, 4, 3)
		e.kunpck(1, 3, 1)
	} else {
		e.kunpck(1, 2, 1)
	}
	e.kget(rax, 1)
}

// collect adds the sign bits of vector v, chunk c of n lanes each, to rax (AVX2).
func (e *emitter) collect(o vop, v, c, n int) {
	if c == 0 {
		e.vex(true, o.mp, o.pp, 0, o.op, rax, 0, v, 0)
		return
	}
	e.vex(true, o.mp, o.pp, 0, o.op, rdx, 0, v, 0)
	e.shl32(rdx, byte(n*c))
	e.alu32(aluOr, rax, rdx)
}

func compareInt(how string, signed bool) translator {
	return func(e *emitter, in *Inst) bool {
		if e.wide {
			o := vpcmpud
			if signed {
				o = vpcmpd
			}
			for c := range 2 {
				e.v(vmovups, 0, 0, e.r(in.A, c))
				e.evex(o, w512, 1+c, 0, e.r(in.B, c), mod{}, 1)
				e.b(integerPredicates[how])
			}
			e.join(2)
		} else {
			e.splat32(4, 0x80000000)
			for c := range 4 {
				e.v(vmovups, 0, 0, e.r(in.A, c))
				e.v(vmovups, 1, 0, e.r(in.B, c))
				if !signed {
					e.v(vpxor, 0, 0, 4)
					e.v(vpxor, 1, 1, 4)
				}
				e.compareAVX2(how, vpcmpeqd, vpcmpgtd)
				e.collect(vmovmskps, 0, c, 8)
			}
			e.invert(how)
		}
		e.toP(in.D, rax)
		return true
	}
}

// compareAVX2 compares registers 0 and 1, for ne, le and ge the other way round.
func (e *emitter) compareAVX2(how string, eq, gt vop) {
	switch how {
	case "eq", "ne":
		e.v(eq, 0, 0, 1)
	case "gt", "le":
		e.v(gt, 0, 0, 1)
	default:
		e.v(gt, 0, 1, 0)
	}
}

func (e *emitter) invert(how string) {
	if strings.Contains("ne le ge", how) {
		e.not32(rax)
	}
}

func compareQ(how string, signed bool) translator {
	return func(e *emitter, in *Inst) bool {
		if e.wide {
			o := vpcmpuq
			if signed {
				o = vpcmpq
			}
			for c := range 4 {
				e.v(vmovups, 0, 0, e.q(in.A, c))
				e.evex(o, w512, 1+c, 0, e.q(in.B, c), mod{}, 1)
				e.b(integerPredicates[how])
			}
			e.join(4)
		} else {
			e.splat64(4, 1<<63)
			for c := range 8 {
				e.v(vmovups, 0, 0, e.q(in.A, c))
				e.v(vmovups, 1, 0, e.q(in.B, c))
				if !signed {
					e.v(vpxor, 0, 0, 4)
					e.v(vpxor, 1, 1, 4)
				}
				e.compareAVX2(how, vpcmpeqq, vpcmpgtq)
				e.collect(vmovmskpd, 0, c, 4)
			}
			e.invert(how)
		}
		e.toP(in.D, rax)
		return true
	}
}

func compareFloat(imm byte, double bool) translator {
	return func(e *emitter, in *Inst) bool {
		n, o, row, mask := e.chunks(), vcmpps, e.r, vmovmskps
		if double {
			n, o, row, mask = 2*n, vcmppd, e.q, vmovmskpd
		}
		for c := range n {
			e.v(vmovups, 0, 0, row(in.A, c))
			if e.wide {
				e.evex(o, w512, 1+c, 0, row(in.B, c), mod{}, 1)
				e.b(imm)
				continue
			}
			e.vi(o, 0, 0, row(in.B, c), imm)
			e.collect(mask, 0, c, 32/n)
		}
		if e.wide {
			e.join(n)
		}
		e.toP(in.D, rax)
		return true
	}
}
