package ir

import (
	"fmt"
	"slices"
	"strings"
)

// BatchRule builds what node n computes for every sample of a batch, and hands over its outputs.
type BatchRule func(b *Batching, n *Node)

// Batching turns a graph for one sample into one for a batch of them. A value that depends on the inputs is there for
// every sample, in one of two forms or both: outer [samples, shape…], or merged [samples·d, rest…] where its shape is
// [d, rest…]. Other values are there once.
type Batching struct {
	*Expansion
	samples int
	of      map[*Value]*sampled
	once    map[*Value]*Value
}

// sampled is a value of every sample. Each form is made when it is asked for.
type sampled struct{ outer, merged *Value }

// Batch returns the graph that computes g for several samples at once. Inputs and outputs [d, rest…] become
// [samples·d, rest…], those of rank 0 [samples]: sample i has rows i·d to (i+1)·d, and gets the result that g gives
// for it alone. Ops that have no rule for a batch are there once for each sample.
func (g *Graph) Batch(samples int) (*Graph, error) {
	if samples < 1 {
		return nil, fmt.Errorf("a batch of %d samples", samples)
	}
	if samples == 1 {
		return g.Clone(), nil
	}
	to := &Graph{Name: g.Name, Meta: g.Clone().Meta, next: g.next}
	b := &Batching{Expansion: &Expansion{graph: to}, samples: samples, of: map[*Value]*sampled{}, once: map[*Value]*Value{}}
	for _, v := range g.Inputs {
		shape := b.rows(v.Type.Shape)
		in := to.AddInput(v.Name, T(v.Type.DType, shape...))
		in.Delay, in.Sample = v.Delay, v.Sample
		b.of[v] = &sampled{merged: in}
		if v.Type.Rank() == 0 {
			b.of[v].outer = b.of[v].merged
		}
	}
	for _, n := range g.Nodes {
		at := len(b.nodes)
		b.name = n.Name
		b.node(n)
		if b.err != nil {
			return nil, fmt.Errorf("batch of %d: node %q (%s): %w", samples, n.Name, n.Op.Name, b.err)
		}
		for _, m := range b.nodes[at:] {
			m.From = n.From
		}
	}
	for _, v := range g.Outputs {
		if b.name = v.Name; v.IsConst() {
			b.once[v] = b.Constant(v.Const) // the name is that of the result
		}
		w := b.Merged(v)
		if b.err != nil {
			return nil, fmt.Errorf("batch of %d: output %q: %w", samples, v.Name, b.err)
		}
		if w.Def != nil {
			w.Name = v.Name
		}
		to.Outputs = append(to.Outputs, w)
	}
	to.Nodes = b.nodes
	to.RemoveDead()
	return to, to.Verify()
}

// rows is the merged form of a shape.
func (b *Batching) rows(shape []int) []int {
	if len(shape) == 0 {
		return []int{b.samples}
	}
	return slices.Concat([]int{b.samples * shape[0]}, shape[1:])
}

// Batched reports whether every sample has a value of its own.
func (b *Batching) Batched(v *Value) bool { return v != nil && b.of[v] != nil }

// onlyFirst reports whether no input of n but the first differs between samples.
func (b *Batching) onlyFirst(n *Node) bool {
	return b.Batched(n.Inputs[0]) && !slices.ContainsFunc(n.Inputs[1:], b.Batched)
}

// Once is a value that all samples share.
func (b *Batching) Once(v *Value) *Value {
	if w := b.once[v]; w != nil {
		return w
	}
	return v // a constant, or absent
}

// Outer is v as [samples, shape…].
func (b *Batching) Outer(v *Value) *Value {
	shape := slices.Concat([]int{b.samples}, v.Type.Shape)
	s := b.of[v]
	switch {
	case s == nil:
		return b.Add("Expand", Attrs{"shape": shape}, b.Once(v))
	case s.outer == nil:
		s.outer = b.Reshape(s.merged, shape...)
	}
	return s.outer
}

// Merged is v as [samples·d, rest…].
func (b *Batching) Merged(v *Value) *Value {
	s := b.of[v]
	switch {
	case s == nil:
		return b.Reshape(b.Outer(v), b.rows(v.Type.Shape)...)
	case s.merged == nil:
		s.merged = b.Reshape(s.outer, b.rows(v.Type.Shape)...)
	}
	return s.merged
}

// any is v in the form that is there, a row-major [samples, …] in either.
func (b *Batching) any(v *Value) *Value {
	if s := b.of[v]; s != nil && s.outer == nil {
		return s.merged
	}
	return b.Outer(v)
}

