package calibrate

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestEndingsAreTheTails: what follows the anchors of small models' layers, computed on whole arrays, has the bits
// of its operations in f32, one after another. Endings that are not supported are left to their kernels. The first
// outputs are kept on request.
func TestEndingsAreTheTails(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	seen := map[string]int{}
	for _, name := range []string{"vision", "policy", "dmonitoring"} {
		g, in := made(t, name, "fp8", 1)
		c, err := New(g, "fp8", in, Reference{}, nil)
		require.NoError(t, err)
		for _, s := range c.walk.steps {
			if s.tail == nil {
				continue
			}
			body := s.tail.Region.Body
			kind := ""
			for _, n := range body.Nodes {
				kind += n.Op.Name + " "
			}
			if s.ending == nil {
				seen["kernel"]++
				continue
			}
			require.NotContains(t, kind, "Gelu")
			if seen[kind]++; s.tail.Region.Members > 0 {
				seen["of members: "+kind]++
			}
			var operands []*ir.Tensor // of the region
			var arrays []*ir.Array    // of the tail
			for i, v := range s.tail.Inputs {
				x := v.Const
				if x == nil {
					x = ir.FromFloats(v.Type, random(rng, v.Type.Numel()))
				}
				if i < len(s.node.Inputs) {
					operands = append(operands, x)
				}
				arrays = append(arrays, x.Array())
			}
			var want []float64
			for m := range s.tail.Region.Count() {
				var of []*ir.Array
				for i, a := range arrays {
					if s.tail.Region.Operands[i].Batched {
						part := &ir.Array{Type: body.Inputs[i].Type}
						part.F = a.F[m*part.Numel():][:part.Numel()]
						a = part
					}
					of = append(of, a)
				}
				one, err := ir.EvaluateList(t.Context(), body, of, ir.EvalOptions{Round: true})
				require.NoError(t, err)
				want = append(want, one[0].F...)
			}
			anchor := arrays[len(arrays)-1].Tensor()
			anchors := []*ir.Tensor{{Type: anchor.Type, Data: slices.Clone(anchor.Data)}, {Type: anchor.Type, Data: slices.Clone(anchor.Data)}}
			outs, err := s.finish(t.Context(), nil, [][]*ir.Tensor{operands, operands}, anchors, 1, nil)
			require.NoError(t, err)
			for _, out := range outs {
				require.Equal(t, s.node.Outputs[0].Type, out[0].Type, s.node.Name)
				require.Equal(t, want, out[0].Array().F, s.node.Name)
			}
			require.Equal(t, anchor.Data, anchors[0].Data, "it was to be kept")
		}
	}
	t.Log(seen)
	for _, kind := range []string{"", "Relu ", "Add ", "Add Add ", "of members: Add ", "kernel"} {
		require.Positive(t, seen[kind], kind)
	}
}

func random(rng *rand.Rand, count int) []float64 {
	out := make([]float64, count)
	for i := range out {
		out[i] = rng.NormFloat64()
	}
	return out
}
