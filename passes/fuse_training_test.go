package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// TestContractionsOfTrainingKeepWhatGradientsRead fuses layers whose gradient reads what stands in the middle of them: the kernel of
// the contraction stores that too, unless it can be had again from what is stored, and stops where others must run first.
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
		{"the product in front of a gain", `
  %y: f32[3,4] = Mul(%p, %gain)
  %dp: f32[3,4] = Mul(%d, %p)
  %dgain: f32[4] = ReduceSum(%dp) {axes=[0]}
  output %y
  output %dgain
}`, 2, 2, 3},
		{"what is behind the gain is computed again", `
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
				require.NoError(t, fuse(&Context{Precision: precision.FP16, Siblings: training}, g))
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
