package scenario

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// modelsOf are generated driving models in f32.
func modelsOf(t testing.TB, names ...string) *Models {
	m := &Models{Name: "models"}
	for _, name := range names {
		made, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
		require.NoError(t, err)
		made, err = made.Plausible()
		require.NoError(t, err)
		file, err := onnx.Decode(name+".onnx", made.ONNX)
		require.NoError(t, err)
		m.ONNX = append(m.ONNX, file)
	}
	return m
}

func openEmu(t testing.TB, opt emu.Options) hal.Device {
	d, err := emu.Open(opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// modelLoop is a batch of loops with models at its start.
func modelLoop(t testing.TB, d hal.Device, m *Models, list []Scenario, numbers []uint64) *batch {
	return recordedLoop(t, d, m, nil, list, numbers)
}

// recordedLoop is one that sees a recording; nil: drawn pictures.
func recordedLoop(t testing.TB, d hal.Device, m *Models, r *Recording, list []Scenario, numbers []uint64) *batch {
	l, err := m.load(modelLoops)
	require.NoError(t, err)
	design := &design{loops: modelLoops, float: ir.Float32, models: l, view: l.view}
	if r != nil {
		require.NoError(t, design.show(t.Context(), r, m, list))
	}
	program, err := design.compiled(t.Context(), nil)
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), program.Program, d, runtime.ModelOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, design.load(s))
	b := &batch{design: design, session: s, size: modelLoops, seed: 3, list: list, numbers: numbers}
	require.NoError(t, b.begin())
	return b
}

// stateOf is a state of all loops, f32.
func stateOf(t testing.TB, b *batch, name string) []float32 {
	raw, err := b.session.State(name)
	require.NoError(t, err)
	return runtime.View[float32](raw)
}

// roads are drawn loops on bending roads with leading cars, whose pictures differ.
func roads(rng *rand.Rand, n int) []Scenario {
	list := drawn(rng, n)
	for i := range list {
		for name, x := range map[string]float64{"speed": 12 + 15*rng.Float64(), "curvature": .02 * (rng.Float64() - .5),
			"curve_start": 40 * rng.Float64(), "curve_ramp": 20 + 40*rng.Float64(), "curve_length": 100, "friction": 1,
			"car0_present": float64(rng.IntN(2)), "car1_present": float64(rng.IntN(2)), "car0_gap": 5 + 40*rng.Float64(),
			"car1_gap": -10 + 60*rng.Float64(), "drop": 0, "duration": 30} {
			list[i].Values[paramRow(name)] = x
		}
	}
	return list
}

// seenBy is the scene of a loop, in plain Go: the road by its clothoids' closed forms.
func seenBy(s Scenario, station, offset, heading float64, gaps, sides [Cars]float64) openpilot.Scene {
	k, ramp := s.Get("curvature"), s.Get("curve_ramp")
	turn := func(x, from float64) (heading, side float64) { // of a curvature that grows from 0 to 1 over the ramp
		switch u := x - from; {
		case u <= 0:
			return 0, 0
		case u <= ramp:
			return u * u / (2 * ramp), u * u * u / (6 * ramp)
		default:
			v := u - ramp
			return ramp/2 + v, ramp*ramp/6 + ramp/2*v + v*v/2
		}
	}
	at := func(x float64) (heading, side float64) {
		h1, s1 := turn(x, s.Get("curve_start"))
		h2, s2 := turn(x, s.Get("curve_start")+ramp+s.Get("curve_length"))
		return k * (h1 - h2), k * (s1 - s2)
	}
	h0, y0 := at(station)
	laneMiddle := func(z float64) float64 {
		_, y := at(station + z)
		return offset + heading*z - (y - y0 - h0*z)
	}
	scene := openpilot.Scene{Travelled: station, Lane: s.Get("lane_width"), Middle: laneMiddle}
	for i := range Cars {
		if depth := gaps[i] + bonnet; s.Get(car(i, "present")) > 0.5 && depth > 0 {
			c := openpilot.Car{Distance: depth, Right: laneMiddle(depth) - sides[i]}
			if len(scene.Cars) > 0 && scene.Cars[0].Distance < depth {
				scene.Cars = append([]openpilot.Car{c}, scene.Cars...)
			} else {
				scene.Cars = append(scene.Cars, c)
			}
		}
	}
	return scene
}

