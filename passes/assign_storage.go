package passes

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "assign-storage",
	Summary: "store weights and the values between regions in f16, bf16 or the types that calibration chose; accumulate in f32",
	After: map[string]string{
		"fuse":  "types are set at region boundaries",
		"views": "a view must have its operand's type; a loop need not",
	},
	Needs:     []string{"fuse"},
	Tolerance: 2e-3,
	Run:       assignStorage,
})

// AssignStorageOptions say how regions are stored.
type AssignStorageOptions struct {
	// Quantisation is what is stored in 8 and 4 bits; nil: nothing.
	Quantisation *Quantisation
	// KeepF32 is the name of nodes, as of a loss, whose operands and results stay f32 where no anchor multiplies
	// them; "": none.
	KeepF32 string
	// Provenance is filled unless it is nil: the name that a value had before it was stored, by the name that it has
	// then.
	Provenance map[string]string
	// Halved is filled unless it is nil: weights in 16 bits, by those that they were made of. Graphs that share weights
	// may share it in one precision, so that these are rounded once.
	Halved map[*ir.Tensor]*ir.Tensor
}

// assignStorage stores what travels between regions in 16 bits, or in the 8 or 4 bits that a calibration chose: it
// fills in the storage of each region's operands and results. Weights that are multiplied become constants of 16, 8
// or 4 bits. Small values that no anchor multiplies stay f32, as do inputs and outputs of the graph.
func assignStorage(ctx *Context, g *ir.Graph) error {
	w := newStorageAssigner(ctx, g)
	w.choose()
	w.keepF32(ctx.KeepF32)
	if err := w.take(); err != nil {
		return err
	}
	if ctx.quantisedFile {
		w.findCodes()
		w.plan = w.plan.withFile(g, w.half)
	}
	for _, n := range g.Nodes {
		if err := w.rewrite(n); err != nil {
			return fmt.Errorf("region %q: %w", n.Name, err)
		}
	}
	g.Nodes = w.nodes
	before := w.before()
	substitute(g, w.to)
	g.RemoveDead()
	if ctx.Provenance != nil {
		for v, name := range before {
			ctx.Provenance[v.Name] = name
		}
	}
	return nil
}

// before is the name that each value has which stands for one that is stored otherwise.
func (w *storageAssigner) before() map[*ir.Value]string {
	names := map[*ir.Value]string{}
	for v, to := range w.to {
		names[to] = v.Name
	}
	for v, to := range w.weights {
		if !to.IsConst() { // a copy in 16 bits, perhaps of a view that has taken the place of another
			names[to] = cmp.Or(names[v], v.Name)
		}
	}
	return names
}

func newStorageAssigner(ctx *Context, g *ir.Graph) *storageAssigner {
	w := &storageAssigner{g: g, target: ctx.Target, half: ir.Float16, plan: ctx.Quantisation, matrix: map[*ir.Value]bool{}, group: map[*ir.Value]*ir.Value{}, stored: map[*ir.Value]ir.Storage{}, scales: map[*ir.Value]*ir.Value{}, to: map[*ir.Value]*ir.Value{}, weights: map[*ir.Value]*ir.Value{}, tables: map[*ir.Value]*loopTable{}, cast: ctx.Halved}
	if ctx.Precision == precision.BF16 {
		w.half = ir.BFloat16
	}
	if w.plan == nil {
		w.plan = &Quantisation{}
	}
	return w
}

// smallBytes is the size, as f32, up to which a value that no anchor multiplies stays f32. In training steps at full
// size, where most values are larger, all in f32 would lower the error of policy's gradients from 0.037 to 0.030 in
// bf16, for 23 % more time (2026-11-23).
const smallBytes = 64 << 10

type storageAssigner struct {
	g       *ir.Graph
	target  *target.Target // nil: any
	half    ir.DType       // f16 or bf16
	plan    *Quantisation
	nodes   []*ir.Node
	matrix  map[*ir.Value]bool      // some anchor multiplies a value of the group
	group   map[*ir.Value]*ir.Value // views and what they view have one type: union by representative
	fixed   map[*ir.Value]bool      // types that must stay: of ports, masks, other than f32
	small   map[*ir.Value]bool
	wide    map[*ir.Value]bool       // nodes of Context.Wide read or compute them
	stored  map[*ir.Value]ir.Storage // of groups, as planned
	codes   map[*ir.Value]ir.Storage // of groups that a file has rounded, if they are stored in 16 bits or less
	to      map[*ir.Value]*ir.Value
	scales  map[*ir.Value]*ir.Value // block scales of values in to
	weights map[*ir.Value]*ir.Value
	wholes  map[*ir.Value]int // inputs of the graph, of which anchors multiply parts: how many numbers of it
	tables  map[*ir.Value]*loopTable
	cast    map[*ir.Tensor]*ir.Tensor // Context.Halved
}

