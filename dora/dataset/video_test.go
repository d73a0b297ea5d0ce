package dataset

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// TestVideosShowWhatDirectoriesOfFramesShow, nearly: HEVC loses a little, far less than separates a sample from the next. A
// video that is cut off gives the samples before.
func TestVideosShowWhatDirectoriesOfFramesShow(t *testing.T) {
	if !(camera.Options{}).HasFFmpeg() {
		python := os.Getenv("SPARK_PYTHON")
		out, err := exec.Command(python, "-c", "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())").Output()
		if python == "" || err != nil {
			t.Skip("ffmpeg is missing: neither on the path nor in SPARK_PYTHON's imageio-ffmpeg (make tools)")
		}
		t.Setenv(camera.FFmpegVariable, strings.TrimSpace(string(out)))
	}
	ctx := context.Background()
	s := Synthesis{Routes: 1, Seconds: 4, Width: 128, Height: 80}
	frames := routesOf(t, s)
	s.Video = true
	videos := routesOf(t, s)
	open := func(dir string, warn func(string)) Set {
		set, err := Open(ctx, dir, Options{Inputs: takes(t, "vision"), Cache: t.TempDir(), Warn: warn})
		require.NoError(t, err)
		return set
	}
	none := func(text string) { t.Error(text) }
	a, b := open(frames, none), open(videos, none)
	require.Equal(t, a.Len(), b.Len())
	var shown, wanted []*Sample
	for i := range a.Len() {
		x, err := a.Sample(ctx, i)
		require.NoError(t, err)
		y, err := b.Sample(ctx, i)
		require.NoError(t, err)
		assert.Equal(t, x.Key, y.Key)
		wanted, shown = append(wanted, x), append(shown, y)
	}
	for _, name := range []string{"img", "big_img"} {
		worst, least := 0.0, math.Inf(1)
		for i, y := range shown {
			for k := max(i-1, 0); k <= min(i+1, len(wanted)-1); k++ {
				mean := 0.0
				for p, v := range wanted[k].Inputs[name] {
					d := float64(v) - float64(y.Inputs[name][p])
					mean += d * d / float64(len(y.Inputs[name]))
				}
				if k == i {
					worst = max(worst, mean)
				} else {
					least = min(least, mean)
				}
			}
		}
		t.Logf("%s: mean squared difference of levels: at most %.1f, of the sample before or after at least %.1f", name, worst, least)
		assert.Less(t, worst, 10.0, name)
		assert.Greater(t, least, 10*worst, name)
	}
	r := b.(*routes)
	path := videos + "/" + strings.TrimPrefix(r.segments[0].name, "0123456789abcdef|") + "/fcamera.hevc"
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)*6/10], 0o644))
	var warned []string
	c := open(videos, func(text string) { warned = append(warned, text) })
	assert.Less(t, c.Len(), b.Len())
	assert.Greater(t, c.Len(), 3)
	require.NotEmpty(t, warned)
	assert.Contains(t, warned[0], "frame ")
}

// TestASegmentWhoseDecoderIsKilledIsReadAgain: what had been decoded until then is not kept as all that there is.
func TestASegmentWhoseDecoderIsKilledIsReadAgain(t *testing.T) {
	ctx := context.Background()
	dir, cache := routesOf(t, Synthesis{Routes: 1, Seconds: 4, Width: 64, Height: 40}), t.TempDir()
	segments, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(segments[0], "fcamera")))
	require.NoError(t, os.WriteFile(filepath.Join(segments[0], "fcamera.hevc"), []byte("video"), 0o644))
	tool := filepath.Join(t.TempDir(), "ffmpeg")
	decoder := func(frames int, end string) {
		script := fmt.Sprintf("#!/bin/sh\nprintf 'YUV4MPEG2 W64 H40\\n'\nfor i in $(seq %d); do printf 'FRAME\\n'; head -c 3840 /dev/zero; done\n%s\n", frames, end)
		require.NoError(t, os.WriteFile(tool, []byte(script), 0o755))
	}
	t.Setenv(camera.FFmpegVariable, tool)
	var warned []string
	opt := Options{Inputs: takes(t, "vision"), Cache: cache, Warn: func(text string) { warned = append(warned, text) }}
	decoder(40, "kill -9 $$")
	_, err = Open(ctx, dir, opt)
	assert.ErrorContains(t, err, "fcamera.hevc: ffmpeg was killed")
	kept, err := filepath.Glob(filepath.Join(cache, "*.*"))
	require.NoError(t, err)
	assert.Empty(t, kept)
	warned = nil
	decoder(80, "exit 0")
	set, err := Open(ctx, dir, opt)
	require.NoError(t, err)
	assert.Equal(t, 19, set.Len())
	assert.Empty(t, warned)
}

// lengths are cameras of grey pictures, each of so many frames.
type lengths struct{ at, road, wide int }

func (l *lengths) next() (road, wide frame) {
	of := func(count int) frame {
		if l.at >= count {
			return frame{err: io.EOF}
		}
		return frame{picture: modeld.Picture{Data: make([]byte, 64*40*3/2), Width: 64, Height: 40}}
	}
	road, wide = of(l.road), of(l.wide)
	l.at++
	return road, wide
}

func (l *lengths) close() {}

// TestCamerasOfWhichOneBeganBefore: the last frames are a pair still, where the other camera's file has ended; and a number beyond both ends the search.
func TestCamerasOfWhichOneBeganBefore(t *testing.T) {
	c, err := contractOf(Options{Inputs: takes(t, "vision")})
	require.NoError(t, err)
	start := func(road, wide int) *decoder {
		return &decoder{frames: &lengths{road: road, wide: wide}, t: &timeline{Device: "tici", Sensor: "ox03c10"}, contract: c, roads: map[int]frame{}, wides: map[int]frame{}}
	}
	for name, k := range map[string]struct {
		cameras *decoder
		last    moment
	}{
		"the wide camera": {start(10, 11), moment{Road: 9, Wide: 10}},
		"the road camera": {start(11, 10), moment{Road: 10, Wide: 9}},
		"no wide frame":   {start(11, 10), moment{Road: 10, Wide: -1}},
	} {
		_, err := k.cameras.picture(&k.last)
		assert.NoError(t, err, name)
		_, err = k.cameras.picture(&moment{Road: 1 << 31, Wide: 1 << 31})
		assert.EqualError(t, err, "the video ends before its log", name)
	}
	_, err = start(11, 10).picture(&moment{Road: 10, Wide: 10})
	assert.EqualError(t, err, "the video ends before its log")
}
