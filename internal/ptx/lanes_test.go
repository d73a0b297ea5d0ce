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
	matrices{a: elementsF16, b: elementsF16}.multiply(rows, v)
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
