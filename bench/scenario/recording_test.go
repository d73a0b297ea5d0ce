package scenario

import (
	"context"
	"errors"
	"iter"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// bend is a road with a curve for tests: the scenario of a loop on it.
func bendRoad(t testing.TB) Scenario {
	s := Default("bend")
	for name, x := range map[string]float64{"curvature": .004, "curve_start": 10, "curve_ramp": 30, "curve_length": 60,
		"speed": 20, "cruise": 20, "duration": 10} {
		var err error
		s, err = s.With(name, x)
		require.NoError(t, err)
	}
	return rounded(s)
}

// filmed is a drive on the road of a scenario, drawn: a frame for each pose, by cameras that are smaller by a divisor.
func filmed(s Scenario, divisor int, rpy [3]float64, poses ...Pose) *Recording {
	road, wide := openpilot.Cameras(divisor)
	on := openpilot.Road{Lane: s.Get("lane_width"), Curvature: s.road}
	c := modeld.Calibration{RPY: rpy, Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}
	for i := range poses {
		poses[i].Calibration = c
	}
	return &Recording{Name: "drawn", Poses: poses, Frames: func(context.Context) iter.Seq2[modeld.Frame, error] {
		return func(yield func(modeld.Frame, error) bool) {
			for _, p := range poses {
				if !yield(frameOf(on.Scene(p.Station, p.Offset, p.Heading), road, wide, rpy), nil) {
					return
				}
			}
		}
	}}
}

// frameOf is what cameras see of a scene.
func frameOf(s openpilot.Scene, road, wide openpilot.Camera, rpy [3]float64) modeld.Frame {
	return modeld.Frame{Road: modeld.Picture(road.See(s, rpy)), Wide: modeld.Picture(wide.See(s, rpy))}
}

// middle are poses in the middle of the lane, some metres from each other.
func middle(n int, interval float64) (poses []Pose) {
	for i := range n {
		poses = append(poses, Pose{Station: float64(float32(float64(i) * interval))})
	}
	return poses
}

// projected are the pictures that loops in poses on the road of a scenario see of a film: [len(poses), cameras, planes,
// height, width].
func projected(t testing.TB, v *view, s Scenario, poses []Pose) []byte {
	loops := len(poses)
	g := ir.NewGraph("run")
	w := &world{params: g.AddInput(inputParams, ir.T(ir.Float32, tableRows, loops))}
	see := map[string]num{}
	for _, name := range []string{"station", "offset", "heading"} {
		see[name] = num{g.AddInput(name, ir.T(ir.Float32, loops))}
	}
	table := g.AddInput(stateFilm, ir.T(ir.Uint8, len(v.film.data)))
	require.NoError(t, g.Build("picture", func(x *ir.Expansion) {
		w.builder = &builder{x: x, loops: loops, float: ir.Float32}
		out := w.reprojected(v, table, see)
		out.Name = openpilot.Planes
		g.Outputs = []*ir.Value{out}
	}))
	opt := compile.Options{Precision: precision.FP32, Targets: []string{target.Default().Name}}
	r, err := compile.Graph(t.Context(), "picture", g, opt)
	require.NoError(t, err)
	session, err := runtime.Open(t.Context(), r.Program, openEmu(t, emu.Options{Check: true}), runtime.ModelOptions{})
	require.NoError(t, err)
	defer session.Close()
	params := make([]float32, tableRows*loops)
	for i := range poses {
		for k, x := range s.table() {
			params[k*loops+i] = float32(x)
		}
	}
	require.NoError(t, session.Set(inputParams, runtime.Bytes(params)))
	require.NoError(t, session.Set(stateFilm, v.film.data))
	for name, of := range map[string]func(Pose) float64{"station": func(p Pose) float64 { return p.Station },
		"offset": func(p Pose) float64 { return p.Offset }, "heading": func(p Pose) float64 { return p.Heading }} {
		x := make([]float32, loops)
		for i, p := range poses {
			x[i] = float32(of(p))
		}
		require.NoError(t, session.Set(name, runtime.Bytes(x)))
	}
	require.NoError(t, session.Run(t.Context()))
	return append([]byte{}, session.Output(openpilot.Planes)...)
}

// filmView looks at a recording.
func filmView(t testing.TB, r *Recording, height, width int) *view {
	f, err := filmOf(t.Context(), r, height, width)
	require.NoError(t, err)
	return &view{height: height / 2, width: width / 2, film: f}
}

// TestReprojected_IsModeldsWarpWhereItWasRecorded: a loop in the pose of a frame sees, bit for bit, what the operator
// of modeld's loop makes of it, whatever the pose and the mounting of the cameras.
func TestReprojected_IsModeldsWarpWhereItWasRecorded(t *testing.T) {
	const height, width = 64, 128
	s := bendRoad(t)
	poses := []Pose{{}, {Station: 1.25, Offset: .25, Heading: -1. / 64}, {Station: 2.5, Offset: -.75, Heading: 1. / 32},
		{Station: 5, Offset: .125, Heading: 1. / 64}}
	r := filmed(s, 2, [3]float64{.01, .02, -.015}, poses...)
	v := filmView(t, r, height, width)
	got := projected(t, v, s, poses)
	look := camera.Driving(width, height, false)
	first := modeld.Frame{}
	i := 0
	for frame := range r.Frames(t.Context()) {
		if i == 0 {
			first = frame
		}
		road, wide, err := poses[i].Calibration.Warps(width)
		require.NoError(t, err)
		want := make([]byte, cameras*look.Bytes())
		look.Warp(want[:look.Bytes()], frame.Road, road)
		look.Warp(want[look.Bytes():], frame.Wide, wide)
		require.Equal(t, want, got[i*len(want):(i+1)*len(want)], "frame %d", i)
		if i > 0 {
			require.NotEqual(t, first.Road.Data, frame.Road.Data)
		}
		i++
	}
	require.Equal(t, len(poses), i)
}

// groundAt is the colour of the road by rays, independent of package drive, at a place along the road and left of
// the middle.
func groundAt(s Scenario, along, left, thinnest float64) openpilot.Colour {
	lane := s.Get("lane_width")
	wave := func(w openpilot.Wave) byte { return byte(w.Most * (1 + math.Sin(along/w.Length)) / 2) }
	c := openpilot.Grass
	c[0] += wave(openpilot.GrassWave)
	if math.Abs(left) < openpilot.RoadHalf*lane {
		c = openpilot.Tar
		c[0] += wave(openpilot.TarWave)
	}
	on := func(lanes float64) bool { return math.Abs(left-lanes*lane) < max(openpilot.LineWidth/2, thinnest) }
	switch {
	case on(openpilot.SolidLine):
		c = openpilot.Yellow
	case on(-openpilot.SolidLine):
		c = openpilot.White
	case (on(.5) || on(-.5)) && along-openpilot.Period*math.Floor(along/openpilot.Period) < openpilot.Dash:
		c = openpilot.White
	}
	return c
}

// truth is what modeld's warp would take from straight cameras in a pose, on a straight road: each pixel's ray,
// where it meets the ground. above marks pixels of the sky.
func truth(t testing.TB, s Scenario, v *view, p Pose) (pixels []byte, above []bool) {
	require.Zero(t, s.Get("curvature"))
	sin, cos := math.Sincos(p.Heading)
	for k, lens := range v.lens {
		for plane := range planes {
			for row := range v.height {
				for column := range v.width {
					at := k*planes + plane
					x := (float64(v.x[at*v.width+column]) + .5 - float64(lens.Width)/2) / lens.Focal
					y := (float64(v.y[at*v.height+row]) + .5 - float64(lens.Height)/2) / lens.Focal
					c := openpilot.Sky(-y * lens.Focal / float64(lens.Height))
					if y > 0 {
						z := openpilot.CameraHeight / y
						along := p.Station + z*cos + x*z*sin
						c = groundAt(s, along, p.Offset+z*sin-x*z*cos, z/lens.Focal/2)
					}
					above = append(above, y <= 0)
					pixels = append(pixels, c[max(0, plane-lumaPlane+1)])
				}
			}
		}
	}
	return pixels, above
}

// compared are errors of luma on the ground of one camera.
type compared struct {
	mean, worst float64
	missed      float64 // share of pixels, on near ground, that are not within 2 of what is shown at most a pixel away
	unseen      float64 // share that no pixel of the recording shows
}

// compareGround compares a picture with the true one.
func compareGround(v *view, k int, got, want []byte, above []bool, p Pose, passed float64) (c compared) {
	size := v.height * v.width
	luma := func(picture []byte, y, x int) (byte, bool) {
		if y < 0 || x < 0 || y >= 2*v.height || x >= 2*v.width {
			return 0, false
		}
		return picture[k*planes*size+(y%2+2*(x%2))*size+y/2*v.width+x/2], true
	}
	part := &v.film.part[k]
	n, near, all := 0, 0, 0
	for y := range 2 * v.height {
		for x := range 2 * v.width {
			at := k*planes*size + (y%2+2*(x%2))*size + y/2*v.width + x/2
			if above[at] {
				continue
			}
			all++
			// The plain twin of the kernels.
			u, _ := part.from(float64(x), float64(y), v.film.height, passed, -p.Offset, p.Heading)
			if u < float64(part.left) || u > float64(part.left+part.width-1) {
				c.unseen++
				continue
			}
			n++
			mine := float64(got[at])
			e := math.Abs(mine - float64(want[at]))
			c.mean, c.worst = c.mean+e, max(c.worst, e)
			low, high := 255., 0.
			for dy := -1; dy <= 1; dy++ {
				for dx := -1; dx <= 1; dx++ {
					if b, ok := luma(want, y+dy, x+dx); ok {
						low, high = min(low, float64(b)), max(high, float64(b))
					}
				}
			}
			if z := v.film.height * part.focal / (float64(y) - part.y); z*z > openpilot.GrassWave.Length*v.film.height*part.focal {
				continue // waves of the ground are finer than pixels
			}
			near++
			if mine < low-2 || mine > high+2 {
				c.missed++
			}
		}
	}
	c.mean, c.missed, c.unseen = c.mean/float64(n), c.missed/float64(near), c.unseen/float64(all)
	return c
}

// lumaOf is what the film has for a pixel of luma: the nearest one, and at the edges the outermost.
func (f *film) lumaOf(frame, k, x, y int, forward, right, turn float64) byte {
	p := &f.part[k]
	u, v := p.from(float64(x), float64(y), f.height, forward, right, turn)
	column := max(0, min(int(math.RoundToEven(u))-p.left, p.width-1))
	row := max(0, min(int(math.RoundToEven(v))-p.top, p.height-1))
	at := frame*f.frameSize + (row%2+2*(column%2))*p.width/2*p.height/2 + row/2*p.width/2 + column/2
	if k > 0 {
		at += f.part[0].bytes()
	}
	return f.data[at]
}

// TestReprojected_ShowsTheGroundFromAnOffset compares reprojected pictures of a drawn road, seen from the side of
// the recording car's path, with what a camera sees there.
func TestReprojected_ShowsTheGroundFromAnOffset(t *testing.T) {
	fulltest.Long(t)
	const height, width = 256, 512
	s := Default("straight")
	v, err := viewOf(height, width)
	require.NoError(t, err)
	recorded := middle(2, 1)
	v.film = filmView(t, filmed(s, 1, [3]float64{}, recorded...), height, width).film
	t.Logf("%d bytes a frame: %+v", v.film.frameSize, v.film.part)
	var poses []Pose
	for _, offset := range []float64{0, .25, .5, 1, 2} {
		poses = append(poses, Pose{Offset: offset}, Pose{Offset: -offset, Station: .5})
	}
	for _, heading := range []float64{.02, .05, .1} {
		poses = append(poses, Pose{Heading: heading}, Pose{Heading: -heading, Offset: 1, Station: .75})
	}
	poses = append(poses, Pose{Offset: -1, Station: 3.9}) // 2.9 m past the last frame
	got := projected(t, v, s, poses)
	size := len(got) / len(poses)
	for i, p := range poses {
		want, above := truth(t, s, v, p)
		for k := range cameras {
			passed := p.Station - math.Floor(min(p.Station, 1))
			c := compareGround(v, k, got[i*size:(i+1)*size], want, above, p, passed)
			t.Logf("%s: offset %5.2f m, heading %5.2f, %.2f m behind: mean %.2f, worst %3.0f, beside %.4f, unseen %.3f",
				filmCameras[k].name, p.Offset, p.Heading, passed, c.mean, c.worst, c.missed, c.unseen)
			other := 0 // than in plain Go
			for y := range height {
				for x := range width {
					at := i*size + k*size/2 + (y%2+2*(x%2))*size/2/planes + y/2*width/2 + x/2
					if got[at] != v.film.lumaOf(int(p.Station-passed), k, x, y, passed, -p.Offset, p.Heading) {
						other++
					}
				}
			}
			require.Less(t, other, height*width/1000, "%v", p)
			require.Less(t, c.mean, 2.9, "%v", p)
			require.Less(t, c.missed, .00125, "%v", p)
		}
	}
}

// TestReprojected_FollowsTheBend: on a road that bends, recorded by a car that sways, what is seen of the ground from
// another pose is what is drawn there.
func TestReprojected_FollowsTheBend(t *testing.T) {
	const height, width = 256, 512
	s := bendRoad(t)
	for name, x := range map[string]float64{"curvature": .01, "curve_start": 0, "curve_ramp": 1} {
		var err error
		s, err = s.With(name, x)
		require.NoError(t, err)
	}
	v, err := viewOf(height, width)
	require.NoError(t, err)
	r := filmed(s, 1, [3]float64{}, Pose{}, Pose{Station: 2.5, Offset: .3, Heading: .02},
		Pose{Station: 5, Offset: -.3, Heading: -.02})
	v.film = filmView(t, r, height, width).film
	road := openpilot.Road{Lane: s.Get("lane_width"), Curvature: s.road}
	poses := []Pose{{Station: 4.5, Offset: -.5, Heading: .03}, {Station: 7, Offset: .8, Heading: -.04}}
	got := projected(t, v, s, poses)
	warps := [cameras][9]float32{}
	warps[0], warps[1], err = r.Poses[0].Calibration.Warps(width)
	require.NoError(t, err)
	look := camera.Driving(width, height, false)
	_, above := truth(t, Default("flat"), v, Pose{})
	for i, p := range poses {
		var want []byte
		for k, lens := range v.lens {
			planes := make([]byte, look.Bytes())
			look.Warp(planes, modeld.Picture(lens.See(road.Scene(p.Station, p.Offset, p.Heading), [3]float64{})), warps[k])
			want = append(want, planes...)
		}
		for k := range cameras {
			c := compareGround(v, k, got[i*len(want):(i+1)*len(want)], want, above, p, 2)
			t.Logf("%s: mean %.2f, worst %3.0f, beside %.4f", filmCameras[k].name, c.mean, c.worst, c.missed)
			require.Less(t, c.mean, 2.85, "%v", p)
			require.Less(t, c.missed, .0015, "%v", p)
		}
	}
}

// TestReprojected_ShowsCarsWhereTheyWouldLieOnTheRoad: seen from an offset, an object at a height is shifted like
// the ground that it hides, so by too little: by the offset in pixels, times its height in camera heights.
func TestReprojected_ShowsCarsWhereTheyWouldLieOnTheRoad(t *testing.T) {
	const height, width, offset, depth = 256, 512, 1., 20.
	s := Default("straight")
	v, err := viewOf(height, width)
	require.NoError(t, err)
	r := filmed(s, 1, [3]float64{}, middle(2, 1)...)
	road, wide := openpilot.Cameras(1)
	r.Frames = func(context.Context) iter.Seq2[modeld.Frame, error] {
		return func(yield func(modeld.Frame, error) bool) {
			scene := openpilot.Road{Lane: 3.6, Curvature: s.road}.Scene(0, 0, 0)
			scene.Cars = []openpilot.Car{{Distance: depth}}
			f := frameOf(scene, road, wide, [3]float64{})
			for range 2 {
				if !yield(f, nil) {
					return
				}
			}
		}
	}
	v.film = filmView(t, r, height, width).film
	got := projected(t, v, s, []Pose{{}, {Offset: offset}})
	size := len(got) / 2
	p := &v.film.part[0]
	edge := func(picture []byte, y int) int { // the first red column: what is red is V
		for x := range v.width {
			if picture[(planes-1)*v.height*v.width+y*v.width+x] == openpilot.Red[2] {
				return 2 * x
			}
		}
		return -1
	}
	rows := 0
	for y := range v.height {
		here, shifted := edge(got[:size], y), edge(got[size:], y)
		if here < 0 || here > width/2 {
			continue
		}
		rows++
		above := modeld.CameraHeight - float64(depth)*(float64(2*y)-p.y)/p.focal // of the road
		should := p.focal * offset / depth
		error := should - float64(shifted-here)
		require.InDelta(t, should*min(1, above/modeld.CameraHeight), error, 3, "row %d, %.2f m above the road", y, above)
	}
	t.Logf("%d rows of a car %v m ahead: at the height of the camera %.0f pixels of %v too far left at %v m", rows, depth,
		p.focal*offset/depth, width, offset)
	require.Greater(t, rows, 15)
}

// besides are loops on the road of a scenario, each somewhere else in its lane.
func besides(s Scenario, n int) (list []Scenario) {
	for i := range n {
		one := Scenario{Name: s.Name, Values: append([]float64{}, s.Values...)}
		one.Values[paramRow("offset")] = float64(float32(.2*float64(i) - .8))
		one.Values[paramRow("noise_offset")], one.Values[paramRow("speed")] = .05, 14+float64(2*i)
		list = append(list, one)
	}
	return list
}

func TestRecording_HasTheSameBitsInAnyCompany(t *testing.T) {
	fulltest.Long(t)
	s := bendRoad(t)
	list := besides(s, modelLoops)
	r := filmed(s, 8, [3]float64{}, middle(30, 1)...)
	b := recordedLoop(t, openEmu(t, emu.Options{}), modelsOf(t, "vision", "policy"), r, list, make([]uint64, modelLoops))
	hasTheSameBitsInAnyCompany(t, b, list)
}

func TestRecording_PassesTheChecks(t *testing.T) {
	s := bendRoad(t)
	r := filmed(s, 8, [3]float64{}, middle(4, 1)...)
	d := openEmu(t, emu.Options{Check: true})
	b := recordedLoop(t, d, modelsOf(t, "vision", "policy"), r, besides(s, 2), []uint64{0, 1})
	for step := range 2 {
		require.NoError(t, b.step(t.Context(), step))
	}
}

func TestRecording_IsTakenByPtxas(t *testing.T) {
	fulltest.Long(t)
	s := bendRoad(t)
	m := modelsOf(t, "vision", "policy")
	l, err := m.load(modelLoops)
	require.NoError(t, err)
	d := &design{loops: modelLoops, float: ir.Float32, models: l, view: l.view}
	require.NoError(t, d.show(t.Context(), filmed(s, 8, [3]float64{}, middle(4, 1)...), m, []Scenario{s}))
	assemble(t, d)
}

// steers is a callback that sees pictures and commands a curvature.
func steers(curvature float32) *Callback {
	return &Callback{Name: "steers", Width: 64, Height: 32,
		Look: func(_ context.Context, _ int, _ []byte, _, commands [][]float32) error {
			for i := range commands[0] {
				commands[0][i], commands[1][i] = curvature, 0
			}
			return nil
		}}
}

// metricOf is a metric of a loop.
func metricOf(t testing.TB, r *Result, loop int, name string) float64 {
	for k, m := range Metrics {
		if m.Name == name {
			return r.Metrics[loop][k]
		}
	}
	t.Fatal(name)
	return 0
}

// TestRecording_EndsWithItsCorridor: a loop that leaves it is marked and ends there; one that comes to the end of the
// recording ends too, and is not.
func TestRecording_EndsWithItsCorridor(t *testing.T) {
	s, err := Default("straight").With("speed", 20)
	require.NoError(t, err)
	r := filmed(s, 16, [3]float64{}, middle(61, 1)...)
	run := &Runner{Device: openEmu(t, emu.Options{}), Recording: r}
	out, err := run.RunBatch(t.Context(), []Scenario{s}, steers(0), 1, 1)
	require.NoError(t, err)
	require.Zero(t, metricOf(t, out, 0, "left_corridor"))
	require.InDelta(t, 3, metricOf(t, out, 0, "duration"), .051)
	require.InDelta(t, 60, metricOf(t, out, 0, "progress"), 1.01)
	out, err = run.RunBatch(t.Context(), []Scenario{s}, steers(.01), 1, 1)
	require.NoError(t, err)
	require.Equal(t, 1., metricOf(t, out, 0, "left_corridor"))
	require.Less(t, metricOf(t, out, 0, "offset_max"), corridorSide+.2)
	require.Less(t, metricOf(t, out, 0, "duration"), 2.9)
	// The same loop far past the last frame.
	s, err = s.With("heading", .11)
	require.NoError(t, err)
	out, err = run.RunBatch(t.Context(), []Scenario{s}, steers(0), 1, 1)
	require.NoError(t, err)
	require.Equal(t, 1., metricOf(t, out, 0, "left_corridor"))
	require.InDelta(t, Step, metricOf(t, out, 0, "duration"), 1e-6)
}

// TestRecording_IsRefused by what is wrong with it.
func TestRecording_IsRefused(t *testing.T) {
	s, err := Default("straight").With("speed", 20)
	require.NoError(t, err)
	device := openEmu(t, emu.Options{})
	try := func(a Algorithm, s Scenario, r *Recording) error {
		_, err := (&Runner{Device: device, Recording: r}).RunBatch(t.Context(), []Scenario{s}, a, 1, 1)
		return err
	}
	good := func(change func(r *Recording)) *Recording {
		r := filmed(s, 16, [3]float64{}, middle(5, 1)...)
		change(r)
		return r
	}
	frames := func(change func(i int, f *modeld.Frame) error) func(r *Recording) {
		return func(r *Recording) {
			was := r.Frames
			r.Frames = func(ctx context.Context) iter.Seq2[modeld.Frame, error] {
				return func(yield func(modeld.Frame, error) bool) {
					i := 0
					for f := range was(ctx) {
						err := change(i, &f)
						if !yield(f, err) || err != nil {
							return
						}
						i++
					}
				}
			}
		}
	}
	for want, change := range map[string]func(r *Recording){
		"has no frames with poses":          func(r *Recording) { r.Poses = nil },
		"frame 2: its heading is NaN":       func(r *Recording) { r.Poses[2].Heading = math.NaN() },
		"its first frame is at 1.00 m":      func(r *Recording) { r.Poses = r.Poses[1:] },
		"the car did not move":              func(r *Recording) { r.Poses = r.Poses[:1] },
		"the camera is -1 m above the road": func(r *Recording) { r.Height = -1 },
		"frame 3: Calibration.Road.Focal":   func(r *Recording) { r.Poses[3].Calibration = modeld.Calibration{} },
		"frames 0 and 4 are 4.0 m apart": func(r *Recording) {
			r.Poses[1].Station, r.Poses[2].Station, r.Poses[3].Station = 0, 0, 0
		},
		"its pictures end behind frame 4": func(r *Recording) {
			r.Poses = append(r.Poses, r.Poses[4])
			r.Poses[5].Station = 5
		},
		"frame 1: picture of the wide camera": frames(func(i int, f *modeld.Frame) error {
			f.Wide.Data = f.Wide.Data[:len(f.Wide.Data)*(1-i%2)]
			return nil
		}),
		"a camera of 120 × 74": frames(func(_ int, f *modeld.Frame) error { f.Road.Width = 60; return nil }),
		"too few for 120 × 74": frames(func(_ int, f *modeld.Frame) error { f.Road.Data = f.Road.Data[:9]; return nil }),
		"frame 2: unreadable": frames(func(i int, _ *modeld.Frame) error {
			return map[int]error{2: errors.New("unreadable")}[i]
		}),
	} {
		require.ErrorContains(t, try(steers(0), s, good(change)), want)
	}
	there := func(*Recording) {}
	pid, err := BuiltIn("pid")
	require.NoError(t, err)
	require.ErrorContains(t, try(pid, s, good(there)), `algorithm "pid" sees no pictures`)
	s, err = s.With("car1_present", 1)
	require.NoError(t, err)
	require.ErrorContains(t, try(steers(0), s, good(there)), "car1_present is 1")
}
