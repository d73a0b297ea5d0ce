package route

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// The first bytes of compressed logs, and of what Git LFS leaves in place of a file that was not fetched.
const (
	zstdMagic  = "\x28\xb5\x2f\xfd"
	bzip2Magic = "BZh"

	skippableMagic = "\x2a\x4d\x18" // from the second byte on; the first one is 0x50 to 0x5f

	lfsMagic = "version https://git-lfs.github.com/spec/"
)

// maxWindow is the largest window in bytes that a zstd frame may have; level 10 uses 8 MiB at most. It takes no more than
// a share of the memory that reading may take, since several logs are read at once.
const (
	maxWindow   = 128 << 20
	windowShare = 8
)

// maxSize is the largest size in bytes of a segment's file, and of a decompressed log: 70 MB a second, of a minute.
const maxSize = 4 << 30

// stream is the bytes of a log, decompressed as they are read.
type stream struct {
	*bufio.Reader
	file    *watched
	headers *headerTail // nil: it is not compressed by zstd
	close   func()
}

// watched notes the error of a file itself, which decompressors may wrap or replace.
type watched struct {
	io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// decompress tells by its first bytes how a log is compressed. A suffix that says it is compressed must not lie.
func decompress(r io.Reader, name string) (*stream, error) {
	suffix := filepath.Ext(name)
	if suffix != "" && suffix != ".zst" && suffix != ".bz2" {
		return nil, fmt.Errorf("%s: logs end in .zst, .bz2 or no suffix, not in %s", name, suffix)
	}
	s := &stream{file: &watched{Reader: r}, close: func() {}}
	raw := bufio.NewReaderSize(s.file, 1<<16)
	head, _ := raw.Peek(len(lfsMagic)) // a shorter file is no error here
	starts := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case s.file.err != nil:
		return nil, fmt.Errorf("reading %s: %w", name, s.file.err)
	case len(head) == 0:
		return nil, &Damage{Path: name, Reason: "the file is empty"}
	case starts(lfsMagic):
		return nil, lfsError(name)
	case starts(zstdMagic), isSkippable(head):
		first, _ := raw.Peek(zstd.HeaderMaxSize)
		if err := windowError(first, name, 0); err != nil {
			return nil, err
		}
		s.headers = &headerTail{Reader: raw}
		z, err := zstd.NewReader(s.headers, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(allowedWindow()))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		s.Reader, s.close = bufio.NewReaderSize(z, 1<<16), z.Close
	case starts(bzip2Magic):
		s.Reader = bufio.NewReaderSize(bzip2.NewReader(raw), 1<<16)
	case suffix != "":
		return nil, &Damage{Path: name, Reason: "its first bytes are not those of a " + suffix + " file"}
	default:
		s.Reader = raw
	}
	return s, nil
}

// headerTail notes the last bytes that the zstd decoder has read, which are a frame's header when it refuses that.
type headerTail struct {
	io.Reader
	tail []byte
}

func (h *headerTail) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.tail = append(h.tail, p[max(0, n-zstd.HeaderMaxSize):n]...)
	h.tail = h.tail[:copy(h.tail, h.tail[max(0, len(h.tail)-zstd.HeaderMaxSize):])]
	return n, err
}

// refusal is the error of the frame whose header was read last, at an offset in the log; nil if its window is allowed.
func (h *headerTail) refusal(name string, offset int64) error {
	if h == nil {
		return nil
	}
	return windowError(h.tail[max(0, bytes.LastIndex(h.tail, []byte(zstdMagic))):], name, offset)
}

// allowedWindow is the largest window in bytes that a zstd frame may have.
func allowedWindow() uint64 {
	return min(maxWindow, max(uint64(memory.Default())/windowShare, zstd.MinWindowSize))
}

// windowError is the error of a frame that begins at an offset in the log and has a window larger than allowed, with what
// to do; nil of other frames.
func windowError(head []byte, name string, offset int64) error {
	var h zstd.Header
	if h.Decode(head) != nil || h.Skippable {
		return nil
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > maxWindow {
		return &Damage{Path: name, Offset: offset, Reason: fmt.Sprintf("it needs a zstd window of %v, more than %v: "+
			"compress it again, without --long and --ultra", size(window), size(maxWindow))}
	}
	err := memory.Default().Check(int64(window)*windowShare, "reading logs with such a zstd window")
	if window > allowedWindow() {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// size prints a number of bytes.
func size(bytes uint64) memory.Budget { return memory.Budget(min(bytes, math.MaxInt64)) }

// isSkippable reports a skippable frame of zstd, as pzstd and seekable files begin with; the decoder skips it. No
// message begins so: it would have 4e8 segments. (RFC 8878, section 3.1.2)
func isSkippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == skippableMagic
}

// ErrLFS is wrapped by errors about a file of which only Git LFS's pointer is there.
var ErrLFS = errors.New("only the pointer of Git LFS is there: git lfs pull fetches the file")

func lfsError(path string) error { return fmt.Errorf("%s: %w", path, ErrLFS) }
