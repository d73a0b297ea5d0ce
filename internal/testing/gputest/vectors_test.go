package gputest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// caseTargets are those that a device may get.
var caseTargets = []string{"sm_121a", "sm_90a", "sm_90", "sm_80"}

// availableCases are the cases that a target has.
func availableCases(target string) []*Case {
	var out []*Case
	for _, c := range Cases() {
		if c.Available(target) == nil {
			out = append(out, c)
		}
	}
	return out
}

// TestVectors runs every case on the GPU and compares it with the CPU device.
func TestVectors(t *testing.T) {
	ctx := context.Background()
	d := openDevice(t)
	name, err := Target(d.Info())
	require.NoError(t, err)
	cases := availableCases(name)
	reference, err := NewReference(ctx, name, cases)
	require.NoError(t, err)
	runner := &Runner{Device: d, Target: name}
	require.NoError(t, runner.Open(ctx, cases))
	if runner.refused {
		t.Error("the driver refuses the module of all cases: they are loaded one by one")
	}
	rec := &Recording{Device: d.Info().Name, Target: name}
	lost := false
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if lost {
				t.Skip("the GPU's context is lost")
			}
			got, err := runner.Run(ctx, c)
			lost = errors.Is(err, hal.ErrDeviceLost)
			require.NoError(t, err)
			rec.Add(c, got)
			require.NoError(t, reference.Check(ctx, c, got))
		})
	}
	rec.Accumulators = accumulators(cases, func(c *Case) []byte { return rec.Outputs[c.Name] })
	for _, op := range slices.Sorted(maps.Keys(rec.Accumulators)) {
		t.Logf("%s: sums in %v", op, rec.Accumulators[op])
	}
	if dir := os.Getenv("SPARK_RECORD"); dir != "" {
		path, err := rec.Write(dir)
		require.NoError(t, err)
		t.Logf("%d cases of %s recorded in %s", len(rec.Outputs), rec.Device, path)
	}
	if !lost {
		require.NoError(t, runner.Close())
	}
}

