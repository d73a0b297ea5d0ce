package jit

import "math"

func floatForms(t map[string]translator) {
	for op, o := range map[string]vop{"add.rn.f32": vaddps, "sub.rn.f32": vsubps, "mul.rn.f32": vmulps, "div.rn.f32": vdivps} {
		t[op] = floatBinary(o)
	}
	t["fma.rn.f32"] = float(fma)
	for op, o := range map[string]vop{"add.rn.f32x2": vaddps, "sub.rn.f32x2": vsubps, "mul.rn.f32x2": vmulps} {
		t[op] = pairs(func(e *emitter, in *Inst, c int) { e.v(o, 0, 0, e.q(in.B, c)) })
	}
	t["fma.rn.f32x2"] = pairs(func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 1, 0, e.q(in.B, c))
		e.v(vfmadd213ps, 0, 1, e.q(in.C, c))
	})
	t["sqrt.rn.f32"] = floatUnary(func(e *emitter, v int) { e.v(vsqrtps, v, 0, v) })
	t["rcp.rn.f32"] = floatUnary(func(e *emitter, v int) {
		e.splat32(1, math.Float32bits(1))
		e.v(vdivps, v, 1, v)
	})
	t["abs.f32"] = unary(func(e *emitter, v int) { e.splat32(1, 0x7fffffff); e.v(vpand, v, v, 1) })
	t["neg.f32"] = unary(func(e *emitter, v int) { e.splat32(1, 0x80000000); e.v(vpxor, v, v, 1) })
	t["copysign.f32"] = over(r, copysign)
	t["max.f32"] = extreme(vmaxps, vpand, false)
	t["min.f32"] = extreme(vminps, vpor, false)
	t["min.NaN.f32"] = extreme(vminps, vpor, true)
	t["max.NaN.f32"] = extreme(vmaxps, vpand, true)

	// Rounding to an integer: the immediates of vroundps.
	for op, imm := range map[string]byte{"cvt.rni.f32.f32": 8, "cvt.rmi.f32.f32": 9, "cvt.rpi.f32.f32": 10, "cvt.rzi.f32.f32": 11} {
		t[op] = floatUnary(func(e *emitter, v int) { e.vi(vroundps, v, 0, v, imm) })
	}
	t["cvt.rzi.s32.f32"] = unary(toInt)
	t["cvt.rzi.s16.f32"] = unary(func(e *emitter, v int) {
		toInt(e, v)
		e.v(vpminsd, v, v, e.all32(math.MaxInt16))
		e.v(vpmaxsd, v, v, e.all32(1<<32-1<<15))
		e.v(vpand, v, v, e.all32(0xffff))
	})
	t["cvt.sat.f32.f32"] = unary(func(e *emitter, v int) { // of a NaN, and of zeros, vmaxps gives the second operand
		e.v(vpxor, 1, 1, 1)
		e.v(vmaxps, v, v, 1)
		e.v(vminps, v, v, e.all32(math.Float32bits(1)))
	})
	t["cvt.rn.f32.s32"] = unary(func(e *emitter, v int) { e.v(vcvtdq2ps, v, 0, v) })
	t["cvt.rn.f32.s64"] = over(r, fromLong)
	t["cvt.f32.f16"] = unary(func(e *emitter, v int) { e.halves(v, v, false, false); e.canon(v, 1) })
	t["cvt.f32.bf16"] = unary(func(e *emitter, v int) { e.shiftI(vpslldI, 6, v, v, 16) })
	t["cvt.rn.f16.f32"] = unary(func(e *emitter, v int) { e.narrow(v) })
	t["cvt.rn.f16x2.f32"] = pack((*emitter).narrow)
	t["cvt.rn.bf16.f32"] = unary(func(e *emitter, v int) { e.narrowBF(v) })
	t["cvt.rn.bf16x2.f32"] = pack((*emitter).narrowBF)

	t["ex2.approx.f32"] = inDouble((*emitter).exp2)
}

// pairs computes on the two f32 of each lane of 64 bits: body goes on from the first operand in register 0.
func pairs(body func(e *emitter, in *Inst, c int)) translator {
	return over(q, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 0, 0, e.q(in.A, c))
		body(e, in, c)
		e.canon(0, 2)
	})
}