// loopTable is a constant as loops read it that a file has quantised.
type loopTable struct {
	ir.Storage
	value *ir.Value
}

// table returns that of a constant, or nil if it is read as it is.
func (w *storageAssigner) table(v *ir.Value) *loopTable {
	t, ok := w.tables[v]
	if !ok {
		if x, s := tableOf(v.Const, w.half); x != nil {
			t = &loopTable{s, w.g.Constant(v.Name, x)}
		}
		w.tables[v] = t
	}
	return t
}

func (w *storageAssigner) find(v *ir.Value) *ir.Value { return resolve(w.group, v) }

func (w *storageAssigner) union(a, b *ir.Value) {
	if a, b = w.find(a), w.find(b); a != b {
		w.group[a] = b
	}
}

// choose finds the groups of values that share bytes and what their readers need.
func (w *storageAssigner) choose() {
	w.fixed, w.small, w.wholes = map[*ir.Value]bool{}, map[*ir.Value]bool{}, map[*ir.Value]int{}
	for _, n := range w.g.Nodes {
		if n.IsFamily(ir.FamilyView) {
			for _, v := range n.Inputs {
				w.union(v, n.Outputs[0])
			}
		}
	}
	largest := map[*ir.Value]int{}
	see := func(v *ir.Value) {
		r := w.find(v)
		largest[r] = max(largest[r], v.Type.Bytes())
		if v.Def == nil || v.Type.DType != ir.Float32 {
			w.fixed[r] = true
		}
	}
	for _, n := range w.g.Nodes {
		for i, v := range n.Inputs {
			if v.IsConst() {
				continue
			}
			see(v)
			if isMatrixInput(n, i) {
				w.matrix[w.find(v)] = true
			} else if isAnchorInput(n, i) {
				w.fixed[w.find(v)] = true
			}
		}
		for i, v := range n.Outputs {
			see(v)
			if n.IsFamily(ir.FamilyContraction) && n.Region.Body.Outputs[i].Def.Op.Name == "ReduceSum" { // one half of a long sum
				w.fixed[w.find(v)] = true
			}
		}
	}
	for _, v := range w.g.Outputs {
		w.fixed[w.find(v)] = true
	}
	for r, bytes := range largest {
		w.small[r] = bytes <= smallBytes
	}
	w.countParts()
}

// keepF32 marks what nodes of a name read and compute.
func (w *storageAssigner) keepF32(name string) {
	w.wide = map[*ir.Value]bool{}
	if name == "" {
		return
	}
	for _, n := range w.g.Nodes {
		if n.IsFamily(ir.FamilyView) {
			continue
		}
		for i, v := range n.Inputs {
			if x := n.Region.Body.Inputs[i]; slices.ContainsFunc(n.Region.Body.Nodes, func(m *ir.Node) bool { return m.Name == name && slices.Contains(m.Inputs, x) }) {
				w.wide[w.find(v)] = true
			}
		}
		for k, v := range n.Outputs {
			if m := n.Region.Body.Outputs[k].Def; m != nil && m.Name == name {
				w.wide[w.find(v)] = true
			}
		}
	}
}

// countParts counts the numbers of each f32 input of the graph that anchors multiply as parts of it.
func (w *storageAssigner) countParts() {
	seen := map[*ir.Value]bool{}
	for _, n := range w.g.Nodes {
		for i, v := range n.Inputs {
			if p := spanOf(v); p.base.Def == nil && !p.base.IsConst() && p.size < p.base.Type.Numel() && !seen[v] && isMatrixInput(n, i) {
				seen[v] = true
				w.wholes[p.base] += p.size
			}
		}
	}
}

// take takes what the plan says of values; blocks only on targets that multiply them, elsewhere they are stored in 16
// bits.
func (w *storageAssigner) take() error {
	for _, n := range w.g.Nodes {
		for _, v := range n.Outputs {
			s := w.plan.Values[v.Name]
			switch {
			case s.DType == ir.Invalid:
				continue
			case s.Block == 0:
			case n.IsFamily(ir.FamilyView) || w.target == nil || !w.target.Multiplies(s.DType.String()):
				continue
			default:
				if err := w.checkBlocks(v); err != nil {
					return err
				}
			}
			w.stored[w.find(v)] = s
		}
	}
	return nil
}

