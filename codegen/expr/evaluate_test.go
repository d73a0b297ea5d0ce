package expr

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// evaluate computes an expression on the host; loads call mem.
func evaluate(e *Expr, vars map[*Expr]val, mem func(operand, index int64) val) val {
	memo := map[*Expr]val{}
	var ev func(e *Expr) val
	ev = func(e *Expr) val {
		if v, ok := memo[e]; ok {
			return v
		}
		var r val
		switch e.Op {
		case OpConst:
			r = val{e.I, e.F}
		case OpVar:
			r = vars[e]
		case OpAffine:
			s := e.I
			for i, a := range e.Args {
				s += e.Coef[i] * ev(a).i
			}
			r = val{i: wrap(e.Type, s)}
		case OpFloorDiv:
			r = val{i: floorDiv(ev(e.Args[0]).i, e.I)}
		case OpFloorMod:
			r = val{i: floorMod(ev(e.Args[0]).i, e.I)}
		case OpLoad:
			r = mem(e.I, ev(e.Args[0]).i)
		default:
			var vs []val
			for _, a := range e.Args {
				vs = append(vs, ev(a))
			}
			var ok bool
			r, ok = compute(e.Op, e.Type, e.Args[0].Type, vs)
			if !ok {
				panic("cannot evaluate " + e.Op.String())
			}
		}
		memo[e] = r
		return r
	}
	return ev(e)
}

func TestScalarFunctionsAreAccurate(t *testing.T) {
	type fn struct {
		name   string
		build  func(*Builder, *Expr) *Expr
		want   func(float64) float64
		lo, hi float64
		ulp32  float64 // largest error in units of the result's last place, F32
		rel64  float64
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	fns := []fn{
		{"exp", (*Builder).Exp, math.Exp, -110, 89.5, 1.5, 1e-15},
		{"exp", (*Builder).Exp, math.Exp, -1, 1, 1.5, 1e-15},
		{"log", (*Builder).Log, math.Log, 0, 100, 0.51, 1e-15},
		{"log near 1", (*Builder).Log, math.Log, 0.99, 1.01, 0.51, 1e-15},
		{"log1p", (*Builder).Log1p, math.Log1p, -0.999, 3, 0.51, 1e-15},
		{"erf", (*Builder).Erf, math.Erf, -5, 5, 2, 1e-14},
		{"erf near 0", (*Builder).Erf, math.Erf, -1e-3, 1e-3, 2, 1e-14},
		{"tanh", (*Builder).Tanh, math.Tanh, -12, 12, 2.5, 1e-14},
		{"tanh near 0", (*Builder).Tanh, math.Tanh, -0.7, 0.7, 2.5, 1e-14},
		{"sigmoid", (*Builder).Sigmoid, sigmoid, -80, 80, 3, 1e-14},
		{"sin", (*Builder).Sin, math.Sin, -1e5, 1e5, 0.6, 1e-11},
		{"cos", (*Builder).Cos, math.Cos, -100, 100, 0.51, 1e-12},
		{"tan", (*Builder).Tan, math.Tan, -100, 100, 0.51, 1e-12},
		{"asin", (*Builder).Asin, math.Asin, -1, 1, 0.51, 1e-14},
		{"acos", (*Builder).Acos, math.Acos, -1, 1, 0.51, 1e-14},
		{"atan", (*Builder).Atan, math.Atan, -50, 50, 0.51, 1e-14},
		{"sinh", (*Builder).Sinh, math.Sinh, -80, 80, 0.51, 1e-14},
		{"cosh", (*Builder).Cosh, math.Cosh, -80, 80, 0.51, 1e-14},
		{"asinh", (*Builder).Asinh, math.Asinh, -1000, 1000, 0.51, 1e-14},
		{"acosh", (*Builder).Acosh, math.Acosh, 1, 1000, 0.51, 1e-14},
		{"atanh", (*Builder).Atanh, math.Atanh, -1, 1, 0.51, 1e-14},
	}
	for _, f := range fns {
		t.Run(f.name, func(t *testing.T) {
			b := NewBuilder()
			x32, x64 := b.Var("x", F32, 0, 0, 1), b.Var("y", F64, 0, 0, 1)
			e32, e64 := f.build(b, x32), f.build(b, x64)
			var worst32, worst64 float64
			for i := range 2001 {
				x := f.lo + (f.hi-f.lo)*float64(i)/2000
				x = float64(float32(x))
				want := f.want(x)
				got := evaluate(e32, map[*Expr]val{x32: {f: x}}, nil).f
				if math.IsInf(want, 0) || math.Abs(want) > math.MaxFloat32 {
					require.True(t, math.IsInf(got, 0), "f32 at %g: %g", x, got)
				} else {
					require.False(t, math.IsNaN(got), "f32 at %g", x)
					_, e := math.Frexp(want)
					ulp := math.Ldexp(1, max(e-24, -149))
					if err := math.Abs(got-want) / ulp; err > worst32 {
						worst32 = err
					}
				}
				got = evaluate(e64, map[*Expr]val{x64: {f: x}}, nil).f
				if want != 0 && !math.IsInf(want, 0) {
					worst64 = max(worst64, math.Abs(got-want)/math.Abs(want))
				}
			}
			require.LessOrEqual(t, worst32, f.ulp32, "ulp, f32")
			require.LessOrEqual(t, worst64, f.rel64, "relative, f64")
		})
	}
}

func TestSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	b := NewBuilder()
	for _, c := range []struct {
		build   func(*Builder, *Expr) *Expr
		x, want float64
	}{
		{(*Builder).Exp, inf, inf}, {(*Builder).Exp, -inf, 0}, {(*Builder).Exp, nan, nan},
		{(*Builder).Log, 0, -inf}, {(*Builder).Log, -1, nan}, {(*Builder).Log, inf, inf}, {(*Builder).Log, nan, nan},
		{(*Builder).Erf, inf, 1}, {(*Builder).Erf, -inf, -1}, {(*Builder).Erf, nan, nan},
		{(*Builder).Tanh, inf, 1}, {(*Builder).Tanh, nan, nan}, {(*Builder).Sigmoid, -inf, 0}, {(*Builder).Sigmoid, nan, nan},
		{(*Builder).Atan, inf, math.Pi / 2}, {(*Builder).Asin, 1, math.Pi / 2}, {(*Builder).Asin, 2, nan}, {(*Builder).Acos, -1, math.Pi},
		{(*Builder).Sin, inf, nan}, {(*Builder).Log1p, -1, -inf}, {(*Builder).Log1p, inf, inf}, {(*Builder).Atanh, 1, inf},
		{(*Builder).Sinh, -inf, -inf}, {(*Builder).Cosh, -inf, inf}, {(*Builder).Asinh, -inf, -inf}, {(*Builder).Acosh, 0.5, nan}, {(*Builder).Acosh, 1, 0},
	} {
		for _, typ := range []Type{F32, F64} {
			x := b.Var(fmt.Sprint("x", typ), typ, 0, 0, 1)
			got := evaluate(c.build(b, x), map[*Expr]val{x: {f: c.x}}, nil).f
			if math.IsNaN(c.want) {
				require.True(t, math.IsNaN(got), "%v(%g) = %g", typ, c.x, got)
				continue
			}
			if math.IsInf(c.want, 0) {
				require.Equal(t, c.want, got, "%v at %g", typ, c.x)
				continue
			}
			require.InDelta(t, c.want, got, 2e-7, "%v at %g", typ, c.x)
		}
	}
}

