package compile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestLayers_NameEveryTower: a layer that batches towers names the nodes of each, and every node is in one layer.
func TestLayers_NameEveryTower(t *testing.T) {
	fulltest.Long(t)
	r := forced(t, "vision", "fp8", "sm_121")
	layers := map[string]int{}
	for i, w := range r.LayerWeights(r, r.Accuracy.Layers) {
		require.NotEmpty(t, w.Nodes, r.Accuracy.Layers[i].Name)
		for _, name := range w.Nodes {
			require.NotContains(t, layers, name)
			layers[name] = i
		}
	}
	towers := 0
	for name, i := range layers {
		if strings.Contains(name, "/narrow/") {
			towers++
			require.Equal(t, i, layers[strings.ReplaceAll(name, "/narrow/", "/wide/")], name)
		}
	}
	require.NotZero(t, towers)
}

// TestProvenance_MACsAreTheModelsInEveryPrecision, whatever the kernels compute more.
func TestProvenance_MACsAreTheModelsInEveryPrecision(t *testing.T) {
	fulltest.Long(t)
	half, _ := generated(t, "vision", "fp16", "sm_121")
	low := forced(t, "vision", "fp8", "sm_121")
	require.Positive(t, half.Provenance().MACs)
	require.Equal(t, half.Provenance().MACs, low.Provenance().MACs)
	executed := func(r *Result) (sum int64) {
		for _, k := range r.Program.Variants[0].Kernels {
			sum += k.MACs * int64(k.Launches)
		}
		return sum
	}
	require.NotEqual(t, executed(half), executed(low), "the count of kernels is not the model's")
}
