package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var both = []Metric{{Name: "crash", Kind: Failure}, {Name: "cost", Unit: "m", Kind: Cost}, {Name: "way", Kind: Gain},
	{Name: "end", Kind: Neutral}}

// sample are n scenarios whose difficulty A and B share; B has its own noise, more failures and cost.
func sample(rng *rand.Rand, n int, failures, cost float64) (a, b [][]float64) {
	for range n {
		hard := rng.NormFloat64() * 3
		row := func(failures, cost float64) []float64 {
			crash := 0.0
			if rng.Float64() < failures {
				crash = 1
			}
			return []float64{crash, hard + rng.NormFloat64()*0.5 + cost, hard + rng.NormFloat64()*0.5, hard}
		}
		a, b = append(a, row(0.1, 0)), append(b, row(0.1+failures, cost))
	}
	return a, b
}

// TestCompare_FindsNothingWhereThereIsNothing: of 1,000 comparisons of equals, no more than alpha and three standard
// errors.
func TestCompare_FindsNothingWhereThereIsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	found := 0
	for range 1000 {
		a, b := sample(rng, 60, 0, 0)
		r, err := Compare(both, a, b, Options{Resamples: 50})
		require.NoError(t, err)
		if r.Verdict != NoDifference {
			found++
		}
	}
	t.Logf("%d of 1,000", found)
	require.Less(t, float64(found), 1000*0.05+3*math.Sqrt(1000*0.05*0.95))
	require.Positive(t, found, "a test that never errs finds nothing either")
}

// TestCompare_FindsWhatItSays: a difference of Detectable is found in about 80 of 100 comparisons.
func TestCompare_FindsWhatItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	a, b := sample(rng, 2000, 0, 0)
	r, err := Compare(both[1:2], only(a), only(b), Options{Resamples: 50})
	require.NoError(t, err)
	effect := *r.Metrics[0].Detectable * math.Sqrt(2000.0/60)
	found := 0
	for range 400 {
		a, b := sample(rng, 60, 0, effect)
		r, err := Compare(both[1:2], only(a), only(b), Options{Resamples: 50})
		require.NoError(t, err)
		if r.Verdict == Worse {
			found++
		}
	}
	t.Logf("an effect of %.3g: found in %d of 400", effect, found)
	require.InDelta(t, 0.8, float64(found)/400, 0.08)
}

// only is the second metric alone.
func only(rows [][]float64) (out [][]float64) {
	for _, row := range rows {
		out = append(out, row[1:2])
	}
	return out
}

func TestCompare_Verdicts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	a, b := sample(rng, 200, 0.3, 0.4)
	r, err := Compare(both, a, b, Options{Seed: 1})
	require.NoError(t, err)
	require.Equal(t, []Verdict{Worse, Worse, NoDifference, NotJudged}, verdicts(r))
	require.Equal(t, Worse, r.Verdict)
	require.Contains(t, r.Line, "B is worse in 200 pairs over 3 metrics: crash ")
	worst := r.Metrics[1].Regressions
	require.Len(t, worst, 10)
	for i, k := range worst {
		require.Positive(t, b[k][1]-a[k][1])
		if i > 0 {
			require.LessOrEqual(t, b[k][1]-a[k][1], b[worst[i-1]][1]-a[worst[i-1]][1])
		}
	}
	// Spread among scenarios is six times the effect: only pairs find it.
	require.Less(t, r.Metrics[1].Interval.High-r.Metrics[1].Interval.Low, 0.3)
	back, err := Compare(both, b, a, Options{Seed: 1})
	require.NoError(t, err)
	require.Equal(t, []Verdict{Better, Better, NoDifference, NotJudged}, verdicts(back))
	// What does not matter is no failure of B.
	r, err = Compare(both, a, b, Options{Seed: 1, Tolerance: 1e6})
	require.NoError(t, err)
	require.Equal(t, []Verdict{WithinTolerance, WithinTolerance, NoDifference, NotJudged}, verdicts(r))
	again, err := Compare(both, a, b, Options{Seed: 1, Tolerance: 1e6})
	require.NoError(t, err)
	require.Equal(t, r, again)
	same, err := Compare(both, a, a, Options{})
	require.NoError(t, err)
	require.Equal(t, NoDifference, same.Verdict)
	require.Equal(t, Interval{}, same.Metrics[1].Interval)
	require.Equal(t, 1.0, same.Metrics[1].P)
}

