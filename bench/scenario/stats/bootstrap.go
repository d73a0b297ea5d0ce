package stats

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Interval is a confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Intervals are those of one bootstrap.
type Intervals struct {
	Percentile Interval // quantiles of the resampled statistic
	BCa        Interval // the same, corrected for bias and skewness
}

// Resampling says how a bootstrap draws.
type Resampling struct {
	Alpha     float64 // 1 minus the confidence
	Resamples int
	Seed      uint64
}

// stream is the second word of the generator's seed, so that equal seeds elsewhere draw other numbers.
const stream = 0x73746174732e4142

// Bootstrap resamples x with replacement and returns intervals of a statistic of it: percentile, and bias-corrected
// and accelerated (Efron, "Better Bootstrap Confidence Intervals", JASA 82, 1987). For paired samples, x are the
// differences. The statistic must neither keep nor change its argument. It is called len(x)+o.Resamples+1 times.
// Where all resamples give one value, both intervals are that value.
func Bootstrap(x []float64, statistic func(x []float64) float64, o Resampling) (Intervals, error) {
	if err := o.check(x); err != nil {
		return Intervals{}, err
	}
	rest := make([]float64, len(x)-1)
	left := make([]float64, len(x))
	for i := range x {
		copy(rest, x[:i])
		copy(rest[i:], x[i+1:])
		if len(rest) > 0 {
			left[i] = statistic(rest)
		}
	}
	resample := make([]float64, len(x))
	return o.intervals(statistic(x), left, func(draw func() int) float64 {
		for i := range resample {
			resample[i] = x[draw()]
		}
		return statistic(resample)
	}, len(x))
}

// BootstrapMean is Bootstrap of the mean.
func BootstrapMean(x []float64, o Resampling) (Intervals, error) {
	if err := o.check(x); err != nil {
		return Intervals{}, err
	}
	m := mean(x)
	left := make([]float64, len(x))
	for i, v := range x {
		left[i] = -v // the mean without v, up to a shift and a positive scale, which acceleration cancels
	}
	return o.intervals(m, left, func(draw func() int) float64 {
		sum := 0.0
		for range x {
			sum += x[draw()]
		}
		return sum / float64(len(x))
	}, len(x))
}

func (o Resampling) check(x []float64) error {
	if len(x) == 0 {
		return fmt.Errorf("a bootstrap of no samples: give at least one")
	}
	if o.Resamples < 1 || o.Resamples > 1<<20 {
		return fmt.Errorf("%d resamples: a bootstrap takes 1 to %d of them", o.Resamples, 1<<20)
	}
	for i, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sample %d is %v: a bootstrap takes finite samples", i, v)
		}
	}
	return checkAlpha(o.Alpha)
}

// intervals draws the statistic with indexes below n. left are its values without each of the samples.
func (o Resampling) intervals(
	point float64, left []float64, one func(draw func() int) float64, n int,
) (Intervals, error) {
	g := rand.NewPCG(o.Seed, stream)
	draw := func() int { // biased by n/2⁶⁴
		high, _ := bits.Mul64(g.Uint64(), uint64(n))
		return int(high)
	}
	drawn := make([]float64, o.Resamples)
	low := 0.0 // resamples below the point, and half of those equal to it
	for i := range drawn {
		drawn[i] = one(draw)
		switch {
		case math.IsNaN(drawn[i]):
			return Intervals{}, fmt.Errorf("the statistic of a resample is NaN: a bootstrap needs one that all resamples have")
		case drawn[i] < point:
			low++
		case drawn[i] == point:
			low += 0.5
		}
	}
	slices.Sort(drawn)
	tail := float64(o.Alpha / 2)
	percentile := Interval{quantile(drawn, tail), quantile(drawn, 1-tail)}
	if drawn[0] == drawn[len(drawn)-1] {
		return Intervals{percentile, percentile}, nil
	}
	// A point beyond every resample has an infinite correction; one that is half a resample away from it has not.
	half := 0.5 / float64(o.Resamples)
	bias := normalQuantile(min(max(low/float64(o.Resamples), half), 1-half))
	a := acceleration(left)
	corrected := func(p float64) float64 {
		z := bias + normalQuantile(p)
		return quantile(drawn, normalCDF(bias+z/(1-float64(a*z))))
	}
	return Intervals{percentile, Interval{corrected(tail), corrected(1 - tail)}}, nil
}

// acceleration is the rate at which the standard error changes with the statistic, from its values without each of the
// samples (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, equation 14.15).
func acceleration(left []float64) float64 {
	m := mean(left)
	var squares, cubes float64
	for _, v := range left {
		d := m - v
		squares += float64(d * d)
		cubes += float64(d * d * d)
	}
	if squares == 0 {
		return 0
	}
	return cubes / (6 * squares * math.Sqrt(squares))
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// quantile interpolates between order statistics: definition 7 of Hyndman and Fan (The American Statistician 50,
// 1996), which is NumPy's default.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-1)
	if i == len(sorted)-1 {
		return sorted[i]
	}
	share := float64(at) - float64(i)
	return float64((1-share)*sorted[i]) + float64(share*sorted[i+1])
}

func checkAlpha(alpha float64) error {
	if !(alpha > 0 && alpha < 1) {
		return fmt.Errorf("alpha is %v: it is a probability of error, between 0 and 1, such as 0.05", alpha)
	}
	return nil
}
