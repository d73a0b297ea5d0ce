package docs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
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

var update = flag.Bool("update", false, "write the pages of measurements/, and replace the commit now")

// A measurement is an entry of measurements/index.json: a table, the command that makes it, and what it shows. The
// digest is of what the table depends on, so a change that leaves these alone makes no figure stale. An entry made
// anew has the commit "now": -update replaces it, and sets date and digest.
type measurement struct {
	Group      string   `json:"group"`
	Title      string   `json:"title"`
	Conclusion string   `json:"conclusion"` // one to three sentences
	Commands   []string `json:"commands"`
	Date       string   `json:"date"`
	Commit     string   `json:"commit,omitempty"`
	From       []string `json:"from,omitempty"` // programs of internal/compile/testdata/programs.txt, with * for any text, and packages
	Digest     string   `json:"digest,omitempty"`
	Table      string   `json:"table"`             // measurements/TABLE.csv
	Columns    []string `json:"columns,omitempty"` // shown on the page; none: the conclusion says it all
	Rows       string   `json:"rows,omitempty"`    // those shown, a regular expression; "": all
	stale      bool
}

const (
	index   = "measurements/index.json"
	entered = "now" // the commit of an entry that -update completes
)

// TestMeasurements_PagesAreOfTheData compares the pages with what the tables of measurements/ and their digests make of
// them. With -v it lists what is stale.
func TestMeasurements_PagesAreOfTheData(t *testing.T) {
	recorded, err := os.ReadFile("../internal/compile/testdata/programs.txt")
	require.NoError(t, err)
	all, err := measurements(".", strings.Split(strings.TrimSpace(string(recorded)), "\n"))
	require.NoError(t, err)
	want, err := pages(".", all)
	require.NoError(t, err)
	for _, m := range all {
		if m.stale {
			t.Logf("stale: %s: %s", m.Title, strings.Join(m.Commands, "; "))
		}
	}
	words := 0
	for name, text := range want {
		words += len(strings.Fields(text))
		if *update {
			require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
			continue
		}
		have, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, text, string(have), "%s differs from measurements/: make measurements writes it", name)
	}
	require.LessOrEqual(t, words, 2500, "words about measurements: shorten conclusions or show fewer rows")
}

// measurements reads the index of a directory, checks its entries and finds the stale ones.
func measurements(dir string, programs []string) ([]*measurement, error) {
	raw, err := os.ReadFile(filepath.Join(dir, index))
	if err != nil {
		return nil, err
	}
	var all []*measurement
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", index, err)
	}
	titles, changed := map[string]bool{}, false
	for _, m := range all {
		if err := errors.Join(m.check(), m.compare(programs, &changed)); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", index, m.Title, err)
		}
		if titles[m.Title] {
			return nil, fmt.Errorf("%s: two entries have the title %q: rename one", index, m.Title)
		}
		titles[m.Title] = true
	}
	if changed {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "\t")
		if err := errors.Join(e.Encode(all), os.WriteFile(filepath.Join(dir, index), out.Bytes(), 0o644)); err != nil {
			return nil, err
		}
	}
	return all, everyTable(dir, all)
}

var sentence = regexp.MustCompile(`[.!?](?: |$)`)

func (m *measurement) check() error {
	if m.Group == "" || m.Title == "" || m.Table == "" {
		return errors.New("group, title or table is missing")
	}
	if n := len(sentence.FindAllString(m.Conclusion, -1)); n < 1 || n > 3 {
		return fmt.Errorf("the conclusion has %d sentences: write one to three", n)
	}
	if _, err := time.Parse(time.DateOnly, m.Date); err != nil && m.Commit != entered {
		return fmt.Errorf("the date is %q: write YYYY-MM-DD, or the commit %q", m.Date, entered)
	}
	if len(m.From) > 0 && m.Commit == "" {
		return fmt.Errorf("it depends on programs but has no commit: write %q, and run make measurements", entered)
	}
	if len(m.Commands) == 0 {
		return errors.New("no command makes the table: name one, or remove the table")
	}
	for _, c := range m.Commands {
		if err := exists(c); err != nil {
			return fmt.Errorf("command %q: %w", c, err)
		}
	}
	return nil
}

