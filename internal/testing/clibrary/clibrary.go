// Package clibrary builds the C library for tests of what uses it: the Python package, examples in C.
package clibrary

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// Name is the library's file.
const Name = "libsparkcompile.so"

// Build returns the library's file and the directory of sparkcompile.h. It skips the test where there is no C compiler. The library is
// kept in SPARK_CACHE, where there is one, by its contents: a test that runs has its own file, whatever is built meanwhile.
func Build(t testing.TB) (file, header string) {
	t.Helper()
	root := Root(t)
	if _, err := exec.LookPath("cc"); err != nil && os.Getenv("CC") == "" {
		t.Skip("no C compiler (cc): the C library is not built")
	}
	cache := os.Getenv("SPARK_CACHE")
	if cache == "" || cache == "off" {
		cache = t.TempDir()
	}
	dir := filepath.Join(cache, "clibrary")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock := lock(t, filepath.Join(dir, "lock"))
	defer unlock()
	built := filepath.Join(dir, "build", Name)
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-buildvcs=false", "-o", built, "./cmd/libsparkcompile")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the C library: %v\n%s", err, text)
	}
	raw, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256(raw))[:16], Name)
	if _, err := os.Stat(file); err == nil {
		return file, filepath.Join(root, "cmd", "libsparkcompile")
	}
	forget(dir)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file+".new", raw, 0o755), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	return file, filepath.Join(root, "cmd", "libsparkcompile")
}

// Root is the repository's directory.
func Root(t testing.TB) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the test")
	return ""
}

// lock keeps other processes out.
func lock(t testing.TB, path string) (unlock func()) {
	f := flock.New(path)
	if err := f.Lock(); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// forget removes libraries of earlier days.
func forget(dir string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		info, err := e.Info()
		if err == nil && e.IsDir() && e.Name() != "build" && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// Reads has the test depend on files that only its children read, so that go test runs it again when they change.
func Reads(t testing.TB, dirs ...string) {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "__pycache__":
				return filepath.SkipDir
			case d.IsDir():
				return nil
			}
			_, err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
