package jit

import "strings"

// compareForms are setp. Integers compare as eq ne lt le gt ge; floats ordered, but neu and nan.
func compareForms(t map[string]translator) {
	for _, how := range []string{"eq", "ne", "lt", "le", "gt", "ge"} {
		t["setp."+how+".u32"] = compareInt(how, r, vpcmpud, vpcmpgtd, false)
		t["setp."+how+".s32"] = compareInt(how, r, vpcmpd, vpcmpgtd, true)
		t["setp."+how+".u64"] = compareInt(how, q, vpcmpuq, vpcmpgtq, false)
		t["setp."+how+".s64"] = compareInt(how, q, vpcmpq, vpcmpgtq, true)
	}
	// The predicates of vcmpps.
	for how, imm := range map[string]byte{"eq": 0, "ne": 0x0c, "lt": 0x11, "le": 0x12, "gt": 0x1e, "ge": 0x1d, "neu": 4, "nan": 3} {
		t["setp."+how+".f32"] = compareFloat(imm, r, vcmpps)
		t["setp."+how+".f64"] = compareFloat(imm, q, vcmppd)
	}
}

// integerPredicates are the immediates of vpcmpd.
var integerPredicates = map[string]byte{"eq": 0, "lt": 1, "le": 2, "ne": 4, "ge": 5, "gt": 6}

// join collects 32-bit chunks' masks k1, k2 or, of 64-bit chunks, k1…k4 in rax.
func (e *emitter) join(chunks int) {
	if chunks == 4 {
		e.x.kunpckb(1, 2, 1)
		e.x.kunpckb(3, 4, 3)
		e.x.kunpck(1, 3, 1)
	} else {
		e.x.kunpck(1, 2, 1)
	}
	e.x.kget(rax, 1)
}

// collect adds the sign bits of vector v, chunk c of n lanes each, to rax (AVX2).
func (e *emitter) collect(o vop, v, c, n int) {
	if c == 0 {
		e.x.vex(true, o.mp, o.pp, 0, o.op, rax, 0, v, 0)
		return
	}
	e.x.vex(true, o.mp, o.pp, 0, o.op, rdx, 0, v, 0)
	e.shl32(rdx, byte(n*c))
	e.alu32(aluOr, rax, rdx)
}

// comparison compares rows of a file: by o and its predicate imm, or with AVX2 by lanes, which leaves the outcome in
// the sign bits of register 0, inverted if so said.
type comparison struct {
	file     file
	o        vop
	imm      byte
	lanes    func(e *emitter, b mem)
	inverted bool
}

func (f comparison) translate(e *emitter, in *Inst) {
	if e.arm != nil {
		f.onNEON(e, in)
		return
	}
	n, bits := e.chunksOf(f.file), vmovmskps
	if f.file == q {
		bits = vmovmskpd
	}
	for c := range n {
		e.v(vmovups, 0, 0, e.at(f.file, in.A, c))
		b := e.at(f.file, in.B, c)
		if e.wide {
			e.compare(f.o, 1+c, 0, b, f.imm)
			continue
		}
		f.lanes(e, b)
		e.collect(bits, 0, c, 32/n)
	}
	if e.wide {
		e.join(n)
	} else if f.inverted {
		e.not32(rax)
	}
	e.toP(in.D, rax)
}

// inRun compares chunk c in a run. The second chunk writes the whole predicate, as it will be read.
func (f comparison) inRun(e *emitter, in *Inst, c int) {
	a := e.register(0, e.exact(in.A, c))
	e.compare(f.o, 1, a, e.exact(in.B, c), f.imm)
	half := e.p(in.D).plus(2 * c)
	if e.masked {
		e.x.kmovwM(2, half)
		e.x.kandn(2, runningMask+c, 2)
		e.x.kand(1, runningMask+c, 1)
		e.x.kor(1, 1, 2)
	}
	if c == 0 {
		e.x.kputw(half, 1)
		return
	}
	e.x.kmovwM(2, e.p(in.D))
	e.x.kunpck(1, 1, 2)
	e.x.kputd(e.p(in.D), 1)
}

// compareInt compares by vpcmp…; AVX2 has only equal and, of signed integers, greater: ne, le and ge are their
// opposites.
func compareInt(how string, f file, o, greater vop, signed bool) translator {
	return comparison{f, o, integerPredicates[how], func(e *emitter, b mem) {
		e.v(vmovups, 1, 0, b)
		if !signed {
			sign := e.vector64(func(int) uint64 { return 1 << 63 })
			if f == r {
				sign = e.all32(1 << 31)
			}
			e.v(vpxor, 0, 0, sign)
			e.v(vpxor, 1, 1, sign)
		}
		switch how {
		case "eq", "ne":
			e.v(f.equal, 0, 0, 1)
		case "gt", "le":
			e.v(greater, 0, 0, 1)
		default:
			e.v(greater, 0, 1, 0)
		}
	}, strings.Contains("ne le ge", how)}
}

func compareFloat(imm byte, f file, o vop) translator {
	return comparison{f, o, imm, func(e *emitter, b mem) { e.vi(o, 0, 0, b, imm) }, false}
}
