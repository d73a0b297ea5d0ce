package docs_test

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestATargetIsARow looks for names of targets in the code (comments may give examples): whatever a new target needs said
// elsewhere would be found here.
func TestATargetIsARow(t *testing.T) {
	names := regexp.MustCompile(`sm_[0-9]|\b(gb10|h200|a100)\b`)
	for _, file := range sources(t) {
		if inside(file, "internal/target") || inside(file, "hal/machine") { // machines are known by their firmware's words
			continue
		}
		for _, text := range literals(t, file) {
			if names.MatchString(text) {
				t.Errorf("%s names a target in %s: let it read internal/target", file, text)
			}
		}
	}
}

// sources lists the module's Go files but its tests.
func sources(t *testing.T) []string {
	t.Helper()
	raw, err := exec.Command("go", "list", "-f", `{{$d := .ImportPath}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}`, module+"...").Output()
	require.NoError(t, err)
	var out []string
	for _, f := range strings.Fields(string(raw)) {
		out = append(out, strings.TrimPrefix(f, module))
	}
	require.Greater(t, len(out), 200)
	return out
}

// literals are the strings of a file, tags of fields among them.
func literals(t *testing.T, file string) []string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", file))
	require.NoError(t, err)
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile(file, -1, len(src)), src, nil, 0)
	var out []string
	for {
		_, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return out
		case token.STRING:
			out = append(out, text)
		}
	}
}