// compare finds out whether what the table depends on has changed, and completes a new entry.
func (m *measurement) compare(programs []string, changed *bool) error {
	digest := ""
	if len(m.From) > 0 {
		var err error
		if digest, err = made(m.From, programs); err != nil {
			return err
		}
	}
	if m.Commit != entered {
		m.stale = digest != m.Digest
		return nil
	}
	if !*update {
		return fmt.Errorf("the commit is %q: make measurements replaces it", entered)
	}
	head, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output()
	if err != nil {
		return err
	}
	m.Commit, m.Date, m.Digest, *changed = strings.TrimSpace(string(head)), time.Now().Format(time.DateOnly), digest, true
	return nil
}

// everyTable makes sure that each table has one entry.
func everyTable(dir string, all []*measurement) error {
	files, err := filepath.Glob(filepath.Join(dir, "measurements/*.csv"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".csv")
		n := 0
		for _, m := range all {
			if m.Table == name {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("measurements/%s.csv: %d entries of %s have it: write one, or remove the file", name, n, index)
		}
	}
	return nil
}

var (
	ran       = regexp.MustCompile(`-(?:run|bench) '?([^ ']+)`)
	functions = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
)

// exists reports why a command cannot be what makes a table: its program, target, package or test is not in the
// repository.
func exists(command string) error {
	words := strings.Fields(command)
	for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) < 2 {
		return errors.New("it names nothing to run")
	}
	switch {
	case words[0] == "make":
		raw, err := os.ReadFile("../Makefile")
		if err == nil && !bytes.Contains(raw, []byte("\n"+words[1]+":")) {
			err = fmt.Errorf("the Makefile has no target %s", words[1])
		}
		return err
	case words[0] == "go" && words[1] == "test":
		return tested(command)
	case words[0] == "go" && words[1] == "run":
		_, err := os.Stat(filepath.Join("..", words[2]))
		return err
	case words[0] == "bash":
		_, err := os.Stat(filepath.Join("..", words[1]))
		return err
	case strings.HasPrefix(words[0], "spark-"):
		_, err := os.Stat("../cmd/" + words[0])
		return err
	}
	return errors.New("it is none of make, go, bash and the repository's commands")
}

// tested reports why a command runs no test and no benchmark.
func tested(command string) error {
	for _, m := range ran.FindAllStringSubmatch(command, -1) {
		pattern, err := regexp.Compile(m[1])
		if err != nil {
			return err
		}
		for _, dir := range regexp.MustCompile(` \./([\w/]+)`).FindAllStringSubmatch(command, -1) {
			files, err := filepath.Glob(filepath.Join("..", dir[1], "*_test.go"))
			if err != nil {
				return err
			}
			for _, file := range files {
				raw, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				for _, f := range functions.FindAllSubmatch(raw, -1) {
					if pattern.Match(f[1]) {
						return nil
					}
				}
			}
		}
	}
	return errors.New("its packages have no such test or benchmark")
}

// made is the digest of what figures depend on, as it is now.
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

var cited = regexp.MustCompile(`measurements\.md,\s+(?:(?://|#) )?"([^"]+)"`)

// TestMeasurements_CitedTablesExist: comments cite measurements by title.
func TestMeasurements_CitedTablesExist(t *testing.T) {
	raw, err := os.ReadFile(index)
	require.NoError(t, err)
	var all []*measurement
	require.NoError(t, json.Unmarshal(raw, &all))
	n := 0
	require.NoError(t, filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.' {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(file) != ".go" && d.Name() != "Makefile" {
			return err
		}
		raw, err := os.ReadFile(file)
		for _, m := range cited.FindAllSubmatch(raw, -1) {
			n++
			if !slices.ContainsFunc(all, func(x *measurement) bool { return x.Title == string(m[1]) }) {
				t.Errorf("%s cites %q, which %s does not have", file, m[1], index)
			}
		}
		return err
	}))
	require.Positive(t, n)
}
