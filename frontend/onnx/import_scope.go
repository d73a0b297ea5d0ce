package onnx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// scope maps names to values in one graph: the model's, the body of a control-flow node, or the body of a function.
// Bodies of control flow see the names of the graph around them, functions do not.
type scope struct {
	parent *scope
	top    bool
	prefix string // of node labels: where an inlined body came from
	values map[string]*ir.Value
	wanted map[string]bool // names of the graph's results
	used   map[string]bool // names that are read: results, and inputs of nodes
	absent map[string]bool // inputs of a function that its caller leaves out
	opsets map[string]int64
	attrs  map[string]*onnxpb.AttributeProto // of a function's caller
}

func (sc *scope) lookup(name string) *ir.Value {
	for ; sc != nil; sc = sc.parent {
		if v := sc.values[name]; v != nil {
			return v
		}
	}
	return nil
}

// without returns the node with absent function inputs as empty names, and left out at the end of the list.
func (sc *scope) without(n *onnxpb.NodeProto) *onnxpb.NodeProto {
	if !slices.ContainsFunc(n.Input, sc.leftOut) {
		return n
	}
	inputs := mapped(n.Input, func(name string) string {
		if sc.leftOut(name) {
			return ""
		}
		return name
	})
	for len(inputs) > 0 && inputs[len(inputs)-1] == "" {
		inputs = inputs[:len(inputs)-1]
	}
	return &onnxpb.NodeProto{
		Name: n.Name, OpType: n.OpType, Domain: n.Domain, Overload: n.Overload,
		Input: inputs, Output: n.Output, Attribute: n.Attribute,
	}
}

// leftOut reports whether a name means a function input without a value. Inner graphs may redefine the name.
func (sc *scope) leftOut(name string) bool {
	for ; sc != nil && sc.values[name] == nil; sc = sc.parent {
		if sc.absent[name] {
			return true
		}
	}
	return false
}

// results declares which names of the scope's graph are read: the results, and the inputs of its nodes.
func (sc *scope) results(names []string, nodes []*onnxpb.NodeProto) {
	sc.wanted, sc.used = map[string]bool{}, map[string]bool{}
	for _, name := range names {
		sc.wanted[name], sc.used[name] = true, true
	}
	for _, n := range nodes {
		for _, name := range freeNames(n) {
			sc.used[name] = true
		}
	}
}

// needed marks the nodes whose outputs are read, directly or not, by the names in want.
func needed(nodes []*onnxpb.NodeProto, want map[string]bool) []bool {
	keep := make([]bool, len(nodes))
	need := maps.Clone(want)
	for i, n := range slices.Backward(nodes) {
		keep[i] = slices.ContainsFunc(n.Output, func(o string) bool { return o != "" && need[o] })
		if keep[i] {
			for _, name := range freeNames(n) {
				need[name] = true
			}
		}
	}
	return keep
}

// nodes converts a list of nodes in order, except unused ones.
func (im *importer) nodes(sc *scope, nodes []*onnxpb.NodeProto) error {
	keep := needed(nodes, sc.wanted)
	for i, n := range nodes {
		if !keep[i] {
			continue
		}
		if err := im.node(sc, n); err != nil {
			return err
		}
		if len(im.g.Nodes) > maxNodes {
			return im.site(sc, n).errorf("the graph has more than %d nodes after unrolling and inlining", maxNodes).AsUnsupported("export it with fewer iterations")
		}
	}
	return nil
}

// label names a node for messages.
func (sc *scope) label(n *onnxpb.NodeProto) string { return sc.prefix + nodeLabel(n) }

// node converts one node, and says of what it makes that it comes from there.
func (im *importer) node(sc *scope, n *onnxpb.NodeProto) error {
	first := len(im.g.Nodes)
	if err := im.convert(sc, n); err != nil {
		return err
	}
	made := slices.DeleteFunc(slices.Clone(im.g.Nodes[min(first, len(im.g.Nodes)):]), func(m *ir.Node) bool {
		return m.From != nil // of a body that was inlined
	})
	if len(made) > 0 {
		ir.Inherit(made, []ir.Origin{{At: im.converted, Name: sc.label(n)}})
	}
	im.converted++
	return nil
}

// convert converts an operator of the table or a function of the model.
func (im *importer) convert(sc *scope, n *onnxpb.NodeProto) error {
	n = sc.without(n)
	s := im.site(sc, n)
	if f := im.m.function(n); f != nil {
		return s.callFunction(f)
	}
	row, err := im.table.lookup(Domain(n.GetDomain()), n.GetOpType(), s.opset)
	if err != nil {
		remedy := "express it by operators of its opset, or add a function of that name to the model"
		if Domain(n.GetDomain()) == microsoft {
			remedy = "compile the model as it was before ONNX Runtime optimised or quantised it, or let it save the model with ORT_ENABLE_BASIC"
		}
		return s.errorf("%w", err).AsUnsupported("%s", remedy)
	}
	return s.convert(row)
}

