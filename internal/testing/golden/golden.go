// Package golden compares files that tests generate with what is committed; with UPDATE set in the environment it
// writes them.
package golden

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Updates reports whether files are written, not compared.
func Updates() bool { return os.Getenv("UPDATE") != "" }

// Text compares a file with text.
func Text(t testing.TB, path, text string) {
	t.Helper()
	if Updates() {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(have), text, "%s is out of date: run this test with UPDATE=1", path)
}

// CSV compares a table, of which rows[0] is the header, with a file.
func CSV(t testing.TB, path string, rows [][]string) {
	t.Helper()
	var out strings.Builder
	require.NoError(t, csv.NewWriter(&out).WriteAll(rows))
	Text(t, path, out.String())
}

// States wants a page to contain a sentence, however its lines are broken.
func States(t testing.TB, page, sentence string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(raw)), " ")
	require.True(t, strings.Contains(text, sentence), "%s does not say %q: correct it", page, sentence)
}
