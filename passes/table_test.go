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
	names := map[string]bool{}
	for _, p := range Table() {
		require.NotEmpty(t, p.Summary, p.Name)
		require.NotNil(t, p.Run, p.Name)
		require.False(t, names[p.Name], "%s is declared twice", p.Name)
		names[p.Name] = true
	}
	for _, p := range Table() {
		for before, why := range p.After {
			require.True(t, names[before], "%s comes after %s, which is no pass", p.Name, before)
			require.NotEmpty(t, why)
		}
	}
}

// TestEveryPassIsShownOnText: what a pass does stands in a file of its name, which TestPassesOnText runs.
func TestEveryPassIsShownOnText(t *testing.T) {
	for _, p := range Table() {
		require.FileExists(t, "testdata/"+p.Name+".txtar", "before and after %s", p.Name)
	}
}

func TestDefaultPipelinesKeepTheOrder(t *testing.T) {
	used := map[string]bool{}
	for _, row := range precision.All() {
		names, err := Pipeline(row.Name)
		require.NoError(t, err)
		require.NoError(t, CheckOrder(names), row.Name)
		for _, n := range names {
			used[n] = true
		}
		for _, n := range names {
			p, err := Lookup(n)
			require.NoError(t, err)
			for before := range p.After {
				if row.Name != precision.File {
					require.Contains(t, names, before, "%s needs it", n)
				}
			}
		}
	}
	for _, p := range Table() {
		require.True(t, used[p.Name], "%s runs nowhere", p.Name)
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
