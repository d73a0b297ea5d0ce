package python_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/testing/clibrary"
	findpython "github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// BenchmarkCall compares a call from Python with one from Go, on one model that has the inputs and the output of driving_policy and hardly
// anything to compute, so that what a call costs is seen, by the times that a tenth and a half of the calls keep to. In Go inputs are set and the output copied, as in Python.
//
//	go      runtime.Session
//	run     Model.run(inputs), whose output is a new array
//	out     Model.run(inputs, out)
//	memory  Model.run(), with inputs filled in place
func BenchmarkCall(b *testing.B) {
	py, err := findpython.FindPython()
	if err != nil {
		b.Skip(err)
	}
	library, _ := clibrary.Build(b)
	dir := filepath.Join(b.TempDir(), "program")
	p := light(b)
	files, err := p.Files()
	require.NoError(b, err)
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(b, os.WriteFile(path, data, 0o644))
	}
	b.Run("go", func(b *testing.B) { inGo(b, p) })

	cmd := exec.Command(py, "tests/call.py", dir)
	here, err := os.Getwd()
	require.NoError(b, err)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+here, "SPARKCOMPILE_LIBRARY="+library)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	require.NoError(b, err)
	for _, kind := range []string{"run", "out", "memory"} {
		b.Run(kind, func(b *testing.B) {
			fmt.Fprintln(in, kind, b.N)
			var tenth, half float64
			_, err := fmt.Fscanln(lines, &tenth, &half)
			require.NoError(b, err)
			b.ReportMetric(tenth, "ns-p10")
			b.ReportMetric(half, "ns-p50")
		})
	}
	require.NoError(b, in.Close())
	require.NoError(b, cmd.Wait())
}

func inGo(b *testing.B, p *runtime.Program) {
	d, err := emu.Open(emu.Options{})
	require.NoError(b, err)
	defer d.Close()
	s, err := runtime.Open(b.Context(), p, d, runtime.ModelOptions{})
	require.NoError(b, err)
	defer s.Close()
	inputs := make([][]byte, len(p.Inputs))
	for i, q := range p.Inputs {
		inputs[i] = make([]byte, len(s.Input(q.Name)))
	}
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		for i, q := range p.Inputs {
			if err := s.Set(q.Name, inputs[i]); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
		out := make([]byte, len(s.Output("outputs")))
		copy(out, s.Output("outputs"))
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/10].Nanoseconds()), "ns-p10")
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "ns-p50")
}

// light has driving_policy's inputs and output. The output is the beginning of an input.
func light(b *testing.B) *runtime.Program {
	g := onnx.NewBuilder("light", 17)
	g.Input("desire_pulse", ir.Float16, 1, 25, 8)
	g.Input("traffic_convention", ir.Float16, 1, 2)
	g.Input("features_buffer", ir.Float16, 1, 25, 512)
	g.Initializer("flat", ir.Vector(1, -1))
	for name, x := range map[string]int{"begin": 0, "end": 1000, "axis": 1, "one": 1} {
		g.Initializer(name, ir.Vector(x))
	}
	g.Node("Reshape", []string{"features_buffer", "flat"}, []string{"all"})
	g.Node("Slice", []string{"all", "begin", "end", "axis"}, []string{"features"})
	g.Node("Reshape", []string{"desire_pulse", "flat"}, []string{"desires"})
	g.Node("Slice", []string{"desires", "begin", "one", "axis"}, []string{"desire"})
	g.Node("Slice", []string{"traffic_convention", "begin", "one", "axis"}, []string{"left"})
	g.Node("Add", []string{"features", "desire"}, []string{"sum"})
	g.Node("Add", []string{"sum", "left"}, []string{"outputs"})
	g.Output("outputs", ir.Float16, 1, 1000)
	m, err := g.Model()
	require.NoError(b, err)
	file := filepath.Join(b.TempDir(), "light.onnx")
	require.NoError(b, m.Save(file))
	o, err := onnx.Load(file)
	require.NoError(b, err)
	r, err := compile.Compile(b.Context(), o, options("fp16"))
	require.NoError(b, err)
	return r.Program
}
