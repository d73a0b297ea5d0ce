package ir

import (
	"math"
	"math/big"
	"sync"
)

var (
	sinSeries  = every(invFactorials, 1, 2, 9, true)
	cosSeries  = every(invFactorials, 0, 2, 10, true)
	atanSeries = series(12, func(i int) float64 { return float64(1-2*(i%2)) / float64(2*i+1) })
)

// π/2 in three parts; the first two have so many trailing zeros that their products with integers below 2^20 are exact
// (Cody and Waite's reduction).
const (
	halfPi1 = 1.57079632673412561417e+00
	halfPi2 = 6.07710050630396597660e-11
	halfPi3 = 2.02226624879595063154e-21
)

// trigReduce returns x = k·π/2 + r + lo with |r| ≤ π/4 and k modulo 4.
func trigReduce(x float64) (k int, r, lo float64) {
	if math.Abs(x) < 1<<19 {
		kf := math.Floor(float64(x*(2/math.Pi)) + 0.5)
		a := x - float64(kf*halfPi1)
		w := float64(kf * halfPi2)
		r = a - w
		lo = ((a - r) - w) - float64(kf*halfPi3)
		return int(int64(kf) & 3), r, lo
	}
	return trigReduceBig(x)
}

// halfPiBig is π/2 to more bits than the largest float64 has integer bits: Machin's formula in fixed point.
var halfPiBig = sync.OnceValue(func() *big.Float {
	const bits = 1400
	unit := new(big.Int).Lsh(big.NewInt(1), bits)
	arctanInverse := func(q int64) *big.Int {
		sum, term := new(big.Int), new(big.Int).Div(unit, big.NewInt(q))
		for n := int64(1); term.Sign() != 0; n += 2 {
			t := new(big.Int).Div(term, big.NewInt(n))
			if n%4 == 1 {
				sum.Add(sum, t)
			} else {
				sum.Sub(sum, t)
			}
			term.Div(term, big.NewInt(q*q))
		}
		return sum
	}
	quarter := new(big.Int).Mul(arctanInverse(5), big.NewInt(4))
	quarter.Sub(quarter, arctanInverse(239))
	f := new(big.Float).SetPrec(bits).SetInt(quarter)
	return f.SetMantExp(f, 1-bits)
})

func trigReduceBig(x float64) (k int, r, lo float64) {
	prec := uint(1400)
	q := new(big.Float).SetPrec(prec).SetFloat64(x)
	q.Quo(q, halfPiBig())
	half := big.NewFloat(math.Copysign(0.5, x))
	n, _ := new(big.Float).SetPrec(prec).Add(q, half).Int(nil) // toward zero, so this is the nearest
	q.Sub(q, new(big.Float).SetPrec(prec).SetInt(n))
	q.Mul(q, halfPiBig())
	r, _ = q.Float64()
	lo, _ = q.Sub(q, new(big.Float).SetFloat64(r)).Float64()
	quadrant := new(big.Int).And(n, big.NewInt(3)) // two's complement for negative n
	return int(quadrant.Int64()), r, lo
}

func sinCosKernel(r, lo float64) (s, c float64) {
	sq := float64(r * r)
	s = float64(r * horner(sq, sinSeries))
	c = horner(sq, cosSeries)
	return s + float64(lo*c), c - float64(lo*s)
}

// sinCos returns sine and cosine.
func sinCos(x float64) (float64, float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return math.NaN(), math.NaN()
	}
	if x == 0 {
		return x, 1
	}
	k, r, lo := trigReduce(x)
	s, c := sinCosKernel(r, lo)
	switch k {
	case 1:
		return c, -s
	case 2:
		return -s, -c
	case 3:
		return -c, s
	}
	return s, c
}

func sin(x float64) float64 { s, _ := sinCos(x); return s }

func cos(x float64) float64 { _, c := sinCos(x); return c }

func tan(x float64) float64 { s, c := sinCos(x); return s / c }

// atan reduces |x| ≤ 1 by atan(x) = atan(c) + atan((x-c)/(1+xc)) with c a multiple of ¼.
func atan(x float64) float64 {
	atanQuarters := [5]float64{0, 0.24497866312686415417, 0.46364760900080611621, 0.64350110879328438680, math.Pi / 4}
	a := math.Abs(x)
	if math.IsNaN(x) {
		return x
	}
	if a > 1 {
		return math.Copysign(math.Pi/2-atan(1/a), x)
	}
	i := int(float64(a*4) + 0.5)
	c := float64(float64(i) / 4)
	t := (a - c) / (1 + float64(a*c))
	return math.Copysign(atanQuarters[i]+float64(t*horner(t*t, atanSeries)), x)
}

func asin(x float64) float64 {
	if math.Abs(x) == 1 {
		return math.Copysign(math.Pi/2, x)
	}
	return atan(x / math.Sqrt((1-x)*(1+x)))
}

func acos(x float64) float64 {
	if x == -1 {
		return math.Pi
	}
	return 2 * atan(math.Sqrt((1-x)/(1+x)))
}
