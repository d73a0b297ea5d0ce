package fulltest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRuns_NoneFixedOrAll(t *testing.T) {
	for _, c := range []struct {
		full               string
		listed, other, all bool
	}{{"", false, false, false}, {"fixed", true, false, false}, {"1", true, true, true}} {
		t.Setenv("SPARK_FULL", c.full)
		require.Equal(t, c.listed, Runs(fixed[0]), c.full)
		require.Equal(t, c.other, Runs("TestAnotherOne"), c.full)
		require.Equal(t, c.all, All(), c.full)
	}
}

// TestFixed_NamesTestsThatAsk: a test that was renamed would silently no longer run.
func TestFixed_NamesTestsThatAsk(t *testing.T) {
	var asking strings.Builder
	require.NoError(t, goFiles(func(path, text string) {
		if strings.Contains(text, "fulltest.Runs(") || strings.Contains(text, "fulltest.Long(") {
			asking.WriteString(text)
		}
	}))
	for _, name := range fixed {
		require.True(t, strings.Contains(asking.String(), "func "+name+"(t *testing.T)"), "no long test is called %s", name)
	}
}

// goFiles calls see with each Go file of the module.
func goFiles(see func(path, text string)) error {
	return filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		see(path, string(text))
		return err
	})
}

// TestLongTests_AskHere: what reads SPARK_FULL itself cannot be in the fixed part.
func TestLongTests_AskHere(t *testing.T) {
	asks := 0
	require.NoError(t, goFiles(func(path, text string) {
		if strings.Contains(path, "internal/testing/fulltest/") {
			return
		}
		if strings.Contains(text, `Getenv("SPARK_FULL`) {
			t.Errorf("%s reads SPARK_FULL: ask fulltest.Runs", path)
		}
		if strings.Contains(text, "fulltest.Runs(") {
			asks++
		}
	}))
	require.Greater(t, asks, 15)
}

// TestTheClosingLinesSayWhatWasLeftOut: of make test, with nothing installed.
func TestTheClosingLinesSayWhatWasLeftOut(t *testing.T) {
	maker, err := exec.LookPath("make")
	if err != nil {
		t.Skip(err)
	}
	closing := func(full string) string {
		cmd := exec.Command(maker, "-s", "--no-print-directory", "check-tools", "FULL="+full, "VENV=none", "SHARED=none")
		cmd.Dir = "../../.."
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	without := closing("")
	for _, what := range []string{"the long tests", "everything that needs the full-size models, in none/models", "everything that needs Python", "everything that needs ptxas"} {
		require.Contains(t, without, "skipped: "+what)
	}
	require.Contains(t, closing("fixed"), "skipped: long tests outside the fixed part")
	require.NotContains(t, closing("1"), "long tests")
}
