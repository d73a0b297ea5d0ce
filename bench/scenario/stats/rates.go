package stats

import (
	"fmt"
	"math"
)

// negligible is the share of a sum below which further terms are left out.
const negligible = 1e-18

// binomialCDF is the probability of at most k successes in n trials of probability p. It adds terms relative to the
// largest, all of them positive, so small tails keep about n units in the last place.
func binomialCDF(k, n int, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n || p <= 0:
		return 1
	case p >= 1:
		return 0
	}
	mode := min(int(float64(n+1)*p), n)
	odds := p / (1 - p)
	total, tail := 0.0, 0.0
	add := func(i int, w float64) bool {
		total += w
		if i <= k {
			tail += w
			return w > negligible*tail
		}
		return w > 0
	}
	w := 1.0
	for i := mode; i >= 0 && add(i, w); i-- {
		w = w * float64(i) / (float64(n-i+1) * odds)
	}
	w = 1.0
	for i := mode + 1; i <= n; i++ {
		w = w * float64(n-i+1) * odds / float64(i)
		if add(i, w); w <= negligible*total {
			break
		}
	}
	return tail / total
}

// ClopperPearson is the exact interval of confidence 1-alpha of a rate of which k of n trials succeeded (Clopper and
// Pearson, Biometrika 26, 1934): the rates at which as few, or as many, successes have probability alpha/2.
func ClopperPearson(k, n int, alpha float64) (Interval, error) {
	if n < 1 || k < 0 || k > n {
		return Interval{}, fmt.Errorf("a rate of %d of %d has no interval: it needs a trial, and 0 to all of them to succeed", k, n)
	}
	if err := checkAlpha(alpha); err != nil {
		return Interval{}, err
	}
	i := Interval{Low: 0, High: 1}
	if k > 0 {
		i.Low = bisect(0, 1, func(p float64) bool { return binomialCDF(n-k, n, 1-p) < alpha/2 })
	}
	if k < n {
		i.High = bisect(0, 1, func(p float64) bool { return binomialCDF(k, n, p) > alpha/2 })
	}
	return i, nil
}

// McNemar is the two-sided test that A and B fail equally often, from the pairs in which only one of them failed
// (McNemar, Psychometrika 12, 1947). The exact p-value is twice the binomial tail and never rejects too often; the
// mid-p value counts half of the observed outcome, and has more power (Fagerland, Lydersen and Laake, BMC Medical
// Research Methodology 13:91, 2013). Both are 1 without such pairs.
func McNemar(onlyA, onlyB int) (exact, mid float64) {
	n, few := onlyA+onlyB, min(onlyA, onlyB)
	tail, below := binomialCDF(few, n, 0.5), binomialCDF(few-1, n, 0.5)
	return min(1, 2*tail), min(1, tail+below)
}

// PairedRates is the score interval of confidence 1-alpha of the failure rate of B minus that of A, from n pairs of
// which onlyA and onlyB failed on one side alone (Tango, Statistics in Medicine 17, 1998). Unlike a bootstrap it has
// a width where no pair differs.
func PairedRates(onlyA, onlyB, n int, alpha float64) (Interval, error) {
	if n < 1 || onlyA < 0 || onlyB < 0 || onlyA+onlyB > n {
		return Interval{}, fmt.Errorf("%d and %d of %d pairs cannot differ: counts are at least 0 and at most all pairs", onlyA, onlyB, n)
	}
	if err := checkAlpha(alpha); err != nil {
		return Interval{}, err
	}
	z := normalQuantile(1 - float64(alpha/2))
	c, d, total := float64(onlyA), float64(onlyB), float64(n)
	// score is the difference from delta in standard errors, under the most likely rates that differ by delta.
	score := func(delta float64) float64 {
		off := d - c - float64(total*delta)
		linear := float64((float64(2*total)-d+c)*delta) - c - d
		root := math.Sqrt(max(0, float64(linear*linear)+float64(8*total*c*delta*(1-delta))))
		only := (root - linear) / (4 * total) // the rate at which A alone fails
		variance := total * (float64(2*only) + float64(delta*(1-delta)))
		switch {
		case off == 0:
			return 0
		case variance <= 0:
			return math.Copysign(math.Inf(1), off)
		}
		return off / math.Sqrt(variance)
	}
	i := Interval{Low: -1, High: 1}
	if onlyA < n {
		i.Low = bisect(-1, 1, func(delta float64) bool { return score(delta) > z })
	}
	if onlyB < n {
		i.High = bisect(-1, 1, func(delta float64) bool { return score(delta) > -z })
	}
	return i, nil
}
