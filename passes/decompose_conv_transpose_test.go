package passes

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestRandomTransposedConvolutionsGather draws geometries, groups, layouts, biases, constant and variable weights.
func TestRandomTransposedConvolutionsGather(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(400) {
		b := newGraphBuilder(t, ir.Float32)
		b.rng = rand.New(rand.NewPCG(seed, 3))
		pick := func(xs ...int) int { return xs[b.rng.IntN(len(xs))] }
		rank, group := pick(1, 2, 2, 3), pick(1, 1, 2, 3)
		in, each := group*pick(1, 1, 2, 4), pick(1, 2, 3)
		attrs, taps, spatial := ir.Attrs{"group": group}, []int{}, []int{}
		var strides, dilations, begin, end, extra []int
		for range rank {
			stride := pick(1, 2, 2, 3, 4)
			strides, dilations = append(strides, stride), append(dilations, pick(1, 1, 1, 2, 3))
			taps, spatial = append(taps, pick(1, 2, 3, 4, 7)), append(spatial, 2+b.rng.IntN(4))
			begin, end, extra = append(begin, pick(0, 1, 2, -1)), append(end, pick(0, 1, 2, -1)), append(extra, b.rng.IntN(stride))
		}
		attrs["strides"], attrs["dilations"], attrs["pads"], attrs["output_padding"] = strides, dilations, append(begin, end...), extra
		shape := append([]int{pick(1, 2), in}, spatial...)
		if b.rng.IntN(2) == 0 {
			attrs["layout"] = "NHWC"
			shape = permute(shape, toLast(len(shape)))
		}
		ws := append([]int{in, each}, taps...)
		inputs := []*ir.Value{b.input("x", ir.Float32, shape...)}
		if variable := b.rng.IntN(3) == 0; variable {
			inputs = append(inputs, b.input("w", ir.Float32, ws...))
		} else {
			inputs = append(inputs, b.weight(0, .3, ws...))
		}
		if b.rng.IntN(2) == 0 {
			inputs = append(inputs, b.weight(0, .3, group*each))
		}
		n, err := b.g.NewNode("ConvTranspose", "y", attrs, inputs...)
		if err != nil {
			continue // nothing is left of the image
		}
		b.g.Nodes, b.g.Outputs = append(b.g.Nodes, n), n.Outputs
		t.Run(fmt.Sprintf("%d %v of %v by %v", seed, attrs, shape, ws), func(t *testing.T) {
			after := b.g.Clone()
			require.NoError(t, Run(&Context{}, after, []string{"decompose-conv-transpose", "fold"}, nil))
			requireSameOutputs(t, b.g, after, 1e-12)
			convs := 0
			for _, n := range after.Nodes {
				counts[n.Op.Name]++
				switch {
				case n.Op.Name == "Conv":
					convs++
				case n.Op.Name == "Pad" && n.Inputs[0].Type.Rank() > len(shape):
					counts["among zeros"]++
				}
			}
			counts[fmt.Sprintf("of %d", min(convs, 2))]++
		})
	}
	t.Log(counts)
	require.Greater(t, counts["of 1"], 100)
	require.Greater(t, counts["of 2"], 30)
	require.Greater(t, counts["among zeros"], 20)
	require.Less(t, counts["ConvTranspose"], 20)
}
