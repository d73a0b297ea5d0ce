package onnx

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

var controlOperators = []operator{
	{name: "If", since: 7, shapes: []int{0}, convert: ifThenElse},
	{name: "Loop", since: 7, shapes: []int{0, 1}, convert: loop},
	{name: "Scan", since: 8, until: 8, convert: scanBatched},
	{name: "Scan", since: 9, convert: scan},
}

// ifThenElse inlines the branch that a constant condition chooses, and both where the condition is computed from data.
func ifThenElse(s *site) {
	holds, known := s.condition(s.in(0))
	if !known {
		s.selects()
		return
	}
	name := "else_branch"
	if holds {
		name = "then_branch"
	}
	for i, v := range s.branch(name) {
		s.out(i, v)
	}
}

// branch inlines a branch of an If and returns what the node yields if it is taken.
func (s *site) branch(name string) []*ir.Value {
	outs, err := s.im.subgraph(s.sc, s.body(name), nodeLabel(s.n)+"/"+name, nil)
	s.check(err)
	if len(outs) < len(s.n.Output) {
		s.fail("%s has %d outputs, the node %d", name, len(outs), len(s.n.Output))
	}
	return outs[:len(s.n.Output)]
}

// mostSelected is the number of nodes that the branches of an If may have together to be both computed, each time.
const mostSelected = 256

// selects computes both branches of an If and selects the outputs of the one that the condition chooses. No operator
// has effects.
func (s *site) selects() {
	const remedy = "fix the inputs that it depends on with --input NAME=VALUE, or compile each branch as a model"
	cond, nodes, counted := s.reshape(s.in(0)), len(s.im.g.Nodes), len(s.im.counted)
	yes, no := s.branch("then_branch"), s.branch("else_branch")
	if n := len(s.im.g.Nodes) - nodes; n > mostSelected {
		s.refuse(remedy, "its condition is computed from data, and its branches have %d operations: "+
			"more than %d are not computed both", n, mostSelected)
	}
	if len(s.im.counted) > counted {
		s.refuse(remedy, "its condition is computed from data, and so is how many outputs a branch has")
	}
	for i := range s.n.Output {
		if a, b := yes[i].Type, no[i].Type; !a.Equal(b) {
			s.refuse(remedy, "its condition is computed from data, and output %d is %v in one branch and %v in the other",
				i, a, b)
		}
		s.out(i, s.chosen(cond, yes[i], no[i]))
	}
}

// body is an attribute that holds a graph, which the operator requires.
func (s *site) body(name string) *onnxpb.GraphProto {
	s.need(name)
	return s.graph(name)
}

// condition is the value of a bool that decides the structure of the graph, if it is known.
func (s *site) condition(v *ir.Value) (holds, known bool) {
	t := s.valueOf(v)
	if t == nil {
		return false, false
	}
	s.knows(v)
	if t.DType != ir.Bool || t.Numel() != 1 {
		s.fail("the condition is %v, want one bool", t.Type)
	}
	return t.IntAt(0) != 0, true
}

