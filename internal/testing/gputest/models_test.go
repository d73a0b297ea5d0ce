package gputest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

// packages are those of $SPARK_GPU_MODELS; without it the test is skipped.
func packages(tb testing.TB) []*Package {
	tb.Helper()
	root := os.Getenv("SPARK_GPU_MODELS")
	if root == "" {
		tb.Skip("SPARK_GPU_MODELS names no directory of compiled models: see docs/gpu.md")
	}
	all, err := FindPackages(root)
	require.NoError(tb, err)
	return all
}

// TestModelsOnGPU compares every package's outputs on the GPU with its golden outputs, with the CPU device's, and, bit for
// bit, with a second run's.
func TestModelsOnGPU(t *testing.T) {
	for _, p := range packages(t) {
		t.Run(p.Name, func(t *testing.T) { checkModel(t, p) })
	}
}

func checkModel(t *testing.T, p *Package) {
	ctx := context.Background()
	d := openDevice(t)
	gpu, err := p.start(ctx, d, "")
	require.NoError(t, err)
	defer func() { require.NoError(t, gpu.Close()) }()
	for i, path := range p.Golden {
		golden, err := npy.ReadZip(path)
		require.NoError(t, err)
		first, err := gpu.outputs(ctx, golden)
		require.NoError(t, err)
		again, err := gpu.outputs(ctx, golden)
		require.NoError(t, err)
		require.Equal(t, first, again, "%s: two runs", path)
		var cpu map[string][]byte
		if p.quantised() || i == 0 && d.Info().Backend != "emu" {
			cpu = onCPU(t, p, gpu.Model().Variant.Target, golden)
		}
		compared := 0
		for _, out := range p.Program.Outputs {
			if golden[out.Name] == nil {
				continue
			}
			want, err := golden[out.Name].Float64s()
			require.NoError(t, err)
			m := measure(t, out, first[out.Name], want)
			t.Logf("%s: %s: cosine %.9f, relative L2 %.3g", filepath.Base(path), out.Name, m.Cosine, m.RelL2)
			bounds := p.Bounds()
			if p.quantised() {
				c := measure(t, out, cpu[out.Name], want)
				t.Logf("the CPU device: cosine %.9f, relative L2 %.3g", c.Cosine, c.RelL2)
				bounds = noFurther(c)
			}
			require.NoError(t, bounds.check(m), "%s: %s", path, out.Name)
			compared++
		}
		require.Positive(t, compared, "%s holds no output of %s", path, p.Name)
		if cpu != nil {
			againstCPU(t, p, first, cpu)
		}
	}
}

func measure(t *testing.T, out runtime.Port, got []byte, want []float64) runtime.Metrics {
	x, err := runtime.Float64s(out.DType, got)
	require.NoError(t, err)
	m, err := runtime.Compare(x, want, 0, 0)
	require.NoError(t, err)
	return m
}

// onCPU runs the same variant on the CPU device: the same PTX.
func onCPU(t *testing.T, p *Package, target string, golden map[string]*npy.Array) map[string][]byte {
	ctx := context.Background()
	e, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	cpu, err := p.start(ctx, e, target)
	require.NoError(t, err)
	defer func() { require.NoError(t, cpu.Close()) }()
	outputs, err := cpu.outputs(ctx, golden)
	require.NoError(t, err)
	return outputs
}

func againstCPU(t *testing.T, p *Package, got, cpu map[string][]byte) {
	for _, out := range p.Program.Outputs {
		want, err := runtime.Float64s(out.DType, cpu[out.Name])
		require.NoError(t, err)
		m := measure(t, out, got[out.Name], want)
		t.Logf("against the CPU device: %s: max abs %.3g, relative L2 %.3g", out.Name, m.MaxAbs, m.RelL2)
		if !p.quantised() {
			require.NoError(t, p.Bounds().betweenDevices().check(m), "against the CPU device: %s", out.Name)
		}
	}
}

// BenchmarkModels times runs of every package: replay is launch to launch on a busy stream, by the device's clock; run is what a caller waits
// for, inputs and outputs included.
func BenchmarkModels(b *testing.B) {
	for _, p := range packages(b) {
		for _, kind := range []string{"replay", "run"} {
			b.Run(p.Name+"/"+kind, func(b *testing.B) { benchmark(b, p, kind == "run") })
		}
	}
}

const (
	warmup = 20 // runs before the first that counts
	chunk  = 10 // launches in a row, whose mean is one time of replay
)

func benchmark(b *testing.B, p *Package, transfers bool) {
	ctx := context.Background()
	r, err := p.start(ctx, openDevice(b), "")
	require.NoError(b, err)
	defer func() { require.NoError(b, r.Close()) }()
	golden, err := npy.ReadZip(p.Golden[0])
	require.NoError(b, err)
	_, err = r.outputs(ctx, golden)
	require.NoError(b, err)
	most := chunk
	if transfers {
		most = 1
	}
	run := func(n int) time.Duration { // the mean of n
		begin := time.Now()
		if transfers {
			require.NoError(b, r.Run(ctx))
			return time.Since(begin)
		}
		took, err := r.Replay(ctx, hal.Timing{Runs: n})
		require.NoError(b, err)
		return took / time.Duration(n)
	}
	for done := 0; done < min(warmup, b.N); done += most {
		run(most)
	}
	var times []time.Duration // of b.N launches, each as its chunk's mean
	b.ResetTimer()
	for len(times) < b.N {
		n := min(most, b.N-len(times))
		times = append(times, slices.Repeat([]time.Duration{run(n)}, n)...)
	}
	b.StopTimer()
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	ms := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
	b.ReportMetric(ms(sum)/float64(b.N), "mean-ms")
	b.ReportMetric(ms(times[0]), "min-ms")
	b.ReportMetric(ms(times[b.N/2]), "p50-ms")
	b.ReportMetric(ms(times[min(b.N-1, b.N*99/100)]), "p99-ms")
}

func TestBoundsMiss(t *testing.T) {
	p := &Package{Program: &runtime.Program{Model: "driving_vision.onnx", Precision: "fp16"}}
	require.NoError(t, p.Bounds().check(runtime.Metrics{Cosine: 0.99998, RelL2: 1}))
	require.Error(t, p.Bounds().check(runtime.Metrics{Cosine: 0.99997}))
	require.InDelta(t, 6.3e-3, p.Bounds().betweenDevices().RelL2, 1e-4)
	p.Program.Precision = "fp32"
	require.Error(t, p.Bounds().check(runtime.Metrics{Cosine: 1, RelL2: 2e-5}))
	p.Program.Model = "another.onnx"
	require.NoError(t, p.Bounds().check(runtime.Metrics{Cosine: 1, RelL2: 2e-5}))
}