// TestPicture_IsDrawnAndWarped: what kernels compute at the pixels that models look at is what drive.See draws of the
// whole picture and the warp of modeld takes of it, but for edges that f32 puts on the other side of a pixel.
func TestPicture_IsDrawnAndWarped(t *testing.T) {
	const loops = 40
	list := roads(rand.New(rand.NewPCG(1, 2)), loops)
	v, err := viewOf(128, 256)
	require.NoError(t, err)
	numbers := map[string][]float32{}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, name := range append([]string{"offset", "heading"}, sights...) {
		for range loops {
			x := map[string]float64{"station": 150 * rng.Float64(), "offset": 4*rng.Float64() - 2, "heading": .2*rng.Float64() - .1}[name]
			switch name[len(name)-4:] {
			case "_gap":
				x = 60*rng.Float64() - 4
			case "side":
				x = 3*rng.Float64() - 1.5
			}
			numbers[name] = append(numbers[name], float32(x))
		}
	}
	g := ir.NewGraph("run")
	w := &world{params: g.AddInput(inputParams, ir.T(ir.Float32, tableRows, loops))}
	see := map[string]num{}
	for name := range numbers {
		see[name] = num{g.AddInput(name, ir.T(ir.Float32, loops))}
	}
	require.NoError(t, g.Build("picture", func(x *ir.Expansion) {
		w.builder = &builder{x: x, loops: loops, float: ir.Float32}
		out := w.picture(v, see)
		out.Name = openpilot.Planes
		g.Outputs = []*ir.Value{out}
	}))
	r, err := compile.Graph(t.Context(), "picture", g, compile.Options{Precision: precision.FP32, Targets: []string{target.Default().Name}})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), r.Program, openEmu(t, emu.Options{}), runtime.ModelOptions{})
	require.NoError(t, err)
	defer s.Close()
	params := make([]float32, tableRows*loops)
	for i := range list {
		for k, x := range list[i].table() {
			params[k*loops+i] = float32(x)
		}
	}
	require.NoError(t, s.Set(inputParams, runtime.Bytes(params)))
	for name, x := range numbers {
		require.NoError(t, s.Set(name, runtime.Bytes(x)))
	}
	require.NoError(t, s.Run(t.Context()))
	got := s.Output(openpilot.Planes)
	t.Logf("%d launches", len(r.Program.Variants[0].Entries[0].Launches))

	calibration := modeld.Calibration{Road: modeld.Intrinsics(v.lens[0]), WideCamera: modeld.Intrinsics(v.lens[1])}
	road, wide, err := calibration.Warps(256)
	require.NoError(t, err)
	look := camera.Driving(256, 128, false)
	want := make([]byte, look.Bytes())
	other, all := 0, 0
	for i, x := range list {
		at := func(name string) float64 { return float64(numbers[name][i]) }
		scene := seenBy(rounded(x), at("station"), at("offset"), at("heading"), [Cars]float64{at("car0_gap"), at("car1_gap")},
			[Cars]float64{at("car0_side"), at("car1_side")})
		for k, matrix := range [cameras][9]float32{road, wide} {
			look.Warp(want, modeld.Picture(v.lens[k].See(scene, [3]float64{})), matrix)
			mine := got[(i*cameras+k)*len(want) : (i*cameras+k+1)*len(want)]
			different := 0
			for p := range want {
				if d := int(want[p]) - int(mine[p]); d < -1 || d > 1 { // 1: the ground's waves, cut to whole numbers
					different++
				}
			}
			require.Less(t, different, len(want)/100, "loop %d, camera %d", i, k)
			other, all = other+different, all+len(want)
		}
	}
	t.Logf("%d of %d pixels differ by more than 1", other, all)
	require.Less(t, other, all/50000)
}

// painted is a camera's picture that shows planes where a view looks, and nothing elsewhere.
func (v *view) painted(k int, seen []byte) modeld.Picture {
	c := v.lens[k]
	p := modeld.Picture{Width: c.Width, Height: c.Height, Data: make([]byte, c.Width*c.Height*3/2)}
	size := v.height * v.width
	for i, x := range seen {
		plane := i / size
		column, row := v.x[(k*planes+plane)*v.width+i%v.width], v.y[(k*planes+plane)*v.height+i%size/v.width]
		if plane < lumaPlane {
			p.Data[row*c.Width+column] = x
		} else {
			p.Data[(c.Height+row/2)*c.Width+column+plane-lumaPlane] = x
		}
	}
	return p
}

