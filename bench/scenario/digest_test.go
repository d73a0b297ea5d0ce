package scenario

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/programdigest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestStepsStayTheSame byte for byte, unless a commit records their digests anew and says why.
func TestStepsStayTheSame(t *testing.T) {
	fulltest.Long(t)
	recorded := programdigest.Open(t, "testdata/programs.txt", *update)
	pid, err := BuiltIn("pid")
	require.NoError(t, err)
	network, err := (&Policy{ONNX: policyFile(t, perceptron), Precision: "fp16"}).load(policyLoops)
	require.NoError(t, err)
	designs := map[string]*design{
		"pid":      {loops: 1024, float: ir.Float32, controller: pid, knots: 256},
		"controls": {loops: 64, float: ir.Float32, controller: Asked, tier: Controls},
		"policy":   {loops: policyLoops, float: ir.Float32, policy: network},
	}
	for _, name := range slices.Sorted(maps.Keys(designs)) {
		r, err := designs[name].compiled(t.Context(), []string{"sm_121"})
		require.NoError(t, err)
		recorded.Compare(name, r.Program)
	}
}
