package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// matrix has random elements over many magnitudes, so that another order of addition would show, and all special values.
func matrix(rng *rand.Rand, rows, k, stride int) Rows {
	f := make([]float64, rows*stride)
	for i := range f {
		f[i] = rng.NormFloat64() * math.Exp2(float64(rng.IntN(40)-20))
	}
	for range min(rows, 3) {
		f[rng.IntN(len(f))] = []float64{0, math.Copysign(0, -1), math.Inf(1), math.SmallestNonzeroFloat64, math.MaxFloat64}[rng.IntN(5)]
	}
	return Rows{f, stride, rows}
}

var engines = map[string]func([]float64, int, Rows, Rows, int){"best": Dots, "plain": dots}

// TestDotsAddInAscendingOrder: every element has the bits of the plain sum, with and without vector instructions.
func TestDotsAddInAscendingOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range [][3]int{{1, 1, 1}, {1, 9, 40}, {2, 3, 5}, {3, 8, 0}, {4, 8, chunk}, {5, 7, chunk + 1}, {13, 17, 2*chunk + 3}, {8, 33, 100}, {31, 16, 64}} {
		rows, cols, k := n[0], n[1], n[2]
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b, stride := matrix(rng, rows, k, k+3), matrix(rng, cols, k, k+1), cols+2
			for name, f := range engines {
				c := make([]float64, rows*stride)
				for i := range c {
					c[i] = 7
				}
				f(c, stride, a, b, k)
				for i, got := range c {
					want := 7.0
					if j := i % stride; j < cols {
						want = Dot(a.row(i/stride, k), b.row(j, k))
					}
					require.Equal(t, math.Float64bits(want), math.Float64bits(got), "%s %d", name, i)
				}
			}
		})
	}
}

func BenchmarkDots(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows, cols, k = 64, 64, 576
	x, y, c := matrix(rng, rows, k, k), matrix(rng, cols, k, k), make([]float64, rows*cols)
	for name, f := range engines {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(rows * cols * k) // bytes are multiply-adds
			for b.Loop() {
				f(c, cols, x, y, k)
			}
		})
	}
}