// TestModels_AreModelds: what a batch of loops commands is what as many loops of package modeld command, each alone, that
// see the same pictures: histories, what models are told, parsing, the rule of the release and smoothing.
func TestModels_AreModelds(t *testing.T) {
	fulltest.Long(t)
	const loops = 3
	d := openEmu(t, emu.Options{})
	for name, names := range map[string][]string{"plan": {"vision", "policy"}, "curvature": {"vision010", "policy010"},
		"action": {"driving_supercombo"}, "old": {"supercombo097"}} {
		t.Run(name, func(t *testing.T) {
			if name != "action" && !fulltest.Runs(t.Name()) {
				t.Skip("long: SPARK_FULL=1 runs it")
			}
			m := modelsOf(t, names...)
			list := roads(rand.New(rand.NewPCG(7, 8)), loops)
			b := modelLoop(t, d, m, list, []uint64{0, 1, 2})
			alone, err := compile.Loop(t.Context(), m.ONNX, openpilot.Options{Sampling: runtime.Nearest}, compile.Options{
				Precision: precision.FP32, Targets: []string{target.Default().Name}})
			require.NoError(t, err)
			var streams []*modeld.Driving
			for range loops {
				s, err := modeld.NewDriving(t.Context(), alone.Program, d, modeld.Options{})
				require.NoError(t, err)
				defer s.Close()
				streams = append(streams, s)
			}
			v := b.models.view
			calibration := &modeld.Calibration{Road: modeld.Intrinsics(v.lens[0]), WideCamera: modeld.Intrinsics(v.lens[1])}
			worst, least, most := 0.0, math.Inf(1), math.Inf(-1)
			for step := range 12 {
				speed := stateOf(t, b, "speed")
				require.NoError(t, b.step(t.Context(), step))
				raw, err := b.session.State(openpilot.OldPlanes)
				require.NoError(t, err)
				size := cameras * planes * v.height * v.width
				raw = raw[len(raw)-modelLoops*size:] // the newest of what is kept
				curvature, accel := stateOf(t, b, keptCurvature), stateOf(t, b, keptAccel)
				for i, s := range streams {
					get := list[i].Get
					out, err := s.Step(t.Context(), modeld.Frame{ID: uint32(step) + 1,
						Road: v.painted(0, raw[i*size:i*size+size/2]), Wide: v.painted(1, raw[i*size+size/2:(i+1)*size])},
						modeld.Inputs{Calibration: calibration, VEgo: float64(speed[i]), LateralDelay: get("steer_delay") + get("steer_lag"),
							LongitudinalDelay: get("accel_delay") + get("accel_lag")})
					require.NoError(t, err)
					for what, pair := range map[string][2]float64{"curvature": {out.CurvatureCommand, float64(curvature[i])},
						"acceleration": {out.AccelerationCommand, float64(accel[i])}} {
						e := math.Abs(pair[0]-pair[1]) / max(1e-2, math.Abs(pair[0]))
						worst = max(worst, e)
						require.Less(t, e, 2e-4, "step %d, loop %d, %s: %v, alone %v", step, i, what, pair[1], pair[0])
						least, most = min(least, pair[0]), max(most, pair[0])
					}
				}
			}
			require.Greater(t, most-least, 1e-3, "they command something")
			t.Logf("worst %.2g, commands from %.3g to %.3g, %d launches", worst, least, most,
				len(b.session.Model().Program.Variants[0].Entries[0].Launches))
		})
	}
}

// TestModels_HaveTheSameBitsInAnyCompany: a loop depends neither on its place in a batch nor on the other loops.
func TestModels_HaveTheSameBitsInAnyCompany(t *testing.T) {
	fulltest.Long(t)
	d := openEmu(t, emu.Options{})
	m := modelsOf(t, "vision", "policy")
	list := roads(rand.New(rand.NewPCG(9, 10)), modelLoops)
	hasTheSameBitsInAnyCompany(t, modelLoop(t, d, m, list, make([]uint64, modelLoops)), list)
}

func hasTheSameBitsInAnyCompany(t *testing.T, b *batch, list []Scenario) {
	run := func(which ...int) map[string][]float32 {
		var some []Scenario
		var numbers []uint64
		for _, i := range which {
			some, numbers = append(some, list[i]), append(numbers, uint64(i))
		}
		b.list, b.numbers = some, numbers
		require.NoError(t, b.begin())
		for step := range 8 {
			require.NoError(t, b.step(t.Context(), step))
		}
		out := map[string][]float32{}
		for _, name := range append([]string{keptCurvature, keptAccel}, states...) {
			out[name] = stateOf(t, b, name)
		}
		return out
	}
	all := run(0, 1, 2, 3, 4, 5, 6, 7)
	for _, company := range [][]int{{2}, {7, 2}, {1, 2, 0, 6, 5}} {
		some := run(company...)
		for name, x := range some {
			for k, i := range company {
				require.Equal(t, math.Float32bits(all[name][i]), math.Float32bits(x[k]), "%s of loop %d in company of %v", name, i, company)
			}
		}
	}
}

// TestModels_PassTheChecks of the CPU device: bounds, undefined reads, races, missing edges.
func TestModels_PassTheChecks(t *testing.T) {
	fulltest.Long(t)
	d := openEmu(t, emu.Options{Check: true})
	b := modelLoop(t, d, modelsOf(t, "vision", "policy"), roads(rand.New(rand.NewPCG(9, 10)), 2), []uint64{0, 1})
	for step := range 2 {
		require.NoError(t, b.step(t.Context(), step))
	}
}

