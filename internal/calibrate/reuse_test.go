package calibrate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
)

// TestFindingsMakeTheSamePlan: what a fit found, assembled for the same assignment, is the fit's own plan. An assignment with
// a layer in a format that no fit has seen needs a walk.
func TestFindingsMakeTheSamePlan(t *testing.T) {
	for _, name := range []string{"fp8", "nvfp4"} {
		t.Run(name, func(t *testing.T) {
			g, in := made(t, "vision", name, 1)
			c, err := New(g, in, Reference{}, nil)
			require.NoError(t, err)
			c.several = true
			p, err := precision.Lookup(name)
			require.NoError(t, err)
			a := Assignment{}
			for i, s := range c.Sites() {
				if a[s.Name()] = p.Ladder[0].WeightsOnly(); !s.Segmented() && i%4 != 0 {
					a[s.Name()] = p.Ladder[0]
				}
			}
			f, err := c.fit(t.Context(), a, Technique{Bias: true})
			require.NoError(t, err)
			require.Equal(t, f, c.assemble(a))
			other, err := precision.Lookup("fp6")
			require.NoError(t, err)
			a[c.Sites()[0].Name()] = other.Ladder[0]
			require.Nil(t, c.assemble(a))
		})
	}
}