func floatBinary(o vop) translator {
	return float(func(e *emitter, in *Inst, c int) {
		a := e.register(0, e.loose(in.A, c))
		e.v(o, e.out, a, e.loose(in.B, c))
	})
}

// floatUnary computes in place on a vector; register 1 is free.
func floatUnary(f func(e *emitter, v int)) translator {
	return float(func(e *emitter, in *Inst, c int) {
		e.v(vmovups, e.out, 0, e.loose(in.A, c))
		f(e, e.out)
	})
}

func fma(e *emitter, in *Inst, c int) {
	a, b := e.register(1, e.loose(in.A, c)), e.loose(in.B, c)
	if own := e.run.find(in.C); e.run.active && in.D == in.C && own >= 0 {
		e.out = own // the sum stays where it is
	} else {
		e.v(vmovups, e.out, 0, e.loose(in.C, c))
	}
	e.v(vfmadd231ps, e.out, a, b)
}

// copysign d, a, b is b with the sign of a.
func copysign(e *emitter, in *Inst, c int) {
	sign := e.all32(0x80000000)
	e.v(vmovups, 0, 0, e.exact(in.A, c))
	e.v(vpand, 0, 0, sign)
	e.v(vmovups, 1, 0, sign)
	e.v(vpandn, 1, 1, e.exact(in.B, c))
	e.v(vpor, 0, 0, 1)
}

// extreme is min or max. The two orders of operands differ if both are zero; join picks the sign then. With nan set a
// NaN wins, otherwise the other operand does.
func extreme(o, join vop, nan bool) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		const out, a, b, t = 0, 1, 2, 3
		e.v(vmovups, a, 0, e.loose(in.A, c))
		e.v(vmovups, b, 0, e.loose(in.B, c))
		if e.arm != nil {
			e.arm.extreme(o == vmaxps, nan, pairOf(out), pairOf(a), pairOf(b), pairOf(t))
			return
		}
		e.v(o, out, a, b)
		e.v(o, t, b, a)
		e.v(join, out, out, t)
		if nan {
			e.unordered(1, t, a, b)
			e.pick(1, t, out, e.vNaN)
			return
		}
		e.unordered(1, t, a, a)
		e.pick(1, t, out, b)
		e.unordered(1, t, b, b)
		e.pick(1, t, out, a)
		e.canon(out, t)
	})
}

// toInt converts to s32, saturating; NaN becomes 0. The instruction gives 0x80000000 for whatever does not fit.
func toInt(e *emitter, v int) {
	if e.arm != nil { // saturates as PTX does
		e.v(vcvttps2dq, v, 0, v)
		return
	}
	e.v(vcvttps2dq, 1, 0, v)
	if e.wide {
		e.splat32(2, math.Float32bits(1<<31))
		e.compare(vcmpps, 1, v, 2, 0x1d) // v ≥ 2^31
		e.splat32(2, 0x7fffffff)
		e.vk(vmovups, 1, 0, 2, 1)
		e.compare(vcmpps, 1, v, v, 3)
		e.v(vpxor, 2, 2, 2)
		e.vk(vmovups, 1, 0, 2, 1)
		e.v(vmovups, v, 0, 1)
		return
	}
	e.splat32(2, math.Float32bits(1<<31))
	e.vi(vcmpps, 3, v, 2, 0x1d)
	e.v(vpxor, 1, 1, 3) // 0x80000000 to 0x7fffffff
	e.vi(vcmpps, 3, v, v, 7)
	e.v(vpand, v, 1, 3)
}

// fromLong is s64 to f32, rounded once.
func fromLong(e *emitter, in *Inst, c int) {
	if e.wide {
		for h := range 2 {
			e.v(vmovups, 1, 0, e.q(in.A, 2*c+h))
			e.v(vcvtqq2ps, 2*h, 0, 1)
		}
		e.joinHalves(0, 2)
		return
	}
	// Through scratch memory: there is no instruction for a vector.
	s := e.scratch()
	if e.arm != nil {
		e.fromLongNEON(in, c, s)
		return
	}
	e.v(vpxor, 0, 0, 0)
	for l := range 8 {
		e.vw(vcvtsi2ss, w128, 1, 0, at(rQ, int(in.A)*256-e.biasQ+8*(8*c+l)), nil)
		e.vw(vmovss, w128, 1, 0, s.plus(4*l), nil)
	}
	e.v(vmovups, 0, 0, s)
}

