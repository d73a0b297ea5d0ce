package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// TestAnAdaptersProductJoinsItsLayers fuses layers with what an adapter of low rank adds to them.
func TestAnAdaptersProductJoinsItsLayers(t *testing.T) {
	for _, c := range []struct {
		name, text string
		anchors    []string // of the contractions, in order
	}{
		{"a layer", `graph "g" {
  input %x: f32[3,5,4]
  input %u: f32[3,5,2]
  input %b: f32[3,2]
  const %w: f32[4,3] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %p: f32[3,5,3] = MatMul(%x, %w)
  %q: f32[3,5,3] = MatMul(%u, %b) {transB=true}
  %y: f32[3,5,3] = Add(%p, %q)
  output %y
}`, []string{"MatMulSum"}},
		{"a convolution that moves nowhere, and the gradient of its image", `graph "g" {
  input %x: f32[2,3,3,4]
  input %u: f32[2,3,3,2]
  input %a: f32[2,3,1,1]
  const %w: f32[3,4,1,1] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %t: f32[3,2,1,1] = Transpose(%a) {perm=[1,0,2,3]}
  %p: f32[2,3,3,3] = Conv(%x, %w) {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], layout="NHWC"}
  %q: f32[2,3,3,3] = Conv(%u, %t) {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], layout="NHWC"}
  %y: f32[2,3,3,3] = Add(%q, %p)
  output %y
}`, []string{"MatMulSum"}},
		{"neither a stride", `graph "g" {
  input %x: f32[2,5,5,4]
  input %u: f32[2,3,3,2]
  input %a: f32[3,2,1,1]
  const %w: f32[3,4,1,1] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %p: f32[2,3,3,3] = Conv(%x, %w) {strides=[2,2], pads=[0,0,0,0], dilations=[1,1], layout="NHWC"}
  %q: f32[2,3,3,3] = Conv(%u, %a) {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], layout="NHWC"}
  %y: f32[2,3,3,3] = Add(%q, %p)
  output %y
}`, []string{"Conv", "Conv"}},
		{"nor what others read, too", `graph "g" {
  input %x: f32[5,4]
  input %u: f32[5,2]
  input %b: f32[2,3]
  const %w: f32[4,3] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %p: f32[5,3] = MatMul(%x, %w)
  %q: f32[5,3] = MatMul(%u, %b)
  %y: f32[5,3] = Add(%p, %q)
  output %y
  output %q
}`, []string{"MatMul", "MatMul"}},
		{"nor as many products as the layer's", `graph "g" {
  input %x: f32[5,4]
  input %u: f32[5,3]
  input %b: f32[3,3]
  const %w: f32[4,3] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %p: f32[5,3] = MatMul(%x, %w)
  %q: f32[5,3] = MatMul(%u, %b)
  %y: f32[5,3] = Add(%p, %q)
  output %y
}`, []string{"MatMul", "MatMul"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, training := range []bool{true, false} {
				g, err := ir.Parse(c.text)
				require.NoError(t, err)
				before := g.Clone()
				require.NoError(t, fuse(&Context{Precision: precision.FP16, FuseOptions: FuseOptions{Siblings: training}}, g))
				require.NoError(t, g.Verify())
				requireContract(t, g)
				requireSameOutputs(t, before, g, 1e-12)
				if training {
					require.Equal(t, c.anchors, anchors(g), "%s", fullText(t, g))
				} else {
					require.NotContains(t, anchors(g), "MatMulSum")
				}
			}
		})
	}
}

// anchors are the ops at which a graph's contractions are anchored.
func anchors(g *ir.Graph) []string {
	var names []string
	for _, n := range g.Nodes {
		if n.IsFamily(ir.FamilyContraction) {
			names = append(names, n.Region.Anchor().Op.Name)
		}
	}
	return names
}