// aligned is v as an operand that broadcasts with [samples, shape…] of the given rank of shape.
func (b *Batching) aligned(v *Value, rank int) *Value {
	missing := rank - v.Type.Rank()
	if !b.Batched(v) {
		return b.Once(v)
	}
	if missing == 0 {
		return b.Outer(v)
	}
	return b.Reshape(b.any(v), slices.Concat([]int{b.samples}, slices.Repeat([]int{1}, missing), v.Type.Shape)...)
}

// make adds a node and returns its outputs.
func (b *Batching) make(n *Node, attrs Attrs, in ...*Value) []*Value {
	y := b.Add(n.Op.Name, attrs, in...)
	if b.err != nil {
		return nil
	}
	return y.Def.Outputs
}

// put hands over an output of n.
func (b *Batching) put(v, y *Value) {
	if b.err != nil {
		return
	}
	s := &sampled{}
	outer := slices.Concat([]int{b.samples}, v.Type.Shape)
	switch {
	case slices.Equal(y.Type.Shape, outer):
		if s.outer = y; v.Type.Rank() == 0 {
			s.merged = y
		}
	case slices.Equal(y.Type.Shape, b.rows(v.Type.Shape)):
		s.merged = y
	default:
		b.err = fmt.Errorf("output %%%s %v has %v in a batch", v.Name, v.Type, y.Type)
		return
	}
	y.Name = b.graph.Fresh(v.Name)
	b.of[v] = s
}

// all hands over all outputs.
func (b *Batching) all(n *Node, ys []*Value) {
	for i, y := range ys {
		b.put(n.Outputs[i], y)
	}
}

func (b *Batching) node(n *Node) {
	switch {
	case !slices.ContainsFunc(n.Inputs, b.Batched):
		in := make([]*Value, len(n.Inputs))
		for i, v := range n.Inputs {
			in[i] = b.Once(v)
		}
		for i, y := range b.make(n, n.Attrs, in...) {
			b.once[n.Outputs[i]] = y
		}
	case n.Op.Batch != nil:
		n.Op.Batch(b, n)
	case n.Op.Pointwise():
		b.broadcast(n)
	case n.Op.Kind == KindRegion:
		b.err = fmt.Errorf("regions are made of graphs that have their batch")
	default:
		b.repeat(n)
	}
}

// repeat computes n for one sample after the other.
func (b *Batching) repeat(n *Node) {
	parts := make([][]*Value, len(n.Outputs))
	for i := range b.samples {
		in := make([]*Value, len(n.Inputs))
		for k, v := range n.Inputs {
			if in[k] = b.Once(v); b.Batched(v) {
				whole := b.Outer(v)
				if b.err != nil {
					return
				}
				starts, sizes := make([]int, whole.Type.Rank()), slices.Clone(whole.Type.Shape)
				starts[0], sizes[0] = i, 1
				in[k] = b.Reshape(b.Add("Slice", Attrs{"starts": starts, "sizes": sizes}, whole), v.Type.Shape...)
			}
		}
		for k, y := range b.make(n, n.Attrs, in...) {
			parts[k] = append(parts[k], b.Reshape(y, slices.Concat([]int{1}, y.Type.Shape)...))
		}
	}
	if b.err != nil {
		return
	}
	for k, v := range n.Outputs {
		b.put(v, b.Add("Concat", Attrs{"axis": 0}, parts[k]...))
	}
}

// leading reports whether v has a first dimension of size 1, in whose place the samples can stand.
func leading(v *Value) bool { return v.Type.Rank() > 0 && v.Type.Shape[0] == 1 }

// broadcast is the rule of pointwise ops.
func (b *Batching) broadcast(n *Node) {
	y := n.Outputs[0]
	rank := y.Type.Rank()
	merged := leading(y)
	for _, v := range n.Inputs {
		merged = merged && (!b.Batched(v) || v.Type.Rank() == rank)
	}
	in := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		switch {
		case !b.Batched(v):
			in[i] = b.Once(v)
		case merged:
			in[i] = b.Merged(v)
		default:
			in[i] = b.aligned(v, rank)
		}
	}
	b.all(n, b.make(n, n.Attrs, in...))
}

