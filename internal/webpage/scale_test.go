package webpage

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// round reports whether a tick is written with few digits, the last of which is a multiple of a step of 1, 2 or 5.
func round(ticks []float64) bool {
	step := ticks[1] - ticks[0]
	for _, v := range ticks[1:] {
		step = min(step, v-ticks[slices.Index(ticks, v)-1])
	}
	mantissa := strings.TrimRight(strings.ReplaceAll(strings.Split(strconv.FormatFloat(step, 'e', 6, 64), "e")[0], ".", ""), "0")
	return slices.Contains([]string{"1", "2", "5"}, mantissa)
}

// roundOnLog is a 1, 2 or 5 times a power of ten.
func roundOnLog(v float64) bool {
	return slices.Contains([]string{"1", "2", "5"}, strings.Split(strconv.FormatFloat(v, 'e', -1, 64), "e")[0])
}

func TestTicks_RoundIncreasingAndInRange(t *testing.T) {
	check := func(log bool, values ...float64) {
		t.Helper()
		s := NewScale(values, 0, 400, log)
		require.True(t, finite(s.Low) && finite(s.High) && s.Low < s.High, "%v: %v", values, s)
		ticks := s.Ticks()
		require.GreaterOrEqual(t, len(ticks), 2, "%v: %v", values, s)
		require.LessOrEqual(t, len(ticks), mostTicks, "%v: %v", values, ticks)
		labels := s.Labels(ticks)
		for i, v := range ticks {
			require.True(t, s.Low <= v && v <= s.High, "%v: %v", values, ticks)
			require.True(t, i == 0 || ticks[i-1] < v, "%v: %v", values, ticks)
			at := s.At(v)
			require.True(t, -1e-6 <= at && at <= 400+1e-6, "%v: %v at %v", values, v, at)
			back, err := strconv.ParseFloat(labels[i], 64)
			require.NoError(t, err)
			require.Equal(t, v, back, "%v: the label says all", values)
			require.LessOrEqual(t, len(labels[i]), 14, "%v: %v", values, labels)
		}
		if !log || slices.ContainsFunc(ticks, func(v float64) bool { return !roundOnLog(v) }) {
			require.True(t, round(ticks), "%v: %v", values, ticks)
		}
	}
	inf, nan := math.Inf(1), math.NaN()
	for _, log := range []bool{false, true} {
		for _, values := range [][]float64{nil, {0}, {1}, {3, 3}, {-2, -2}, {nan}, {inf, -inf}, {nan, 4, inf, 5}, {-1e308, 1e308}, {5e-324, 1},
			{5e-324}, {1e308, math.MaxFloat64}, {1, 1 + 1e-15}, {1e9, 1e9 + 1}, {-7, -3}, {-1, 0}, {0, 0.3}, {0.1, 0.7}, {0, 1e-12}, {1e-12, 1},
			{1e-9, 2e-9}, {2.1, 4.9}, {1, 10}, {-1e-300, 1e-300}} {
			check(log, values...)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 3000 {
			low := r.NormFloat64() * math.Pow(10, r.Float64()*40-20)
			check(log, low, low+r.ExpFloat64()*math.Pow(10, r.Float64()*40-20))
			check(log, math.Exp(r.NormFloat64()*30), math.Exp(r.NormFloat64()*30))
		}
	}
}

func TestLabels_AsPeopleWriteThem(t *testing.T) {
	for _, c := range []struct {
		log    bool
		values []float64
		want   string
	}{
		{false, []float64{0, 1}, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{false, []float64{3, 187}, "50 100 150"},
		{false, []float64{0, 3e-7}, "0 1e-7 2e-7 3e-7"},
		{false, []float64{0, 4e6}, "0 1000000 2000000 3000000 4000000"},
		{false, []float64{-4.1, 4.1}, "-4 -2 0 2 4"},
		{true, []float64{1e-9, 10}, "1e-8 1e-6 0.0001 0.01 1"},
		{true, []float64{0.7, 12}, "1 2 5 10"},
	} {
		s := NewScale(c.values, 0, 1, c.log)
		require.Equal(t, c.want, strings.Join(s.Labels(s.Ticks()), " "))
	}
}
