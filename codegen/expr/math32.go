package expr

import "math"

// Scalar functions. F32 versions of those that models spend time in (exp, erf, tanh, sigmoid) are written for the
// hardware's f32 units, good to 1–2 ulp; the others compute in F64 and round once. F64 versions (math64.go) are good to
// about 1e-15 relative.

// poly is Σ c[i]·xⁱ by Horner's rule.
func (b *Builder) poly(x *Expr, c ...float64) *Expr {
	p := b.Float(x.Type, c[len(c)-1])
	for i := len(c) - 2; i >= 0; i-- {
		p = b.Fma(p, x, b.Float(x.Type, c[i]))
	}
	return p
}

// Pow2 is 2^n for an S32 n in [-126, 127], F32.
func (b *Builder) Pow2(n *Expr) *Expr {
	return b.Bits(b.Shl(b.Offset(n, 127), b.Int(23)), F32)
}

// Exp is e^x.
func (b *Builder) Exp(x *Expr) *Expr {
	if x.Type == F64 {
		return b.exp64(x)
	}
	// x = (n + f)·ln 2 with |f| ≤ ½; ln 2 in two parts keeps f exact to 2⁻³⁰. 2ⁿ is applied as two factors, so that
	// results below the normal range round once.
	const log2e, log2eHi = math.Log2E, float32(math.Log2E)
	x = b.Min(b.Max(x, b.F32(-105)), b.F32(89))
	n := b.Round(b.Mul(x, b.F32(log2e)))
	f := b.Fma(x, b.F32(float64(log2eHi)), b.Neg(n))
	f = b.Fma(x, b.F32(log2e-float64(log2eHi)), f)
	i := b.Cast(n, S32)
	half := b.Shr(i, b.Int(1))
	r := b.Mul(b.Ex2Approx(f), b.Pow2(half))
	return b.Mul(r, b.Pow2(b.Sub(i, half)))
}

// Sigmoid is 1/(1+e^-x).
func (b *Builder) Sigmoid(x *Expr) *Expr {
	one := b.Float(x.Type, 1)
	return b.Div(one, b.Add(b.Exp(b.Neg(x)), one))
}

// Tanh is the hyperbolic tangent.
func (b *Builder) Tanh(x *Expr) *Expr {
	if x.Type == F64 {
		return b.tanh64(x)
	}
	a := b.Abs(x)
	one := b.F32(1)
	large := b.Sub(one, b.Div(b.F32(2), b.Add(b.Exp(b.Add(a, a)), one)))
	// The continued fraction of tanh (Abramowitz & Stegun 4.5.70) to five levels: 1e-9 relative below 0.6.
	z := b.Mul(x, x)
	small := b.Mul(x, b.Div(b.poly(z, 945, 105, 1), b.poly(z, 945, 420, 15)))
	return b.Select(b.Lt(a, b.F32(0.6)), small, b.CopySign(large, x))
}

// Erf is the error function.
func (b *Builder) Erf(x *Expr) *Expr {
	if x.Type == F64 {
		return b.erf64(x)
	}
	a, z := b.Abs(x), b.Mul(x, x)
	// Below 1 the Maclaurin series of erf(x)/x in x² (Abramowitz & Stegun 7.1.5).
	var c []float64
	fact := 1.0
	for n := range 12 {
		if n > 0 {
			fact *= -float64(n)
		}
		c = append(c, 2/math.SqrtPi/(fact*float64(2*n+1)))
	}
	c[0] -= 1
	small := b.Fma(b.poly(z, c...), x, x)
	// Above it erfc(x) = e^-p(x), p fitted to -log erfc.
	large := b.Sub(b.F32(1), b.Exp(b.Neg(b.poly(a, erfcLog()...))))
	large = b.CopySign(b.Select(b.Lt(b.F32(4), a), b.F32(1), large), x)
	return b.Select(b.Lt(a, b.F32(1)), small, b.Select(b.IsNaN(x), x, large))
}

// erfcLog is a polynomial for -log erfc(x) on [1, 4]: a least-squares fit on Chebyshev nodes, weighted by erfc, so that
// the error of erf is below 3e-8.
func erfcLog() []float64 {
	return []float64{-0.00016539386, 1.12946926, 0.63344142, 0.108173468, -0.0250486853, 0.00414348299, -0.000428617208, 2.0575867e-05}
}

// Log is the natural logarithm.
func (b *Builder) Log(x *Expr) *Expr { return b.wide(x, b.log64) }

// wide computes f in F64.
func (b *Builder) wide(x *Expr, f func(*Expr) *Expr) *Expr { return b.Cast(f(b.Cast(x, F64)), x.Type) }

// Log1p is log(1+x).
func (b *Builder) Log1p(x *Expr) *Expr { return b.wide(x, b.log1p64) }

// Sin is the sine: relative accuracy to |x| < 10⁵, absolute beyond as far as 10⁹.
func (b *Builder) Sin(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr { return b.sinCos64(x, 0) })
}

