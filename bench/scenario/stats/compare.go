package stats

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Kind says how the values of a metric are judged.
type Kind string

const (
	Cost    Kind = "cost"    // lower is better
	Gain    Kind = "gain"    // higher is better
	Failure Kind = "failure" // 1 failed, 0 passed
	Neutral Kind = "neutral" // described, not judged
)

// Metric is one number of each scenario.
type Metric struct {
	Name      string  `json:"name"`
	Unit      string  `json:"unit,omitzero"`
	Kind      Kind    `json:"kind"`
	Tolerance float64 `json:"tolerance,omitzero"` // in Unit, or of the rate of failures; 0: Options.Tolerance
}

// Verdict is what a comparison finds of B.
type Verdict string

const (
	Better          Verdict = "better"
	Worse           Verdict = "worse"
	NoDifference    Verdict = "no difference found"
	WithinTolerance Verdict = "within tolerance" // a difference was found, but none that matters
	Mixed           Verdict = "mixed"            // most scenarios changed one way, the mean the other way
	NotJudged       Verdict = "not judged"       // neutral
)

// Options of Compare. A zero field but Tolerance and Seed takes the default named.
type Options struct {
	Alpha     float64 // probability of any false finding over all metrics, and 1 minus the confidence of each interval: 0.05
	Power     float64 // at which Detectable is stated: 0.8
	Tolerance float64 // difference that does not matter: of the rate of failures, and as a share of A's mean of costs and gains
	Resamples int     // of the bootstrap: 2000
	Worst     int     // most Regressions of a metric: 10
	Seed      uint64  // of the bootstrap
}

// QuantileLevels are those of Side.Quantiles.
var QuantileLevels = [5]float64{0.05, 0.25, 0.5, 0.75, 0.95}

// Side is what one algorithm did in all scenarios.
type Side struct {
	Mean      float64   `json:"mean"`               // of failures: their rate
	Interval  *Interval `json:"interval,omitempty"` // of the rate of failures: ClopperPearson
	Worst     float64   `json:"worst"`              // the largest, of a gain the smallest; of failures: 1 if there are any
	Quantiles []float64 `json:"quantiles,omitempty"`
}

// Comparison is that of one metric.
type Comparison struct {
	Metric
	A           Side     `json:"a"`
	B           Side     `json:"b"`
	Difference  float64  `json:"difference"`            // mean of B minus mean of A
	Interval    Interval `json:"interval"`              // of Difference: BCa; of failures: PairedRates
	Test        string   `json:"test,omitzero"`         // that P comes from
	P           float64  `json:"p"`                     // two-sided, of this metric alone
	Adjusted    float64  `json:"p_adjusted"`            // Holm over the metrics that are judged
	Detectable  *float64 `json:"detectable"`            // smallest difference found with Options.Power; nil: none, or no pair differs
	Verdict     Verdict  `json:"verdict"`               // worse and better only if Adjusted ≤ Alpha and beyond the tolerance
	Regressions []int    `json:"regressions,omitempty"` // scenarios in which B is worse than A, the largest difference first
}

// MarshalJSON writes null for the p values of a metric that was not tested.
func (c Comparison) MarshalJSON() ([]byte, error) {
	type plain Comparison
	out := struct {
		plain
		P        *float64 `json:"p"`
		Adjusted *float64 `json:"p_adjusted"`
	}{plain: plain(c)}
	if c.Test != "" {
		out.P, out.Adjusted = &c.P, &c.Adjusted
	}
	return json.Marshal(out)
}

// Report is what Compare returns.
type Report struct {
	Pairs   int          `json:"pairs"`
	Alpha   float64      `json:"alpha"`
	Power   float64      `json:"power"`
	Metrics []Comparison `json:"metrics"`
	Verdict Verdict      `json:"verdict"` // Worse if any metric is
	Line    string       `json:"line"`    // the verdict in English
}

