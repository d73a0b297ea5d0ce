package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// TestInputsAndOutputsKeepTheirTypesUnlessAsked, in every precision that promotes.
func TestInputsAndOutputsKeepTheirTypesUnlessAsked(t *testing.T) {
	types := func(list []*ir.Value) (out []string) {
		for _, v := range list {
			out = append(out, v.Name+" "+v.Type.DType.String())
		}
		return out
	}
	for _, c := range []struct {
		in, out         bool
		inputs, outputs []string
	}{
		{false, false, []string{"x f16", "z bf16"}, []string{"y f16", "b i16"}},
		{true, false, []string{"x f32", "z f32"}, []string{"y f16", "b i16"}},
		{false, true, []string{"x f16", "z bf16"}, []string{"y f32", "b i16"}},
		{true, true, []string{"x f32", "z f32"}, []string{"y f32", "b i16"}},
	} {
		for _, p := range precision.Names() {
			g, err := ir.Parse(`graph "g" {
  input %x: f16[2]
  input %z: bf16[2]
  %b: i16[2] = BitCast(%x) {to=i16}
  %a: f16[2] = Exp(%x)
  %y: f16[2] = Neg(%a)
  output %y, %b
}`)
			require.NoError(t, err)
			before := g.Clone()
			require.NoError(t, Run(&Context{Precision: p, PromoteF32Options: PromoteF32Options{F32Inputs: c.in, F32Outputs: c.out}}, g, []string{"promote-f32"}, nil))
			require.Equal(t, c.inputs, types(g.Inputs), p)
			require.Equal(t, c.outputs, types(g.Outputs), p)
			x := ir.FromFloats(ir.T(ir.Float16, 2), []float64{.5, -3}).Array()
			z := ir.NewArray(ir.T(ir.BFloat16, 2))
			exact, err := ir.EvaluateList(t.Context(), before, []*ir.Array{x, z}, ir.EvalOptions{})
			require.NoError(t, err)
			got, err := ir.EvaluateList(t.Context(), g, []*ir.Array{x.As(g.Inputs[0].Type.DType), z.As(g.Inputs[1].Type.DType)}, ir.EvalOptions{})
			require.NoError(t, err)
			for i := range exact {
				require.Equal(t, exact[i].Floats(), got[i].Floats(), p)
			}
		}
	}
}