// attrsWithSamples returns the attributes of n with a samples dimension prepended or, if merged, with the first
// dimension, of size 1, holding the samples. It returns nil if n acts on that dimension.
func (b *Batching) attrsWithSamples(n *Node, merged bool) Attrs {
	attrs := n.Attrs.Clone()
	for _, a := range n.Op.Attrs {
		if !a.Axes && !a.PerDim {
			continue
		}
		value := n.Attrs[a.Name]
		switch {
		case value == nil && a.PerDim:
			continue
		case value == nil:
			value = a.Default
		}
		if axis, ok := value.(int); ok {
			if merged && axis == 0 {
				return nil
			}
			if axis >= 0 && !merged {
				axis++
			}
			attrs[a.Name] = axis
			continue
		}
		list := slices.Clone(value.([]int))
		before, idle := a.Idle, a.Idle // of a dimension of size 1, and of the samples
		if a.Idle == Size {
			before, idle = 1, b.samples
		}
		switch {
		case merged && !a.PerDim:
			if slices.Contains(list, 0) {
				return nil
			}
		case merged && list[0] != before:
			return nil
		case merged:
			list[0] = idle
		default:
			for i := range list {
				if a.Axes {
					list[i]++
				}
			}
			if a.PerDim {
				list = slices.Insert(list, 0, idle)
			}
		}
		attrs[a.Name] = list
	}
	return attrs
}

// alongAxes is the rule of ops whose attributes say on which dimensions of the first input they act. Other inputs are
// the same for all samples, or it computes one sample after the other.
func alongAxes(b *Batching, n *Node) {
	if !b.onlyFirst(n) {
		b.repeat(n)
		return
	}
	b.along(n, false)
}

// alongAxesAll is alongAxes where all inputs differ by sample.
func alongAxesAll(b *Batching, n *Node) { b.along(n, true) }

func (b *Batching) along(n *Node, all bool) {
	merged := leading(n.Outputs[0])
	for i, v := range n.Inputs {
		merged = merged && (i > 0 && !all || leading(v))
	}
	var attrs Attrs
	if merged {
		attrs = b.attrsWithSamples(n, true)
	}
	if merged = attrs != nil; !merged {
		attrs = b.attrsWithSamples(n, false)
	}
	in := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		switch {
		case i > 0 && !all:
			in[i] = b.Once(v)
		case merged:
			in[i] = b.Merged(v)
		default:
			in[i] = b.Outer(v)
		}
	}
	b.all(n, b.make(n, attrs, in...))
}

// alongRows is the rule of ops for which the first dimension of some inputs, and of all outputs, is a batch already.
func alongRows(inputs ...int) BatchRule {
	return func(b *Batching, n *Node) {
		in := make([]*Value, len(n.Inputs))
		for i, v := range n.Inputs {
			switch {
			case v == nil:
			case slices.Contains(inputs, i):
				in[i] = b.Merged(v)
			case b.Batched(v):
				b.repeat(n)
				return
			default:
				in[i] = b.Once(v)
			}
		}
		b.all(n, b.make(n, n.Attrs, in...))
	}
}

func batchReshape(b *Batching, n *Node) {
	x, y := n.Inputs[0], n.Outputs[0]
	shape := slices.Concat([]int{b.samples}, y.Type.Shape)
	if leading(y) {
		shape = b.rows(y.Type.Shape)
	}
	b.put(y, b.Reshape(b.any(x), shape...))
}

func batchExpand(b *Batching, n *Node) {
	x, y := n.Inputs[0], n.Outputs[0]
	if leading(y) && x.Type.Rank() == y.Type.Rank() {
		b.put(y, b.Add("Expand", Attrs{"shape": b.rows(y.Type.Shape)}, b.Merged(x)))
		return
	}
	b.put(y, b.Add("Expand", Attrs{"shape": slices.Concat([]int{b.samples}, y.Type.Shape)}, b.aligned(x, y.Type.Rank())))
}

// batchTrilu: the last two dimensions count.
func batchTrilu(b *Batching, n *Node) {
	x := b.Outer(n.Inputs[0])
	if n.Inputs[0].Type.Rank() > 2 {
		x = b.any(n.Inputs[0])
	}
	b.all(n, b.make(n, n.Attrs, x))
}

