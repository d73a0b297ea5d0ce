package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// productEngines are the ways to compute products.
var productEngines = map[string]func(c []float32, stride int, a Rows32, b *Panels){"best": Products, "scattered": scattered, "plain": func(c []float32, stride int, a Rows32, b *Panels) {
	var sums [productCols]float32
	for i := range a.Count {
		for j := 0; j < b.rows; j += productCols {
			products1(sums[:], a.F[i*a.Stride:][:b.k], b.f[j*b.k:][:productCols*b.k])
			for n, x := range b.biasOf(j) {
				sums[n] += x
			}
			copy(c[i*stride+j:][:min(productCols, b.rows-j)], sums[:])
		}
	}
}}

// scattered computes products of the same rows, with the elements in another order, at a distance, and some before
// the row's start.
func scattered(c []float32, stride int, a Rows32, b *Panels) {
	rng := rand.New(rand.NewPCG(5, 6))
	width := 2*b.k + 1
	s := Scattered{F: make([]float32, (a.Count+1)*width)}
	for _, i := range rng.Perm(2 * b.k)[:b.k] {
		s.Offsets = append(s.Offsets, int32(i-b.k/2))
	}
	for i := range a.Count {
		s.Starts = append(s.Starts, int32(i*width+b.k/2))
		for k, at := range s.Offsets {
			s.F[int(s.Starts[i]+at)] = a.F[i*a.Stride+k]
		}
	}
	ProductsOf(c, stride, s, b)
}

func matrix32(rng *rand.Rand, rows, k, stride int) Rows32 {
	m := matrix(rng, rows, k, stride)
	f := make([]float32, len(m.F))
	for i, x := range m.F {
		f[i] = float32(x)
	}
	return Rows32{f, stride, rows}
}

// TestProductsAddInAscendingOrder: every element has the bits of the plain sum in f32, with and without vector instructions,
// and nothing else is written.
func TestProductsAddInAscendingOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range [][3]int{{1, 1, 1}, {1, 9, 40}, {3, 8, 0}, {7, 16, 5}, {9, 17, 64}, {31, 33, 100}, {8, 48, 513}} {
		rows, cols, k := n[0], n[1], n[2]
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b, stride := matrix32(rng, rows, k, k+3), matrix32(rng, cols, k, k+1), cols+2
			for _, bias := range [][]float32{nil, matrix32(rng, 1, cols, cols).F} {
				p := Pack(matrix32(rng, 64, 9, 9), 9) // whose memory is used again, or is too small
				p.Pack(b, k)
				if bias != nil {
					p.Bias(bias)
				}
				for name, f := range productEngines {
					c := make([]float32, rows*stride)
					for i := range c {
						c[i] = 7
					}
					f(c, stride, a, p)
					for i, got := range c {
						want := float32(7)
						if j := i % stride; j < cols {
							want = 0
							for x := range k {
								want += float32(a.F[i/stride*a.Stride+x] * b.F[j*b.Stride+x])
							}
							if bias != nil {
								want += bias[j]
							}
						}
						require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%s %d", name, i)
					}
				}
			}
		})
	}
}

// TestProductsOfWhatIsNotThere: rows that reach out of their array are refused.
func TestProductsOfWhatIsNotThere(t *testing.T) {
	b := Pack(Rows32{[]float32{1, 2}, 2, 1}, 2)
	for _, offsets := range [][]int32{{0, 3}, {-1, 0}} {
		require.Panics(t, func() { ProductsOf(make([]float32, 2), 1, Scattered{make([]float32, 4), []int32{0, 1}, offsets}, b) })
	}
}

func BenchmarkProducts(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows, cols, k = 512, 256, 1024
	x, y, c := matrix32(rng, rows, k, k), Pack(matrix32(rng, cols, k, k), k), make([]float32, rows*cols)
	for name, f := range productEngines {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(rows * cols * k) // bytes are multiply-adds
			for b.Loop() {
				f(c, cols, x, y)
			}
		})
	}
}
