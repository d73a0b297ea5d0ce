package golden_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// A recorder notes a failure in place of ending the test.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) FailNow()              { r.failed = true }

func TestCSV_WritesWithUpdateAndComparesWithout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.csv")
	rows := [][]string{{"name", "reason"}, {"a", "one, two"}}
	t.Setenv("UPDATE", "1")
	golden.CSV(t, path, rows)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "name,reason\na,\"one, two\"\n", string(raw))

	t.Setenv("UPDATE", "")
	golden.CSV(t, path, rows)
	r := &recorder{TB: t}
	golden.CSV(r, path, append(rows, []string{"b", ""}))
	require.True(t, r.failed)
}

func TestStates_IgnoresLineBreaks(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("Of 3\nmutants 2 are found.\n"), 0o644))
	golden.States(t, page, "Of 3 mutants 2 are found.")
	r := &recorder{TB: t}
	golden.States(r, page, "Of 4 mutants 2 are found.")
	require.True(t, r.failed)
}
