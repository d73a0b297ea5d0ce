package dataset

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// echoFeatures is how many features an echo has, and echoPixel the first pixel that they are made of.
const echoFeatures, echoPixel = 32, 1000

// echo is a model whose output repeats its inputs, each as a slice of its name. One with pictures has a hidden_state of
// both pictures of the road camera; one with lateral_control_params asks for a curvature of speed/1024.
func echo(t *testing.T, name string, inputs []Input) *onnx.Model {
	t.Helper()
	b := onnx.NewBuilder("echo", 17)
	numbers := func(x ...int) string { return b.Initializer(b.Name("n"), ir.Vector(x...)) }
	factor := func(x float64) string { return b.Initializer(b.Name("f"), ir.ScalarFloat(ir.Float32, x)) }
	var parts []string
	var slices []onnx.Slice
	size := 0
	add := func(slice, value string, n int) {
		parts = append(parts, value)
		slices = append(slices, onnx.Slice{Name: slice, Start: size, End: size + n})
		size += n
	}
	for _, in := range inputs {
		var dims []any
		for _, d := range in.Type.Shape {
			dims = append(dims, d)
		}
		x, n := b.Input(in.Name, in.Type.DType, dims...), in.Type.Numel()
		if in.Type.DType != ir.Float32 {
			x = b.Op("Cast", []string{x}, onnx.A("to", ir.Float32))
		}
		x = b.Op("Reshape", []string{x, numbers(1, -1)})
		add(in.Name, x, n)
		part := func(from, count int) string {
			return b.Op("Slice", []string{x, numbers(from), numbers(from + count), numbers(1)})
		}
		switch in.Name {
		case generation.RoadInputs()[0], generation.RoadInputs()[1]:
			old := b.Op("Mul", []string{part(echoPixel, echoFeatures), factor(1. / 256)})
			add(generation.HiddenState, b.Op("Add", []string{old, part(n/2+echoPixel, echoFeatures)}), echoFeatures)
		case "lateral_control_params":
			add("desired_curvature", b.Op("Mul", []string{x, factor(1. / 1024)}), n)
		}
	}
	b.Node("Concat", parts, []string{"outputs"}, onnx.A("axis", 1))
	b.Output("outputs", ir.Float32, 1, size)
	b.Metadata("output_slices", onnx.EncodeOutputSlices(slices))
	m, err := b.Model()
	require.NoError(t, err)
	data, err := m.Marshal()
	require.NoError(t, err)
	file, err := onnx.Decode(name+".onnx", data)
	require.NoError(t, err)
	return file
}

// echoed is the hidden_state that an echo makes of pictures.
func echoed(in Input, data []byte) []float32 {
	x := (&ir.Tensor{Type: in.Type, Data: data}).Floats()
	out := make([]float32, echoFeatures)
	for i := range out {
		out[i] = float32(x[echoPixel+i]/256 + x[len(x)/2+echoPixel+i])
	}
	return out
}

// askCurvatures makes a log's commands those of an echo: after a frame speed/1024, before the first nothing. The
// model's messages have them, and the controls half of them; or, without actions, the controls alone.
func askCurvatures(t *testing.T, dir string, actions bool) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*", "rlog.zst"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	all := readLog(t, logs[0])
	var speed, asked float32
	for _, x := range all {
		switch m := x.message.(type) {
		case *route.CarState:
			speed = m.VEgo
		case *route.FrameData:
			if x.event.Kind == route.KindRoadCameraState {
				asked = speed / 1024
			}
		case *route.ControlsState:
			m.DesiredCurvature = asked
			if actions {
				m.DesiredCurvature /= 2
			}
		case *route.ModelV2:
			m.Action.DesiredCurvature = 0
			if actions {
				m.Action.DesiredCurvature = asked
			}
		}
	}
	writeLog(t, logs[0], all)
}