// loop unrolls a loop. Where the condition stays known, so is the number of iterations. Otherwise the trip count
// bounds it: once the condition fails, states stay as they are, and the body goes on with the inputs of its last
// iteration.
func loop(s *site) {
	trips := -1 // no limit
	if s.opt(0) != nil {
		trips = max(0, s.knownInt(0, "the trip count", 0))
	}
	cond := s.opt(1)
	body := s.body("body")
	var states []*ir.Value
	for i := 2; i < len(s.n.Input); i++ {
		if s.any(i) == nil {
			s.fail("input %d is missing", i)
		}
		states = append(states, s.any(i))
	}
	scans := make([][]*ir.Value, max(0, len(body.Output)-1-len(states)))
	if len(body.Output) != 1+len(states)+len(scans) || len(s.n.Output) > len(states)+len(scans) {
		s.fail("its body has %d outputs, the node %d states and %d outputs", len(body.Output), len(states), len(s.n.Output))
	}
	var going *ir.Value // whether a loop on data goes on
	var inputs []*ir.Value
	for iteration := 0; trips < 0 || iteration < trips; iteration++ {
		if cond != nil {
			holds, known := s.condition(cond)
			if !known {
				s.endsOnData(trips, len(scans), len(states))
				cond = s.reshape(cond)
				if going != nil {
					cond = s.op("And", going, cond)
				}
				going = cond
			}
			if known && !holds {
				break
			}
		}
		if iteration == s.im.opt.MaxUnroll {
			s.refuse("export it with fewer iterations, or run its body as a model of its own", "it runs more than %d times, the most that are unrolled", s.im.opt.MaxUnroll)
		}
		now := s.constant(ir.ScalarInt(ir.Bool, 1))
		if cond != nil && going == nil {
			now = cond
		}
		next := append([]*ir.Value{s.scalarInt(iteration), now}, states...)
		if going != nil && inputs != nil {
			for i, v := range next {
				next[i] = s.chosen(going, v, inputs[i])
			}
		}
		inputs = next
		outs, err := s.im.subgraph(s.sc, body, fmt.Sprintf("%s/%d", nodeLabel(s.n), iteration), slices.Clone(inputs))
		s.check(err)
		cond = outs[0] // a body may end even a loop that began without a condition
		for i, held := range states {
			if states[i] = outs[1+i]; going != nil {
				states[i] = s.chosen(going, outs[1+i], held)
			}
		}
		for k := range scans {
			scans[k] = append(scans[k], s.unsqueeze(outs[1+len(states)+k], 0))
		}
	}
	for i, v := range states {
		s.out(i, v)
	}
	for k, list := range scans {
		if s.wants(len(states) + k) {
			s.out(len(states)+k, s.collected(0, list))
		}
	}
}

// boundedLoop reports whether a node is a loop whose condition may be data: its trip count bounds it, and it collects
// nothing.
func boundedLoop(n *onnxpb.NodeProto) bool {
	return n.GetOpType() == "Loop" && len(n.Input) > 2 && n.Input[0] != "" && len(n.Output) <= len(n.Input)-2
}

// endsOnData refuses a loop whose condition is computed from data where nothing bounds it, or where the length of an
// output depends on when it ends.
func (s *site) endsOnData(trips, scans, states int) {
	if trips < 0 {
		s.refuse("give it a trip count that bounds it", "its condition is computed from data, and no trip count bounds it")
	}
	for k := range scans {
		if s.wants(states + k) {
			s.refuse("write into a state of fixed size, by ScatterND",
				"its condition is computed from data, and so is the length of output %d", states+k)
		}
	}
}

// chosen is a where the scalar cond holds, else b, of one type.
func (s *site) chosen(cond, a, b *ir.Value) *ir.Value {
	if a == b {
		return a
	}
	if _, ok := s.im.sequences[a]; ok {
		s.refuse("write into a state of fixed size, by ScatterND", "its condition is computed from data, and a state is a sequence")
	}
	if !a.Type.Equal(b.Type) {
		s.refuse("keep states of one shape",
			"its condition is computed from data, and a state changes from %v to %v", b.Type, a.Type)
	}
	return s.where(cond, a, b)
}

// collected is what the iterations of a loop yielded, one after the other along an axis.
func (s *site) collected(axis int, list []*ir.Value) *ir.Value {
	if len(list) == 0 {
		s.refuse("export the model without the loop", "it collects outputs but does not run, so their shape is unknown")
	}
	return s.concat(s.axis(axis, list[0].Type.Rank()), list...)
}

// scanner is the shape of one Scan node: which inputs it walks and where outputs go.
type scanner struct {
	states, inputs, outputs int
	axes, outAxes           []int
	directions, outDirs     []int
}