// Cos is the cosine, with Sin's accuracy.
func (b *Builder) Cos(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr { return b.sinCos64(x, 1) })
}

// Tan is the tangent, with Sin's accuracy.
func (b *Builder) Tan(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr { return b.Div(b.sinCos64(x, 0), b.sinCos64(x, 1)) })
}

// Atan is the arc tangent.
func (b *Builder) Atan(x *Expr) *Expr { return b.wide(x, b.atan64) }

// Asin is the arc sine.
func (b *Builder) Asin(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		one := b.F64(1)
		return b.atan64(b.Div(x, b.Sqrt(b.Mul(b.Sub(one, x), b.Add(one, x)))))
	})
}

// Acos is the arc cosine.
func (b *Builder) Acos(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		one := b.F64(1)
		return b.Mul(b.atan64(b.Sqrt(b.Div(b.Sub(one, x), b.Add(one, x)))), b.F64(2))
	})
}

// Sinh is the hyperbolic sine.
func (b *Builder) Sinh(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		e := b.expm164(b.Abs(x))
		y := b.Mul(b.Add(e, b.Div(e, b.Add(e, b.F64(1)))), b.F64(0.5))
		inf := b.F64(math.Inf(1))
		return b.CopySign(b.Select(b.Eq(e, inf), inf, y), x)
	})
}

// Cosh is the hyperbolic cosine.
func (b *Builder) Cosh(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		e := b.exp64(b.Abs(x))
		return b.Mul(b.Add(e, b.Div(b.F64(1), e)), b.F64(0.5))
	})
}

// Asinh is the inverse hyperbolic sine.
func (b *Builder) Asinh(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		a := b.Abs(x)
		one := b.F64(1)
		z := b.Mul(a, a)
		y := b.log1p64(b.Add(a, b.Div(z, b.Add(one, b.Sqrt(b.Add(z, one))))))
		huge := b.Add(b.log64(a), b.F64(math.Ln2))
		return b.CopySign(b.Select(b.Lt(b.F64(1e100), a), huge, y), x)
	})
}

// Acosh is the inverse hyperbolic cosine.
func (b *Builder) Acosh(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		t := b.Sub(x, b.F64(1))
		y := b.log1p64(b.Add(t, b.Sqrt(b.Add(b.Add(t, t), b.Mul(t, t)))))
		huge := b.Add(b.log64(x), b.F64(math.Ln2))
		return b.Select(b.Lt(b.F64(1e100), x), huge, y)
	})
}

// Atanh is the inverse hyperbolic tangent.
func (b *Builder) Atanh(x *Expr) *Expr {
	return b.wide(x, func(x *Expr) *Expr {
		a := b.Abs(x)
		y := b.Mul(b.log1p64(b.Div(b.Add(a, a), b.Sub(b.F64(1), a))), b.F64(0.5))
		return b.CopySign(y, x)
	})
}

// Pow is x^y of floats of one type. Small constant integer exponents multiply.
func (b *Builder) Pow(x, y *Expr) *Expr {
	if y.Op == OpConst {
		switch y.F {
		case 0:
			return b.Float(x.Type, 1)
		case 1:
			return x
		case 2:
			return b.Mul(x, x)
		case 3:
			return b.Mul(b.Mul(x, x), x)
		case -1:
			return b.Div(b.Float(x.Type, 1), x)
		}
	}
	return b.Cast(b.pow64(b.Cast(x, F64), b.Cast(y, F64)), x.Type)
}

// PowInt is x^n of integers of one type, modulo the type; a negative exponent (if signed) gives the truncated quotient.
func (b *Builder) PowInt(x, n *Expr, signed bool) *Expr {
	t := x.Type
	one, zero := b.ConstInt(t, 1), b.Zero(t)
	p, base := one, x
	bits := 31
	if n.Type == S64 {
		bits = 64
	}
	for i := range bits {
		if n.Op == OpConst && n.I >= 0 && n.I>>uint(i) == 0 {
			break
		}
		odd := b.Ne(b.And(b.ShrU(n, b.Int(i)), b.ConstInt(n.Type, 1)), b.Zero(n.Type))
		p = b.Select(odd, b.Mul(p, base), p)
		base = b.Mul(base, base)
	}
	if !signed {
		return p
	}
	odd := b.Ne(b.And(n, b.ConstInt(n.Type, 1)), b.Zero(n.Type))
	minus := b.ConstInt(t, -1)
	quotient := b.Select(b.Eq(x, one), one, b.Select(b.Eq(x, minus), b.Select(odd, minus, one), zero))
	return b.Select(b.Lt(n, b.Zero(n.Type)), quotient, p)
}

// ModFloat is the remainder of truncated division of floats, exact for quotients below 2⁵³.
func (b *Builder) ModFloat(x, y *Expr) *Expr {
	return b.Cast(b.mod64(b.Cast(x, F64), b.Cast(y, F64)), x.Type)
}
