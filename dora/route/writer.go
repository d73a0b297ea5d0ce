package route

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"

	"capnproto.org/go/capnp/v3"
	"github.com/klauspost/compress/zstd"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
)

// Writer writes a log, for synthetic data sets. Its messages have the fields that messages.go and model.go declare, and no others.
type Writer struct {
	path  string
	file  bytes.Buffer // until Close
	close func() error // of what compresses
	out   io.Writer
}

// Create starts a log: compressed if its name ends in .zst, plain if it has no suffix. It is kept in memory until Close writes the
// file as a whole; without Close there is none.
func Create(path string) (*Writer, error) {
	w := &Writer{path: path, close: func() error { return nil }}
	switch suffix := filepath.Ext(path); suffix {
	case "":
		w.out = &w.file
	case ".zst":
		z, err := zstd.NewWriter(&w.file, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", path, err)
		}
		w.out, w.close = z, z.Close
	default:
		return nil, fmt.Errorf("writing %s: logs are written as .zst or without a suffix, not as %s", path, suffix)
	}
	return w, nil
}

// Write appends an event with e's time, kind and validity. The message is of the kind's type, or a pointer to that: CarState for
// KindCarState, FrameData for the states of cameras, CANFrames for KindCAN.
func (w *Writer) Write(e Event, message any) error {
	m, _ := capnp.NewSingleSegmentMessage(nil)
	defer m.Release()
	err := e.write(m, message)
	if err == nil {
		err = capnp.NewEncoder(w.out).Encode(m)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %s: %w", w.path, e.Kind, err)
	}
	return nil
}

// write makes an event the root of an empty message.
func (e *Event) write(to *capnp.Message, message any) error {
	m, v := e.Kind.row(), reflect.Indirect(reflect.ValueOf(message))
	if m == nil {
		return errors.New("it has no type")
	}
	if !v.IsValid() || v.Type() != m.typ {
		return fmt.Errorf("its message is a %s, not a %T", m.typ, message)
	}
	seg, err := to.Segment(0)
	if err != nil {
		return err
	}
	root, err := capnp.NewRootStruct(seg, eventLayout().size)
	if err != nil {
		return err
	}
	if err := eventLayout().encode(root, reflect.ValueOf(e).Elem()); err != nil {
		return err
	}
	p, err := m.payload.encodePointer(seg, v)
	if err != nil {
		return err
	}
	return root.SetPtr(0, p)
}

// Close writes the file.
func (w *Writer) Close() error {
	if err := w.close(); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	return atomicfile.Write(w.path, w.file.Bytes())
}