// TestCompare_DetectsNothingInTooFewPairs, which is no number: 0 would be the smallest of differences.
func TestCompare_DetectsNothingInTooFewPairs(t *testing.T) {
	for n, want := range map[int][3]bool{5: {}, 12: {true, true, false}, 60: {true, true, false}} {
		a, b := sample(rand.New(rand.NewPCG(4, 4)), n, 0.3, 0.4)
		for i := range a {
			b[i][2] = a[i][2] // no pair differs
		}
		r, err := Compare(both, a, b, Options{Resamples: 50})
		require.NoError(t, err)
		for k, c := range r.Metrics[:3] {
			require.Equal(t, want[k], c.Detectable != nil, "%s in %d pairs", c.Name, n)
			require.True(t, c.Detectable == nil || *c.Detectable > 0)
		}
		text, err := json.Marshal(r.Metrics[2])
		require.NoError(t, err)
		require.Contains(t, string(text), `"detectable":null`)
	}
}

// TestReport_ShowsWhatDiffers: a line that says worse has two numbers that differ.
func TestReport_ShowsWhatDiffers(t *testing.T) {
	var a, b [][]float64
	for i := range 30 {
		a, b = append(a, []float64{1.7}), append(b, []float64{1.70002 + 1e-6*float64(i)})
	}
	metrics := []Metric{{Name: "brake", Unit: "m/s²", Kind: Cost}}
	r, err := Compare(metrics, a, b, Options{})
	require.NoError(t, err)
	require.Contains(t, r.Line, "brake 1.7 → 1.70003 m/s² (p = ")
	for _, c := range []struct {
		a, b   float64
		digits int
		want   [2]string
	}{
		{1.7, 1.7, 3, [2]string{"1.7", "1.7"}}, {12.34, 12.36, 4, [2]string{"12.34", "12.36"}},
		{1.2345, 1.2346, 3, [2]string{"1.234", "1.235"}}, {0, 1e-9, 3, [2]string{"0", "1e-09"}},
		{816.04, 816.041, 3, [2]string{"816.04", "816.041"}}, {1, math.Nextafter(1, 2), 3, [2]string{"1", "1.0000000000000002"}},
	} {
		require.Equal(t, c.want, Distinct(c.a, c.b, c.digits))
	}
}

func verdicts(r *Report) (out []Verdict) {
	for _, m := range r.Metrics {
		out = append(out, m.Verdict)
	}
	return out
}

func TestCompare_RefusesWhatIsNoPair(t *testing.T) {
	ok := [][]float64{{0, 1, 2, 3}}
	for want, run := range map[string]func() (*Report, error){
		"there is no metric to compare": func() (*Report, error) {
			return Compare(nil, ok, ok, Options{})
		},
		"there is no scenario to compare": func() (*Report, error) {
			return Compare(both, nil, nil, Options{})
		},
		"A has 1 scenarios and B 2: run both on the same": func() (*Report, error) {
			return Compare(both, ok, append(ok, ok...), Options{})
		},
		"scenario 0 of B has 2 metrics, and none for way": func() (*Report, error) {
			return Compare(both, ok, [][]float64{{0, 1}}, Options{})
		},
		"metric cost of scenario 0 of A is NaN: bound it": func() (*Report, error) {
			return Compare(both, [][]float64{{0, math.NaN(), 2, 3}}, ok, Options{})
		},
		"metric crash of scenario 0 of B is 0.5: a failure is": func() (*Report, error) {
			return Compare(both, ok, [][]float64{{0.5, 1, 2, 3}}, Options{})
		},
		"metric crash is listed twice": func() (*Report, error) {
			return Compare([]Metric{both[0], both[0]}, ok, ok, Options{})
		},
		`metric x is of kind "z"`: func() (*Report, error) {
			return Compare([]Metric{{Name: "x", Kind: "z"}}, ok, ok, Options{})
		},
		"a tolerance of -1": func() (*Report, error) {
			return Compare(both, ok, ok, Options{Tolerance: -1})
		},
	} {
		_, err := run()
		require.ErrorContains(t, err, want)
	}
}
