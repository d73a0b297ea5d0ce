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
	f32 := "widen " + clean + " insert-dora quantise-base differentiate sink-padding recognise-quantised expand " + clean +
		" recognise-gelu recognise-silu recognise-softmax recognise-layernorm recognise-attention" +
		" fold-batchnorm merge-branches fold-scale gather-taps layout " + clean +
		" recognise-layernorm merge-branches fold-scale gemm sink-gain " + clean + " segment fuse stack views"
	for _, p := range precision.All() {
		want := f32 + " narrow sooner chain rematerialise"
		switch p.Name {
		case precision.File:
			want = clean + " expand gather-taps layout " + clean + " fuse views sooner chain rematerialise"
		case precision.FP32:
			want = f32 + " sooner chain rematerialise"
		case precision.FP8:
			want = strings.Replace(f32, " sink-gain ", " sink-gain split-image ", 1) + " centre narrow sooner chain rematerialise"
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
				if row.Name != precision.File && !(row.Name == precision.FP32 && before == "narrow") { // which f32 has no use for
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
	require.True(t, slices.ContainsFunc(strings.Split(help, "\n"), func(l string) bool { return strings.HasPrefix(l, "fp16: widen ") }))
}

func TestPassesThatAreNeeded(t *testing.T) {
	require.NoError(t, CheckNeeds([]string{"widen", "fuse", "stack", "views", "centre", "narrow"}))
	require.NoError(t, CheckNeeds([]string{"fold"}))
	require.ErrorContains(t, CheckNeeds([]string{"fold", "narrow"}), "pass narrow needs fuse before it: narrow sets the types at region boundaries")
	require.ErrorContains(t, CheckNeeds([]string{"fuse", "centre"}), "pass centre needs views before it")
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
		{"widen fuse views centre narrow sooner chain", StorageStage, "widen fuse views centre", "narrow sooner chain"},
		{"widen fuse views centre narrow sooner chain", MeansStage, "widen fuse views", "centre narrow sooner chain"},
		{"widen fuse views narrow simplify chain", MeansStage, "widen fuse views", "narrow simplify chain"},
		{"fuse views chain", StorageStage, "fuse views", "chain"},
		{"widen fold", StorageStage, "widen fold", ""},
	} {
		before, rest := Cut(strings.Fields(c.names), c.at)
		require.Equal(t, strings.Fields(c.before), append([]string{}, before...), "%+v", c)
		require.Equal(t, strings.Fields(c.rest), append([]string{}, rest...), "%+v", c)
	}
}
