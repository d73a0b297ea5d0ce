package ptx

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var inf = math.Inf(1)

func TestEveryF16IsExactInF32AndComesBack(t *testing.T) {
	for h := range uint32(1 << 16) {
		e, m := int(h>>10&31), float64(h&1023)
		want := math.Ldexp(m, -24)
		switch {
		case e == 31 && m != 0:
			require.Equal(t, uint32(nan32), math.Float32bits(halfToFloat(h)), "%#x", h)
			require.Equal(t, uint32(nan16), floatToHalf(float64(halfToFloat(h))), "%#x", h)
			continue
		case e == 31:
			want = inf
		case e > 0:
			want = math.Ldexp(1024+m, e-25)
		}
		if h>>15 != 0 {
			want = -want
		}
		got := halfToFloat(h)
		require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(got), "%#x", h)
		require.Equal(t, h, floatToHalf(float64(got)), "%#x", h)
	}
}

func TestF16RoundsToNearestEvenAtEveryMidpoint(t *testing.T) {
	for h := range uint32(0x7bff) {
		lo, hi := float64(halfToFloat(h)), float64(halfToFloat(h+1))
		mid := (lo + hi) / 2
		even := h + h&1
		require.Equal(t, even, floatToHalf(mid), "%#x", h)
		require.Equal(t, h, floatToHalf(math.Nextafter(mid, 0)), "%#x", h)
		require.Equal(t, h+1, floatToHalf(math.Nextafter(mid, inf)), "%#x", h)
		require.Equal(t, even|0x8000, floatToHalf(-mid), "%#x", h)
	}
}

func TestBF16RoundsToNearestEvenAtEveryMidpoint(t *testing.T) {
	for h := range uint32(0x7f80) {
		mid := h<<16 | 0x8000
		require.Equal(t, h+h&1, floatToBF(mid))
		require.Equal(t, h, floatToBF(mid-1))
		require.Equal(t, h+1, floatToBF(mid+1))
		require.Equal(t, h|0x8000, floatToBF(mid-1|1<<31))
	}
}

// TestFMAIsRoundedOnce holds fma32 against arithmetic of unlimited precision.
func TestFMAIsRoundedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	finite := func() float32 {
		for {
			if v := f32(randomBits(r)); v-v == 0 {
				return v
			}
		}
	}
	big64 := func(v float32) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(float64(v)) }
	for range 50000 {
		x, y, z := finite(), finite(), finite()
		switch r.IntN(3) {
		case 0:
			z = -x * y
			if z-z != 0 {
				continue
			}
		case 1: // a sum just off a midpoint
			x, y, z = 1+float32(r.IntN(1<<12))*0x1p-23, 0x1p-24*(1+float32(r.IntN(4))*0x1p-23), 1+float32(r.IntN(100))*0x1p-23
		}
		exact := new(big.Float).SetPrec(1000).Mul(big64(x), big64(y))
		exact.Add(exact, big64(z))
		want, _ := exact.Float32()
		got := fma32(x, y, z)
		if want == 0 && got == 0 {
			continue // big's sign of an exact zero is its own
		}
		require.Equal(t, want, got, "%x %x %x", x, y, z)
	}
}

func TestApproximateFunctionsAreTheRoundedValue(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		x := r.NormFloat64() * 10
		require.InEpsilon(t, math.Exp2(x), Exp2(x), 1e-15)
	}
}
