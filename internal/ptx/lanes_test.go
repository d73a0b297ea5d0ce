package ptx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// interesting are f32 bit patterns at which rounding and NaN rules show.
var interesting = []uint32{0, 1 << 31, 1, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff,
	0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x3f800001, 0x33800000, 0x4b800001, 0x00000003}

func randomBits(r *rand.Rand) uint32 {
	switch r.IntN(4) {
	case 0:
		return interesting[r.IntN(len(interesting))]
	case 1:
		return r.Uint32()
	}
	return math.Float32bits(float32(r.NormFloat64()))
}

func TestVectorRowsEqualTheGoRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name      string
		fast, ref func(d, a, b, c *Row32)
	}{{"add", addF, addFGo}, {"sub", subF, subFGo}, {"mul", mulF, mulFGo}, {"fma", fmaF, fmaFGo},
		{"integer add", addR, add[uint32]}, {"integer mad", madR, multiplyAdd[uint32]}, {"and", andR, bitsAnd[uint32]}, {"shl", shlR, shlGo}, {"shr", shrR, shrGo},
		{"max", maxF, maxFGo}, {"half", halfF, halfFGo}, {"halves", halvesF, halvesFGo}} {
		for range 5000 {
			var a, b, z, got, want Row32
			for l := range a {
				a[l], b[l], z[l] = randomBits(r), randomBits(r), randomBits(r)
				if r.IntN(4) == 0 { // a shift in range
					b[l] &= 63
				}
				if r.IntN(4) == 0 { // cancellation
					z[l] = math.Float32bits(-f32(a[l]) * f32(b[l]))
				}
			}
			c.fast(&got, &a, &b, &z)
			c.ref(&want, &a, &b, &z)
			require.Equal(t, want, got, "%s of %x, %x, %x", c.name, a, b, z)
		}
	}
}

func TestVectorWideningEqualsTheGoRow(t *testing.T) {
	for h := uint32(0); h < 1<<16; h += 32 {
		var a, got, want Row32
		for l := range a {
			a[l] = h + uint32(l)
		}
		widenF(&got, &a, &a, &a)
		widenFGo(&want, &a, &a, &a)
		require.Equal(t, want, got)
		// And rounding at the midpoints and beside them.
		for _, beside := range []uint32{0, 1, ^uint32(0)} {
			var mid, half Row32
			for l := range mid {
				mid[l] = want[l] + 1<<12 + beside
			}
			halfF(&got, &mid, &a, &a)
			halfFGo(&half, &mid, &a, &a)
			require.Equal(t, half, got)
		}
	}
}

func TestVectorMMAEqualsTheFragmentMaps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, c := range map[string]struct{ fast, ref mmaFunc }{"f16": {mmaF16, mmaF16Go}, "bf16": {mmaBF16, mmaBF16Go}} {
		for trial := range 2000 {
			rows := make([]Row32, 20)
			for i := range rows {
				for l := range rows[i] {
					rows[i][l] = r.Uint32()
					if trial%2 == 0 { // finite numbers of like size
						rows[i][l] = rows[i][l]&0x83ff83ff | 0x3c003c00
						if name == "bf16" {
							rows[i][l] = rows[i][l]&0x80ff80ff | 0x3f003f00
						}
					}
				}
			}
			v := make([]int32, 14)
			for i := range v {
				v[i] = int32(r.IntN(len(rows)))
			}
			perm := r.Perm(len(rows)) // destinations differ, sources may coincide with anything
			for i := range 4 {
				v[i] = int32(perm[i])
			}
			want := append([]Row32(nil), rows...)
			c.ref(want, v)
			c.fast(rows, v)
			require.Equal(t, want, rows, "%s, rows %v", name, v)
		}
	}
}

// TestMMAIsAMatrixProduct holds the fragment maps against plain matrices: D = A·B + C.
func TestMMAIsAMatrixProduct(t *testing.T) {
	var a [16][16]float64
	var b [16][8]float64
	rows := make([]Row32, 14)
	v := make([]int32, 14)
	for i := range v {
		v[i] = int32(i)
	}
	for i := range a {
		for k := range a[i] {
			a[i][k] = float64((3*i+5*k)%7 - 3)
		}
		for j := range b[i] {
			b[i][j] = float64((2*i+3*j)%5 - 2)
		}
	}
	// PTX ISA, figures of mma.m16n8k16: spelled out once more, by hand, for the lanes.
	put := func(row, lane, half int, x float64) { rows[row][lane] |= floatToHalf(x) << (16 * half) }
	for lane := range 32 {
		g, t := lane>>2, lane&3
		for h := range 2 {
			put(4, lane, h, a[g][2*t+h])
			put(5, lane, h, a[g+8][2*t+h])
			put(6, lane, h, a[g][2*t+8+h])
			put(7, lane, h, a[g+8][2*t+8+h])
			put(8, lane, h, b[2*t+h][g])
			put(9, lane, h, b[2*t+8+h][g])
		}
		for e := range 4 {
			rows[10+e][lane] = math.Float32bits(float32(100*lane + e))
		}
	}
	mmaF16(rows, v)
	for lane := range 32 {
		g, c := lane>>2, lane&3*2
		for e := range 4 {
			i, j := g+e/2*8, c+e%2
			want := float64(100*lane + e)
			for k := range 16 {
				want += a[i][k] * b[k][j]
			}
			require.Equal(t, float32(want), f32(rows[e][lane]), fmt.Sprintf("element %d, %d", i, j))
		}
	}
}