func batchGather(b *Batching, n *Node) {
	x, index := n.Inputs[0], n.Inputs[1]
	axis, y := n.Attrs.Int("axis", 0), n.Outputs[0]
	switch {
	case !b.Batched(index):
		alongAxes(b, n)
	case !b.Batched(x): // [A, samples, I, B]
		b.put(y, b.forward(b.Add("Gather", n.Attrs, b.Once(x), b.Outer(index)), axis))
	default: // the axes of all samples are one
		size := x.Type.Shape[axis]
		whole := b.Outer(x)
		perm := []int{0, axis + 1}
		rest := []int{}
		for i, d := range x.Type.Shape {
			if i != axis {
				perm, rest = append(perm, i+1), append(rest, d)
			}
		}
		flat := b.Reshape(b.Add("Transpose", Attrs{"perm": perm}, whole), slices.Concat([]int{b.samples * size}, rest)...)
		i := b.Add("Cast", Attrs{"to": Int64}, b.Outer(index))
		i = b.Add("Where", nil, b.Add("Less", nil, i, b.Constant(ScalarInt(Int64, 0))), b.Add("Add", nil, i, b.Constant(ScalarInt(Int64, int64(size)))), i)
		i = b.Add("Add", nil, i, b.Constant(b.count(index.Type.Rank(), size)))
		taken := b.Add("Gather", Attrs{"axis": 0}, flat, i) // [samples, I, A, B]
		perm = []int{0}
		at := 1 + index.Type.Rank()
		for k := range axis {
			perm = append(perm, at+k)
		}
		for k := range index.Type.Rank() {
			perm = append(perm, 1+k)
		}
		for k := axis; k < len(rest); k++ {
			perm = append(perm, at+k)
		}
		b.put(y, b.Add("Transpose", Attrs{"perm": perm}, taken))
	}
}

// count is the constant [samples, 1…] of 0, step, 2·step, …
func (b *Batching) count(ones, step int) *Tensor {
	a := NewArray(T(Int64, slices.Concat([]int{b.samples}, slices.Repeat([]int{1}, ones))...))
	for i := range a.I {
		a.I[i] = int64(i * step)
	}
	return a.Tensor()
}

// forward moves a dimension to the front.
func (b *Batching) forward(v *Value, axis int) *Value {
	perm := []int{axis}
	for i := range v.Type.Rank() {
		if i != axis {
			perm = append(perm, i)
		}
	}
	return b.Add("Transpose", Attrs{"perm": perm}, v)
}

func batchGatherND(b *Batching, n *Node) {
	attrs := Attrs{"batch_dims": n.Attrs.Int("batch_dims", 0) + 1}
	b.all(n, b.make(n, attrs, b.Outer(n.Inputs[0]), b.Outer(n.Inputs[1])))
}

// batchScatterND: the sample is the first coordinate.
func batchScatterND(b *Batching, n *Node) {
	index := n.Inputs[1]
	shape := slices.Concat([]int{b.samples}, index.Type.Shape)
	shape[len(shape)-1] = 1
	if index.Type.Rank() == 0 {
		b.repeat(n)
		return
	}
	sample := b.Add("Cast", Attrs{"to": index.Type.DType}, b.Constant(b.count(index.Type.Rank(), 1)))
	full := b.Add("Concat", Attrs{"axis": index.Type.Rank()}, b.Add("Expand", Attrs{"shape": shape}, sample), b.Outer(index))
	b.all(n, b.make(n, n.Attrs, b.Outer(n.Inputs[0]), full, b.Outer(n.Inputs[2])))
}

// batchQuantize: scales of blocks have the rank of x.
func batchQuantize(b *Batching, n *Node) {
	if n.Attrs.Int("block", 0) > 0 {
		b.repeat(n)
		return
	}
	alongAxes(b, n)
}

// batchResize: a first dimension that is not resized is a batch.
func batchResize(b *Batching, n *Node) {
	x := n.Inputs[0]
	sizes, scales, roi := slices.Clone(n.Attrs.Ints("sizes")), n.Attrs.Floats("scales"), n.Attrs.Floats("roi")
	if x.Type.Rank() == 0 || sizes[0] != x.Type.Shape[0] || scales[0] != 1 || len(roi) > 0 && (roi[0] != 0 || roi[len(roi)/2] != 1) {
		b.repeat(n)
		return
	}
	sizes[0] *= b.samples
	attrs := n.Attrs.Clone()
	attrs["sizes"] = sizes
	b.all(n, b.make(n, attrs, b.Merged(x)))
}

func batchMaxPool(b *Batching, n *Node) {
	if len(n.Outputs) > 1 { // offsets count from the beginning of the sample
		b.repeat(n)
		return
	}
	alongRows(0)(b, n)
}

