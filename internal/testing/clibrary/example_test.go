package clibrary_test

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/clibrary"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// cc compiles a program against the library.
func cc(t *testing.T, source string, flags ...string) string {
	library, header := clibrary.Build(t)
	out := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-Wall", "-Wextra", "-Werror", "-I", header, source, "-L", filepath.Dir(library), "-lsparkcompile", "-Wl,-rpath," + filepath.Dir(library), "-o", out}, flags...)
	text, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// TestTheExampleComputesWhatGoDoes builds examples/c/run.c and runs it on zeros.
func TestTheExampleComputesWhatGoDoes(t *testing.T) {
	fulltest.Long(t)
	program := cc(t, "../../../examples/c/run.c", "-std=c99", "-pedantic")
	clibrary.Reads(t, "../../../examples/c")
	dir := t.TempDir()
	m, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	file := filepath.Join(dir, "policy.onnx")
	require.NoError(t, os.WriteFile(file, m.ONNX, 0o644))
	o, err := onnx.Load(file)
	require.NoError(t, err)
	r, err := compile.Compile(t.Context(), o, compile.Options{Precision: "fp16", Targets: []string{target.Default().Name}})
	require.NoError(t, err)
	files, err := r.Program.Files()
	require.NoError(t, err)
	for name, data := range files {
		path := filepath.Join(dir, "policy", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	s, err := runtime.Open(context.Background(), r.Program, d, runtime.ModelOptions{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Run(t.Context()))
	h := fnv.New32a()
	h.Write(s.Output("outputs"))

	text, err := exec.Command(program, filepath.Join(dir, "policy"), "cpu").CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Regexp(t, regexp.QuoteMeta(fmt.Sprintf("output outputs f16[1,1000], 2000 bytes\noutputs: %08x\n", h.Sum32())), string(text))

	text, err = exec.Command(program, filepath.Join(dir, "nothing")).CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, "run: .*nothing: no such file or directory: give a directory that spark-compile wrote", string(text))
	text, err = exec.Command(program, file, "abacus").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "device abacus: want auto, cuda, cuda:N or emu")
}
