package compile

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// TestWindowsHaveTheBitsOfTheirKernel: of every stride, dilation, padding, number of channels and of members that need no kernel.
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
		operands := []*ir.Value{x, b.AddInput("w", ir.T(ir.Float32, channels, 1, kernel[0], kernel[1]))}
		if i%3 > 0 {
			operands = append(operands, b.AddInput("b", ir.T(ir.Float32, channels)))
		}
		given := make([]*ir.Tensor, len(operands))
		y, err := b.Add("Conv", "conv", ir.Attrs{"strides": stride, "pads": pads, "dilations": dilation, "group": channels, "layout": "NHWC"}, operands...)
		require.NoError(t, err)
		b.Outputs = y.Outputs
		plain := ir.Storage{DType: ir.Float32}
		r := &ir.Region{Family: ir.FamilyWindow, Body: b, Results: []ir.Storage{plain}, Members: []int{0, 3}[i/2%2]}
		g := ir.NewGraph("graph")
		var inputs []*ir.Value
		for k, v := range operands {
			o := ir.Operand{Storage: plain, Batched: r.Members > 0 && rng.IntN(4) > 0}
			shape := v.Type.Shape
			if o.Batched {
				shape = append([]int{r.Members}, shape...)
			}
			if r.Operands = append(r.Operands, o); k == 0 {
				inputs = append(inputs, g.AddInput(v.Name, ir.Type{DType: ir.Float32, Shape: shape}))
			} else {
				given[k] = tensor(shape...)
				inputs = append(inputs, g.Constant(v.Name, given[k]))
			}
		}
		n, err := g.RegionNode("window", r, inputs...)
		require.NoError(t, err)
		var in [][]*ir.Tensor
		for range 2 {
			in = append(in, append([]*ir.Tensor{tensor(inputs[0].Type.Shape...)}, given[1:]...))
		}
		w, _ := windowsOf(n)
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