func (s *site) scanner(inputs, bodyOutputs int, axes, dirs string) scanner {
	sc := scanner{inputs: s.int("num_scan_inputs", 0)}
	sc.states = inputs - sc.inputs
	sc.outputs = bodyOutputs - sc.states
	if sc.inputs < 1 || sc.states < 0 || sc.outputs < 0 {
		s.fail("num_scan_inputs=%d of %d inputs, and its body has %d outputs", sc.inputs, inputs, bodyOutputs)
	}
	sc.axes, sc.outAxes = s.listOf(axes, sc.inputs, 0), s.listOf("scan_output_axes", sc.outputs, 0)
	sc.directions, sc.outDirs = s.listOf(dirs, sc.inputs, 0), s.listOf("scan_output_directions", sc.outputs, 0)
	return sc
}

func scan(s *site) {
	body := s.body("body")
	vs := s.all()
	sc := s.scanner(len(vs), len(body.Output), "scan_input_axes", "scan_input_directions")
	for i, v := range s.scanOnce(sc, vs[:sc.states], vs[sc.states:], "") {
		s.out(i, v)
	}
}

// scanBatched is Scan 8: every input has a batch dimension, over which the scan is repeated.
func scanBatched(s *site) {
	if s.opt(0) != nil {
		s.refuse("export it for sequences of one length", "sequence_lens is not supported")
	}
	body := s.body("body")
	vs := make([]*ir.Value, 0, len(s.n.Input))
	for i := 1; i < len(s.n.Input); i++ {
		v := s.in(i)
		s.rank(v, 1)
		vs = append(vs, v)
	}
	sc := s.scanner(len(vs), len(body.Output), "", "directions")
	batch := vs[0].Type.Shape[0]
	outs := make([][]*ir.Value, sc.states+sc.outputs)
	for b := range batch {
		each := make([]*ir.Value, len(vs))
		for i, v := range vs {
			if v.Type.Shape[0] != batch {
				s.fail("inputs %v and %v differ in the batch dimension", vs[0].Type, v.Type)
			}
			each[i] = s.index(v, 0, b)
		}
		for i, v := range s.scanOnce(sc, each[:sc.states], each[sc.states:], fmt.Sprintf("/batch%d", b)) {
			outs[i] = append(outs[i], s.unsqueeze(v, 0))
		}
	}
	for i, list := range outs {
		s.out(i, s.collected(0, list))
	}
}

// scanOnce walks the inputs and returns final states and concatenated outputs.
func (s *site) scanOnce(sc scanner, states, inputs []*ir.Value, where string) []*ir.Value {
	states = append([]*ir.Value{}, states...)
	length := -1
	axes := make([]int, len(inputs))
	for i, v := range inputs {
		axes[i] = s.axis(sc.axes[i], v.Type.Rank())
		n := v.Type.Shape[axes[i]]
		if length >= 0 && n != length {
			s.fail("scan inputs have %d and %d elements", length, n)
		}
		length = n
	}
	if length > s.im.opt.MaxUnroll {
		s.refuse("export it with fewer iterations, or run its body as a model of its own", "it runs %d times; at most %d are unrolled", length, s.im.opt.MaxUnroll)
	}
	outs := make([][]*ir.Value, sc.outputs)
	body := s.graph("body")
	for t := range length {
		args := append([]*ir.Value{}, states...)
		for i, v := range inputs {
			at := t
			if sc.directions[i] != 0 {
				at = length - 1 - t
			}
			args = append(args, s.index(v, axes[i], at))
		}
		results, err := s.im.subgraph(s.sc, body, fmt.Sprintf("%s%s/%d", nodeLabel(s.n), where, t), args)
		s.check(err)
		copy(states, results)
		for k, v := range results[sc.states:] {
			v = s.unsqueeze(v, s.axis(sc.outAxes[k], v.Type.Rank()+1))
			if sc.outDirs[k] != 0 {
				outs[k] = append([]*ir.Value{v}, outs[k]...)
			} else {
				outs[k] = append(outs[k], v)
			}
		}
	}
	all := states
	for k, list := range outs {
		all = append(all, s.collected(sc.outAxes[k], list))
	}
	return all
}
