package ir

import (
	"fmt"
	"strings"
)

// Verify checks every invariant of the graph: names are unique, every value is defined before it is read, Def and
// Index point back, nodes match their op's row and have the types that it infers, constants have as much data as
// their type needs, region bodies satisfy the same, and regions satisfy the kernels' contract. The error names the
// node.
func (g *Graph) Verify() error {
	if err := g.verify(); err != nil {
		return fmt.Errorf("graph %q: %w", g.Name, err)
	}
	return nil
}

// verifier is the state of one walk over a graph.
type verifier struct {
	defined map[string]*Value // by name
}

func (g *Graph) verify() error {
	c := verifier{make(map[string]*Value, len(g.Inputs)+2*len(g.Nodes))}
	for i, v := range g.Inputs {
		if v == nil || v.Def != nil || v.Const != nil {
			return fmt.Errorf("input %d must have no definition and no data", i)
		}
		if err := firstError(c.define(v), checkType(v.Type)); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
	}
	for i, n := range g.Nodes {
		if err := c.node(n); err != nil {
			return fmt.Errorf("node %d %q (%s): %w", i, n.Name, n.opName(), err)
		}
	}
	for i, v := range g.Outputs {
		if v == nil {
			return fmt.Errorf("output %d is absent", i)
		}
		if err := c.read(v); err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	return nil
}

func (n *Node) opName() string {
	if n.Op == nil {
		return "no op"
	}
	return n.Op.Name
}

func (c *verifier) node(n *Node) error {
	if n.Op == nil || LookupOp(n.Op.Name) != n.Op {
		return fmt.Errorf("its op is not in the op table")
	}
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if err := c.read(v); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
	}
	if (n.Region != nil && n.Region.Body != nil) != (n.Op.Kind == KindRegion) {
		return fmt.Errorf("exactly the Region nodes must have a body")
	}
	if n.Region != nil {
		if err := n.Region.Body.verify(); err != nil {
			return fmt.Errorf("body: %w", err)
		}
	}
	types, err := n.Op.infer(n)
	if err != nil {
		return err
	}
	if n.Region != nil {
		if err := n.contract(); err != nil {
			return err
		}
	}
	if len(types) != len(n.Outputs) {
		return fmt.Errorf("%d outputs, the op has %d", len(n.Outputs), len(types))
	}
	for i, v := range n.Outputs {
		switch {
		case v == nil || v.Def != n || v.Index != i || v.Const != nil:
			return fmt.Errorf("output %d does not refer back to the node", i)
		case !v.Type.Equal(types[i]):
			return fmt.Errorf("output %d is %v, the op yields %v", i, v.Type, types[i])
		}
		if err := c.define(v); err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	return nil
}

// define records the name and the definition of a value.
func (c *verifier) define(v *Value) error {
	if v.Name == "" || strings.ContainsAny(v.Name, "\n\r") {
		return fmt.Errorf("%q is not a valid value name", v.Name)
	}
	if w := c.defined[v.Name]; w != nil {
		return fmt.Errorf("two values are named %%%s", v.Name)
	}
	c.defined[v.Name] = v
	return nil
}

// read checks that a value may be read here; a constant is defined by its first reader.
func (c *verifier) read(v *Value) error {
	if c.defined[v.Name] == v {
		return nil
	}
	if v.Const == nil {
		return fmt.Errorf("%%%s is read before it is defined, or is not defined in the graph", v.Name)
	}
	t := v.Const
	want := t.Type.Bytes()
	if t.Splat {
		want = t.elementBytes()
	}
	switch {
	case v.Def != nil:
		return fmt.Errorf("constant %%%s also has a defining node", v.Name)
	case !v.Type.Equal(t.Type):
		return fmt.Errorf("constant %%%s is %v, its data %v", v.Name, v.Type, t.Type)
	}
	if err := checkType(v.Type); err != nil {
		return fmt.Errorf("constant %%%s: %w", v.Name, err)
	}
	if len(t.Data) != want {
		return fmt.Errorf("constant %%%s is %v with %d bytes of data, want %d", v.Name, v.Type, len(t.Data), want)
	}
	return c.define(v)
}

func checkType(t Type) error {
	if !t.DType.valid() {
		return fmt.Errorf("%v has no element type", t)
	}
	return CheckShape(t.Shape)
}
