package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestFunctionsAndInterfacesStaySmall: in the rooms of the compiler a function has at most 80 lines, and an interface 8 methods.
func TestFunctionsAndInterfacesStaySmall(t *testing.T) {
	files, seen := token.NewFileSet(), 0
	for _, area := range []string{"codegen", "passes", "internal/compile", "internal/calibrate", "internal/tune", "ir"} {
		require.NoError(t, filepath.WalkDir("../"+area, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			seen++
			f, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if lines := files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1; lines > 80 {
						t.Errorf("%s: %s has %d lines", path, n.Name, lines)
					}
				case *ast.TypeSpec:
					if x, ok := n.Type.(*ast.InterfaceType); ok && x.Methods.NumFields() > 8 {
						t.Errorf("%s: %s has %d methods", path, n.Name, x.Methods.NumFields())
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, seen, 100)
}

// columns is the width of a page's lines.
const columns = 100

// TestPages_FitTheWindow: a line has at most 100 columns. Left out are tables, and blocks of what a program prints.
func TestPages_FitTheWindow(t *testing.T) {
	for _, page := range append(tracked(t, "docs/*.md"), "README.md") {
		raw, err := os.ReadFile("../" + page)
		require.NoError(t, err)
		printed := false // in a block of what a program prints
		for i, line := range strings.Split(string(raw), "\n") {
			if strings.HasPrefix(line, "```") {
				printed = strings.HasPrefix(line, "```output")
			}
			n := utf8.RuneCountInString(line)
			if n > columns && !printed && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d: %d columns", page, i+1, n)
			}
		}
	}
}

// words is what all pages may have together.
const words = 30000

// TestPages_AreShort: a page has at most 1,200 words, and all together have a bound.
func TestPages_AreShort(t *testing.T) {
	sum := 0
	for _, page := range append(tracked(t, "docs/*.md"), "README.md") {
		raw, err := os.ReadFile("../" + page)
		require.NoError(t, err)
		n := len(strings.Fields(string(raw)))
		if n > 1200 {
			t.Errorf("%s has %d words, more than 1,200: shorten or split it", page, n)
		}
		sum += n
	}
	require.Greater(t, sum, 10000)
	require.LessOrEqual(t, sum, words, "words of all pages: shorten some")
}
