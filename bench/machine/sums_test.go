package machine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx/mmaprobe"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// named is the CPU device as a GPU of a target, whose file is no dry run.
type named struct {
	hal.Device
	target string
}

func (d named) Info() hal.Info {
	info := d.Device.Info()
	info.Target = d.target
	return info
}

// measured is the machine file of a CPU device that adds as sumBits says, written and read again, without figures: its times are not a GPU's.
func measured(t *testing.T, on string, sumBits map[string]int) *cost.File {
	t.Helper()
	d, err := emu.Open(emu.Options{CutOff: emu.CutOffs(sumBits)})
	require.NoError(t, err)
	defer d.Close()
	f, err := measure(t.Context(), named{d, on}, Options{Samples: 1}, dry)
	require.NoError(t, err)
	f.Figures = nil
	raw, err := json.Marshal(f)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "machine.json")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	back, err := cost.ReadFile(path)
	require.NoError(t, err)
	return back
}

// TestSumsThatDropBitsAreFound, of each type that a target multiplies, and where all sums are f32's, nothing is said of bits.
func TestSumsThatDropBitsAreFound(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []struct {
		on      string
		sumBits map[string]int
	}{
		{"sm_121", nil},
		{"sm_121", map[string]int{"e4m3": 13}},
		{"sm_121", map[string]int{"f16": 22, "bf16": 10, "e4m3": 1, "e2m1": 8}},
		{"sm_80", map[string]int{"bf16": 17}},
	} {
		f := measured(t, c.on, c.sumBits)
		require.Equal(t, c.sumBits, f.SumBits)
		row, err := target.Lookup(c.on)
		require.NoError(t, err)
		for _, p := range products {
			a, ok := f.Sums[p.dtype]
			require.Equal(t, row.Multiplies(p.dtype), ok, p.dtype)
			if !ok {
				continue
			}
			require.Len(t, a.Bias, 6, "K from 64 to 2048")
			bits, drops := c.sumBits[p.dtype]
			require.Equal(t, !drops, a.Exact(), "%s: %v", p.dtype, a)
			if !drops {
				bits = mmaprobe.Bits
			}
			require.Equal(t, bits, a.Kept, p.dtype)
		}
	}
}

// TestKernelsAddPartialSumsByWhatWasFound: a file that the measurement wrote changes kernels as one that says so by hand, and one of a device whose
// sums are f32's changes none.
func TestKernelsAddPartialSumsByWhatWasFound(t *testing.T) {
	fulltest.Long(t)
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	text := func(f *cost.File) string {
		r, err := compile.Compile(t.Context(), m, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}, Machine: f})
		require.NoError(t, err)
		return r.Program.Variants[0].PTX
	}
	plain, drops := text(nil), map[string]int{"f16": 13}
	require.True(t, plain == text(measured(t, "sm_121", nil)))
	found := text(measured(t, "sm_121", drops))
	require.False(t, plain == found)
	require.True(t, found == text(&cost.File{Format: cost.FileFormat, Target: "sm_121", Device: "cpu", SumBits: drops}))
}
