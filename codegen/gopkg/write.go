package gopkg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/runtime"
)

// Files returns everything that the package consists of, by slash-separated path.
func Files(name string, p *runtime.Program, golden *Golden) (map[string][]byte, error) {
	if err := checkIdentifier(name); err != nil {
		return nil, err
	}
	s := newSource(name, p, golden)
	files, err := p.Files()
	if err != nil {
		return nil, err
	}
	sources := map[string]func() ([]byte, error){modelFile: s.model, exampleFile: s.example}
	if golden != nil {
		sources[testFile] = s.test
		for k, b := range golden.files() {
			files[k] = b
		}
	}
	for _, k := range sortedKeys(sources) {
		if files[k], err = sources[k](); err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
	}
	return files, nil
}

// Write writes the files into a directory and leaves the user's own files there unchanged. Files of an earlier Write
// are replaced, or removed if they are no longer wanted. It refuses to replace a file that it did not write, and
// names it. On an error the directory is unchanged.
func Write(dir string, files map[string][]byte) error { return write(dir, files, os.Rename) }

func write(dir string, files map[string][]byte, rename func(from, to string) error) error {
	dir, err := located(dir)
	if err != nil {
		return err
	}
	names := sortedKeys(files)
	mine, exists, err := check(dir, names)
	if err != nil {
		return err
	}
	inside := dir
	if exists {
		if err := writable(dir); err != nil {
			return fmt.Errorf("output directory: %w", err)
		}
	} else {
		inside = filepath.Dir(dir)
		if err := os.MkdirAll(inside, 0o755); err != nil {
			return fmt.Errorf("output directory: %w", err)
		}
	}
	tmp, err := os.MkdirTemp(inside, ".spark-compile-*") // a name that go build passes over
	if err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	keep := false
	defer func() {
		if !keep {
			os.RemoveAll(tmp)
		}
	}()
	staged := filepath.Join(tmp, "new")
	if err := os.Mkdir(staged, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		full := filepath.Join(staged, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, files[name], 0o644); err != nil {
			return err
		}
	}
	if !exists {
		return rename(staged, dir)
	}
	t := transaction{rename: rename}
	if err := t.swap(dir, staged, filepath.Join(tmp, "old"), mine, names); err != nil {
		if undone := t.undo(); undone != nil {
			keep = true
			err = fmt.Errorf("%w; the package as it was could not be put back (%w): its files are in %s", err, undone, tmp)
		}
		return err
	}
	for _, name := range mine { // what is left empty goes, and nothing else does
		if sub := path.Dir(name); sub != "." {
			os.Remove(filepath.Join(dir, filepath.FromSlash(sub)))
		}
	}
	return nil
}

// transaction moves files, and moves them back.
type transaction struct {
	rename func(from, to string) error
	done   [][2]string
	made   []string // directories
}

// swap moves the old files away and the new ones to their places.
func (t *transaction) swap(dir, staged, away string, old, names []string) error {
	for _, l := range []struct {
		names    []string
		from, to string
	}{{old, dir, away}, {names, staged, dir}} {
		for _, name := range l.names {
			if err := t.move(filepath.Join(l.from, filepath.FromSlash(name)), filepath.Join(l.to, filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *transaction) move(from, to string) error {
	parent := filepath.Dir(to)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		t.made = append(t.made, parent)
	}
	err := t.rename(from, to)
	if err == nil {
		t.done = append(t.done, [2]string{from, to})
	}
	return err
}

// undo puts everything back, the last first.
func (t *transaction) undo() (err error) {
	for _, m := range slices.Backward(t.done) {
		err = errors.Join(err, os.Rename(m[1], m[0]))
	}
	for _, dir := range slices.Backward(t.made) {
		os.Remove(dir) // if something is in it, it stays
	}
	return err
}

// CheckDir reports, before long work, why Write could not write files of these names there.
func CheckDir(dir string, names []string) error {
	dir, err := located(dir)
	if err != nil {
		return err
	}
	_, exists, err := check(dir, names)
	if err != nil {
		return err
	}
	for !exists { // the nearest parent that exists must be writable
		parent := filepath.Dir(dir)
		if _, err := os.Stat(parent); parent != dir && errors.Is(err, fs.ErrNotExist) {
			dir = parent
			continue
		}
		dir, exists = parent, true
	}
	if err := writable(dir); err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	return nil
}

// located is the directory's absolute path. A link to a directory stays one.
func located(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if to, err := filepath.EvalSymlinks(dir); err == nil {
		dir = to
	}
	return dir, nil
}

// writable reports, as an error, that no file can be created in a directory.
func writable(dir string) error {
	probe, err := os.CreateTemp(dir, ".probe-*")
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = dir // not a name that nobody knows
	}
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// GoldenFile is the name of a golden file in testdata.
func GoldenFile(kind, name string) string { return kind + "_" + FileName(name) + ".bin" }

func goldenPath(kind, name string) string { return "testdata/" + GoldenFile(kind, name) }

func float64Bytes(x []float64) []byte {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}
