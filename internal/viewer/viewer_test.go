package viewer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
)

// flatPicture is a picture of one colour.
func flatPicture(w, h int, y, u, v byte) modeld.Picture {
	p := modeld.Picture{Data: make([]byte, w*h*3/2), Width: w, Height: h}
	for i := range p.Data {
		switch {
		case i < w*h:
			p.Data[i] = y
		case i%2 == 0:
			p.Data[i] = u
		default:
			p.Data[i] = v
		}
	}
	return p
}

// frame is what is shown of a frame in which a package's plan is so many metres long.
func frame(id uint32, lengths ...float64) Shown {
	cameras, _ := replay.Cameras(64, 32)
	s := Shown{Index: int(id), Frame: modeld.Frame{Road: flatPicture(64, 32, byte(id), 128, 128), Wide: flatPicture(64, 32, 200, 100, 150), ID: id},
		Calibration: modeld.Calibration{Road: cameras.Road, WideCamera: cameras.Wide}}
	for _, l := range lengths {
		out := &modeld.Outputs{Ran: true, Plan: &modeld.Plan{}, CurvatureCommand: l / 100, Raw: map[string][]float64{"outputs": {l, 3}}, Stats: modeld.Stats{Run: time.Duration(l) * time.Millisecond}}
		out.Plan.Position[modeld.Points-1] = [3]float64{l, 0, 0}
		s.Outputs = append(s.Outputs, out)
	}
	return s
}

// serving is a viewer that serves; the context ends with the test, or with stop, which waits for the server's end.
func serving(t *testing.T, packages, frames int) (v *Viewer, url string, stop func()) {
	t.Helper()
	v, err := New(make([]Package, packages), frames)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- v.Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return v, "http://" + l.Addr().String() + "/", stop
}

func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(raw), r.Header
}

func order(t *testing.T, url, what string) int {
	t.Helper()
	r, err := http.Post(url+"control/"+what, "", nil)
	require.NoError(t, err)
	defer r.Body.Close()
	return r.StatusCode
}

// listener reads events as a browser does.
type listener struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

func listen(t *testing.T, url string) *listener {
	t.Helper()
	r, err := http.Get(url + "events")
	require.NoError(t, err)
	t.Cleanup(func() { r.Body.Close() })
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	l := &listener{t, r.Body, bufio.NewScanner(r.Body)}
	l.lines.Buffer(nil, 1<<20)
	return l
}

// next is the data of the next event of a kind; ok is false at the end.
func (l *listener) next(kind string) (data map[string]any, ok bool) {
	l.t.Helper()
	for l.lines.Scan() {
		if l.lines.Text() != "event: "+kind {
			continue
		}
		require.True(l.t, l.lines.Scan())
		text, found := strings.CutPrefix(l.lines.Text(), "data: ")
		require.True(l.t, found)
		require.NoError(l.t, json.Unmarshal([]byte(text), &data))
		return data, true
	}
	return nil, false
}

func TestEveryBrowserSeesTheLatestFrameAndASlowOneStopsNothing(t *testing.T) {
	v, url, _ := serving(t, 1, 500)
	slow := listen(t, url) // reads nothing while frames are shown
	quick := listen(t, url)
	for _, l := range []*listener{slow, quick} {
		drive, ok := l.next("drive")
		require.True(t, ok)
		require.Equal(t, modeld.CameraHeight, drive["cameraHeight"])
	}
	long := make([]modeld.Line, 40)
	for i := range long {
		for k := range modeld.Points {
			long[i].Y[k], long[i].Z[k] = 1./3, -1./3
		}
	}
	for i := range 400 { // more than a connection's buffers hold
		s := frame(uint32(i), 10)
		s.Outputs[0].LaneLines = long
		require.NoError(t, v.Show(s))
	}
	for name, l := range map[string]*listener{"quick": quick, "slow": slow, "late": listen(t, url)} {
		count := 0
		for {
			f, ok := l.next("frame")
			require.True(t, ok, name)
			if count++; f["frame"] == 399. {
				break
			}
		}
		require.Less(t, count, 400, name)
	}
}