func TestPow(t *testing.T) {
	b := NewBuilder()
	x, y := b.Var("x", F32, 0, 0, 1), b.Var("y", F32, 0, 0, 1)
	e := b.Pow(x, y)
	for _, a := range []float64{-3, -1, -0.5, 0, 0.5, 1, 2, 3, 10, math.Inf(1), math.Inf(-1), math.NaN()} {
		for _, c := range []float64{-3, -2, -0.5, 0, 0.5, 1, 2, 3, 7, 33} {
			want := float64(float32(math.Pow(a, c)))
			got := evaluate(e, map[*Expr]val{x: {f: a}, y: {f: c}}, nil).f
			if math.IsNaN(want) {
				require.True(t, math.IsNaN(got), "%g^%g = %g", a, c, got)
				continue
			}
			if math.IsInf(want, 0) || want == 0 {
				require.Equal(t, want, got, "%g^%g", a, c)
				continue
			}
			require.InEpsilon(t, want, got, 1e-7, "%g^%g", a, c)
		}
	}
}

func TestFloatRemainder(t *testing.T) {
	b := NewBuilder()
	x, y := b.Var("x", F32, 0, 0, 1), b.Var("y", F32, 0, 0, 1)
	e := b.ModFloat(x, y)
	for _, c := range [][2]float64{{5, 3}, {-5, 3}, {5.3, 2.1}, {1e7, 0.3}, {0, 2}, {-4.3, -2.1}, {1e-3, 5}, {6, 3}} {
		a, m := float64(float32(c[0])), float64(float32(c[1]))
		require.Equal(t, float64(float32(math.Mod(a, m))), evaluate(e, map[*Expr]val{x: {f: a}, y: {f: m}}, nil).f, "%v", c)
	}
}