// Compare compares algorithm B with A. a[i] and b[i] are the metrics of the same scenario with the same seed, in the
// order of metrics. Failures are tested by McNemar's exact test, costs and gains by Wilcoxon, both on the paired
// differences, and Holm adjusts over all of them. Detectable is stated for the first step of Holm, at which alpha is
// shared by all metrics.
//
// It takes finite values alone: a scenario that diverged is a failure, whose other metrics need bounds. Where all
// pairs are equal, p is 1 and the interval of costs is 0.
func Compare(metrics []Metric, a, b [][]float64, o Options) (*Report, error) {
	o.Alpha = cmp.Or(o.Alpha, 0.05)
	o.Power = cmp.Or(o.Power, 0.8)
	o.Resamples = cmp.Or(o.Resamples, 2000)
	o.Worst = cmp.Or(o.Worst, 10)
	if err := o.check(metrics, a, b); err != nil {
		return nil, err
	}
	r := &Report{Pairs: len(a), Alpha: o.Alpha, Power: o.Power}
	judged := 0
	for _, m := range metrics {
		if m.Kind != Neutral {
			judged++
		}
	}
	var p []float64
	ranks := make([]float64, len(metrics)) // signed rank sum of B minus A
	for k, m := range metrics {
		x, err := columns(m, k, a, b)
		if err != nil {
			return nil, err
		}
		c, rank, err := o.compare(m, x, o.Alpha/float64(max(judged, 1)))
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", m.Name, err)
		}
		ranks[k] = rank
		if m.Kind != Neutral {
			p = append(p, c.P)
		}
		r.Metrics = append(r.Metrics, c)
	}
	adjusted, err := Holm(p)
	if err != nil {
		return nil, err
	}
	for k := range r.Metrics {
		c := &r.Metrics[k]
		c.Verdict = NotJudged
		if c.Kind != Neutral {
			c.Adjusted, adjusted = adjusted[0], adjusted[1:]
			c.Verdict = o.verdict(c, ranks[k])
		}
	}
	r.Verdict, r.Line = conclude(r)
	return r, nil
}

func (o Options) check(metrics []Metric, a, b [][]float64) error {
	switch {
	case len(metrics) == 0:
		return errors.New("there is no metric to compare")
	case len(a) != len(b):
		return fmt.Errorf("A has %d scenarios and B %d: run both on the same scenarios and seeds", len(a), len(b))
	case len(a) == 0:
		return errors.New("there is no scenario to compare")
	case !(o.Power > 0 && o.Power < 1):
		return fmt.Errorf("power is %v: it is a probability, between 0 and 1, such as 0.8", o.Power)
	case o.Worst < 0:
		return fmt.Errorf("the worst %d regressions cannot be listed: ask for at least 1", o.Worst)
	}
	if err := checkTolerance(o.Tolerance); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, m := range metrics {
		if names[m.Name] {
			return fmt.Errorf("metric %s is listed twice", m.Name)
		}
		names[m.Name] = true
		if !slices.Contains([]Kind{Cost, Gain, Failure, Neutral}, m.Kind) {
			return fmt.Errorf("metric %s is of kind %q: kinds are cost, gain, failure and neutral", m.Name, m.Kind)
		}
		if err := checkTolerance(m.Tolerance); err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
	}
	return checkAlpha(o.Alpha)
}

func checkTolerance(t float64) error {
	if !(t >= 0 && t <= math.MaxFloat64) {
		return fmt.Errorf("a tolerance of %v: it is a finite number, at least 0", t)
	}
	return nil
}

// pairs are the values of one metric, and B minus A.
type pairs struct{ a, b, difference []float64 }

func columns(m Metric, k int, a, b [][]float64) (pairs, error) {
	x := pairs{make([]float64, len(a)), make([]float64, len(a)), make([]float64, len(a))}
	for i := range a {
		for _, side := range []struct {
			name     string
			from, to []float64
		}{{"A", a[i], x.a}, {"B", b[i], x.b}} {
			if k >= len(side.from) {
				return x, fmt.Errorf("scenario %d of %s has %d metrics, and none for %s", i, side.name,
					len(side.from), m.Name)
			}
			v := side.from[k]
			switch {
			case math.IsNaN(v) || math.IsInf(v, 0):
				return x, fmt.Errorf("metric %s of scenario %d of %s is %v: bound it, and count the scenario as a failure",
					m.Name, i, side.name, v)
			case m.Kind == Failure && v != 0 && v != 1:
				return x, fmt.Errorf("metric %s of scenario %d of %s is %v: a failure is 0 or 1", m.Name, i,
					side.name, v)
			}
			side.to[i] = v
		}
		x.difference[i] = x.b[i] - x.a[i]
		if math.IsInf(x.difference[i], 0) {
			return x, fmt.Errorf("metric %s of scenario %d differs by more than a float64 holds: bound it", m.Name, i)
		}
	}
	return x, nil
}

