package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"capnproto.org/go/capnp/v3"
	"github.com/klauspost/compress/zstd"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// Limits of a message: what a header may ask for before it is taken for damage. Segments are bounded as by Cap'n Proto itself; the
// largest messages that openpilot writes (initData with all settings, thumbnails) have less than 1 MB.
const (
	maxSegments = 512
	maxMessage  = 16 << 20
)

// Reader reads the events of a log in the order in which they are there.
type Reader struct {
	path    string
	file    io.Closer
	in      *stream
	message *capnp.Message // of the last event
	buf     []byte
	stats   Stats
	end     error // once there is one
}

// Stats counts what was read of a log.
type Stats struct {
	Events    int   // returned by Next
	Skipped   int   // of kinds that have no type
	Malformed int   // skipped too, since their root is damaged
	Bytes     int64 // of whole messages, decompressed
}

// Damage says where a log stops being readable: cut off when the power went, or overwritten. What came before it is good.
type Damage struct {
	Path   string
	Offset int64  // of the first message that is not whole, in the decompressed log
	Reason string // what is wrong there
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d of the log: %s", d.Path, d.Offset, d.Reason)
}

var errEmpty = errors.New("an event without a root")

// Open opens a log: rlog, qlog or raw_log, with or without .zst or .bz2. The error is a *Damage if the file has no good byte,
// wraps ErrLFS if Git LFS has not fetched it, and is memory.ErrBudget if decompressing it would take too much memory.
func Open(path string) (*Reader, error) {
	file, err := memory.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	r, err := newReader(file, path)
	if err != nil {
		file.Close()
		return nil, err
	}
	r.file = file
	return r, nil
}

// newReader reads the bytes of a log; its name is for errors and has the suffix.
func newReader(bytes io.Reader, name string) (*Reader, error) {
	in, err := decompress(bytes, name)
	if err != nil {
		return nil, err
	}
	return &Reader{path: name, in: in}, nil
}

// Next reads the next event of a kind that has a type. At the log's end it returns io.EOF, or a *Damage where the log is damaged, and
// so does every call after that. Any other error is one of reading the file, or of a zstd window beyond the budget of
// memory.
func (r *Reader) Next(e *Event) error {
	for r.end == nil {
		frame, err := r.frame()
		if err != nil {
			r.end = err
			break
		}
		r.stats.Bytes += int64(len(frame))
		switch err := r.open(frame, e); {
		case err != nil:
			r.stats.Malformed++
		case e.Kind.row() == nil:
			r.stats.Skipped++
		default:
			r.stats.Events++
			return nil
		}
	}
	*e = Event{}
	return r.end
}

// Stats returns what has been read so far.
func (r *Reader) Stats() Stats { return r.stats }

// Close closes the file.
func (r *Reader) Close() error {
	r.in.close()
	r.end = fs.ErrClosed
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// open reads the root of a message.
func (r *Reader) open(frame []byte, e *Event) error {
	if r.message != nil {
		r.message.Release()
		r.message = nil
	}
	m, err := capnp.Unmarshal(frame)
	if err != nil {
		return err
	}
	r.message = m
	return e.open(m, len(frame))
}

// frame reads a message with its header: u32 segments - 1, a u32 size in words for each, padding to 8 bytes, the segments. It stays
// until the next call. (https://capnproto.org/encoding.html#serialization-over-a-stream)
func (r *Reader) frame() ([]byte, error) {
	if err := r.fill(0, 8); err != nil {
		return nil, err
	}
	segments := int64(binary.LittleEndian.Uint32(r.buf)) + 1
	if segments > maxSegments {
		return nil, r.damage(fmt.Sprintf("a message of %d segments", segments))
	}
	header := (4 + 4*segments + 7) &^ 7
	if err := r.fill(8, header); err != nil {
		return nil, err
	}
	size := header
	for i := range segments {
		size += 8 * int64(binary.LittleEndian.Uint32(r.buf[4+4*i:]))
	}
	switch {
	case size == header:
		return nil, r.damage("an empty message")
	case size > maxMessage:
		return nil, r.damage(fmt.Sprintf("a message of %d bytes", size))
	case r.stats.Bytes+size > maxSize:
		return nil, r.damage(fmt.Sprintf("it goes on beyond %v, more than a segment's log has", memory.Budget(maxSize)))
	}
	err := r.fill(header, size)
	return r.buf, err
}

// fill reads the bytes of a message from one offset to another. Memory is taken as there are bytes, whatever their number
// is said to be.
func (r *Reader) fill(from, to int64) error {
	at, err := int(from), error(nil)
	for n := 0; at < int(to) && err == nil; at += n {
		end := min(int(to), max(2*at, chunk))
		r.buf = slices.Grow(r.buf[:at], end-at)[:end]
		n, err = io.ReadFull(r.in, r.buf[at:])
	}
	switch {
	case err == nil:
		return nil
	case r.in.file.err != nil:
		return fmt.Errorf("reading %s: %w", r.path, r.in.file.err)
	case err == io.EOF && at == 0: // nothing of a message
		return io.EOF
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return r.damage("the file ends within a message")
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		if refused := r.in.headers.refusal(r.path, r.stats.Bytes); refused != nil {
			return refused
		}
	}
	return r.damage(err.Error())
}

// chunk is how many bytes are read at once at least.
const chunk = 64 << 10

func (r *Reader) damage(reason string) *Damage {
	return &Damage{Path: r.path, Offset: r.stats.Bytes, Reason: reason}
}
