package generation

import "slices"

// SliceKind is what the numbers of a slice mean.
type SliceKind int

// Kinds of slices.
const (
	Numbers      SliceKind = iota // numbers
	Distribution                  // means and log scales, with or without hypotheses
	Sigmoids                      // a logit each
	Softmax                       // logits, a row each Shape's last dimension
)

// Slice is a named part of the output, as output_slices in a file's metadata has it.
type Slice struct {
	Name  string
	Kind  SliceKind
	Shape []int // of numbers, logits, or means of one hypothesis; nil: any
	// Hypotheses of a distribution, each followed by Weights logits; 0: one without.
	Hypotheses, Weights int
}

// Numel is the product of Shape.
func (s Slice) Numel() int {
	n := 1
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// Len is how many elements the slice has.
func (s Slice) Len() int {
	switch {
	case s.Kind != Distribution:
		return s.Numel()
	case s.Hypotheses == 0:
		return 2 * s.Numel()
	}
	return s.Hypotheses * (2*s.Numel() + s.Weights)
}

// Forms are the slices that generations of a kind have under a name, shortest first.
func Forms(kind, name string) (forms []Slice) {
	for _, r := range rows {
		for _, s := range r.Slices {
			same := func(f Slice) bool { return f.Len() == s.Len() }
			if r.Kind == kind && s.Name == name && !slices.ContainsFunc(forms, same) {
				forms = append(forms, s)
			}
		}
	}
	slices.SortFunc(forms, func(a, b Slice) int { return a.Len() - b.Len() })
	return forms
}

// Meta says where a slice meta has its logits: offsets into it, and steps from one to the next.
type Meta struct {
	Len        int
	Stride     int // from one time of the events to the next: an element for each event
	GasPress   Series
	BrakePress Series
	Left       Series // blinkers
	Right      Series
}

// Series is of logits.
type Series struct{ From, Stride, Len int }

// MetaOf is the layout of a slice meta of that length.
func MetaOf(length int) Meta {
	return metas[max(0, slices.IndexFunc(metas, func(m Meta) bool { return m.Len == length }))]
}
