package ir

import (
	"fmt"
	"slices"
	"strings"
)

// Type is the static type of a value: element type and shape. A scalar has an empty shape; a dimension may be 0.
type Type struct {
	DType DType
	Shape []int
}

// T is shorthand for a Type.
func T(d DType, shape ...int) Type { return Type{DType: d, Shape: shape} }

// Rank is the number of dimensions.
func (t Type) Rank() int { return len(t.Shape) }

// Numel is the number of elements.
func (t Type) Numel() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the number of bytes of a dense tensor of the type (sub-byte elements packed).
func (t Type) Bytes() int { return (t.Numel()*t.DType.Bits() + 7) / 8 }

// Equal reports whether element type and shape agree.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && slices.Equal(t.Shape, u.Shape) }

// Clone returns a copy that shares nothing.
func (t Type) Clone() Type { return Type{t.DType, slices.Clone(t.Shape)} }

// String prints the text form: f16[1,64,32,64].
func (t Type) String() string {
	var b strings.Builder
	b.WriteString(t.DType.String())
	b.WriteByte('[')
	for i, d := range t.Shape {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, d)
	}
	b.WriteByte(']')
	return b.String()
}

// Value is one edge of the graph: a graph input, a constant, or an output of a node.
type Value struct {
	Name string // unique within its graph
	Type Type

	Def   *Node   // the node that produces it; nil for graph inputs and constants
	Index int     // position among Def.Outputs
	Const *Tensor // the data of a constant; nil otherwise

	Delay  int       // of a graph input that keeps an output: how many runs ago that was computed; 0 and 1: in the last one
	Sample []float64 // of a graph input: numbers that generated values of it repeat, where random ones would not do
}

// IsConst reports whether the value is a constant of the graph.
func (v *Value) IsConst() bool { return v.Const != nil }

// Node applies an op. Inputs may hold nil where an optional input is absent.
type Node struct {
	Op      *Op
	Name    string // where it came from: the ONNX node's name, or a name made by a pass; for messages only
	Attrs   Attrs
	Inputs  []*Value
	Outputs []*Value
	Region  *Region // of a Region: what it computes; else nil
	// From are the nodes of the file that it computes, in the file's order; nil where a pass made it. It is for
	// readers of what is generated, and no part of the text form.
	From []Origin
}

// In returns input i, or nil if it is absent.
func (n *Node) In(i int) *Value {
	if i < len(n.Inputs) {
		return n.Inputs[i]
	}
	return nil
}

// Graph is a typed dataflow graph of static shapes. Nodes are in topological order (the verifier checks it).
type Graph struct {
	Name    string
	Inputs  []*Value
	Outputs []*Value // may repeat a value; may be an input or a constant
	Nodes   []*Node
	Meta    map[string]string // metadata_props of the model, as decoded text

	next int // for fresh names
}

// Origin is a node of the file.
type Origin struct {
	At   int    // position among those that were imported
	Name string // its name, or the first of its outputs if it has none
}

// JoinOrigins returns what two nodes together come from.
func JoinOrigins(a, b []Origin) []Origin {
	if len(b) == 0 {
		return a
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Origin) int { return x.At - y.At })
	return slices.Compact(all)
}

// Moves reports whether the node moves or converts elements and computes nothing.
func (n *Node) Moves() bool { return n.Op.Kind == KindMovement || n.Op.Name == "Cast" }

// Inherit adds to what nodes come from. Those around the others that move or convert elements may soon cancel with
// their neighbours, so they have it only if there are no others.
func Inherit(nodes []*Node, from []Origin) {
	all := !slices.ContainsFunc(nodes, func(n *Node) bool { return !n.Moves() })
	for _, n := range nodes {
		if all || !n.Moves() {
			n.From = JoinOrigins(n.From, from)
		}
	}
}

// Tensor is dense constant data: little-endian elements in row-major order, sub-byte elements packed lowest bits first.
// If Splat, Data holds one element that stands for all (a sub-byte element in the low bits of one byte).
type Tensor struct {
	Type
	Data  []byte
	Splat bool
	Codes *Codes // how a file stored a quantised constant; nil: as it is. It is no part of the value.
}