// callFunction inlines a function of the model: its body sees its own inputs and opsets, and the caller's attributes
// where it refers to them.
func (s *site) callFunction(f *onnxpb.FunctionProto) error {
	im, sc, n := s.im, s.sc, s.n
	opsets, err := im.m.functionOpsets(f)
	if err != nil {
		return err
	}
	inner := &scope{
		prefix: sc.label(n) + "/", values: map[string]*ir.Value{}, absent: map[string]bool{}, opsets: opsets,
		attrs: map[string]*onnxpb.AttributeProto{},
	}
	if len(n.Input) > len(f.Input) || len(n.Output) > len(f.Output) {
		return s.errorf("%d inputs and %d outputs, but function %s has %d and %d",
			len(n.Input), len(n.Output), f.GetName(), len(f.Input), len(f.Output))
	}
	if err := s.checkGraphArguments(f); err != nil {
		return err
	}
	for i, formal := range f.Input {
		if i >= len(n.Input) || n.Input[i] == "" {
			inner.absent[formal] = true
			continue
		}
		v := sc.lookup(n.Input[i])
		if v == nil {
			return s.errorf("input %q is not defined", n.Input[i])
		}
		inner.values[formal] = v
	}
	for _, a := range f.AttributeProto {
		inner.attrs[a.GetName()] = a
	}
	for _, a := range n.Attribute {
		if r := sc.resolveAttr(a); r != nil {
			inner.attrs[a.GetName()] = r
		}
	}
	var results []string
	for i, o := range n.Output {
		if o != "" {
			results = append(results, f.Output[i])
		}
	}
	inner.results(results, f.Node)
	if err := im.nodes(inner, f.Node); err != nil {
		return err
	}
	for i, o := range n.Output {
		if o == "" {
			continue
		}
		v := inner.lookup(f.Output[i])
		if v == nil && inner.absent[f.Output[i]] {
			return s.errorf("output %d of function %s is its input %q, which the node leaves out", i, f.GetName(), f.Output[i])
		}
		if v == nil {
			return s.errorf("function %s does not compute its output %q", f.GetName(), f.Output[i])
		}
		sc.values[o] = v
	}
	return nil
}

// checkGraphArguments refuses graphs as attributes of a call that use names of the caller, which the body does not see.
func (s *site) checkGraphArguments(f *onnxpb.FunctionProto) error {
	outer := slices.Clone(freeNames(s.n)[len(s.n.Input):])
	for _, g := range subgraphs(s.n) {
		eachNode(g.GetNode(), func(n *onnxpb.NodeProto) {
			for _, a := range n.Attribute {
				outer = append(outer, a.GetRefAttrName())
			}
		})
	}
	outer = slices.DeleteFunc(outer, func(name string) bool { return name == "" })
	if len(outer) == 0 {
		return nil
	}
	return s.errorf("a graph passed to function %s uses %q of its caller", f.GetName(), outer[0]).
		AsUnsupported("inline the function, with onnx.inliner, or pass the value as an input")
}

// resolveAttr returns the attribute itself, or under its name what it refers to in the function's caller; nil if that
// is absent.
func (sc *scope) resolveAttr(a *onnxpb.AttributeProto) *onnxpb.AttributeProto {
	ref := a.GetRefAttrName()
	if ref == "" {
		return a
	}
	for ; sc != nil; sc = sc.parent {
		if sc.attrs == nil {
			continue
		}
		to := sc.attrs[ref]
		if to == nil || ref == a.GetName() {
			return to
		}
		return &onnxpb.AttributeProto{
			Name: a.Name, Type: to.Type, F: to.F, I: to.I, S: to.S, T: to.T, G: to.G, SparseTensor: to.SparseTensor, Tp: to.Tp,
			Floats: to.Floats, Ints: to.Ints, Strings: to.Strings, Tensors: to.Tensors, Graphs: to.Graphs,
			SparseTensors: to.SparseTensors, TypeProtos: to.TypeProtos,
		}
	}
	return nil
}

// subgraph converts the body of a control-flow node with the given inputs and returns its outputs.
func (im *importer) subgraph(sc *scope, g *onnxpb.GraphProto, where string, inputs []*ir.Value) ([]*ir.Value, error) {
	if len(inputs) != len(g.Input) {
		return nil, fmt.Errorf("its body %q has %d inputs, want %d", g.GetName(), len(g.Input), len(inputs))
	}
	inner := &scope{parent: sc, prefix: sc.prefix + strings.TrimSuffix(where, "/") + "/", values: map[string]*ir.Value{}, opsets: sc.opsets}
	if err := im.initializers(inner, g); err != nil {
		return nil, err
	}
	for i, in := range g.Input {
		inner.values[in.GetName()] = inputs[i]
	}
	inner.results(valueNames(g.Output), g.Node)
	if err := im.nodes(inner, g.Node); err != nil {
		return nil, err
	}
	var outs []*ir.Value
	for _, name := range valueNames(g.Output) {
		v := inner.lookup(name)
		if v == nil {
			return nil, fmt.Errorf("its body %q does not compute output %q", g.GetName(), name)
		}
		outs = append(outs, v)
	}
	return outs, nil
}
