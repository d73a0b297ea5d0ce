package passes

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

func TestTableIsConsistent(t *testing.T) {
	require.Len(t, Table(), len(table), "a pass without a place in a pipeline")
	for _, p := range Table() {
		require.NotEmpty(t, p.Summary, p.Name)
		require.NotNil(t, p.Run, p.Name)
		for before, why := range p.After {
			require.Contains(t, table, before, "%s comes after it", p.Name)
			require.NotEmpty(t, why, "%s comes after %s", p.Name, before)
		}
	}
}

func TestDefaultPipelines(t *testing.T) {
	clean := "fold simplify cse dce"
	f32 := "promote-f32 " + clean + " insert-dora quantise-base differentiate sink-padding recognise-quantised expand " + clean +
		" recognise-gelu recognise-silu recognise-softmax recognise-layernorm recognise-attention" +
		" fold-batchnorm merge-branches fold-scale decompose-conv-transpose layout " + clean +
		" recognise-layernorm merge-branches fold-scale gemm fold-channel-scale " + clean + " group-gemv fuse batch-isomorphic views"
	for _, p := range precision.All() {
		want := f32 + " assign-storage reorder-for-locality fuse-producers rematerialise"
		switch p.Name {
		case precision.File:
			want = clean + " expand decompose-conv-transpose layout " + clean + " fuse views reorder-for-locality fuse-producers rematerialise"
		case precision.FP32:
			want = f32 + " reorder-for-locality fuse-producers rematerialise"
		case precision.FP8:
			want = strings.Replace(f32, " fold-channel-scale ", " fold-channel-scale split-image ", 1) + " subtract-mean assign-storage reorder-for-locality fuse-producers rematerialise"
		}
		names, err := Pipeline(p.Name)
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(names, " "), p.Name)
	}
}

// TestEveryPassIsShownOnText: what a pass does stands in a file of its name, which TestPassesOnText runs.
func TestEveryPassIsShownOnText(t *testing.T) {
	for _, p := range Table() {
		require.FileExists(t, "testdata/"+p.Name+".txtar", "before and after %s", p.Name)
	}
}

// TestDefaultPipelinesKeepTheOrder: the list does what the rows ask for, in every precision.
func TestDefaultPipelinesKeepTheOrder(t *testing.T) {
	require.NoError(t, CheckOrder(pipeline(every, stages)))
	for _, row := range precision.All() {
		names, err := Pipeline(row.Name)
		require.NoError(t, err)
		require.NoError(t, CheckOrder(names), row.Name)
		require.NoError(t, CheckNeeds(names), row.Name)
		for _, n := range names {
			for before := range table[n].After {
				if row.Name != precision.File && !(row.Name == precision.FP32 && before == "assign-storage") { // which f32 has no use for
					require.Contains(t, names, before, "%s comes after it", n)
				}
			}
		}
	}
}

func TestOrderErrors(t *testing.T) {
	err := CheckOrder([]string{"merge-branches", "simplify", "fold-batchnorm"})
	require.ErrorContains(t, err, "merge-branches must come after fold-batchnorm: a branch")
	require.NoError(t, CheckOrder([]string{"simplify", "fold-batchnorm", "merge-branches", "simplify"}))
	require.ErrorContains(t, CheckOrder([]string{"fold", "nonsense"}), `unknown pass "nonsense" (have `)
	_, err = Pipeline("fp12")
	require.ErrorContains(t, err, `"fp12"`)
}

func TestRunVerifiesAfterEachPass(t *testing.T) {
	b := newGraphBuilder(t, ir.Float32)
	g := b.output(b.op("Exp", nil, b.input("x", ir.Float32, 2)))
	var seen []string
	require.NoError(t, Run(&Context{}, g, []string{"fold", "dce"}, func(p string, _ *ir.Graph) { seen = append(seen, p) }))
	require.Equal(t, []string{"fold", "dce"}, seen)

	g.Nodes[0].Outputs[0].Type = ir.T(ir.Float32, 3)
	require.ErrorContains(t, Run(&Context{}, g, []string{"fold"}, nil), "graph before the passes")
}

func TestHelpNamesEveryPassAndReason(t *testing.T) {
	help := Help()
	for _, p := range Table() {
		require.Contains(t, help, p.Summary)
		for _, why := range p.After {
			require.Contains(t, help, why)
		}
	}
	require.True(t, slices.ContainsFunc(strings.Split(help, "\n"), func(l string) bool { return strings.HasPrefix(l, "fp16: promote-f32 ") }))
}

func TestPassesThatAreNeeded(t *testing.T) {
	require.NoError(t, CheckNeeds([]string{"promote-f32", "fuse", "batch-isomorphic", "views", "subtract-mean", "assign-storage"}))
	require.NoError(t, CheckNeeds([]string{"fold"}))
	require.ErrorContains(t, CheckNeeds([]string{"fold", "assign-storage"}), "pass assign-storage needs fuse before it: types are set at region boundaries")
	require.ErrorContains(t, CheckNeeds([]string{"fuse", "subtract-mean"}), "pass subtract-mean needs views before it")
	for _, row := range Table() {
		for _, need := range row.Needs {
			require.Contains(t, row.After, need, "%s: the reason", row.Name)
		}
	}
}

// regionStage is the first of the stages that make regions and work on them.
func regionStage() int {
	return slices.IndexFunc(stages, func(s stage) bool { return s.name == "regions" })
}

func TestCut(t *testing.T) {
	for _, c := range []struct{ names, at, before, rest string }{
		{"promote-f32 fuse views subtract-mean assign-storage reorder-for-locality fuse-producers", StorageStage, "promote-f32 fuse views subtract-mean", "assign-storage reorder-for-locality fuse-producers"},
		{"promote-f32 fuse views subtract-mean assign-storage reorder-for-locality fuse-producers", MeansStage, "promote-f32 fuse views", "subtract-mean assign-storage reorder-for-locality fuse-producers"},
		{"promote-f32 fuse views assign-storage simplify fuse-producers", MeansStage, "promote-f32 fuse views", "assign-storage simplify fuse-producers"},
		{"fuse views fuse-producers", StorageStage, "fuse views", "fuse-producers"},
		{"promote-f32 fold", StorageStage, "promote-f32 fold", ""},
	} {
		before, rest := Cut(strings.Fields(c.names), c.at)
		require.Equal(t, strings.Fields(c.before), append([]string{}, before...), "%+v", c)
		require.Equal(t, strings.Fields(c.rest), append([]string{}, rest...), "%+v", c)
	}
}
