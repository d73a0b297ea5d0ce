package stats

import (
	"cmp"
	"math"
	"slices"
)

// exactPairs is the largest number of pairs for which Wilcoxon counts instead of approximating.
const exactPairs = 50

// SignedRank is the result of Wilcoxon.
type SignedRank struct {
	P                  float64 // two-sided
	Positive, Negative float64 // sums of the ranks of positive and of negative differences
	Exact              bool    // counted over all signs, not approximated
}

// Wilcoxon is the two-sided signed-rank test that differences are symmetric about 0 (Wilcoxon, Biometrics Bulletin 1,
// 1945). Zeros are left out before ranking, as there; equal sizes share the mean of their ranks. Up to 50 differences
// that are not zero, p is counted over all assignments of signs to the ranks, with ties as they are; above, it is a
// normal approximation whose variance, a quarter of the sum of squared ranks, accounts for ties, with a correction of
// one half for continuity. Without a difference p is 1.
func Wilcoxon(differences []float64) SignedRank {
	x := slices.DeleteFunc(slices.Clone(differences), func(d float64) bool { return d == 0 })
	slices.SortFunc(x, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	doubled := make([]int, len(x)) // twice the ranks: whole also where they are shared
	positive, negative := 0, 0
	for i := 0; i < len(x); {
		end := i + 1
		for end < len(x) && math.Abs(x[end]) == math.Abs(x[i]) {
			end++
		}
		rank := i + 1 + end // twice the mean of i+1 … end
		for ; i < end; i++ {
			doubled[i] = rank
			if x[i] > 0 {
				positive += rank
			} else {
				negative += rank
			}
		}
	}
	r := SignedRank{Positive: float64(positive) / 2, Negative: float64(negative) / 2, Exact: len(x) <= exactPairs}
	if r.Exact {
		r.P = min(1, 2*signShare(doubled, min(positive, negative)))
		return r
	}
	squares := 0.0
	for _, rank := range doubled {
		squares += float64(rank * rank)
	}
	// All of it doubled: the smaller sum is below the mean by half of what the sums differ by; the variance is Σ
	// rank²/4.
	z := (2 - math.Abs(float64(positive-negative))) / math.Sqrt(squares)
	r.P = min(1, 2*normalCDF(z))
	return r
}

// signShare is the share of assignments of signs to ranks in which the positive ones sum to at most limit. Its counts
// are below 2⁵³, and so exact, for up to 53 ranks.
func signShare(ranks []int, limit int) float64 {
	ways := make([]float64, limit+1) // to reach each sum
	ways[0] = 1
	for _, rank := range ranks {
		for sum := limit; sum >= rank; sum-- {
			ways[sum] += ways[sum-rank]
		}
	}
	total := 0.0
	for _, w := range ways {
		total += w
	}
	return math.Ldexp(total, -len(ranks))
}