// Codes says that the elements of a floating-point constant are numbers of a type times scales: the Scale of each
// element and, in Blocks, what neighbours share beyond that. Both have the constant's shape; Blocks may be nil.
type Codes struct {
	DType         DType
	Scale, Blocks *Tensor
}

// Attrs are the attributes of a node by name. Values are bool, int, float64, string, DType, []int, []float64 or
// []string; an op's row in the op table lists which it has.
type Attrs map[string]any

// Int returns the attribute, or the default if it is absent. The verifier has checked kinds.
func (a Attrs) Int(name string, def int) int {
	if v, ok := a[name].(int); ok {
		return v
	}
	return def
}

// Ints returns the attribute, or nil.
func (a Attrs) Ints(name string) []int { v, _ := a[name].([]int); return v }

// Float returns the attribute, or the default.
func (a Attrs) Float(name string, def float64) float64 {
	if v, ok := a[name].(float64); ok {
		return v
	}
	return def
}

// Floats returns the attribute, or nil.
func (a Attrs) Floats(name string) []float64 { v, _ := a[name].([]float64); return v }

// Bool returns the attribute, or false.
func (a Attrs) Bool(name string) bool { v, _ := a[name].(bool); return v }

// Flag returns a bool attribute, by default the row's.
func (n *Node) Flag(name string) bool {
	v, ok := n.Attrs[name].(bool)
	if !ok {
		v, _ = n.Op.attr(name).Default.(bool)
	}
	return v
}

// String returns the attribute, or the default.
func (a Attrs) String(name, def string) string {
	if v, ok := a[name].(string); ok {
		return v
	}
	return def
}

// DType returns the attribute, or Invalid.
func (a Attrs) DType(name string) DType { v, _ := a[name].(DType); return v }

// Clone copies the map (slices inside are shared: nodes never modify an attribute's slice in place).
func (a Attrs) Clone() Attrs {
	c := make(Attrs, len(a))
	for k, v := range a {
		c[k] = v
	}
	return c
}

// MostDelay bounds Value.Delay.
const MostDelay = 1 << 12

// NewGraph returns an empty graph.
func NewGraph(name string) *Graph { return &Graph{Name: name, Meta: map[string]string{}} }

// Fresh returns a value name derived from hint that no value of the graph has been given by Fresh before. Names from
// outside must not contain '~'.
func (g *Graph) Fresh(hint string) string {
	if i := strings.IndexByte(hint, '~'); i >= 0 {
		hint = hint[:i]
	}
	g.next++
	return fmt.Sprintf("%s~%d", hint, g.next)
}

// AddInput appends a graph input.
func (g *Graph) AddInput(name string, t Type) *Value {
	v := &Value{Name: name, Type: t}
	g.Inputs = append(g.Inputs, v)
	return v
}

// Constant returns a new constant value; it belongs to the graph through its uses.
func (g *Graph) Constant(hint string, t *Tensor) *Value {
	return &Value{Name: g.Fresh(hint), Type: t.Type, Const: t}
}

// Add appends a node of the named op, infers its output types and returns it. Outputs are named from name; an error
// names the op and the reason, not the file.
func (g *Graph) Add(op, name string, attrs Attrs, inputs ...*Value) (*Node, error) {
	n, err := g.NewNode(op, name, attrs, inputs...)
	if err != nil {
		return nil, err
	}
	g.Nodes = append(g.Nodes, n)
	return n, nil
}

// NewNode makes a node as Add does, without appending it: passes place it themselves.
func (g *Graph) NewNode(op, name string, attrs Attrs, inputs ...*Value) (*Node, error) {
	row := LookupOp(op)
	if row == nil {
		return nil, fmt.Errorf("no op %q", op)
	}
	if attrs == nil {
		attrs = Attrs{}
	}
	n := &Node{Op: row, Name: name, Attrs: attrs, Inputs: inputs}
	if err := g.typeOutputs(n); err != nil {
		return nil, err
	}
	return n, nil
}

// typeOutputs infers the node's outputs and names them.
func (g *Graph) typeOutputs(n *Node) error {
	types, err := n.Op.infer(n)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Op.Name, err)
	}
	for i, t := range types {
		n.Outputs = append(n.Outputs, &Value{Name: g.Fresh(n.Name), Type: t, Def: n, Index: i})
	}
	return nil
}
