package lower

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

func TestEveryOpHasARuleOrIsExpandedByAPass(t *testing.T) {
	for _, op := range ir.Ops() {
		expanded := slices.Contains(Expanded(), op.Name)
		require.NotEqual(t, expanded, Covers(op.Name), "op %s", op.Name)
	}
}
