package emu

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// narrowOperands are the registers of an mma with random codes: d, a, b, c, and for scaled ones scales and selectors.
func narrowOperands(rng *rand.Rand, n int) ([]row32, []int32) {
	r, v := make([]row32, n), make([]int32, n)
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
func product(k int, a func(row, k int) float64, b func(k, col int) float64, r []row32, v []int32) (out [4]row32) {
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
	formats := map[string]*minifloat.Format{"e4m3": minifloat.E4M3FN, "e5m2": minifloat.E5M2, "e2m1": minifloat.E2M1}
	decode := func(typ string, b uint32) float64 {
		f := formats[typ]
		if typ == "e2m1" {
			b >>= 2
		}
		return f.Decode(b & (1<<f.Bits() - 1))
	}
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
				mmaNarrow("m16n8k32", ta, tb)(r, v)
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
				mmaScaled4(r, v)
				for e := range want {
					require.Equal(t, want[e], r[v[e]], "threads %d, %d", threadA, threadB)
				}
			}
		}
	}
}

// TestScaledFactorsAreHalves: e2m1·ue4m3 is exact in f16.
func TestScaledFactorsAreHalves(t *testing.T) {
	for s := range uint32(127) {
		for n := range uint32(16) {
			want := minifloat.E2M1.Decode(n) * minifloat.E4M3FN.Decode(s)
			require.Equal(t, want, minifloat.Float16.Decode(uint32(nibbleScaled[s*16+n])))
		}
	}
}

func TestIntegerBytesMultiplyAsDefined(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	for _, signed := range []bool{true, false} {
		r, v := narrowOperands(rng, 14)
		typ, value := "u8", func(x uint32) int64 { return int64(uint8(x)) }
		if signed {
			typ, value = "s8", func(x uint32) int64 { return int64(int8(x)) }
		}
		var want [16][8]int64
		for l1 := range 32 {
			for e := range 16 {
				row, k := fragA(4, l1, e)
				for l2 := range 32 {
					for f := range 8 {
						if x, col := fragB(4, l2, f); x == k {
							want[row][col] += value(r[v[4+e/4]][l1]>>(8*(e%4))) * value(r[v[8+f/4]][l2]>>(8*(f%4)))
						}
					}
				}
			}
		}
		before := append([]row32{}, r...)
		mmaNarrow("m16n8k32", typ, typ)(r, v)
		for lane := range 32 {
			for e := range 4 {
				row, col := fragC(lane, e)
				require.Equal(t, uint32(want[row][col])+before[v[10+e]][lane], r[v[e]][lane])
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
		from := narrowConvert("cvt.rn.satfinite." + c.typ + ".f32")
		fromHalf := narrowConvert("cvt.rn.satfinite." + c.typ + ".f16x2")
		for i, x := range xs {
			require.Equal(t, want(float64(x))<<n|want(1), from(math.Float32bits(x), math.Float32bits(1)), "%s of %v", c.typ, x)
			if fromHalf != nil && i < 1<<16 {
				require.Equal(t, want(1)<<n|want(float64(x)), fromHalf(0x3c00<<16|uint32(i), 0), "%s of half %v", c.typ, x)
			}
		}
		to := narrowConvert("cvt.rn.f16x2." + c.typ)
		for a := range uint32(1) << n {
			for b := range uint32(1) << n {
				got := to(a<<n|b, 0)
				for i, code := range []uint32{b, a} {
					v, w := minifloat.Float16.Decode(got>>(16*i)&0xffff), c.f.Decode(code)
					require.True(t, math.Float64bits(v) == math.Float64bits(w) || v != v && w != w, "%s %#x", c.typ, code)
				}
			}
		}
	}
}

// TestUndefinedSelectors: what scale_vec::4X leaves undefined is a violation.
func TestUndefinedSelectors(t *testing.T) {
	for _, c := range []struct {
		sel [4]int
		bad bool
	}{
		{[4]int{0, 0, 0, 0}, false}, {[4]int{0, 1, 0, 3}, false},
		{[4]int{1, 0, 0, 0}, true}, {[4]int{0, 2, 0, 0}, true}, {[4]int{0, 0, 2, 0}, true}, {[4]int{0, 0, 0, 4}, true},
	} {
		t.Run(fmt.Sprint(c.sel), func(t *testing.T) {
			m := ptx.NewModule("sm_121a")
			k := m.NewKernel("k", 32)
			zero := k.RegVec(ptx.B32, 8)
			for _, r := range zero {
				k.I("mov.b32", r, ptx.Imm(0))
			}
			acc := k.RegVec(ptx.F32, 4)
			for _, r := range acc {
				k.I("mov.f32", r, ptx.FImm(0))
			}
			k.I("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
				ptx.V(acc...), ptx.V(zero[:4]...), ptx.V(zero[4:6]...), ptx.V(acc...),
				ptx.V(zero[6]), ptx.Vec{ptx.Imm(c.sel[0]), ptx.Imm(c.sel[1])}, ptx.V(zero[7]), ptx.Vec{ptx.Imm(c.sel[2]), ptx.Imm(c.sel[3])})
			k.I("ret")
			err := RunKernel(m.String(), "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0)
			if !c.bad {
				require.NoError(t, err)
				return
			}
			var v *Violation
			require.True(t, errors.As(err, &v))
			require.Equal(t, ScaleSelector, v.Rule)
		})
	}
}

func BenchmarkNarrowMMA(b *testing.B) {
	rng := rand.New(rand.NewSource(1))
	for _, c := range []struct {
		name string
		macs float64
		f    mmaFunc
		n    int
	}{{"e4m3", 16 * 8 * 32, mmaNarrow("m16n8k32", "e4m3", "e4m3"), 14}, {"s8", 16 * 8 * 32, mmaNarrow("m16n8k32", "s8", "s8"), 14}, {"nvfp4", 16 * 8 * 64, mmaScaled4, 20}, {"f16", 16 * 8 * 16, mmaF16, 14}} {
		b.Run(c.name, func(b *testing.B) {
			r, v := narrowOperands(rng, c.n)
			for i := 4; i < 10; i++ {
				for l := range r[i] {
					r[i][l] &= 0x37373737
				}
			}
			for b.Loop() {
				c.f(r, v)
			}
			b.ReportMetric(c.macs*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
