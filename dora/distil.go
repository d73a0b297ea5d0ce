package dora

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Target is the input that a loss compares a value with.
func Target(name string) string { return "target:" + name }

// Match is a value of a model that distillation holds to the teacher's, as package teacher computes it.
type Match struct {
	Name string
	// Spread is the mean square by which an element of the teacher's value differs from its mean over inputs. Relative to it, a
	// squared error is the part of the variation that is not explained.
	Spread float64
}

// Distil is the loss of distillation (Hinton and others 2015) from a teacher of the same layout: the parts of the
// variation that the outputs and, if there are any, inner values leave unexplained (Romero and others 2015), the
// mean over the outputs plus weight times the mean over the inner values. The teacher's are inputs called
// target:NAME. If forced, consumers of an inner value read the teacher's (Williams and Zipser 1989), so that each
// layer learns independently of the errors of preceding layers, and its gradients of those of later ones.
func Distil(outputs, inner []Match, weight float64, forced bool) func(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
	return func(x *ir.Expansion, g *ir.Graph, named map[string]*ir.Value) *ir.Value {
		mean := func(list []Match, value func(string) *ir.Value) *ir.Value {
			var sum *ir.Value
			for _, m := range list {
				y := value(m.Name)
				if y == nil {
					return x.Fail("the model has no value %q to compare with the teacher's", m.Name)
				}
				part := x.Add("Mul", nil, meanSquare(x, g, m.Name, y), x.Like(y, 1/(max(m.Spread, least)*float64(len(list)))))
				if sum != nil {
					part = x.Add("Add", nil, sum, part)
				}
				sum = part
			}
			return sum
		}
		loss := mean(outputs, func(name string) *ir.Value { return named[name] })
		if len(inner) == 0 {
			return loss
		}
		more := mean(inner, func(name string) *ir.Value { return innerValue(g, name) })
		more = x.Add("Mul", nil, more, x.Like(more, weight))
		if forced {
			force(g, inner)
		}
		return x.Add("Add", nil, loss, more)
	}
}

// least keeps a value that does not vary from dividing by zero.
const least = 1e-12

// meanSquare is the mean squared difference of a value from an input of its type.
func meanSquare(x *ir.Expansion, g *ir.Graph, name string, y *ir.Value) *ir.Value {
	d := x.Add("Sub", nil, y, g.AddInput(Target(name), y.Type))
	axes := []int{}
	for i := range y.Type.Shape {
		axes = append(axes, i)
	}
	return x.Add("ReduceMean", ir.Attrs{"axes": axes}, x.Add("Mul", nil, d, d))
}

// innerValue is the value that a node of the graph computes.
func innerValue(g *ir.Graph, name string) *ir.Value {
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v.Name == name {
				return v
			}
		}
	}
	return nil
}

// force lets the nodes of a graph read the teacher's values instead of its own.
func force(g *ir.Graph, values []Match) {
	by := map[*ir.Value]*ir.Value{}
	for _, m := range values {
		i := slices.IndexFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == Target(m.Name) })
		by[innerValue(g, m.Name)] = g.Inputs[i]
	}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if to := by[v]; to != nil {
				n.Inputs[i] = to
			}
		}
	}
}

// Matches are values with their spreads, as teacher.Spreads finds them.
func Matches(names []string, spreads map[string]float64) []Match {
	var out []Match
	for _, name := range names {
		out = append(out, Match{name, spreads[name]})
	}
	return out
}

// Inner names the values that the layers give: of each weight that takes an adapter, its product with what normalises it and
// adds a bias, in the order of the graph, those with at most so many numbers.
func (m *Model) Inner(most int) ([]string, error) {
	g, err := promoted(m.graph)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	uses := g.Uses()
	var names []string
	for _, n := range g.Nodes {
		if n.Op.Name != "Conv" && n.Op.Name != "MatMul" || !n.Inputs[1].IsConst() {
			continue
		}
		v := n.Outputs[0]
		for len(uses[v]) == 1 {
			next := uses[v][0].Node
			if next == nil || next.Op.Name != "BatchNorm" && next.Op.Name != "Add" || !slices.ContainsFunc(next.Inputs, (*ir.Value).IsConst) {
				break
			}
			v = next.Outputs[0]
		}
		if v.Type.Numel() <= most && !slices.Contains(names, v.Name) {
			names = append(names, v.Name)
		}
	}
	return names, nil
}
