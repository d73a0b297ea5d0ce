package calibrate

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// splitting is a trial in which a region takes 100 µs, and a layer more where its weights are in two terms.
type splitting struct {
	Trial
	g     *ir.Graph
	more  func(node string) float64
	asked *[]string // layers whose weights are, of all calls
}

func (p splitting) Times(_ context.Context, plan *passes.Quantisation) (map[string]float64, error) {
	us := map[string]float64{}
	for _, n := range p.g.Nodes {
		if n.IsFamily(ir.FamilyView) {
			continue
		}
		name := n.Outputs[0].Name
		if us[name] = 100; plan.Layers[name].Split {
			us[name] += p.more(n.Name)
			*p.asked = append(*p.asked, n.Name)
		}
	}
	return us, nil
}

// TestFewWeightsAreSplit where kernels take about as long: what a layer costs is bounded, and what all cost, in time and in bytes.
func TestFewWeightsAreSplit(t *testing.T) {
	g, in := made(t, "policy", precision.FP8, 4)
	c, err := New(g, precision.FP8, in, Reference{}, nil)
	require.NoError(t, err)
	sites := slices.DeleteFunc(c.Sites(), func(s passes.Site) bool { return s.Segmented() })
	regions := 0
	for _, n := range g.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			regions++
		}
	}
	opt := Options{Precision: precision.FP8}
	split := func(price map[string]float64) (got, asked []string) {
		trial := splitting{g: g, asked: &asked, more: func(node string) float64 {
			for name, part := range price {
				if strings.Contains(node, name) {
					return part * 100 * float64(regions)
				}
			}
			return 0
		}}
		ladders := make([][]precision.Layer, len(sites))
		for i := range sites {
			ladders[i] = []precision.Layer{layerNamed(t, "fp8"), precision.Half}
			if i%2 == 1 {
				ladders[i][0] = layerNamed(t, "fp8 twice")
			}
		}
		require.NoError(t, c.split(t.Context(), trial, opt, sites, ladders))
		all, added := 0.0, 0.0
		for i, l := range ladders {
			require.Len(t, l, 2)
			f := layerNamed(t, strings.TrimSuffix(l[0].Name, " split weights"))
			require.Equal(t, i%2 == 1, f.Activations.HiLo, "activations are as they were")
			all += weightBytes(f, &sites[i])
			added += weightBytes(l[0], &sites[i]) - weightBytes(f, &sites[i])
			if l[0].Weights.HiLo {
				got = append(got, strings.TrimPrefix(sites[i].Node.Name, "/blocks/"))
			}
		}
		require.LessOrEqual(t, added, splitBytes*all)
		return got, asked
	}
	got, asked := split(nil)
	few := []string{"/embed/MatMul", "blocks.0/qkv/MatMul", "blocks.0/proj/MatMul", "blocks.1/proj/MatMul", "blocks.2/proj/MatMul"}
	require.Equal(t, few, got, "the fewest bytes")
	require.Len(t, asked, len(few), "nothing else can be split")
	got, _ = split(map[string]float64{"proj": .0031, "blocks.1/proj": .0029})
	require.Equal(t, []string{"/embed/MatMul", "blocks.0/qkv/MatMul"}, slices.DeleteFunc(got, func(s string) bool { return s == "blocks.1/proj/MatMul" }))
	got, _ = split(map[string]float64{"embed": .0029, "qkv": .0028, "proj": .0027})
	require.Len(t, got, 3, "1 % for all")
	require.NotContains(t, got, "/embed/MatMul", "the cheapest first")
	for _, opt = range []Options{{Precision: precision.FP8, Smaller: true}, {Precision: precision.FP6}, {Precision: precision.NVFP4}} {
		got, _ = split(nil)
		require.Empty(t, got, opt.Precision)
	}
}

// TestWeightsInTwoTerms: the sum of two numbers of e4m3 stands for a weight with 8 significant bits, is an f16, and is what a program that
// reads it in two terms multiplies. Weights that are such sums are exact.
func TestWeightsInTwoTerms(t *testing.T) {
	g, _ := made(t, "policy", precision.FP8, 1)
	c, err := New(g, precision.FP8, Generate(g, 1), Reference{}, nil)
	require.NoError(t, err)
	site := c.Sites()[0]
	require.False(t, site.Segmented())
	rng := rand.New(rand.NewPCG(3, 4))
	w := site.Weights().Const.Floats()
	fit := func() (*rounder, passes.Layer) {
		site.Node.Inputs[site.Weight] = &ir.Value{Name: "w", Type: site.Weights().Type, Const: ir.FromFloats(site.Weights().Type, w)}
		r := newRounder(&site, layerNamed(t, "fp8 split weights").Weights, Best)
		r.patches = nil
		r.fit(t.Context(), nil, nil, nil)
		return r, r.layer()
	}
	for i := range w {
		w[i] = math.Ldexp(rng.NormFloat64(), -rng.IntN(6))
	}
	r, l := fit()
	require.True(t, l.Split)
	require.Equal(t, ir.Float16, l.Weights.DType)
	e4m3, sum, norm := minifloat.E4M3FN, 0.0, 0.0
	for i, x := range l.Weights.Floats() {
		require.Equal(t, r.codes[i], x, "16 bits hold the sum")
		hi := e4m3.Saturated(x)
		require.Equal(t, x, hi+e4m3.Saturated(x-hi), "two terms hold what 16 bits do")
		d := r.fake.F[i] - w[i]
		sum, norm = sum+d*d, norm+w[i]*w[i]
	}
	require.Less(t, math.Sqrt(sum/norm), .0025)
	require.Greater(t, math.Sqrt(sum/norm), .0005)

	for i := range w {
		w[i] = math.Ldexp(float64(16*(rng.IntN(8)+8)+rng.IntN(15)-7), rng.IntN(5)-13)
	}
	for n := range site.Members * site.N { // the greatest of each channel is e4m3's, so that its scale is 2⁻⁶
		w[site.At(n/site.N, n%site.N, 0)] = 7
	}
	r, _ = fit()
	require.Equal(t, w, r.fake.F)
}
