package expr

import "math"

// scale64 is x·2^n for an S32 n in [-1100, 1100], by two factors.
func (b *Builder) scale64(x, n *Expr) *Expr {
	pow := func(n *Expr) *Expr {
		return b.Bits(b.Shl(b.Cast(b.Offset(n, 1023), S64), b.Int(52)), F64)
	}
	half := b.Shr(n, b.Int(1))
	return b.Mul(b.Mul(x, pow(half)), pow(b.Sub(n, half)))
}

// reduceExp splits x = n·ln 2 + r with |r| ≤ ½ ln 2.
func (b *Builder) reduceExp(x *Expr) (n, r *Expr) {
	const hi, lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10 // ln 2 in two parts
	k := b.Round(b.Mul(x, b.F64(math.Log2E)))
	r = b.Fma(k, b.F64(-hi), x)
	r = b.Fma(k, b.F64(-lo), r)
	return b.Cast(k, S32), r
}

// expSeries is (e^r - 1 - r)/r² for |r| ≤ ½ ln 2.
func (b *Builder) expSeries(r *Expr) *Expr {
	c := make([]float64, 13)
	f := 1.0
	for i := range c {
		f *= float64(i + 2)
		c[i] = 1 / f
	}
	return b.poly(r, c...)
}

func (b *Builder) exp64(x *Expr) *Expr {
	x = b.Min(b.Max(x, b.F64(-746)), b.F64(710))
	n, r := b.reduceExp(x)
	p := b.Fma(b.Mul(r, r), b.expSeries(r), r)
	return b.scale64(b.Add(p, b.F64(1)), n)
}

// expm164 is e^x-1 for x ≥ -0.3, exact near 0.
func (b *Builder) expm164(x *Expr) *Expr {
	small := b.Fma(b.Mul(x, x), b.expSeries(x), x)
	return b.Select(b.Lt(x, b.F64(0.34)), small, b.Sub(b.exp64(x), b.F64(1)))
}

func (b *Builder) tanh64(x *Expr) *Expr {
	a := b.Abs(x)
	e := b.expm164(b.Add(a, a))
	y := b.Div(e, b.Add(e, b.F64(2)))
	return b.CopySign(b.Select(b.Lt(b.F64(30), a), b.F64(1), y), x)
}

// atanhSeries is 2·atanh(s) for |s| ≤ 0.172.
func (b *Builder) atanhSeries(s *Expr) *Expr {
	c := make([]float64, 12)
	for i := range c {
		c[i] = 2 / float64(2*i+1)
	}
	c[0] = 0
	z := b.Mul(s, s)
	return b.Fma(b.poly(z, c...), s, b.Add(s, s))
}

func (b *Builder) log64(x *Expr) *Expr {
	// x = m·2^k with m in [√½, √2); numbers below the normal range are scaled up first.
	tiny := b.Lt(x, b.F64(0x1p-1022))
	y := b.Select(tiny, b.Mul(x, b.F64(0x1p54)), x)
	bits := b.Bits(y, S64)
	// Adding the distance from √½ to 1 moves the boundary of the exponent to √½.
	const root = 0x3fe6a09e667f3bcd
	k := b.Shr(b.Sub(bits, b.ConstInt(S64, root)), b.Int(52))
	m := b.Bits(b.Sub(bits, b.Shl(k, b.Int(52))), F64)
	s := b.Div(b.Sub(m, b.F64(1)), b.Add(m, b.F64(1)))
	e := b.Cast(b.Cast(k, S32), F64)
	e = b.Select(tiny, b.Sub(e, b.F64(54)), e)
	const hi, lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	r := b.Fma(e, b.F64(hi), b.Fma(e, b.F64(lo), b.atanhSeries(s)))
	inf := b.F64(math.Inf(1))
	r = b.Select(b.Lt(x, inf), r, x) // +∞ and NaN stay
	r = b.Select(b.Eq(x, b.F64(0)), b.F64(math.Inf(-1)), r)
	return b.Select(b.Lt(x, b.F64(0)), b.F64(math.NaN()), r)
}

// log1p64 corrects log(u), u = 1+x rounded, for what the rounding lost.
func (b *Builder) log1p64(x *Expr) *Expr {
	one := b.F64(1)
	u := b.Add(x, one)
	lost := b.Div(b.Sub(x, b.Sub(u, one)), u)
	y := b.Add(b.log64(u), lost)
	tiny := b.Lt(b.Abs(x), b.F64(1e-17))
	regular := b.And(b.Lt(b.F64(-1), x), b.Lt(x, b.F64(math.Inf(1))))
	return b.Select(tiny, x, b.Select(regular, y, b.log64(u)))
}

