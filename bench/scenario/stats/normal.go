package stats

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// normalCDF is the probability that a standard normal variable is at most z. It sums the series of Marsaglia,
// "Evaluating the Normal Distribution" (Journal of Statistical Software 11(4), 2004), and in the tails evaluates
// Laplace's continued fraction, which keeps the relative accuracy of small probabilities: 1e-13 down to 1e-300.
func normalCDF(z float64) float64 {
	switch {
	case math.IsNaN(z):
		return z
	case z > 2:
		return 1 - normalCDF(-z)
	}
	density := ir.Exp(float64(-z*z/2)) / math.Sqrt(2*math.Pi)
	if z < -2 {
		f := -z
		for k := 200.0; k >= 1; k-- {
			f = -z + k/f
		}
		return density / f
	}
	sum, term := z, z
	for i := 3.0; ; i += 2 {
		term = term * z * z / i
		if sum+term == sum {
			return 0.5 + float64(density*sum)
		}
		sum += term
	}
}

// normalQuantile is the z whose normalCDF is p: -Inf for 0, +Inf for 1.
func normalQuantile(p float64) float64 {
	switch {
	case p <= 0:
		return math.Inf(-1)
	case p >= 1:
		return math.Inf(1)
	case p > 0.5:
		return -normalQuantile(1 - p)
	}
	return bisect(-40, 0, func(z float64) bool { return normalCDF(z) < p })
}

// bisect is the end of the part of [low, high] in which below holds, to the last bit.
func bisect(low, high float64, below func(x float64) bool) float64 {
	for {
		middle := low + float64((high-low)/2)
		if middle <= low || middle >= high {
			return high
		}
		if below(middle) {
			low = middle
		} else {
			high = middle
		}
	}
}