// compare fills all of a comparison but what depends on other metrics. alpha is that of Detectable. The second result
// is the signed rank sum, or for failures the pairs in which B alone failed minus those in which A did.
func (o Options) compare(m Metric, x pairs, alpha float64) (Comparison, float64, error) {
	c := Comparison{Metric: m, A: m.side(x.a), B: m.side(x.b), Difference: mean(x.difference)}
	c.Regressions = m.regressions(x.difference, o.Worst)
	n := len(x.difference)
	if m.Kind == Failure {
		var failed, only [2]int // of A, of B
		for i, d := range x.difference {
			failed[0] += int(x.a[i])
			failed[1] += int(x.b[i])
			only[0] += int(max(0, -d))
			only[1] += int(max(0, d))
		}
		for k, s := range []*Side{&c.A, &c.B} {
			i, err := ClopperPearson(failed[k], n, o.Alpha)
			if err != nil {
				return c, 0, err
			}
			s.Interval = &i
		}
		var err error
		c.Interval, err = PairedRates(only[0], only[1], n, o.Alpha)
		c.P, _ = McNemar(only[0], only[1])
		c.Test = "McNemar, exact"
		c.Detectable = some(DetectableRate(n, float64(only[0]+only[1])/float64(n), alpha, o.Power))
		return c, float64(only[1] - only[0]), err
	}
	both, err := BootstrapMean(x.difference, Resampling{Alpha: o.Alpha, Resamples: o.Resamples, Seed: o.Seed})
	c.Interval = both.BCa
	if m.Kind == Neutral {
		return c, 0, err
	}
	w := Wilcoxon(x.difference)
	c.P, c.Test = w.P, "Wilcoxon, normal approximation"
	if w.Exact {
		c.Test = "Wilcoxon, exact"
	}
	c.Detectable = some(DetectableCost(n, deviation(x.difference), alpha, o.Power))
	return c, w.Positive - w.Negative, err
}

// some is a difference; nil for 0, which none is.
func some(difference float64) *float64 {
	if difference == 0 {
		return nil
	}
	return &difference
}

func (m Metric) side(values []float64) Side {
	s := Side{Mean: mean(values), Worst: slices.Max(values)}
	if m.Kind == Gain {
		s.Worst = slices.Min(values)
	}
	if m.Kind != Failure {
		sorted := slices.Sorted(slices.Values(values))
		for _, level := range QuantileLevels {
			s.Quantiles = append(s.Quantiles, quantile(sorted, level))
		}
	}
	return s
}

// regressions are up to most indexes of differences for the worse, the largest first.
func (m Metric) regressions(difference []float64, most int) []int {
	if m.Kind == Neutral {
		return nil
	}
	var at []int
	for i, d := range difference {
		if m.worsening(d) > 0 {
			at = append(at, i)
		}
	}
	slices.SortStableFunc(at, func(i, j int) int {
		return cmp.Compare(m.worsening(difference[j]), m.worsening(difference[i]))
	})
	return slices.Clone(at[:min(most, len(at))])
}

// worsening is a difference, positive where B is worse.
func (m Metric) worsening(difference float64) float64 {
	if m.Kind == Gain {
		return -difference
	}
	return difference
}

// deviation is the sample standard deviation, 0 for one value.
func deviation(x []float64) float64 {
	if len(x) < 2 {
		return 0
	}
	m, squares := mean(x), 0.0
	for _, v := range x {
		squares += float64((v - m) * (v - m))
	}
	return math.Sqrt(squares / float64(len(x)-1))
}

// verdict judges a comparison whose ranks say that B is larger, by their sign.
func (o Options) verdict(c *Comparison, ranks float64) Verdict {
	limit := o.Tolerance
	switch {
	case c.Tolerance > 0:
		limit = c.Tolerance
	case c.Kind != Failure:
		limit *= math.Abs(c.A.Mean)
	}
	switch {
	case c.Adjusted > o.Alpha:
		return NoDifference
	case limit > 0 && math.Abs(c.Difference) <= limit:
		return WithinTolerance
	case c.Difference*ranks <= 0:
		return Mixed
	case c.worsening(c.Difference) > 0:
		return Worse
	}
	return Better
}
