package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// expected is what testdata/expected.py wrote.
type expected struct {
	Normal, Quantile, Binomial, McNemar, Rates, Paired, Power [][]float64
	Wilcoxon                                                  []struct {
		Differences []float64
		P           float64
		Exact       bool
	}
	Holm      [][][]float64
	Bootstrap []struct {
		Statistic       string
		X               []float64
		Seed            uint64
		Percentile, BCa []float64
	}
}

func oracle(t *testing.T) (e expected) {
	text, err := os.ReadFile("testdata/expected.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &e))
	return e
}

// near requires that got is want but for rounding, relative to want.
func near(t *testing.T, want, got, relative float64, of ...any) {
	t.Helper()
	require.LessOrEqual(t, math.Abs(got-want), relative*math.Abs(want), "%v: got %v, want %v", of, got, want)
}

func TestNormal_IsMpmaths(t *testing.T) {
	e := oracle(t)
	for _, row := range e.Normal {
		near(t, row[1], normalCDF(row[0]), 1e-13, row)
	}
	for _, row := range e.Quantile {
		require.InDelta(t, row[1], normalQuantile(row[0]), 1e-13*max(1, math.Abs(row[1])), row)
	}
	require.True(t, math.IsInf(normalQuantile(0), -1) && math.IsInf(normalQuantile(1), 1) &&
		math.IsNaN(normalCDF(math.NaN())))
}

func TestBinomialCDF_IsSciPys(t *testing.T) {
	for _, row := range oracle(t).Binomial {
		near(t, row[3], binomialCDF(int(row[0]), int(row[1]), row[2]), 1e-12, row)
	}
}

func TestMcNemar_IsSciPys(t *testing.T) {
	for _, row := range oracle(t).McNemar {
		exact, mid := McNemar(int(row[0]), int(row[1]))
		near(t, row[2], exact, 1e-12, row)
		near(t, row[3], mid, 1e-12, row)
	}
}

func TestClopperPearson_IsMpmaths(t *testing.T) {
	for _, row := range oracle(t).Rates {
		i, err := ClopperPearson(int(row[0]), int(row[1]), row[2])
		require.NoError(t, err)
		near(t, row[3], i.Low, 1e-11, row)
		near(t, row[4], i.High, 1e-11, row)
	}
}

// TestPairedRates_IsTheSearchedInterval compares with an interval whose constrained rates a minimiser found to about
// 1e-8.
func TestPairedRates_IsTheSearchedInterval(t *testing.T) {
	for _, row := range oracle(t).Paired {
		i, err := PairedRates(int(row[0]), int(row[1]), int(row[2]), row[3])
		require.NoError(t, err)
		require.InDelta(t, row[4], i.Low, 1e-7, row)
		require.InDelta(t, row[5], i.High, 1e-7, row)
		swapped, err := PairedRates(int(row[1]), int(row[0]), int(row[2]), row[3])
		require.NoError(t, err)
		require.InDelta(t, -i.High, swapped.Low, 1e-12, row)
	}
}

func TestWilcoxon_IsSciPys(t *testing.T) {
	for k, row := range oracle(t).Wilcoxon {
		r := Wilcoxon(row.Differences)
		require.Equal(t, row.Exact, r.Exact)
		near(t, row.P, r.P, 1e-12, k)
	}
}

func TestHolm_IsStatsmodels(t *testing.T) {
	for _, row := range oracle(t).Holm {
		adjusted, err := Holm(row[0])
		require.NoError(t, err)
		require.InDeltaSlice(t, row[1], adjusted, 1e-15)
	}
}

func TestBootstrap_IsSciPysWithTheSameResamples(t *testing.T) {
	for _, row := range oracle(t).Bootstrap {
		t.Run(fmt.Sprintf("%s of %d", row.Statistic, len(row.X)), func(t *testing.T) {
			o := Resampling{Alpha: 0.1, Resamples: 999, Seed: row.Seed}
			statistic := mean
			if row.Statistic == "median" {
				statistic = func(x []float64) float64 { return quantile(slices.Sorted(slices.Values(x)), 0.5) }
			}
			i, err := Bootstrap(row.X, statistic, o)
			require.NoError(t, err)
			require.InDeltaSlice(t, row.Percentile, []float64{i.Percentile.Low, i.Percentile.High}, 1e-12)
			require.InDeltaSlice(t, row.BCa, []float64{i.BCa.Low, i.BCa.High}, 1e-12)
			if row.Statistic == "mean" {
				m, err := BootstrapMean(row.X, o)
				require.NoError(t, err)
				require.InDeltaSlice(t, []float64{i.BCa.Low, i.BCa.High}, []float64{m.BCa.Low, m.BCa.High}, 1e-12)
			}
		})
	}
}

func TestMcNemarPower_IsTheSumOverOutcomes(t *testing.T) {
	for _, row := range oracle(t).Power {
		n := int(row[0])
		require.InDelta(t, row[4], mcnemarPower(n, row[1], row[2], criticalCounts(n, row[3])), 1e-12, row)
	}
}
