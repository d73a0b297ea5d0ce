package gputest

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// Rule is how near the results of two devices must be. The zero Rule asks for equal bits.
type Rule struct {
	// Float is the type of the elements if they are floats: f16, bf16, f32 or f64. Then NaNs are equal whatever their
	// payload, which the ISA leaves open for most instructions; everything else is compared bit for bit.
	Float string
	// Relative and Absolute bound the difference of f32 results of approximate functions: |a-b| ≤ Relative·|b| + Absolute.
	Relative, Absolute float64
	// Measured results are not compared: what they say of the device is read from them (accumulator_test.go).
	Measured bool
	// Terms is the number of terms of an mma's sum, 0 for other instructions. See the bound in Rule.compare.
	Terms int
	Unit  float64 // of each term's error, relative to the sum of their magnitudes
}

// exact reports whether only equal bits, or two NaNs, pass.
func (r Rule) exact() bool { return r.Relative == 0 && r.Absolute == 0 && r.Terms == 0 }

func (r Rule) size() int {
	switch r.Float {
	case "f16", "bf16":
		return 2
	case "f32":
		return 4
	case "f64":
		return 8
	}
	return 1
}

// maxReported is the number of differences that an error lists.
const maxReported = 5

// compare returns nil if got is as near to want as the rule demands. scale is the sum of the magnitudes of the terms of each
// result, for an mma.
//
// An mma's products are exact. Tensor cores add them in an order of their own, aligned to the largest and cut off below
// its last places, so each of the terms, the accumulator and the final rounding among them, is off by at most one unit
// at the scale of the sum of magnitudes: |a-b| ≤ (Terms+2)·Unit·scale. Unit is f32's 2^-23 for 16-bit types. For 8-bit
// and 4-bit floats it is 2^-13, since tensor cores are reported to keep only 14 bits of their sums; what a GPU really
// does is seen in its recording. An element in the wrong lane differs by far more than that, and small
// integers are summed exactly either way.
func (r Rule) compare(got, want, scale []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes, want %d", len(got), len(want))
	}
	if r.Measured {
		return nil
	}
	size := r.size()
	g, w := unpack(size, got), unpack(size, want)
	var s []uint64
	if r.Terms > 0 {
		if len(scale) != len(want) {
			return fmt.Errorf("scale of %d bytes, want %d", len(scale), len(want))
		}
		s = unpack(size, scale)
	}
	var wrong []string
	count := 0
	for i := range w {
		var bound float64
		switch {
		case r.Terms > 0:
			bound = float64(r.Terms+2) * r.Unit * float("f32", s[i])
		case !r.exact():
			bound = r.Relative*math.Abs(float("f32", w[i])) + r.Absolute
		}
		if g[i] == w[i] || r.Float != "" && near(float(r.Float, g[i]), float(r.Float, w[i]), bound, r.exact()) {
			continue
		}
		if count++; count > maxReported {
			continue
		}
		if r.Float == "" {
			wrong = append(wrong, fmt.Sprintf("byte %d: %#02x, want %#02x", i, g[i], w[i]))
		} else {
			wrong = append(wrong, fmt.Sprintf("element %d: %v (%#x), want %v (%#x)", i, float(r.Float, g[i]), g[i], float(r.Float, w[i]), w[i]))
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d differ: %s", count, len(w), strings.Join(wrong, "; "))
}

// near compares two floats whose bits differ.
func near(got, want, bound float64, exact bool) bool {
	switch {
	case math.IsNaN(got) || math.IsNaN(want):
		return math.IsNaN(got) && math.IsNaN(want)
	case exact || math.IsInf(got, 0) || math.IsInf(want, 0):
		return false
	}
	return math.Abs(got-want) <= bound
}

// float is the value of an element's bits.
func float(typ string, bits uint64) float64 {
	switch typ {
	case "f16":
		return minifloat.Float16.Decode(uint32(bits))
	case "bf16":
		return minifloat.BFloat16.Decode(uint32(bits))
	case "f32":
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}