func TestOrders(t *testing.T) {
	v, url, _ := serving(t, 1, 3)
	l := listen(t, url)
	state := func() map[string]any {
		s, ok := l.next("state")
		require.True(t, ok)
		return s
	}
	require.Equal(t, map[string]any{"paused": false, "ended": false}, state())
	_, waited, err := v.Next(t.Context(), false)
	require.NoError(t, err)
	require.False(t, waited)

	require.Equal(t, http.StatusNoContent, order(t, url, "pause"))
	require.Equal(t, true, state()["paused"])
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, waited, err = v.Next(short, false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, waited)

	went := make(chan bool)
	go func() { // it waits, unless the order is faster
		again, _, err := v.Next(t.Context(), false)
		went <- err == nil && !again
	}()
	require.Equal(t, http.StatusNoContent, order(t, url, "step"))
	require.True(t, <-went)
	short, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err = v.Next(short, false)
	require.ErrorIs(t, err, context.DeadlineExceeded, "one step was asked for")

	require.Equal(t, http.StatusNoContent, order(t, url, "play"))
	_, waited, err = v.Next(t.Context(), false)
	require.NoError(t, err)
	require.False(t, waited)

	go func() {
		again, _, err := v.Next(t.Context(), true)
		went <- err == nil && again
	}()
	for state()["ended"] != true {
	}
	require.Equal(t, http.StatusNoContent, order(t, url, "play"), "plays nothing at the end")
	require.Equal(t, http.StatusNoContent, order(t, url, "again"))
	require.True(t, <-went)
	require.Equal(t, http.StatusNotFound, order(t, url, "reverse"))
	status, _, _ := get(t, url+"control/pause")
	require.Equal(t, http.StatusNotFound, status, "an order is posted")
}

func TestTheServerEndsWithItsContextThoughBrowsersListen(t *testing.T) {
	v, url, stop := serving(t, 1, 3)
	l := listen(t, url)
	require.NoError(t, v.Show(frame(0, 1)))
	_, ok := l.next("frame")
	require.True(t, ok)
	begin := time.Now()
	stop()
	require.Less(t, time.Since(begin), patience, "nothing was waited for")
	_, ok = l.next("frame")
	require.False(t, ok)
	_, err := http.Get(url)
	require.Error(t, err)
}