// TestRecordedVectors compares the CPU device with what GPUs computed.
func TestRecordedVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/vectors/*.npz")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("nothing was recorded on a GPU yet: see docs/gpu.md")
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			rec, err := ReadRecording(path)
			require.NoError(t, err)
			checkRecording(t, rec)
		})
	}
}

func checkRecording(t *testing.T, rec *Recording) {
	ctx := context.Background()
	cases := availableCases(rec.Target)
	reference, err := NewReference(ctx, rec.Target, cases)
	require.NoError(t, err)
	var missing []string
	for _, c := range cases {
		output, ok, err := rec.Output(c)
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.Name, err)
		case !ok:
			missing = append(missing, c.Name)
		default:
			if err := reference.Check(ctx, c, output); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if len(missing) > 0 {
		t.Logf("not recorded: %s", strings.Join(missing, ", "))
	}
}

func TestEveryOpcodeHasACase(t *testing.T) {
	have := map[string]bool{}
	names := map[string]bool{}
	for _, c := range Cases() {
		require.False(t, names[c.kernel()], "two cases with a kernel %s", c.kernel())
		names[c.kernel()] = true
		uses := false
		m := ptx.NewModule("sm_121a")
		c.add(m)
		for _, s := range m.Kernels[0].Body {
			uses = uses || s.Instr != nil && s.Instr.Def.Op == c.Op
		}
		require.True(t, uses, "%s does not execute %s", c.Name, c.Op)
		have[c.Op] = true
	}
	for _, op := range ptx.Opcodes() {
		require.True(t, have[op], "%s has no case", op)
	}
}

// TestCasesAreSound: on the CPU device, with all checks on, every case runs, uses its inputs, and gives the same twice.
func TestCasesAreSound(t *testing.T) {
	ctx := context.Background()
	for _, name := range caseTargets {
		cases := availableCases(name)
		reference, err := NewReference(ctx, name, cases)
		require.NoError(t, err)
		for _, c := range cases {
			got, err := reference.runner.Run(ctx, c)
			require.NoError(t, err, "%s, %s", name, c.Name)
			require.NoError(t, reference.Check(ctx, c, got), "%s, %s", name, c.Name)
			require.False(t, bytes.Equal(got, make([]byte, len(got))), "%s, %s: the output is all zeros", name, c.Name)
		}
	}
}

// TestAWrongElementIsNoticed: every case fails if a sign or high bit is wrong.
func TestAWrongElementIsNoticed(t *testing.T) {
	ctx := context.Background()
	cases := availableCases("sm_121a")
	reference, err := NewReference(ctx, "sm_121a", cases)
	require.NoError(t, err)
	for _, c := range cases {
		if c.Rule.Measured {
			continue
		}
		got, err := reference.runner.Run(ctx, c)
		require.NoError(t, err)
		size := max(c.Rule.size(), 1)
		for i := 0; i+size <= len(got); i += size { // a sign or high bit of the first element that is of moderate size
			element := append([]byte{}, got[i:i+size]...)
			if c.Rule.Float != "" {
				if x := float(c.Rule.Float, unpack(size, element)[0]); !(x > 0.25 && x < 1e3) {
					continue
				}
			}
			got[i+size-1] ^= 0x80
			require.Error(t, reference.Check(ctx, c, got), c.Name)
			break
		}
	}
}

func TestRecordingsComeBackAndPinTheCPUDevice(t *testing.T) {
	ctx := context.Background()
	cases := availableCases("sm_121a")
	reference, err := NewReference(ctx, "sm_121a", cases)
	require.NoError(t, err)
	rec := &Recording{Device: "NVIDIA Test-GPU (2)", Target: "sm_121a"}
	for _, c := range cases {
		got, err := reference.runner.Run(ctx, c)
		require.NoError(t, err)
		rec.Add(c, got)
	}
	rec.Accumulators = accumulators(cases, func(c *Case) []byte { return rec.Outputs[c.Name] })
	path, err := rec.Write(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, "nvidia-test-gpu-2.npz", filepath.Base(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(2<<20), "a recording is meant to live in the repository")
	back, err := ReadRecording(path)
	require.NoError(t, err)
	require.Equal(t, rec, back)
	checkRecording(t, back)

	add := cases[0]
	back.Digests[add.Name] = "another"
	_, _, err = back.Output(add)
	require.ErrorIs(t, err, ErrStale)
}

func TestPtxasTakesEveryCase(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	tool, err := toolchain.FindPtxas(ctx)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, name := range caseTargets {
		r, err := tool.Assemble(ctx, PTX(name, availableCases(name)), name)
		require.NoError(t, err)
		require.Len(t, r.Usage, len(availableCases(name)))
	}
}

func TestRulesTellNearFromFar(t *testing.T) {
	f := func(bits ...uint64) []byte { return pack(4, bits) }
	const one, next, negative, nan, otherNaN, infinite = 0x3f800000, 0x3f800001, 0xbf800000, 0x7fffffff, 0x7fc00000, 0x7f800000
	exact, approx, sum := Rule{Float: "f32"}, Rule{Float: "f32", Relative: 0x1p-22}, Rule{Float: "f32", Terms: 17, Unit: 0x1p-23}
	for _, c := range []struct {
		name      string
		rule      Rule
		got, want []byte
		scale     []byte
		ok        bool
	}{
		{"equal bytes", Rule{}, []byte{1, 2}, []byte{1, 2}, nil, true},
		{"one byte differs", Rule{}, []byte{1, 2}, []byte{1, 3}, nil, false},
		{"a byte is missing", Rule{}, []byte{1}, []byte{1, 3}, nil, false},
		{"payload of a NaN", exact, f(nan), f(otherNaN), nil, true},
		{"NaN against a number", exact, f(nan), f(one), nil, false},
		{"zeros of both signs", exact, f(0), f(1 << 31), nil, false},
		{"last place, exact", exact, f(next), f(one), nil, false},
		{"last place, approximate", approx, f(next), f(one), nil, true},
		{"three last places, approximate", approx, f(one + 3), f(one), nil, false},
		{"infinite, approximate", approx, f(infinite), f(one), nil, false},
		{"a sum within its terms' error", sum, f(one + 19), f(one), f(one), true},
		{"a sum beyond it", sum, f(one + 20), f(one), f(one), false},
		{"a sum of the wrong sign", sum, f(negative), f(one), f(one), false},
		{"cancellation", sum, f(0x34000000), f(0), f(one), true}, // 2^-23
	} {
		err := c.rule.compare(c.got, c.want, c.scale)
		require.Equal(t, c.ok, err == nil, "%s: %v", c.name, err)
	}
}

func TestTargetIsTheNewestThatTheDeviceTakes(t *testing.T) {
	for device, want := range map[string]string{"sm_80": "sm_80", "sm_89": "sm_80", "sm_90": "sm_90a", "sm_100": "sm_90", "sm_120": "sm_90", "sm_121": "sm_121a", "": "sm_121a"} {
		got, err := Target(hal.Info{Target: device})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := Target(hal.Info{Name: "old", Target: "sm_75"})
	require.ErrorContains(t, err, "older")
}
