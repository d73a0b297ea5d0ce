package tinyphysics

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// TestLastPosition_ComputesOneRow: the logits are those of the whole network at its last position, and all products but
// those that keys and values need have one row.
func TestLastPosition_ComputesOneRow(t *testing.T) {
	const batch = 3
	m := smallNetwork(t)
	all, err := onnx.Import(m, onnx.ImportOptions{Batch: batch})
	require.NoError(t, err)
	one, err := load(m, batch)
	require.NoError(t, err)
	var rows []int
	for _, n := range one.Nodes {
		if n.Op.Name == "MatMul" {
			rows = append(rows, n.Outputs[0].Type.Shape[1])
		}
	}
	slices.Sort(rows)
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, window, window, window}, rows, "embedding, keys and values have 20")

	rng := rand.New(rand.NewPCG(1, 2))
	in := map[string]*ir.Array{}
	for _, v := range all.Inputs {
		a := ir.NewArray(v.Type)
		for i := range a.F {
			a.F[i] = rng.NormFloat64()
		}
		for i := range a.I {
			a.I[i] = rng.Int64N(vocabulary)
		}
		in[v.Name] = a
	}
	want, err := ir.Evaluate(t.Context(), all, in, ir.EvalOptions{})
	require.NoError(t, err)
	got, err := ir.Evaluate(t.Context(), one, in, ir.EvalOptions{})
	require.NoError(t, err)
	for i := range batch {
		last := want[networkOutput].F[((i+1)*window-1)*vocabulary : (i+1)*window*vocabulary]
		require.Equal(t, last, got[logits].F[i*vocabulary:(i+1)*vocabulary], "drive %d", i)
	}
}
