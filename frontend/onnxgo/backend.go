package onnxgo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/owulveryck/onnx-go"
	"gonum.org/v1/gonum/graph"
)

// backend receives what onnx-go reads: it adds values as nodes of a graph, edges from each output of an operator to its
// inputs, weighted by the input's position, and finally the operator itself.
type backend struct {
	graph.Directed // nil: onnx-go requires the whole interface, but only calls methods that add

	values []*value         // by ID
	edges  map[int64][]edge // by the ID of the output
	out    Graph
	bodies [][]int // handles of inner graphs, by node
}

type value struct {
	id   int64
	name string
}

// ID implements graph.Node.
func (v *value) ID() int64 { return v.id }

// SetName implements onnx.Namer.
func (v *value) SetName(name string) { v.name = name }

// GetName implements onnx.Namer.
func (v *value) GetName() string { return v.name }

type edge struct {
	from, to *value
	weight   float64
}

// From implements graph.Edge.
func (e edge) From() graph.Node { return e.from }

// To implements graph.Edge.
func (e edge) To() graph.Node { return e.to }

// ReversedEdge implements graph.Edge.
func (e edge) ReversedEdge() graph.Edge { return edge{e.to, e.from, e.weight} }

// Weight implements graph.WeightedEdge.
func (e edge) Weight() float64 { return e.weight }

// NewNode implements graph.NodeAdder.
func (b *backend) NewNode() graph.Node { return &value{id: int64(len(b.values))} }

// AddNode implements graph.NodeAdder.
func (b *backend) AddNode(n graph.Node) { b.values = append(b.values, n.(*value)) }

// NewWeightedEdge implements graph.WeightedEdgeAdder.
func (b *backend) NewWeightedEdge(from, to graph.Node, weight float64) graph.WeightedEdge {
	return edge{from.(*value), to.(*value), weight}
}

// SetWeightedEdge implements graph.WeightedEdgeAdder: one edge between two values.
func (b *backend) SetWeightedEdge(w graph.WeightedEdge) {
	e := w.(edge)
	list := b.edges[e.from.id]
	if i := slices.IndexFunc(list, func(o edge) bool { return o.to == e.to }); i >= 0 {
		list[i] = e
		return
	}
	b.edges[e.from.id] = append(list, e)
}

// ApplyOperation implements onnx.OperationCarrier.
func (b *backend) ApplyOperation(op onnx.Operation, outputs ...graph.Node) error {
	if op.Name == absentMark {
		return nil // placeholder of a graph without nodes
	}
	n := Node{Op: op.Name}
	for _, o := range outputs {
		n.Outputs = append(n.Outputs, original(o.(*value).name))
	}
	if len(outputs) > 0 {
		// All outputs have the same inputs.
		first := outputs[0].(*value)
		list := slices.Clone(b.edges[first.id])
		slices.SortFunc(list, func(x, y edge) int { return int(x.weight) - int(y.weight) })
		for i, e := range list {
			if int(e.weight) != i {
				return fmt.Errorf("value %q: input %d is missing", first.name, i)
			}
			if strings.HasSuffix(e.to.name, absentMark) {
				continue // placeholder of a node without inputs
			}
			n.Inputs = append(n.Inputs, original(e.to.name))
		}
	}
	var handles []int
	for name := range op.Attributes {
		h, err := strconv.Atoi(name)
		if err != nil {
			return fmt.Errorf("attribute %q is not a handle", name)
		}
		handles = append(handles, h)
	}
	slices.Sort(handles)
	b.out.Nodes = append(b.out.Nodes, n)
	b.bodies = append(b.bodies, handles)
	return nil
}

// original reverts the renaming of lean.go.
func original(name string) string {
	switch {
	case strings.HasPrefix(name, absentMark):
		return ""
	case strings.HasPrefix(name, againMark):
		parts := strings.SplitN(name, againMark, 3)
		return parts[len(parts)-1]
	default:
		return name
	}
}
