package console

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 layer": Count(1, "layer"), "0 layers": Count(0, "layer"), "2 generated inputs": Count(2, "generated input"), "1 launch": Count(1, "launch"),
		"26 launches": Count(26, "launch"), "2 passes": Count(2, "pass"), "2 boxes": Count(2, "box"),
	} {
		require.Equal(t, want, got)
	}
}

// TestNobodyCountsOneLayers looks for numbers before plurals in printed text: Count handles one.
func TestNobodyCountsOneLayers(t *testing.T) {
	counted := regexp.MustCompile(`"[^"]*%d(?: [a-z-]+| %s)? ?(layers|inputs|launches|kernels|runs|regions|formats|steps|CPUs|SMs|nodes|elements are)\b`)
	for _, root := range []string{"../../cmd", "../../internal", "../../bench"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			for i, line := range strings.Split(string(raw), "\n") {
				// A count that must be another one is that of a wrong file or program.
				if m := counted.FindString(line); m != "" && !regexp.MustCompile(`%d inputs, want|has %d|, want %d`).MatchString(line) {
					t.Errorf("%s:%d: %s: use Count", path, i+1, m)
				}
			}
			return nil
		}))
	}
}
