package ir

import (
	"fmt"
	"slices"
)

// Explicit is the region with its storage spelled out as nodes of the body: a region with the same inputs and outputs
// whose operands and results are stored as its body reads and yields them. It defines storage once: the evaluator,
// error analysis and every kernel's arithmetic follow it.
//
//	an operand   Cast (DequantizeLinear for blocks), then Mul by its scale; for operands of the anchor, after the anchor
//	the anchor   Mul by the scales of its operands, a constant vector if one has channel scales; then its bias
//	a result     Mul by 1/scale, Cast; BlockQuantize for blocks
//	a view       moves stored elements, and block scales with them
//
// The node shares n's outputs and belongs to no graph. If there is no storage to spell out, it is n itself.
func (n *Node) Explicit() (*Node, error) {
	if n.Region.isPlain() {
		return n, nil
	}
	if n.Region.Family == FamilyView {
		r, err := n.Region.storedView()
		return &Node{Op: n.Op, Name: n.Name, Attrs: n.Attrs, Inputs: n.Inputs, Outputs: n.Outputs, Region: r}, err
	}
	r := n.Region.Clone()
	e := &explicit{node: n, r: r, inputs: slices.Clone(n.Inputs[:len(r.Operands)]), anchor: r.Anchor(), scalar: 1}
	for i := range n.Region.Operands {
		if err := e.dequantise(i); err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
	}
	for i := range n.Region.Operands {
		if err := e.read(i); err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
	}
	if err := e.rescale(); err != nil {
		return nil, err
	}
	for i := range n.Region.Results {
		if err := e.store(i); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	r.Results = nil
	for _, v := range r.Body.Outputs {
		r.Results = append(r.Results, Storage{DType: v.Type.DType})
	}
	return &Node{Op: n.Op, Name: n.Name, Attrs: n.Attrs, Inputs: e.inputs, Outputs: n.Outputs, Region: r}, nil
}

// storedView is a view of what is stored instead of what it stands for: of numbers, and of the scales of their blocks.
func (r *Region) storedView() (*Region, error) {
	c, s := r.Clone(), r.Results[0]
	for i, v := range c.Body.Inputs {
		v.Type.DType, c.Operands[i].Storage = s.DType, Storage{DType: s.DType}
	}
	for _, m := range c.Body.Nodes {
		m.Outputs[0].Type.DType = s.DType
	}
	c.Results = []Storage{{DType: s.DType}}
	if s.Block == 0 {
		return c, nil
	}
	scales := Storage{DType: BlockScale}
	x := c.Body.AddInput("p1", Type{scales.DType, r.Operands[0].blocksShape(r.Body.Inputs[0].Type.Shape)})
	y, err := c.Body.Add("Reshape", "v", Attrs{"shape": s.blocksShape(r.Body.Outputs[0].Type.Shape)}, x)
	if err != nil {
		return nil, fmt.Errorf("scales of blocks: %w", err)
	}
	c.Body.Outputs = append(c.Body.Outputs, y.Outputs[0])
	c.Operands, c.Results = append(c.Operands, Operand{Storage: scales}), append(c.Results, scales)
	return c, nil
}

// isPlain reports whether every operand and result is stored as the body reads and yields it.
func (r *Region) isPlain() bool {
	for i, o := range r.Operands {
		if !o.plain(r.Body.Inputs[i].Type.DType) || o.Read.DType != Invalid {
			return false
		}
	}
	for i, s := range r.Results {
		if !s.plain(r.Body.Outputs[i].Type.DType) {
			return false
		}
	}
	return true
}

// explicit is a region while its storage is spelled out.
type explicit struct {
	node   *Node    // as it was
	r      *Region  // a copy, whose operands become plain
	inputs []*Value // of r
	anchor *Node
	scalar float64 // of the anchor's product
}

// dequantise reads an operand with scales of blocks: no kernel multiplies the numbers without them.
func (e *explicit) dequantise(i int) error {
	o := e.node.Region.Operands[i]
	if o.Block == 0 {
		return nil
	}
	in := e.r.Body.Inputs[i]
	wide := in.Type.DType
	in.Type = Type{o.DType, in.Type.Shape}
	s := e.addInput(e.node.BlockScales(i), o.Batched)
	d, err := e.r.Body.NewNode("DequantizeLinear", "v", Attrs{"to": wide, "axis": o.BlockAxis, "block": o.Block}, in, s)
	if err != nil {
		return err
	}
	e.replaceUses(in, d.Outputs[0], nil)
	e.prepend(d)
	e.scalar *= o.Factor()
	e.r.Operands[i] = Operand{Batched: o.Batched, Storage: Storage{DType: o.DType}}
	return nil
}

// addInput gives the body another input.
func (e *explicit) addInput(v *Value, batched bool) *Value {
	t := v.Type
	if batched && e.r.Members > 0 {
		t.Shape = t.Shape[1:]
	}
	e.inputs = append(e.inputs, v)
	e.r.Operands = append(e.r.Operands, Operand{Batched: batched, Storage: Storage{DType: t.DType}})
	return e.r.Body.AddInput(fmt.Sprintf("p%d", len(e.r.Body.Inputs)), t.Clone())
}

func (e *explicit) prepend(nodes ...*Node) { e.r.Body.Nodes = slices.Concat(nodes, e.r.Body.Nodes) }

// read makes the body read operand i as the type that is stored. Its scale stands where the value is read; of what the
// anchor reads it is part of the anchor's product.
func (e *explicit) read(i int) error {
	o, in := e.node.Region.Operands[i], e.r.Body.Inputs[i]
	wide, scale := in.Type.DType, o.Factor()
	if o.Block > 0 || o.plain(wide) && o.Read.DType == Invalid {
		return nil
	}
	in.Type = Type{o.DType, in.Type.Shape}
	prologue := e.r.prologue()
	var nodes []*Node
	add := func(op string, attrs Attrs, in ...*Value) (*Value, error) {
		n, err := e.r.Body.NewNode(op, "v", attrs, in...)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
		return n.Outputs[0], nil
	}
	value := in // as the anchor's side reads it, without scales
	var err error
	if o.DType != wide {
		if value, err = add("Cast", Attrs{"to": wide}, in); err != nil {
			return err
		}
	}
	if scale != 1 && e.r.readOutside(in, prologue) {
		scaled, err := add("Mul", nil, value, e.splat(scale))
		if err != nil {
			return err
		}
		e.replaceUses(in, scaled, func(n *Node) bool { return !prologue[n] && !slices.Contains(nodes, n) })
	}
	if e.r.readInside(in, prologue) {
		for range e.node.Region.factors(i) {
			e.scalar *= scale
		}
		if o.Read.DType != Invalid {
			down, err := add("Mul", nil, value, e.splat(1/o.Read.Factor()))
			if err != nil {
				return err
			}
			up := down
			if !e.isSumOfTerms(i) {
				if up, err = nearest(add, down, o.Read.DType); err != nil {
					return err
				}
			}
			if o.Read.SplitTerms == 2 && up != down {
				left, err := add("Sub", nil, down, up)
				if err != nil {
					return err
				}
				if left, err = nearest(add, left, o.Read.DType); err != nil {
					return err
				}
				if up, err = add("Add", nil, up, left); err != nil {
					return err
				}
			}
			e.scalar *= o.Read.Factor()
			e.replaceUses(in, up, func(n *Node) bool { return prologue[n] })
		}
	}
	if value != in {
		e.replaceUses(in, value, func(n *Node) bool { return !slices.Contains(nodes, n) })
	}
	e.prepend(nodes...)
	e.r.Operands[i] = Operand{Batched: o.Batched, Storage: Storage{DType: o.DType}}
	return nil
}

// isSumOfTerms reports whether operand i is a constant whose numbers are sums of two terms already, which reading
// leaves as they are. Said so, a range of rounding has not to allow that the first term is one of two neighbours.
func (e *explicit) isSumOfTerms(i int) bool {
	o, v := e.node.Region.Operands[i].Read, e.node.Inputs[i]
	if o.SplitTerms != 2 || !v.IsConst() {
		return false
	}
	f := o.DType.Format()
	for _, x := range v.Const.Floats() {
		x /= o.Factor()
		first := f.Saturated(x)
		if first+f.Saturated(x-first) != x {
			return false
		}
	}
	return true
}

// nearest rounds a value to numbers of a type.
func nearest(add func(op string, attrs Attrs, in ...*Value) (*Value, error), v *Value, to DType) (*Value, error) {
	down, err := add("Cast", Attrs{"to": to}, v)
	if err != nil {
		return nil, err
	}
	return add("Cast", Attrs{"to": v.Type.DType}, down)
}

// factors counts how often operand i is a factor of the anchor's product: twice if a matrix is multiplied by itself.
func (r *Region) factors(i int) int {
	a, n := r.Anchor(), 0
	for _, k := range a.Op.Matrix {
		if from, _, ok := r.Source(a.Inputs[k]); ok && from == i {
			n++
		}
	}
	return max(n, 1)
}

func (e *explicit) splat(x float64) *Value {
	return e.r.Body.Constant("c", ScalarFloat(Float32, x))
}

// replaceUses makes the readers that where accepts read by; the body's outputs count as readers where is true for nil.
func (e *explicit) replaceUses(v, by *Value, where func(n *Node) bool) {
	for _, n := range e.r.Body.Nodes {
		if where != nil && !where(n) {
			continue
		}
		for k, x := range n.Inputs {
			if x == v {
				n.Inputs[k] = by
			}
		}
	}
	for k, x := range e.r.Body.Outputs {
		if x == v && (where == nil || where(nil)) {
			e.r.Body.Outputs[k] = by
		}
	}
}

// rescale multiplies the anchor's output by the scales of its operands. The anchor's own bias is added afterwards.
// The weights of a depthwise convolution, which no tensor core reads, are scaled themselves.
func (e *explicit) rescale() error {
	a := e.anchor
	if a == nil {
		return nil
	}
	weights, channels := -1, []float64(nil)
	for i, o := range e.node.Region.Operands {
		if o.PerChannel {
			weights, channels = i, e.node.ChannelScales(i).Const.Floats()
		}
	}
	if e.scalar == 1 && weights < 0 {
		return nil
	}
	if a.Depthwise() && weights < 0 && e.scaleWeights() {
		return nil
	}
	factor := e.splat(e.scalar)
	if weights >= 0 {
		batched := e.node.Region.Operands[weights].Batched
		n := len(channels)
		shape := []int{}
		if batched && e.r.Members > 0 {
			n /= e.r.Members
			shape = append(shape, e.r.Members)
		}
		for i := range channels {
			channels[i] *= e.scalar
		}
		t := FromFloats(Type{Float32, slices.Concat(shape, a.ChannelShape(n))}, channels)
		factor = e.addInput(&Value{Name: e.node.Name + ".scale", Type: t.Type, Const: t}, batched)
	}
	product := a.Outputs[0]
	m, err := e.r.Body.NewNode("Mul", a.Name, nil, product, factor)
	if err != nil {
		return err
	}
	nodes, last := []*Node{m}, m.Outputs[0]
	if bias := a.Bias(); bias != nil {
		k := a.Op.Bias
		if a.Inputs = slices.Clone(a.Inputs); k == len(a.Inputs)-1 {
			a.Inputs = a.Inputs[:k]
		} else {
			a.Inputs[k] = nil
		}
		if shape := a.ChannelShape(bias.Type.Numel()); len(shape) > 1 {
			reshaped, err := e.r.Body.NewNode("Reshape", a.Name, Attrs{"shape": shape}, bias)
			if err != nil {
				return err
			}
			nodes, bias = append(nodes, reshaped), reshaped.Outputs[0]
		}
		sum, err := e.r.Body.NewNode("Add", a.Name, nil, last, bias)
		if err != nil {
			return err
		}
		nodes, last = append(nodes, sum), sum.Outputs[0]
	}
	e.replaceUses(product, last, nil)
	e.r.Body.Nodes = slices.Insert(e.r.Body.Nodes, slices.Index(e.r.Body.Nodes, a)+1, nodes...)
	return nil
}

// scaleWeights multiplies the constant weights of the anchor, and reports whether there are such.
func (e *explicit) scaleWeights() bool {
	i := slices.Index(e.r.Body.Inputs, e.anchor.Inputs[1])
	if i < 0 || !e.inputs[i].IsConst() {
		return false
	}
	w := e.inputs[i]
	xs := w.Const.Floats()
	for k := range xs {
		xs[k] *= e.scalar
	}
	e.inputs[i] = &Value{Name: w.Name, Type: w.Type, Const: FromFloats(w.Type, xs)}
	return true
}

// store makes output i of the body what is stored.
func (e *explicit) store(i int) error {
	s, b := e.node.Region.Results[i], e.r.Body
	v := b.Outputs[i]
	if s.Block > 0 {
		n, err := b.Add("BlockQuantize", "v", Attrs{"scale": s.Factor()}, v)
		if err != nil {
			return err
		}
		b.Outputs = n.Outputs
		return nil
	}
	if q := v.Def; q != nil && q.Op.Name == "FakeQuantize" && q.Attrs.Float("scale", 1) == s.Factor() { // its numbers are what is stored
		attrs := q.Attrs.Clone()
		attrs["codes"] = true
		c, err := b.Add(q.Op.Name, q.Name, attrs, q.Inputs...)
		if err != nil {
			return err
		}
		v = c.Outputs[0]
	} else if s.Scale != 0 && s.Scale != 1 {
		m, err := b.Add("Mul", "v", nil, v, e.splat(1/s.Scale))
		if err != nil {
			return err
		}
		v = m.Outputs[0]
	}
	if s.DType != v.Type.DType {
		c, err := b.Add("Cast", "v", Attrs{"to": s.DType}, v)
		if err != nil {
			return err
		}
		v = c.Outputs[0]
	}
	b.Outputs[i] = v
	b.RemoveDead()
	return nil
}

// BlockQuantize is the node of an explicit region whose numbers and scales are its results; nil: they are plain.
func (r *Region) BlockQuantize() *Node {
	if n := r.Body.Outputs[0].Def; n != nil && n.Op.Name == "BlockQuantize" {
		return n
	}
	return nil
}
