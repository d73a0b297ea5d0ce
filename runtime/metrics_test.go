package runtime

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name      string
		got, want []float64
		m         Metrics
	}{
		{"equal", []float64{1, 2}, []float64{1, 2}, Metrics{0, 1, 0, 1}},
		{"both zero", []float64{0}, []float64{0}, Metrics{0, 1, 0, 1}},
		{"empty", nil, nil, Metrics{0, 1, 0, 1}},
		{"orthogonal", []float64{1, 0}, []float64{0, 1}, Metrics{1, 0, math.Sqrt2, 0}},
		{"opposite", []float64{-1}, []float64{1}, Metrics{2, -1, 2, 0}},
		{"same specials", []float64{nan, inf, 3}, []float64{nan, inf, 3}, Metrics{0, 1, 0, 1}},
		{"NaN where a number belongs", []float64{nan, 1}, []float64{1, 1}, Metrics{inf, -1, inf, .5}},
		{"number where infinity belongs", []float64{1}, []float64{inf}, Metrics{inf, -1, inf, 0}},
		{"within tolerance", []float64{1.0078125}, []float64{1}, Metrics{0.0078125, 1, 0.0078125, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Compare(c.got, c.want, 0.01, 0)
			require.NoError(t, err)
			require.InDelta(t, c.m.Cosine, m.Cosine, 1e-12)
			require.Equal(t, c.m.MaxAbs, m.MaxAbs)
			require.Equal(t, c.m.RelL2, m.RelL2)
			require.Equal(t, c.m.Within, m.Within)
		})
	}
	_, err := Compare([]float64{1}, nil, 0, 0)
	require.Error(t, err)
}
