package ir

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTensorsKeepTheirElements(t *testing.T) {
	for d := Bool; d < numDTypes; d++ {
		t.Run(d.String(), func(t *testing.T) {
			want := []int64{1, 0, 1, 1, 0}
			switch {
			case d.IsFloat():
				x := []float64{1, 0.5, 2, 4, 1}
				assert.Equal(t, x, FromFloats(T(d, 5), x).Floats())
				a := FromFloats(T(d, 5), x).Array()
				assert.Equal(t, FromFloats(T(d, 5), x).Data, a.Tensor().Data)
				return
			case d.IsSigned():
				want = []int64{-2, 1, -1, 0, 1}
			}
			tensor := FromInts(T(d, 5), want)
			assert.Equal(t, want, tensor.Ints())
			assert.Len(t, tensor.Data, (5*d.Bits()+7)/8)
			assert.Equal(t, want, tensor.Array().I)
		})
	}
}

func TestSubByteElementsArePackedLowestBitsFirst(t *testing.T) {
	assert.Equal(t, []byte{0x21, 0x0F}, FromInts(T(Int4, 3), []int64{1, 2, -1}).Data)
	assert.Equal(t, []byte{0b11_10_01_00, 0b01}, FromInts(T(Uint2, 5), []int64{0, 1, 2, 3, 1}).Data)
	assert.Equal(t, []byte{0x72}, FromFloats(T(Float4E2M1, 2), []float64{1, 6}).Data)
}

func TestSplatsExpand(t *testing.T) {
	s := Splat(T(Float16, 3), 1.5)
	assert.Equal(t, []byte{0, 0x3E}, s.Data)
	assert.Equal(t, []byte{0, 0x3E, 0, 0x3E, 0, 0x3E}, s.Dense())
	assert.Equal(t, []float64{1.5, 1.5, 1.5}, s.Floats())
	dense := FromFloats(T(Float16, 3), []float64{1.5, 1.5, 1.5})
	assert.True(t, s.Equal(dense))
	assert.True(t, dense.Compact().Splat)
	assert.False(t, s.Equal(Splat(T(Float16, 3), 1)))
	assert.Equal(t, []byte{0xFF, 0x0F}, SplatInt(T(Int4, 3), -1).Dense())
}

func TestNewTensorRefusesDataOfAnotherLength(t *testing.T) {
	_, err := NewTensor(T(Float32, 2), make([]byte, 7))
	require.EqualError(t, err, "f32[2] takes 8 bytes, not 7")
	_, err = NewTensor(T(Float32, 1<<30, 1<<30), nil)
	require.ErrorContains(t, err, "2^40")
}

func TestUint64IsItsBits(t *testing.T) {
	tensor := FromInts(T(Uint64, 1), []int64{-1})
	assert.Equal(t, []int64{-1}, tensor.Ints())
	assert.Equal(t, []float64{math.MaxUint64}, tensor.Floats())
}

// TestHalvesDecodeFastAsByTheirFormat tries every code.
func TestHalvesDecodeFastAsByTheirFormat(t *testing.T) {
	for code := range 1 << 16 {
		want, got := DecodeFloat(Float16, uint64(code)), decodeHalf(uint16(code))
		require.True(t, math.Float64bits(want) == math.Float64bits(got) || math.IsNaN(want) && math.IsNaN(got), "%#x", code)
	}
}
