package calibrate

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
)

// positive is a random positive definite matrix.
func positive(rng *rand.Rand, n int) *matrix {
	x, h := newMatrix(n, n+3), newMatrix(n, n)
	for i := range x.a {
		x.a[i] = float32(rng.NormFloat64())
	}
	addDots(h, 0, 1, x, 0, n, x, 0, n, 0, n+3)
	for i := range n {
		h.set(i, i, h.at(i, i)+0.1)
	}
	return h
}

// Sizes that do and do not fill panels, batches and chunks.
var sizes = []int{1, 5, 32, 33, 64, 97, 400}

func TestAFactorIsTriangularAndItsSquareIsTheMatrix(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, n := range sizes {
		h := positive(rng, n)
		f := h.factor(t.Context(), 0, nil)
		for i := range n {
			for j := range n {
				if j > i {
					assert.Zero(t, f.t.at(i, j), "%d: element %d, %d", n, i, j)
				}
				sum := 0.0
				for k := range n {
					sum += f.t.at(k, i) * f.t.at(k, j)
				}
				if d := sum - h.at(i, j); d > 1e-6*float64(n) || d < -1e-6*float64(n) {
					t.Fatalf("%d: element %d, %d of TᵀT is off by %v", n, i, j, d)
				}
			}
		}
	}
}

func TestSolutionsSolve(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	for _, n := range sizes {
		h := positive(rng, n)
		want, b := newMatrix(6, n), newMatrix(6, n)
		for i := range want.a {
			want.a[i] = float32(rng.NormFloat64())
		}
		addDots(b, 0, 1, want, 0, 6, h, 0, n, 0, n)
		first := append([]float32{}, b.row(0)...)
		h.factor(t.Context(), 0, nil).solve(b, 1, 6)
		var off, size float64 // by what H makes of it: H is nearly singular
		for i := 1; i < 6; i++ {
			for j := range n {
				got, right := 0.0, 0.0
				for k := range n {
					got += b.at(i, k) * h.at(k, j)
					right += want.at(i, k) * h.at(k, j)
				}
				off += (got - right) * (got - right)
				size += right * right
			}
		}
		assert.Less(t, math.Sqrt(off/size), 3e-6, "%d", n)
		assert.Equal(t, first, b.row(0), "a row that was not asked for")
	}
}

func TestMomentsAreThoseOfTheInputsTaken(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	p := &patches{k: 37}
	x, d := newMatrix(37, 90), newMatrix(37, 90)
	for i := range x.a {
		x.a[i], d.a[i] = float32(rng.NormFloat64()+3), float32(rng.NormFloat64()-1)
	}
	odd := func(i int) bool { return i/10%2 == 1 } // of 9 inputs of 10 columns
	got := p.sums(t.Context(), x, d, 10, func(input int) bool { return odd(10 * input) }).centred()
	mean := func(m *matrix, k int) (s float64) {
		for i, v := range m.row(k) {
			if odd(i) {
				s += float64(v) / 40
			}
		}
		return s
	}
	h, miss := 0.0, 0.0
	for i := range 90 {
		if odd(i) {
			h += (x.at(3, i) - mean(x, 3)) * (x.at(5, i) - mean(x, 5)) / 40
			miss += (x.at(3, i) - mean(x, 3)) * (d.at(5, i) - mean(d, 5)) / 40
		}
	}
	assert.Equal(t, 40.0, got.n)
	assert.InDelta(t, h, got.h.at(3, 5), 1e-5)
	assert.InDelta(t, miss, got.miss.at(3, 5), 1e-5)
}
