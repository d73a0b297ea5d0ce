package camera

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// tool is ffmpeg on the path, or the one of SPARK_PYTHON's imageio-ffmpeg.
func tool(t *testing.T) Options {
	t.Helper()
	if (Options{}).HasFFmpeg() {
		return Options{}
	}
	if python := os.Getenv("SPARK_PYTHON"); python != "" {
		out, err := exec.Command(python, "-c", "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())").Output()
		if path := strings.TrimSpace(string(out)); err == nil {
			return Options{FFmpeg: path}
		}
	}
	t.Skip("ffmpeg is missing: neither on the path nor in SPARK_PYTHON's imageio-ffmpeg (make tools)")
	return Options{}
}

const width, height = 128, 64

// numbered are frames that carry their number: eight columns, bright where a bit is set.
func numbered(n int) iter.Seq[modeld.Picture] {
	return func(yield func(modeld.Picture) bool) {
		for k := range n {
			p := modeld.Picture{Data: make([]byte, width*height*3/2), Width: width, Height: height}
			for i := range p.Data {
				switch {
				case i >= width*height:
					p.Data[i] = byte(90 + 70*(i%2)) // U below V
				case k>>(i%width/16)&1 == 1:
					p.Data[i] = 200
				default:
					p.Data[i] = 50
				}
			}
			if !yield(p) {
				return
			}
		}
	}
}

// numberOf reads a frame's number.
func numberOf(p modeld.Picture) (k int) {
	for bit := range 8 {
		if p.Data[32*p.Width+16*bit+8] > 125 {
			k |= 1 << bit
		}
	}
	return k
}

func encoded(t *testing.T, opt Options, frames int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fcamera.hevc")
	require.NoError(t, Encode(context.Background(), path, numbered(frames), opt))
	return path
}

// read reads to the end.
func read(t *testing.T, path string, opt Options) (numbers []int, end error) {
	t.Helper()
	v, err := OpenVideo(context.Background(), path, opt)
	require.NoError(t, err)
	defer v.Close()
	assert.Equal(t, []int{width, height}, []int{v.Width, v.Height})
	for {
		p, err := v.Next()
		if err != nil {
			_, again := v.Next()
			assert.Equal(t, err, again)
			return numbers, err
		}
		numbers = append(numbers, numberOf(p))
		assert.InDelta(t, 90, int(p.Data[width*height]), 8, "U")
		assert.InDelta(t, 160, int(p.Data[width*height+1]), 8, "V")
	}
}

func upTo(n int) (out []int) {
	for k := range n {
		out = append(out, k)
	}
	return out
}

// TestFramesComeInTheirOrder: the n-th frame of a file is the n-th that was encoded, over several keyframes.
func TestFramesComeInTheirOrder(t *testing.T) {
	opt := tool(t)
	numbers, end := read(t, encoded(t, opt, 75), opt)
	assert.Equal(t, upTo(75), numbers)
	assert.Equal(t, io.EOF, end)
}

// TestAFileThatIsCutOffGivesTheFramesBefore: at any place. ffmpeg may conceal the last one.
func TestAFileThatIsCutOffGivesTheFramesBefore(t *testing.T) {
	opt := tool(t)
	path := encoded(t, opt, 75)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, share := range []float64{.3, .61, .9} {
		require.NoError(t, os.WriteFile(path, data[:int(share*float64(len(data)))], 0o644))
		numbers, end := read(t, path, opt)
		require.NotEmpty(t, numbers)
		assert.Less(t, len(numbers), 75)
		assert.Equal(t, upTo(len(numbers)-1), numbers[:len(numbers)-1])
		var d *Damage
		assert.True(t, end == io.EOF || errors.As(end, &d) && d.Frames == len(numbers), end)
	}
}

// TestVideo_RefusesOtherFiles: errors name the file, and what ffmpeg says of it.
func TestVideo_RefusesOtherFiles(t *testing.T) {
	opt := tool(t)
	dir := t.TempDir()
	text, empty := filepath.Join(dir, "text.hevc"), filepath.Join(dir, "empty.hevc")
	require.NoError(t, os.WriteFile(text, []byte("no video"), 0o644))
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	for path, want := range map[string]string{text: "text.hevc: no frame can be decoded: ", empty: "empty.hevc: the file is empty", filepath.Join(dir, "none"): "no such file"} {
		_, err := OpenVideo(context.Background(), path, opt)
		assert.ErrorContains(t, err, want)
	}
	err := Encode(context.Background(), filepath.Join(dir, "none.hevc"), numbered(0), opt)
	assert.ErrorContains(t, err, "none.hevc: there are no frames")
	assert.NoFileExists(t, filepath.Join(dir, "none.hevc"))
}

// TestWithoutFFmpeg the error says how to get it.
func TestWithoutFFmpeg(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(FFmpegVariable, "")
	_, err := OpenVideo(context.Background(), "f.hevc", Options{})
	assert.ErrorIs(t, err, ErrNoFFmpeg)
	assert.ErrorContains(t, err, "f.hevc: ffmpeg is missing, which decodes cameras: install it (Debian: apt install ffmpeg; else pip install imageio-ffmpeg")
	t.Setenv(FFmpegVariable, "/nowhere/ffmpeg")
	_, err = OpenVideo(context.Background(), "f.hevc", Options{})
	assert.ErrorContains(t, err, "/nowhere/ffmpeg")
	assert.False(t, Options{}.HasFFmpeg())
}

