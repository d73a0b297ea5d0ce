package camera

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// FFmpegVariable names the program that decodes, where it is not called ffmpeg on the path.
const FFmpegVariable = "SPARK_FFMPEG"

// Options say how videos are read and written.
type Options struct {
	FFmpeg string // the program; "": $SPARK_FFMPEG, or ffmpeg on the path
}

// ErrNoFFmpeg says how to get it.
var ErrNoFFmpeg = errors.New("ffmpeg is missing, which decodes cameras: install it (Debian: apt install ffmpeg; else pip install imageio-ffmpeg, and name its program in " + FFmpegVariable + ")")

// FFmpeg finds the program.
func (o Options) program() (string, error) {
	name := o.FFmpeg
	if name == "" {
		name = os.Getenv(FFmpegVariable)
	}
	if name == "" {
		name = "ffmpeg"
	}
	path, err := exec.LookPath(name)
	if err != nil && name != "ffmpeg" {
		return "", fmt.Errorf("%s: %w: %w", name, err, ErrNoFFmpeg)
	}
	if err != nil {
		return "", ErrNoFFmpeg
	}
	return path, nil
}

// HasFFmpeg reports whether videos can be read.
func (o Options) HasFFmpeg() bool {
	_, err := o.program()
	return err == nil
}

// Video is a file that a process decodes. It decodes as much in advance as a pipe holds, so memory is bounded.
type Video struct {
	Path          string
	Width, Height int

	ctx    context.Context // of the process
	cancel context.CancelFunc
	cmd    *exec.Cmd
	frames *bufio.Reader
	stderr tail
	count  int
	planar []byte
	ended  error
}

// tail keeps the end of what a process says.
type tail struct{ bytes.Buffer }

const mostSaid = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p)
	if n := t.Len() - mostSaid; n > 0 {
		t.Next(n)
	}
	return len(p), nil
}

// said is the last line.
func (t *tail) said() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}

// Damage is the end of a video that was cut off. The frames before it are whole.
type Damage struct {
	Path   string
	Frames int // that could be decoded
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s: %d frames could be decoded: %s", d.Path, d.Frames, d.Reason)
}

// What a video may be. ffmpeg goes by a file's contents, whatever it is called: a playlist would have it read other files, or ask a server.
const (
	formats   = "hevc,h264,mpegts,mov,matroska,avi"
	maxPixels = 1 << 24 // of a frame; a comma 3X's have 2.3 million
)

// OpenVideo starts to decode a file: .hevc, .ts, or another container of video. The context ends the process.
func OpenVideo(ctx context.Context, path string, opt Options) (*Video, error) {
	program, err := opt.program()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := memory.OpenRegular(path) // ffmpeg would wait for whoever writes to a FIFO
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	if f.Size() == 0 {
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	v := &Video{Path: path}
	inner, cancel := context.WithCancel(ctx)
	v.ctx, v.cancel = inner, cancel
	v.cmd = exec.CommandContext(inner, program, "-nostdin", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", "file", "-format_whitelist", formats,
		"-max_pixels", strconv.Itoa(maxPixels), "-i", "file:"+path, "-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", "yuv420p", "-f", "yuv4mpegpipe", "-strict", "-1", "-")
	toolchain.OwnProcessGroup(v.cmd)
	v.cmd.Stderr, v.cmd.WaitDelay = &v.stderr, time.Second
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := v.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	v.frames = bufio.NewReaderSize(out, 1<<20)
	if err := v.header(); err != nil {
		_ = v.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s: no frame can be decoded: %s", path, strings.TrimSpace(fmt.Sprint(err, ": ", v.stderr.said())))
	}
	v.planar = make([]byte, v.Width*v.Height*3/2)
	return v, nil
}

// header reads the line of YUV4MPEG2 that has the size.
func (v *Video) header() error {
	line, err := v.frames.ReadString('\n')
	if err != nil {
		return err
	}
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "YUV4MPEG2" {
		return fmt.Errorf("a header %.40q", line)
	}
	for _, f := range fields[1:] {
		n, _ := strconv.Atoi(f[1:])
		switch f[0] {
		case 'W':
			v.Width = n
		case 'H':
			v.Height = n
		}
	}
	if v.Width < 2 || v.Height < 2 || v.Width%2 != 0 || v.Height%2 != 0 || v.Width > 1<<14 || v.Height > 1<<14 {
		return fmt.Errorf("pictures of %d × %d pixels: want even sizes", v.Width, v.Height)
	}
	return nil
}

// Next is the next frame, as NV12 without padding; io.EOF at the end, *Damage at the end of a file that is cut off or broken. ffmpeg does not
// tell every broken file from a whole one: compare the number of frames with the log's.
func (v *Video) Next() (modeld.Picture, error) {
	if v.ended != nil {
		return modeld.Picture{}, v.ended
	}
	line, err := v.frames.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "FRAME") {
		err = fmt.Errorf("a frame's header is %.20q", line)
	}
	if err == nil {
		_, err = io.ReadFull(v.frames, v.planar)
	}
	if err != nil {
		v.ended = v.end(err)
		return modeld.Picture{}, v.ended
	}
	v.count++
	return v.nv12(), nil
}

// ErrKilled is what a video ends with whose process was killed by others, as where memory is short. It says nothing of the file.
var ErrKilled = errors.New("ffmpeg was killed, which says nothing of the file, but perhaps that memory is short: run it again")

// end is what the end of the stream means.
func (v *Video) end(err error) error {
	cut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if !cut {
		v.cancel() // what is no frame; the process would wait for ever for somebody who reads on
	}
	failed := v.cmd.Wait()
	reason := v.stderr.said()
	switch {
	case cut && v.ctx.Err() != nil:
		return fmt.Errorf("%s: ffmpeg was ended: %w", v.Path, context.Canceled)
	case cut && v.cmd.ProcessState != nil && v.cmd.ProcessState.ExitCode() < 0:
		return fmt.Errorf("%s: %w", v.Path, ErrKilled)
	case !cut:
		return &Damage{v.Path, v.count, err.Error()}
	case failed != nil || reason != "" || !errors.Is(err, io.EOF):
		return &Damage{v.Path, v.count, strings.TrimSpace(fmt.Sprint(reason))}
	}
	return io.EOF
}

// nv12 interleaves the planes of chroma.
func (v *Video) nv12() modeld.Picture {
	luma := v.Width * v.Height
	p := modeld.Picture{Data: make([]byte, len(v.planar)), Width: v.Width, Height: v.Height}
	copy(p.Data, v.planar[:luma])
	u, w, out := v.planar[luma:luma*5/4], v.planar[luma*5/4:], p.Data[luma:]
	for i := range u {
		out[2*i], out[2*i+1] = u[i], w[i]
	}
	return p
}

// Close ends the process.
func (v *Video) Close() error {
	v.cancel()
	if v.cmd.ProcessState == nil {
		_ = v.cmd.Wait() // it was killed
	}
	return nil
}
