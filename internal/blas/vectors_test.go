package blas

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAxpyHasTheBitsOfAPlainLoop for every length, and writes nothing past the end.
func TestAxpyHasTheBitsOfAPlainLoop(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 70 {
		x, y := matrix32(rng, 1, n+1, n+1).F, matrix32(rng, 1, n+1, n+1).F
		sum, a := append([]float32{}, y...), float32(rng.NormFloat64())
		Axpy(a, x[:n], sum)
		for i := range n {
			require.Equal(t, math.Float32bits(y[i]+float32(a*x[i])), math.Float32bits(sum[i]))
		}
		require.Equal(t, math.Float32bits(y[n]), math.Float32bits(sum[n]))
	}
}

// TestMagnitude finds the greatest magnitude wherever it is, and NaN above all.
func TestMagnitude(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 40, 64} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		for at := range x {
			was := x[at]
			x[at] = -5
			require.Equal(t, math.Float32bits(5), Magnitude(x), "%d of %d", at, n)
			x[at] = float32(math.NaN())
			require.Greater(t, Magnitude(x), math.Float32bits(float32(math.Inf(1))))
			x[at] = was
		}
	}
	require.Zero(t, Magnitude(nil))
}

// TestPositive: of every length, in place too, with zeros of both signs and what is not finite.
func TestPositive(t *testing.T) {
	odd := []float32{float32(math.Copysign(0, -1)), 0, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-45, -1e-45}
	for n := range 70 {
		x := matrix32(rand.New(rand.NewPCG(7, 8)), 1, n+1, n+1).F
		for i := range n {
			if i%3 == 0 {
				x[i] = odd[i/3%len(odd)]
			}
		}
		want := append([]float32{}, x...)
		for i, f := range x[:n] {
			if f <= 0 {
				want[i] = 0
			}
		}
		bits := func(xs []float32) (out []uint32) {
			for _, f := range xs {
				if f != f {
					f = float32(math.NaN())
				}
				out = append(out, math.Float32bits(f))
			}
			return out
		}
		to := append([]float32{}, x...)
		Positive(to, x[:n])
		require.Equal(t, bits(want), bits(to))
		Positive(x, x[:n])
		require.Equal(t, bits(want), bits(x))
	}
}

// TestRequantise: of every length, to one number and to two, with the bits of the definition, and writes nothing past the end.
func TestRequantise(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 13))
	for _, r := range []*Rounding{NewRounding(3, -6, 448, 0.37), NewRounding(1, 0, 6, 3)} {
		for n := range 40 {
			x := make([]float32, n+1)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(24)-12)))
			}
			one, two := append([]float32{}, x...), append([]float32{}, x...)
			r.Requantise(one[:n])
			r.Requantise2(two[:n])
			for i, f := range x {
				wantOne, wantTwo := f, f
				if i < n {
					scaled := float32(f * r.inverse)
					near := r.round(scaled)
					wantOne, wantTwo = float32(near*r.by), float32((near+r.round(scaled-near))*r.by)
				}
				require.Equal(t, math.Float32bits(wantOne), math.Float32bits(one[i]), "%d of %d", i, n)
				require.Equal(t, math.Float32bits(wantTwo), math.Float32bits(two[i]), "%d of %d", i, n)
			}
		}
	}
}
