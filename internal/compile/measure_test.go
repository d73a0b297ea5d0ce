package compile

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/calibrate"
)

// TestAMissedBudgetEndsAMeasurement: a program is run on the worst inputs first, and on no more than it takes to miss a budget.
func TestAMissedBudgetEndsAMeasurement(t *testing.T) {
	r := forced(t, "policy", "fp8", "sm_121")
	opt := Options{Precision: "fp8", MinCosine: .9, Generated: 4, Targets: []string{"sm_121"}}
	y, err := newYardstick(r.Source, &opt)
	require.NoError(t, err)
	all, err := y.measure(t.Context(), r.Program, "sm_121", 0)
	require.NoError(t, err)
	require.Len(t, all, len(y.sets))
	inputs, worst := len(y.all()), slices.Clone(y.worst)
	require.NotEqual(t, slices.Sorted(slices.Values(worst)), worst, "the first input is the worst one: draw others")

	clear(y.known)
	least := calibrate.Least(calibrate.Worst(all))
	one, err := y.measure(t.Context(), r.Program, "sm_121", least+1e-9)
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, 1, one[0].Inputs)
	require.Equal(t, least, calibrate.Least(one[0].Slices))
	first, set := worst[0], 0
	for ; first >= len(y.sets[set].Inputs); set++ {
		first -= len(y.sets[set].Inputs)
	}
	require.Equal(t, y.sets[set].Name, one[0].Name)

	again, err := y.measure(t.Context(), r.Program, "sm_121", least)
	require.NoError(t, err)
	require.Equal(t, all, again)
	require.Len(t, y.worst, inputs)
}
