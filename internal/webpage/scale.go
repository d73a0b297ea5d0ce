package webpage

import (
	"math"
	"strconv"
	"strings"
)

// Scale maps values to pixels.
type Scale struct {
	Low, High, From, To float64
	Log                 bool
}

// Values beyond these bounds are drawn at them, so that sums and quotients stay finite.
const largest, smallest = 1e290, 1e-290

// narrowest is the smallest span of an axis relative to its values: labels of a narrower one would have too many digits.
const narrowest = 1e-6

// NewScale spans the finite values between two pixels; a logarithmic one spans the positive values.
func NewScale(values []float64, from, to float64, log bool) Scale {
	s := Scale{Low: math.Inf(1), High: math.Inf(-1), From: from, To: to, Log: log}
	for _, v := range values {
		if !finite(v) || log && v <= 0 {
			continue
		}
		v = min(max(v, -largest), largest)
		if math.Abs(v) < smallest {
			v = 0
			if log {
				v = smallest
			}
		}
		s.Low, s.High = min(s.Low, v), max(s.High, v)
	}
	switch middle := s.Low/2 + s.High/2; {
	case s.Low > s.High:
		s.Low, s.High = 0, 1
		if log {
			s.Low = 0.1
		}
	case s.High-s.Low > narrowest*max(math.Abs(s.Low), math.Abs(s.High)):
	case middle == 0:
		s.High = 1
	default:
		s.Low, s.High = middle-math.Abs(middle)/10, middle+math.Abs(middle)/10
	}
	return s
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// At is the pixel of a value.
func (s Scale) At(v float64) float64 {
	low, high := s.Low, s.High
	if s.Log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return s.From + (v-low)/(high-low)*(s.To-s.From)
}

// mostTicks is how many ticks an axis has at most; it has at least two.
const mostTicks = 6

// Ticks are round numbers on the axis: multiples of 1, 2 or 5 times a power of ten. On a logarithmic axis they are 1, 2 and 5 times
// powers of ten, powers of ten alone where those are many, or multiples where they are less than two.
func (s Scale) Ticks() []float64 {
	if s.Log {
		if t := s.logTicks(); len(t) >= 2 {
			return t
		}
	}
	exponent := int(math.Floor(math.Log10((s.High-s.Low)/mostTicks))) - 1
	for ; ; exponent++ {
		for _, mantissa := range []float64{1, 2, 5} {
			step := decimal(mantissa, exponent)
			first, last := math.Floor(s.Low/step), math.Ceil(s.High/step)
			if last-first > mostTicks+2 {
				continue
			}
			var t []float64
			for i := first; i <= last; i++ {
				t = s.append(t, decimal(i*mantissa, exponent))
			}
			if len(t) <= mostTicks {
				return t
			}
		}
	}
}

func (s Scale) logTicks() []float64 {
	low, high := int(math.Floor(math.Log10(s.Low))), int(math.Ceil(math.Log10(s.High)))
	if high-low <= mostTicks {
		var t []float64
		for exponent := low; exponent <= high; exponent++ {
			for _, mantissa := range []float64{1, 2, 5} {
				t = s.append(t, decimal(mantissa, exponent))
			}
		}
		if len(t) <= mostTicks {
			return t
		}
	}
	for every := 1; ; every++ {
		var t []float64
		for exponent := low; exponent <= high; exponent++ {
			if exponent%every == 0 {
				t = s.append(t, decimal(1, exponent))
			}
		}
		if len(t) <= mostTicks {
			return t
		}
	}
}

func (s Scale) append(ticks []float64, v float64) []float64 {
	if s.Low <= v && v <= s.High {
		ticks = append(ticks, v)
	}
	return ticks
}

// decimal is the number nearest to mantissa · 10^exponent.
func decimal(mantissa float64, exponent int) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(mantissa, 'f', -1, 64)+"e"+strconv.Itoa(exponent), 64)
	return v
}

// Labels writes ticks; on a linear axis all with the same number of decimals.
func (s Scale) Labels(ticks []float64) []string {
	out, decimals, plain := make([]string, len(ticks)), 0, true
	for i, v := range ticks {
		out[i] = strconv.FormatFloat(v, 'f', -1, 64)
		_, fraction, _ := strings.Cut(out[i], ".")
		decimals = max(decimals, len(fraction))
		plain = plain && len(strings.TrimPrefix(out[i], "-")) <= 9 && len(fraction) <= 6
	}
	for i, v := range ticks {
		switch {
		case s.Log && len(out[i]) <= 6: // as it is
		case plain && !s.Log:
			out[i] = strconv.FormatFloat(v, 'f', decimals, 64)
		case v != 0:
			out[i] = scientific(v)
		}
	}
	return out
}

// scientific writes 1e-5 for 1e-05, and 2e6 for 2e+06.
func scientific(v float64) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	if exponent == "+00" {
		return mantissa
	}
	sign := strings.TrimPrefix(exponent[:1], "+")
	return mantissa + "e" + sign + strings.TrimLeft(exponent[1:], "0")
}
