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
		for tb := range formats {
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
				matrices{elementsE2M1, elementsE2M1, scales4X}.multiply(r, v)
				for e := range want {
					require.Equal(t, want[e], r[v[e]], "threads %d, %d", threadA, threadB)
				}
			}
		}
	}
}

// TestOtherProductsMultiplyAsDefined: tf32, four bits in bytes, and blocks of 32 with powers of two as scales.
func TestOtherProductsMultiplyAsDefined(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	tf32 := func(c uint32) float64 { return float64(math.Float32frombits(c >> 13 << 13)) }
	of := func(f *minifloat.Format) func(uint32) float64 {
		return func(c uint32) float64 { return f.Decode(c & (1<<f.Bits() - 1)) }
	}
	inByte := func(c uint32) float64 { return minifloat.E2M1.Decode(c >> 2 & 15) }
	for _, c := range []struct {
		op     string
		n      int // elements of a register
		a, b   func(code uint32) float64
		scales int
	}{
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 1, tf32, tf32, 0},
		{"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32", 4, of(minifloat.E4M3FN), inByte, 0},
		{"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e5m2.f32", 4, inByte, of(minifloat.E5M2), 0},
		{"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 8, of(minifloat.E2M1), of(minifloat.E2M1), 2},
		{"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0", 4, of(minifloat.E4M3FN), of(minifloat.E4M3FN), 1},
		{"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0", 4, of(minifloat.E5M2), of(minifloat.E4M3FN), 1},
	} {
		for range 20 {
			r, v := narrowOperands(rng, 20)
			bits := 32 / c.n
			for i := 4; i < 10; i++ {
				for l := range r[i] {
					if c.n == 1 {
						r[i][l] = math.Float32bits(float32(rng.NormFloat64()))
					} else {
						r[i][l] &= 0xbfbfbfbf // fewer NaNs
					}
				}
			}
			var byteA, byteB, threadA, threadB int
			if c.scales > 0 {
				byteA, byteB = rng.Intn(4/c.scales)*c.scales, rng.Intn(4/c.scales)*c.scales
				threadA, threadB = rng.Intn(2), rng.Intn(4)
				for l := range 32 {
					r[v[15]][l], r[v[16]][l], r[v[18]][l], r[v[19]][l] = uint32(byteA), uint32(threadA), uint32(byteB), uint32(threadB)
					r[v[14]][l], r[v[17]][l] = r[v[14]][l]&0x0f0f0f0f+0x78787878, r[v[17]][l]&0x0f0f0f0f+0x78787878
				}
			}
			scale := func(reg int32, lane, first, k int) float64 {
				if c.scales == 0 {
					return 1
				}
				code := r[reg][lane] >> (8 * (first + k/(8*c.n/c.scales))) & 255
				return math.Pow(2, float64(code)-127)
			}
			var a [16][64]float64
			var b [64][8]float64
			for lane := range 32 {
				for e := range 4 * c.n {
					row, k := fragA(c.n, lane, e)
					a[row][k] = c.a(r[v[4+e/c.n]][lane]>>(bits*(e%c.n))&uint32(uint64(1)<<bits-1)) * scale(v[14], scaleLaneA(row, threadA), byteA, k)
				}
				for e := range 2 * c.n {
					k, col := fragB(c.n, lane, e)
					b[k][col] = c.b(r[v[8+e/c.n]][lane]>>(bits*(e%c.n))&uint32(uint64(1)<<bits-1)) * scale(v[17], scaleLaneB(col, threadB), byteB, k)
				}
			}
			want := product(8*c.n, func(row, k int) float64 { return a[row][k] }, func(k, col int) float64 { return b[k][col] }, r, v)
			def := Lookup(c.op)
			if c.scales > 0 {
				_, why := def.Undefined(r, v)
				require.Empty(t, why, c.op)
			}
			def.Eval.(mmaFunc)(r, v)
			for e := range want {
				require.Equal(t, want[e], r[v[e]], c.op)
			}
			if c.scales > 0 {
				for _, bad := range []struct {
					row   int32
					value uint32
				}{{v[15], uint32(4)}, {v[15], uint32(c.scales - 1 + 4*(2-c.scales))}, {v[16], 2}, {v[19], 4}} {
					was := r[bad.row]
					for l := range r[bad.row] {
						r[bad.row][l] = bad.value
					}
					_, why := def.Undefined(r, v)
					require.NotEmpty(t, why, "%s: %d", c.op, bad.value)
					r[bad.row] = was
				}
			}
		}
	}
}

// TestScalesThatArePowersOfTwo: ue8m0 has no zero, and all ones are NaN (PTX ISA, alternate floating-point data formats).
func TestScalesThatArePowersOfTwo(t *testing.T) {
	require.Equal(t, []float64{0x1p-127, 1, 0x1p127}, []float64{powerOf2(0), powerOf2(127), powerOf2(254)})
	require.True(t, math.IsNaN(powerOf2(255)))
}

// TestIntegersMultiplyAsDefined: each operand signed or not, sums that wrap around or clip.
func TestIntegersMultiplyAsDefined(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	as := map[string]func(uint32) int64{"s8": func(c uint32) int64 { return int64(int8(c)) }, "u8": func(c uint32) int64 { return int64(c & 255) }}
	for _, types := range [][3]string{{"s8", "s8", ""}, {"u8", "s8", ""}, {"s8", "u8", ""}, {"s8", "s8", "satfinite."}} {
		clipped := 0
		for range 20 {
			r, v := narrowOperands(rng, 14)
			for i := 10; i < 14; i++ {
				for l := range r[i] {
					r[i][l] = math.MaxInt32 - uint32(rng.Intn(1000))
				}
			}
			var a [16][32]int64
			var b [32][8]int64
			for lane := range 32 {
				for e := range 16 {
					row, k := fragA(4, lane, e)
					a[row][k] = as[types[0]](r[v[4+e/4]][lane] >> (8 * (e % 4)))
				}
				for e := range 8 {
					k, col := fragB(4, lane, e)
					b[k][col] = as[types[1]](r[v[8+e/4]][lane] >> (8 * (e % 4)))
				}
			}
			var want [4]Row32
			for lane := range 32 {
				for e := range 4 {
					row, col := fragC(lane, e)
					sum := int64(int32(r[v[10+e]][lane]))
					for k := range 32 {
						sum += a[row][k] * b[k][col]
					}
					if sum > math.MaxInt32 {
						clipped++
						if types[2] != "" {
							sum = math.MaxInt32
						}
					}
					want[e][lane] = uint32(sum)
				}
			}
			Lookup("mma.sync.aligned.m16n8k32.row.col."+types[2]+"s32."+types[0]+"."+types[1]+".s32").Eval.(mmaFunc)(r, v)
			for e := range want {
				require.Equal(t, want[e], r[v[e]], "%v", types)
			}
		}
		require.Positive(t, clipped)
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
	}{{"e4m3x2", minifloat.E4M3FN, 0x7f}, {"e5m2x2", minifloat.E5M2, 0x7f}, {"e2m1x2", minifloat.E2M1, 7}} {
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
