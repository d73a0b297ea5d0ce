package calibrate

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/ir"
)

// saturatedPart is the fraction of an image's numbers at its least or greatest value from which on it counts as saturated.
const saturatedPart = 0.25

// Doubts says what is wrong with calibration inputs that were read from files, with numbers: identical ones, which say
// nothing new; inputs of the graph that are constant, which exercise hardly any weight; images of which much is saturated.
func Doubts(g *ir.Graph, inputs []map[string]*ir.Array, files []string) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	distinct := Distinct(inputs, nil)
	for i := range inputs {
		if !slices.Contains(distinct, i) {
			of := slices.IndexFunc(inputs, func(x map[string]*ir.Array) bool { return same(inputs[i], x) })
			say("calibration inputs are copies of others and left out, %d of %d (%s of %s), since they say nothing new: replace them by others", len(inputs)-len(distinct), len(inputs), files[i], files[of])
			break
		}
	}
	for _, v := range g.Inputs {
		var constant, saturated []int
		most := 0.0
		for i, in := range inputs {
			flat, part := extremes(in[v.Name])
			if flat {
				constant = append(constant, i)
			} else if isPicture(v.Type) && part > saturatedPart {
				saturated = append(saturated, i)
				most = max(most, part)
			}
		}
		if 2*len(constant) > len(inputs) {
			say("input %s is one constant number in %d of %s (%s first): little that depends on it is exercised", v.Name, len(constant), console.Count(len(inputs), "calibration input"), files[constant[0]])
		}
		if len(saturated) > 0 {
			say("input %s is saturated in %d of %s: up to %.0f %% of its numbers are its least or greatest (%s first); scales and weights fit such images, and perhaps no others", v.Name, len(saturated), console.Count(len(inputs), "calibration input"), 100*most, files[saturated[0]])
		}
	}
	return out
}

// Distinct are the positions of inputs that equal no earlier one and none of those known.
func Distinct(inputs, known []map[string]*ir.Array) (at []int) {
	for i := range inputs {
		if one := inputs[i : i+1]; Same(one, inputs[:i])+Same(one, known) == 0 {
			at = append(at, i)
		}
	}
	return at
}

// extremes reports whether an array of several elements is constant, and the fraction at its least or greatest value.
func extremes(a *ir.Array) (constant bool, part float64) {
	x := a.Floats()
	if len(x) < 2 {
		return false, 0
	}
	lo, hi, count := slices.Min(x), slices.Max(x), 0
	for _, v := range x {
		if v == lo || v == hi {
			count++
		}
	}
	return lo == hi, float64(count) / float64(len(x))
}
