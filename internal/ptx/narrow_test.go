package ptx

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// narrowOperands are the registers of an mma with random codes: d, a, b, c, and for scaled ones scales and selectors.
func narrowOperands(rng *rand.Rand, n int) ([]Row32, []int32) {
	r, v := make([]Row32, n), make([]int32, n)
	for i := range r {
		v[i] = int32(i)
		for l := range r[i] {
			r[i][l] = rng.Uint32()
			if i >= 10 && i < 14 {
				r[i][l] = b32(float32(rng.NormFloat64() * 100))
			}
		}
	}
	return r, v
}

// product is the definition of mma: k ascending, one fused multiply-add each.
func product(k int, a func(row, k int) float64, b func(k, col int) float64, r []Row32, v []int32) (out [4]Row32) {
	for lane := range 32 {
		for e := range 4 {
			row, col := fragC(lane, e)
			c := f32(r[v[10+e]][lane])
			for x := range k {
				c = fma32(float32(a(row, x)), float32(b(x, col)), c)
			}
			out[e][lane] = b32(c)
		}
	}
	return out
}

func TestEightBitFloatsMultiplyAsDefined(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	formats := map[string]*minifloat.Format{"e4m3": minifloat.E4M3FN, "e5m2": minifloat.E5M2}
	decode := func(typ string, b uint32) float64 { return formats[typ].Decode(b) }
	for ta := range formats {
		for _, tb := range []string{"e4m3"} {
			for range 20 {
				r, v := narrowOperands(rng, 14)
				for i := 4; i < 10; i++ {
					for l := range r[i] {
						if rng.Intn(4) > 0 {
							r[i][l] &= 0xbfbfbfbf // fewer NaNs
						}
					}
				}
				var a [16][32]float64
				var b [32][8]float64
				for lane := range 32 {
					for e := range 16 {
						row, k := fragA(4, lane, e)
						a[row][k] = decode(ta, r[v[4+e/4]][lane]>>(8*(e%4))&255)
					}
					for e := range 8 {
						k, col := fragB(4, lane, e)
						b[k][col] = decode(tb, r[v[8+e/4]][lane]>>(8*(e%4))&255)
					}
				}
				want := product(32, func(row, k int) float64 { return a[row][k] }, func(k, col int) float64 { return b[k][col] }, r, v)
				Lookup("mma.sync.aligned.m16n8k32.row.col.f32."+ta+"."+tb+".f32").Eval.(mmaFunc)(r, v)
				for e := range want {
					require.Equal(t, want[e], r[v[e]], "%s × %s", ta, tb)
				}
			}
		}
	}
}

func TestScaledBlocksMultiplyAsDefined(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	for threadA := range 2 {
		for threadB := range 4 {
			for range 10 {
				r, v := narrowOperands(rng, 20)
				for l := range 32 {
					r[v[15]][l], r[v[16]][l], r[v[18]][l], r[v[19]][l] = 0, uint32(threadA), 0, uint32(threadB)
					r[v[14]][l] &= 0x7f7f7f7f
					r[v[17]][l] &= 0x7f7f7f7f
				}
				var a [16][64]float64
				var b [64][8]float64
				scale := func(reg int32, lane, k int) float64 {
					return minifloat.E4M3FN.Decode(r[reg][lane] >> (8 * (k / 16)) & 255)
				}
				for lane := range 32 {
					for e := range 32 {
						row, k := fragA(8, lane, e)
						a[row][k] = minifloat.E2M1.Decode(r[v[4+e/8]][lane]>>(4*(e%8))&15) * scale(v[14], scaleLaneA(row, threadA), k)
					}
					for e := range 16 {
						k, col := fragB(8, lane, e)
						b[k][col] = minifloat.E2M1.Decode(r[v[8+e/8]][lane]>>(4*(e%8))&15) * scale(v[17], scaleLaneB(col, threadB), k)
					}
				}
				want := product(64, func(row, k int) float64 { return a[row][k] }, func(k, col int) float64 { return b[k][col] }, r, v)
				matrices{elementsE2M1, elementsE2M1, true}.multiply(r, v)
				for e := range want {
					require.Equal(t, want[e], r[v[e]], "threads %d, %d", threadA, threadB)
				}
			}
		}
	}
}

// nearest is the code of the finite value next to x, the even code of two equally near; −0 keeps its sign.
func nearest(f *minifloat.Format, x float64) uint32 {
	best, distance := uint32(0), math.Inf(1)
	for c := range uint32(1) << (f.Bits() - 1) {
		v := f.Decode(c)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		if d := math.Abs(math.Abs(x) - v); d < distance || d == distance && c&1 == 0 {
			best, distance = c, d
		}
	}
	if math.Signbit(x) {
		best |= 1 << (f.Bits() - 1)
	}
	return best
}

func TestNarrowConversions(t *testing.T) {
	for _, c := range []struct {
		typ string
		f   *minifloat.Format
		nan uint32
	}{{"e4m3x2", minifloat.E4M3FN, 0x7f}, {"e2m1x2", minifloat.E2M1, 7}} {
		n := uint(c.f.Bits())
		want := func(x float64) uint32 {
			switch {
			case math.IsNaN(x):
				return c.nan
			case math.Abs(x) > c.f.Max():
				return nearest(c.f, math.Copysign(c.f.Max(), x))
			}
			return nearest(c.f, x)
		}
		// Every f16, and of f32 all values, all middles between two, and their neighbours.
		var xs []float32
		for h := range uint32(1 << 16) {
			xs = append(xs, halfToFloat(h))
		}
		for a := range uint32(1) << (n - 1) {
			mid := float32((c.f.Decode(a) + c.f.Decode(a+1)) / 2)
			xs = append(xs, mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, 1e9), -mid)
		}
		xs = append(xs, 1e-45, 1e38, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), float32(math.Copysign(0, -1)))
		apply := func(op string, a, b uint32) uint32 {
			rows := [3]Row32{{}, {a}, {b}}
			Lookup(op).Eval.(func(d, a, b, c *Row32))(&rows[0], &rows[1], &rows[2], nil)
			return rows[0][0]
		}
		for _, x := range xs {
			got := apply("cvt.rn.satfinite."+c.typ+".f32", math.Float32bits(x), math.Float32bits(1))
			require.Equal(t, want(float64(x))<<n|want(1), got, "%s of %v", c.typ, x)
		}
		if Lookup("cvt.rn.f16x2."+c.typ) == nil {
			continue
		}
		for a := range uint32(1) << n {
			for b := range uint32(1) << n {
				got := apply("cvt.rn.f16x2."+c.typ, a<<n|b, 0)
				for i, code := range []uint32{b, a} {
					v, w := minifloat.Float16.Decode(got>>(16*i)&0xffff), c.f.Decode(code)
					require.True(t, math.Float64bits(v) == math.Float64bits(w) || v != v && w != w, "%s %#x", c.typ, code)
				}
			}
		}
	}
}
