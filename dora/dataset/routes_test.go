package dataset

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// takes are the inputs of a tiny model.
func takes(t *testing.T, name string) (in []Input) {
	t.Helper()
	m, err := driving.Made(name, driving.Tiny)
	require.NoError(t, err)
	for _, i := range m.Inputs {
		in = append(in, Input{i.Name, i.Type})
	}
	return in
}

// sums are features that say which frame they are of, by the pictures that the vision model is shown.
func sums(width int, seen *[]string) Features {
	return func(ctx context.Context, keys []string, inputs []map[string][]byte) (out [][]float32, err error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for i, key := range keys {
			*seen = append(*seen, key)
			digest := make([]int, width)
			for _, name := range []string{"img", "big_img"} {
				for k, b := range inputs[i][name] {
					digest[k%width] += int(b)
				}
			}
			x := make([]float32, width)
			for k, d := range digest {
				x[k] = float32(d % 2048) // exact in f16
			}
			out = append(out, x)
		}
		return out, nil
	}
}

func routesOf(t *testing.T, s Synthesis) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, Synthesise(context.Background(), dir, s))
	return dir
}

// onDrive is where on the drive a route begins.
func onDrive(t *testing.T, s *segment) int {
	t.Helper()
	for from := range 1 << 16 {
		speed, _ := openpilot.Motion(from)
		next, _ := openpilot.Motion(from + 1)
		m := s.index.Timeline.Moments
		if float32(speed) == float32(m[0].Speed) && float32(next) == float32(m[1].Speed) {
			return from
		}
	}
	t.Fatal("the route is not of the drive")
	return 0
}

