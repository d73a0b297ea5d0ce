package calibrate

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Set is a set of inputs that programs are measured on.
type Set struct {
	Name   string
	Inputs []map[string]*ir.Array
	Fitted bool // the program was fitted to them

	Perturbed bool // made from other sets' inputs, to be unlike them
}

// SetQuality is the accuracy of a program on a set of inputs.
type SetQuality struct {
	Name      string    `json:"name"`
	Inputs    int       `json:"inputs"`
	Fitted    bool      `json:"in_sample"`
	Perturbed bool      `json:"perturbed,omitempty"`
	Slices    []Quality `json:"slices"`
}

// Worst is what a budget is compared with: the figures of every slice on the set where its cosine is lowest. Those that the
// program was fitted to count too: they are optimistic, and so not to be missed. All sets have the same slices.
func Worst(sets []SetQuality) []Quality {
	var out []Quality
	for _, s := range sets {
		for i, q := range s.Slices {
			q.Set = s.Name
			switch {
			case i == len(out):
				out = append(out, q)
			case q.Cosine < out[i].Cosine:
				out[i] = q
			}
		}
	}
	for i := range out {
		var all []Quality
		for _, s := range sets {
			if !s.Perturbed {
				all = append(all, s.Slices[i])
			}
		}
		expect(&out[i], all)
	}
	return out
}

// Same counts the inputs of a set that are also among others.
func Same(a, b []map[string]*ir.Array) int {
	count := 0
	for _, x := range a {
		if slices.ContainsFunc(b, func(y map[string]*ir.Array) bool { return same(x, y) }) {
			count++
		}
	}
	return count
}

func same(x, y map[string]*ir.Array) bool {
	for name, a := range x {
		if b := y[name]; b == nil || !slices.Equal(a.F, b.F) || !slices.Equal(a.I, b.I) {
			return false
		}
	}
	return len(x) == len(y)
}
