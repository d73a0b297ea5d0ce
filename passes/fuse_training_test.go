package passes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// TestContractionsOfTrainingKeepWhatGradientsRead fuses layers whose gradient reads what stands in the middle of
// them: the kernel of the contraction stores that too, unless it can be had again from what is stored, and stops
// where others must run first.
func TestContractionsOfTrainingKeepWhatGradientsRead(t *testing.T) {
	const head = `graph "g" {
  input %x: f32[3,2]
  input %gain: f32[4]
  input %d: f32[3,4]
  const %w: f32[2,4] = [1, 2, 3, 4, -5, 6, -7, 8]
  const %b: f32[4] = [1, -2, 3, -4]
  %p: f32[3,4] = MatMul(%x, %w)
`
	for _, c := range []struct {
		name, body string
		kernels    int // of a step
		outputs    int // of the contraction's
		alone      int // kernels where contractions have one output
	}{
		{"the product before a gain", `
  %y: f32[3,4] = Mul(%p, %gain)
  %dp: f32[3,4] = Mul(%d, %p)
  %dgain: f32[4] = ReduceSum(%dp) {axes=[0]}
  output %y
  output %dgain
}`, 2, 2, 3},
		{"the value after the gain is computed again", `
  %q: f32[3,4] = Mul(%p, %gain)
  %h: f32[3,4] = Add(%q, %b)
  %y: f32[3,4] = Gelu(%h)
  %s: f32[3,4] = Sigmoid(%h)
  %dh: f32[3,4] = Mul(%d, %s)
  %dp: f32[3,4] = Mul(%dh, %p)
  %dgain: f32[4] = ReduceSum(%dp) {axes=[0]}
  output %y
  output %dh
  output %dgain
}`, 3, 2, 4},
		{"a mean of what is stored", `
  %m: f32[3,1] = ReduceMean(%p) {axes=[1], keepdims=true}
  %y: f32[3,4] = Sub(%p, %m)
  output %y
}`, 3, 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, training := range []bool{true, false} {
				g, err := ir.Parse(head + c.body)
				require.NoError(t, err)
				before := g.Clone()
				require.NoError(t, fuse(&Context{Precision: precision.FP16, FuseOptions: FuseOptions{Siblings: training}}, g))
				require.NoError(t, g.Verify())
				requireContract(t, g)
				requireSameOutputs(t, before, g, 1e-12)
				var contraction *ir.Node
				for _, n := range g.Nodes {
					if n.IsFamily(ir.FamilyContraction) {
						contraction = n
					}
				}
				if !training {
					require.Len(t, contraction.Outputs, 1)
					require.Equal(t, c.alone, launches(g), "%s", fullText(t, g))
					continue
				}
				require.Len(t, contraction.Outputs, c.outputs, "%s", fullText(t, g))
				require.Equal(t, c.kernels, launches(g), "%s", fullText(t, g))
			}
		})
	}
}

// TestSumsOverRowsOfTraining fuses the gradient of a gain: the kernel that computes the gradient before the gain also
// computes the first half of that sum, in parts as long as its tiles, so that nothing else reads it.
func TestSumsOverRowsOfTraining(t *testing.T) {
	for _, c := range []struct {
		rows, parts int // 0: it makes none
	}{{1024, 32}, {1056, 33}, {32768, 512}, {1040, 0}} {
		t.Run(fmt.Sprint(c.rows), func(t *testing.T) {
			g, err := ir.Parse(strings.ReplaceAll(`graph "g" {
  input %dy: f32[ROWS,8]
  input %w: f32[8,128]
  input %p: f32[ROWS,128]
  input %gain: f32[128]
  %d: f32[ROWS,128] = MatMul(%dy, %w)
  %y: f32[ROWS,128] = Mul(%d, %gain)
  %dp: f32[ROWS,128] = Mul(%d, %p)
  %dgain: f32[128] = ReduceSum(%dp) {axes=[0]}
  output %y
  output %dgain
}`, "ROWS", fmt.Sprint(c.rows)))
			require.NoError(t, err)
			before := g.Clone()
			require.NoError(t, fuse(&Context{Precision: precision.FP16, FuseOptions: FuseOptions{Siblings: true}}, g))
			require.NoError(t, g.Verify())
			requireContract(t, g)
			requireSameOutputs(t, before, g, 1e-12)
			results := func() []*ir.Value {
				return g.Nodes[slices.IndexFunc(g.Nodes, func(n *ir.Node) bool { return n.IsFamily(ir.FamilyContraction) })].Outputs
			}
			out := results()
			require.Len(t, out, 2, "%s", fullText(t, g))
			if c.parts == 0 {
				require.Equal(t, []int{c.rows, 128}, out[1].Type.Shape)
				return
			}
			require.Equal(t, []int{c.parts, 128}, out[1].Type.Shape)
			require.NoError(t, Run(&Context{Precision: precision.FP16}, g, []string{"assign-storage"}, nil))
			require.Equal(t, ir.Float32, results()[1].Type.DType, "halves of a sum are not rounded")
		})
	}
}
