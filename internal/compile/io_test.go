package compile

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestInputsAndOutputsAreTheFilesInEveryPrecision: so code that calls a generated package compiles whatever precision it is
// in; only the package's comment differs.
func TestInputsAndOutputsAreTheFilesInEveryPrecision(t *testing.T) {
	fulltest.Long(t)
	comment := regexp.MustCompile(`(?s)^.*\npackage model\n`)
	api := func(p *runtime.Program) string {
		files, err := gopkg.Files("model", p, nil)
		require.NoError(t, err)
		return comment.ReplaceAllString(string(files["model.go"]), "")
	}
	for _, name := range names {
		first, _ := generated(t, name, precision.FP16, "sm_121")
		for i, v := range first.Source.Inputs {
			require.Equal(t, port(v), first.Program.Inputs[i])
		}
		for _, in := range precision.Names() {
			if precision.Calibrates(in) && !quick(name) && !fulltest.Runs(t.Name()) {
				continue
			}
			t.Run(name+"/"+in, func(t *testing.T) {
				r, _ := generated(t, name, in, "sm_121")
				require.Equal(t, first.Program.Inputs, r.Program.Inputs)
				require.Equal(t, first.Program.Outputs, r.Program.Outputs)
				require.Equal(t, first.Program.States, r.Program.States)
				require.Equal(t, api(first.Program), api(r.Program))
				if name == "supercombo" {
					require.NotEmpty(t, r.Program.States)
				}
			})
		}
	}
}

// TestInputsAndOutputsOfF32 compiles with them in f32 and holds the program to its bounds and to its own golden run.
func TestInputsAndOutputsOfF32(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []struct{ name, in string }{{"policy", "fp16"}, {"policy", "fp8"}, {"supercombo", "bf16"}} {
		t.Run(c.name+"/"+c.in, func(t *testing.T) {
			narrow, _ := generated(t, c.name, c.in, "sm_121")
			r := lowPrecision(t, c.name, Options{Precision: c.in, Targets: []string{"sm_121"}, F32Inputs: true, F32Outputs: true})
			for _, q := range slices.Concat(r.Program.Inputs, r.Program.Outputs) {
				require.NotContains(t, []string{"f16", "bf16"}, q.DType, q.Name)
			}
			require.Equal(t, narrow.Program.States, r.Program.States)
			require.Equal(t, ir.Float16, r.Source.Outputs[0].Type.DType, "the file is what it was")
			g, err := r.Golden(t.Context())
			require.NoError(t, err)
			in := arrays(t, r.Source)
			got := outputs(t, r.Program, session(t, r.Program, true), in)
			for _, q := range r.Program.Outputs {
				m, err := runtime.Compare(got[q.Name], g.Outputs[q.Name], 0, 0)
				require.NoError(t, err)
				require.GreaterOrEqual(t, m.Cosine, g.Bounds[q.Name].MinCosine, q.Name)
				require.LessOrEqual(t, m.RelL2, g.Bounds[q.Name].RelL2, q.Name)
			}
			then := outputs(t, narrow.Program, session(t, narrow.Program, false), in)
			for name := range then {
				require.Less(t, judge([][]float64{got[name]}, [][]float64{then[name]}).relL2, .05, name)
			}
		})
	}
}

func TestF32NeedsPromotion(t *testing.T) {
	_, err := Compile(t.Context(), small(t, "policy"), Options{Precision: precision.File, Targets: []string{"sm_121"}, F32Inputs: true})
	require.ErrorContains(t, err, "promote-f32")
}
