package dataset

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestAPolicyComputesOfSamplesWhatItComputesInModeld: the compiled step of openpilot's loop (runtime/modeld, which is held to modeld itself) runs over every frame of a
// route; at samples its policy computes what the policy alone computes of the sample. So pictures, features, pulses and numbers are those of the loop.
func TestAPolicyComputesOfSamplesWhatItComputesInModeld(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: 8, Width: 240, Height: 150})
	var files []*onnx.Model
	var inputs [2][]Input
	for k, name := range []string{"vision", "policy"} {
		m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
		require.NoError(t, err)
		file, err := onnx.Decode(name+".onnx", m.ONNX)
		require.NoError(t, err)
		files = append(files, file)
		for _, i := range m.Inputs {
			inputs[k] = append(inputs[k], Input{i.Name, i.Type})
		}
	}
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	var alone [2]*teacher.Teacher
	for k, file := range files {
		alone[k], err = teacher.Open(ctx, file, d, teacher.Options{Precision: "fp32", Batch: 1})
		require.NoError(t, err)
		defer alone[k].Close()
	}
	g, err := onnx.Import(files[0], onnx.ImportOptions{})
	require.NoError(t, err)
	parts, err := files[0].OutputSlices(g.Outputs[0].Type.Numel())
	require.NoError(t, err)
	features := func(ctx context.Context, keys []string, in []map[string][]byte) ([][]float32, error) {
		values, err := alone[0].Values(ctx, keys, in)
		var out [][]float32
		for _, v := range values {
			for _, p := range parts {
				if p.Name == "hidden_state" {
					out = append(out, v[g.Outputs[0].Name][p.Start:p.End])
				}
			}
		}
		return out, err
	}
	set, err := Open(ctx, dir, Options{Inputs: inputs[1], Vision: inputs[0], Features: features, Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	defer set.Close()
	segment := set.(*routes).segments[0]
	from := onDrive(t, segment)

	road, wide := (&Synthesis{Width: 240, Height: 150}).eyes()
	first := road.Draw(0)
	layout := runtime.FrameLayout{Width: first.Width, Height: first.Height, Stride: first.Stride, UV: first.UV}
	r, err := compile.Loop(ctx, files, openpilot.Options{Largest: layout}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	loop, err := modeld.NewDriving(ctx, r.Program, d, modeld.Options{})
	require.NoError(t, err)
	defer loop.Close()
	samples := map[int]int{} // by frame
	for i, p := range set.(*routes).at {
		samples[p.k] = i
	}
	compared := 0
	for f, m := range segment.index.Timeline.Moments {
		in := modeld.Inputs{Desire: place{segment, f}.desire(0), RightHandDrive: m.RightHand, VEgo: m.Speed, LateralDelay: m.Delays[0], LongitudinalDelay: m.Delays[1],
			Calibration: &modeld.Calibration{RPY: m.RPY, Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}}
		out, err := loop.Step(ctx, modeld.Frame{Road: modeld.Picture(road.Draw(from + f)), Wide: modeld.Picture(wide.Draw(from + f)), ID: uint32(f + 1)}, in)
		require.NoError(t, err)
		i, ok := samples[f]
		if f < 104 || !ok { // before that, the loop's features are of frames without one before
			continue
		}
		s, err := set.Sample(ctx, i)
		require.NoError(t, err)
		values, err := alone[1].Values(ctx, []string{s.Key}, []map[string][]byte{s.Inputs})
		require.NoError(t, err)
		for _, got := range values[0] {
			want := out.Raw["policy_outputs"]
			x := make([]float64, len(got))
			for k, v := range got {
				x[k] = float64(v)
			}
			difference, err := runtime.Compare(x, want, 0, 0)
			require.NoError(t, err)
			assert.LessOrEqual(t, difference.RelL2, 1e-5, "frame %d", f)
		}
		compared++
	}
	assert.Equal(t, 14, compared)
}
