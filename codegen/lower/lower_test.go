package lower

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

func TestEveryOpHasARuleOrIsRefused(t *testing.T) {
	refused := []string{"GRU", "LSTM", "RNN", "Region"} // passes unroll and fuse: neither reaches a region's body
	for _, op := range ir.Ops() {
		require.NotEqual(t, slices.Contains(refused, op.Name), Covers(op.Name), "op %s", op.Name)
	}
}
