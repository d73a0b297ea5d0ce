package ir

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conv is a Conv of 3×3 taps on an NHWC image.
func conv(t *testing.T, in, out, group int) *Node {
	t.Helper()
	g := NewGraph("conv")
	n, err := g.Add("Conv", "conv", Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": group, "layout": "NHWC"},
		g.AddInput("x", T(Float32, 1, 5, 7, in)), g.AddInput("w", T(Float32, out, in/group, 3, 3)))
	require.NoError(t, err)
	return n
}

func TestDepthwiseIsOneOfSeveralInputChannelsAGroup(t *testing.T) {
	for _, c := range []struct {
		in, out, group int
		want           bool
	}{
		{1, 1, 1, false}, {1, 8, 1, false}, {8, 1, 1, false}, {8, 8, 1, false},
		{8, 8, 2, false}, {8, 4, 4, false}, {8, 2, 2, false},
		{8, 8, 8, true}, {8, 16, 8, true}, {2, 2, 2, true},
	} {
		assert.Equal(t, c.want, conv(t, c.in, c.out, c.group).Depthwise(), "%+v", c)
	}
}
