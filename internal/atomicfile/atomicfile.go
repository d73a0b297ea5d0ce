// Package atomicfile writes the output files of commands. A regular file is written atomically: to a temporary
// file in the same directory, which then replaces it. Symbolic links are followed. Anything else, such as a
// device, a FIFO or standard output, is written in place.
package atomicfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stdout is the path of standard output.
const Stdout = "-"

// Staged is complete data that has not replaced its path yet.
type Staged struct {
	tmp, path string

	inPlace func() (*os.File, error) // opens what is written in place, in Commit; nil: tmp replaces path
	data    []byte
}

// Stage writes data to a temporary file in path's directory. The caller commits or discards it. An existing file
// keeps its mode; a new one gets 0644. Stage fails if path is a directory or its directory does not exist.
func Stage(path string, data []byte) (s *Staged, err error) {
	defer func() { err = writing(path, err) }()
	if fd, ok := descriptor(path); ok {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY {
			return nil, cmp.Or(err, error(unix.EBADF))
		}
		return &Staged{path: path, data: data, inPlace: func() (*os.File, error) { return duplicate(fd, path) }}, nil
	}
	target, err := followed(path)
	if err != nil {
		return nil, err
	}
	mode := fs.FileMode(0o644)
	info, err := os.Stat(target)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil: // a new file
	case info.IsDir():
		return nil, errors.New("it is a directory: name a file")
	case !info.Mode().IsRegular():
		open := func() (*os.File, error) { return os.OpenFile(target, os.O_WRONLY, 0) }
		return &Staged{path: path, data: data, inPlace: open}, nil
	default:
		mode = info.Mode().Perm()
	}
	return stageNextTo(target, data, mode, info)
}

// stageNextTo writes the temporary file; was is the file that it will replace, or nil.
func stageNextTo(path string, data []byte, mode fs.FileMode, was fs.FileInfo) (*Staged, error) {
	base := filepath.Base(path)
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+base[:min(len(base), 100)]+".*") // names have at most 255 bytes
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no directory %s (%w): create it first", filepath.Dir(path), fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	s := &Staged{tmp: tmp.Name(), path: path}
	_, err = tmp.Write(data)
	if err == nil && was != nil {
		if of, ok := was.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 { // root does not take files from their owners
			err = tmp.Chown(int(of.Uid), int(of.Gid))
		}
	}
	if err == nil {
		err = errors.Join(tmp.Chmod(mode), synced(tmp))
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Commit moves the data to their path, and returns when they are there to stay.
func (s *Staged) Commit() error {
	if s.inPlace != nil {
		f, err := s.inPlace()
		if err == nil {
			_, err = f.Write(s.data)
			err = errors.Join(err, f.Close())
		}
		return writing(s.path, err)
	}
	if err := os.Rename(s.tmp, s.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return nil // a directory that may be written to and not read: the file is there
	}
	return writing(s.path, errors.Join(synced(dir), dir.Close()))
}

// Discard removes the data; after Commit it does nothing.
func (s *Staged) Discard() {
	if s.inPlace == nil {
		os.Remove(s.tmp)
	}
}

// IsStdout reports whether a path is standard output by one of its names.
func IsStdout(path string) bool {
	fd, ok := descriptor(path)
	return ok && fd == 1
}

// Same reports whether a file written to one path replaces what is at the other, or would be: by symbolic or hard links too.
// Devices and pipes are written to in turn, so they are nobody's.
func Same(a, b string) bool {
	if _, ok := descriptor(a); ok {
		return false
	}
	x, err := os.Stat(a)
	y, other := os.Stat(b)
	if err == nil && other == nil {
		return os.SameFile(x, y) && (x.Mode().IsRegular() || x.IsDir())
	}
	return errors.Is(err, fs.ErrNotExist) && errors.Is(other, fs.ErrNotExist) && resolved(a) == resolved(b)
}

// resolved is where a file that does not exist would be.
func resolved(path string) string {
	to, err := followed(path)
	if err != nil {
		return path
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(to))
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return path
	}
	return filepath.Join(dir, filepath.Base(to))
}

// descriptor is the open file that a path names. Opening the path once more would begin at the start of a file that a shell appends to.
func descriptor(path string) (fd int, ok bool) {
	switch path {
	case Stdout, "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if n, found := strings.CutPrefix(path, dir); found {
			fd, err := strconv.Atoi(n)
			return fd, err == nil && fd >= 0
		}
	}
	return 0, false
}

// duplicate opens a descriptor once more, to be closed.
func duplicate(fd int, name string) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), name), nil
}

// followed is where symbolic links at the end of a path lead, whether there is a file or not.
func followed(path string) (string, error) {
	const most = 40 // as Linux
	for range most {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link: what is wrong with it, others say
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return path, nil // of a pipe the link has no path
		}
		path = to
	}
	return "", unix.ELOOP
}

// synced waits until a file is on its disk, where the file system can.
func synced(f *os.File) error {
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

func writing(path string, err error) error {
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// WriteJSON replaces the file at path by a value as JSON, indented.
func WriteJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return writing(path, err)
	}
	return Write(path, append(raw, '\n'))
}

// Write replaces the file at path.
func Write(path string, data []byte) error {
	s, err := Stage(path, data)
	if err != nil {
		return err
	}
	defer s.Discard()
	return s.Commit()
}
