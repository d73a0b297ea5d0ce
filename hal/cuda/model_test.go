//go:build linux && (amd64 || arm64) && !nodriver && !bundle

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/fakecuda"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestWholeModelsGoThroughTheDriver loads, captures, runs and frees small models on the fake driver, which holds every
// launch against the PTX: kernel, number of parameters, threads, shared memory.
func TestWholeModelsGoThroughTheDriver(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	for _, name := range []string{"policy", "vision", "dmonitoring", "supercombo"} {
		src, err := driving.Made(name, driving.Small)
		require.NoError(t, err)
		model, err := onnx.Decode(name+".onnx", src.ONNX)
		require.NoError(t, err)
		for _, unified := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/unified=%v", name, unified), func(t *testing.T) {
				r, err := compile.Compile(ctx, model, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
				require.NoError(t, err)
				f, d := open(t, unified)
				m, err := runtime.NewModel(ctx, r.Program, d, runtime.ModelOptions{})
				require.NoError(t, err)
				s, err := m.NewSession(ctx, runtime.SessionOptions{})
				require.NoError(t, err, strings.Join(f.Log(), "\n"))
				require.NoError(t, s.Run(ctx))
				_, err = s.Replay(ctx, hal.Timing{})
				require.NoError(t, err)
				launches := 0
				for _, l := range f.Log() {
					if strings.HasPrefix(l, "launch ") || strings.HasPrefix(l, "copy ") {
						launches++
					}
				}
				require.Equal(t, m.Variant.Launches(), launches)
				require.NoError(t, s.Close())
				require.NoError(t, m.Close())
				require.NoError(t, d.Close())
				require.Zero(t, f.Balance())
			})
		}
	}
}

func TestFakeDriverRefusesALaunchThatTheKernelDoesNotTake(t *testing.T) {
	ctx := context.Background()
	_, d := open(t, false)
	m := ptx.NewModule("sm_121")
	increment(m, "k", 1, 0)
	module, err := d.Load(ctx, hal.Image{PTX: m.String()})
	require.NoError(t, err)
	good := hal.Op{Module: module, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{128, 1, 1}, Params: []uint64{1}, Sizes: []int{8}}
	for name, change := range map[string]func(op *hal.Op){
		"":                  func(*hal.Op) {},
		"a parameter more":  func(op *hal.Op) { op.Params, op.Sizes = []uint64{1, 2}, []int{8, 8} },
		"too many threads":  func(op *hal.Op) { op.Block[1] = 2 },
		"no blocks":         func(op *hal.Op) { op.Grid[2] = 0 },
		"another kernel":    func(op *hal.Op) { op.Kernel = "other" },
		"too much shared":   func(op *hal.Op) { op.Shared = 101377 },
		"all of the shared": func(op *hal.Op) { op.Shared = 101376 },
	} {
		op := good
		change(&op)
		_, err := d.Capture(ctx, []hal.Op{op})
		require.Equal(t, name == "" || name == "all of the shared", err == nil, "%s: %v", name, err)
	}
}