// joinHalves puts the lower half of vector hi above that of lo.
func (e *emitter) joinHalves(lo, hi int) {
	if e.wide {
		e.vi(vinsertY, lo, lo, hi, 1)
	} else {
		e.vi(vinsertX, lo, lo, hi, 1)
	}
}

// narrow is f32 to f16, in place; registers 1 and 6 and k1 are clobbered.
func (e *emitter) narrow(v int) {
	e.unordered(1, 1, v, v)
	e.vi(vcvtps2ph, v, 0, v, 0)
	e.v(vpmovzxwd, v, 0, v)
	e.splat32(6, nan16)
	e.pick(1, 1, v, 6)
}

// narrowBF is f32 to bf16: (u + 0x7fff + the bit above) >> 16.
func (e *emitter) narrowBF(v int) {
	e.unordered(1, 7, v, v)
	e.shiftI(vpslldI, 6, 1, v, 15)
	e.shiftI(vpsrldI, 2, 1, 1, 31)
	e.v(vpaddd, 1, 1, e.all32(0x7fff))
	e.v(vpaddd, v, v, 1)
	e.shiftI(vpsrldI, 2, v, v, 16)
	e.splat32(6, nan16)
	e.pick(1, 7, v, 6)
}

// pack converts two sources and puts the first into the upper half.
func pack(narrow func(e *emitter, v int)) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 0, 0, e.exact(in.A, c))
		narrow(e, 0)
		e.shiftI(vpslldI, 6, 4, 0, 16)
		e.v(vmovups, 0, 0, e.exact(in.B, c))
		narrow(e, 0)
		e.v(vpor, 0, 0, 4)
	})
}

// inDouble converts the operand to double precision, computes there on several vectors in place, and rounds once. The
// vectors are in registers that are multiples of 4; the three registers after each are free.
func inDouble(f func(e *emitter, xs []int)) translator {
	return whole(func(e *emitter, in *Inst) {
		e.masks()
		together := 1 // chunks: all of them, if there are registers for it
		if e.wide {
			together = e.chunks()
		}
		for first := 0; first < e.chunks(); first += together {
			var xs []int
			for h := range 2 * together {
				xs = append(xs, 4*h)
				e.v(vcvtps2pd, 4*h, 0, e.half(in.A, 2*first+h))
			}
			f(e, xs)
			for _, x := range xs {
				e.v(vcvtpd2ps, x, 0, x)
			}
			for c := range together {
				x := xs[2*c]
				e.joinHalves(x, xs[2*c+1])
				e.canon(x, x+1)
				e.write(r, in.D, first+c, x, 13)
			}
		}
	})
}

// exp2 is 2^x, term by term as the interpreter computes it. Beyond ±1000 f32 overflows or vanishes alike.
func (e *emitter) exp2(xs []int) {
	const constant = 3
	each := func(c float64, f func(x int)) {
		e.splat64(constant, math.Float64bits(c))
		for _, x := range xs {
			f(x)
		}
	}
	each(1000, func(x int) { e.v(vminpd, x, constant, x) }) // a NaN in the second operand stays
	each(-1000, func(x int) { e.v(vmaxpd, x, constant, x) })
	each(0.5, func(x int) {
		e.v(vaddpd, x+1, x, constant)
		e.vi(vroundpd, x+1, 0, x+1, 9) // n
		e.v(vsubpd, x, x, x+1)
	})
	each(math.Ln2, func(x int) { e.v(vmulpd, x, x, constant) })
	each(1.0/87178291200, func(x int) { e.v(vmovups, x+2, 0, constant) })
	for _, c := range [...]float64{1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1} {
		each(c, func(x int) {
			e.v(vmulpd, x+2, x+2, x)
			e.v(vaddpd, x+2, x+2, constant)
		})
	}
	e.splat64(constant, 1023)
	for _, x := range xs {
		e.v(vcvttpd2dq, x+1, 0, x+1)
		e.v(vpmovsxdq, x+1, 0, x+1)
		e.v(vpaddq, x+1, x+1, constant)
		e.shiftI(vpsllqI, 6, x+1, x+1, 52)
		e.v(vmulpd, x, x+2, x+1)
	}
}
