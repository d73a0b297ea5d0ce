package passes

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/spark-compile/spark-compile/codegen/families"
	kernels "github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

var update = flag.Bool("update", false, "write what the passes make into testdata/*.txtar")

// TestPassesOnText runs each pass on the graphs of testdata/PASS.txtar. An archive alternates graphs before and after;
// "same" stands for an unchanged graph, the near misses. Names of values do not count. Outputs must agree under the
// evaluator within the pass's tolerance, and if the pass keeps the file's roundings also where each value is rounded.
func TestPassesOnText(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			require.NoError(t, err)
			p, err := Lookup(name)
			require.NoError(t, err)
			require.Zero(t, len(archive.Files)%2)
			for i := 0; i < len(archive.Files); i += 2 {
				before, after := archive.Files[i], &archive.Files[i+1]
				require.Equal(t, before.Name+" =>", after.Name)
				t.Run(before.Name, func(t *testing.T) { checkText(t, p, string(before.Data), after) })
			}
			if *update {
				require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o666))
			}
		})
	}
}

func checkText(t *testing.T, p *Pass, before string, after *txtar.File) {
	g, err := ir.Parse(before)
	require.NoError(t, err)
	original := g.Clone()
	require.NoError(t, p.Run(textContext(p.Name), g))
	require.NoError(t, g.Verify())
	var want *ir.Graph
	if text := strings.TrimSpace(string(after.Data)); text == "same" {
		want = original
	} else if !*update || text != "" {
		if want, err = ir.Parse(text); !*update {
			require.NoError(t, err)
		}
	}
	if want == nil || want.Diff(g) != "" {
		if *update {
			after.Data = []byte(fullText(t, g))
		} else {
			t.Errorf("%s\ngot\n%s", want.Diff(g), fullText(t, g))
		}
	}
	if p.Name != "insert-dora" && p.Name != "differentiate" { // these add inputs and outputs, and have tests of their own
		requireSameOutputs(t, original, g, max(p.Tolerance, 1e-12))
	}
	if slices.Contains([]string{"fold", "simplify", "cse", "dce", "layout"}, p.Name) {
		requireSame(t, original, g, 1e-12, ir.EvalOptions{Round: true})
	}
	if p.Name == "rematerialise" {
		require.LessOrEqual(t, peakMemory(g), textContext(p.Name).Memory)
	}
	if p.Name == "promote-f32" { // makes the graph's border anew
		return
	}
	once := g.Clone()
	require.NoError(t, p.Run(textContext(p.Name), g))
	require.Empty(t, once.Diff(g), "a second run must change nothing")
}

// nvfp4 is how quantise-base stores weights where nothing else is said.
var nvfp4 = precision.Operand{Format: minifloat.E2M1, Blocks: true}

// joins is the benefit of fused regions in text, which are too small to have one: the number of parts if they have a
// kernel.
func joins(n *ir.Node) float64 {
	t, err := target.Lookup("sm_121")
	if err != nil {
		panic(err)
	}
	if _, err := families.New(nil).Lower(n, &kernels.Context{Target: t, Unpacked: true}); err != nil {
		return 0
	}
	return float64(len(n.Parts()))
}

// textContext is what the passes of text are told: what data say of values of these names is for the passes that ask.
func textContext(pass string) *Context {
	c := &Context{Precision: precision.FP16, RematerialiseOptions: RematerialiseOptions{Memory: 1024},
		InsertDoRAOptions: InsertDoRAOptions{Adapters: []Adapter{{Name: "fc", Weight: "w", Kind: DoRA, Rank: 1, Scale: 2}}}, DifferentiateOptions: DifferentiateOptions{Losses: []string{"loss"}, Variables: []string{"w"}},
		SplitImageOptions:   SplitImageOptions{Greatest: map[string]float64{"image": 1}},
		SubtractMeanOptions: SubtractMeanOptions{Means: map[string][]float64{"centred": {1, -2}, "centreds": {1, -2, 3, .5}, "second": {.25, 4}}}}
	c.Siblings = pass == "reorder-for-locality"
	c.Benefit, c.Unfused = joins, []string{"apart"}
	if pass == "quantise-base" {
		c.Base = Base{Operand: nvfp4}
	}
	return c
}

func fullText(t *testing.T, g *ir.Graph) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, g.Print(&b, ir.PrintOptions{Full: true}))
	return b.String()
}
