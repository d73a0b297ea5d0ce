package compile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestWorkOfOptionalInputs: an input that is left out is no weight.
func TestWorkOfOptionalInputs(t *testing.T) {
	g := ir.NewGraph("g")
	x := g.AddInput("x", ir.Type{DType: ir.Float32, Shape: []int{4}})
	n, err := g.Add("QuantizeLinear", "q", ir.Attrs{"to": ir.Uint8}, x, g.Constant("s", ir.ScalarFloat(ir.Float32, 2)), nil)
	require.NoError(t, err)
	g.Outputs = n.Outputs
	require.Positive(t, compiling(g))
}
