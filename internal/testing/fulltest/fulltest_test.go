package fulltest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPartsTogetherAreAll(t *testing.T) {
	t.Setenv("SPARK_FULL", "")
	t.Setenv("SPARK_FULL_PART", "")
	require.False(t, Runs("anything"))
	for n := 1; n <= 4; n++ {
		for i := range 100 {
			name, ran := fmt.Sprint("Test", i), 0
			for k := 1; k <= n; k++ {
				t.Setenv("SPARK_FULL_PART", fmt.Sprintf("%d/%d", k, n))
				if Runs(name) {
					ran++
				}
			}
			require.Equal(t, 1, ran, "%s in %d parts", name, n)
		}
	}
	for _, bad := range []string{"1", "0/2", "3/2", "1/2x", "a/b", "-1/2"} {
		_, _, err := parse(bad)
		require.ErrorContains(t, err, bad)
	}
	t.Setenv("SPARK_FULL", "1")
	require.True(t, Runs("anything"))
}

// TestLongTestsAskHere: what reads SPARK_FULL itself would be in no part.
func TestLongTestsAskHere(t *testing.T) {
	asks := 0
	reads := regexp.MustCompile(`Getenv\("SPARK_FULL`)
	require.NoError(t, filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.Contains(path, "internal/testing/fulltest/") {
			return nil
		}
		text, err := os.ReadFile(path)
		if reads.Match(text) {
			t.Errorf("%s reads SPARK_FULL: ask fulltest.Runs", path)
		}
		if strings.Contains(string(text), "fulltest.Runs(") {
			asks++
		}
		return err
	}))
	require.Greater(t, asks, 15)
}

// TestTheClosingLinesSayWhatWasLeftOut: of make test, with nothing installed.
func TestTheClosingLinesSayWhatWasLeftOut(t *testing.T) {
	maker, err := exec.LookPath("make")
	if err != nil {
		t.Skip(err)
	}
	closing := func(part string) string {
		cmd := exec.Command(maker, "-s", "--no-print-directory", "check-tools", "PART="+part, "VENV=none", "SHARED=none")
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
	half := closing("2/2")
	require.Contains(t, half, "of the long tests part 2/2 was run")
	require.NotContains(t, half, "skipped: the long tests")
	require.NotContains(t, closing("1/1"), "long tests")
}

// TestCommitsChooseEveryPart: .ci/part names a part for a commit, each of them for one of the first twenty commits a part.
func TestCommitsChooseEveryPart(t *testing.T) {
	chosen := map[uint32]bool{}
	parts := uint32(1)
	for i := uint32(0); i < 20*parts && len(chosen) < int(parts); i++ {
		out, err := exec.Command("../../../.ci/part", fmt.Sprintf("%040x", uint64(i)*0x9e3779b97f4a7c15)).Output()
		require.NoError(t, err)
		part, n, err := parse(strings.TrimSpace(string(out)))
		require.NoError(t, err)
		chosen[part], parts = true, n
	}
	require.Greater(t, parts, uint32(1))
	require.Len(t, chosen, int(parts), "%v", chosen)
}
