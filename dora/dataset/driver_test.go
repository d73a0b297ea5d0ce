package dataset

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestADriverMonitoringModelComputesOfSamplesWhatItComputesInItsLoop, of luma and of 2021: so pictures, the side of the seat and the calibration are those of the loop, which
// is held to openpilot's own.
func TestADriverMonitoringModelComputesOfSamplesWhatItComputesInItsLoop(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	const seconds = 8
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: seconds, Width: 240, Height: 150, Driver: true})
	_, wide := (&Synthesis{Width: 240, Height: 150}).eyes()
	snow := func(frame int) openpilot.Picture { // every part of the picture is unlike the others
		p, rng := wide.DrawDriver(frame), rand.New(rand.NewPCG(1, uint64(frame)))
		for i := range p.Data {
			p.Data[i] = byte(rng.Uint32())
		}
		return p
	}
	frames, err := filepath.Glob(filepath.Join(dir, "*", "dcamera", "*"))
	require.NoError(t, err)
	require.Len(t, frames, seconds*20)
	for i, path := range frames {
		require.NoError(t, npy.WriteZip(path, map[string]*npy.Array{"driver": snow(i).Array()}))
	}
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	left := t.TempDir() // a log that does not say where the driver sits
	require.NoError(t, os.CopyFS(left, os.DirFS(dir)))
	segments, err := filepath.Glob(filepath.Join(left, "*"))
	require.NoError(t, err)
	without(t, segments[0], route.KindDriverMonitoringState)
	for _, k := range []struct {
		name, dir string
		right     bool
	}{{"dmonitoring", dir, true}, {"dmonitoring", left, false}, {"dmonitoring_luma", dir, true}} {
		name, right := k.name, k.right
		t.Run(name, func(t *testing.T) {
			m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
			require.NoError(t, err)
			file, err := onnx.Decode(name+".onnx", m.ONNX)
			require.NoError(t, err)
			inputs, err := InputsOf(file)
			require.NoError(t, err)
			set, err := Open(ctx, k.dir, Options{Inputs: inputs, Warn: func(text string) { t.Error(text) }})
			require.NoError(t, err)
			defer set.Close()
			require.Equal(t, seconds*5, set.Len(), "five a second")
			g := set.(*routes).segments[0]
			from := onDrive(t, g)
			alone, err := teacher.Open(ctx, file, d, teacher.Options{Precision: "fp32", Batch: 1})
			require.NoError(t, err)
			defer alone.Close()
			first := snow(0)
			layout := runtime.FrameLayout{Width: first.Width, Height: first.Height, Stride: first.Stride, UV: first.UV}
			r, err := compile.Loop(ctx, []*onnx.Model{file}, openpilot.Options{Largest: layout}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
			require.NoError(t, err)
			loop, err := modeld.NewMonitoring(ctx, r.Program, d, modeld.Options{})
			require.NoError(t, err)
			defer loop.Close()
			for i := range set.Len() {
				k := set.(*routes).at[i].k

				assert.Equal(t, 4*i, k)
				out, err := loop.Step(ctx, modeld.DriverFrame{Picture: modeld.Picture(snow(k))},
					modeld.MonitoringInputs{RPY: single(openpilot.At(from + k - k%5).RPY), RightHandDrive: right, Camera: modeld.Intrinsics(wide)})
				require.NoError(t, err)
				s, err := set.Sample(ctx, i)
				require.NoError(t, err)
				assert.Empty(t, s.Truth)
				assert.Equal(t, name == "dmonitoring_luma", s.View != nil)
				values, err := alone.Values(ctx, []string{s.Key}, []map[string][]byte{s.Inputs})
				require.NoError(t, err)
				for output, got := range values[0] {
					x := make([]float64, len(got))
					for k, v := range got {
						x[k] = float64(v)
					}
					difference, err := runtime.Compare(x, out.Raw[output], 0, 0)
					require.NoError(t, err)
					assert.LessOrEqual(t, difference.RelL2, 1e-5, "frame %d", k)
				}
				if i%15 == 7 {
					want := shownByLoop(t, file, layout, modeld.Picture(snow(k)), right, modeld.Intrinsics(wide))
					in := slices.IndexFunc(inputs, func(in Input) bool { return in.Name == generation.DriverPicture })
					got, err := ir.NewTensor(inputs[in].Type, s.Inputs[generation.DriverPicture])
					require.NoError(t, err)
					assert.Equal(t, want, got.Floats(), "frame %d", k)
				}
			}
		})
	}
}

