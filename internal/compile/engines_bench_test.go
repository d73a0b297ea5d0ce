package compile

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// onnxRuntime times a model on the CPU with as many threads as there are cores and prints the best run in milliseconds.
const onnxRuntime = `
import sys, time, os, numpy as np, onnxruntime as ort
ort.set_default_logger_severity(4)
o = ort.SessionOptions(); o.intra_op_num_threads = os.cpu_count()
s = ort.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
t = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
x = {i.name: np.zeros(i.shape, t[i.type]) for i in s.get_inputs()}
best = 1e9
for _ in range(30):
    a = time.perf_counter(); s.run(None, x); best = min(best, time.perf_counter() - a)
print(best * 1e3)
`

// BenchmarkFullModels times the models of ../shared/models in fp16 on the CPU device, and ONNX Runtime's in the same run:
// its metric is the milliseconds of the best run, to be held against best-ms of the device.
func BenchmarkFullModels(b *testing.B) {
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		b.Skip("no full-size models beside the repository: ", err)
	}
	for _, f := range fulls {
		file := filepath.Join(dir, f.model+".onnx")
		b.Run(f.model+"/onnxruntime", func(b *testing.B) {
			python := os.Getenv("SPARK_PYTHON")
			if python == "" {
				b.Skip("SPARK_PYTHON is not set")
			}
			for b.Loop() {
				out, err := exec.Command(python, "-c", onnxRuntime, file).Output()
				require.NoError(b, err)
				best, err := strconv.ParseFloat(string(bytes.TrimSpace(out)), 64)
				require.NoError(b, err)
				b.ReportMetric(best, "best-ms")
			}
		})
		m, err := onnx.Load(file)
		require.NoError(b, err)
		r, err := Compile(context.Background(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}})
		require.NoError(b, err)
		for _, engine := range []emu.Engine{emu.JIT, emu.AVX2, emu.Interpreter} {
			b.Run(f.model+"/"+string(engine), func(b *testing.B) {
				ctx := context.Background()
				d, err := emu.Open(emu.Options{Engine: engine})
				if err != nil {
					b.Skip(err)
				}
				m, err := runtime.NewModel(ctx, r.Program, d, runtime.ModelOptions{})
				require.NoError(b, err)
				s, err := m.NewSession(ctx, runtime.SessionOptions{})
				require.NoError(b, err)
				best := 1e9
				for b.Loop() {
					before := b.Elapsed()
					require.NoError(b, s.Run(ctx))
					best = min(best, (b.Elapsed()-before).Seconds()*1e3)
				}
				b.ReportMetric(best, "best-ms")
			})
		}
	}
}

// BenchmarkColdStart is what a program waits for before its first result on the CPU device: reading the package, parsing
// the PTX, native code, weights, and one run.
func BenchmarkColdStart(b *testing.B) {
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		b.Skip("no full-size models beside the repository: ", err)
	}
	for _, f := range fulls {
		m, err := onnx.Load(filepath.Join(dir, f.model+".onnx"))
		require.NoError(b, err)
		r, err := Compile(context.Background(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}})
		require.NoError(b, err)
		b.Run(f.model, func(b *testing.B) {
			ctx := context.Background()
			for b.Loop() {
				d, err := emu.Open(emu.Options{})
				require.NoError(b, err)
				m, err := runtime.NewModel(ctx, r.Program, d, runtime.ModelOptions{})
				require.NoError(b, err)
				s, err := m.NewSession(ctx, runtime.SessionOptions{})
				require.NoError(b, err)
				require.NoError(b, s.Run(ctx))
			}
		})
	}
}
