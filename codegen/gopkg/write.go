package gopkg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/runtime"
)

// Files returns everything that the package consists of, by slash-separated path.
func Files(name string, p *runtime.Program, golden *Golden) (map[string][]byte, error) {
	if err := CheckPackageName(name); err != nil {
		return nil, err
	}
	s := newSource(name, p, golden)
	files, err := p.Files()
	if err != nil {
		return nil, err
	}
	generated := map[string]func() ([]byte, error){"model.go": s.model, "example_test.go": s.example}
	if golden != nil {
		generated["model_test.go"] = s.test
		for k, b := range golden.files() {
			files[k] = b
		}
	}
	for _, k := range sortedKeys(generated) {
		if files[k], err = generated[k](); err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
	}
	return files, nil
}

// Write replaces the directory's contents with the files. It refuses a directory that holds other files than Write makes.
// On an error the directory is unchanged.
func Write(dir string, files map[string][]byte) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if to, err := filepath.EvalSymlinks(dir); err == nil {
		dir = to // a link to the directory stays one
	}
	exists, err := checkOwn(dir)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if exists {
		if mode, err = writable(dir); err != nil {
			return fmt.Errorf("output directory: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*")
	if err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, mode); err != nil {
		return err
	}
	for _, name := range sortedKeys(files) {
		full := filepath.Join(tmp, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, files[name], 0o644); err != nil {
			return err
		}
	}
	if !exists {
		return os.Rename(tmp, dir)
	}
	return replace(tmp, dir)
}

// CheckDir reports, before long work, why Write could not write there.
func CheckDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	exists, err := checkOwn(dir)
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
	if _, err := writable(dir); err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	return nil
}

// writable returns a directory's permissions, or an error if no file can be created in it: a protected directory is not replaced.
func writable(dir string) (fs.FileMode, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// replace moves the old directory aside, the new one in, and the old one away.
func replace(tmp, dir string) error {
	old := tmp + ".old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// checkOwn reports whether the directory exists, and refuses one with foreign files.
func checkOwn(dir string) (exists bool, err error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("output directory: %w", err)
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%s is a file: choose another directory with -o", dir)
	}
	var foreign []string
	err = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		mine := own(rel)
		if e.IsDir() {
			mine = rel == "." || rel == "testdata" || strings.HasPrefix(rel, "sm_")
		}
		if !mine {
			foreign = append(foreign, rel)
		}
		return nil
	})
	if err != nil {
		return true, fmt.Errorf("output directory: %w", err)
	}
	if len(foreign) > 0 {
		more := ""
		if len(foreign) > 3 {
			more = fmt.Sprintf(" and %d more", len(foreign)-3)
			foreign = foreign[:3]
		}
		return true, fmt.Errorf("%s holds files that spark-compile did not generate (%s%s): choose another directory with -o, or remove them", dir, strings.Join(foreign, ", "), more)
	}
	return true, nil
}

// own reports whether Write makes files of this name.
func own(rel string) bool {
	dir, base := path.Split(rel)
	switch dir {
	case "":
		return base == "model.go" || base == "example_test.go" || base == "model_test.go" || base == runtime.ProgramFile || base == runtime.WeightsFile
	case "testdata/":
		return strings.HasSuffix(base, ".bin") && (strings.HasPrefix(base, "in_") || strings.HasPrefix(base, "out_") || strings.HasPrefix(base, "emu_"))
	}
	return strings.HasPrefix(dir, "sm_") && strings.Count(dir, "/") == 1 && (base == runtime.PTXFile || base == runtime.CubinFile)
}

// GoldenFile is the name of a golden file; the tensor's name is escaped.
func GoldenFile(kind, name string) string { return kind + "_" + url.PathEscape(name) + ".bin" }

func float64Bytes(x []float64) []byte {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}
