package calibrate

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// wider is a trial in which a region takes 100 µs, and some layers more where their weights have 8 bits.
type wider struct {
	Trial
	g    *ir.Graph
	more func(node string) float64
}

func (w wider) Times(_ context.Context, plan *passes.Quantisation) (map[string]float64, error) {
	us := map[string]float64{}
	for _, n := range w.g.Nodes {
		if n.IsFamily(ir.FamilyView) {
			continue
		}
		name := n.Outputs[0].Name
		if us[name] = 100; plan.Layers[name].Weights != nil && plan.Layers[name].Blocks == nil {
			us[name] += w.more(n.Name)
		}
	}
	return us, nil
}

// TestFewWeightsHaveEightBits where 4 are forced: those of layers that get no slower, heads before all others, then the fewest, up to a
// part of all weights. A budget decides by itself, and who prefers size wants none.
func TestFewWeightsHaveEightBits(t *testing.T) {
	g, in := made(t, "policy", precision.NVFP4, 4)
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	regions := 0
	for _, n := range g.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			regions++
		}
	}
	trial := wider{Trial: evaluator{t, g, in, sm121}, g: g, more: func(node string) float64 {
		for name, part := range map[string]float64{"blocks.1/proj": .0031, "blocks.2/proj": -.01, "/embed/": .0029} {
			if strings.Contains(node, name) {
				return part * 100 * float64(regions)
			}
		}
		return 0
	}}
	spared := func(opt Options) (got map[string]string, added float64) {
		c, err := New(g, precision.NVFP4, in, Reference{}, nil)
		require.NoError(t, err)
		opt.Precision, opt.Target, opt.Technique = precision.NVFP4, sm121, Technique{Bias: true}
		choice, err := c.Choose(t.Context(), trial, opt)
		require.NoError(t, err)
		got = map[string]string{}
		all := 0.0
		for i, s := range c.Sites() {
			l := choice.Layers[i]
			narrowest := c.candidates(opt, &s)[0]
			all += weightBytes(narrowest, &s)
			if l.Precision == "fp8 weights" {
				got[l.Name] = l.Why
				for _, f := range precision.Layers() {
					if f.Name == l.Precision {
						added += weightBytes(f, &s) - weightBytes(narrowest, &s)
					}
				}
			}
		}
		return got, added / all
	}
	got, added := spared(Options{})
	require.Equal(t, map[string]string{
		"/embed/MatMul":                "nvfp4 weights would save 7.54 µs, 8.1 KB smaller",
		"/blocks/blocks.0/proj/MatMul": "nvfp4 weights would be no faster, 7.2 KB smaller",
		"/blocks/blocks.0/qkv/MatMul":  "nvfp4 weights would be no faster, 21.5 KB smaller",
		"/blocks/blocks.1/qkv/MatMul":  "nvfp4 weights would be no faster, 21.5 KB smaller",
		"/blocks/blocks.2/proj/MatMul": "nvfp4 weights would be no faster, 7.2 KB smaller",
		"/plan/plan.0/Gemm":            "nvfp4 weights would be no faster, 10.9 KB smaller",
		"/plan/plan.2/Gemm":            "nvfp4 weights would be no faster, 56.0 KB smaller",
	}, got)
	require.Less(t, added, spareBytes)
	require.Greater(t, added, .6*spareBytes, "the bound is near")
	got, _ = spared(Options{Smaller: true})
	require.Empty(t, got)
	got, _ = spared(Options{Smaller: true, MinCosine: .5})
	require.Empty(t, got)
}
