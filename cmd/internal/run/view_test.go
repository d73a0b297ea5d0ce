package run

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/browser"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

var update = flag.Bool("update", false, "take the picture of the page that docs/guide shows")

const picture = "../../../docs/spark-run-view.png"

// compiled writes a small vision model and its policy, whose outputs look like a drive, as a package of a precision.
func compiled(t *testing.T, precision string, largest runtime.FrameLayout) string {
	t.Helper()
	var files []*onnx.Model
	for _, name := range []string{"vision", "policy"} {
		m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
		require.NoError(t, err)
		m, err = m.Plausible()
		require.NoError(t, err)
		file, err := onnx.Decode("driving_"+name+".onnx", m.ONNX)
		require.NoError(t, err)
		files = append(files, file)
	}
	r, err := compile.Loop(t.Context(), files, openpilot.Options{Largest: largest}, compile.Options{Precision: precision, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	return written(t, r.Program, "driving_"+precision)
}

// written is a program in a directory.
func written(t *testing.T, p *runtime.Program, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	parts, err := p.Files()
	require.NoError(t, err)
	for name, data := range parts {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	return dir
}

// drove are the outputs of a package's last frame, by a loop of the test's own.
func drove(t *testing.T, dir string, frames *replay.Directory, in modeld.Inputs) *modeld.Outputs {
	t.Helper()
	p, err := runtime.Read(os.DirFS(dir))
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	m, err := modeld.NewDriving(t.Context(), p, d, modeld.Options{})
	require.NoError(t, err)
	defer m.Close()
	var out *modeld.Outputs
	for f, err := range frames.Frames() {
		require.NoError(t, err)
		out, err = m.Step(t.Context(), f, in)
		require.NoError(t, err)
	}
	return out
}

// started runs spark-run with --view and returns the page's address, and what ends it and returns the rest of what it prints.
func started(t *testing.T, f flags) (url string, end func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := f.replay(ctx, in, io.Discard)
		in.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	url = regexp.MustCompile(`^http://\S+`).FindString(first)
	require.NotEmpty(t, url, first)
	return url, func() string {
		cancel()
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		require.NoError(t, <-ended)
		return string(rest)
	}
}

// shown is the page of --view in a browser.
type shown struct{ browser.Page }

// pixel is a canvas's colour at a place in the page's pixels from its corner, and its size in them.
func (b shown) pixel(canvas string, x, y float64) [3]int {
	return browser.Value[[3]int](b.Page, fmt.Sprintf(`(() => { const c = document.querySelector(%q), k = c.width / c.clientWidth;
		return [...c.getContext("2d").getImageData(Math.floor(%g * k), Math.floor(%g * k), 1, 1).data].slice(0, 3); })()`, canvas, x, y))
}

func (b shown) size(canvas string) (w, h float64) {
	s := browser.Value[[2]float64](b.Page, fmt.Sprintf(`(() => { const c = document.querySelector(%q); return [c.clientWidth, c.clientHeight]; })()`, canvas))
	return s[0], s[1]
}

func (b shown) text(selector string) string {
	return browser.Value[string](b.Page, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

var pathColours = [][3]int{{0x4c, 0xc9, 0xf0}, {0xff, 0xb7, 0x03}}

func difference(a, b [3]int) (most int) {
	for i := range a {
		most = max(most, a[i]-b[i], b[i]-a[i])
	}
	return most
}

// TestThePageDrawsWhatTheModelsSay: two packages on a drive in a real browser. What the page was sent, says and draws are the outputs of a loop of the
// test's own.
func TestThePageDrawsWhatTheModelsSay(t *testing.T) {
	fulltest.Long(t)
	precisions, length := []string{"fp32", "fp16"}, 12
	if *update {
		precisions, length = []string{"fp16", "nvfp4"}, 30
	}
	road, wide := openpilot.Cameras(2)
	dir := filepath.Join(t.TempDir(), "frames")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, openpilot.WriteDirectory(dir, openpilot.NPZ, road, wide, length))
	frames, err := replay.Open(dir)
	require.NoError(t, err)
	last, err := frames.Frame(length - 1)
	require.NoError(t, err)
	first := road.Draw(0)
	f := flags{Device: "emu", Runs: 1, replayFlags: replayFlags{Replay: dir, View: "127.0.0.1:0", RPY: []float64{0, .02, -.01}, VEgo: 20}}
	for i, to := range []*string{&f.Model, &f.Other} {
		*to = compiled(t, precisions[i], runtime.FrameLayout{Width: first.Width, Height: first.Height, Stride: first.Stride, UV: first.UV})
	}
	in := modeld.Inputs{VEgo: 20, Calibration: &modeld.Calibration{RPY: [3]float64{0, .02, -.01}, Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}}
	want := []*modeld.Outputs{drove(t, f.Model, frames, in), drove(t, f.Other, frames, in)}
	require.NotEqual(t, want[0].Plan.Position, want[1].Plan.Position)

	url, end := started(t, f)
	b := shown{browser.Open(t, url, 1440, 776)}
	b.Until(fmt.Sprintf("window.shown && window.shown.index == %d", length-1))
	b.Until(`document.getElementById("notice").textContent == "end of the recording"`)

	numbersOfThePage(t, b, want)
	for i, out := range want {
		pixelsOfACamera(t, b, i, out, in.Calibration, last)
	}
	pixelsFromAbove(t, b, want)

	// The other camera's picture lies under what is drawn: its sky, where the road camera sees the road.
	w, h := b.size("#package0 canvas")
	before := b.pixel("#package0 canvas", .97*w, .6*h)
	browser.Run(b.Page, chromedp.Click(`[data-camera=wide]`))
	b.Until(fmt.Sprintf(`(() => { const c = document.querySelector("#package0 canvas"), d = c.getContext("2d").getImageData(Math.floor(.97 * c.width), Math.floor(.6 * c.height), 1, 1).data;
		return Math.abs(d[0] - %d) + Math.abs(d[1] - %d) + Math.abs(d[2] - %d) > 30; })()`, before[0], before[1], before[2]))
	require.Less(t, difference(rgb(last.Wide, .97, .6), b.pixel("#package0 canvas", .97*w, .6*h)), 12)

	// From the start: the drive runs once more, and ends alike.
	browser.Run(b.Page, chromedp.Click(`[data-camera=road]`))
	browser.Run(b.Page, chromedp.Click("#again"))
	b.Until(fmt.Sprintf("window.shown.sequence == %d", 2*length-1))
	numbersOfThePage(t, b, want)
	labelsOfCanvases(t, b)
	b.Check("spark-run-view")
	if *update {
		b.Picture(picture, 1280, 900)
	}

	text := end()
	for i, p := range precisions {
		require.Regexp(t, fmt.Sprintf(`(?m)^driving_%s, driving_vision.onnx \+ driving_policy.onnx %s on cpu \(emu\): %d steps of .+, 0 missed$`, p, p, 2*length), text, i)
	}
	b.Until(`document.getElementById("notice").textContent.startsWith("no connection")`)
}

// numbersOfThePage holds what the page was sent, and its words, against outputs.
func numbersOfThePage(t *testing.T, b shown, want []*modeld.Outputs) {
	t.Helper()
	var shown struct {
		Packages []struct {
			Plan         struct{ X, Y, Z []float64 }
			Lanes, Edges []struct {
				Y, Z        []float64
				Probability float64
			}
			Leads                   []struct{ X, Y, Speed, Probability float64 }
			Curvature, Acceleration float64
		}
		Difference struct{ Path, Curvature float64 }
	}
	require.NoError(t, json.Unmarshal([]byte(browser.Value[string](b.Page, "JSON.stringify(window.shown)")), &shown))
	require.Len(t, shown.Packages, len(want))
	for i, out := range want {
		got := shown.Packages[i]
		for k, p := range out.Plan.Position {
			require.Equal(t, p, [3]float64{got.Plan.X[k], got.Plan.Y[k], got.Plan.Z[k]})
		}
		for which, list := range [][]modeld.Line{out.LaneLines, out.RoadEdges} {
			lines := got.Lanes
			if which == 1 {
				lines = got.Edges
			}
			require.Len(t, lines, len(list))
			for k, l := range list {
				require.Equal(t, l.Y[:], lines[k].Y)
				require.Equal(t, l.Z[:], lines[k].Z)
				require.Equal(t, l.Probability, lines[k].Probability)
			}
		}
		for k, l := range out.Leads {
			require.Equal(t, []float64{l.X[0], l.Y[0], l.V[0], l.Probability}, []float64{got.Leads[k].X, got.Leads[k].Y, got.Leads[k].Speed, got.Leads[k].Probability})
		}
		require.Equal(t, out.CurvatureCommand, got.Curvature)
		require.Equal(t, out.AccelerationCommand, got.Acceleration)
		says := func(is string) string { return b.text(fmt.Sprintf("#package%d [data-is=%s]", i, is)) }
		require.Equal(t, fmt.Sprintf("%.6f 1/m", out.CurvatureCommand), says("curvature"))
		require.Equal(t, fmt.Sprintf("%.3f m/s²", out.AccelerationCommand), strings.TrimSuffix(says("acceleration"), ", stop"))
		require.Equal(t, fmt.Sprintf("%.2f m/s", out.Plan.Velocity[0][0]), says("speed"))
		require.Equal(t, fmt.Sprintf("%.1f m, %.0f %%", out.Leads[0].X[0], 100*out.Leads[0].Probability), says("lead"))
		require.Equal(t, map[modeld.Confidence]string{modeld.Red: "red", modeld.Yellow: "yellow", modeld.Green: "green"}[out.Confidence], says("confidence"))
		for _, stage := range []string{"prepare", "run", "parse", "mean"} {
			require.Regexp(t, `^\d+\.\d{3} ms$`, says(stage))
		}
	}
	var most float64
	for k, p := range want[0].Plan.Position {
		q := want[1].Plan.Position[k]
		most = max(most, math.Sqrt(math.Pow(p[0]-q[0], 2)+math.Pow(p[1]-q[1], 2)+math.Pow(p[2]-q[2], 2)))
	}
	require.InDelta(t, most, shown.Difference.Path, 1e-9)
	require.Equal(t, fmt.Sprintf("%.3f m", most), b.text("#d-path"))
	require.Equal(t, fmt.Sprintf("%.6f 1/m", math.Abs(want[0].CurvatureCommand-want[1].CurvatureCommand)), b.text("#d-curvature"))
}

// pixelsOfACamera holds what is drawn over the road camera's picture against outputs: path and lane lines lie where the camera sees them, and the
// picture is under them.
func pixelsOfACamera(t *testing.T, b shown, i int, out *modeld.Outputs, c *modeld.Calibration, frame modeld.Frame) {
	t.Helper()
	canvas := fmt.Sprintf("#package%d canvas", i)
	w, h := b.size(canvas)
	require.InDelta(t, float64(frame.Road.Height)/float64(frame.Road.Width), h/w, .01)
	m, _, err := c.Projections()
	require.NoError(t, err)
	place := func(x, y, z float64) (px, py float64) {
		var v [3]float64
		for k := range 3 {
			v[k] = m[k][0]*x + m[k][1]*y + m[k][2]*z
		}
		return v[0] / v[2] * w / float64(frame.Road.Width), v[1] / v[2] * h / float64(frame.Road.Height)
	}
	inside := func(x, y float64) bool { return x > 3 && y > 3 && x < w-3 && y < h-3 }
	seen := 0
	for k, p := range out.Plan.Position {
		if x, y := place(p[0], p[1], p[2]+modeld.CameraHeight); p[0] > 5 && p[0] < 60 && inside(x, y) {
			require.Less(t, difference(pathColours[i], b.pixel(canvas, x, y)), 40, "package %d: the path's point %d at %.0f, %.0f", i, k, x, y)
			seen++
		}
	}
	require.Greater(t, seen, 4)
	// The path is 1.8 m wide, and lies on the road: its left edge is where the camera sees that.
	seen = 0
	for _, p := range out.Plan.Position {
		x, y := place(p[0], p[1]-.9, p[2]+modeld.CameraHeight)
		if p[0] < 5 || p[0] > 20 || !inside(x-4, y) {
			continue
		}
		for side, part := range map[float64]float64{-4: 0, 4: .3} {
			want := rgb(frame.Road, (x+side)/w, y/h)
			for c := range want {
				want[c] = int(float64(want[c])*(1-part) + float64(pathColours[i][c])*part)
			}
			require.Less(t, difference(want, b.pixel(canvas, x+side, y)), 12, "package %d: %g pixels beside the path's edge, %.1f m ahead", i, side, p[0])
		}
		seen++
	}
	require.Greater(t, seen, 1)
	seen = 0
	distances := modeld.XIndex()
	for n, l := range out.LaneLines[1:3] {
		require.Greater(t, l.Probability, .9)
		for k, x := range distances {
			if px, py := place(x, l.Y[k], l.Z[k]); x > 5 && x < 30 && inside(px, py) {
				require.Greater(t, min(200, b.pixel(canvas, px, py)[0]), 190, "package %d: point %d of lane line %d", i, k, n)
				seen++
			}
		}
	}
	require.Greater(t, seen, 4)
	for _, at := range [][2]float64{{.1, .05}, {.9, .1}, {.04, .4}, {.97, .6}} {
		require.Less(t, difference(rgb(frame.Road, at[0], at[1]), b.pixel(canvas, at[0]*w, at[1]*h)), 12, "the picture at %v", at)
	}
}

// labelsOfCanvases draws the page anew at several widths and checks that labels lie within their canvas, and that the
// history has ticks at 1, 2 or 5 times a power of ten.
func labelsOfCanvases(t *testing.T, b shown) {
	t.Helper()
	for _, width := range []int64{480, 1280} {
		browser.Run(b.Page, chromedp.EmulateViewport(width, 800))
		browser.Run(b.Page, chromedp.Sleep(100*time.Millisecond)) // resize draws as well
		labels := browser.Value[map[string]string](b.Page, `(() => {
	const all = {}, type = CanvasRenderingContext2D.prototype, draw = type.fillText;
	type.fillText = function (text, x, y) {
		const { actualBoundingBoxLeft: left, actualBoundingBoxRight: right } = this.measureText(text);
		const inside = x - left >= 2 && x + right <= this.canvas.clientWidth - 2 && y <= this.canvas.clientHeight;
		all[this.canvas.id + " " + text] = inside ? "" : "cut off";
	};
	window.again();
	type.fillText = draw;
	return all;
})()`)
		require.Contains(t, labels, "birdseye 100 m")
		require.Contains(t, labels, "history 0")
		for label, fault := range labels {
			require.Empty(t, fault, "%s at %d px", label, width)
			if tick, ok := strings.CutPrefix(label, "history "); ok && tick != "0" {
				require.Regexp(t, `^-?(0\.0*)?[125]0*$`, tick)
			}
		}
	}
}

// rgb is a picture's colour at a part of its width and height, as JFIF has it.
func rgb(p modeld.Picture, x, y float64) [3]int {
	px, py := int(x*float64(p.Width)), int(y*float64(p.Height))
	luma := float64(p.Data[py*p.Width+px])
	uv := p.Data[p.Width*p.Height+py/2*p.Width+px&^1:]
	u, v := float64(uv[0])-128, float64(uv[1])-128
	return [3]int{int(luma + 1.402*v), int(luma - .344136*u - .714136*v), int(luma + 1.772*u)}
}

// pixelsFromAbove compares the plan of the road with outputs: 100 m forward, 12 m to either side.
func pixelsFromAbove(t *testing.T, b shown, want []*modeld.Outputs) {
	t.Helper()
	w, h := b.size("#birdseye")
	bottom := h - 22
	const labels = 52
	place := func(x, y float64) (float64, float64) {
		return labels + (w-labels)/2 + y*(w-labels)/24, bottom - x*(bottom-8)/100
	}
	seen := 0
	for i, out := range want {
		for k, p := range out.Plan.Position {
			x, y := place(p[0], p[1])
			if p[0] < 1 || p[0] > 95 || math.Abs(p[1]) > 11 {
				continue
			}
			got := b.pixel("#birdseye", x, y)
			if i == 0 { // the second package's dashes may lie over it, and mix with it at their ends
				for c := range 3 {
					low, high := min(pathColours[0][c], pathColours[1][c]), max(pathColours[0][c], pathColours[1][c])
					require.True(t, got[c] > low-30 && got[c] < high+30, "point %d is %v", k, got)
				}
				continue
			}
			if difference(pathColours[1], got) < 40 {
				seen++
			}
		}
	}
	require.Greater(t, seen, 2, "the second package's dashes")
	lead := want[0].Leads[0]
	x, y := place(lead.X[0], lead.Y[0])
	require.Less(t, difference([3]int{0x80, 0xed, 0x99}, b.pixel("#birdseye", x-9, y-6)), 40, "the car ahead")
}
