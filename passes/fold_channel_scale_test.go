package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// TestGainsSinkInGradients: in the gradient of adapted layers of many positions and few channels, the gain of a layer
// multiplies weights and what is a gradient of weights, and no image.
func TestGainsSinkInGradients(t *testing.T) {
	b := newGraphBuilder(t, ir.Float32)
	x := b.input("x", ir.Float32, 1, 4, 24, 24)
	layer := func(x *ir.Value, name string) *ir.Value {
		w := b.weight(0, .4, 4, 4, 1, 1)
		w.Name = name
		return b.op("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}}, x, w)
	}
	y := layer(b.op("Tanh", nil, layer(x, "first")), "second")
	loss := b.op("ReduceSum", ir.Attrs{"axes": []int{0, 1, 2, 3}}, b.op("Mul", nil, y, y))
	loss.Name = "loss"
	g := b.output(loss)
	ctx := &Context{Precision: precision.FP32, DifferentiateOptions: DifferentiateOptions{Losses: []string{"loss"}}}
	for _, name := range []string{"first", "second"} {
		a := Adapter{Name: name, Weight: name, Kind: DoRA, Rank: 2, Scale: .5}
		ctx.Adapters = append(ctx.Adapters, a)
		ctx.Variables = append(ctx.Variables, a.InputA(), a.InputB(), a.InputM())
	}
	require.NoError(t, Run(ctx, g, []string{"insert-dora", "differentiate"}, nil))
	after := g.Clone()
	require.NoError(t, Run(ctx, after, semanticNames(t, precision.FP32), nil))
	requireSameOutputs(t, g, after, 1e-5)
	gained := 0
	for _, n := range after.Nodes {
		if n.Op.Name != "Conv" {
			continue
		}
		if m := n.Inputs[0].Def; m != nil && m.Op.Name == "Mul" {
			require.False(t, isChannelScaled(m), "%v times %v", m.Inputs[0].Type, m.Inputs[1].Type)
		}
		if m := defOp(n.Inputs[1], "Mul"); m != nil {
			gained++
		}
	}
	require.GreaterOrEqual(t, gained, 3, "weights of the second layer and of both products of low rank")
}