// TestAnEntryCopiesItsOwnInputsAndOutputs on a device whose memory the host does not see. The new value of a state is
// fetched when it is asked for.
func TestAnEntryCopiesItsOwnInputsAndOutputs(t *testing.T) {
	ctx := context.Background()
	kinds := []runtime.BufferKind{runtime.InputBuffer, runtime.InputBuffer, runtime.OutputBuffer, runtime.StateBuffer}
	v := runtime.Variant{Target: "sm_121", PTX: ".version 8.8\n"}
	p := &runtime.Program{Format: runtime.FormatVersion, Model: "copies", States: []runtime.State{{Input: "s", Output: "next"}}}
	for i, name := range []string{"x", "z", "y", "s"} {
		v.Buffers = append(v.Buffers, runtime.Buffer{Name: name, Kind: kinds[i], Bytes: 16 * (i + 1)})
	}
	entry := func(name string, from, to, bytes int) {
		c := runtime.Copy{Src: runtime.Access{Buffer: from, Bytes: bytes}, Dst: runtime.Access{Buffer: to, Bytes: bytes}, Bytes: bytes}
		v.Entries = append(v.Entries, runtime.Entry{Name: name, Launches: []runtime.Launch{{Copy: &c, Reads: []runtime.Access{c.Src}, Writes: []runtime.Access{c.Dst}}}})
	}
	entry("run", 0, 2, 16)
	entry("step", 1, 3, 32)
	entry("show", 3, 2, 48)
	p.Variants = []runtime.Variant{v}
	require.NoError(t, p.Validate())
	f, d := open(t, false)
	m, err := runtime.NewModel(ctx, p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	s, err := m.NewSession(ctx, runtime.SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"hostalloc 16 flags 3", "hostalloc 32 flags 3", "hostalloc 48 flags 3"}, linesWith(f, "hostalloc"),
		"inputs and outputs are copied from and to page-locked memory")
	for name, want := range map[string][]string{"run": {"htod 16", "dtoh 48"}, "step": {"htod 32"}, "show": {"dtoh 48"}} {
		begin := len(f.Log())
		require.NoError(t, s.RunEntry(ctx, name))
		var got []string
		for _, l := range f.Log()[begin:] {
			if strings.HasPrefix(l, "htod") || strings.HasPrefix(l, "dtoh") {
				got = append(got, l)
			}
		}
		require.Equal(t, want, got, name)
	}
	require.NoError(t, s.Close())
	require.NoError(t, m.Close())
	require.NoError(t, d.Close())
	require.Zero(t, f.Balance())
}

func linesWith(f *fakecuda.Driver, prefix string) (out []string) {
	for _, l := range f.Log() {
		if strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	return out
}

// TestSwitches_ChangeTheGraphOfAModel: without dependent launches no kernel has the attribute, and without prefetches
// the parameter that says how many bytes a kernel prefetches is 0; everything else is as it was.
func TestSwitches_ChangeTheGraphOfAModel(t *testing.T) {
	ctx := context.Background()
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	model, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	r, err := compile.Compile(ctx, model, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	entry := r.Program.Variants[0].Entry("run")
	f, err := buildFake()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("gcc is missing: the fake driver cannot be built")
	}
	require.NoError(t, err)
	address := regexp.MustCompile(` [0-9a-f]{7,}`) // of the stand-in's heap too; sizes of prefetches have 5 digits at most
	launches := func(s hal.Switches) []string {
		f.Reset(false)
		d, err := Open(Options{Library: f.Path, Switches: s})
		require.NoError(t, err)
		session, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
		require.NoError(t, err)
		lines := linesWith(f, "launch ")
		require.NoError(t, session.Close())
		require.NoError(t, d.Close())
		for i, l := range lines {
			lines[i] = address.ReplaceAllString(l, " ADDRESS")
		}
		return lines
	}
	all := launches(hal.Switches{})
	without := launches(hal.Switches{NoPrefetch: true})
	prefetching, dependent := 0, 0
	for i, l := range entry.Launches {
		if l.Dependent {
			require.Contains(t, all[i], " dependent 1 ")
			dependent++
		}
		if l.Prefetch == nil {
			require.Equal(t, all[i], without[i])
			continue
		}
		prefetching++
		size := fmt.Sprintf(" %x", l.Prefetch.Bytes)
		require.True(t, strings.HasSuffix(all[i], size), all[i])
		require.Equal(t, strings.TrimSuffix(all[i], size)+" 0", without[i])
	}
	require.Positive(t, prefetching)
	require.Positive(t, dependent)
	for i, l := range launches(hal.Switches{NoPDL: true}) {
		require.Equal(t, strings.Replace(all[i], " dependent 1 ", " dependent 0 ", 1), l)
	}
}

// TestStaging_WithoutPageLockedMemory: runs go on with pageable copies.
func TestStaging_WithoutPageLockedMemory(t *testing.T) {
	ctx := context.Background()
	src, err := driving.Made("policy", driving.Tiny)
	require.NoError(t, err)
	model, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	r, err := compile.Compile(ctx, model, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	f, d := open(t, false)
	f.Fail("cuMemHostAlloc", 0, 2)
	s, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Run(ctx))
	require.NoError(t, s.Close())
	f.Fail("cuMemHostAlloc", 0, 719)
	_, err = runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
	require.ErrorIs(t, err, hal.ErrDeviceLost)
	require.ErrorContains(t, err, "page-locked")
	require.NoError(t, d.Close())
	require.Zero(t, f.Balance())
}
