package calibrate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// priced is a trial in which a layer takes 100 µs, and more where its activations are in two terms.
type priced struct {
	Trial
	g    *ir.Graph
	more map[string]float64
}

func (p priced) Times(_ context.Context, plan *passes.Quantisation) (map[string]float64, error) {
	us := map[string]float64{}
	for _, n := range p.g.Nodes {
		name := n.Outputs[0].Name
		if n.IsFamily(ir.FamilyView) {
			continue
		}
		if us[name] = 100; plan.Layers[name].Read.SplitTerms == 2 {
			us[name] += p.more[name]
		}
	}
	return us, nil
}

// TestTwoTermsWhereTheyCostLittle: a layer's price is bounded, and what all of them cost together; the cheapest come first.
func TestTwoTermsWhereTheyCostLittle(t *testing.T) {
	g, in := made(t, "policy", precision.FP8, 4)
	c, err := New(g, precision.FP8, in, Reference{}, nil)
	require.NoError(t, err)
	sites := slices.DeleteFunc(c.Sites(), func(s passes.Site) bool { return s.Segmented() })
	p, err := precision.Lookup(precision.FP8)
	require.NoError(t, err)
	one, two := p.Candidates[0], layerNamed(t, "fp8 twice")
	regions := 0
	for _, n := range g.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			regions++
		}
	}
	trial, ladders := priced{g: g, more: map[string]float64{}}, make([][]precision.Layer, len(sites))
	for i, s := range sites {
		share := 1.0
		for name, x := range map[string]float64{"/qkv/": .002, "/proj/": .0031, "blocks.2/proj/": -.0006, "/embed/": .0029, "/down/": .0001} {
			if strings.Contains(s.Node.Name, name) {
				share += x
			}
		}
		trial.more[s.Name()], ladders[i] = 100*float64(regions)*(share-1), []precision.Layer{one, two, precision.Half}
		if share == 1 {
			trial.more[s.Name()] = 100
		}
	}
	require.NoError(t, c.twice(t.Context(), trial, sites, ladders))
	var got []string
	for i, l := range ladders {
		require.Len(t, l, 2)
		if l[0] == two {
			got = append(got, sites[i].Node.Name)
		}
	}
	// down is expensive after up, since its price includes two terms for up's activations. So is embed after the
	// others.
	require.Equal(t, []string{"/blocks/blocks.0/qkv/MatMul", "/blocks/blocks.1/qkv/MatMul", "/blocks/blocks.2/qkv/MatMul", "/blocks/blocks.2/proj/MatMul"}, got)
}
