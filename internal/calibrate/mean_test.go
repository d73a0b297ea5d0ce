package calibrate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestMeansAreOfChannelsAndMembers: means have 4 significant bits; values that vary far more than their means are
// left out.
func TestMeansAreOfChannelsAndMembers(t *testing.T) {
	x := func(shape []int, xs ...float64) []*ir.Tensor {
		return []*ir.Tensor{ir.FromFloats(ir.Type{DType: ir.Float32, Shape: shape}, xs)}
	}
	require.Equal(t, []float64{2, -1.125}, channelMeans(x([]int{2, 2}, 1, -1.1, 3, -1.1), false))
	require.Equal(t, []float64{1, -1.125, 3, -1.125}, channelMeans(x([]int{2, 1, 2}, 1, -1.1, 3, -1.1), true))
	require.Nil(t, channelMeans(x([]int{2, 2}, 1, 1, -1, -.9), false))
	both := append(x([]int{1, 1}, 1), x([]int{1, 1}, 3)...)
	require.Equal(t, []float64{2}, channelMeans(both, false))
}
