package onnx

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
)

// admittedDomains are the operator domains whose nodes pass validation; the importer may still reject an operator.
var admittedDomains = map[string]bool{"": true, "ai.onnx.ml": true, "ai.onnx.preview": true, microsoft: true}

// nameScope is a set of value names with the scope around it.
type nameScope struct {
	outer *nameScope
	names map[string]string // value name → what defines it, for messages
}

func (s *nameScope) has(name string) bool {
	for ; s != nil; s = s.outer {
		if _, ok := s.names[name]; ok {
			return true
		}
	}
	return false
}

// validator walks the graphs of a model; opsets are those of the model or of the function that it is inside.
type validator struct {
	m      *Model
	opsets map[string]int64
}

// Validate checks the structure of the model: every value is defined exactly once, there is no cycle, every node is
// an operator of a known domain or calls a local function, and no function calls itself. It sorts the nodes
// topologically if the file's order is not topological. An inner graph may redefine a name of the graph around it.
// Errors are of type *Error.
func (m *Model) Validate() error {
	if err := m.indexFunctions(); err != nil {
		return err
	}
	v := &validator{m: m, opsets: m.Opsets}
	if err := v.graph(m.Proto.GetGraph(), nil); err != nil {
		return err
	}
	if len(m.Proto.GetGraph().GetOutput()) == 0 {
		return m.fileError("the graph has no outputs").WithRemedy("declare the values to compute as graph outputs")
	}
	outputs := valueNames(m.Proto.Graph.Output)
	for i, name := range outputs {
		if slices.Contains(outputs[:i], name) {
			return m.fileError("graph output %q is listed twice", name)
		}
	}
	return v.functions()
}

// graph checks one graph inside its surroundings and orders its nodes.
func (v *validator) graph(g *onnxpb.GraphProto, outer *nameScope) error {
	s := &nameScope{outer: outer, names: map[string]string{}}
	for _, in := range g.GetInput() {
		if err := v.define(s, in.GetName(), "graph input"); err != nil {
			return err
		}
	}
	inits := map[string]bool{}
	dense := g.GetInitializer()
	for _, sparse := range g.GetSparseInitializer() {
		dense = append(slices.Clip(dense), sparse.GetValues()) // whose name is its own
	}
	for _, t := range dense {
		name := t.GetName()
		if inits[name] {
			return v.m.fileError("value %q is defined twice: by two initializers", name)
		}
		inits[name] = true
		if s.names[name] == "graph input" {
			continue // the default value of an input
		}
		if err := v.define(s, name, "initializer"); err != nil {
			return err
		}
	}
	if err := v.body(g.GetNode(), s); err != nil {
		return err
	}
	for _, o := range g.GetOutput() {
		if !s.has(o.GetName()) {
			return v.m.fileError("graph output %q is not defined", o.GetName()).WithRemedy("the file is damaged or was cut in the wrong place: export it again")
		}
	}
	return nil
}

// define adds a name to its scope.
func (v *validator) define(s *nameScope, name, by string) error {
	if name == "" {
		return v.m.fileError("%s without a name", by)
	}
	if old, ok := s.names[name]; ok {
		return v.m.fileError("value %q is defined twice: by %s and by %s", name, old, by)
	}
	s.names[name] = by
	return nil
}

// body checks the nodes of a graph or a function, whose inputs s already has, and orders them.
func (v *validator) body(nodes []*onnxpb.NodeProto, s *nameScope) error {
	producer := map[string]int{}
	for i, n := range nodes {
		if err := v.node(n); err != nil {
			return v.at(n, err)
		}
		for _, out := range n.GetOutput() {
			if out == "" {
				continue // an absent output
			}
			if err := v.define(s, out, "node "+strconv.Quote(nodeLabel(n))); err != nil {
				return v.at(n, err)
			}
			producer[out] = i
		}
	}
	// Inner graphs may use names that later nodes define, so they are checked once all names of this graph are known.
	uses := make([][]string, len(nodes))
	for i, n := range nodes {
		for _, sub := range subgraphs(n) {
			if err := v.graph(sub, s); err != nil {
				return v.at(n, err)
			}
		}
		uses[i] = freeNames(n)
		for _, name := range uses[i] {
			if name != "" && !s.has(name) {
				return v.at(n, v.m.fileError("input %q is not defined", name).
					WithRemedy("no graph input, initializer or node provides it: the file is damaged or was cut in the wrong place"))
			}
		}
	}
	return v.order(nodes, uses, producer)
}

