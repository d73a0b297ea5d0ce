package calibrate

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/runtime"
)

// Slice is a named range of an output's elements.
type Slice struct {
	Output        string
	runtime.Slice // Name "" is the whole output
}

func (s Slice) String() string {
	if s.Name == "" {
		return s.Output
	}
	return s.Output + "." + s.Name
}

// fewElements is the number of elements below which the cosine of a single input says little: of one element it is 1 or −1.
const fewElements = 4

// Definitions says how each figure of a Quality is made, by the name that it has in a report.
func Definitions() map[string]string {
	return map[string]string{
		"cosine":              fmt.Sprintf("the lowest cosine of any input, of an output or slice; of fewer than %d elements over all inputs together (pooled)", fewElements),
		"expected":            fmt.Sprintf("the cosine that other inputs of the same kind are expected to keep: the mean of log10(1 - cosine) of a set plus %g standard deviations, those within all sets together with %g inputs of %g, times the square root of 1 + 1/n for the set's n inputs; or the cosine itself where that is lower, pooled, or of perturbed inputs", sigmas, usualWeight, usualSpread),
		"max_abs":             "the greatest absolute difference of any element on any input",
		"rel_l2":              "norm of the difference divided by the norm of the reference, mean over the inputs",
		"variation_explained": "1 - sum of |output - reference|^2 / sum of |reference - its mean over the inputs|^2",
		"perturbed":           "inputs made from the calibration inputs: light, contrast, shift, noise, cut-outs and blur of images, scale and noise of others; another draw than the one that the program is fitted to",
		"reference":           "what outputs are compared with: the file evaluated in float64 on every input, or, where that would take long, on the first and the last input alone, and computed in fp32 on the others",
		"fp32_rel_l2":         "norm of the difference of outputs in fp32 from float64 divided by the norm of float64, the greatest of any output or slice on those two inputs; if rel_l2 of an output or slice on a set is not 100 times that, all inputs are evaluated in float64",
		"budget":              "for each output and slice, the set of inputs on which its cosine is lowest; sets in_sample are those that the program is fitted to. A program with layers in a precision that calibrates keeps the budget by its expected cosines too",
	}
}

// Quality measures how far a slice is from its reference over several inputs, by Definitions.
type Quality struct {
	Name      string   `json:"name"`
	Set       string   `json:"set,omitempty"` // of inputs
	Cosine    float64  `json:"cosine"`
	Expected  float64  `json:"expected,omitempty"` // on other inputs; 0 where nothing was searched for
	Pooled    bool     `json:"pooled,omitempty"`   // Cosine is of all inputs together
	MaxAbs    float64  `json:"max_abs"`
	RelL2     float64  `json:"rel_l2"`
	Explained *float64 `json:"variation_explained"` // nil where the reference does not vary, as over one input
	Elements  int      `json:"elements"`
	Constant  bool     `json:"constant,omitempty"` // the reference does not vary over the inputs

	misses []float64 // of each input, unless Cosine is pooled
}

// Measure compares outputs with their reference, both [input][element], using runtime.Compare.
func Measure(s Slice, got, want [][]float64) (Quality, error) {
	if len(got) != len(want) {
		return Quality{}, fmt.Errorf("%v: %d runs, but the reference has %d", s, len(got), len(want))
	}
	q := Quality{Name: s.String(), Cosine: 1}
	var mean []float64
	var allGot, allWant []float64
	for k := range want {
		if len(got[k]) < s.Stop || len(want[k]) < s.Stop {
			return Quality{}, fmt.Errorf("%v: ends at element %d of %d, in the reference of %d", s, s.Stop, len(got[k]), len(want[k]))
		}
		g, w := s.of(got[k]), s.of(want[k])
		if k == 0 {
			q.Elements, mean = len(w), make([]float64, len(w))
		}
		m, err := runtime.Compare(g, w, 0, 0)
		if err != nil {
			return Quality{}, fmt.Errorf("%v: %w", s, err)
		}
		q.MaxAbs = max(q.MaxAbs, m.MaxAbs)
		q.RelL2 += m.RelL2 / float64(len(want))
		q.Cosine = min(q.Cosine, m.Cosine)
		q.misses = append(q.misses, miss(m.Cosine))
		for i, x := range w {
			mean[i] += x / float64(len(want))
		}
		allGot, allWant = append(allGot, g...), append(allWant, w...)
	}
	if q.Elements < fewElements && len(want) > 1 {
		all, err := runtime.Compare(allGot, allWant, 0, 0)
		if err != nil {
			return Quality{}, fmt.Errorf("%v: %w", s, err)
		}
		q.Cosine, q.Pooled, q.misses = all.Cosine, true, nil
	}
	var miss, vary, square float64
	for k, w := range allWant {
		d, v := allGot[k]-w, w-mean[k%q.Elements]
		miss += float64(d * d)
		vary += float64(v * v)
		square += float64(w * w)
	}
	if q.Constant = vary <= unvaried*square; !q.Constant {
		explained := 1 - miss/vary
		q.Explained = &explained
	}
	return q, nil
}

// of are the slice's elements of a whole output, of all samples.
func (s *Slice) of(x []float64) []float64 {
	if s.Every == 0 {
		return x[s.Start:s.Stop]
	}
	var out []float64
	for at := 0; at+s.Stop <= len(x); at += s.Every {
		out = append(out, x[at+s.Start:at+s.Stop]...)
	}
	return out
}

// unvaried is the variation, as a part of all squares, that references in f32 and in float64 of the same input can have.
const unvaried = 1e-11

// Unpooled are the slices whose cosine is the lowest of any input.
func Unpooled(list []Slice) []Slice {
	return slices.DeleteFunc(slices.Clone(list), func(s Slice) bool { return s.Stop-s.Start < fewElements })
}

// MeasureAll compares slice by slice; got and want are keyed by output name.
func MeasureAll(slices []Slice, got, want map[string][][]float64) ([]Quality, error) {
	var out []Quality
	for _, s := range slices {
		q, err := Measure(s, got[s.Output], want[s.Output])
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// SlicesOf lists what a budget applies to: every output of a program, each followed by its named slices.
func SlicesOf(p *runtime.Program) []Slice {
	var out []Slice
	for _, port := range p.Outputs {
		whole := runtime.Slice{Stop: 1}
		for _, d := range port.Shape {
			whole.Stop *= d
		}
		for _, s := range append([]runtime.Slice{whole}, port.Slices...) {
			out = append(out, Slice{port.Name, s})
		}
	}
	return slices.DeleteFunc(out, func(s Slice) bool { return s.Stop <= s.Start })
}

// Below lists the slices whose cosine is below a budget.
func Below(q []Quality, minCosine float64) []string {
	var out []string
	for _, s := range q {
		if s.Cosine < minCosine {
			out = append(out, fmt.Sprintf("%s %.9f", s.Name, s.Cosine))
		}
	}
	return out
}