func batchMatMul(b *Batching, n *Node) {
	left, right, y := n.Inputs[0], n.Inputs[1], n.Outputs[0]
	rank := y.Type.Rank()
	// Rows of the left operand, or a first dimension that both have, become the samples.
	if leading(y) && b.Batched(left) && leading(left) && left.Type.Rank() == rank &&
		(rank > 2 && (!b.Batched(right) || right.Type.Rank() == rank) || rank == 2 && !n.Attrs.Bool("transA") && !b.Batched(right)) {
		r := b.Once(right)
		if b.Batched(right) {
			r = b.Merged(right)
		}
		b.all(n, b.make(n, n.Attrs, b.Merged(left), r))
		return
	}
	l, r := left.Type.Shape, right.Type.Shape
	if len(l) == 1 {
		l = []int{1, l[0]}
	}
	if len(r) == 1 {
		r = []int{r[0], 1}
	}
	rank = max(len(l), len(r))
	place := func(v *Value, shape []int) *Value {
		switch {
		case !b.Batched(v) && v.Type.Rank() < len(shape):
			return b.Reshape(b.Once(v), shape...)
		case !b.Batched(v):
			return b.Once(v)
		}
		return b.Reshape(b.any(v), slices.Concat([]int{b.samples}, slices.Repeat([]int{1}, rank-len(shape)), shape)...)
	}
	product := b.Add("MatMul", n.Attrs, place(left, l), place(right, r))
	b.put(y, b.Reshape(product, slices.Concat([]int{b.samples}, y.Type.Shape)...))
}

// batchEinsum gives the samples a letter.
func batchEinsum(b *Batching, n *Node) {
	equation := n.Attrs.String("equation", "")
	left, out, _ := strings.Cut(equation, "->")
	letter := ""
	for r := 'a'; r <= 'z' && letter == ""; r++ {
		for _, r := range []rune{r, r - 'a' + 'A'} {
			if !strings.ContainsRune(equation, r) {
				letter = string(r)
			}
		}
	}
	if letter == "" {
		b.repeat(n)
		return
	}
	terms := strings.Split(left, ",")
	in := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		if in[i] = b.Once(v); b.Batched(v) {
			terms[i], in[i] = letter+terms[i], b.Outer(v)
		}
	}
	b.all(n, b.make(n, Attrs{"equation": strings.Join(terms, ",") + "->" + letter + out}, in...))
}

func batchAttention(b *Batching, n *Node) { b.all(n, b.attention(n, 3)) }

// attention makes n with the samples' batches side by side; its mask, if it has one, is input mask.
func (b *Batching) attention(n *Node, mask int) []*Value {
	var in []*Value
	for _, v := range n.Inputs[:mask] {
		in = append(in, b.Merged(v))
	}
	if m := n.In(mask); m != nil {
		rows := n.Inputs[0].Type.Shape[0]
		shape := slices.Concat(slices.Repeat([]int{1}, 4-m.Type.Rank()), m.Type.Shape)
		switch w := b.Once(m); {
		case b.Batched(m):
			v := b.Reshape(b.any(m), slices.Concat([]int{b.samples}, shape)...)
			shape[0] = rows
			v = b.Add("Expand", Attrs{"shape": slices.Concat([]int{b.samples}, shape)}, v)
			in = append(in, b.Reshape(v, b.rows(shape)...))
		case shape[0] > 1:
			in = append(in, b.Reshape(b.Add("Expand", Attrs{"shape": slices.Concat([]int{b.samples}, shape)}, w), b.rows(shape)...))
		default:
			in = append(in, w)
		}
	}
	return b.make(n, n.Attrs, in...)
}

// batchRecurrent: x is [T,B,I], states are [dirs,B,H].
func batchRecurrent(b *Batching, n *Node) {
	in := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		switch name := n.Op.inputName(i); {
		case v == nil:
		case name == "x" || name == "h0" || name == "c0":
			s := v.Type.Shape
			in[i] = b.Reshape(b.Add("Transpose", Attrs{"perm": []int{1, 0, 2, 3}}, b.Outer(v)), s[0], b.samples*s[1], s[2])
		case name == "lengths":
			in[i] = b.Merged(v)
		case b.Batched(v):
			b.repeat(n)
			return
		default:
			in[i] = b.Once(v)
		}
	}
	for i, y := range b.make(n, n.Attrs, in...) {
		v := n.Outputs[i]
		s := v.Type.Shape
		at := len(s) - 2 // of B
		shape := slices.Insert(slices.Clone(s), at, b.samples)
		b.put(v, b.forward(b.Reshape(y, shape...), at))
	}
}
