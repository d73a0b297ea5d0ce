package lower

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

func TestEveryOpHasARuleOrIsRefused(t *testing.T) {
	refused := []string{"GRU", "LSTM", "RNN", "Region"} // passes unroll and fuse: neither reaches a region's body
	for _, op := range ir.Ops() {
		require.NotEqual(t, slices.Contains(refused, op.Name), Covers(op.Name), "op %s", op.Name)
	}
}

func TestEveryPointwiseOpHasAScalarForm(t *testing.T) {
	for _, op := range ir.Ops() {
		require.Equal(t, op.Pointwise(), scalars[op.Name] != nil || op.Pointwise() && op.Expand != nil, "op %s", op.Name)
	}
}

func TestAPointwiseCompositeIsWhatItStandsFor(t *testing.T) {
	g := ir.NewGraph("g")
	n, err := g.Add("Reciprocal", "n", nil, g.AddInput("x", ir.T(ir.Float16, 4)))
	require.NoError(t, err)
	b := expr.NewBuilder()
	x := b.Cast(b.Index("i", 9), expr.F32)
	require.Same(t, b.RoundF16(b.Div(b.F32(1), x)), Scalar(b, n, []*expr.Expr{x}))
}