// node checks a node on its own.
func (v *validator) node(n *onnxpb.NodeProto) error {
	if n.GetOpType() == "" {
		return v.m.fileError("the node has no op_type")
	}
	attributes := mapped(n.GetAttribute(), (*onnxpb.AttributeProto).GetName)
	for i, name := range attributes {
		if name == "" {
			return v.m.fileError("an attribute has no name")
		}
		if slices.Contains(attributes[:i], name) {
			return v.m.fileError("attribute %q is given twice", name)
		}
	}
	if v.m.function(n) != nil {
		return nil
	}
	d := Domain(n.GetDomain())
	if !admittedDomains[d] {
		return v.m.fileError("operators of domain %q are not supported", d).
			AsUnsupported("%s", remedyOf(d))
	}
	if v.opsets[d] == 0 {
		return v.m.fileError("the file imports no opset of domain %q", cmp.Or(d, "ai.onnx")).WithRemedy("add it to opset_import")
	}
	return nil
}

// remedyOf suggests what to do about operators of a foreign domain. Those of trt (TRT_FP4DynamicQuantize,
// TRT_FP8QuantizeLinear, …) are ModelOpt's for TensorRT; those of com.microsoft.nchwc and com.ms.internal.nhwc are
// layouts for the processor that ONNX Runtime optimised the file on.
func remedyOf(domain string) string {
	switch domain {
	case "com.microsoft.nchwc", "com.ms.internal.nhwc":
		return "let ONNX Runtime save the optimised model with ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL, or compile the model as it was"
	case "trt":
		return "quantise with QuantizeLinear and DequantizeLinear of ai.onnx (activations in fp8 or int8, weights in these or in NVFP4), or compile the model before quantisation with --precision fp8 or nvfp4"
	}
	return "export the model with operators of ai.onnx only"
}

// order sorts nodes topologically. A file whose nodes are in order already stays as it is; otherwise each node
// follows what it needs.
func (v *validator) order(nodes []*onnxpb.NodeProto, uses [][]string, producer map[string]int) error {
	order, cycle := sorted(len(nodes), func(i int) []int {
		var needs []int
		for _, name := range uses[i] {
			if p, ok := producer[name]; ok {
				needs = append(needs, p)
			}
		}
		return needs
	})
	if cycle == nil {
		was := slices.Clone(nodes)
		for i, j := range order {
			nodes[i] = was[j]
		}
		return nil
	}
	const most = 8
	var labels []string
	for _, i := range cycle[:min(len(cycle), most)] {
		labels = append(labels, strconv.Quote(nodeLabel(nodes[i])))
	}
	if len(cycle) > most {
		labels = append(labels, "…")
	}
	return v.at(nodes[cycle[0]],
		v.m.fileError("its input depends on its own output, by the cycle %s", strings.Join(labels, " ← ")))
}

// sorted returns 0 … n-1 in an order in which each comes after what it needs, changing as little as a depth-first
// search does, or else one cycle, least number first, each followed by what it needs.
func sorted(n int, needs func(i int) []int) (order, cycle []int) {
	const open, done = 1, 2
	state := make([]int, n)
	var path []int
	var visit func(i int) bool
	visit = func(i int) bool {
		switch state[i] {
		case done:
			return true
		case open:
			cycle = path[slices.Index(path, i):]
			first := slices.Index(cycle, slices.Min(cycle))
			cycle = slices.Concat(cycle[first:], cycle[:first])
			return false
		}
		state[i], path = open, append(path, i)
		for _, j := range needs(i) {
			if !visit(j) {
				return false
			}
		}
		state[i], path = done, path[:len(path)-1]
		order = append(order, i)
		return true
	}
	for i := range n {
		if !visit(i) {
			return nil, cycle
		}
	}
	return order, nil
}

