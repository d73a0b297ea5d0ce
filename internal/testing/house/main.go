// Command house counts what the house rules bound: words of documents, packages, long functions, tests, commit subjects. make house runs it;
// it prints a table and judges nothing.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

func main() {
	log.SetFlags(0)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	rows, err := count()
	if err != nil {
		log.Fatal("house: ", err)
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\n", r.what, r.n, r.goal)
	}
	if err := w.Flush(); err != nil {
		log.Fatal("house: ", err)
	}
}

type row struct {
	what string
	n    int
	goal string
}

func count() ([]row, error) {
	files, err := lines("git", "ls-files", "*.go", "*.md")
	if err != nil {
		return nil, err
	}
	var docs documents
	var code source
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		switch {
		case strings.HasSuffix(path, ".go"):
			if err := code.add(path, text); err != nil {
				return nil, err
			}
		case path == "README.md" || strings.HasPrefix(path, "docs/"):
			docs.add(path, text)
		}
	}
	subjects, err := lines("git", "log", "--no-merges", "-100", "--format=%s")
	if err != nil {
		return nil, err
	}
	return slices.Concat(docs.rows(), code.rows(), commits(subjects)), nil
}

func lines(name string, args ...string) ([]string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

type documents struct{ words, pages, long, readme, wide int }

func (d *documents) add(path string, text []byte) {
	n := len(bytes.Fields(text))
	d.pages++
	d.words += n
	if n > 1200 {
		d.long++
	}
	printed := false // in a block of what a program prints
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			printed = strings.HasPrefix(line, "```output")
		}
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 100 && !printed && !strings.HasPrefix(line, "|") {
			d.wide++
		}
	}
	if path == "README.md" {
		d.readme = bytes.Count(text, []byte("\n"))
	}
}

func (d *documents) rows() []row {
	return []row{
		{"words of README and docs", d.words, "<= 30000"},
		{"pages", d.pages, ""},
		{"pages above 1,200 words", d.long, "0"},
		{"lines above 100 columns, tables and output left out", d.wide, "0"},
		{"lines of README", d.readme, "<= 70"},
	}
}

type source struct {
	lines, testLines, long, large     int
	tests, parallel, what, box, files int
	internal, testing                 []string
	functions                         int
}

func (s *source) add(path string, text []byte) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	test, dir, n := strings.HasSuffix(path, "_test.go"), filepath.ToSlash(filepath.Dir(path)), bytes.Count(text, []byte("\n"))
	if test {
		s.testLines += n
		s.files++
		if !strings.HasSuffix(f.Name.Name, "_test") {
			s.box++
		}
	} else {
		s.lines += n
	}
	if rest, ok := strings.CutPrefix(dir, "internal/testing/"); ok {
		s.testing = append(s.testing, first(rest))
	} else if rest, ok := strings.CutPrefix(dir, "internal/"); ok {
		s.internal = append(s.internal, first(rest))
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			s.function(fn, test, files.Position(fn.End()).Line-files.Position(fn.Pos()).Line+1)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if x, ok := n.(*ast.InterfaceType); ok && x.Methods.NumFields() > 8 {
			s.large++
		}
		return true
	})
	return nil
}

func first(path string) string {
	dir, _, _ := strings.Cut(path, "/")
	return dir
}

func (s *source) function(fn *ast.FuncDecl, test bool, lines int) {
	s.functions++
	if lines > 80 && !test {
		s.long++
	}
	if !test || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
		return
	}
	s.tests++
	if strings.HasPrefix(fn.Name.Name, "TestWhat") {
		s.what++
	}
	parallel := false
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok {
			sel, ok := call.Fun.(*ast.SelectorExpr)
			parallel = parallel || ok && sel.Sel.Name == "Parallel"
		}
		return true
	})
	if parallel {
		s.parallel++
	}
}

func distinct(names []string) int {
	slices.Sort(names)
	return len(slices.Compact(names))
}

func (s *source) rows() []row {
	return []row{
		{"lines of Go", s.lines, ""},
		{"lines of Go tests", s.testLines, ""},
		{"packages in internal, those of internal/testing left out", distinct(slices.DeleteFunc(s.internal, func(n string) bool { return n == "testing" })), "about 24"},
		{"packages in internal/testing", distinct(s.testing), ""},
		{"functions", s.functions, ""},
		{"functions above 80 lines", s.long, "0"},
		{"interfaces above 8 methods", s.large, "0"},
		{"tests", s.tests, ""},
		{"tests that run in parallel", s.parallel, ""},
		{"tests named TestWhat…", s.what, "0"},
		{"test files", s.files, ""},
		{"test files inside their package", s.box, ""},
	}
}

func commits(subjects []string) []row {
	long, lengths := 0, make([]int, len(subjects))
	for i, s := range subjects {
		if lengths[i] = len([]rune(s)); lengths[i] > 72 {
			long++
		}
	}
	slices.Sort(lengths)
	return []row{
		{"median length of the last 100 commit subjects", lengths[len(lengths)/2], "<= 72"},
		{"of them above 72 characters", long, "0"},
	}
}
