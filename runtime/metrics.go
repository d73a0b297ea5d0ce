package runtime

import (
	"fmt"
	"math"
)

// Metrics measures how far an array is from its reference, in float64.
type Metrics struct {
	MaxAbs float64 `json:"max_abs"`
	Cosine float64 `json:"cosine"` // 1 if both are zero
	RelL2  float64 `json:"rel_l2"` // ‖got−want‖/‖want‖; the plain norm of got if want is zero
	Within float64 `json:"within"` // share of elements with |got−want| ≤ atol + rtol·|want|
}

// Compare measures got against want. Equal infinities, and NaN and NaN, count as equal; NaN or infinity against anything
// else sets every figure but Within to its worst value.
func Compare(got, want []float64, rtol, atol float64) (Metrics, error) {
	if len(got) != len(want) {
		return Metrics{}, fmt.Errorf("%d elements, but the reference has %d", len(got), len(want))
	}
	var m Metrics
	var gg, ww, gw, dd float64
	within, broken := 0, false
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			within++
			if math.IsNaN(g) || math.IsInf(g, 0) {
				continue
			}
		} else if d := math.Abs(g - w); math.IsNaN(d) || math.IsInf(d, 0) {
			broken = true
			continue
		} else {
			if d <= atol+float64(rtol*math.Abs(w)) {
				within++
			}
			m.MaxAbs = max(m.MaxAbs, d)
			dd += float64(d * d) // the conversion keeps Go from fusing a multiply-add, since this reaches a report
		}
		gg += float64(g * g)
		ww += float64(w * w)
		gw += float64(g * w)
	}
	m.Within = 1
	if len(want) > 0 {
		m.Within = float64(within) / float64(len(want))
	}
	switch {
	case broken:
		return Metrics{MaxAbs: math.Inf(1), Cosine: -1, RelL2: math.Inf(1), Within: m.Within}, nil
	case gg == 0 && ww == 0:
		m.Cosine = 1
	case gg > 0 && ww > 0:
		m.Cosine = gw / (math.Sqrt(gg) * math.Sqrt(ww))
	}
	m.RelL2 = math.Sqrt(dd)
	if ww > 0 {
		m.RelL2 /= math.Sqrt(ww)
	}
	return m, nil
}
