package onnx

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// treeOperators are random forests and boosted trees, as skl2onnx and onnxmltools export them.
var treeOperators = []operator{
	{domain: classical, name: "TreeEnsembleClassifier", since: 1, convert: treeClassifier},
	{domain: classical, name: "TreeEnsembleRegressor", since: 1, convert: treeRegressor},
	{domain: classical, name: "TreeEnsemble", since: 5, convert: treeEnsemble},
}

// treeNode is a node of a tree: a comparison of a feature with a threshold, or a leaf, which has no mode.
type treeNode struct {
	mode      string // LEQ, LT, GTE, GT, EQ, NEQ; "" is a leaf
	feature   int
	threshold float64
	missing   bool // NaN goes the way of a true comparison
	yes, no   int  // nodes that follow
	weights   []treeWeight
}

// treeWeight is what a leaf adds to a target, or to the score of a class.
type treeWeight struct {
	target int
	weight float64
}

// forest is the trees of a node, in one list.
type forest struct {
	nodes []treeNode
	roots []int
	wide  bool // thresholds are f64
}

// treeModes are the results of a comparison for features below, at and above the threshold, and NaN.
var treeModes = map[string][4]bool{
	"LEQ": {true, true, false, false}, "LT": {true, false, false, false}, "GTE": {false, true, true, false},
	"GT": {false, false, true, false}, "EQ": {false, true, false, false}, "NEQ": {true, false, true, true},
}

// tableOf is attribute name, or NAME_as_tensor, which is of f64; wide reports the latter.
func (s *site) tableOf(name string) (list []float64, wide bool) {
	if a := s.attr(name+"_as_tensor", onnxpb.AttributeProto_TENSOR); a != nil {
		t, err := s.im.m.Tensor(a.GetT())
		s.check(err)
		if !t.DType.IsFloat() {
			s.fail("attribute %s_as_tensor is %v, want floating-point numbers", name, t.Type)
		}
		return t.Floats(), t.DType == ir.Float64
	}
	return s.floats(name), false
}

// sameLength fails unless lists of one entry a node are n long.
func (s *site) sameLength(n int, names ...string) {
	for _, name := range names {
		if have := len(s.ints(name)); have != n {
			s.fail("attribute %q has %d entries, want %d, one a node", name, have, n)
		}
	}
}