// TestSamplesAreWhatTheDriveHad: pictures are those of the frames that the log names, seen by the calibration of that time; the truth is the
// way that the car went.
func TestSamplesAreWhatTheDriveHad(t *testing.T) {
	ctx := context.Background()
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: 13, Width: 96, Height: 60})
	set, err := Open(ctx, dir, Options{Inputs: takes(t, "vision"), Cache: t.TempDir(), Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	r := set.(*routes)
	g := r.segments[0]
	from := onDrive(t, g)
	require.Equal(t, 13*20/4-1, set.Len(), "five a second, but the first, which has no frame before it")
	road, wide := (&Synthesis{Width: 96, Height: 60}).eyes()
	for _, i := range []int{0, 7, set.Len() - 1} {
		s, err := set.Sample(ctx, i)
		require.NoError(t, err)
		f := 4 + 4*i
		assert.Equal(t, fmt.Sprintf("%s/%d", g.name, f), s.Key)
		for name, c := range map[string]openpilot.Camera{"img": road, "big_img": wide} {
			got, size := s.Inputs[name], r.contract.look.Bytes()
			for n, frame := range []int{f - 4, f} {
				p := c.Draw(from + frame)
				last := frame - frame%5 // calibrations come every fifth frame
				intrinsics := func(c openpilot.Camera) modeld.Intrinsics {
					return modeld.Intrinsics{Focal: c.Focal, Width: c.Width, Height: c.Height}
				}
				k := modeld.Calibration{RPY: single(openpilot.At(from + last).RPY), Road: intrinsics(road), WideCamera: intrinsics(wide)}
				m, w, err := k.Warps(r.contract.look.Width)
				require.NoError(t, err)
				if name == "big_img" {
					m = w
				}
				want := make([]byte, size)
				r.contract.look.Warp(want, modeld.Picture(p), m)
				assert.Equal(t, want, got[n*size:(n+1)*size], "%s of frame %d", name, frame)
			}
		}
		assert.Equal(t, s.Inputs["img"][len(s.Inputs["img"])/2:], s.View.Planes)
	}
	s, err := set.Sample(ctx, 2) // frame 12: ten seconds follow
	require.NoError(t, err)
	x, y, heading := 0.0, 0.0, 0.0
	const parts = 1000
	at := 0.0
	for i, until := range modeld.TIndex() {
		for step := (until - at) / parts; at < until-1e-9; at += step {
			v, c := motion(from, 12, at+step/2)
			x, y = x+v*math.Cos(heading+v*c*step/2)*step, y+v*math.Sin(heading+v*c*step/2)*step
			heading += v * c * step
		}
		v, c := motion(from, 12, until)
		row := s.Truth["plan"][15*i:]
		assert.InDelta(t, x, row[0], 0.02, "x after %v s", until)
		assert.InDelta(t, y, row[1], 0.02, "y after %v s", until)
		assert.InDelta(t, 0, row[2], 1e-6)
		assert.InDelta(t, v*math.Cos(heading), row[3], 0.01)
		assert.InDelta(t, heading, row[11], 1e-3)
		assert.InDelta(t, v*c, row[14], 1e-3)
	}
	last, err := set.Sample(ctx, set.Len()-1)
	require.NoError(t, err)
	assert.True(t, math.IsNaN(float64(last.Truth["plan"][15*32])), "what comes after the log is not known")
	assert.False(t, math.IsNaN(float64(last.Truth["plan"][0])))
}

// single is an angle as a log has it.
func single(x [3]float64) [3]float64 {
	return [3]float64{float64(float32(x[0])), float64(float32(x[1])), float64(float32(x[2]))}
}

// motion is the drive's, between its frames.
func motion(from, frame int, seconds float64) (speed, curvature float64) {
	at := float64(frame) + seconds*20
	a, b := int(math.Floor(at)), int(math.Floor(at))+1
	va, ca := openpilot.Motion(from + a)
	vb, cb := openpilot.Motion(from + b)
	part := at - float64(a)
	return va + part*(vb-va), ca + part*(cb-ca)
}

// TestAPolicySeesItsHistory: features of the last five seconds, each of its frame, zero before the route begins; pulses where lane changes begin.
func TestAPolicySeesItsHistory(t *testing.T) {
	ctx := context.Background()
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: 16, Width: 96, Height: 60})
	var computed []string
	inputs := takes(t, "policy")
	var width, rows int
	for _, in := range inputs {
		if in.Name == "features_buffer" {
			rows, width = in.Type.Shape[1], in.Type.Shape[2]
		}
	}
	open := func() *routes {
		set, err := Open(ctx, dir, Options{Inputs: inputs, Vision: takes(t, "vision"), Features: sums(width, &computed), Cache: t.TempDir(), Warn: func(text string) { t.Error(text) }})
		require.NoError(t, err)
		return set.(*routes)
	}
	set := open()
	g := set.segments[0]
	from := onDrive(t, g)
	read := func(in string, i int) []float64 {
		s, err := set.Sample(ctx, i)
		require.NoError(t, err)
		for _, input := range inputs {
			if input.Name == in {
				tensor, err := ir.NewTensor(input.Type, s.Inputs[in])
				require.NoError(t, err)
				return tensor.Floats()
			}
		}
		t.Fatal(in)
		return nil
	}
	newest := func(i int) []float64 { x := read("features_buffer", i); return x[len(x)-width:] }
	assert.Equal(t, make([]float64, (rows-1)*width), read("features_buffer", 0)[:(rows-1)*width], "the frames before the first have none")
	assert.NotEqual(t, make([]float64, width), newest(0))
	i := 40
	history := read("features_buffer", i)
	for row := range rows {
		assert.Equal(t, newest(i-(rows-1-row)), history[row*width:(row+1)*width], "row %d", row)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	set.features = map[string][]float32{}
	_, err := set.Sample(ended, i)
	assert.ErrorIs(t, err, context.Canceled)
	slices.Sort(computed)
	assert.Equal(t, len(computed), len(slices.Compact(slices.Clone(computed))), "features are computed once a frame")

	for _, k := range []int{0, 30, 200} {
		sparse, full := place{g, k}.curvatures(25, false), place{g, k}.curvatures(100, true)
		for row := range 100 {
			f := k - 1 - (99 - row)
			want := 0.0
			if f >= 0 {
				_, c := openpilot.Motion(from + f)
				want = float64(float32(c))
			}
			assert.Equal(t, want, full[row], "frame %d", f)
			if (99-row)%4 == 0 {
				assert.Equal(t, want, sparse[24-(99-row)/4], "frame %d", f)
			}
		}
	}

	// A lane change begins at frame f of the drive: the model is told of it in the next frame, as the log has it.
	pulses := 0
	desire := "desire"
	if slices.ContainsFunc(inputs, func(in Input) bool { return in.Name == "desire_pulse" }) {
		desire = "desire_pulse"
	}
	for i := range set.Len() {
		x := read(desire, i)
		for row := range len(x) / 8 {
			want := make([]float64, 8)
			for _, frame := range []int{0, 1, 2, 3} {
				f := 4 + 4*i - 4*(len(x)/8-1-row) - frame
				if f < 1 {
					continue
				}
				level := func(f int) int {
					if d := openpilot.At(from + f).Desire; f >= 0 && (d == 3 || d == 4) {
						return d
					}
					return 0
				}
				if now, then := level(f-1), level(f-2); now != then && now != 0 {
					want[now] = 1
					pulses++
				}
			}
			assert.Equal(t, want, x[8*row:8*row+8], "sample %d, row %d", i, row)
		}
	}
	assert.Greater(t, pulses, 20)
}

