package ir

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// evaluatedBytes is the size of an element during evaluation: a float64 or an int64.
const evaluatedBytes = 8

// fits is an error if the arrays live at once while g is evaluated exceed the context's budget (internal/memory).
// Scratch memory of operators is not counted.
func (g *Graph) fits(ctx context.Context) error {
	reads := map[*Value]int{}
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			reads[v]++
		}
	}
	for _, v := range g.Outputs {
		reads[v]++
	}
	held, there := int64(0), map[*Value]bool{}
	hold := func(v *Value) {
		if v != nil && !there[v] {
			there[v], held = true, held+int64(v.Type.Numel())*evaluatedBytes
		}
	}
	for _, v := range g.Inputs {
		hold(v)
	}
	budget := memory.Of(ctx)
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			hold(v)
		}
		for _, v := range n.Outputs {
			hold(v)
		}
		if err := budget.Check(held, "evaluating it"); err != nil {
			return fmt.Errorf("node %q (%s): %w", n.Name, n.Op.Name, err)
		}
		for _, v := range n.Inputs {
			reads[v]--
		}
		for _, list := range [][]*Value{n.Inputs, n.Outputs} {
			for _, v := range list {
				if v != nil && there[v] && reads[v] == 0 {
					there[v], held = false, held-int64(v.Type.Numel())*evaluatedBytes
				}
			}
		}
	}
	return nil
}

// Fits is an error if a node's operands and results exceed the default budget of memory.
func (n *Node) Fits() error {
	need := int64(0)
	for _, list := range [][]*Value{n.Inputs, n.Outputs} {
		for _, v := range list {
			if v != nil {
				need += int64(v.Type.Numel()) * evaluatedBytes
			}
		}
	}
	return memory.Default().Check(need, "evaluating it")
}