// TestModels_AreTheSameProgramEachTime, so that it is found in the cache.
func TestModels_AreTheSameProgramEachTime(t *testing.T) {
	l, err := modelsOf(t, "vision", "policy").load(modelLoops)
	require.NoError(t, err)
	first := ""
	for range 20 {
		g, err := l.command(&design{loops: modelLoops, float: ir.Float32, models: l, view: l.view})
		require.NoError(t, err)
		if first == "" {
			first = g.String()
		}
		require.Equal(t, first, g.String())
	}
}

func TestModels_AreTakenByPtxas(t *testing.T) {
	fulltest.Long(t)
	l, err := modelsOf(t, "vision", "policy").load(modelLoops)
	require.NoError(t, err)
	assemble(t, &design{loops: modelLoops, float: ir.Float32, models: l, view: l.view})
}

// TestModels_OfAnotherContractAreRefused, by file and what is missing.
func TestModels_OfAnotherContractAreRefused(t *testing.T) {
	f, err := FamilyOf("curve")
	require.NoError(t, err)
	s, err := f.Draw(1, 0)
	require.NoError(t, err)
	r := &Runner{Device: openEmu(t, emu.Options{})}
	for want, m := range map[string]*Models{
		"dmonitoring.onnx: it is no driving model, so it cannot drive; give ": modelsOf(t, "dmonitoring"),
		"vision.onnx: it is no driving model: want pictures ":                 modelsOf(t, "vision"),
		`algorithm "none": there are no models`:                               {Name: "none"},
		`algorithm "nil": a model is missing`:                                 {Name: "nil", ONNX: []*onnx.Model{nil}},
	} {
		_, err := r.RunBatch(t.Context(), []Scenario{s}, m, 1, 1)
		require.ErrorContains(t, err, want, fmt.Sprint(m.Name))
	}
}

// TestCallback_SeesPictures: what a callback is given is drawn of its loop, as wide as it asks for.
func TestCallback_SeesPictures(t *testing.T) {
	list := roads(rand.New(rand.NewPCG(5, 6)), 3)
	const width, height = 64, 32
	v, err := viewOf(height, width)
	require.NoError(t, err)
	calibration := modeld.Calibration{Road: modeld.Intrinsics(v.lens[0]), WideCamera: modeld.Intrinsics(v.lens[1])}
	road, wide, err := calibration.Warps(width)
	require.NoError(t, err)
	look := camera.Driving(width, height, false)
	for i := range list {
		for _, name := range []string{"latency", "noise_offset", "noise_heading", "calibration_yaw", "car0_lateral_end", "car1_lateral_end"} {
			list[i].Values[paramRow(name)] = 0
		}
		for _, name := range []string{"car0_lateral", "car1_lateral"} {
			list[i].Values[paramRow(name)] = 0
		}
		list[i].Values[paramRow("duration")] = 2 * Step
	}
	looked := 0
	c := &Callback{Name: "looks", Width: width, Height: height,
		Look: func(_ context.Context, step int, pictures []byte, seen, commands [][]float32) error {
			if step > 0 {
				return nil
			}
			looked++
			require.Len(t, pictures, len(seen[0])*cameras*look.Bytes())
			for i, s := range list {
				s = rounded(s)
				scene := seenBy(s, 0, float64(seen[observed("offset")][i]), float64(seen[observed("heading")][i]),
					[Cars]float64{s.Get("car0_gap"), s.Get("car1_gap")}, [Cars]float64{})
				want := make([]byte, look.Bytes())
				for k, matrix := range [cameras][9]float32{road, wide} {
					look.Warp(want, modeld.Picture(v.lens[k].See(scene, [3]float64{})), matrix)
					got, other := pictures[(i*cameras+k)*len(want):], 0
					for p := range want {
						if d := int(want[p]) - int(got[p]); d < -1 || d > 1 {
							other++
						}
					}
					require.LessOrEqual(t, other, 2, "loop %d, camera %d", i, k)
				}
			}
			return nil
		}}
	r := &Runner{Device: openEmu(t, emu.Options{})}
	out, err := r.RunBatch(t.Context(), list, c, 1, 1)
	require.NoError(t, err)
	require.Equal(t, 1, looked)
	require.Equal(t, Pictures, out.Tier)
	c.Width = 63
	_, err = r.RunBatch(t.Context(), list, c, 1, 1)
	require.ErrorContains(t, err, "63 × 32")
	_, err = r.RunBatch(t.Context(), list, &Callback{Name: "none"}, 1, 1)
	require.ErrorContains(t, err, "one of Act and Look")
}
