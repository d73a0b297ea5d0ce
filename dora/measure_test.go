package dora

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// measured is a model of the generator at full size.
func measured(t *testing.T, name string, batch int) (m *Model, dir string) {
	t.Helper()
	src, err := driving.Make(name, driving.Full)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "model.onnx")
	require.NoError(t, os.WriteFile(path, src.ONNX, 0o666))
	file, err := onnx.Load(path)
	require.NoError(t, err)
	m, err = Open(file, onnx.ImportOptions{Batch: batch})
	require.NoError(t, err)
	return m, filepath.Dir(path)
}

// TestMeasureMemoryAndSpeed prints docs/measurements/training-step.csv, and times of PyTorch: SPARK_MEASURE is a
// Python with the packages of testdata/record.py.
func TestMeasureMemoryAndSpeed(t *testing.T) {
	python := os.Getenv("SPARK_MEASURE")
	if python == "" {
		t.Skip("SPARK_MEASURE is not set")
	}
	t.Run("memory", measureMemory)
	t.Run("PyTorch", func(t *testing.T) { measurePyTorch(t, python) })
}

// measureMemory prints what steps take between launches, and their times on GB10 as they are predicted.
func measureMemory(t *testing.T) {
	ctx := context.Background()
	fmt.Println("model,batch,memory,arena (MB),launches,launches computed again,MACs again / forward,run (µs),step (µs),step / run")
	for _, c := range []struct {
		name    string
		batch   int
		targets []string
		half    bool // predict what takes half of the memory too
	}{{"policy", 32, nil, true}, {"policy", 32, []string{"blocks.2.*"}, false}, {"vision", 8, nil, false}} {
		m, _ := measured(t, c.name, c.batch)
		a, err := Init(m, InitOptions{MaxSize: 0.01, Targets: c.targets})
		require.NoError(t, err)
		most, least := 0, 0
		for _, memory := range []func() int{func() int { return 0 }, func() int { return most / 2 }, func() int { return most / 4 }, func() int { return least }} {
			s, err := NewStep(ctx, m, a, StepOptions{Precision: "bf16", Memory: memory()})
			if err != nil {
				fmt.Printf("%s,%d,too little,%.2f,,,,,,\n", c.name, c.batch, float64(memory())/1e6)
				continue
			}
			v := &s.Program.Variants[0]
			if asked := memory(); asked > 0 {
				require.LessOrEqual(t, v.ArenaBytes, asked)
			}
			times, more, all := 0, int64(0), int64(0)
			for _, r := range s.Compile.Recomputed {
				times, more = times+r.Times, more+r.MACs
			}
			for _, n := range m.graph.Nodes {
				all += n.MACs()
			}
			label := "as needed"
			if asked := memory(); asked > 0 {
				label = fmt.Sprintf("at most %.2f", float64(asked)/1e6)
			}
			if c.targets != nil {
				label += fmt.Sprint(" of ", c.targets)
			}
			fmt.Printf("%s,%d,%s,%.2f,%d,%d,%.2f,", c.name, c.batch, label, float64(v.ArenaBytes)/1e6, len(v.Entry(EntryStep).Launches), times, float64(more)/float64(all))
			if most == 0 || c.half && memory() == most/2 {
				us := map[string]float64{}
				for _, e := range []string{EntryRun, EntryStep} {
					p, err := profile.Run(ctx, s.Program, v, e, nil)
					require.NoError(t, err)
					us[e] = p.Total.US
				}
				fmt.Printf("%.0f,%.0f,%.2f\n", us[EntryRun], us[EntryStep], us[EntryStep]/us[EntryRun])
			} else {
				fmt.Println(",,")
			}
			if most == 0 {
				most = v.ArenaBytes
				least, err = s.Compile.LeastMemory(ctx)
				require.NoError(t, err)
			}
			if c.targets != nil {
				break
			}
		}
	}
}

// measurePyTorch prints the CPU time of a step on the CPU device and of PyTorch, of one core each.
func measurePyTorch(t *testing.T, python string) {
	ctx := context.Background()
	m, dir := measured(t, "policy", 0)
	a, err := Init(m, InitOptions{MaxSize: 0.01})
	require.NoError(t, err)
	data := batches(t, m, 2)
	forPython(t, dir, a, data)
	s, err := NewStep(ctx, m, a, StepOptions{Precision: "fp32", WeightDecay: 0.01, ClipNorm: 0.05})
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{Workers: 1})
	require.NoError(t, err)
	defer d.Close()
	tr, err := s.Open(ctx, d)
	require.NoError(t, err)
	defer tr.Close()
	fastest := math.Inf(1)
	var losses []float64
	for i := range 50 {
		for name, x := range data[i%len(data)] {
			require.NoError(t, tr.Session().Set(name, x.Tensor().Dense()))
		}
		begin := cpuSeconds(t)
		r, err := tr.Step(ctx, 1e-3)
		require.NoError(t, err)
		fastest, losses = min(fastest, cpuSeconds(t)-begin), append(losses, r.Loss)
	}
	t.Setenv("OMP_NUM_THREADS", "1")
	torch := trainedBy(t, python, dir)
	require.InEpsilon(t, torch.Losses[49], losses[49], 1e-3, "both do the same")
	fmt.Printf("\nPolicy, batch 1, fp32, %d trained numbers: CPU device %.1f ms a step, PyTorch %s %.1f ms: %.2f times\n", a.Params(), 1e3*fastest, torch.Torch, 1e3*torch.Seconds, fastest/torch.Seconds)
}

// cpuSeconds is what the process has computed so far.
func cpuSeconds(t *testing.T) float64 {
	t.Helper()
	var use syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
}
