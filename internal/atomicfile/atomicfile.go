// Package atomicfile writes files whole or not at all: to a temporary file beside the path, which then replaces it.
package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Staged is a complete file that has not replaced its path yet.
type Staged struct{ tmp, path string }

// Stage writes data beside path, with mode 0644. The caller commits or discards the file. It fails if path is a directory
// or lies in one that does not exist.
func Stage(path string, data []byte) (s *Staged, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, errors.New("it is a directory: name a file")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no directory %s (%w): create it first", filepath.Dir(path), fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	s = &Staged{tmp.Name(), path}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close(), os.Chmod(s.tmp, 0o644)); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Commit moves the file to its path.
func (s *Staged) Commit() error { return os.Rename(s.tmp, s.path) }

// Discard removes the file; after Commit it does nothing.
func (s *Staged) Discard() { os.Remove(s.tmp) }

// WriteJSON replaces the file at path by a value as JSON, indented.
func WriteJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
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
