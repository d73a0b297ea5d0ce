package compile

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// TestWindowsHaveTheBitsOfTheirKernel: of every stride, dilation, padding and number of channels that need no kernel.
func TestWindowsHaveTheBitsOfTheirKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	d, err := newNative(target.Default())
	require.NoError(t, err)
	defer d.Close()
	direct := 0
	for i := range 60 {
		kernel, stride, dilation := []int{1 + rng.IntN(5), 1 + rng.IntN(5)}, []int{1 + rng.IntN(3), 1 + rng.IntN(3)}, []int{1 + rng.IntN(2), 1 + rng.IntN(2)}
		pads := []int{rng.IntN(3), rng.IntN(3), rng.IntN(3), rng.IntN(3)}
		channels, height, width := 8*(1+rng.IntN(8)), 9+rng.IntN(12), 9+rng.IntN(12)
		tensor := func(shape ...int) *ir.Tensor {
			a := ir.NewArray(ir.Type{DType: ir.Float32, Shape: shape})
			for k := range a.F {
				a.F[k] = float64(float32(rng.NormFloat64()))
			}
			return a.Tensor()
		}
		b := ir.NewGraph("body")
		x := b.AddInput("x", ir.Type{DType: ir.Float32, Shape: []int{1 + i%2, height, width, channels}})
		weights := tensor(channels, 1, kernel[0], kernel[1])
		operands, given := []*ir.Value{x, b.AddInput("w", weights.Type)}, []*ir.Tensor{nil, weights}
		if i%3 > 0 {
			bias := tensor(channels)
			operands, given = append(operands, b.AddInput("b", bias.Type)), append(given, bias)
		}
		y, err := b.Add("Conv", "conv", ir.Attrs{"strides": stride, "pads": pads, "dilations": dilation, "group": channels, "layout": "NHWC"}, operands...)
		require.NoError(t, err)
		b.Outputs = y.Outputs
		plain := ir.Storage{DType: ir.Float32}
		r := &ir.Region{Family: ir.FamilyWindow, Body: b, Results: []ir.Storage{plain}}
		g := ir.NewGraph("graph")
		var inputs []*ir.Value
		for k, v := range operands {
			r.Operands = append(r.Operands, ir.Operand{Storage: plain})
			if given[k] == nil {
				inputs = append(inputs, g.AddInput(v.Name, v.Type))
			} else {
				inputs = append(inputs, g.Constant(v.Name, given[k]))
			}
		}
		n, err := g.RegionNode("window", r, inputs...)
		require.NoError(t, err)
		var in [][]*ir.Tensor
		for range 2 {
			in = append(in, append([]*ir.Tensor{tensor(x.Type.Shape...)}, given[1:]...))
		}
		w, _ := windowOf(n)
		if w == nil {
			continue
		}
		direct++
		got, err := d.Evaluate(context.Background(), n, in, rubbish(n, len(in)))
		require.NoError(t, err)
		program, err := d.program(context.Background(), n)
		require.NoError(t, err)
		want, err := program.run(context.Background(), n, in, nil)
		require.NoError(t, err)
		require.NoError(t, program.Close())
		require.Equal(t, want, got, "%d: %v", i, n)
	}
	if direct == 0 {
		t.Skip("this processor does not fuse: kernels compute windows")
	}
	require.Equal(t, 60, direct)
}