// readForest reads the trees of TreeEnsembleClassifier and TreeEnsembleRegressor, whose weights have the given prefix.
func (s *site) readForest(weightsPrefix string, targets int) forest {
	type place struct{ tree, node int }
	trees, ids := s.ints("nodes_treeids"), s.ints("nodes_nodeids")
	n := len(trees)
	if n == 0 {
		s.fail("it has no nodes")
	}
	s.sameLength(n, "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
	modes, missing := s.strings("nodes_modes"), s.ints("nodes_missing_value_tracks_true")
	thresholds, wide := s.tableOf("nodes_values")
	if len(modes) != n || len(thresholds) != n || len(missing) != 0 && len(missing) != n {
		s.fail("%d modes, %d values and %d nodes_missing_value_tracks_true for %d nodes",
			len(modes), len(thresholds), len(missing), n)
	}
	at := map[place]int{}
	for i := range n {
		p := place{trees[i], ids[i]}
		if _, ok := at[p]; ok {
			s.fail("tree %d has two nodes %d", p.tree, p.node)
		}
		at[p] = i
	}
	f := forest{nodes: make([]treeNode, n), wide: wide}
	child := make([]bool, n)
	for i := range n {
		node := &f.nodes[i]
		node.mode = strings.TrimPrefix(modes[i], "BRANCH_")
		if node.mode == "LEAF" {
			node.mode = ""
			continue
		}
		node.feature, node.threshold = s.ints("nodes_featureids")[i], thresholds[i]
		node.missing = missing != nil && missing[i] != 0
		follow := func(list string) int {
			j, ok := at[place{trees[i], s.ints(list)[i]}]
			if !ok {
				s.fail("tree %d has no node %d, which follows node %d", trees[i], s.ints(list)[i], ids[i])
			}
			child[j] = true
			return j
		}
		node.yes, node.no = follow("nodes_truenodeids"), follow("nodes_falsenodeids")
	}
	seen := map[int]bool{}
	for i := range n {
		if !child[i] {
			if seen[trees[i]] {
				s.fail("tree %d has two roots", trees[i])
			}
			seen[trees[i]], f.roots = true, append(f.roots, i)
		}
	}
	s.readTreeWeights(weightsPrefix, targets, func(tree, node int) *treeNode {
		if i, ok := at[place{tree, node}]; ok {
			return &f.nodes[i]
		}
		return nil
	})
	return f
}

// readTreeWeights adds the weights to their leaves.
func (s *site) readTreeWeights(prefix string, targets int, leaf func(tree, node int) *treeNode) {
	trees, ids, of := s.ints(prefix+"treeids"), s.ints(prefix+"nodeids"), s.ints(prefix+"ids")
	weights, _ := s.tableOf(prefix + "weights")
	if len(ids) != len(trees) || len(of) != len(trees) || len(weights) != len(trees) {
		s.fail("%streeids, nodeids, ids and weights have %d, %d, %d and %d entries",
			prefix, len(trees), len(ids), len(of), len(weights))
	}
	for i, w := range weights {
		node := leaf(trees[i], ids[i])
		if node == nil || node.mode != "" {
			s.fail("a weight is at node %d of tree %d, which is not a leaf", ids[i], trees[i])
		}
		if of[i] < 0 || of[i] >= targets {
			s.fail("%sids has %d, want 0 to %d", prefix, of[i], targets-1)
		}
		node.weights = append(node.weights, treeWeight{of[i], w})
	}
}

// depth is the greatest number of comparisons from a root to a leaf. It fails where nodes go in a circle.
func (s *site) depth(f forest) int {
	const open = -1
	depths := map[int]int{}
	var below func(i int) int
	below = func(i int) int {
		node := f.nodes[i]
		if node.mode == "" {
			return 0
		}
		if d, ok := depths[i]; ok {
			if d == open {
				s.fail("the nodes of a tree follow each other in a circle")
			}
			return d
		}
		if len(depths) > maxNodes {
			s.refuse("train fewer or smaller trees", "its trees have more than %d nodes", maxNodes)
		}
		depths[i] = open
		depths[i] = 1 + max(below(node.yes), below(node.no))
		return depths[i]
	}
	deepest := 0
	for _, r := range f.roots {
		deepest = max(deepest, below(r))
	}
	if len(f.roots) == 0 {
		s.fail("no tree has a root: its nodes follow each other in a circle")
	}
	if deepest > s.im.opt.MaxUnroll {
		s.refuse("train shallower trees", "a tree has %d levels; at most %d are unrolled", deepest, s.im.opt.MaxUnroll)
	}
	return deepest
}

// leaves walks all trees at once, a level at a time, for the rows of x [B,F], and returns the leaves that they reach,
// i32 [B,T]. One table says for each node which follows if the feature is below, at or above the threshold, or NaN;
// a leaf follows itself.
func (s *site) leaves(x *ir.Value, f forest) *ir.Value {
	rows, features := x.Type.Shape[0], x.Type.Shape[1]
	d := ir.Float32
	if x.Type.DType != ir.Float32 && x.Type.DType.Bits() > 16 || f.wide {
		d = ir.Float64
	}
	x = s.cast(x, d)
	depth := s.depth(f)
	s.bound(len(f.nodes), 4)
	next := make([]float64, 0, 4*len(f.nodes))
	feature, threshold := make([]float64, len(f.nodes)), make([]float64, len(f.nodes))
	for i, node := range f.nodes {
		if node.mode == "" {
			next = append(next, float64(i), float64(i), float64(i), float64(i))
			continue
		}
		ways, ok := treeModes[node.mode]
		if !ok {
			s.fail("a node has mode %q", node.mode)
		}
		if node.feature < 0 || node.feature >= features {
			s.fail("a node compares feature %d of x %v", node.feature, x.Type)
		}
		ways[3] = ways[3] || node.missing
		for _, holds := range ways {
			if holds {
				next = append(next, float64(node.yes))
			} else {
				next = append(next, float64(node.no))
			}
		}
		feature[i], threshold[i] = float64(node.feature), node.threshold
		if math.IsNaN(node.threshold) {
			s.fail("a node compares feature %d with NaN", node.feature)
		}
	}
	nexts, features32 := s.numbers(ir.Int32, next, len(next)), s.numbers(ir.Int32, feature, len(feature))
	thresholds := s.floatsConst(d, threshold, len(threshold))
	roots := s.numbers(ir.Int32, mapped(f.roots, func(i int) float64 { return float64(i) }), 1, len(f.roots))
	at := s.expand(roots, rows, len(f.roots))
	lookup := func(table, index *ir.Value) *ir.Value { return s.add("Gather", ir.Attrs{"axis": 0}, table, index) }
	number := func(n float64) *ir.Value { return s.scalar(ir.Int32, n) }
	for range depth {
		v := s.add("GatherElements", ir.Attrs{"axis": 1}, x, lookup(features32, at))
		t := lookup(thresholds, at)
		way := s.where(s.op("Less", v, t), number(0), s.where(s.op("Equal", v, t), number(1),
			s.where(s.op("Greater", v, t), number(2), number(3))))
		at = lookup(nexts, s.eval("x*4 + y", at, way))
	}
	return at
}

// gathered combines the weights of the leaves at, [B,T], by target: [B,targets] of f32 or f64. scored is which targets
// have a weight at all, nil if all have one.
func (s *site) gathered(f forest, at *ir.Value, d ir.DType, targets int, function string) (y, scored *ir.Value) {
	empty := map[string]float64{"MIN": math.Inf(1), "MAX": math.Inf(-1)}[function] // else 0
	join := map[string]func(a, b float64) float64{"MIN": math.Min, "MAX": math.Max}[function]
	if join == nil {
		join = func(a, b float64) float64 { return a + b }
	}
	s.bound(len(f.nodes), targets)
	table, there := make([]float64, len(f.nodes)*targets), make([]float64, len(f.nodes)*targets)
	full := true
	for i, node := range f.nodes {
		for k := range targets {
			table[i*targets+k] = empty
		}
		for _, w := range node.weights {
			k := i*targets + w.target
			table[k], there[k] = join(table[k], w.weight), 1
		}
		full = full && (node.mode != "" || !slices.Contains(there[i*targets:(i+1)*targets], 0))
	}
	leaf := func(table *ir.Value) *ir.Value { return s.add("Gather", ir.Attrs{"axis": 0}, table, at) } // [B,T,targets]
	op := map[string]string{"MIN": "ReduceMin", "MAX": "ReduceMax"}[function]
	y = s.reduce(cmp.Or(op, "ReduceSum"), leaf(s.floatsConst(d, table, len(f.nodes), targets)), []int{1}, false)
	if function == "AVERAGE" {
		y = s.op("Div", y, s.like(y, float64(len(f.roots))))
	}
	if !full {
		of := leaf(s.numbers(ir.Int32, there, len(f.nodes), targets))
		scored = s.op("Greater", s.reduce("ReduceMax", of, []int{1}, false), s.scalar(ir.Int32, 0))
		y = s.where(scored, y, s.like(y, 0))
	}
	return y, scored
}

// features is x as rows of features, [B,F]; a vector is one row.
func (s *site) features(x *ir.Value) *ir.Value {
	if x.Type.Rank() == 1 {
		return s.unsqueeze(x, 0)
	}
	return s.exactly(x, 2)
}

// baseValues adds base_values, one a target, to scores; there may be none.
func (s *site) baseValues(y *ir.Value) *ir.Value {
	base, _ := s.tableOf("base_values")
	if len(base) == 0 {
		return y
	}
	if n := y.Type.Shape[1]; len(base) != n {
		s.fail("base_values has %d entries, want %d", len(base), n)
	}
	return s.op("Add", y, s.floatsConst(y.Type.DType, base, len(base)))
}

// treeRegressor sums, averages or picks the weights of the leaves.
func treeRegressor(s *site) {
	x := s.features(s.in(0))
	targets := s.int("n_targets", 1)
	s.targetsFit(targets)
	f := s.readForest("target_", targets)
	function := s.choice("aggregate_function", "SUM", "AVERAGE", "MIN", "MAX")
	y, _ := s.gathered(f, s.leaves(x, f), ir.Float32, targets, function)
	s.out(0, s.postTransform(s.baseValues(y), s.choice("post_transform", postTransforms...)))
}

func (s *site) targetsFit(n int) {
	if n < 1 {
		s.fail("it has %d targets or classes", n)
	}
	s.bound(n)
}

// treeClassifier sets the label, i64 [B], and the scores of the classes, f32 [B,C]. Weights of the first of two classes
// alone are the score of the second one, as ONNX Runtime reads them and as exporters write them.
func treeClassifier(s *site) {
	x := s.features(s.in(0))
	labels := s.classLabels()
	targets := len(labels)
	f := s.readForest("class_", targets)
	post := s.choice("post_transform", postTransforms...)
	alone, negative := targets == 2, false
	for _, node := range f.nodes {
		for _, w := range node.weights {
			alone, negative = alone && w.target == 0, negative || w.weight < 0
		}
	}
	y, scored := s.gathered(f, s.leaves(x, f), ir.Float32, targets, "SUM")
	base, _ := s.tableOf("base_values")
	if alone && len(base) < 2 {
		y = s.part(y, 1, 0, 1)
		s.binaryScores(labels, s.baseValues(y), negative, post)
		return
	}
	if y = s.baseValues(y); len(base) > 0 {
		scored = nil
	}
	ranked := y
	if scored != nil { // a class without a weight is not the top one
		ranked = s.where(scored, y, s.negInf(y.Type.DType))
	}
	s.label(labels, s.add("ArgMax", ir.Attrs{"axis": 1, "keepdims": false}, ranked))
	s.out(1, s.postTransform(y, post))
}

// binaryScores sets label and scores of two classes from the score of the second one, [B,1]: a probability, unless some
// weights are negative or it is to become one by LOGISTIC.
func (s *site) binaryScores(labels []int, y *ir.Value, negative bool, post string) {
	threshold := 0.5
	if negative {
		threshold = 0
	}
	second := s.cast(s.op("Greater", y, s.like(y, threshold)), ir.Int64)
	s.label(labels, s.reshape(second, y.Type.Shape[0]))
	var first *ir.Value
	switch {
	case post == "PROBIT":
		s.refuse("export it with scores that are probabilities", "PROBIT of one score for two classes is not supported")
	case post == "LOGISTIC":
		first, y = s.op("Sigmoid", s.op("Neg", y)), s.op("Sigmoid", y)
	case negative:
		first = s.op("Neg", y)
	default:
		first = s.op("Sub", s.like(y, 1), y)
	}
	s.out(1, s.concat(1, first, y))
}

// treeEnsemble is TreeEnsemble 5, whose leaves have tables of their own. A test for membership becomes a sequence of
// tests for equality.
func treeEnsemble(s *site) {
	x := s.exactly(s.in(0), 2)
	targets := s.int("n_targets", 1)
	s.targetsFit(targets)
	f := s.readTreeEnsemble(targets)
	function := enumerated(s, "aggregate_function", 1, []string{"AVERAGE", "SUM", "MIN", "MAX"})
	post := enumerated(s, "post_transform", 0, postTransforms)
	d := wideType(x.Type.DType)
	y, _ := s.gathered(f, s.leaves(x, f), d, targets, function)
	s.out(0, s.cast(s.postTransform(y, post), x.Type.DType))
}

// enumerated is the name of an attribute that is a number from 0 on.
func enumerated(s *site, name string, def int, names []string) string {
	i := s.int(name, def)
	if i < 0 || i >= len(names) {
		s.fail("%s=%d, want 0 to %d", name, i, len(names)-1)
	}
	return names[i]
}

// tensorAttr is an attribute that holds a tensor, nil if it is absent.
func (s *site) tensorAttr(name string) *ir.Tensor {
	a := s.attr(name, onnxpb.AttributeProto_TENSOR)
	if a == nil {
		return nil
	}
	t, err := s.im.m.Tensor(a.GetT())
	s.check(err)
	return t
}

// readTreeEnsemble reads the trees of TreeEnsemble 5: comparisons first, leaves after them.
func (s *site) readTreeEnsemble(targets int) forest {
	for _, name := range []string{"nodes_splits", "nodes_modes", "leaf_weights"} {
		s.need(name)
	}
	splits, modes, weights := s.tensorAttr("nodes_splits"), s.tensorAttr("nodes_modes"), s.tensorAttr("leaf_weights")
	n, leaves, missing := splits.Numel(), s.ints("leaf_targetids"), s.ints("nodes_missing_value_tracks_true")
	s.sameLength(n, "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
	if modes.Numel() != n || weights.Numel() != len(leaves) || len(missing) != 0 && len(missing) != n {
		s.fail("%d modes, %d nodes_missing_value_tracks_true for %d nodes, and %d weights for %d leaves",
			modes.Numel(), len(missing), n, weights.Numel(), len(leaves))
	}
	f := forest{nodes: make([]treeNode, n, n+len(leaves)), wide: splits.DType == ir.Float64, roots: s.ints("tree_roots")}
	for i, k := range leaves {
		if k < 0 || k >= targets {
			s.fail("leaf_targetids has %d, want 0 to %d", k, targets-1)
		}
		f.nodes = append(f.nodes, treeNode{weights: []treeWeight{{k, weights.FloatAt(i)}}})
	}
	follow := func(node, leaf string, i int) int {
		to, limit, first := s.ints(node)[i], n, 0
		if s.ints(leaf)[i] != 0 {
			limit, first = len(leaves), n
		}
		if to < 0 || to >= limit {
			s.fail("%s has %d, want 0 to %d", node, to, limit-1)
		}
		return first + to
	}
	members := s.memberships()
	names := []string{"LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"}
	for i := range n {
		mode := modes.IntAt(i)
		if mode < 0 || int(mode) >= len(names) {
			s.fail("nodes_modes has %d, want 0 to %d", mode, len(names)-1)
		}
		node := treeNode{mode: names[mode], feature: s.ints("nodes_featureids")[i], threshold: splits.FloatAt(i),
			missing: missing != nil && missing[i] != 0,
			yes:     follow("nodes_truenodeids", "nodes_trueleafs", i), no: follow("nodes_falsenodeids", "nodes_falseleafs", i)}
		if node.mode != "MEMBER" {
			f.nodes[i] = node
			continue
		}
		if len(members) == 0 || len(members[0]) == 0 {
			s.fail("membership_values has fewer sets than nodes of mode MEMBER")
		}
		set := members[0]
		members, node.mode = members[1:], "EQ"
		for _, v := range set[1:] { // the rest of the set first, from its end
			node.threshold = v
			f.nodes = append(f.nodes, node)
			node.no = len(f.nodes) - 1
		}
		node.threshold = set[0]
		f.nodes[i] = node
	}
	for _, r := range f.roots {
		if r < 0 || r >= n {
			s.fail("tree_roots has %d, want 0 to %d", r, n-1)
		}
	}
	return f
}

// memberships are the sets of membership_values, which end with NaN.
func (s *site) memberships() [][]float64 {
	t := s.tensorAttr("membership_values")
	if t == nil {
		return nil
	}
	s.bound(t.Shape...)
	var sets [][]float64
	var set []float64
	for _, v := range t.Floats() {
		if math.IsNaN(v) {
			sets, set = append(sets, set), nil
			continue
		}
		set = append(set, v)
	}
	if len(set) > 0 {
		sets = append(sets, set)
	}
	return sets
}
