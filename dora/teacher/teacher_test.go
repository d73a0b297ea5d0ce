package teacher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

func device(t testing.TB, check bool) hal.Device {
	t.Helper()
	d, err := emu.Open(emu.Options{Check: check})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// model makes one of the repository's own, in f32.
func model(t testing.TB, name string, size driving.Size) *onnx.Model {
	t.Helper()
	src, err := driving.MakeIn(name, size, ir.Float32)
	require.NoError(t, err)
	file, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	return file
}

// samples are keys and inputs.
func samples(t testing.TB, file *onnx.Model, n int) (keys []string, inputs []map[string][]byte) {
	t.Helper()
	g, err := onnx.Import(file, onnx.ImportOptions{})
	require.NoError(t, err)
	inputs = calibrate.Bytes(calibrate.Generate(g, n))
	for i := range inputs {
		keys = append(keys, fmt.Sprintf("route--0/%d", i))
	}
	return keys, inputs
}

func open(t testing.TB, file *onnx.Model, opt Options) *Teacher {
	t.Helper()
	teacher, err := Open(context.Background(), file, device(t, false), opt)
	require.NoError(t, err)
	t.Cleanup(func() { _ = teacher.Close() })
	return teacher
}

// values computes, or takes from the cache.
func values(t testing.TB, teacher *Teacher, keys []string, inputs []map[string][]byte) []map[string][]float32 {
	t.Helper()
	out, err := teacher.Values(context.Background(), keys, inputs)
	require.NoError(t, err)
	require.Len(t, out, len(keys))
	return out
}

// TestABatchGivesWhatItsSamplesGiveAlone: in f32 up to the order of sums; the other samples of a batch do not
// change a bit.
func TestABatchGivesWhatItsSamplesGiveAlone(t *testing.T) {
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 5)
	alone := values(t, open(t, file, Options{Precision: "fp32", Batch: 1}), keys, inputs)
	four := open(t, file, Options{Precision: "fp32", Batch: 4})
	together := values(t, four, keys, inputs)
	for i := range keys {
		require.Contains(t, together[i], "outputs")
		require.Len(t, together[i]["outputs"], 1000)
		for k, x := range alone[i]["outputs"] {
			require.InDelta(t, x, together[i]["outputs"][k], 1e-4)
		}
	}
	for i := range keys { // in another place, filled up
		require.Equal(t, together[i], values(t, four, keys[i:i+1], inputs[i:i+1])[0])
	}
	require.Equal(t, 10, four.Stats().Inferences)
	require.Positive(t, four.Stats().Rate())
}

// TestTeacherCache_InterruptedWriteLeavesWholeFiles: a call whose context ends in a run changes nothing of what later calls give: kernels that share sums count their blocks in memory that
// stays. Close does not wait for such a run.
func TestTeacherCache_InterruptedWriteLeavesWholeFiles(t *testing.T) {
	fulltest.Long(t)
	file := model(t, "vision", driving.Small)
	keys, inputs := samples(t, file, 4)
	teacher := open(t, file, Options{Batch: 4})
	begun := time.Now()
	want := values(t, teacher, keys, inputs)
	whole := time.Since(begun)
	left := 0
	for i := range time.Duration(12) {
		ctx, cancel := context.WithTimeout(t.Context(), whole*(i+1)/32)
		if _, err := teacher.Values(ctx, keys, inputs); err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			left++
		}
		cancel()
		if i%4 == 3 {
			require.Equal(t, want, values(t, teacher, keys, inputs))
		}
	}
	require.Positive(t, left)
	ctx, cancel := context.WithTimeout(t.Context(), whole/16)
	defer cancel()
	_, _ = teacher.Values(ctx, keys, inputs)
	require.NoError(t, teacher.Close())
}
