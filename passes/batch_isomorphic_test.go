package passes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// twoTowers is openpilot's vision model in small: two towers of one shape on an image each, a trunk, a norm, heads of
// different widths, one Concat of all heads and the norm.
func twoTowers(t testing.TB, d ir.DType) *ir.Graph {
	b := newGraphBuilder(t, d)
	img, big := b.input("img", ir.Uint8, 1, 12, 32, 64), b.input("big_img", ir.Uint8, 1, 12, 32, 64)
	features := b.op("Concat", ir.Attrs{"axis": 1}, visionTower(b, img), visionTower(b, big))
	layer := func(x *ir.Value, out int) *ir.Value {
		in := x.Type.Shape[1]
		return b.op("Add", nil, b.op("MatMul", nil, x, b.weight(0, .2, in, out)), b.weight(0, .1, out))
	}
	hidden := b.op("LayerNorm", ir.Attrs{"axis": 1}, layer(features, 24), b.weight(1, .1, 24), b.weight(0, .1, 24))
	var parts []*ir.Value
	for _, width := range []int{5, 3, 12} {
		x := b.op("Relu", nil, layer(hidden, 16))
		parts = append(parts, layer(b.gelu(layer(x, 16)), width))
	}
	parts = append(parts, hidden)
	y := b.op("Concat", ir.Attrs{"axis": 1}, parts...)
	y.Name = "outputs"
	return b.output(y)
}

func TestTowersAndHeadsBecomeSharedLaunches(t *testing.T) {
	for name, bound := range map[string]float64{precision.FP32: 1e-4, precision.FP16: 1e-2} {
		t.Run(name, func(t *testing.T) {
			g := twoTowers(t, ir.Float16)
			before := g.Clone()
			require.NoError(t, Run(&Context{Precision: name}, g, nil, nil))
			requireContract(t, g)
			requireSameOutputs(t, before, g, bound)

			families := map[string]int{}
			for _, n := range g.Nodes {
				key := n.Region.Family
				if m := n.Region.Members; m > 0 {
					key = fmt.Sprintf("%s of %d", key, m)
				}
				families[key]++
			}
			delete(families, ir.FamilyView)
			// A tower has seven dense convolutions, qkv, attention and its projection; seven depthwise convolutions;
			// two pooled means. Alone are the conversion of both images, two layers of squeeze-excite for both
			// towers, trunk, norm, and three layers of all heads.
			require.Equal(t, map[string]int{"contraction of 2": 10, "window of 2": 7, "loop of 2": 2, "loop": 8}, families, "%s", g)
		})
	}
}