// TestTheSecondOpeningReadsNoLog: nor a video. What is kept is made again where it is damaged.
func TestTheSecondOpeningReadsNoLog(t *testing.T) {
	ctx := context.Background()
	dir, cache := routesOf(t, Synthesis{Routes: 2, Seconds: 4, Width: 64, Height: 40}), t.TempDir()
	opt := Options{Inputs: takes(t, "vision"), Cache: cache, Warn: func(text string) { t.Error(text) }}
	digest := func() (string, string) {
		set, err := Open(ctx, dir, opt)
		require.NoError(t, err)
		h := sha256.New()
		for i := range set.Len() {
			s, err := set.Sample(ctx, i)
			require.NoError(t, err)
			h.Write(s.Inputs["big_img"])
			h.Write(runtime.Bytes(s.Truth["plan"]))
		}
		return set.Fingerprint(), fmt.Sprintf("%x", h.Sum(nil))
	}
	print, all := digest()
	kept, err := filepath.Glob(filepath.Join(cache, "*.*"))
	require.NoError(t, err)
	require.Len(t, kept, 4)
	stamps := func() (out []int64) {
		for _, path := range kept {
			st, err := os.Stat(path)
			require.NoError(t, err)
			out = append(out, st.ModTime().UnixNano())
		}
		return out
	}
	before := stamps()
	again, same := digest()
	assert.Equal(t, []string{print, all}, []string{again, same})
	assert.Equal(t, before, stamps(), "nothing is written again")
	for _, path := range kept {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o644))
		again, same = digest()
		assert.Equal(t, []string{print, all}, []string{again, same}, "%s was damaged", filepath.Base(path))
	}
	other := routesOf(t, Synthesis{Routes: 2, Seconds: 4, Width: 64, Height: 40, Seed: 1})
	set, err := Open(ctx, other, opt)
	require.NoError(t, err)
	assert.NotEqual(t, print, set.Fingerprint())
}

