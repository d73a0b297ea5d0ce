package modeld

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// sampling of releases that models do not tell: 0.10.3 has the input names of later ones, which sample
// differently.
var sampling = map[string]string{"0.10.3": runtime.Linear}

// TestADriveIsTheTwins: whole models of each contract in fp32 over a synthetic drive with missed frames, against modeld's arrays in NumPy around the
// same models in float64. Pictures are equal to the byte, outputs to 1e-4 of relative L2 in every frame, so from the first, cold ones on.
func TestADriveIsTheTwins(t *testing.T) {
	fulltest.Long(t)
	frames := 30
	if fulltest.Runs(t.Name()) {
		frames = 200
	}
	for contract, names := range twinContracts {
		t.Run(contract, func(t *testing.T) {
			var models []*driving.Model
			var files []*onnx.Model
			for _, name := range names {
				m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
				require.NoError(t, err)
				file, err := onnx.Decode(name+".onnx", m.ONNX)
				require.NoError(t, err)
				models, files = append(models, m), append(files, file)
			}
			road, wide := openpilot.Cameras(8)
			first := road.Draw(0)
			layout := runtime.FrameLayout{Width: first.Width, Height: first.Height, Stride: first.Stride, UV: first.UV}
			r, err := compile.Loop(t.Context(), files, openpilot.Options{Largest: layout, Sampling: sampling[contract]}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
			require.NoError(t, err)
			d, err := emu.Open(emu.Options{})
			require.NoError(t, err)
			m, err := NewDriving(t.Context(), r.Program, d, Options{})
			require.NoError(t, err)
			defer m.Close()
			twin := startDriveTwin(t, contract, models...)
			worst := 0.
			for i := range frames {
				id := uint32(i + i/13) // every 13th is missed
				near, far := road.Draw(i), wide.Draw(i)
				in := Inputs{Desire: []int{0, 0, 3, 3, 3, 0, 4}[i/3%7], RightHandDrive: i%2 == 1, VEgo: float64(i % 30), LateralDelay: .01 * float64(i%20), LongitudinalDelay: .2,
					Calibration: &Calibration{RPY: [3]float64{.01, .02 - .0001*float64(i), -.01}, Road: Intrinsics(road), WideCamera: Intrinsics(wide)}}
				out, err := m.Step(t.Context(), Frame{Road: Picture(near), Wide: Picture(far), ID: id}, in)
				require.NoError(t, err)
				step := twinStep{id: id, desire: in.Desire, convention: i % 2, road: near, wide: far, params: [2]float64{in.LateralDelay + .075, in.LongitudinalDelay + .075}}
				switch contract {
				case "supercombo096", "supercombo097":
					step.params = [2]float64{in.VEgo, in.LateralDelay + .2}
				case "0.10.0":
					step.params = [2]float64{in.VEgo, in.LateralDelay}
				}
				step.roadMat, step.wideMat, err = in.Calibration.Warps(r.Program.Loop.Width)
				require.NoError(t, err)
				want := twin.step(step)
				require.Equal(t, len(want) > 0, out.Ran, "frame %d", i)
				if !out.Ran {
					continue
				}
				pictures(t, i, m, names[0], want)
				for k, name := range names {
					output := "outputs"
					if len(names) == 2 {
						output = []string{"vision_outputs", "policy_outputs"}[k]
					}
					exact, err := want["out."+name+".outputs"].Float64s()
					require.NoError(t, err)
					difference, err := runtime.Compare(out.Raw[output], exact, 0, 0)
					require.NoError(t, err)
					worst = max(worst, difference.RelL2)
					require.LessOrEqual(t, difference.RelL2, 1e-4, "frame %d: %s", i, name)
				}
			}
			twin.close()
			t.Logf("worst relative L2 %.2g", worst)
		})
	}
}

// TestMonitoringADriveIsTheTwins: likewise of driver monitoring, that of luma and that of 2021, with the driver on either side.
func TestMonitoringADriveIsTheTwins(t *testing.T) {
	frames := 12
	if fulltest.Runs(t.Name()) {
		frames = 200
	}
	for _, name := range []string{"dmonitoring_luma", "dmonitoring"} {
		t.Run(name, func(t *testing.T) {
			model, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
			require.NoError(t, err)
			file, err := onnx.Decode(name+".onnx", model.ONNX)
			require.NoError(t, err)
			camera, _ := openpilot.Cameras(8)
			first := camera.DrawDriver(0)
			layout := runtime.FrameLayout{Width: first.Width, Height: first.Height, Stride: first.Stride, UV: first.UV}
			r, err := compile.Loop(t.Context(), []*onnx.Model{file}, openpilot.Options{Largest: layout}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
			require.NoError(t, err)
			d, err := emu.Open(emu.Options{})
			require.NoError(t, err)
			m, err := NewMonitoring(t.Context(), r.Program, d, Options{})
			require.NoError(t, err)
			defer m.Close()
			l := r.Program.Loop
			rng := rand.New(rand.NewPCG(20, 21))
			twin := startTwin(t, "monitoring", l.Width, l.Height, model)
			worst := 0.
			for i := range frames {
				p := camera.DrawDriver(i)
				if i%2 == 1 { // the drawing is plain where a small model's picture lies
					for k := range p.Data {
						p.Data[k] = byte(rng.Uint32())
					}
				}
				in := MonitoringInputs{RPY: [3]float64{.01, .02 - .001*float64(i), -.01}, RightHandDrive: i%3 == 1, Camera: Intrinsics(camera)}
				in.Camera.Focal /= float64(1 + i%4) // the model's picture reaches beyond the camera's
				step := twinStep{road: p, wide: p, calib: in.RPY}
				if name == "dmonitoring_luma" {
					step.roadMat, err = MonitoringWarp(in.Camera, l.Width)
					require.NoError(t, err)
				} else {
					step.roadMat = MonitoringCrop(Picture(p), in.RightHandDrive)
				}
				out, err := m.Step(t.Context(), DriverFrame{Picture: Picture(p)}, in)
				require.NoError(t, err)
				want := twin.step(step)
				exact, err := want["out."+name+".outputs"].Float64s()
				require.NoError(t, err)
				difference, err := runtime.Compare(out.Raw["outputs"], exact, 0, 0)
				require.NoError(t, err)
				worst = max(worst, difference.RelL2)
				require.LessOrEqual(t, difference.RelL2, 1e-4, "frame %d", i)
			}
			twin.close()
			t.Logf("worst relative L2 %.2g", worst)
		})
	}
}

// pictures holds the warped pictures of a frame against the twin's, byte by byte: the last six planes of what each camera's input took.
func pictures(t *testing.T, frame int, m *Driving, model string, want map[string]*npy.Array) {
	t.Helper()
	got := m.session.Output("next_state_frames")
	if got == nil { // the model keeps them itself
		return
	}
	half := len(got) / 2
	for camera, names := range [][2]string{{"img", "input_imgs"}, {"big_img", "big_input_imgs"}} {
		for _, name := range names {
			a := want["in."+model+"."+name]
			if a == nil {
				continue
			}
			exact, err := a.Float64s()
			require.NoError(t, err)
			require.Equal(t, exact[len(exact)-half:], bytesAsNumbers(got[camera*half:(camera+1)*half]), "frame %d: %s", frame, name)
		}
	}
}