// functions checks the bodies of local functions and that none calls itself, directly or through others.
func (v *validator) functions() error {
	list := v.m.Proto.GetFunctions()
	index := map[string]int{}
	for i, f := range list {
		index[functionID(f.GetDomain(), f.GetName(), f.GetOverload())] = i
	}
	for _, f := range list {
		if err := v.function(f); err != nil {
			return err
		}
	}
	_, cycle := sorted(len(list), func(i int) []int {
		var calls []int
		eachNode(list[i].GetNode(), func(n *onnxpb.NodeProto) {
			if j, ok := index[functionID(n.GetDomain(), n.GetOpType(), n.GetOverload())]; ok {
				calls = append(calls, j)
			}
		})
		return calls
	})
	if cycle != nil {
		f := list[cycle[0]]
		return v.m.fileError("function %s.%s calls itself, directly or through others", f.GetDomain(), f.GetName())
	}
	return nil
}

func (v *validator) function(f *onnxpb.FunctionProto) error {
	opsets, err := v.m.functionOpsets(f)
	if err != nil {
		return err
	}
	inner := &validator{m: v.m, opsets: opsets}
	s := &nameScope{names: map[string]string{}}
	for _, in := range f.GetInput() {
		if err := inner.define(s, in, "function input"); err != nil {
			return err
		}
	}
	if err := inner.body(f.GetNode(), s); err != nil {
		return err
	}
	for _, out := range f.GetOutput() {
		if !s.has(out) {
			return v.m.fileError("function %s.%s: output %q is not defined", f.GetDomain(), f.GetName(), out)
		}
	}
	return nil
}

// indexFunctions indexes local functions by the domain, name and overload that nodes refer to them by.
func (m *Model) indexFunctions() error {
	m.functions = map[string]*onnxpb.FunctionProto{}
	for _, f := range m.Proto.GetFunctions() {
		key := functionID(f.GetDomain(), f.GetName(), f.GetOverload())
		if m.functions[key] != nil {
			return m.fileError("function %s.%s is defined twice", f.GetDomain(), f.GetName())
		}
		m.functions[key] = f
	}
	return nil
}

// function is the local function that a node calls, or nil. The model must have been validated.
func (m *Model) function(n *onnxpb.NodeProto) *onnxpb.FunctionProto {
	return m.functions[functionID(n.GetDomain(), n.GetOpType(), n.GetOverload())]
}

func functionID(domain, name, overload string) string {
	return Domain(domain) + "\x00" + name + "\x00" + overload
}

// at adds node n to an error. Its domain's version may be the function's own.
func (v *validator) at(n *onnxpb.NodeProto, err error) error {
	if e, ok := err.(*Error); ok {
		return e.at(n, nodeLabel(n), v.opsets[Domain(n.GetDomain())])
	}
	return err
}

// subgraphs are the graphs among a node's attributes.
func subgraphs(n *onnxpb.NodeProto) []*onnxpb.GraphProto {
	var out []*onnxpb.GraphProto
	for _, a := range n.GetAttribute() {
		if a.G != nil {
			out = append(out, a.G)
		}
		out = append(out, a.Graphs...)
	}
	return out
}

// eachNode calls f for nodes and for all nodes of graphs inside them.
func eachNode(nodes []*onnxpb.NodeProto, f func(*onnxpb.NodeProto)) {
	for _, n := range nodes {
		f(n)
		for _, g := range subgraphs(n) {
			eachNode(g.GetNode(), f)
		}
	}
}

// freeNames are the values that a node takes from its graph: its inputs, and what its inner graphs use but do not
// define. Names may repeat, and "" stands for an absent input.
func freeNames(n *onnxpb.NodeProto) []string {
	out := slices.Clone(n.GetInput())
	for _, g := range subgraphs(n) {
		used := valueNames(g.GetOutput())
		for _, inner := range g.GetNode() {
			used = append(used, freeNames(inner)...)
		}
		defined := definedIn(g)
		out = append(out, slices.DeleteFunc(used, func(name string) bool { return defined[name] })...)
	}
	return out
}

// definedIn is the set of names that a graph defines at its own level.
func definedIn(g *onnxpb.GraphProto) map[string]bool {
	out := map[string]bool{}
	for _, v := range g.GetInput() {
		out[v.GetName()] = true
	}
	for _, t := range g.GetInitializer() {
		out[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		out[t.GetValues().GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, o := range n.GetOutput() {
			out[o] = true
		}
	}
	return out
}
