package info

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

// TestAPackageIsDescribed prints where a package comes from, if nobody has changed it.
func TestAPackageIsDescribed(t *testing.T) {
	dir := t.TempDir()
	b := onnx.NewBuilder("toy", 17)
	b.Input("x", ir.Float32, 1, 4)
	w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 3), []float64{1, 0, -1, 2, 1, 0, 0, 1, 1, -1, 0, 2}))
	b.Node("MatMul", []string{"x", w}, []string{"y"})
	b.Output("y", ir.Float32, 1, 3)
	m, err := b.Model()
	require.NoError(t, err)
	file := filepath.Join(dir, "toy.onnx")
	require.NoError(t, m.Save(file))
	m, err = onnx.Load(file)
	require.NoError(t, err)
	r, err := compile.Compile(t.Context(), m, compile.Options{Precision: "fp8", Targets: []string{"sm_121"}, Generated: 4})
	require.NoError(t, err)
	r.Program.Provenance = r.Provenance()
	r.Program.Provenance.Compiler, r.Program.Provenance.Flags = "v1.2.3", []string{"--precision fp8"}
	files, err := gopkg.Files("toy", r.Program, nil)
	require.NoError(t, err)
	toy := filepath.Join(dir, "toy")
	require.NoError(t, gopkg.Write(toy, files))

	var out, errs bytes.Buffer
	require.Zero(t, Main("spark-info", []string{toy}, &out, &errs), errs.String())
	for _, want := range []string{`model +toy.onnx, sha256 [0-9a-f]{64}`, `compiled +to fp8 by spark-compile v1.2.3 --precision fp8`, `calibrated +on 4 generated inputs, sha256 [0-9a-f]{64}`,
		`accuracy +lowest cosine [01].\d+ \(y, [a-z-]+ inputs\)`, `identity +[0-9a-f]{64}; all files are as they were written`, `input +x: f32\[1,4\]`} {
		require.Regexp(t, want, out.String())
	}
	out.Reset()
	require.Zero(t, Main("spark-info", []string{toy, "--json", "-"}, &out, &errs), errs.String())
	require.Contains(t, out.String(), `"identity": "`+r.Program.Identity)

	require.Equal(t, 2, Main("spark-info", []string{toy, "--check"}, &out, &errs))
	require.Contains(t, errs.String(), "leave the directory out")
	require.Equal(t, 2, Main("spark-info", []string{file}, &out, &errs))
	require.Contains(t, errs.String(), "is a file")
	require.NoError(t, os.Truncate(filepath.Join(toy, "weights.bin"), 2))
	require.Equal(t, 2, Main("spark-info", []string{toy}, &out, &errs))
	require.Contains(t, errs.String(), "weights.bin: it is not what spark-compile wrote")
}
