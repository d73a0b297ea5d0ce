package profile_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

func compiledFor(t *testing.T, name, precision string, targets ...string) *runtime.Program {
	if targets == nil {
		targets = []string{"sm_121"}
	}
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	r, err := compile.Compile(context.Background(), m, compile.Options{Precision: precision, Targets: targets})
	require.NoError(t, err)
	return r.Program
}

func outputs(t *testing.T, s *runtime.Session) map[string][]float64 {
	for _, in := range s.Model().Program.Inputs {
		x := s.Input(in.Name)
		for i := range x {
			x[i] = byte(i % 60)
		}
	}
	require.NoError(t, s.Run(context.Background()))
	out, err := s.Float64s()
	require.NoError(t, err)
	return out
}

// TestStampedProgramsComputeTheSame, with all checks on. Each launch begins before it is released, is released
// before it ends, and is released after its predecessors have ended.
func TestStampedProgramsComputeTheSame(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	for name, precision := range map[string]string{"policy": "fp32", "vision": "fp16", "dmonitoring": "bf16"} {
		t.Run(name, func(t *testing.T) {
			p := compiledFor(t, name, precision)
			stamped, err := profile.WithTimeline(p, "sm_121")
			require.NoError(t, err)
			require.NoError(t, stamped.Validate())
			d, err := emu.Open(emu.Options{Check: true})
			require.NoError(t, err)
			plain, err := runtime.Open(ctx, p, d, runtime.ModelOptions{})
			require.NoError(t, err)
			want := outputs(t, plain)
			s, err := runtime.Open(ctx, stamped, d, runtime.ModelOptions{})
			require.NoError(t, err)
			require.Equal(t, want, outputs(t, s))
			require.Equal(t, want, outputs(t, s), "again")
			run, err := profile.ReadTimeline(s, "run")
			require.NoError(t, err)
			launches := run.Launches
			require.Len(t, launches, kernels(stamped.Variants[0].Entry("run")))
			ended := map[int]int{}
			for _, l := range launches {
				require.GreaterOrEqual(t, l.Begun, 0)
				require.LessOrEqual(t, l.Begun, l.Released, "%+v", l)
				require.Less(t, l.Released, l.Ended, "%+v", l)
				for _, j := range stamped.Variants[0].Entry("run").Launches[l.Index].After {
					require.LessOrEqual(t, ended[j], l.Released, "%+v after %d", l, j)
				}
				ended[l.Index] = l.Ended
			}
		})
	}
}

func kernels(e *runtime.Entry) (n int) {
	for i := range e.Launches {
		if e.Launches[i].Kernel != "" {
			n++
		}
	}
	return n
}

// TestStampsAreRead: a late block counts, the clock may start again, and whoever begins first begins at 0.
func TestStampsAreRead(t *testing.T) {
	ctx := context.Background()
	stamped, err := profile.WithTimeline(compiledFor(t, "policy", "fp16"), "sm_121")
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	s, err := runtime.Open(ctx, stamped, d, runtime.ModelOptions{})
	require.NoError(t, err)
	raw, err := s.State(profile.TimelineBuffer)
	require.NoError(t, err)
	const origin = 1<<32 - 5000                     // 5 µs before the clock starts again
	for _, step := range []int{1000, 400_000_000} { // ns from launch to launch: the clock starts again once, and every ten launches
		late := -1
		for i, l := range stamped.Variants[0].Entry("run").Launches {
			if l.Kernel == "" {
				continue
			}
			own := runtime.View[uint32](raw[l.Params[len(l.Params)-1].Offset:])
			for b := range profile.StampedBlocks(&l) {
				begun, released, ended := step*i+b, step*i+500+b, step*i+900
				if late < 0 && b > 0 && b == profile.StampedBlocks(&l)-1 {
					late, ended = i, step*i+7777
				}
				for k, x := range []int{begun, released, ended} {
					own[profile.StampWords*b+k] = uint32(origin + x)
				}
			}
		}
		require.GreaterOrEqual(t, late, 0, "no launch has several blocks")
		require.NoError(t, s.SetState(profile.TimelineBuffer, raw))
		run, err := profile.ReadTimeline(s, "run")
		require.NoError(t, err)
		require.Equal(t, 1, run.TickNS)
		require.Zero(t, run.RefinedNS)
		first := run.Launches[0].Index
		for _, l := range run.Launches {
			begun := step * (l.Index - first)
			want := begun + 900
			if l.Index == late {
				want += 6877
			}
			require.Equal(t, []int{begun, begun + 500, want}, []int{l.Begun, l.Released, l.Ended}, "launch %d", l.Index)
		}
	}
	_, err = profile.ReadTimeline(s, "walk")
	require.ErrorContains(t, err, `no entry "walk"`)
}

// TestRead_RefinesACoarseClock: the counters of two multiprocessors distinguish blocks that run within one step of
// the shared clock.
func TestRead_RefinesACoarseClock(t *testing.T) {
	stamped, err := profile.WithTimeline(compiledFor(t, "policy", "fp16"), "sm_121")
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), stamped, d, runtime.ModelOptions{})
	require.NoError(t, err)
	raw, err := s.State(profile.TimelineBuffer)
	require.NoError(t, err)
	const tick, step = 1000, 813
	for i, l := range stamped.Variants[0].Entry("run").Launches {
		if l.Kernel == "" {
			continue
		}
		own := runtime.View[uint32](raw[l.Params[len(l.Params)-1].Offset:])
		for b := range profile.StampedBlocks(&l) {
			for k, at := range []int{step*i + b%50, step*i + 300 + b%50, step*i + 700} {
				own[profile.StampWords*b+k], own[profile.StampWords*b+3+k] = uint32(at/tick*tick), uint32(b%2*1e6+2*at)
			}
			own[profile.StampWords*b+6] = uint32(b % 2)
		}
	}
	require.NoError(t, s.SetState(profile.TimelineBuffer, raw))
	run, err := profile.ReadTimeline(s, "run")
	require.NoError(t, err)
	require.Equal(t, tick, run.TickNS)
	require.Positive(t, run.RefinedNS)
	first := run.Launches[0].Index
	for _, l := range run.Launches {
		begun := float64(step * (l.Index - first))
		require.InDelta(t, begun, l.Begun, 100, "launch %d", l.Index)
		require.InDelta(t, begun+300, l.Released, 100, "launch %d", l.Index)
		require.InDelta(t, begun+700, l.Ended, 100, "launch %d", l.Index)
	}
}

// TestPtxasTakesStampedKernels for each target.
func TestPtxasTakesStampedKernels(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	tool, err := toolchain.FindPtxas(ctx)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, name := range target.Names() {
		p := compiledFor(t, "dmonitoring", "fp16", name)
		stamped, err := profile.WithTimeline(p, name)
		require.NoError(t, err)
		text := stamped.Variants[0].PTX
		waits, read := strings.Count(text, "\tgriddepcontrol.wait;\n"), regexp.MustCompile(`\tgriddepcontrol\.wait;\n\tmov\.u32 +%r\d+, %globaltimer_lo;\n\tmov\.u32 +%r\d+, %clock;\n`)
		require.Len(t, read.FindAllString(text, -1), waits, "the clocks are read behind each wait")
		r, err := tool.Assemble(ctx, text, name)
		require.NoError(t, err)
		for kernel, u := range r.Usage {
			require.Zero(t, u.Spills, "%s of %s", kernel, name)
		}
	}
}