// TestSamples_AreWhatTheLoopFeeds: the loop of runtime/modeld drives models that repeat their inputs over all frames of
// a route. A sample has every value that the model had of its frame, from the first one on. Only features of frames
// that have no picture before them are zero in samples, where the loop has those of a black picture.
func TestSamples_AreWhatTheLoopFeeds(t *testing.T) {
	fulltest.Long(t)
	const seconds, width, height = 7, 96, 60
	for _, c := range []struct {
		vision, model string
		step          int // frames between two pictures, and between two rows of features
		last          int // frames from the newest features to the frame itself
		actions       bool
	}{
		{"vision", "policy", 4, 0, true},
		{"vision010", "policy010", 4, 0, true},
		{"vision010", "policy010", 4, 0, false},
		{"", "driving_supercombo", 4, 4, true},
		{"", "supercombo097", 4, 4, true},
		{"", "supercombo096", 1, 1, false},
	} {
		t.Run(fmt.Sprint(c.model, " actions ", c.actions), func(t *testing.T) {
			ctx := context.Background()
			dir := routesOf(t, Synthesis{Routes: 1, Seconds: seconds, Width: width, Height: height, Seed: 3})
			askCurvatures(t, dir, c.actions)
			files, inputs := []*onnx.Model{}, [][]Input{}
			for _, name := range []string{c.vision, c.model} {
				if name == "" {
					continue
				}
				m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
				require.NoError(t, err)
				var own []Input
				for _, in := range m.Inputs {
					own = append(own, Input{in.Name, in.Type})
				}
				files, inputs = append(files, echo(t, name, own)), append(inputs, own)
			}
			shows := slices.Clone(inputs[0])
			shows = slices.DeleteFunc(shows, func(in Input) bool { return !in.Shows() })
			seen := map[string]map[string][]byte{}
			features := func(_ context.Context, keys []string, in []map[string][]byte) (out [][]float32, err error) {
				for i, key := range keys {
					seen[key] = in[i]
					for _, show := range shows {
						if slices.Contains(generation.RoadInputs(), show.Name) {
							out = append(out, echoed(show, in[i][show.Name]))
						}
					}
				}
				return out, nil
			}
			takes := inputs[len(inputs)-1]
			opt := Options{Inputs: takes, Vision: shows, Features: features, Warn: func(text string) { t.Error(text) }}
			set, err := Open(ctx, dir, opt)
			require.NoError(t, err)
			defer set.Close()
			from := onDrive(t, set.(*routes).segments[0])
			fed := feed(t, from, seconds*openpilot.Rate, files)
			samples, pulses, remembered := 0, 0, 0
			for i := range set.Len() {
				f := set.(*routes).at[i].k
				s, err := set.Sample(ctx, i)
				require.NoError(t, err)
				for _, in := range takes {
					got, want := (&ir.Tensor{Type: in.Type, Data: s.Inputs[in.Name]}).Floats(), fed[f][in.Name]
					switch {
					case in.Name == generation.Features:
						rows := in.Type.Shape[1]
						for row := range rows {
							of, x := f-c.last-c.step*(rows-1-row), want[row*echoFeatures:(row+1)*echoFeatures]
							if of < c.step {
								clear(x)
							} else if !assert.NotEqual(t, make([]float64, echoFeatures), x) {
								return
							}
						}
						remembered += rows
					case slices.Contains(generation.DesireInputs(), in.Name):
						for _, x := range got {
							pulses += int(x)
						}
					case in.Name == "action_t":
						assert.InDeltaSlice(t, []float64{0.25 + 0.075, 0.3 + 0.075}, got, 1e-6)
					case in.Name == "lateral_control_params" && c.step == 1:
						assert.InDelta(t, 0.25+0.2, got[1], 1e-6)
					}
					require.Equal(t, want, got, "frame %d: %s", f, in.Name)
				}
				samples++
			}
			for _, key := range []int{4, 8, 100} { // pictures that features are made of
				for name, data := range seen[place{set.(*routes).segments[0], key}.key()] {
					in := shows[slices.IndexFunc(shows, func(in Input) bool { return in.Name == name })]
					assert.Equal(t, fed[key][name], (&ir.Tensor{Type: in.Type, Data: data}).Floats(), "frame %d: %s", key, name)
				}
			}
			assert.Equal(t, seconds*5-1, samples)
			assert.Positive(t, pulses)
			assert.Positive(t, remembered)
		})
	}
}

// feed drives echoes over frames of the drive and returns what they were fed, by frame and by input. What the car says
// is the drive's, as a log has it: in f32, and desires a frame late.
func feed(t *testing.T, from, frames int, files []*onnx.Model) (fed []map[string][]float64) {
	t.Helper()
	road, wide := (&Synthesis{Width: 96, Height: 60}).eyes()
	first := road.Draw(0)
	layout := runtime.FrameLayout{Width: first.Width, Height: first.Height, Stride: first.Stride, UV: first.UV}
	r, err := compile.Loop(t.Context(), files, openpilot.Options{Largest: layout},
		compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	loop, err := modeld.NewDriving(t.Context(), r.Program, d, modeld.Options{})
	require.NoError(t, err)
	defer loop.Close()
	for f := range frames {
		speed, _ := openpilot.Motion(from + f)
		in := modeld.Inputs{RightHandDrive: openpilot.At(from + f).RightHandDrive, VEgo: float64(float32(speed)),
			LateralDelay: 0.25, LongitudinalDelay: float64(float32(0.3)),
			Calibration: &modeld.Calibration{RPY: single(openpilot.At(from + f - f%5).RPY),
				Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}}
		if now := openpilot.At(from + f - 1).Desire; f > 0 && (now == 3 || now == 4) {
			in.Desire = now
		}
		frame := modeld.Frame{ID: uint32(f + 1),
			Road: modeld.Picture(road.Draw(from + f)), Wide: modeld.Picture(wide.Draw(from + f))}
		out, err := loop.Step(t.Context(), frame, in)
		require.NoError(t, err)
		require.True(t, out.Ran)
		values := map[string][]float64{}
		for _, q := range r.Program.Outputs {
			for _, slice := range q.Slices {
				values[slice.Name] = out.Raw[q.Name][slice.Start:slice.Stop]
			}
		}
		fed = append(fed, values)
	}
	return fed
}
