package run

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/ir"
)

// TestOwnGoldenRun: a package without golden outputs runs on its golden inputs and compares nothing; with files that cannot
// be read, or are not what was written, it says so.
func TestOwnGoldenRun(t *testing.T) {
	b := onnx.NewBuilder("toy", 17)
	b.Node("Exp", []string{b.Input("x", ir.Float32, 3, 5)}, []string{"y"})
	b.Output("y", ir.Float32, 3, 5)
	m, err := b.Model()
	require.NoError(t, err)
	r, err := compile.Compile(t.Context(), m, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	golden, err := r.Golden(t.Context())
	require.NoError(t, err)
	files, err := gopkg.Files("toy", r.Program, golden)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		spoil func(t *testing.T, in, out string)
		code  int
		says  string
	}{
		"whole":           {func(*testing.T, string, string) {}, 0, "the package's own golden run"},
		"without outputs": {func(t *testing.T, _, out string) { require.NoError(t, os.Remove(out)) }, 0, "1 run: "},
		"without inputs":  {func(t *testing.T, in, _ string) { require.NoError(t, os.Remove(in)) }, 2, "missing inputs: x f32[3 5]"},
		"an output that is no file": {func(t *testing.T, _, out string) {
			require.NoError(t, os.Remove(out))
			require.NoError(t, os.Mkdir(out, 0o755))
		}, 2, `golden output "y"`},
		"an output that was cut": {func(t *testing.T, _, out string) { require.NoError(t, os.Truncate(out, 112)) }, 2, `golden output "y": 112 bytes of data, shape [3 5] needs 120`},
		"an input that was cut":  {func(t *testing.T, in, _ string) { require.NoError(t, os.Truncate(in, 56)) }, 2, `golden input "x": 56 bytes of data, shape [3 5] needs 60`},
		"an input that is no file": {func(t *testing.T, in, _ string) {
			require.NoError(t, os.Remove(in))
			require.NoError(t, os.Mkdir(in, 0o755))
		}, 2, `golden input "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "toy")
			require.NoError(t, gopkg.Write(dir, files))
			path := func(kind, name string) string { return filepath.Join(dir, "testdata", gopkg.GoldenFile(kind, name)) }
			c.spoil(t, path("in", "x"), path("out", "y"))
			var stdout, stderr bytes.Buffer
			code := Main("spark-run", []string{dir, "--device", "emu"}, &stdout, &stderr)
			require.Equal(t, c.code, code, "%s%s", &stdout, &stderr)
			require.Contains(t, stdout.String()+stderr.String(), c.says)
			if name == "without outputs" {
				require.NotContains(t, stdout.String(), "golden")
			}
		})
	}
}