// TestTheContextEndsTheProcess, whether somebody waits for a frame or not.
func TestTheContextEndsTheProcess(t *testing.T) {
	opt := tool(t)
	path := encoded(t, opt, 75)
	for _, cancelled := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		v, err := OpenVideo(ctx, path, opt)
		require.NoError(t, err)
		_, err = v.Next()
		require.NoError(t, err)
		if cancelled {
			cancel()
		}
		require.NoError(t, v.Close())
		cancel()
		require.NotNil(t, v.cmd.ProcessState)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err = v.cmd.Process.Signal(os.Kill); err != nil {
				break
			}
		}
		assert.ErrorIs(t, err, os.ErrProcessDone)
	}
}

// TestAPlaylistIsNoVideo: it would have ffmpeg read another file, which is a video, or ask a server.
func TestAPlaylistIsNoVideo(t *testing.T) {
	opt := tool(t)
	dir := t.TempDir()
	video := filepath.Join(dir, "other.ts")
	program, err := opt.program()
	require.NoError(t, err)
	cmd := exec.Command(program, "-loglevel", "error", "-f", "lavfi", "-i", "testsrc=size=64x40:rate=20:duration=1", "-c:v", "mpeg2video", video)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	v, err := OpenVideo(t.Context(), video, opt)
	require.NoError(t, err, "the video itself")
	require.NoError(t, v.Close())
	for name, list := range map[string]string{
		"HLS":    "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + video + "\n#EXT-X-ENDLIST\n",
		"concat": "ffconcat version 1.0\nfile other.ts\n",
		"SDP":    "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 33\n",
	} {
		path := filepath.Join(dir, "fcamera.hevc")
		require.NoError(t, os.WriteFile(path, []byte(list), 0o644))
		v, err := OpenVideo(t.Context(), path, opt)
		if err == nil {
			v.Close()
		}
		require.ErrorContains(t, err, "fcamera.hevc", name)
	}
}

// program writes a shell script that stands for ffmpeg.
func program(t *testing.T, script string) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ffmpeg")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return Options{FFmpeg: path}
}

// TestAProcessThatIsKilledIsNoDamage of the file; one that gives no frames is, and does not hang.
func TestAProcessThatIsKilledIsNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fcamera.hevc")
	require.NoError(t, os.WriteFile(path, []byte("video"), 0o644))
	const frame = "printf 'FRAME\\n'; head -c 384 /dev/zero\n"
	const header = "printf 'YUV4MPEG2 W16 H16\\n'\n"
	for name, c := range map[string]struct {
		script string
		killed bool
		want   string
	}{
		"killed":            {header + frame + frame + "kill -9 $$\n", true, "fcamera.hevc: ffmpeg was killed"},
		"killed in a frame": {header + frame + frame + "printf 'FRAME\\nxx'\nkill -9 $$\n", true, "fcamera.hevc: ffmpeg was killed"},
		"no frame":          {header + frame + frame + "exec yes\n", false, "fcamera.hevc: 2 frames could be decoded: a frame's header is"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := OpenVideo(context.Background(), path, program(t, c.script))
			require.NoError(t, err)
			defer v.Close()
			for range 2 {
				_, err = v.Next()
				require.NoError(t, err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := v.Next()
				ended <- err
			}()
			select {
			case err = <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("it hangs")
			}
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, c.killed, errors.Is(err, ErrKilled))
			assert.NotErrorIs(t, err, context.Canceled)
		})
	}
}

// indices are those of frames from 1000 on, one every 50 ms.
func indices(n int) (out []Index) {
	for k := range n {
		out = append(out, Index{FrameID: uint32(1000 + k), SegmentID: uint32(k), Segment: 4, SOF: uint64(k+1) * 50_000_000})
	}
	return out
}

// TestFramesAreThoseOfTheirIndices, also where the log has lost some, has them out of order or twice, or numbers none.
func TestFramesAreThoseOfTheirIndices(t *testing.T) {
	all := indices(10)
	assert.Equal(t, upTo(10), Positions(all))
	assert.Equal(t, []int{0, 1, 2, 5, 6, 7, 8, 9}, Positions(append(append([]Index{}, all[:3]...), all[5:]...)))
	swapped := append([]Index{all[0], all[2], all[1]}, all[3:]...)
	assert.Equal(t, []int{0, 2, 1, 3, 4, 5, 6, 7, 8, 9}, Positions(swapped))
	assert.Equal(t, []int{0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9}, Positions(append([]Index{all[0], all[1]}, all[1:]...)))
	for i := range all {
		all[i].SegmentID = 0 // not set
	}
	assert.Equal(t, upTo(10), Positions(all))
	assert.Empty(t, Positions(nil))
}

// TestPairsBeginWithinTenMilliseconds of each other.
func TestPairsBeginWithinTenMilliseconds(t *testing.T) {
	wide := indices(5)
	assert.Equal(t, 2, Pair(150_000_000, wide))
	assert.Equal(t, 2, Pair(159_000_000, wide))
	assert.Equal(t, 2, Pair(141_000_000, wide))
	assert.Equal(t, -1, Pair(170_000_000, wide))
	assert.Equal(t, -1, Pair(0, []Index{{}}))
}
