package docs_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "mark tables of measurements.md stale whose programs changed, and record new ones")

// A section of measurements.md with figures says in a quotation, a paragraph of lines that begin with ">", how they were made:
//
//	> Made at `040fec8` by `make judge-precision` from `dmonitoring_model fp8` and the code of `internal/cost`; digest `1a2b3c4d`.
//	> **Stale since 2026-11-22.** Made at … by no command.
//	> Made on 2026-11-21 by `make bench-compile`.
//
// What follows "from" are programs, as internal/compile's test records them, with * for any text, and packages. The digest is of
// these, so that a change which leaves programs alone makes no figure stale. Times of a machine are made from nothing: they
// are of their day. In a new line both the commit and the digest are `now`, which -update replaces.
type provenance struct {
	section, text string
	stale         string // since when
	commands      []string
	from          []string
	digest        string
}

var (
	staleSince = regexp.MustCompile(`^\*\*Stale since (\d{4}-\d\d-\d\d)\.\*\* `)
	madeBy     = regexp.MustCompile("^Made (?:at `(?:[0-9a-f]{7}|now)`|on \\d{4}-\\d\\d-\\d\\d) by (no command|`[^;]*?`)(?: from (.*?)(?:; digest `([0-9a-f]{8}|now)`)?)?\\.")
	quoted     = regexp.MustCompile("`([^`]+)`")
	figures    = regexp.MustCompile(`(?m)^\|[-:|]*-:\|`) // a table with a column that is aligned to the right
)

// sections splits a document at its headings.
func sections(text string) (out []string) {
	for i, part := range regexp.MustCompile(`(?m)^##+ `).Split(text, -1) {
		if i > 0 {
			out = append(out, part)
		}
	}
	return out
}

// provenances reads what a section says of its figures.
func provenances(section string) (out []*provenance, err error) {
	title, _, _ := strings.Cut(section, "\n")
	for _, paragraph := range strings.Split(section, "\n\n") {
		if !strings.HasPrefix(paragraph, "> ") {
			continue
		}
		p := &provenance{section: title, text: paragraph}
		line := strings.ReplaceAll(strings.TrimPrefix(paragraph, "> "), "\n> ", " ")
		if m := staleSince.FindStringSubmatch(line); m != nil {
			p.stale, line = m[1], line[len(m[0]):]
		}
		m := madeBy.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s: %q does not say when and by which command figures were made", title, paragraph)
		}
		p.commands, p.from, p.digest = names(m[1]), names(m[2]), m[3]
		out = append(out, p)
	}
	return out, nil
}

func names(text string) (out []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// made is the digest of what figures are made from now.
func made(from, programs []string) (string, error) {
	h := sha256.New()
	for _, what := range from {
		if !strings.Contains(what, " ") {
			if err := code(h, "../"+what); err != nil {
				return "", err
			}
			continue
		}
		found := false
		for _, line := range programs {
			key, _, _ := strings.Cut(line, ": ")
			model, rest, _ := strings.Cut(key, " ")
			in, _, _ := strings.Cut(rest, " ")
			match, err := path.Match(what, model+" "+in)
			if err != nil {
				return "", err
			}
			if match {
				found = true
				fmt.Fprintln(h, line)
			}
		}
		if !found {
			return "", fmt.Errorf("no recorded program is %s", what)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:8], nil
}

// code writes a package's sources without comments and tests.
func code(w interface{ Write([]byte) (int, error) }, dir string) error {
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no package in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			return err
		}
		ast.SortImports(set, f)
		var text bytes.Buffer
		if err := format.Node(&text, set, f); err != nil {
			return err
		}
		for line := range strings.Lines(text.String()) { // where comments stood there are empty lines
			if strings.TrimSpace(line) != "" {
				fmt.Fprint(w, line)
			}
		}
	}
	return nil
}

