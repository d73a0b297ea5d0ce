package ir

import (
	"math"
	"math/rand"
	"testing"
)

// The standard library is an independent oracle, itself off by a few units in the last place.
func TestElementaryFunctionsAgreeWithTheStandardLibrary(t *testing.T) {
	for _, c := range []struct {
		name      string
		ours, std func(float64) float64
		lo, hi    float64
		ulps      float64
	}{
		{"exp", exp, math.Exp, -745, 709, 3},
		{"expm1", expm1, math.Expm1, -45, 45, 4},
		{"expm1 near 0", expm1, math.Expm1, -1, 1, 4},
		{"log", log, math.Log, 0, 1e6, 4},
		{"log near 1", log, math.Log, 0.9, 1.1, 4},
		{"log1p", log1p, math.Log1p, -0.999, 3, 6},
		{"log1p near 0", log1p, math.Log1p, -1e-3, 1e-3, 6},
		{"sin", sin, math.Sin, -20, 20, 4},
		{"cos", cos, math.Cos, -20, 20, 4},
		{"sin far", sin, math.Sin, -5e5, 5e5, 8},
		{"tan", tan, math.Tan, -20, 20, 8},
		{"atan", atan, math.Atan, -10, 10, 3},
		{"asin", asin, math.Asin, -1, 1, 12},
		{"acos", acos, math.Acos, -1, 0.5, 12},
		{"sinh", sinh, math.Sinh, -30, 30, 6},
		{"sinh far", sinh, math.Sinh, 700, 710.4, 4},
		{"cosh", cosh, math.Cosh, -30, 30, 4},
		{"tanh", tanh, math.Tanh, -25, 25, 6},
		{"tanh near 0", tanh, math.Tanh, -0.1, 0.1, 6},
		{"asinh", asinh, math.Asinh, -100, 100, 6},
		{"acosh", acosh, math.Acosh, 1, 100, 8},
		{"atanh", atanh, math.Atanh, -1, 1, 8},
		{"erf", erf, math.Erf, -6, 6, 8},
		{"erf near 0", erf, math.Erf, -1e-3, 1e-3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewSource(3))
			for range 20000 {
				x := c.lo + (c.hi-c.lo)*rng.Float64()
				got, want := c.ours(x), c.std(x)
				ulp := math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want)
				if math.Abs(got-want) > c.ulps*ulp && math.Abs(got-want) > 1e-300 {
					t.Fatalf("%s(%v) = %v, want %v: %.1f ulp", c.name, x, got, want, math.Abs(got-want)/ulp)
				}
			}
		})
	}
}

func TestElementaryFunctionsAtTheEdges(t *testing.T) {
	inf, nan, negZero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct {
		name      string
		ours, std func(float64) float64
	}{
		{"exp", exp, math.Exp}, {"expm1", expm1, math.Expm1}, {"log", log, math.Log}, {"log1p", log1p, math.Log1p},
		{"sin", sin, math.Sin}, {"cos", cos, math.Cos}, {"tan", tan, math.Tan}, {"atan", atan, math.Atan},
		{"asin", asin, math.Asin}, {"acos", acos, math.Acos}, {"sinh", sinh, math.Sinh}, {"cosh", cosh, math.Cosh},
		{"tanh", tanh, math.Tanh}, {"asinh", asinh, math.Asinh}, {"acosh", acosh, math.Acosh}, {"atanh", atanh, math.Atanh},
		{"erf", erf, math.Erf},
	} {
		for _, x := range []float64{0, negZero, 1, -1, inf, -inf, nan, 2, -2, 1e-300, 1e300, -1e300} {
			got, want := c.ours(x), c.std(x)
			if math.IsNaN(got) != math.IsNaN(want) || !math.IsNaN(want) && math.Signbit(got) != math.Signbit(want) ||
				math.IsInf(got, 0) != math.IsInf(want, 0) || !math.IsInf(want, 0) && math.Abs(got-want) > 1e-14*math.Abs(want) {
				t.Errorf("%s(%v) = %v, want %v", c.name, x, got, want)
			}
		}
	}
}

func TestPow(t *testing.T) {
	for _, c := range [][3]float64{
		{2, 10, 1024}, {-2, 3, -8}, {-2, -2, 0.25}, {9, 0.5, 3}, {2, 0.5, math.Sqrt2}, {-8, 1.0 / 3, math.NaN()},
		{0, 0, 1}, {10, -320, 1e-320}, {10, 400, math.Inf(1)}, {-3, 101, math.Pow(-3, 101)}, {1.5, 2.25, math.Pow(1.5, 2.25)},
	} {
		got := pow(c[0], c[1])
		if math.IsNaN(got) != math.IsNaN(c[2]) || got != c[2] && !(math.Abs(got-c[2]) <= 1e-13*math.Abs(c[2])) && !math.IsNaN(c[2]) {
			t.Errorf("%v^%v = %v, want %v", c[0], c[1], got, c[2])
		}
	}
}

func TestLargeAnglesAreReducedExactly(t *testing.T) {
	// Ng, "Argument Reduction for Huge Arguments": 10^22 is the classic test.
	s, c := sinCos(1e22)
	if math.Abs(s - -0.8522008497671888018) > 2e-16 || math.Abs(c-0.5232147853951389455) > 2e-16 {
		t.Errorf("sin, cos(1e22) = %v, %v", s, c)
	}
	if s, _ := sinCos(-1e22); math.Abs(s-0.8522008497671888018) > 2e-16 {
		t.Errorf("sin(-1e22) = %v", s)
	}
}
