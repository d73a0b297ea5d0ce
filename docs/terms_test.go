package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/passes"
)

// retired are words that one scope refuses.
type retired struct {
	words       *regexp.Regexp
	replacement string
	scopes      []string
}

var (
	retiredLine = regexp.MustCompile(`^retired (.+) => (.+) \[([a-z ]+)\]$`)
	scopes      = []string{"identifiers", "comments", "docs", "flags"}
)

// readRetired reads retired.txt: its words, and for each scope the rooms that must have none of them.
func readRetired(t *testing.T) (words []retired, clean map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("retired.txt")
	require.NoError(t, err)
	clean = map[string][]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		m := retiredLine.FindStringSubmatch(line)
		switch {
		case len(f) == 0 || f[0] == "#" || strings.HasPrefix(line, "#"):
		case f[0] == "clean" && len(f) > 2 && slices.Contains(scopes, f[1]):
			clean[f[1]] = append(clean[f[1]], f[2:]...)
		case m != nil:
			r := retired{regexp.MustCompile(`\b(?:` + m[1] + `)\b`), m[2], strings.Fields(m[3])}
			for _, s := range r.scopes {
				require.Contains(t, scopes, s, line)
			}
			words = append(words, r)
		default:
			t.Fatalf("retired.txt: %q is neither a retired word nor a list of clean rooms", line)
		}
	}
	return words, clean
}

// use is a text in which no retired word may be.
type use struct{ area, at, text string }

// TestTerms_RetiredWordsStayRetired refuses retired words in clean rooms and logs how many the others have.
func TestTerms_RetiredWordsStayRetired(t *testing.T) {
	words, clean := readRetired(t)
	uses := map[string][]use{"docs": docsUses(t), "flags": flagUses(t)}
	uses["identifiers"], uses["comments"] = codeUses(t)
	for _, scope := range scopes {
		require.Greater(t, len(uses[scope]), 10, scope)
		for _, area := range clean[scope] {
			require.True(t, slices.ContainsFunc(uses[scope], func(u use) bool { return inside(u.area, area) }),
				"retired.txt calls %s clean of %s, but it has none", area, scope)
		}
		left := map[string]int{}
		for _, u := range uses[scope] {
			for _, w := range words {
				found := w.words.FindString(u.text)
				if found == "" || !slices.Contains(w.scopes, scope) {
					continue
				}
				if slices.ContainsFunc(clean[scope], func(area string) bool { return inside(u.area, area) }) {
					t.Errorf("%s: %q in %s is retired: write %s", u.at, found, scope, w.replacement)
				} else {
					left[strings.SplitN(u.area, "/", 2)[0]]++
				}
			}
		}
		t.Logf("%s: retired words left by room: %v", scope, left)
	}
}

// codeUses are the identifiers that Go files declare, and their comments.
func codeUses(t *testing.T) (identifiers, comments []use) {
	files := token.NewFileSet()
	for _, path := range tracked(t, "*.go") {
		f, err := parser.ParseFile(files, filepath.Join("..", path), nil, parser.ParseComments)
		require.NoError(t, err)
		area := filepath.ToSlash(filepath.Dir(path))
		at := func(p token.Pos) string { return fmt.Sprintf("%s:%d", path, files.Position(p).Line) }
		for _, id := range declared(f) {
			identifiers = append(identifiers, use{area, at(id.Pos()), identifierWords(id.Name)})
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				comments = append(comments, use{area, at(c.Pos()), strings.ToLower(c.Text)})
			}
		}
	}
	return identifiers, comments
}

// declared are the identifiers that a file declares.
func declared(f *ast.File) (ids []*ast.Ident) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = append(ids, n.Name)
		case *ast.TypeSpec:
			ids = append(ids, n.Name)
		case *ast.ValueSpec:
			ids = append(ids, n.Names...)
		case *ast.Field:
			ids = append(ids, n.Names...)
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					ids = append(ids, id)
				}
			}
		case *ast.RangeStmt:
			for _, x := range []ast.Expr{n.Key, n.Value} {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					ids = append(ids, id)
				}
			}
		}
		return true
	})
	return ids
}

// identifierWords are the words of a name in lower case: "new chain" of NewChain.
func identifierWords(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		starts := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		switch {
		case r == '_':
			r = ' '
		case starts:
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// docsUses are the lines of pages that are not generated, but for this list's own.
func docsUses(t *testing.T) (out []use) {
	for _, path := range tracked(t, "*.md") {
		if path == "docs/measurements.md" || path == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		require.NoError(t, err)
		for i, line := range strings.Split(strings.ToLower(string(text)), "\n") {
			out = append(out, use{strings.TrimSuffix(path, ".md"), fmt.Sprintf("%s:%d", path, i+1), line})
		}
	}
	return out
}

// flagUses are the flags of the commands with their help, and the text of --help-passes.
func flagUses(t *testing.T) (out []use) {
	for line := range strings.Lines(passes.Help()) {
		out = append(out, use{"passes", "--help-passes", strings.ToLower(line)})
	}
	files := token.NewFileSet()
	for _, path := range tracked(t, "cmd/*.go") {
		f, err := parser.ParseFile(files, filepath.Join("..", path), nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			raw, err := strconv.Unquote(field.Tag.Value)
			require.NoError(t, err)
			tag := reflect.StructTag(raw)
			help, described := tag.Lookup("help")
			if !described {
				return true
			}
			text := []string{tag.Get("name"), help}
			for _, id := range field.Names {
				text = append(text, identifierWords(id.Name))
			}
			at := fmt.Sprintf("%s:%d", path, files.Position(field.Pos()).Line)
			out = append(out, use{filepath.ToSlash(filepath.Dir(path)), at, strings.ToLower(strings.Join(text, " "))})
			return true
		})
	}
	return out
}

// tracked are the repository's files of a pattern, new ones too.
func tracked(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	list, err := exec.Command("git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", pattern).Output()
	if err != nil {
		t.Skip("not a git checkout: files are not known")
	}
	for _, path := range strings.Fields(string(list)) {
		if _, err := os.Stat(filepath.Join("..", path)); err == nil && !strings.Contains(path, "testdata/") {
			paths = append(paths, path)
		}
	}
	return paths
}