// sinCos64 is sin(x + quadrant·π/2).
func (b *Builder) sinCos64(x *Expr, quadrant int64) *Expr {
	// π/2 in three parts of 33 bits (Cody & Waite), so that k times the first two is exact for k < 2²⁰; the fma keeps
	// the rest.
	const p1, p2, p3 = 1.57079632673412561417e+00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
	k := b.Round(b.Mul(x, b.F64(2/math.Pi)))
	r := b.Fma(k, b.F64(-p1), x)
	r = b.Fma(k, b.F64(-p2), r)
	r = b.Fma(k, b.F64(-p3), r)
	z := b.Mul(r, r)
	s, c := make([]float64, 9), make([]float64, 10)
	f := 1.0
	for i := range 20 {
		if i > 0 {
			f *= float64(i)
		}
		sign := float64(1 - i/2%2*2)
		switch {
		case i%2 == 0:
			c[i/2] = sign / f
		case i > 1 && i/2 <= 9:
			s[i/2-1] = sign / f
		}
	}
	sin := b.Fma(b.Mul(b.poly(z, s...), z), r, r)
	cos := b.poly(z, c...)
	q := b.And(b.Offset(b.Cast(k, S32), quadrant), b.Int(3))
	y := b.Select(b.Ne(b.And(q, b.Int(1)), b.Int(0)), cos, sin)
	y = b.Select(b.Lt(b.Int(1), q), b.Neg(y), y)
	// Infinities and NaN give NaN.
	return b.Select(b.Lt(b.Abs(x), b.F64(math.Inf(1))), y, b.F64(math.NaN()))
}

func (b *Builder) atan64(x *Expr) *Expr {
	a := b.Abs(x)
	one := b.F64(1)
	big := b.Lt(one, a)
	t := b.Select(big, b.Div(one, a), a)
	// atan t = π/4 + atan((t-1)/(t+1)) above tan(π/8).
	mid := b.Lt(b.F64(math.Sqrt2-1), t)
	t = b.Select(mid, b.Div(b.Sub(t, one), b.Add(t, one)), t)
	c := make([]float64, 22)
	for i := range c {
		c[i] = float64(1-i%2*2) / float64(2*i+1)
	}
	c[0] = 0
	y := b.Fma(b.poly(b.Mul(t, t), c...), t, t)
	y = b.Select(mid, b.Add(y, b.F64(math.Pi/4)), y)
	y = b.Select(big, b.Sub(b.F64(math.Pi/2), y), y)
	return b.CopySign(y, x)
}

func (b *Builder) erf64(x *Expr) *Expr {
	a := b.Abs(x)
	z := b.Mul(x, x)
	// erf x = 2/√π · e^-x² · Σ 2ⁿ x^(2n+1) / (2n+1)!! (Abramowitz & Stegun 7.1.6): no cancellation.
	c := make([]float64, 50)
	t := 2 / math.SqrtPi
	for i := range c {
		c[i] = t
		t *= 2 / float64(2*i+3)
	}
	small := b.Mul(b.Mul(b.poly(z, c...), x), b.exp64(b.Neg(z)))
	// Above 2.5 the continued fraction of erfc (7.1.14), from the bottom: e^-x²/√π · 1/(x+ ½/(x+ 1/(x+ 3/2/(x+ …
	d := a
	for i := 40; i > 0; i-- {
		d = b.Add(a, b.Div(b.F64(float64(i)/2), d))
	}
	erfc := b.Div(b.Mul(b.exp64(b.Neg(z)), b.F64(1/math.SqrtPi)), d)
	large := b.CopySign(b.Select(b.Lt(b.F64(6), a), b.F64(1), b.Sub(b.F64(1), erfc)), x)
	return b.Select(b.Lt(a, b.F64(2.5)), small, b.Select(b.IsNaN(x), x, large))
}

func (b *Builder) pow64(x, y *Expr) *Expr {
	one, zero := b.F64(1), b.F64(0)
	a := b.Abs(x)
	r := b.exp64(b.Mul(y, b.log64(a)))
	r = b.Select(b.Eq(a, one), one, r)
	whole := b.Eq(b.Floor(y), y)
	h := b.Mul(y, b.F64(0.5))
	odd := b.And(whole, b.Ne(b.Floor(h), h))
	neg := b.Lt(b.CopySign(one, x), zero)
	r = b.Select(b.And(odd, neg), b.Neg(r), r)
	// Powers of integers are integers: the error of the logarithm must not show.
	exact := b.And(b.And(whole, b.Le(zero, y)), b.And(b.Eq(b.Floor(x), x), b.Lt(b.Abs(r), b.F64(1e12))))
	r = b.Select(exact, b.Round(r), r)
	finite := b.Lt(a, b.F64(math.Inf(1)))
	bad := b.And(b.And(b.Lt(x, zero), finite), b.Not(whole))
	r = b.Select(bad, b.F64(math.NaN()), r)
	r = b.Select(b.Or(b.IsNaN(x), b.IsNaN(y)), b.F64(math.NaN()), r)
	return b.Select(b.Or(b.Eq(y, zero), b.Eq(x, one)), one, r)
}

// mod64 reduces twice, the second time by what the rounding of a large quotient left.
func (b *Builder) mod64(x, y *Expr) *Expr {
	a, m := b.Abs(x), b.Abs(y)
	r := a
	for range 2 {
		q := b.Trunc(b.Div(r, m))
		r = b.Fma(b.Neg(q), m, r)
		r = b.Select(b.Lt(r, b.F64(0)), b.Add(r, m), r)
		r = b.Select(b.Le(m, r), b.Sub(r, m), r)
	}
	inf := b.F64(math.Inf(1))
	r = b.Select(b.And(b.Lt(a, inf), b.Eq(m, inf)), a, r)
	return b.CopySign(r, x)
}
