package ir

import "fmt"

// Expansion collects the nodes that a composite op stands for. After the first error Add and the rest do nothing, so
// that a row reads like the formula it follows.
type Expansion struct {
	nodes []*Node
	graph *Graph // names values
	name  string
	err   error
}

// Expand returns the nodes that n stands for, which read n's inputs, and the values that take the place of its
// outputs. Names come from g, which is not changed otherwise. Floats narrower than f32 are computed in f32 and
// rounded once, at the end.
func (n *Node) Expand(g *Graph) ([]*Node, []*Value, error) {
	x := &Expansion{graph: g, name: n.Name}
	wide := *n
	wide.Inputs = make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		if wide.Inputs[i] = v; v != nil && v.Type.DType.IsFloat() && v.Type.DType.Bits() < 32 {
			wide.Inputs[i] = x.Add("Cast", Attrs{"to": Float32}, v)
		}
	}
	if x.err != nil {
		return nil, nil, x.err
	}
	outs := n.Op.Expand(x, &wide)
	for i, v := range n.Outputs {
		if d := v.Type.DType; x.err == nil && outs[i].Type.DType != d {
			outs[i] = x.Add("Cast", Attrs{"to": d}, outs[i])
		}
		if x.err == nil && !outs[i].Type.Equal(v.Type) {
			x.err = fmt.Errorf("%s expands to %v, want %v", n.Op.Name, outs[i].Type, v.Type)
		}
	}
	return x.nodes, outs, x.err
}

// Build collects nodes that f makes, named name, and appends them to g.
func (g *Graph) Build(name string, f func(x *Expansion)) error {
	x := &Expansion{graph: g, name: name}
	f(x)
	if x.err == nil {
		g.Nodes = append(g.Nodes, x.nodes...)
	}
	return x.err
}

// Add appends a node and returns its first output.
func (x *Expansion) Add(op string, attrs Attrs, in ...*Value) *Value {
	if x.err == nil {
		var n *Node
		if n, x.err = x.graph.NewNode(op, x.name, attrs, in...); x.err == nil {
			x.nodes = append(x.nodes, n)
			return n.Outputs[0]
		}
	}
	return &Value{}
}

// Fail is the error of Build, unless there was one before.
func (x *Expansion) Fail(format string, args ...any) *Value {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
	return &Value{}
}

// Constant is a constant of the expansion.
func (x *Expansion) Constant(t *Tensor) *Value { return x.graph.Constant(x.name, t) }

// Number is a constant of one f32.
func (x *Expansion) Number(number float64) *Value { return x.Constant(ScalarFloat(Float32, number)) }

// Like is a constant of v's element type.
func (x *Expansion) Like(v *Value, number float64) *Value {
	if x.err != nil {
		return &Value{}
	}
	if d := v.Type.DType; !d.IsFloat() {
		return x.Constant(ScalarInt(d, int64(number)))
	}
	return x.Constant(ScalarFloat(v.Type.DType, number))
}

// Reshape gives v another shape.
func (x *Expansion) Reshape(v *Value, shape ...int) *Value {
	return x.Add("Reshape", Attrs{"shape": shape}, v)
}

// composite evaluates what n stands for.
func (e *evaluation) composite(n *Node, in []*Array) ([]*Array, error) {
	g := NewGraph(n.Name)
	nodes, outs, err := n.Expand(g)
	if err != nil {
		return nil, err
	}
	g.Nodes, g.Outputs = nodes, outs
	var given []*Array
	for i, v := range n.Inputs {
		if v != nil {
			g.Inputs, given = append(g.Inputs, v), append(given, in[i])
		}
	}
	return e.graph(g, given, true)
}
