package npy

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// Zip is a .npz file that is open for reading.
type Zip struct {
	path    string
	file    *memory.File
	names   []string
	entries map[string]*zip.File
	taken   int64 // bytes of the arrays that were read
}

// maxRatio is how many bytes one byte of deflated data can become (RFC 1951: a match of 258 bytes takes two bits).
const maxRatio = 1032

// Open opens a .npz file. Two arrays of one name are an error: NumPy would take the last one.
func Open(path string) (*Zip, error) {
	f, err := memory.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	z := &Zip{path: path, file: f, entries: map[string]*zip.File{}}
	if err := z.index(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return z, nil
}

func (z *Zip) index() error {
	d := &directory{ReaderAt: z.file.File}
	r, err := zip.NewReader(d, z.file.Size())
	z.taken, d.read = d.needs(), -1
	switch {
	case errors.Is(err, memory.ErrBudget):
		return err
	case err != nil:
		return fmt.Errorf("not a .npz file, or a damaged one: %w", err)
	}
	for _, e := range r.File {
		name := strings.TrimSuffix(e.Name, ".npy")
		if z.entries[name] != nil {
			return fmt.Errorf("array %.100q is there twice: write the file again with one of them", name)
		}
		z.entries[name], z.names = e, append(z.names, name)
	}
	slices.Sort(z.names)
	return nil
}

// directory reads a file while its list of arrays is made, which archive/zip holds in memory however long it is.
type directory struct {
	io.ReaderAt
	read int64 // bytes; negative once there is the list
}

const (
	// listed is how many bytes of memory a byte of the list takes at most: an array's entry of 47 bytes becomes a zip.File,
	// and an element of a map and of two slices, which grow.
	listed = 16

	// unlisted is how many bytes may be read before any is counted: the end of the file is searched for the list's place.
	unlisted = 128 << 10
)

// needs is the memory in bytes that the list takes.
func (d *directory) needs() int64 { return listed * max(0, d.read-unlisted) }

// ReadAt implements io.ReaderAt.
func (d *directory) ReadAt(p []byte, offset int64) (int, error) {
	if d.read < 0 {
		return d.ReaderAt.ReadAt(p, offset)
	}
	d.read += int64(len(p))
	if err := memory.Default().Check(d.needs(), "the list of its arrays"); err != nil {
		return 0, err
	}
	return d.ReaderAt.ReadAt(p, offset)
}

// Close closes the file, and reports whether it was written to meanwhile.
func (z *Zip) Close() error { return errors.Join(z.file.Unchanged(), z.file.Close()) }

// Names lists the arrays in order.
func (z *Zip) Names() []string { return z.names }

// Describe reads an array's type and shape; nil if there is no array of that name. Errors name the file and the array.
func (z *Zip) Describe(name string) (*Array, error) { return z.open(name, Describe) }

// Read reads an array; nil if there is none of that name. All arrays that were read must fit the budget of memory.
// Errors name the file and the array.
func (z *Zip) Read(name string) (*Array, error) {
	e := z.entries[name]
	if e == nil {
		return nil, nil
	}
	size := int64(min(e.UncompressedSize64, math.MaxInt64/4))
	if err := memory.Default().Check(z.taken+size, "reading it"); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", z.path, e.Name, err)
	}
	z.taken += size
	return z.open(name, func(r io.Reader) (*Array, error) {
		a, err := read(r, size)
		if err == nil {
			_, err = io.Copy(io.Discard, r) // checksum and size are compared at the end
		}
		return a, err
	})
}

func (z *Zip) open(name string, read func(io.Reader) (*Array, error)) (*Array, error) {
	e := z.entries[name]
	if e == nil {
		return nil, nil
	}
	fail := func(err error) (*Array, error) { return nil, fmt.Errorf("%s: %.100s: %w", z.path, e.Name, err) }
	switch packed := e.CompressedSize64; {
	case packed > uint64(z.file.Size()):
		return fail(fmt.Errorf("%d bytes in a file of %d: it is cut off or damaged", packed, z.file.Size()))
	case e.UncompressedSize64 > maxRatio*(packed+1):
		return fail(fmt.Errorf("%d bytes cannot inflate to %d: it is damaged", packed, e.UncompressedSize64))
	}
	r, err := e.Open()
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	a, err := read(r)
	if err != nil {
		return fail(err)
	}
	return a, nil
}

// ReadZip reads every array of a .npz file by name.
func ReadZip(path string) (map[string]*Array, error) {
	return readZip(path, 0, func(z *Zip) []string { return z.names })
}

// ReadNamed reads the arrays of a .npz file that have one of the names, each of at most so many bytes. An array that is
// not in the file is not in the map.
func ReadNamed(path string, most uint64, names ...string) (map[string]*Array, error) {
	return readZip(path, most, func(*Zip) []string { return names })
}

func readZip(path string, most uint64, wanted func(*Zip) []string) (map[string]*Array, error) {
	z, err := Open(path)
	if err != nil {
		return nil, err
	}
	out := map[string]*Array{}
	for _, name := range wanted(z) {
		e := z.entries[name]
		if e == nil || out[name] != nil {
			continue
		}
		if most > 0 && e.UncompressedSize64 > most {
			err = fmt.Errorf("%s: %s: %d bytes, more than %d", path, e.Name, e.UncompressedSize64, most)
		} else {
			out[name], err = z.Read(name)
		}
		if err != nil {
			return nil, errors.Join(err, z.file.Close())
		}
	}
	return out, z.Close()
}
