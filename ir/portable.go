package ir

import "math"

// The elementary functions of the reference evaluator. The standard library's use assembly or fused multiply-adds on
// some machines, and recorded results must not depend on the machine: here every product is rounded before it is
// added (only an explicit float64 conversion forbids fusing, an assignment does not). They are exact to a few units
// in the last place.

const (
	ln2Hi = 6.93147180369123816490e-01 // 33 bits, so that k·ln2Hi is exact for every exponent k
	ln2Lo = 1.90821492927058770002e-10
)

// horner evaluates c[0] + c[1]·x + c[2]·x² + ….
func horner(x float64, c []float64) float64 {
	s := 0.0
	for i := len(c) - 1; i >= 0; i-- {
		s = float64(s*x) + c[i]
	}
	return s
}

// series returns n coefficients of a power series.
func series(n int, coefficient func(i int) float64) []float64 {
	c := make([]float64, n)
	for i := range c {
		c[i] = coefficient(i)
	}
	return c
}

// invFactorials are 1/0!, 1/1!, 1/2! …
var invFactorials = func() []float64 {
	f := 1.0
	return series(24, func(i int) float64 {
		if i > 1 {
			f *= float64(i)
		}
		return 1 / f
	})
}()

// every returns c[first], c[first+step], … with alternating signs if asked for.
func every(c []float64, first, step, n int, alternate bool) []float64 {
	return series(n, func(i int) float64 {
		if alternate && i%2 == 1 {
			return -c[first+i*step]
		}
		return c[first+i*step]
	})
}

var (
	expTail   = every(invFactorials, 1, 1, 14, false)                         // (e^r - 1)/r
	logSeries = series(12, func(i int) float64 { return 2 / float64(2*i+1) }) // log((1+f)/(1-f))/f in f²
	erfSeries = func() []float64 {                                            // erf(x)·√π/2·e^{x²}/x in x²
		c := 1.0
		return series(38, func(i int) float64 {
			if i > 0 {
				c = c * 2 / float64(2*i+1)
			}
			return c
		})
	}()
)

// expReduce splits x = k·ln2 + r with |r| ≤ ln2/2.
func expReduce(x float64) (k int, r float64) {
	kf := math.Floor(float64(x*math.Log2E) + 0.5)
	return int(kf), (x - float64(kf*ln2Hi)) - float64(kf*ln2Lo)
}

func exp(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x > 709.8:
		return math.Inf(1)
	case x < -745.2:
		return 0
	}
	k, r := expReduce(x)
	return math.Ldexp(1+float64(r*horner(r, expTail)), k)
}

func expm1(x float64) float64 {
	switch {
	case math.IsNaN(x) || x == 0:
		return x
	case x > 709.8:
		return math.Inf(1)
	case x < -40:
		return -1
	}
	k, r := expReduce(x)
	e := float64(r * horner(r, expTail))
	if k == 0 {
		return e
	}
	p := math.Ldexp(1, k)
	if k > 1000 { // p alone may overflow where the result does not
		return exp(x)
	}
	return float64(p*e) + (p - 1)
}

func log(x float64) float64 {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 1):
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	m, k := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m = float64(m * 2)
		k--
	}
	f := (m - 1) / (m + 1)
	s := float64(f * horner(f*f, logSeries))
	return float64(float64(k)*ln2Hi) + (float64(float64(k)*ln2Lo) + s)
}

func log1p(x float64) float64 {
	u := 1 + x
	if u == 1 || math.IsInf(x, 1) {
		return x
	}
	if x > -0.5 && x < 1e10 {
		// log(u) is off by the rounding of 1+x; the quotient undoes it (Higham, Accuracy and Stability, problem 1.5).
		return float64(log(u) * (x / (u - 1)))
	}
	return log(u)
}

// Exp, Log, Sin, Cos, Atan, Log10 and Pow are the evaluator's, for tables that a compiler computes.
func Exp(x float64) float64    { return exp(x) }
func Log(x float64) float64    { return log(x) }
func Sin(x float64) float64    { return sin(x) }
func Cos(x float64) float64    { return cos(x) }
func Atan(x float64) float64   { return atan(x) }
func Log10(x float64) float64  { return log(x) / math.Ln10 }
func Pow(x, y float64) float64 { return pow(x, y) }

