package scenario

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEnvironment_SameBitsAsRunBatch: loops that a caller drives, and starts again while others go on, end as those of a
// batch with the same commands do.
func TestEnvironment_SameBitsAsRunBatch(t *testing.T) {
	list := append(loopsOf(t, "sensor-dropout", 4), loopsOf(t, "cut-in", 2)...)
	var err error
	list[1], err = list[1].With("duration", 1)
	require.NoError(t, err)
	follow := func(seen, commands [][]float32) {
		for i := range commands[0] {
			commands[0][i] = seen[6][i] - 0.002*seen[3][i] // road0 and offset
			commands[1][i] = 0.1 * (seen[13][i] - seen[1][i])
		}
	}
	want, err := (&Runner{Device: device(t)}).RunBatch(t.Context(), list, &Callback{Name: "follow", Act: func(_ context.Context, _ int, seen, commands [][]float32) error {
		follow(seen, commands)
		return nil
	}}, 1, 5)
	require.NoError(t, err)

	const loops = 3
	e, err := NewEnvironment(t.Context(), device(t), list[:loops])
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Observe(t.Context())
	require.ErrorContains(t, err, "call Reset")
	require.ErrorContains(t, e.Reset(list[:2], 5), "2 scenarios for 3 loops")
	require.ErrorContains(t, e.Reset(append([]Scenario{{}}, list[:2]...), 5), "start all of them at first")
	require.NoError(t, e.Reset(list[:loops], 5))
	runs, began, next, ended := []int{0, 1, 2}, make([]int, loops), loops, 0
	for step := 0; ended < len(list) && step < 1000; step++ {
		seen, err := e.Observe(t.Context())
		require.NoError(t, err)
		commands := [][]float32{make([]float32, loops), make([]float32, loops)}
		follow(seen, commands)
		alive, metrics, err := e.Step(t.Context(), commands)
		require.NoError(t, err)
		again, some := make([]Scenario, loops), false
		for i := range alive {
			if alive[i] || runs[i] < 0 {
				continue
			}
			require.Equal(t, want.Metrics[runs[i]], metrics[i], "loop %d", runs[i])
			require.Equal(t, int(math.Round(metrics[i][len(Metrics)-1]/Step)), step+1-began[i], "others that start leave it alone")
			ended++
			if runs[i] = -1; next < len(list) {
				again[i], runs[i], began[i], some = list[next], next, step+1, true
				next++
			}
		}
		if some {
			require.ErrorContains(t, e.Reset(again, 6), "loops that go on have seed 5")
			require.NoError(t, e.Reset(again, 5))
		}
	}
	require.Equal(t, len(list), ended)
	require.NoError(t, e.Reset(list[:loops], 5))
	_, _, err = e.Step(t.Context(), [][]float32{{0, float32(math.NaN()), 0}, {0, 0, 0}})
	require.ErrorContains(t, err, `step 0: curvature of loop 1, scenario "sensor-dropout", is NaN`)
	_, _, err = e.Step(t.Context(), [][]float32{{0, 0, 0}, {0, 0}})
	require.ErrorContains(t, err, "2 values of acceleration for 3 loops")
	_, err = NewEnvironment(t.Context(), device(t), nil)
	require.ErrorContains(t, err, "an environment of 0 loops; want 1 to 65536")
}
