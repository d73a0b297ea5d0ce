package calibrate

import (
	"fmt"
	"math"
)

// Slice names a range of an output.
type Slice struct {
	Output string
	Name   string // "" for the whole output
	Start  int
	Stop   int
}

func (s Slice) String() string {
	if s.Name == "" {
		return s.Output
	}
	return s.Output + "." + s.Name
}

// Quality is how far a slice is from its reference over several inputs.
type Quality struct {
	Name      string  `json:"name"`
	Cosine    float64 `json:"cosine"`              // of a whole output: the least of any input; of a slice: of all inputs together
	MaxAbs    float64 `json:"max_abs"`             //
	RelL2     float64 `json:"rel_l2"`              // mean over the inputs
	Explained float64 `json:"variation_explained"` // 1 − Σ‖o−r‖²/Σ‖r−r̄‖² over the inputs; 0 if there is one input
	Elements  int     `json:"elements"`
	Constant  bool    `json:"constant,omitempty"` // the reference does not vary over the inputs: Explained says nothing
}

// Measure compares outputs with their reference, [input][element].
func Measure(s Slice, got, want [][]float64) (Quality, error) {
	if len(got) != len(want) {
		return Quality{}, fmt.Errorf("%v: %d runs, the reference has %d", s, len(got), len(want))
	}
	q := Quality{Name: s.String(), Cosine: 1, Elements: s.Stop - s.Start}
	mean := make([]float64, q.Elements)
	for _, w := range want {
		for i := range mean {
			mean[i] += w[s.Start+i] / float64(len(want))
		}
	}
	var all sums
	var vary float64
	for k := range want {
		var one sums
		for i := s.Start; i < s.Stop; i++ {
			g, w := got[k][i], want[k][i]
			one.add(g, w)
			q.MaxAbs = max(q.MaxAbs, math.Abs(g-w))
			d := w - mean[i-s.Start]
			vary += float64(d * d)
		}
		if s.Name == "" {
			q.Cosine = min(q.Cosine, one.cosine())
		}
		q.RelL2 += one.relative() / float64(len(want))
		all.join(one)
	}
	if s.Name != "" {
		q.Cosine = all.cosine()
	}
	if q.Constant = vary <= 1e-24*all.ww; !q.Constant {
		q.Explained = 1 - all.dd/vary
	}
	if math.IsNaN(q.Cosine) || math.IsNaN(q.RelL2) {
		q.Cosine = -1
	}
	return q, nil
}

type sums struct{ gg, ww, gw, dd float64 }

func (s *sums) add(g, w float64) {
	s.gg += float64(g * g)
	s.ww += float64(w * w)
	s.gw += float64(g * w)
	s.dd += float64((g - w) * (g - w))
}

func (s *sums) join(o sums) { s.gg, s.ww, s.gw, s.dd = s.gg+o.gg, s.ww+o.ww, s.gw+o.gw, s.dd+o.dd }

func (s *sums) cosine() float64 {
	switch {
	case s.gg == 0 && s.ww == 0:
		return 1
	case s.gg == 0 || s.ww == 0:
		return 0
	}
	return s.gw / (math.Sqrt(s.gg) * math.Sqrt(s.ww))
}

func (s *sums) relative() float64 {
	if s.ww == 0 {
		return math.Sqrt(s.dd)
	}
	return math.Sqrt(s.dd / s.ww)
}