// storage says how v is stored; blocks lie along its last axis.
func (w *storageAssigner) storage(v *ir.Value) ir.Storage {
	r, s := w.find(v), ir.Storage{DType: v.Type.DType}
	switch {
	case v.Def == nil || v.Type.DType != ir.Float32 || w.fixed[r]:
	case w.stored[r].DType != ir.Invalid:
		s = w.stored[r]
	case (w.small[r] || w.wide[r]) && !w.matrix[r]:
	case w.codes[r].DType != ir.Invalid:
		s = w.codes[r]
	default:
		s.DType = w.half
	}
	if s.Scale == 1 {
		s.Scale = 0
	}
	return s
}

// findCodes finds the values that are products of rounded numbers with a scale: these numbers are exact in fewer bits.
func (w *storageAssigner) findCodes() {
	producers := map[*ir.Value]int{}
	w.codes = map[*ir.Value]ir.Storage{}
	for _, n := range w.g.Nodes {
		if n.IsFamily(ir.FamilyView) {
			continue
		}
		for k, v := range n.Outputs {
			r := w.find(v)
			producers[r]++
			m := defOp(n.Region.Body.Outputs[k], "FakeQuantize")
			if m == nil {
				continue
			}
			c := ir.Storage{DType: w.half, Scale: m.Attrs.Float("scale", 1)}
			if to := m.Attrs.DType("to"); to.IsFloat() {
				c.DType = to
			}
			w.codes[r] = c
		}
	}
	// What Attention and SegmentedMatVec read takes no scale, and parts of a Concat share one.
	for _, n := range w.g.Nodes {
		a := n.Region.Anchor()
		for _, v := range n.Inputs {
			if a != nil && a.Op.Unscaled {
				delete(w.codes, w.find(v))
			}
		}
	}
	for r, count := range producers {
		if count > 1 {
			delete(w.codes, r)
		}
	}
}

// isMatrixInput reports whether input i of a region reaches a matrix operand of a contraction's anchor.
func isMatrixInput(n *ir.Node, i int) bool {
	if !n.IsFamily(ir.FamilyContraction) {
		return false
	}
	anchor := n.Region.Anchor()
	return slices.ContainsFunc(anchor.Op.Matrix, func(k int) bool {
		from, _, ok := n.Region.Source(anchor.Inputs[k])
		return ok && from == i
	})
}

// isAnchorInput reports whether input i of a region is read by a contraction's anchor itself: a mask, or a matrix.
func isAnchorInput(n *ir.Node, i int) bool {
	return n.IsFamily(ir.FamilyContraction) && slices.Contains(n.Region.Anchor().Inputs, n.Region.Body.Inputs[i])
}

// isWeight reports whether constant input i of a region is multiplied and may be f16: weights of contractions and of
// SegmentedMatVec, but not those of depthwise convolutions, which no tensor core reads.
func isWeight(n *ir.Node, i int) bool {
	if isMatrixInput(n, i) {
		return true
	}
	for _, m := range n.Region.Body.Nodes {
		if m.Op.Name == "SegmentedMatVec" && m.Inputs[1] == n.Region.Body.Inputs[i] {
			return true
		}
	}
	return false
}

// rewrite makes n's narrow counterpart.
func (w *storageAssigner) rewrite(n *ir.Node) error {
	inputs := make([]*ir.Value, len(n.Inputs))
	for i, v := range n.Inputs {
		inputs[i] = v
		if to := w.to[v]; to != nil {
			inputs[i] = to
		}
	}
	inputs, err := w.operands(n, inputs)
	if err != nil {
		return err
	}
	q := &storer{g: w.g, r: n.Region, inputs: inputs, scales: make([]extra, len(inputs))}
	for i, v := range n.Inputs {
		o := &q.r.Operands[i]
		o.DType = inputs[i].Type.DType
		s := w.storage(v)
		if t := w.tables[v]; t != nil && inputs[i] == t.value {
			s = t.Storage
		}
		if o.Scale = s.Scale; s.Block > 0 {
			o.Block, o.BlockAxis, q.scales[i].blocks = s.Block, n.Region.Body.Inputs[i].Type.Rank()-1, w.scales[v]
		}
	}
	if err := q.layer(w.plan.Layers[n.Outputs[0].Name], n); err != nil {
		return err
	}
	for k, v := range n.Outputs {
		w.result(q.r, k, v)
	}
	m, err := q.node(n.Name)
	if err != nil {
		return err
	}
	w.nodes = append(w.nodes, m)
	for k, v := range n.Outputs {
		w.to[v] = m.Outputs[k]
		if len(m.Outputs) > len(n.Outputs) {
			w.scales[v] = m.Outputs[1]
		}
	}
	return nil
}