// TestFuse_ScaleAfterAttentionGradientIsAFactor: the layer multiplies by it as it reads, and an adapter's few numbers
// take it.
func TestFuse_ScaleAfterAttentionGradientIsAFactor(t *testing.T) {
	for name, last := range map[string]string{
		"of products alone":   "",
		"of an output, too":   "  output %g\n",
		"of the other matrix": "  %o: f32[1,4,4] = MatMul(%x, %g) {transB=true}\n  output %o\n",
	} {
		t.Run(name, func(t *testing.T) {
			text := `graph "g" {
  input %qkv: f32[1,4,3,2,4]
  input %dy: f32[1,2,4,4]
  input %gain: f32[24]
  input %b: f32[24,2]
  input %bt: f32[2,24]
  input %a: f32[2,24]
  input %x: f32[1,4,24]
  input %u: f32[1,4,2]
  const %w: f32[24,24] = splat 0.5
  %t: f32[3,1,2,4,4] = Transpose(%qkv) {perm=[2,0,3,1,4]}
  %q1: f32[1,1,2,4,4] = Slice(%t) {sizes=[1,1,2,4,4], starts=[0,0,0,0,0]}
  %q: f32[1,2,4,4] = Reshape(%q1) {shape=[1,2,4,4]}
  %k1: f32[1,1,2,4,4] = Slice(%t) {sizes=[1,1,2,4,4], starts=[1,0,0,0,0]}
  %k: f32[1,2,4,4] = Reshape(%k1) {shape=[1,2,4,4]}
  %v1: f32[1,1,2,4,4] = Slice(%t) {sizes=[1,1,2,4,4], starts=[2,0,0,0,0]}
  %v: f32[1,2,4,4] = Reshape(%v1) {shape=[1,2,4,4]}
  %d: f32[3,1,2,4,4] = AttentionGrad(%q, %k, %v, %dy) {scale=0.5}
  %p: f32[1,4,3,2,4] = Transpose(%d) {perm=[1,3,0,2,4]}
  %z: f32[1,4,24] = Reshape(%p) {shape=[1,4,24]}
  %g: f32[1,4,24] = Mul(%z, %gain)
  %du: f32[1,4,2] = MatMul(%g, %b)
  %dt: f32[1,4,2] = MatMul(%g, %bt) {transB=true}
  %dx: f32[1,4,24] = MatMul(%g, %w)
  %da: f32[1,4,24] = MatMul(%du, %a)
  %dxa: f32[1,4,24] = Add(%dx, %da)
  %db: f32[1,24,2] = MatMul(%g, %u) {transA=true}
  %dbt: f32[1,2,24] = MatMul(%u, %g) {transA=true}
  output %dxa
  output %db
  output %dbt
  output %dt
` + last + "}"
			g, err := ir.Parse(text)
			require.NoError(t, err)
			before := g.Clone()
			require.NoError(t, fuse(&Context{Precision: precision.FP16, FuseOptions: FuseOptions{Siblings: true}}, g))
			require.NoError(t, g.Verify())
			requireContract(t, g)
			requireSameOutputs(t, before, g, 1e-12)
			factors := 0
			for _, n := range g.Nodes {
				if n.IsFamily(ir.FamilyContraction) && n.Region.Anchor().Op.Name == "MatMulSum" {
					factors = len(n.Region.Anchor().Inputs) - 4
				}
			}
			if last != "" {
				require.Zero(t, factors)
				return
			}
			require.Equal(t, 1, factors, "%s", fullText(t, g))
			require.NoError(t, Run(&Context{Precision: precision.FP16}, g, []string{"assign-storage"}, nil))
			for _, n := range g.Nodes {
				if a := n.Region.Anchor(); a != nil && a.Op.Name == "MatMulSum" {
					for i, k := range []ir.DType{ir.Float16, ir.Float16, ir.Float16, ir.Float16, ir.Float32} {
						from, _, ok := n.Region.Source(a.Inputs[i])
						require.True(t, ok)
						require.Equal(t, k, n.Region.Operands[from].DType, "operand %d", i)
					}
				}
			}
		})
	}
}