// TestDamagedSegmentsAreLeftOut and named; one whose end is damaged gives what comes before.
func TestDamagedSegmentsAreLeftOut(t *testing.T) {
	ctx := context.Background()
	dir := routesOf(t, Synthesis{Routes: 5, Seconds: 4, Width: 64, Height: 40})
	segments, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, segments, 5)
	shorten := func(path string, share float64) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data[:int(share*float64(len(data)))], 0o644))
	}
	shorten(filepath.Join(segments[0], "rlog.zst"), 0.7)
	require.NoError(t, os.RemoveAll(filepath.Join(segments[1], "fcamera")))
	for n := 30; n < 80; n++ {
		require.NoError(t, os.Remove(filepath.Join(segments[2], "fcamera", fmt.Sprintf("%06d.npz", n))))
	}
	require.NoError(t, os.WriteFile(filepath.Join(segments[3], "rlog.zst"), []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), 0o644))
	var warned []string
	var read []int
	set, err := Open(ctx, dir, Options{Inputs: takes(t, "vision"), Warn: func(text string) { warned = append(warned, text) }, Progress: func(done, of int) {
		require.Equal(t, 5, of)
		read = append(read, done)
	}})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2, 3, 4, 5}, read)
	all := strings.Join(warned, "\n")
	for _, want := range []string{"rlog.zst", "it has no video of the road camera (fcamera.hevc)", "frame 32: the video ends before its log", "git lfs pull"} {
		assert.Contains(t, all, want)
	}
	count := map[string]int{}
	for i := range set.Len() {
		count[set.Route(i)]++
		_, err := set.Sample(ctx, i)
		require.NoError(t, err)
	}
	require.Len(t, count, 3)
	var counts []int
	for _, n := range count {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	assert.Equal(t, 19, counts[2])
	assert.Contains(t, counts[:2], 7, "30 frames of video: samples at 4, 8 … 28")
	assert.Less(t, counts[1], 19, "a log that is cut off")
	remove := set.(*routes).remove[0]
	assert.DirExists(t, remove)
	require.NoError(t, set.Close())
	assert.NoDirExists(t, remove)
}

