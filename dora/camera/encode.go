package camera

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"strings"

	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Encode writes pictures of one size as openpilot's cameras do: raw HEVC (Annex B), 20 frames a second, an IDR
// frame each 30, no B frames, so frames are decoded in the order in which they are shown. Parameter sets precede
// every IDR frame; openpilot writes them once. The file is written atomically.
func Encode(ctx context.Context, path string, pictures iter.Seq[modeld.Picture], opt Options) (err error) {
	program, err := opt.program()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var cmd *exec.Cmd
	var stderr tail
	partial := path + ".partial"
	defer func() {
		if err != nil {
			_ = os.Remove(partial)
		}
		switch {
		case err != nil && ctx.Err() != nil: // what writing to a process met that was ended says nothing
			err = fmt.Errorf("%s: ffmpeg was ended: %w", path, ctx.Err())
		case err != nil:
			err = fmt.Errorf("%s: %w %s", path, err, strings.TrimSpace(stderr.said()))
		}
	}()
	next, stop := iter.Pull(pictures)
	defer stop()
	first, ok := next()
	if !ok {
		return errors.New("there are no frames")
	}
	cmd = exec.CommandContext(ctx, program, "-hide_banner", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "nv12",
		"-s", fmt.Sprintf("%dx%d", first.Width, first.Height), "-r", "20", "-i", "-", "-c:v", "libx265", "-preset", "ultrafast", "-crf", "18",
		"-x265-params", "bframes=0:keyint=30:min-keyint=30:scenecut=0:open-gop=0:repeat-headers=1:info=0:log-level=error:pools=1:frame-threads=1", "-f", "hevc", partial)
	toolchain.OwnProcessGroup(cmd)
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var wrong error
	for p, ok := first, true; ok; p, ok = next() {
		if p.Width != first.Width || p.Height != first.Height {
			wrong = fmt.Errorf("a frame of %d × %d pixels behind one of %d × %d", p.Width, p.Height, first.Width, first.Height)
			break
		}
		if wrong = writeRows(in, p); wrong != nil {
			break
		}
	}
	if err := errors.Join(wrong, in.Close(), cmd.Wait()); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// writeRows writes a picture without its padding.
func writeRows(w interface{ Write([]byte) (int, error) }, p modeld.Picture) error {
	stride, uv := p.Stride, p.UV
	if stride == 0 {
		stride = p.Width
	}
	if uv == 0 {
		uv = stride * p.Height
	}
	for y := range p.Height * 3 / 2 {
		at := y * stride
		if y >= p.Height {
			at = uv + (y-p.Height)*stride
		}
		if _, err := w.Write(p.Data[at : at+p.Width]); err != nil {
			return err
		}
	}
	return nil
}