// shownByLoop is what the step of a driver-monitoring loop shows its network, as the evaluator has it.
func shownByLoop(t *testing.T, file *onnx.Model, layout runtime.FrameLayout, p modeld.Picture, right bool, camera modeld.Intrinsics) (x []float64) {
	t.Helper()
	step, err := openpilot.Compose([]*onnx.Model{file}, openpilot.Options{Largest: layout})
	require.NoError(t, err)
	matrix, preceding := modeld.MonitoringCrop(p, right), []string{"Cast", "Sub", "Mul"} // before the network's first convolution
	if step.Loop.Rule == "luma" {
		preceding = []string{"Reshape"}
		matrix, err = modeld.MonitoringWarp(camera, step.Loop.Width)
		require.NoError(t, err)
	}
	inputs := map[string]*ir.Array{}
	for _, v := range step.Run.Inputs {
		a := ir.NewArray(v.Type)
		switch v.Name {
		case runtime.TransformsInput:
			for i, m := range matrix {
				a.F[i] = float64(m)
			}
		case runtime.CameraInput:
			a.I = []int64{int64(p.Width), int64(p.Height), int64(p.Stride), int64(p.UV)}
		case openpilot.Frame:
			for i, b := range p.Data[:len(a.I)] {
				a.I[i] = int64(b)
			}
		}
		inputs[v.Name] = a
	}
	var shown *ir.Value
	for _, n := range step.Run.Nodes {
		if n.Op.Name == "WarpFrame" || n.Inputs[0] == shown && slices.Contains(preceding, n.Op.Name) {
			shown = n.Outputs[0]
		}
	}
	_, err = ir.Evaluate(context.Background(), step.Run, inputs, ir.EvalOptions{Observe: func(v *ir.Value, a *ir.Array) {
		if v == shown {
			x = slices.Concat(a.F, nil)
			for _, level := range a.I {
				x = append(x, float64(level))
			}
		}
	}})
	require.NoError(t, err)
	require.NotEmpty(t, x)
	return x
}

// TestSegmentsWithoutADriverAreLeftOut, by what is missing.
func TestSegmentsWithoutADriverAreLeftOut(t *testing.T) {
	ctx := context.Background()
	inputs := takes(t, "dmonitoring_luma")
	whole := routesOf(t, Synthesis{Routes: 1, Seconds: 2, Width: 64, Height: 40, Driver: true})
	segments, err := filepath.Glob(filepath.Join(whole, "*"))
	require.NoError(t, err)
	name := filepath.Base(segments[0])
	for what, k := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"its video":     {func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Join(dir, "dcamera"))) }, "it has no video of the driver camera (dcamera.hevc)"},
		"its index":     {func(t *testing.T, dir string) { without(t, dir, route.KindDriverEncodeIdx) }, "its log knows no frame of the driver camera (dcamera.hevc)"},
		"a calibration": {func(t *testing.T, dir string) { without(t, dir, route.KindLiveCalibration) }, "it has no valid calibration"},
		"half of its frames": {func(t *testing.T, dir string) {
			frames, err := filepath.Glob(filepath.Join(dir, "dcamera", "*"))
			require.NoError(t, err)
			for _, path := range frames[len(frames)/2:] {
				require.NoError(t, os.Remove(path))
			}
		}, "frame 20: the video ends before its log"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
			k.damage(t, filepath.Join(dir, name))
			var warned []string
			set, err := Open(ctx, dir, Options{Inputs: inputs, Warn: func(text string) { warned = append(warned, text) }})
			require.Len(t, warned, 1)
			assert.Contains(t, warned[0], k.want)
			if what == "half of its frames" {
				require.NoError(t, err)
				assert.Equal(t, 5, set.Len())
				return
			}
			assert.ErrorContains(t, err, k.want)
		})
	}
	_, err = Open(ctx, whole, Options{Inputs: append(inputs[:2:2], Input{"temperature", inputs[1].Type})})
	assert.ErrorContains(t, err, `routes do not make the model's input "temperature"`)
	posed := t.TempDir()
	writePoses(t, posed, 0, 120)
	_, err = Open(ctx, posed, Options{Inputs: inputs})
	assert.ErrorContains(t, err, "comma2k19 has no driver camera")
}

// without takes a kind of messages out of a segment's log.
func without(t *testing.T, dir string, kind route.Kind) {
	t.Helper()
	thin(t, dir, "rlog.zst", map[route.Kind]int{kind: 0})
}

// thin writes a segment's log again, under a name, with each so many-th message of some kinds; 0: none.
func thin(t *testing.T, dir, name string, by map[route.Kind]int) {
	t.Helper()
	path := filepath.Join(dir, "rlog.zst")
	r, err := route.Open(path)
	require.NoError(t, err)
	w, err := route.Create(path + ".new.zst")
	require.NoError(t, err)
	var e route.Event
	seen := map[route.Kind]int{}
	for r.Next(&e) == nil {
		n, thinned := by[e.Kind]
		seen[e.Kind]++
		if thinned && (n == 0 || (seen[e.Kind]-1)%n != 0) {
			continue
		}
		m, err := e.Message()
		require.NoError(t, err)
		require.NoError(t, w.Write(e, m))
	}
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".new.zst", filepath.Join(dir, name)))
}
