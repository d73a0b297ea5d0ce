package calibrate

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// saturatedPart is the fraction of an image's numbers at its least or greatest value from which on it counts as saturated.
const saturatedPart = 0.25

// Doubts says what is wrong with calibration inputs that were read from files, with numbers: identical ones, which say
// nothing new; inputs of the graph that are constant, which exercise hardly any weight; images of which much is saturated.
func Doubts(g *ir.Graph, inputs []map[string]*ir.Array, files []string) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if first, second, copies := copied(g, inputs); copies > 0 {
		say("%d of the %d calibration inputs are copies of others (%s of %s): they say nothing new; replace them by others", copies, len(inputs), files[second], files[first])
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
			say("input %s is one constant number in %d of the %d calibration inputs (%s first): little that depends on it is exercised", v.Name, len(constant), len(inputs), files[constant[0]])
		}
		if len(saturated) > 0 {
			say("input %s is saturated in %d of the %d calibration inputs: up to %.0f %% of its numbers are its least or greatest (%s first); scales and weights fit such images, and perhaps no others", v.Name, len(saturated), len(inputs), 100*most, files[saturated[0]])
		}
	}
	return out
}

// copied counts inputs that equal an earlier one, and gives the first such pair.
func copied(g *ir.Graph, inputs []map[string]*ir.Array) (first, second, count int) {
	for i, in := range inputs {
		j := slices.IndexFunc(inputs[:i], func(other map[string]*ir.Array) bool {
			return !slices.ContainsFunc(g.Inputs, func(v *ir.Value) bool {
				return !slices.Equal(in[v.Name].F, other[v.Name].F) || !slices.Equal(in[v.Name].I, other[v.Name].I)
			})
		})
		if j < 0 {
			continue
		}
		if count == 0 {
			first, second = j, i
		}
		count++
	}
	return first, second, count
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
