package compile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// TestBasesRunWithoutWhatFoldsIntoWeights: a pass that has another name now would run.
func TestBasesRunWithoutWhatFoldsIntoWeights(t *testing.T) {
	all, err := passes.Pipeline(precision.FP16)
	require.NoError(t, err)
	require.Subset(t, all, foldsIntoWeights)
	names, err := basePasses()
	require.NoError(t, err)
	require.Contains(t, names, "fuse")
	require.NotContains(t, names, "assign-storage")
}
