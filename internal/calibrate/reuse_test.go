package calibrate

import (
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestFindingsMakeTheSamePlan: what a fit found, assembled for the same assignment, is the fit's own plan, also after it was
// saved and read. A layer in a format that no fit has seen needs a walk. Layers in 16 bits have no correction where others have other
// formats than in the fit.
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
				if a[s.Name()] = p.Candidates[0].WeightsOnly(); !s.Segmented() && i%4 != 0 {
					a[s.Name()] = p.Candidates[0]
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
			read, err := again.made(t.Context(), a, Technique{})
			require.NoError(t, err)
			require.Equal(t, f, read)
			require.Equal(t, c.found.means, again.found.means)

			other, err := precision.Lookup("fp6")
			require.NoError(t, err)
			first := c.Sites()[0].Name()
			was := a[first]
			a[first] = other.Candidates[0]
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
			far := c.assemble(a)
			require.NotNil(t, far)
			for name, l := range far.Plan.Layers {
				require.NotEqual(t, precision.Half, a.of(name))
				require.NotNil(t, l.Bias)
			}
		})
	}
}

// TestAFitAgainIsAFit that recovers no earlier errors: of the same assignment it has the same weights, and the same corrections but for
// the rounding of means.
func TestAFitAgainIsAFit(t *testing.T) {
	fulltest.Long(t)
	for _, name := range []string{"fp8", "nvfp4"} {
		g, in := made(t, "policy", name, leastTrials-1) // none is held out: candidates that are tried on them depend on errors of preceding layers
		p, err := precision.Lookup(name)
		require.NoError(t, err)
		fits := func(t *testing.T, tech Technique) (first, again *Fitted) {
			c, err := New(g, name, in, Reference{}, nil)
			require.NoError(t, err)
			c.several = true
			a := Assignment{}
			for i, s := range c.Sites() {
				if !s.Segmented() && i%4 != 0 {
					a[s.Name()] = p.Candidates[0].WeightsOnly()
				}
			}
			first, err = c.fit(t.Context(), a, tech)
			require.NoError(t, err)
			again, err = c.refit(t.Context(), a, tech)
			require.NoError(t, err)
			require.True(t, reflect.DeepEqual(again.Plan, c.assemble(a).Plan), "later candidates are made of the last fit")
			return first, again
		}
		t.Run(name+" weights", func(t *testing.T) {
			first, again := fits(t, Technique{Feedback: true})
			require.True(t, reflect.DeepEqual(first.Plan, again.Plan))
		})
		t.Run(name+" means", func(t *testing.T) {
			first, again := fits(t, Technique{Bias: true})
			corrected := 0
			for name, l := range first.Plan.Layers {
				greatest := 0.0
				for _, x := range l.Bias {
					greatest = max(greatest, math.Abs(x))
				}
				require.InDeltaSlice(t, l.Bias, again.Plan.Layers[name].Bias, 1e-2*greatest)
				if greatest > 0 {
					corrected++
				}
			}
			require.Greater(t, corrected, 5)
		})
	}
}
