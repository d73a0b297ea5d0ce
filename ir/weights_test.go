package ir

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWeightsConnectTheirChannels: with one weight 1 and the others 0, an op passes one input channel on to one
// output channel.
func TestWeightsConnectTheirChannels(t *testing.T) {
	image := func(c, size int) Type { return T(Float64, 2, c, size, size) }
	conv := Attrs{"strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}, "group": 2}
	last := conv.Clone()
	last["layout"] = "NHWC"
	transposed := conv.Clone()
	transposed["output_padding"] = []int{0, 0}
	for _, c := range []struct {
		op    string
		attrs Attrs
		x, w  Type
	}{
		{"Conv", conv, image(4, 3), T(Float64, 6, 2, 3, 2)},
		{"Conv", last, T(Float64, 2, 3, 3, 4), T(Float64, 6, 2, 3, 2)},
		{"ConvTranspose", transposed, image(4, 2), T(Float64, 4, 3, 3, 2)},
		{"MatMul", nil, T(Float64, 2, 3), T(Float64, 3, 5)},
		{"MatMul", nil, T(Float64, 3), T(Float64, 1, 3, 5)},
		{"MatMul", Attrs{"transA": true}, T(Float64, 3, 2), T(Float64, 3, 5)},
		{"MatMul", Attrs{"transB": true}, T(Float64, 4, 2, 3), T(Float64, 5, 3)},
	} {
		g := NewGraph("g")
		n, err := g.Add(c.op, "n", c.attrs, g.AddInput("x", c.x), g.AddInput("w", c.w))
		require.NoError(t, err)
		w, ok := n.Weights()
		require.True(t, ok)
		y := n.Outputs[0].Type
		channel := func(shape []int, axis, i int) int { return i / (Type{Shape: shape[axis+1:]}).Numel() % shape[axis] }
		require.Equal(t, c.x.Shape[w.InAxis], w.Inputs())
		require.Equal(t, y.Shape[n.ChannelAxis()], w.Outputs())
		require.Equal(t, c.w.Shape[w.OutputAxis()]*c.w.Shape[w.InputAxis()]*w.Taps, c.w.Numel())
		for i := range c.w.Numel() {
			one := NewArray(c.w)
			one.F[i] = 1
			for from := range w.Inputs() {
				x := NewArray(c.x)
				for at := range x.F {
					if channel(c.x.Shape, w.InAxis, at) == from {
						x.F[at] = 1
					}
				}
				reached := map[int]bool{}
				for at, v := range apply(t, c.op, c.attrs, x, one)[0].F {
					if v != 0 {
						reached[channel(y.Shape, n.ChannelAxis(), at)] = true
					}
				}
				want := map[int]bool{}
				if from == w.Input(i) {
					want[w.Output(i)] = true
				}
				require.Equal(t, want, reached, fmt.Sprint(c.op, c.attrs, " weight ", i, " from channel ", from))
			}
		}
	}
}
