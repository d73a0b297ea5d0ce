package runtime_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// full is the larger number with SPARK_FULL=1, else the smaller one.
func full(many, few int) int {
	if fulltest.Runs("runtime soak") {
		return many
	}
	return few
}

// packaged compiles a two-layer perceptron and writes it as a package.
func packaged(t *testing.T) string {
	t.Helper()
	b := onnx.NewBuilder("tiny", 17)
	b.Input("x", ir.Float32, 1, 8)
	weights := func(rows, columns int) []float64 {
		w := make([]float64, rows*columns)
		for i := range w {
			w[i] = float64(i%7)/4 - .7
		}
		return w
	}
	w1 := b.Initializer("w1", ir.FromFloats(ir.T(ir.Float32, 8, 16), weights(8, 16)))
	w2 := b.Initializer("w2", ir.FromFloats(ir.T(ir.Float32, 16, 4), weights(16, 4)))
	b.Node("MatMul", []string{b.Op("Relu", []string{b.Op("MatMul", []string{"x", w1})}), w2}, []string{"y"})
	b.Output("y", ir.Float32, 1, 4)
	m, err := b.Model()
	require.NoError(t, err)
	r, err := compile.Compile(context.Background(), m, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	files, err := gopkg.Files("tiny", r.Program, nil)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, gopkg.Write(dir, files))
	return dir
}

func fill(s *runtime.Session, seed int) {
	x := runtime.View[float32](s.Input("x"))
	for i := range x {
		x[i] = float32((i*5+seed)%11) - 5
	}
}

// usage is what a process holds.
type usage struct {
	heap, resident  int64
	goroutines, fds int
}

func measure(t *testing.T) usage {
	t.Helper()
	for range 3 { // what has a finalizer, as native code has, goes with the second collection
		last := make(chan struct{})
		goruntime.AddCleanup(new([64]byte), func(done chan struct{}) { close(done) }, last)
		debug.FreeOSMemory()
		<-last
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	u := usage{heap: int64(m.HeapAlloc), goroutines: goruntime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.fds = len(fds)
	}
	if raw, err := os.ReadFile("/proc/self/statm"); err == nil {
		pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
		require.NoError(t, err)
		u.resident = pages * int64(os.Getpagesize())
	}
	return u
}

// requireNoGrowth allows for what the Go runtime keeps for itself.
func requireNoGrowth(t *testing.T, before, after usage) {
	t.Helper()
	t.Logf("before %+v, after %+v", before, after)
	require.LessOrEqual(t, after.heap-before.heap, int64(64<<10), "heap")
	require.LessOrEqual(t, after.resident-before.resident, int64(32<<20), "resident memory")
	require.LessOrEqual(t, after.goroutines, before.goroutines, "goroutines")
	require.LessOrEqual(t, after.fds, before.fds, "file descriptors")
}

// TestLivesLeakNothing reads, loads, runs and closes a model over and over.
func TestLivesLeakNothing(t *testing.T) {
	ctx, dir := context.Background(), packaged(t)
	life := func() []byte {
		p, err := runtime.Read(os.DirFS(dir))
		require.NoError(t, err)
		d, err := emu.Open(emu.Options{})
		require.NoError(t, err)
		m, err := runtime.NewModel(ctx, p, d, runtime.ModelOptions{})
		require.NoError(t, err)
		s, err := m.NewSession(ctx, runtime.SessionOptions{})
		require.NoError(t, err)
		fill(s, 0)
		require.NoError(t, s.Run(ctx))
		out := bytes.Clone(s.Output("y"))
		require.NoError(t, s.Close())
		require.NoError(t, m.Close())
		require.NoError(t, d.Close())
		return out
	}
	want := life()
	for range 20 {
		life()
	}
	before := measure(t)
	for range full(1000, 100) {
		require.Equal(t, want, life())
	}
	requireNoGrowth(t, before, measure(t))
}

func open(t *testing.T, dir string) (*runtime.Model, hal.Device) {
	t.Helper()
	p, err := runtime.Read(os.DirFS(dir))
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	m, err := runtime.NewModel(context.Background(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		require.NoError(t, d.Close())
	})
	return m, d
}

// TestRunsLeakNothing runs one session over and over: the same bits each time, and nothing grows.
func TestRunsLeakNothing(t *testing.T) {
	ctx := context.Background()
	m, _ := open(t, packaged(t))
	s, err := m.NewSession(ctx, runtime.SessionOptions{})
	require.NoError(t, err)
	defer s.Close()
	fill(s, 3)
	require.NoError(t, s.Run(ctx))
	want := bytes.Clone(s.Output("y"))
	for range 100 {
		require.NoError(t, s.Run(ctx))
	}
	before := measure(t)
	for i := range full(100_000, 5_000) {
		if err := s.Run(ctx); err != nil {
			require.NoError(t, err)
		}
		if !bytes.Equal(want, s.Output("y")) {
			require.Equal(t, want, s.Output("y"), "run %d", i)
		}
	}
	requireNoGrowth(t, before, measure(t))
}

// TestSessionsOfManyGoroutines shares a model: each goroutine makes, uses and closes sessions of its own. The race
// detector watches where it is on.
func TestSessionsOfManyGoroutines(t *testing.T) {
	ctx := context.Background()
	m, _ := open(t, packaged(t))
	const goroutines, sessions, runs = 8, 3, 20
	want := make([][]byte, runs)
	alone, err := m.NewSession(ctx, runtime.SessionOptions{})
	require.NoError(t, err)
	for i := range want {
		fill(alone, i)
		require.NoError(t, alone.Run(ctx))
		want[i] = bytes.Clone(alone.Output("y"))
	}
	require.NoError(t, alone.Close())
	require.NotEqual(t, want[0], want[1])
	errs := make(chan error, goroutines)
	var wait sync.WaitGroup
	for g := range goroutines {
		wait.Go(func() {
			errs <- func() error {
				for range sessions {
					s, err := m.NewSession(ctx, runtime.SessionOptions{})
					if err != nil {
						return err
					}
					for i := range runs {
						n := (i + g) % runs
						fill(s, n)
						if err := s.Run(ctx); err != nil {
							return err
						}
						if !bytes.Equal(want[n], s.Output("y")) {
							t.Errorf("goroutine %d, run %d: other bits", g, i)
						}
					}
					if err := s.Close(); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wait.Wait()
	for range goroutines {
		require.NoError(t, <-errs)
	}
}