// pow is x^y. Where y is no small integer the result is off by about |y·log x| units in the last place.
func pow(x, y float64) float64 {
	switch {
	case y == 0.5 && x >= 0 && !math.IsInf(x, 0):
		return math.Sqrt(x) + 0 // (-0)^½ is +0
	case x == 0 || x == 1 || x == -1 || y == 0 || math.IsNaN(x) || math.IsNaN(y) || math.IsInf(x, 0) || math.IsInf(y, 0):
		return math.Pow(x, y) // fmavet: exact in these cases
	case y == math.Trunc(y) && math.Abs(y) <= 64:
		p, b := 1.0, x
		for n := int(math.Abs(y)); n > 0; n >>= 1 {
			if n&1 == 1 {
				p *= b
			}
			b *= b
		}
		if y > 0 {
			return float64(p)
		}
		if q := 1 / p; q != 0 && !math.IsInf(q, 0) {
			return q
		}
	case x < 0 && y != math.Trunc(y):
		return math.NaN()
	}
	r := exp(float64(y * log(math.Abs(x))))
	if x < 0 && math.Mod(y, 2) != 0 {
		return -r
	}
	return r
}

func sinh(x float64) float64 {
	a := math.Abs(x)
	var s float64
	switch {
	case a < 22:
		e := expm1(a)
		s = (e + e/(e+1)) / 2
	case a < 709:
		s = exp(a) / 2
	default:
		h := exp(float64(a / 2))
		s = float64(h / 2 * h)
	}
	return math.Copysign(s, x)
}

func cosh(x float64) float64 {
	a := math.Abs(x)
	if a < 709 {
		e := exp(a)
		return (e + 1/e) / 2
	}
	h := exp(float64(a / 2))
	return float64(h / 2 * h)
}

func tanh(x float64) float64 {
	a := math.Abs(x)
	if a > 22 {
		return math.Copysign(1, x)
	}
	e := expm1(float64(2 * a))
	if math.IsNaN(x) {
		return x
	}
	return math.Copysign(e/(e+2), x)
}

func asinh(x float64) float64 {
	a := math.Abs(x)
	if a > 1e9 {
		return math.Copysign(log(a)+math.Ln2, x)
	}
	sq := float64(a * a)
	return math.Copysign(log1p(a+sq/(1+math.Sqrt(sq+1))), x)
}

func acosh(x float64) float64 {
	if x < 1 {
		return math.NaN()
	}
	if x > 1e9 {
		return log(x) + math.Ln2
	}
	t := x - 1
	return log1p(t + math.Sqrt(float64(2*t)+float64(t*t)))
}

func atanh(x float64) float64 {
	a := math.Abs(x)
	return math.Copysign(log1p(2*a/(1-a))/2, x)
}

func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + exp(-x))
	}
	e := exp(x)
	return e / (1 + e)
}

// expNegSquare is e^{-x²}, with the rounding error of x² taken back.
func expNegSquare(x float64) float64 {
	h := float64(x * x)
	l := math.FMA(x, x, -h)
	e := exp(-h)
	return e - float64(e*l)
}

// erf sums 2/√π·e^{-x²}·Σ 2ⁿx²ⁿ⁺¹/(2n+1)!! near zero (all terms positive), and beyond uses the continued fraction of
// erfc (Abramowitz and Stegun 7.1.6 and 7.1.14).
func erf(x float64) float64 {
	a := math.Abs(x)
	var y float64
	switch {
	case math.IsNaN(x):
		return x
	case a < 2:
		terms := 34 // as many as change the sum
		switch {
		case a < 0.25:
			terms = 11
		case a < 0.5:
			terms = 14
		case a < 1:
			terms = 21
		case a < 1.5:
			terms = 27
		}
		y = 2 / math.SqrtPi * a * expNegSquare(a) * horner(a*a, erfSeries[:terms])
	case a < 6:
		f := 0.0
		for n := 10 + int(130/(a*a)); n > 0; n-- {
			f = float64(n) / 2 / (a + f)
		}
		y = 1 - expNegSquare(a)/((a+f)*math.SqrtPi)
	default:
		y = 1
	}
	return math.Copysign(y, x)
}
