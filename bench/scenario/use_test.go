package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTier_ReadsNoParameterThatItRefuses: with such a parameter changed, a loop ends with the same bits.
func TestTier_ReadsNoParameterThatItRefuses(t *testing.T) {
	d := device(t)
	for tier, a := range map[Tier]Algorithm{Planner: &Controllers[0], Controls: Asked} {
		base := Default("base")
		for name, x := range map[string]float64{"duration": 2, "ask_time0": 0.5, "ask_accel0": -1, "ask_curvature0": 0.01, "speed": 20} {
			if tier.uses(name) {
				base.Values[paramRow(name)] = x
			}
		}
		list := []Scenario{base}
		for i, p := range Params {
			if tier.uses(p.Name) {
				continue
			}
			s := base
			s.Values = append([]float64{}, base.Values...)
			s.Values[i] = p.High
			if values := p.multiples(); values != nil {
				s.Values[i] = values[len(values)-1]
			}
			if s.Values[i] == base.Values[i] {
				s.Values[i] = p.Low
			}
			if s.Stream = uint64(len(list)) << 32; s.check() == nil { // without noise streams do not matter
				list = append(list, s)
			}
		}
		require.Greater(t, len(list), 15)
		result, err := (&Runner{Device: d, Tier: tier}).RunBatch(t.Context(), list, a, 1, 1)
		require.NoError(t, err)
		for i, row := range result.Metrics {
			require.Equal(t, result.Metrics[0], row, "scenario %d, %v", i, list[i].Values)
		}
	}
}

func TestReadFile_RefusesWhatTierControlsDoesNotRead(t *testing.T) {
	_, err := Controls.ReadFile(written(t, "scenarios:\n  - {family: brake-4, set: {mass: 1400, lane_width: 3}}"))
	require.ErrorContains(t, err, "s.yaml: line 2: lane_width does nothing in tier controls: leave it out, or run the file with --tier planner")
}
