package onnx

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// operator is a row of the import table: how one operator, in a range of versions of its domain, becomes ops.
type operator struct {
	domain  string // "" is ai.onnx
	name    string
	since   int64
	until   int64 // last version; 0: none
	shapes  []int // inputs that must be constants, since they decide shapes or the structure of the graph
	refused bool  // by design
	convert func(*site)
}

// operatorTable holds rows by domain and name; the version ranges of a list are disjoint and ascend.
type operatorTable map[operatorKey][]operator

// operators is the import table. Conversions reach it through their importer, since some convert inner graphs.
var operators = collectOperators(
	elementwiseOperators, activationOperators, movementOperators, indexingOperators, reductionOperators,
	normalizationOperators, convolutionOperators, poolOperators, linearOperators, quantizationOperators,
	recurrentOperators, attentionOperators, samplingOperators, signalOperators, lossOperators, controlOperators,
	constantOperators, boundedOperators, microsoftOperators, qLinearOperators, treeOperators, classicalOperators, sequenceOperators,
	refusedOperators,
)

type operatorKey struct{ domain, name string }

func collectOperators(groups ...[]operator) operatorTable {
	table := operatorTable{}
	for _, g := range groups {
		for _, op := range g {
			k := operatorKey{op.domain, op.name}
			if have := table[k]; len(have) > 0 && (have[len(have)-1].until == 0 || op.since <= have[len(have)-1].until) {
				panic("operator declared twice, or out of order: " + op.name)
			}
			table[k] = append(table[k], op)
		}
	}
	return table
}

// sameOp are the rows of operators that are the op of the same name, without attributes.
func sameOp(since int64, names ...string) []operator {
	var rows []operator
	for _, name := range names {
		rows = append(rows, operator{name: name, since: since, convert: oneOp(name)})
	}
	return rows
}

// listOperator are the rows of an operator with a list of integers that is an attribute before version inputSince,
// and from there on input 1.
func listOperator(name string, inputSince int64, list string, convert func(s *site, list []int)) []operator {
	return []operator{
		{name: name, since: 7, until: inputSince - 1, convert: func(s *site) { convert(s, s.ints(list)) }},
		{name: name, since: inputSince, shapes: []int{1}, convert: func(s *site) { convert(s, s.knownInts(1, list)) }},
	}
}

// oneOp converts an operator that is one op: its inputs are the op's, and so are its outputs; attrs, if given, reads
// the attributes.
func oneOp(name string, attrs ...func(*site) ir.Attrs) func(*site) {
	return func(s *site) {
		var in []*ir.Value
		for i, input := range ir.LookupOp(name).Inputs {
			if input.Optional {
				in = append(in, s.opt(i))
			} else {
				in = append(in, s.in(i))
			}
		}
		var read ir.Attrs
		if len(attrs) > 0 {
			read = attrs[0](s)
		}
		for i, v := range s.addAll(name, read, in...) {
			s.out(i, v)
		}
	}
}

// lookup finds the row of an operator at a version of its domain.
func (table operatorTable) lookup(domain, name string, opset int64) (*operator, error) {
	rows := table[operatorKey{domain, name}]
	for i := range rows {
		if r := &rows[i]; opset >= r.since && (r.until == 0 || opset <= r.until) {
			return r, nil
		}
	}
	switch {
	case len(rows) > 0 && opset < rows[0].since:
		return nil, fmt.Errorf("the operator was introduced in opset %d", rows[0].since)
	case len(rows) > 0:
		return nil, fmt.Errorf("the operator was removed after opset %d", rows[len(rows)-1].until)
	case domain == "":
		return nil, errors.New("unknown operator")
	}
	return nil, fmt.Errorf("unknown operator of domain %q, and the model has no function of that name", domain)
}

// Operators returns the names of the operators of a domain ("" is ai.onnx) that are converted at a version of it, or
// at any if that is 0; sorted.
func Operators(domain string, version int64) []string {
	var names []string
	for k, rows := range operators {
		at := version
		if at == 0 {
			at = rows[len(rows)-1].since
		}
		if row, err := operators.lookup(k.domain, k.name, at); k.domain == domain && err == nil && !row.refused {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return names
}

// ShapeInputs returns the names of the inputs whose values decide shapes or the structure of the graph: an operator
// input that must be constant is computed from them. Import rejects the model unless they have initializers or are
// bound in ImportOptions.Constants.
func ShapeInputs(m *Model) []string {
	d := &shapeDeciders{m: m, need: map[string]bool{}}
	d.graph(m.Proto.Graph, m.Opsets)
	return slices.DeleteFunc(valueNames(m.Proto.Graph.Input), func(name string) bool { return !d.need[name] })
}

// shapeDeciders walks a model backwards. It assumes that a name means the same in nested graphs and around them, and
// so may bind more inputs than necessary.
type shapeDeciders struct {
	m    *Model
	need map[string]bool
}

func (d *shapeDeciders) graph(g *onnxpb.GraphProto, opsets map[string]int64) {
	for _, n := range slices.Backward(g.Node) {
		d.node(n, opsets)
	}
}

func (d *shapeDeciders) node(n *onnxpb.NodeProto, opsets map[string]int64) {
	domain := Domain(n.GetDomain())
	for _, g := range subgraphs(n) {
		d.graph(g, opsets)
	}
	if f := d.m.function(n); f != nil {
		d.call(n, f)
		return
	}
	row, err := operators.lookup(domain, n.GetOpType(), opsets[domain])
	if err != nil {
		return
	}
	for _, i := range row.shapes {
		if i < len(n.Input) && !(i == 1 && boundedLoop(n)) {
			d.want(n.Input[i])
		}
	}
	if !slices.ContainsFunc(n.Output, func(o string) bool { return d.need[o] }) || shapeOnly(n.GetOpType()) {
		return
	}
	for _, in := range n.Input {
		d.want(in)
	}
	for _, g := range subgraphs(n) {
		for _, o := range g.Output {
			d.need[o.GetName()] = true
		}
		d.graph(g, opsets)
	}
}

// call maps the needed inputs of a function to those of the node that calls it.
func (d *shapeDeciders) call(n *onnxpb.NodeProto, f *onnxpb.FunctionProto) {
	inner := &shapeDeciders{m: d.m, need: map[string]bool{}}
	for i, o := range n.Output {
		if i < len(f.Output) && d.need[o] {
			inner.need[f.Output[i]] = true
		}
	}
	opsets, err := d.m.functionOpsets(f)
	if err != nil {
		return
	}
	for _, fn := range slices.Backward(f.Node) {
		inner.node(fn, opsets)
	}
	for i, in := range n.Input {
		if i < len(f.Input) && inner.need[f.Input[i]] {
			d.want(in)
		}
	}
}

// want marks a value as needed; an empty name is an absent input.
func (d *shapeDeciders) want(name string) {
	if name != "" {
		d.need[name] = true
	}
}

// shapeOnly are the operators whose result depends on the shape of an input, not on its value.
func shapeOnly(op string) bool { return op == "Shape" || op == "Size" || op == "EyeLike" }
