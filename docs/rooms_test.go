// Package docs_test holds the documents against the code.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/spark-compile/spark-compile/"

// rooms reads imports.txt: what each package may import.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("imports.txt")
	require.NoError(t, err)
	out := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		if area, may, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(line, "#") {
			out[area] = strings.Fields(may)
		}
	}
	return out
}

// inside reports whether a package is a room or lies in it.
func inside(pkg, area string) bool { return pkg == area || strings.HasPrefix(pkg, area+"/") }

// areaOf is the row of the table that names a package most closely.
func areaOf(table map[string][]string, pkg string) string {
	best := ""
	for r := range table {
		if inside(pkg, r) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

func TestRoomsImportWhatTheTableAllows(t *testing.T) {
	table := rooms(t)
	require.Greater(t, len(table), 12)
	raw, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], module)
		r := areaOf(table, pkg)
		if r == "" {
			t.Errorf("%s has no row in imports.txt", pkg)
			continue
		}
		seen[r] = true
		for _, imported := range words[1:] {
			to, ours := strings.CutPrefix(imported, module)
			if !ours || areaOf(table, to) == r {
				continue
			}
			if !slices.ContainsFunc(table[r], func(may string) bool { return inside(to, may) }) {
				t.Errorf("%s imports %s, which the table does not allow to %s", pkg, to, r)
			}
		}
	}
	for _, r := range []string{"frontend/onnx", "ir", "passes", "codegen", "runtime", "hal", "internal/compile", "internal/ptx"} {
		require.True(t, seen[r], "no package in %s", r)
	}
}

// TestAGeneratedPackageLinksNoCompiler follows what a generated package imports.
func TestAGeneratedPackageLinksNoCompiler(t *testing.T) {
	raw, err := exec.Command("go", "list", "-deps", module+"runtime", module+"hal/detect").Output()
	require.NoError(t, err)
	for _, pkg := range strings.Fields(string(raw)) {
		to, ours := strings.CutPrefix(pkg, module)
		if !ours {
			continue
		}
		for _, compiler := range []string{"frontend", "ir", "passes", "codegen", "internal/compile"} {
			require.False(t, inside(to, compiler), "generated packages would link %s", to)
		}
	}
}

// TestWalksNameWhatIsThere: each walk of architecture.md leads through at most eight rooms, and every function or type that it names is in its room.
func TestWalksNameWhatIsThere(t *testing.T) {
	raw, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(raw), "\n## Walks\n")
	text, _, _ = strings.Cut(text, "\n## ")
	walks := strings.Split(text, "\n- **")[1:]
	require.Len(t, walks, 5)
	name := regexp.MustCompile("`([a-z0-9/]+)\\.([A-Za-z]+)`")
	for _, walk := range walks {
		through := map[string]bool{}
		for _, m := range name.FindAllStringSubmatch(walk, -1) {
			through[m[1]] = true
			there := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\t)` + m[2] + `(\(| struct| interface)`)
			files, err := filepath.Glob("../" + m[1] + "/*.go")
			require.NoError(t, err)
			if !slices.ContainsFunc(files, func(f string) bool {
				code, err := os.ReadFile(f)
				require.NoError(t, err)
				return !strings.HasSuffix(f, "_test.go") && there.Match(code)
			}) {
				t.Errorf("%s: no %s in %s", strings.SplitN(walk, ".**", 2)[0], m[2], m[1])
			}
		}
		require.LessOrEqual(t, len(through), 8, walk)
	}
}
