package jit

import "math"

// encoding is a narrow float that conversions round to: nearest even, clipped to the greatest finite value.
type encoding struct {
	bits, mantissa int
	least          int // exponent of the least normal number
	greatest       float32
	nan            uint32 // the code of NaN
}

// narrowForms are the conversions of pairs of narrow floats and the arithmetic of f16.
func narrowForms(t map[string]translator) {
	t["cvt.rn.satfinite.e4m3x2.f32"] = encodePair(encoding{8, 3, -6, 448, 0x7f})
	t["cvt.rn.satfinite.e2m1x2.f32"] = encodePair(encoding{4, 1, 0, 6, 7})
	t["cvt.rn.satfinite.e4m3x2.f16x2"] = encodeHalves(encoding{8, 3, -6, 448, 0x7f})
	t["cvt.rn.satfinite.e5m2x2.f32"] = encodePair(encoding{8, 2, -14, 57344, 0x7f})
	t["cvt.rn.f16x2.e4m3x2"] = decodePair(e4m3)
	t["cvt.rn.f16x2.e5m2x2"] = decodePair(e5m2)
	t["cvt.rn.f16x2.e2m1x2"] = decodePair(nibble)
	// Rounding to f32 first is harmless, since f32 has at least 2p+2 digits for f16's p (Figueroa, "When is double
	// rounding innocuous?", 1995).
	t["mul.rn.f16x2"] = halvesBinary(vmulps, false)
	t["sub.rn.f16x2"] = halvesBinary(vsubps, false)
	t["mul.rn.bf16x2"] = halvesBinary(vmulps, true)
	t["mul.rn.bf16"] = over(r, func(e *emitter, in *Inst, c int) {
		for v, row := range [...]int32{in.A, in.B} {
			e.v(vmovups, v, 0, e.exact(row, c))
			e.halves(v, v, false, true)
		}
		e.v(vmulps, 0, 0, 1)
		e.narrowBF(0)
	})
}

// encodePair puts the code of the first source above that of the second.
func encodePair(f encoding) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 0, 0, e.exact(in.A, c))
		e.encode(f, 0)
		e.shiftI(vpslldI, 6, 4, 0, byte(f.bits))
		e.v(vmovups, 0, 0, e.exact(in.B, c))
		e.encode(f, 0)
		e.v(vpor, 0, 0, 4)
	})
}

// encodeHalves turns a pair of f16 into codes.
func encodeHalves(f encoding) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 8, 0, e.exact(in.A, c))
		e.halves(0, 8, true, false)
		e.encode(f, 0)
		e.shiftI(vpslldI, 6, 4, 0, byte(f.bits))
		e.halves(0, 8, false, false)
		e.encode(f, 0)
		e.v(vpor, 0, 0, 4)
	})
}

// encode turns f32 into codes, in place; registers 1, 3, 5, 6 and 7 are clobbered, or k1 and k2.
func (e *emitter) encode(f encoding, v int) {
	const normal, small, sign, subnormal, nan = 1, 3, 5, 6, 7
	shift := 23 - f.mantissa
	e.shiftI(vpsrldI, 2, sign, v, 31)
	e.shiftI(vpslldI, 6, sign, sign, byte(f.bits-1))
	e.v(vpand, v, v, e.all32(0x7fffffff))
	e.greater(1, nan, v, e.all32(0x7f800000))
	e.v(vpminud, v, v, e.all32(math.Float32bits(f.greatest)))

	// Round to nearest even on the bits as an integer: add half of the last place less one, and one if that place is
	// odd. Change the exponent's bias, too, which below the normal numbers gives anything.
	e.shiftI(vpslldI, 6, normal, v, byte(31-shift))
	e.shiftI(vpsrldI, 2, normal, normal, 31)
	e.v(vpaddd, normal, normal, e.all32(1<<(shift-1)-1-uint32(126+f.least)<<23))
	e.v(vpaddd, normal, normal, v)
	e.shiftI(vpsrldI, 2, normal, normal, byte(shift))

	// Below the normal numbers, the addition of a number whose last place is theirs does the rounding.
	magic := float32(math.Ldexp(1, f.least-f.mantissa+23))
	e.v(vaddps, subnormal, v, e.all32(math.Float32bits(magic)))
	e.v(vpsubd, subnormal, subnormal, e.all32(math.Float32bits(magic)))

	e.v(vmovups, small, 0, e.all32(math.Float32bits(float32(math.Ldexp(1, f.least)))))
	e.greater(2, small, small, v)
	e.pick(2, small, normal, subnormal)
	e.v(vpor, v, normal, sign)
	e.v(vmovups, subnormal, 0, e.all32(f.nan))
	e.pick(1, nan, v, subnormal)
}

// greater compares integers without sign bits: a > b into mask k, or (AVX2) into vector d.
func (e *emitter) greater(k, d, a int, b any) {
	if e.wide {
		e.compare(vpcmpud, k, a, b, 6)
		return
	}
	e.v(vpcmpgtd, d, a, b)
}

// decodePair converts two codes to f16, the lower one into the lower half.
func decodePair(f element) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 8, 0, e.exact(in.A, c))
		e.unpack(f, 8, 2, 9, func(i int) int { return 12 * i }, func(int) {})
		for _, v := range [...]int{0, 12} {
			if f.shrink > 0 {
				e.v(vmulps, v, v, e.all32(math.Float32bits(float32(math.Ldexp(1, f.shrink)))))
			}
			e.narrow(v)
		}
		e.shiftI(vpslldI, 6, 12, 12, 16)
		e.v(vpor, 0, 0, 12)
	})
}

func halvesBinary(o vop, bf bool) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 8, 0, e.exact(in.A, c))
		e.v(vmovups, 9, 0, e.exact(in.B, c))
		for _, high := range []bool{true, false} {
			e.halves(0, 8, high, bf)
			e.halves(1, 9, high, bf)
			e.v(o, 0, 0, 1)
			if bf {
				e.narrowBF(0)
			} else {
				e.narrow(0)
			}
			if high {
				e.shiftI(vpslldI, 6, 4, 0, 16)
			}
		}
		e.v(vpor, 0, 0, 4)
	})
}
