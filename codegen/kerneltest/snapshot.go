package kerneltest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Snapshot compares a kernel's text with testdata/NAME.ptx, or writes that. What a reader has seen once is left out:
// the lines before the first that starts with from, and where opcodes repeat all but the first run of them. A digest
// of the whole text says whether anything left out has changed.
func Snapshot(t *testing.T, name string, spec *kernel.Spec, tgt *target.Target, from string, update bool) {
	t.Helper()
	full := spec.Build(tgt, name).String()
	at := strings.Index(full, "\n"+from)
	require.Positive(t, at, "no line of the kernel starts with %q", from)
	lines := strings.Split(strings.TrimSpace(full[at:]), "\n")
	text := fmt.Sprintf("// %s\n// sha256 of the whole text: %x\n%s\n", spec.Schedule, sha256.Sum256([]byte(full)), strings.Join(elide(elide(lines)), "\n"))
	path := filepath.Join("testdata", name+".ptx")
	if update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run Snapshots -update rewrites it")
}

// elide writes a run of lines whose opcodes repeat once, with the number of times that they do.
func elide(lines []string) []string {
	const longest = 64
	var opcodes, out []string
	for _, l := range lines {
		op, _, _ := strings.Cut(strings.TrimSpace(l), " ")
		if strings.HasPrefix(op, "@") {
			op = strings.Fields(l)[1]
		}
		opcodes = append(opcodes, op)
	}
	for i := 0; i < len(lines); {
		period, saved := 0, 0
		for p := 1; p <= longest && i+2*p <= len(lines); p++ {
			n := i + p
			for n+p <= len(lines) && slices.Equal(opcodes[i:i+p], opcodes[n:n+p]) {
				n += p
			}
			if left := n - i - p - 1; left > saved {
				period, saved = p, left
			}
		}
		if period == 0 {
			out = append(out, lines[i])
			i++
			continue
		}
		out = append(append(out, lines[i:i+period]...), fmt.Sprintf("\t… %d times these %d", (saved+1)/period+1, period))
		i += period + saved + 1
	}
	return out
}
