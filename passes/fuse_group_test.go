package passes

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestALongConcatIsWrittenInPlace by what computes its operands; those that nothing writes, or that are there twice,
// are gathered, together with neighbours.
func TestALongConcatIsWrittenInPlace(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	g := ir.NewGraph("g")
	x := g.AddInput("x", ir.T(ir.Float32, 4, 8))
	var parts []*ir.Value
	require.NoError(t, g.Build("n", func(b *ir.Expansion) {
		for i := range 60 {
			w := make([]float64, 8*8)
			for k := range w {
				w[k] = rng.NormFloat64()
			}
			var v *ir.Value
			switch i % 20 {
			case 3, 4:
				v = b.Add("Mul", nil, x, b.Constant(ir.ScalarFloat(ir.Float32, float64(i))))
			case 7:
				v = b.Constant(ir.FromFloats(ir.T(ir.Float32, 4, 8), w[:32]))
			case 10:
				v = parts[i-1]
			default:
				v = b.Add("MatMul", nil, x, b.Constant(ir.FromFloats(ir.T(ir.Float32, 8, 8), w)))
			}
			if v.Type.Rank() == 2 {
				v = b.Reshape(v, 32)
			}
			parts = append(parts, v)
		}
		g.Outputs = append(g.Outputs, b.Add("Concat", ir.Attrs{"axis": 0}, parts...))
	}))
	normals := make([]float64, 32)
	for i := range normals {
		normals[i] = rng.NormFloat64()
	}
	in := map[string]*ir.Array{"x": floats(x, normals...)}
	want := evaluated(t, g, in)
	require.NoError(t, Run(&Context{Precision: "fp32"}, g, []string{"fuse", "views"}, nil))
	loops := 0
	for _, n := range g.Nodes {
		if n.IsFamily(ir.FamilyLoop) {
			loops++
			assert.LessOrEqual(t, len(n.Inputs), 4, "%s gathers", n.Name)
		}
	}
	assert.LessOrEqual(t, loops, 9, "three gathers a group of 20, at most")
	got := evaluated(t, g, in)
	for name := range want {
		assert.InDeltaSlice(t, want[name].F, got[name].F, 1e-9, fmt.Sprint(name))
	}
}

// TestLoopsThatReadOneValueAreOneKernel where programs train: an update of a value and its mean, scaled by a norm of
// what both read. What the norm is computed from cannot be in the same kernel, since the norm lies between.
func TestLoopsThatReadOneValueAreOneKernel(t *testing.T) {
	build := func() *ir.Graph {
		g, err := ir.Parse(`graph "g" {
  input %x: f32[64]
  input %m: f32[64]
  input %y: f32[64]
  %d: f32[64] = Sub(%x, %y)
  %s: f32[64] = Mul(%d, %d)
  %n: f32[] = ReduceSum(%s) {axes=[0]}
  %a: f32[64] = Add(%m, %d)
  %mean: f32[64] = Mul(%a, %n)
  %b: f32[64] = Div(%mean, %n)
  %next: f32[64] = Sub(%x, %b)
  output %mean, %next
}`)
		require.NoError(t, err)
		return g
	}
	rng := rand.New(rand.NewSource(1))
	in := map[string]*ir.Array{}
	for _, v := range build().Inputs {
		xs := make([]float64, 64)
		for i := range xs {
			xs[i] = rng.NormFloat64()
		}
		in[v.Name] = floats(v, xs...)
	}
	want := evaluated(t, build(), in)
	for siblings, regions := range map[bool]int{false: 4, true: 3} {
		g := build()
		require.NoError(t, Run(&Context{Precision: "fp32", FuseOptions: FuseOptions{Siblings: siblings}}, g, []string{"fuse", "views"}, nil))
		require.Len(t, g.Nodes, regions, "%v:\n%v", siblings, g)
		got := evaluated(t, g, in)
		for name := range want {
			assert.InDeltaSlice(t, want[name].F, got[name].F, 1e-9, name)
		}
	}
}