func TestPictures(t *testing.T) {
	v, url, _ := serving(t, 1, 20)
	for i := range kept + 2 {
		require.NoError(t, v.Show(frame(uint32(20*i), 1)))
	}
	at := func(sequence int, camera string) [3]int {
		status, body, header := get(t, fmt.Sprintf("%spicture/%d/%s.jpg", url, sequence, camera))
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, "image/jpeg", header.Get("Content-Type"))
		img, err := jpeg.Decode(strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, 64, img.Bounds().Dx())
		require.Equal(t, 32, img.Bounds().Dy())
		r, g, b, _ := img.At(30, 20).RGBA()
		return [3]int{int(r >> 8), int(g >> 8), int(b >> 8)}
	}
	for i := 2; i < kept+2; i++ {
		require.InDelta(t, 20*i, at(i, "road")[0], 2, "grey")
	}
	// Y 200, U 100, V 150 is JFIF's 231, 194, 150.
	wide := at(kept+1, "wide")
	for c, want := range []int{231, 194, 150} {
		require.InDelta(t, want, wide[c], 3)
	}
	for _, path := range []string{"1/road.jpg", "99/road.jpg", "5/driver.jpg", "5/road.png", "x/road.jpg"} {
		status, _, _ := get(t, url+"picture/"+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
}

// TestLargePicturesAreDivided: means of squares of pixels, of a picture with padding.
func TestLargePicturesAreDivided(t *testing.T) {
	const w, h, stride, uv = 2004, 6, 2048, 2048 * 8
	p := modeld.Picture{Data: make([]byte, uv+stride*h/2), Width: w, Height: h, Stride: stride, UV: uv}
	for y := range h {
		for x := range w {
			p.Data[y*stride+x] = byte(10*y + x%7)
		}
	}
	for y := range h / 2 {
		for x := range w / 2 {
			p.Data[uv+y*stride+2*x], p.Data[uv+y*stride+2*x+1] = byte(x%5), byte(100+x%3)
		}
	}
	img := smaller(p)
	require.Equal(t, w/3, img.Rect.Dx())
	require.Equal(t, h/3, img.Rect.Dy())
	var sum, us int
	for y := 3; y < 6; y++ {
		for x := 30; x < 33; x++ {
			sum += 10*y + x%7
			if y < 4 {
				us += 3 * (x % 5)
			}
		}
	}
	require.Equal(t, byte((sum+4)/9), img.Y[img.YStride+10])
	require.Equal(t, byte((us+4)/9), img.Cb[10])
	whole := smaller(flatPicture(64, 32, 9, 8, 7))
	require.Equal(t, []byte{9, 8, 7}, []byte{whole.Y[0], whole.Cb[0], whole.Cr[0]})
	require.Equal(t, 64, whole.Rect.Dx())
}

// TestViewer_DescribesPackage: numbers that are not finite, models that have not run, and how far two differ.
func TestViewer_DescribesPackage(t *testing.T) {
	v, err := New(make([]Package, 2), 3)
	require.NoError(t, err)
	told := func(s Shown) (m map[string]any) {
		require.NoError(t, v.Show(s))
		require.NoError(t, json.Unmarshal(v.frames[len(v.frames)-1].text, &m))
		return m
	}
	s := frame(1, 30, 34)
	s.Outputs[0].LaneLines = []modeld.Line{{Probability: math.NaN()}}
	s.Outputs[1].LaneLines = []modeld.Line{{}}
	s.Outputs[1].LaneLines[0].Y[5], s.Outputs[1].LaneLines[0].Z[5] = 3, 4
	s.Outputs[1].Plan.Position[10] = [3]float64{1, -3, 5}
	m := told(s)
	require.InDelta(t, math.Sqrt(35), m["difference"].(map[string]any)["path"], 1e-12)
	require.InDelta(t, 5, m["difference"].(map[string]any)["lanes"], 1e-12)
	require.InDelta(t, .04, m["difference"].(map[string]any)["curvature"], 1e-12)
	require.InDelta(t, 4/math.Hypot(30, 3), m["difference"].(map[string]any)["relL2"], 1e-12)
	first := m["packages"].([]any)[0].(map[string]any)
	require.Nil(t, first["lanes"].([]any)[0].(map[string]any)["probability"])
	require.EqualValues(t, 30, first["times"].(map[string]any)["mean"])

	m = told(frame(2, 40, 34))
	require.EqualValues(t, 35, m["packages"].([]any)[0].(map[string]any)["times"].(map[string]any)["mean"])
	require.Nil(t, m["difference"].(map[string]any)["lanes"])

	s = frame(4, 30, 34)
	s.Outputs[1] = &modeld.Outputs{Missed: 1}
	m = told(s)
	require.Nil(t, m["difference"])
	second := m["packages"].([]any)[1].(map[string]any)
	require.Equal(t, false, second["ran"])
	require.Nil(t, second["plan"])
	require.EqualValues(t, 34, second["times"].(map[string]any)["mean"])

	s.Calibration.RPY[0] = math.Inf(1)
	require.ErrorContains(t, v.Show(s), "roll is +Inf")
	require.ErrorContains(t, v.Show(frame(1, 2)), "outputs of 1 packages, want 2")
	for _, n := range []int{0, 3} {
		_, err := New(make([]Package, n), 1)
		require.ErrorContains(t, err, "one or two")
	}
}

func TestThePageIsForThisMachine(t *testing.T) {
	_, url, _ := serving(t, 1, 1)
	ask := func(method, path, host string, header map[string]string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		require.NoError(t, err)
		if host != "" {
			r.Host = host
		}
		for k, v := range header {
			r.Header.Set(k, v)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	for host, want := range map[string]int{"": 200, "localhost:8080": 200, "[::1]:80": 200, "127.0.0.1": 200, "example.com": 403, "example.com:8080": 403, "10.0.0.1": 403} {
		require.Equal(t, want, ask("GET", "", host, nil), host)
	}
	require.Equal(t, 204, ask("POST", "control/pause", "", map[string]string{"Sec-Fetch-Site": "same-origin"}))
	require.Equal(t, 403, ask("POST", "control/pause", "", map[string]string{"Sec-Fetch-Site": "cross-site"}))
	_, body, header := get(t, url)
	require.Contains(t, body, "view.js")
	require.NotContains(t, body, "://", "nothing is fetched from elsewhere")
	require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
	for _, file := range []string{"view.js", "view.css", "style.css"} {
		status, body, _ := get(t, url+file)
		require.Equal(t, 200, status)
		require.False(t, strings.Contains(body, "://"), file)
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Listen(t.Context(), l.Addr().String())
	require.ErrorContains(t, err, "127.0.0.1:0 for a port that is free")
}
