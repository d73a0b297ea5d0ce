package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// patience is how long a FIFO may have no writer.
const patience = 5 * time.Second

var (
	errChanged    = errors.New("it changed while it was read: run again when nothing writes to it")
	errNoWriter   = errors.New("a FIFO that nothing writes to: start its writer, or give a file")
	errNotRegular = errors.New("not a regular file: give a file")
)

// File is a file that is open for reading.
type File struct {
	*os.File
	info fs.FileInfo // when it was opened
	head []byte      // of a FIFO: what was read to find its writer
}

// Open opens a file, a device or a FIFO for reading. Where nothing writes to a FIFO for five seconds, that is an error.
// Errors are of type *fs.PathError.
func Open(path string) (*File, error) { return openFor(path, patience) }

func openFor(path string, wait time.Duration) (*File, error) {
	f, err := open(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if err == nil && f.info.Mode()&fs.ModeNamedPipe != 0 {
		err = f.await(wait)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenRegular opens a file whose bytes can be read in any order: neither a directory nor a device nor a FIFO.
func OpenRegular(path string) (*File, error) { return OpenRegularFor(path, os.O_RDONLY, 0) }

// OpenRegularFor is OpenRegular with flags and permissions as os.OpenFile has them, for files that are written to as well.
// It waits for no FIFO.
func OpenRegularFor(path string, flag int, mode fs.FileMode) (*File, error) {
	return regular(open(os.OpenFile(path, flag|syscall.O_NONBLOCK, mode)))
}

// OpenIn is OpenRegular of a name inside a directory, which it does not leave, not even through symbolic links.
func OpenIn(dir, name string) (*File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return regular(open(root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)))
}

func open(file *os.File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	f := &File{File: file}
	if f.info, err = file.Stat(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func regular(f *File, err error) (*File, error) {
	if err == nil && !f.info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: errNotRegular}
		_ = f.Close()
		return nil, err
	}
	return f, err
}

// await reads the first byte of a FIFO. A read ends at once as long as there is no writer, and waits for one that has not
// yet written.
func (f *File) await(wait time.Duration) error {
	f.head = make([]byte, 1)
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		n, err := f.File.Read(f.head)
		if err == nil && n == 1 {
			return nil
		}
		if err == io.EOF && time.Now().After(end) {
			err = &fs.PathError{Op: "open", Path: f.Name(), Err: errNoWriter}
		}
		if err != nil && err != io.EOF {
			_ = f.Close()
			return err
		}
	}
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	if len(f.head) > 0 && len(p) > 0 {
		n := copy(p, f.head)
		f.head = f.head[n:]
		return n, nil
	}
	return f.File.Read(p)
}

// Size is the size of a regular file in bytes when it was opened; 0 of anything else.
func (f *File) Size() int64 {
	if f.info.Mode().IsRegular() {
		return f.info.Size()
	}
	return 0
}

// Unchanged is an error if a regular file was written to since it was opened.
func (f *File) Unchanged() error {
	now, err := f.Stat()
	if err == nil && f.info.Mode().IsRegular() && (now.Size() != f.info.Size() || !now.ModTime().Equal(f.info.ModTime())) {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: errChanged}
	}
	return err
}

// ReadFile reads a whole file that fits the budget. Errors are of type *fs.PathError: why it cannot be read, is too large,
// or changed meanwhile.
func ReadFile(path string) ([]byte, error) { return readFile(Open(path)) }

// ReadRegular is ReadFile of what OpenRegular opens.
func ReadRegular(path string) ([]byte, error) { return readFile(OpenRegular(path)) }

func readFile(f *File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := ReadAll(f, f.Size())
	if err == nil {
		err = f.Unchanged()
	}
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return data, err
}

// ReadIn is ReadFile of a file system's regular file.
func ReadIn(dir fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(dir, name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		err = errNotRegular
	default:
		err = Default().Check(info.Size(), "reading it")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return fs.ReadFile(dir, name)
}

// ReadAll reads all there is, of which about so many bytes are expected. What the budget has no room for, expected or not,
// is an error.
func ReadAll(r io.Reader, expected int64) ([]byte, error) {
	if err := Default().Check(expected, "reading it"); err != nil {
		return nil, err
	}
	data := make([]byte, 0, expected+512)
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err == nil && len(data) == cap(data) {
			err = Default().Check(3*int64(len(data)), "reading it") // the old buffer, and one of twice the size
			if err == nil {
				data = append(make([]byte, 0, 2*len(data)), data...)
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// jsonValue bounds what a value of JSON takes once it is decoded: the largest struct that is in a list.
const jsonValue = 512

// Unmarshal is json.Unmarshal of a text whose values fit the budget: two bytes of a list may be a struct.
func Unmarshal(data []byte, into any) error {
	if err := CheckJSON(data); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// UnmarshalStrict is Unmarshal of text with known members only and no trailing data.
func UnmarshalStrict(data []byte, into any) error {
	if err := CheckJSON(data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows its end")
	}
	return nil
}

// CheckJSON is an error if the values of a text do not fit the budget, whatever they are decoded to.
func CheckJSON(data []byte) error {
	values := 1
	for _, separator := range []string{",", "[", "{"} {
		values += bytes.Count(data, []byte(separator))
	}
	return Default().Check(int64(len(data))+jsonValue*int64(values), fmt.Sprintf("JSON of %d bytes", len(data)))
}
