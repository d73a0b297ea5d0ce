package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// GradientPrefix and a variable's name make the name of the output with its gradient.
const GradientPrefix = "grad:"

var _ = register(Pass{
	Name:    "differentiate",
	Summary: "add the gradients of the sum of the losses by the variables as outputs, by reverse mode; what gradients take as constant is then no longer marked",
	After: map[string]string{
		"promote-f32":   "gradients are computed in f32",
		"insert-dora":   "adapters are what is trained",
		"quantise-base": "the way back through a layer multiplies the numbers that the way forth does",
	},
	Run: func(ctx *Context, g *ir.Graph) error {
		if len(ctx.Losses) == 0 {
			return nil
		}
		var losses, dys, variables []*ir.Value
		for _, name := range ctx.Losses {
			v, err := named(g.Outputs, "output", name)
			if err != nil {
				return fmt.Errorf("loss: %w", err)
			}
			losses, dys = append(losses, v), append(dys, nil)
		}
		for _, name := range ctx.Variables {
			v, err := named(g.Inputs, "input", name)
			if err != nil {
				return fmt.Errorf("variable: %w", err)
			}
			if slices.ContainsFunc(g.Outputs, func(o *ir.Value) bool { return o.Name == GradientPrefix+name }) {
				return nil // it was done
			}
			variables = append(variables, v)
		}
		grads, err := g.Gradients(losses, dys, variables)
		if err != nil {
			return err
		}
		for i, v := range grads {
			if v.Def == nil || slices.Contains(g.Outputs, v) { // a constant, an input, or one value for two
				if v, err = firstOutput(g.Add("Reshape", ctx.Variables[i], ir.Attrs{"shape": v.Type.Shape}, v)); err != nil {
					return err
				}
			}
			v.Name = GradientPrefix + ctx.Variables[i]
			g.Outputs = append(g.Outputs, v)
		}
		undetach(g)
		return nil
	},
})

// DifferentiateOptions name the outputs of one number whose sum is differentiated, and the inputs by which.
type DifferentiateOptions struct{ Losses, Variables []string }

// firstOutput unwraps the first output of a node that Add returned.
func firstOutput(n *ir.Node, err error) (*ir.Value, error) {
	if err != nil {
		return nil, err
	}
	return n.Outputs[0], nil
}

// named is the value of a name among a graph's inputs or outputs.
func named(values []*ir.Value, what, name string) (*ir.Value, error) {
	var have []string
	for _, v := range values {
		if v.Name == name {
			return v, nil
		}
		have = append(have, v.Name)
	}
	return nil, fmt.Errorf("no %s %q: the graph has %q", what, name, have)
}

// undetach removes the marks.
func undetach(g *ir.Graph) {
	by := map[*ir.Value]*ir.Value{}
	for _, n := range g.Nodes {
		if n.Op.Name == "Detach" {
			by[n.Outputs[0]] = n.Inputs[0]
		}
	}
	g.Substitute(by)
	g.RemoveDead()
}