// TestMeasurementsAreOfThesePrograms fails if figures were made from other programs than those of now and no one says that
// they are stale. With -v it lists all tables; -update marks stale ones, and records new ones.
func TestMeasurementsAreOfThesePrograms(t *testing.T) {
	recorded, err := os.ReadFile("../internal/compile/testdata/programs.txt")
	require.NoError(t, err)
	programs := strings.Split(strings.TrimSpace(string(recorded)), "\n")
	var list strings.Builder
	for _, file := range []string{"measurements.md", "contractions.md"} {
		checkTables(t, &list, file, programs)
	}
	t.Logf("tables of docs/measurements.md and docs/contractions.md\n%s", &list)
}

// checkTables compares the tables of a document with the programs, and adds them to a list.
func checkTables(t *testing.T, list *strings.Builder, file string, programs []string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := string(raw)
	for _, section := range sections(text) {
		all, err := provenances(section)
		require.NoError(t, err)
		title, _, _ := strings.Cut(section, "\n")
		if figures.MatchString(section) && len(all) == 0 {
			t.Errorf("%s: the section has figures, but no line \"> Made at `now` by `COMMAND` from `MODEL PRECISION`; digest `now`.\"", title)
		}
		for _, p := range all {
			digest, err := made(p.from, programs)
			require.NoError(t, err, title)
			state := p.state(digest)
			fmt.Fprintf(list, "%-22s %s\n", state, title)
			for _, c := range p.commands {
				fmt.Fprintf(list, "%22s %s\n", "", c)
			}
			if after := p.updated(t, state, digest); *update {
				text = strings.Replace(text, p.text, after, 1)
			} else if state == "changed" || state == "new" {
				t.Errorf("%s: %s", title, map[string]string{
					"new":     "`go test ./docs -update` replaces `now` by commit and digest",
					"changed": "its figures were made from other programs. Make them again by its command and set commit and digest to `now`, or leave them; then `go test ./docs -update` records or marks them stale",
				}[state])
			}
		}
	}
	if *update && text != string(raw) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
}

// state is fresh, changed, new, stale since a day, or of its day.
func (p *provenance) state(digest string) string {
	switch {
	case p.stale != "":
		return "stale since " + p.stale
	case len(p.from) == 0:
		return "of its day"
	case p.digest == "now" || strings.Contains(p.text, "at `now`"):
		return "new"
	case p.digest != digest:
		return "changed"
	}
	return "fresh"
}

// updated is what the document should say.
func (p *provenance) updated(t *testing.T, state, digest string) string {
	switch state {
	case "changed":
		return "> **Stale since " + time.Now().Format(time.DateOnly) + ".** " + strings.TrimPrefix(p.text, "> ")
	case "new":
		head, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output()
		require.NoError(t, err)
		return strings.NewReplacer("at `now`", "at `"+strings.TrimSpace(string(head))+"`", "digest `now`", "digest `"+digest+"`").Replace(p.text)
	}
	return p.text
}

// TestADigestFollowsProgramsAndCode: of the programs that it names, and of a package's code but not its comments.
func TestADigestFollowsProgramsAndCode(t *testing.T) {
	programs := []string{"vision fp16 sm_121: a", "vision fp8 sm_121: b", "vision fp8 sm_121,sm_90: c", "policy fp8 sm_121: d"}
	of := func(programs []string, from ...string) string {
		d, err := made(from, programs)
		require.NoError(t, err)
		return d
	}
	changed := func(at int) []string {
		out := slices.Clone(programs)
		out[at] += "x"
		return out
	}
	for at, differs := range []bool{false, true, true, false} {
		require.Equal(t, differs, of(programs, "vision fp8") != of(changed(at), "vision fp8"), programs[at])
	}
	require.NotEqual(t, of(programs, "* fp8"), of(changed(3), "* fp8"))
	_, err := made([]string{"vision fp9"}, programs)
	require.ErrorContains(t, err, "vision fp9")

	source := func(text string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(dir+"/a.go", []byte(text), 0o644))
		var out bytes.Buffer
		require.NoError(t, code(&out, dir))
		return out.String()
	}
	require.Equal(t, source("package a\n\nconst x = 1\n"), source("// Package a.\npackage a\n\n// x is one.\nconst x = 1 // one\n"))
	require.NotEqual(t, source("package a\n\nconst x = 1\n"), source("package a\n\nconst x = 2\n"))
}
