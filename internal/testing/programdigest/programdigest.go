// Package programdigest compares compiled programs with digests that a file records, for tests: a change that is to leave programs alone leaves
// them alone, byte for byte.
package programdigest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/runtime"
)

// File is a file of digests, a line each: "KEY: program, weights, and PTX of each target". Lines keep their order.
type File struct {
	t      testing.TB
	path   string
	update bool
	keys   []string
	of     map[string]string
}

// Open reads a file. With update, what is compared is recorded in it, without which a difference fails the test.
func Open(t testing.TB, path string, update bool) *File {
	t.Helper()
	f := &File{t: t, path: path, update: update, of: map[string]string{}}
	text, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		require.True(t, ok, "%s: %q", path, line)
		f.keys, f.of[key] = append(f.keys, key), value
	}
	if update {
		t.Cleanup(f.write)
	}
	return f
}

// Compare compares a program with what is recorded of it.
func (f *File) Compare(key string, p *runtime.Program) {
	f.t.Helper()
	now, then := Of(f.t, p), f.of[key]
	switch {
	case !f.update && now != then:
		f.t.Errorf("%s:\n now  %s\n then %s", key, now, then)
	case f.update && then == "":
		f.keys = append(f.keys, key)
	}
	f.of[key] = now
}

func (f *File) write() {
	var b strings.Builder
	for _, key := range f.keys {
		fmt.Fprintf(&b, "%s: %s\n", key, f.of[key])
	}
	require.NoError(f.t, os.MkdirAll(filepath.Dir(f.path), 0o755))
	require.NoError(f.t, os.WriteFile(f.path, []byte(b.String()), 0o644))
}

// Of describes a program in one line: what --emit program prints, the weights file, and the PTX of each variant without its kernels'
// documentation, which names nodes and computes nothing.
func Of(t testing.TB, p *runtime.Program) string {
	t.Helper()
	bare := *p
	bare.Format, bare.Identity, bare.Digests, bare.Provenance = 1, "", nil, runtime.Provenance{} // 1 as in the first digests
	text, err := json.Marshal(bare)
	require.NoError(t, err)
	parts := []string{"program " + digest(text), "weights " + digest(p.Weights)}
	for _, v := range p.Variants {
		parts = append(parts, v.Target+" "+digest([]byte(ptx.Undocumented(v.PTX))))
	}
	return strings.Join(parts, ", ")
}

func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:16] }