// TestRoutesOfWhichNothingIsLeft: the error says why.
func TestRoutesOfWhichNothingIsLeft(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	segment := filepath.Join(dir, "00000000--0123456789--0")
	require.NoError(t, os.Mkdir(segment, 0o755))
	w, err := route.Create(filepath.Join(segment, "rlog.zst"))
	require.NoError(t, err)
	l := &scribe{w: w}
	l.begin(0)
	require.NoError(t, errorsOf(l.err, w.Close()))
	_, err = Open(ctx, dir, Options{Inputs: takes(t, "vision")})
	assert.ErrorContains(t, err, "none of its segments can be used: 00000000--0123456789--0: its log knows no frame of the road camera")
	for want, opt := range map[string]Options{
		"--vision": {Inputs: takes(t, "policy")},
		"routes do not make the model's inputs temperature": {Inputs: []Input{{"temperature", ir.T(ir.Float32, 1)}}},
		`input "input_img" is f32[1,7,320,160], want`:       {Inputs: []Input{{"input_img", ir.T(ir.Float32, 1, 7, 320, 160)}}},
	} {
		_, err = Open(ctx, dir, opt)
		assert.ErrorContains(t, err, want)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// stopping is a context that ends when it has been asked so many times whether it has.
type stopping struct {
	context.Context
	left int
}

func (s *stopping) Err() error {
	if s.left--; s.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestSynthesisThatIsStoppedLeavesNothing: half a segment would look damaged, and keep from writing there again.
func TestSynthesisThatIsStoppedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	err := Synthesise(&stopping{context.Background(), 50}, dir, Synthesis{Routes: 2, Seconds: 2, Width: 64, Height: 40})
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestSynthesisedRoutesAreTheSameAgain, byte by byte.
func TestSynthesisedRoutesAreTheSameAgain(t *testing.T) {
	sum := func(seed uint64) string {
		h := sha256.New()
		dir := routesOf(t, Synthesis{Routes: 2, Seconds: 2, Width: 32, Height: 20, Seed: seed})
		require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(filepath.Join(dir, path))
			fmt.Fprintln(h, path, len(data))
			h.Write(data)
			return err
		}))
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	assert.Equal(t, sum(1), sum(1))
	assert.NotEqual(t, sum(1), sum(2))
	assert.ErrorContains(t, Synthesise(context.Background(), t.TempDir(), Synthesis{Width: 33}), "even sizes from 16 on")
}

// TestSyntheticIsAKind: its routes are kept in the cache, or go with the set.
func TestSyntheticIsAKind(t *testing.T) {
	ctx, cache := context.Background(), t.TempDir()
	opt := Options{Inputs: takes(t, "vision"), Cache: cache}
	spec := "synthetic:routes=3,seconds=2,width=32,height=20,seed=4"
	a, err := Open(ctx, spec, opt)
	require.NoError(t, err)
	b, err := Open(ctx, spec, opt)
	require.NoError(t, err)
	assert.Equal(t, 27, a.Len())
	assert.Equal(t, a.Fingerprint(), b.Fingerprint())
	opt.Cache = ""
	c, err := Open(ctx, spec, opt)
	require.NoError(t, err)
	assert.Equal(t, a.Fingerprint(), c.Fingerprint())
	for _, dir := range c.(*routes).remove {
		assert.DirExists(t, dir)
	}
	require.NoError(t, c.Close())
	for _, dir := range c.(*routes).remove {
		assert.NoDirExists(t, dir)
	}
	for spec, want := range map[string]string{
		"synthetic:routes":   "synthetic:routes: routes: want a number, as in routes=2",
		"synthetic:cars=2":   `there is no setting "cars"`,
		"synthetic:width=31": "even sizes from 16 on",
	} {
		_, err := Open(ctx, spec, opt)
		assert.ErrorContains(t, err, want)
	}
}

// TestAnglesAreThoseOfTheirRotations, also of a car that has turned around.
func TestAnglesAreThoseOfTheirRotations(t *testing.T) {
	for _, yaw := range []float64{0, 1, -2, 3, math.Pi / 2, -math.Pi / 2} {
		r := product(turned([3]float64{0, 0, yaw}, 1), product(turned([3]float64{0, .3, 0}, 1), turned([3]float64{-.2, 0, 0}, 1)))
		got := angles(r)
		assert.InDelta(t, -.2, got[0], 1e-12)
		assert.InDelta(t, .3, got[1], 1e-12)
		assert.InDelta(t, yaw, got[2], 1e-12)
		assert.Equal(t, math.Atan2(math.Sin(yaw), math.Cos(yaw)) > 0, angle(math.Sin(yaw), math.Cos(yaw)) > 0)
	}
}

// TestAFirstKeyframeThatComesLate: frames before it are neither in the file nor in the indices, so the file's first frame is that of the first index.
func TestAFirstKeyframeThatComesLate(t *testing.T) {
	ctx := context.Background()
	const late, count = 7, 40
	dir := t.TempDir()
	segment := filepath.Join(dir, "00000000--0123456789--3")
	require.NoError(t, os.MkdirAll(filepath.Join(segment, "fcamera"), 0o755))
	road, wide := (&Synthesis{Width: 96, Height: 60}).eyes()
	w, err := route.Create(filepath.Join(segment, "rlog.zst"))
	require.NoError(t, err)
	l := &scribe{w: w}
	l.begin(3)
	for i := range count {
		id := uint32(3600 + i)
		if i < late { // the cameras' states alone
			l.write(route.KindRoadCameraState, &route.FrameData{FrameID: id, TimestampSOF: 1, Sensor: route.Sensor(2)})
			continue
		}
		l.frame(i, id, uint32(i-late), 2) // the encoder counts one segment less
		arrays := map[string]*npy.Array{"road": road.Draw(i).Array(), "wide": wide.Draw(i).Array()}
		require.NoError(t, npy.WriteZip(filepath.Join(segment, "fcamera", fmt.Sprintf("%06d.npz", i-late)), arrays))
	}
	l.end()
	require.NoError(t, errorsOf(l.err, w.Close()))
	set, err := Open(ctx, dir, Options{Inputs: takes(t, "vision"), Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	defer set.Close()
	s, err := set.Sample(ctx, 0)
	require.NoError(t, err)
	assert.Equal(t, "00000000--0123456789--3/3611", s.Key) // the fifth frame of the file
	r := set.(*routes)
	m := r.at[0].moment()
	k := modeld.Calibration{RPY: m.RPY, Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}
	matrix, _, err := k.Warps(r.contract.look.Width)
	require.NoError(t, err)
	want := make([]byte, r.contract.look.Bytes())
	r.contract.look.Warp(want, modeld.Picture(road.Draw(11)), matrix)
	assert.Equal(t, want, s.View.Planes)
}

// TestContractsOfGenerations: what the names and shapes of their inputs say.
func TestContractsOfGenerations(t *testing.T) {
	for name, want := range map[string]contract{
		"supercombo096":      {step: 1, old: true, row: generation.Named("old"), dense: true, rows: 99},
		"supercombo097":      {step: 4, row: generation.Named("old"), rows: 24},
		"policy010":          {step: 4, row: generation.Named("plan"), rows: 25, now: true}, // what it says is not known here
		"driving_supercombo": {step: 4, row: generation.Named("action"), rows: 24},
	} {
		vision := "vision010"
		if name == "driving_supercombo" {
			vision = "vision"
		}
		var seen []string
		inputs := takes(t, name)
		if _, err := contractOf(Options{Inputs: inputs}); assert.Error(t, err, name) {
			assert.Contains(t, err.Error(), "--vision")
		}
		c, err := contractOf(Options{Inputs: inputs, Vision: takes(t, vision), Features: sums(1, &seen)})
		require.NoError(t, err, name)
		assert.Equal(t, want, contract{step: c.step, old: c.old, row: c.row, dense: c.dense, rows: c.rows, now: c.now}, name)
		assert.Equal(t, vision == "vision010", c.look.Linear, name)
	}
}

// TestSegmentsThatOthersReadComeLast: ranks of one machine share a cache, and what one of them is reading the others do not read again. Here another process reads as many as are
// opened at a time.
func TestSegmentsThatOthersReadComeLast(t *testing.T) {
	ctx, elsewhere := context.Background(), min(goruntime.GOMAXPROCS(0), mostDecoded)
	dir, cache := routesOf(t, Synthesis{Routes: elsewhere + 1, Seconds: 4, Width: 64, Height: 40}), t.TempDir()
	opt := Options{Inputs: takes(t, "vision"), Cache: cache, Warn: func(text string) { t.Error(text) }}
	set, err := Open(ctx, dir, opt)
	require.NoError(t, err)
	var locks []*flock.Flock
	var indices [][]byte
	for _, g := range set.(*routes).segments {
		path := filepath.Join(cache, g.key+".json")
		index, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		if len(locks) < elsewhere {
			other := flock.New(path + ".lock")
			require.NoError(t, other.Lock())
			locks, indices = append(locks, other), append(indices, index)
		}
	}
	planes := func() (out []time.Time) {
		for _, l := range locks {
			st, err := os.Stat(strings.TrimSuffix(l.Path(), ".json.lock") + ".planes")
			require.NoError(t, err)
			out = append(out, st.ModTime())
		}
		return out
	}
	was := planes()
	var ready sync.Once
	let := func() {
		ready.Do(func() {
			for i, l := range locks {
				assert.NoError(t, os.WriteFile(strings.TrimSuffix(l.Path(), ".lock"), indices[i], 0o644))
				assert.NoError(t, os.Remove(l.Path()))
				assert.NoError(t, l.Unlock())
			}
		})
	}
	late := time.AfterFunc(20*time.Second, let)
	opt.Progress = func(done, of int) {
		if done == 1 {
			assert.True(t, late.Stop(), "the one that nobody reads comes first")
			time.AfterFunc(4*lockDelay, let) // the other process is ready while this one waits
		}
	}
	again, err := Open(ctx, dir, opt)
	require.NoError(t, err)
	assert.Equal(t, set.Fingerprint(), again.Fingerprint())
	assert.Equal(t, was, planes(), "they were decoded once")
	left, err := filepath.Glob(filepath.Join(cache, "*.lock"))
	require.NoError(t, err)
	assert.Empty(t, left)

	require.NoError(t, os.Remove(strings.TrimSuffix(locks[0].Path(), ".lock")))
	require.NoError(t, locks[0].Lock())
	defer locks[0].Close()
	ended, cancel := context.WithCancel(ctx)
	opt.Progress = func(done, of int) {
		if done == elsewhere { // all but that one
			cancel()
		}
	}
	_, err = Open(ended, dir, opt)
	assert.ErrorIs(t, err, context.Canceled)
}

// TestASegmentThatIsGivenUpLeavesNoLock in a cache that stays.
func TestASegmentThatIsGivenUpLeavesNoLock(t *testing.T) {
	cache := t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, new(segment).keep(ended, nil, filepath.Join(cache, "a.json"), false, nil), context.Canceled)
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.Empty(t, left)
}
