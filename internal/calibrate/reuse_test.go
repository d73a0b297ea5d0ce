package calibrate

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
)

// TestFindingsMakeTheSamePlan: what a fit found, assembled for the same assignment, is the fit's own plan, also after it was
// saved and read. An assignment in which many layers differ needs a walk, and so does a layer in a format that no fit has
// seen.
func TestFindingsMakeTheSamePlan(t *testing.T) {
	for _, name := range []string{"fp8", "nvfp4"} {
		t.Run(name, func(t *testing.T) {
			g, in := made(t, "vision", name, 1)
			c, err := New(g, name, in, Reference{}, nil)
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

			again, err := New(g, name, in, Reference{}, nil)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "findings")
			require.NoError(t, c.Save(name).Write(path))
			saved, err := ReadSaved(path, again.Origin(name))
			require.NoError(t, err)
			require.NoError(t, again.Use(saved))
			require.Nil(t, again.assemble(a), "a search takes a fit of a file where it would make one")
			read, exact, err := again.made(t.Context(), a, Technique{})
			require.NoError(t, err)
			require.True(t, exact)
			require.Equal(t, f, read)

			other, err := precision.Lookup("fp6")
			require.NoError(t, err)
			first := c.Sites()[0].Name()
			was := a[first]
			a[first] = other.Ladder[0]
			require.Nil(t, c.assemble(a))
			a[first] = precision.Half
			near := c.assemble(a)
			require.NotNil(t, near)
			require.Empty(t, near.Plan.Layers[first])
			a[first] = was
			for i, s := range c.Sites() {
				if i%2 == 0 {
					a[s.Name()] = precision.Half
				}
			}
			require.Nil(t, c.assemble(a))
		})
	}
}