// result says how result k of a region, v, is stored.
func (w *storageAssigner) result(r *ir.Region, k int, v *ir.Value) {
	s := w.storage(v)
	if s.DType == v.Type.DType {
		return
	}
	if s.Block > 0 {
		s.BlockAxis = r.Body.Outputs[k].Type.Rank() - 1
	}
	r.Results[k] = s
}

// operands gives the matrix operands of one anchor one type: weights follow, and an f32 value that must stay f32 in
// memory (an input or output of the graph) is converted by a loop of its own.
func (w *storageAssigner) operands(n *ir.Node, inputs []*ir.Value) ([]*ir.Value, error) {
	for i, v := range inputs {
		if v.Type.DType != ir.Float32 {
			continue
		}
		switch {
		case v.IsConst() && isWeight(n, i):
			if w.weights[v] == nil {
				w.weights[v] = w.g.Constant(v.Name, v.Const)
			}
			if inputs[i] = w.weights[v]; inputs[i].Type.DType == w.half || w.replaces(n, i) {
				continue
			}
			t, err := w.halved(v)
			if err != nil {
				return nil, err
			}
			inputs[i].Const, inputs[i].Type = t, t.Type
		case v.IsConst() && w.codes != nil && n.IsFamily(ir.FamilyLoop):
			if t := w.table(v); t != nil {
				inputs[i] = t.value
			}
		case !v.IsConst() && isMatrixInput(n, i):
			c, err := w.castRegion(v)
			if err != nil {
				return nil, err
			}
			inputs[i] = c
		}
	}
	return inputs, nil
}

// replaces reports whether the plan has other numbers for input i of a region: the weights of its anchor.
func (w *storageAssigner) replaces(n *ir.Node, i int) bool {
	s, ok := SiteOf(n)
	return ok && s.Weight == i && w.plan.Layers[n.Outputs[0].Name].Weights != nil
}

// halved is a constant in 16 bits.
func (w *storageAssigner) halved(v *ir.Value) (*ir.Tensor, error) {
	if t := w.cast[v.Const]; t != nil {
		return t, nil
	}
	if w.half == ir.Float16 && !fitsF16(v.Const) {
		return nil, fmt.Errorf("weights %q exceed the range of f16: compile with --precision bf16 or fp32", v.Name)
	}
	t := castTensor(v.Const, w.half)
	if w.cast != nil {
		w.cast[v.Const] = t
	}
	return t, nil
}

// castRegion returns v in 16 bits.
func (w *storageAssigner) castRegion(v *ir.Value) (*ir.Value, error) {
	if w.weights[v] != nil {
		return w.weights[v], nil
	}
	// An input of which several parts are multiplied is converted at once.
	if p := spanOf(v); p.base != v && p.base.Type.DType == v.Type.DType && w.wholes[p.base] > max(p.size, p.base.Type.Numel()/2) {
		base, err := w.castRegion(p.base)
		if err != nil {
			return nil, err
		}
		view, err := viewRegion(w.g, v.Name, span{base, p.from, p.size}, v.Type.Shape)
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, view)
		w.weights[v] = view.Outputs[0]
		return view.Outputs[0], nil
	}
	b := ir.NewGraph(v.Name)
	b.Outputs = []*ir.Value{b.AddInput("p0", v.Type)}
	plain := ir.Storage{DType: v.Type.DType}
	region := &ir.Region{Family: ir.FamilyLoop, Body: b, Operands: []ir.Operand{{Storage: plain}}, Results: []ir.Storage{{DType: w.half}}}
	r, err := w.g.RegionNode(v.Name, region, v)
	if err != nil {
		return nil, err
	}
	w.nodes = append(w.nodes, r)
	w.weights[v] = r.Outputs[0]
	return r.Outputs[0], nil
}

func fitsF16(t *ir.Tensor) bool {
	for _, x := range t.Floats() {
		if math.Abs(x) >= 65520 && !math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

func castTensor(t *ir.Tensor, d ir.DType) *ir.Tensor {
	if t.Splat {
		return ir.Splat(ir.Type{DType: d, Shape: slices.Clone(t.Shape)}, t.FloatAt(0))
	}
	return ir.FromFloats(ir.Type{DType: d, Shape: slices.Clone(t.Shape)}, t.Floats())
}
