package compile

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// launchesOf reads from the PTX which launches compute each node of the file.
func launchesOf(t *testing.T, r *Result) map[string][]string {
	t.Helper()
	m, err := ptx.Parse(r.Program.Variants[0].PTX)
	require.NoError(t, err)
	out := map[string][]string{}
	for _, k := range m.Kernels {
		launch, listing := "", false
		for _, line := range k.Doc {
			if rest, ok := strings.CutPrefix(line, "run "); ok {
				launch, _, _ = strings.Cut(rest, ",")
				listing = false
			}
			names, begins := strings.CutPrefix(line, "  of ")
			if listing = listing || begins; !listing {
				continue
			}
			for name := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(names), ","), ", ") {
				out[name] = append(out[name], launch)
			}
		}
	}
	return out
}

// TestThePTXSaysWhichNodesAKernelComputes: of the repository's models each node of the file that computes something is named at
// a kernel, those that take most time at one launch only; what moves elements may vanish.
func TestThePTXSaysWhichNodesAKernelComputes(t *testing.T) {
	fulltest.Long(t)
	for _, name := range names {
		for _, in := range []string{"fp32", "fp16"} {
			g, err := onnx.Import(small(t, name), onnx.ImportOptions{})
			require.NoError(t, err)
			r, _ := generated(t, name, in, "sm_121")
			at := launchesOf(t, r)
			folded := map[*ir.Node]bool{}
			for _, n := range g.Nodes {
				folded[n] = !slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return v != nil && !v.IsConst() && !folded[v.Def] })
				if folded[n] || n.Moves() {
					continue
				}
				require.Len(t, n.From, 1, n.Name)
				label := n.From[0].Name
				require.NotEmpty(t, at[label], "%s in %s: %s (%s)", name, in, label, n.Op.Name)
				if slices.Contains([]string{"Conv", "MatMul"}, n.Op.Name) {
					require.Len(t, slices.Compact(slices.Clone(at[label])), 1, "%s in %s: %s (%s) at %v", name, in, label, n.Op.Name, at[label])
				}
			}
		}
	}
}
