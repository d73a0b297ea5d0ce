package modeld

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicturesThatFit(t *testing.T) {
	for name, p := range map[string]Picture{
		"rows without padding": {Data: make([]byte, 8*4*3/2), Width: 8, Height: 4},
		"camera's buffer":      {Data: make([]byte, 16*4+32+16*2), Width: 8, Height: 4, Stride: 16, UV: 16*4 + 32},
		"last row is cut off":  {Data: make([]byte, 16*4+16+8), Width: 8, Height: 4, Stride: 16},
	} {
		require.NoError(t, p.check("Road"), name)
	}
	stride, uv := Picture{Width: 8, Height: 4, Stride: 16}.layout()
	require.Equal(t, []int{16, 64}, []int{stride, uv})
}

func TestPicturesThatDoNotFitAreNamed(t *testing.T) {
	data := make([]byte, 48)
	for want, p := range map[string]Picture{
		"Road: a width of 0 pixels: an NV12 picture has an even number, from 2 to 32768; crop it":  {},
		"Road: a width of 7 pixels: an NV12 picture has an even number, from 2 to 32768; crop it":  {Data: data, Width: 7, Height: 4},
		"Road: a height of 3 pixels: an NV12 picture has an even number, from 2 to 32768; crop it": {Data: data, Width: 8, Height: 3},
		"Road: a height of 40000 pixels: an NV12 picture has an even number, from 2 to 32768; crop it": {
			Data: data, Width: 8, Height: 40000,
		},
		"Road: a stride of 6 bytes is shorter than a row of 8 pixels: give the bytes from row to row, or 0 if rows are not padded": {
			Data: data, Width: 8, Height: 4, Stride: 6,
		},
		"Road: a stride of 9223372036854775807 bytes, but 48 bytes of data: the whole buffer must be given, padding included": {
			Data: data, Width: 8, Height: 4, Stride: math.MaxInt,
		},
		"Road: chroma rows at byte 31 lie in the luma rows, which end at 32: UV is the offset of the chroma rows, or 0 if they follow at once": {
			Data: data, Width: 8, Height: 4, UV: 31,
		},
		"Road: frame too short: 48 bytes, need 49 (4 luma rows of 8 bytes, then chroma from byte 33): pass the whole buffer": {
			Data: data, Width: 8, Height: 4, UV: 33,
		},
		"Road: frame too short: 47 bytes, need 48 (4 luma rows of 8 bytes, then chroma from byte 32): pass the whole buffer": {
			Data: data[:47], Width: 8, Height: 4,
		},
		"Road: frame too short: 48 bytes, need 9223372036854775823 (4 luma rows of 8 bytes, then chroma from byte 9223372036854775807): pass the whole buffer": {
			Data: data, Width: 8, Height: 4, UV: math.MaxInt,
		},
	} {
		require.EqualError(t, p.check("Road"), want)
	}
}
