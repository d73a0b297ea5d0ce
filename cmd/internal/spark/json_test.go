package spark

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// zeros are the places at which a number of a report may be zero, being counted or measured.
var zeros = regexp.MustCompile(strings.Join([]string{
	`\.(warmup|seed|index|launch|failures|missed|smem)$`,
	`\.(arena_bytes|live_bytes|weights_bytes|macs|executed_macs|read_bytes|write_bytes)$`,
	`\.(max_abs|rel_l2)$`, // outputs that are exact
	`\.metrics\[\]\[\]$`,  // of a closed loop, by the report's columns
	`\.regressions\[\]$`,  // numbers of scenarios
	`\.metrics\[\]\.(difference|(interval|[ab])\..*)$`,
	`^\.profile\.`, // counts
}, "|"))

// unmeasured are the paths of numbers and texts that say nothing: zeros outside of zeros, and "".
func unmeasured(x any, path string) (out []string) {
	switch x := x.(type) {
	case map[string]any:
		for k, v := range x {
			out = append(out, unmeasured(v, path+"."+k)...)
		}
	case []any:
		for _, v := range x {
			out = append(out, unmeasured(v, path+"[]")...)
		}
	case float64:
		if x == 0 && !zeros.MatchString(path) {
			out = append(out, path)
		}
	case string:
		if x == "" {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestJSON_NullWhereNothingWasMeasured runs the commands that write JSON without what they could measure: no ptxas,
// budget, reference, GPU or second run.
func TestJSON_NullWhereNothingWasMeasured(t *testing.T) {
	fulltest.Long(t)
	t.Chdir(t.TempDir())
	t.Setenv("PTXAS", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SPARK_DEVICE", "emu")
	b := onnx.NewBuilder("toy", 17)
	b.Input("x", ir.Float32, 1, 4)
	w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 2), []float64{.1, .2, .3, .4, .5, .6, .7, .8}))
	b.Node("MatMul", []string{"x", w}, []string{"y"})
	b.Output("y", ir.Float32, 1, 2)
	m, err := b.Model()
	require.NoError(t, err)
	require.NoError(t, m.Save("toy.onnx"))
	scenario := "scenarios:\n  - name: straight\n    set: {speed: 10, duration: 2}\n"
	require.NoError(t, os.WriteFile("s.yaml", []byte(scenario), 0o644))
	for _, c := range []struct {
		args  string
		nulls []string // that must be there, as null
	}{
		{"compile toy.onnx -o toy --quiet --report OUT", []string{".kernels[].regs", ".kernels[].spills"}},
		{"compile toy.onnx -o toy8 --precision fp8 --min-cosine 0 --quiet --report OUT", []string{
			".calibration.min_cosine", ".reference.fp32_rel_l2", ".verdict.min_cosine", ".verdict.within_budget"}},
		{"run toy --json OUT", []string{".p99_ms", ".kernels[].regs", ".slices[].variation_explained", ".outputs[].bounds.rtol"}},
		{"run toy.onnx --random 1 --json OUT", []string{".p99_ms"}},
		{"run toy.onnx --random 1 --profile --json OUT", []string{".p99_ms"}},
		{"bench toy --runs 1 --warmup 0 --no-peer --quiet --json OUT", []string{
			".results[].p99_ms", ".results[].cold", ".results[].predicted", ".results[].state"}},
		{"bench toy.onnx --predict --quiet --json OUT", nil},
		{"info --json OUT", nil},
		{"sim run s.yaml --n 2 --quiet --json OUT", nil},
		{"sim compare pid feedforward --scenarios s.yaml --n 2 --quiet --json OUT", []string{".metrics[].p", ".metrics[].detectable"}},
	} {
		file := filepath.Join(t.TempDir(), "out.json")
		args := strings.Fields(strings.ReplaceAll(c.args, "OUT", file))
		var stdout, stderr bytes.Buffer
		code := Main("spark", args, &stdout, &stderr)
		require.Contains(t, []int{cli.Done, cli.Failed}, code, "%s\n%s%s", c.args, &stdout, &stderr)
		raw, err := os.ReadFile(file)
		require.NoError(t, err, c.args)
		var x any
		require.NoError(t, json.Unmarshal(raw, &x), c.args)
		require.Empty(t, unmeasured(x, ""), "%s: zeros and empty texts that nobody measured", c.args)
		null := map[string]bool{}
		nullsOf(x, "", null)
		for _, path := range c.nulls {
			require.True(t, null[path], fmt.Sprintf("%s: %s is not null, but %s", c.args, path, raw))
		}
	}
}

func nullsOf(x any, path string, found map[string]bool) {
	switch x := x.(type) {
	case nil:
		found[path] = true
	case map[string]any:
		for k, v := range x {
			nullsOf(v, path+"."+k, found)
		}
	case []any:
		for _, v := range x {
			nullsOf(v, path+"[]", found)
		}
	}
}
