package stats

import "math"

// DetectableCost is the smallest mean difference that Wilcoxon finds in n pairs at level alpha with the given power,
// where differences are normal with standard deviation sd: (z₁₋α⸝₂ + z_power)·sd/√(n·3/π), 3/π being the efficiency
// of the test against the t test (Hodges and Lehmann, Annals of Mathematical Statistics 27, 1956, who also show that
// it is at least 0.864 for any distribution). It is 0 if n is too small to reject at all.
func DetectableCost(n int, sd, alpha, power float64) float64 {
	if n < 1 || math.Ldexp(1, 1-n) > alpha { // all n differences on one side
		return 0
	}
	return (normalQuantile(1-float64(alpha/2)) + normalQuantile(power)) * sd / math.Sqrt(float64(n)*3/math.Pi)
}

// DetectableRate is the smallest difference of failure rates that the exact test of McNemar finds in n pairs at level
// alpha with the given power, where a share of the pairs fails on one side only: discordant of them, or the
// difference itself if that is more. The power is computed from the distribution of those pairs, not approximated
// (Duffy, Biometrics 40, 1984). It is 0 if no difference has that power.
func DetectableRate(n int, discordant, alpha, power float64) float64 {
	critical := criticalCounts(n, alpha)
	found := func(delta float64) float64 { return mcnemarPower(n, max(discordant, delta), delta, critical) }
	if found(1) < power {
		return 0
	}
	return bisect(0, 1, func(delta float64) bool { return found(delta) < power })
}

// criticalCounts are, for each number of discordant pairs up to n, the largest count of the rarer kind at which McNemar
// rejects; -1 if it never does.
func criticalCounts(n int, alpha float64) []int {
	c := make([]int, n+1)
	c[0] = -1
	for m := 1; m <= n; m++ { // one more pair moves the count by 0 or 1
		c[m] = c[m-1]
		if 2*binomialCDF(c[m]+1, m, 0.5) <= alpha {
			c[m]++
		}
	}
	return c
}

// mcnemarPower is the probability that McNemar rejects, in either direction, where a share of n pairs is discordant
// and the rates differ by delta.
func mcnemarPower(n int, share, delta float64, critical []int) float64 {
	b := float64((1 + delta/share) / 2) // of discordant pairs, those in which B alone fails
	mode := min(int(float64(n+1)*share), n)
	total, found := 0.0, 0.0
	add := func(m int, w float64) bool {
		total += w
		if c := critical[m]; c >= 0 {
			found += float64(w * (binomialCDF(c, m, 1-b) + binomialCDF(c, m, b)))
		}
		return w > negligible*total
	}
	if share >= 1 {
		add(n, 1)
		return found
	}
	odds := share / (1 - share)
	w := 1.0
	for m := mode; m >= 0 && add(m, w); m-- {
		w = w * float64(m) / (float64(n-m+1) * odds)
	}
	w = 1.0
	for m := mode + 1; m <= n; m++ {
		w = w * float64(n-m+1) * odds / float64(m)
		if !add(m, w) {
			break
		}
	}
	return found / total
}
