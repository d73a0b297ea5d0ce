package onnxgo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/owulveryck/onnx-go"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/simple"
)

// backend receives what onnx-go reads: it adds values as nodes of a graph, edges from each output of an operator to its
// inputs, weighted by the input's position, and finally the operator itself.
type backend struct {
	graph.Directed // nil: onnx-go requires the whole interface, but only calls methods that add

	values  []*value                        // by ID
	edges   map[int64][]simple.WeightedEdge // by the ID of the output
	out     Graph
	handles [][]int // of inner graphs, by node
}

// value is a node of the graph. It implements onnx.Namer.
type value struct {
	simple.Node
	name string
}

func (v *value) SetName(name string) { v.name = name }
func (v *value) GetName() string     { return v.name }

// NewNode implements graph.NodeAdder.
func (b *backend) NewNode() graph.Node { return &value{Node: simple.Node(len(b.values))} }

// AddNode implements graph.NodeAdder.
func (b *backend) AddNode(n graph.Node) { b.values = append(b.values, n.(*value)) }

// NewWeightedEdge implements graph.WeightedEdgeAdder.
func (b *backend) NewWeightedEdge(from, to graph.Node, weight float64) graph.WeightedEdge {
	return simple.WeightedEdge{F: from, T: to, W: weight}
}

// SetWeightedEdge implements graph.WeightedEdgeAdder.
func (b *backend) SetWeightedEdge(e graph.WeightedEdge) {
	from := e.From().ID()
	b.edges[from] = append(b.edges[from], e.(simple.WeightedEdge))
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
	if len(outputs) > 0 { // all have the same inputs
		for i, e := range b.edges[outputs[0].ID()] {
			name := e.T.(*value).name
			if int(e.W) != i {
				return fmt.Errorf("input %q has position %d, not %d", name, int(e.W), i)
			}
			if !strings.HasSuffix(name, absentMark) { // else the placeholder of a node without inputs
				n.Inputs = append(n.Inputs, original(name))
			}
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
	b.handles = append(b.handles, handles)
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
