package bench

import (
	"cmp"
	"math"
	"slices"
)

// exactLimit is the largest total number of samples for which MannWhitney counts instead of approximating.
const exactLimit = 40

// MannWhitney is the two-sided Mann–Whitney U test (Mann and Whitney 1947): the probability that two sets of samples from
// the same distribution differ in rank at least as much as these do. It makes no assumption about the distribution, since
// latencies are not normally distributed. With few samples and no ties it counts; otherwise it uses the normal approximation with
// corrections for ties and continuity. It is 1 if either side is empty.
func MannWhitney(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	u, ties := rankSum(a, b)
	if ties == 0 && len(a)+len(b) <= exactLimit {
		return exact(len(a), len(b), u)
	}
	return approximate(float64(len(a)), float64(len(b)), u, ties)
}

// approximate is the probability under a normal distribution of U.
func approximate(n, m, u, ties float64) float64 {
	total := n + m
	variance := n * m / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return 1
	}
	z := (math.Abs(u-n*m/2) - .5) / math.Sqrt(variance)
	return min(1, math.Erfc(max(z, 0)/math.Sqrt2))
}

// Spearman is the rank correlation of pairs (Spearman 1904), equal values sharing the mean of their ranks: 1 if both sides have the same
// order. It is 0 where all of one side are equal.
func Spearman(a, b []float64) float64 {
	x, y := ranks(a), ranks(b)
	mean := float64(len(x)+1) / 2
	var xy, xx, yy float64
	for i := range x {
		xy, xx, yy = xy+(x[i]-mean)*(y[i]-mean), xx+(x[i]-mean)*(x[i]-mean), yy+(y[i]-mean)*(y[i]-mean)
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}

// ranks are the places of values in their order, from 1.
func ranks(a []float64) []float64 {
	order := make([]int, len(a))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(a[i], a[j]) })
	out := make([]float64, len(a))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && a[order[j]] == a[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j+1) / 2
		}
		i = j
	}
	return out
}

// rankSum returns the U statistic of a, and the sum of t³−t over groups of t equal samples.
func rankSum(a, b []float64) (u, ties float64) {
	type sample struct {
		value float64
		first bool
	}
	var all []sample
	for _, x := range a {
		all = append(all, sample{x, true})
	}
	for _, x := range b {
		all = append(all, sample{x, false})
	}
	slices.SortFunc(all, func(p, q sample) int { return cmp.Compare(p.value, q.value) })
	var ranks float64
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].value == all[i].value {
			j++
		}
		t := float64(j - i)
		ties += t*t*t - t
		for k := i; k < j; k++ {
			if all[k].first {
				ranks += float64(i+j+1) / 2
			}
		}
		i = j
	}
	n := float64(len(a))
	return ranks - n*(n+1)/2, ties
}

// exact is the two-sided probability of a U at least as far from its mean, counted over all arrangements of n and m samples.
func exact(n, m int, u float64) float64 {
	u = min(u, float64(n*m)-u)
	// counts[i][v] is the number of ways to choose i of the samples so far with a U of v.
	counts := make([][]float64, n+1)
	for i := range counts {
		counts[i] = make([]float64, n*m+1)
	}
	counts[0][0] = 1
	for k := 1; k <= n+m; k++ { // if the k-th smallest sample is the i-th of the first set, it beats k−i of the second
		for i := min(k, n); i >= 1; i-- {
			beaten := k - i
			if beaten > m {
				continue
			}
			for v := n * m; v >= beaten; v-- {
				counts[i][v] += counts[i-1][v-beaten]
			}
		}
	}
	var below, all float64
	for v, c := range counts[n] {
		all += c
		if float64(v) <= u {
			below += c
		}
	}
	return min(1, 2*below/all)
}
