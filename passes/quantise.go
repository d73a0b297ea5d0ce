package passes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Quantisation is what a calibration chose, as plain data. Values and regions are named as in the graph that enters the
// pass.
type Quantisation struct {
	// Values holds the values that are stored as e4m3, with the scale s: what is stored is x/s. Views share their
	// operand's scale.
	Values map[string]float64
	// Blocks holds the values that are stored as NVFP4, e2m1 beside a scale for each 16 along the last axis, with the scale
	// of ir.QuantizeBlocks. Every reader is a layer with e2m1 weights that multiplies it unmoved; a multiple of 16 channels.
	Blocks map[string]float64
	// Layers holds the regions whose anchor is changed, by the name of their first output.
	Layers map[string]Layer
}

// Layer says how one region multiplies.
type Layer struct {
	Weights *ir.Tensor // e4m3 or e2m1, of the shape of the region's weights; nil: 16 bits
	Scales  []float64  // of Weights, one an output channel, members one after another
	Blocks  *ir.Tensor // e4m3, of e2m1 weights: one for 16 elements along the input channels
	Read    float64    // activations stored in 16 bits are rounded to e4m3 of this scale when they are read; 0: not
	Bias    []float64  // added to each output channel, members one after another; nil: nothing
}

// withFile adds the layers whose weights the file has quantised and that the plan leaves alone; e4m3 says which activations
// are stored so, half what the others are.
func (q *Quantisation) withFile(g *ir.Graph, half ir.DType, e4m3 func(v *ir.Value) bool) *Quantisation {
	out := &Quantisation{Values: q.Values, Blocks: q.Blocks, Layers: maps.Clone(q.Layers)}
	if out.Layers == nil {
		out.Layers = map[string]Layer{}
	}
	for _, s := range Sites(g) {
		if out.Layers[s.Name()].Weights != nil {
			continue
		}
		var l Layer
		var ok bool
		if e4m3(s.Region.Inputs[s.X]) {
			l, ok = onGrid(&s, ir.Float8E4M3FN, ir.Float8E4M3FN)
		} else if l, ok = onBlocks(&s); !ok {
			l, ok = onGrid(&s, ir.Int8, half)
		}
		if ok {
			l.Bias, l.Read = out.Layers[s.Name()].Bias, out.Layers[s.Name()].Read
			out.Layers[s.Name()] = l
		}
	}
	return out
}

// BlockSize is the number of elements that share a scale in NVFP4.
const BlockSize = ir.NVFP4Block

// quantiser rewrites the body of one region for operands that are stored narrower than it computes.
type quantiser struct {
	g       *ir.Graph
	body    *ir.Graph
	inputs  []*ir.Value
	stacked []bool
	members int
	scales  []float64 // of inputs: what is stored times this is the value

	anchor *ir.Node // contraction, depthwise convolution or pool: what a scale may not stand in front of
	read8  float64  // Layer.Read
	factor []float64
	bias   []float64
}

// layer applies the plan for the region's weights.
func (q *quantiser) layer(l Layer, n *ir.Node) error {
	q.anchor = frontAnchor(n.Body)
	q.read8, q.bias = l.Read, l.Bias
	if l.Weights == nil {
		return nil
	}
	s, ok := SiteOf(n)
	if !ok {
		return fmt.Errorf("its weights cannot be quantised")
	}
	if !slices.Equal(l.Weights.Shape, n.Inputs[s.Weight].Type.Shape) {
		return fmt.Errorf("quantised weights %v for %v", l.Weights.Type, n.Inputs[s.Weight].Type)
	}
	i := s.Weight
	q.inputs[i] = q.g.Constant(n.Inputs[i].Name, l.Weights)
	q.factor = l.Scales
	if l.Blocks == nil {
		return nil
	}
	in := q.body.Inputs[i]
	wide := in.Type.DType
	in.Type = ir.Type{DType: l.Weights.DType, Shape: in.Type.Shape}
	blocks := q.addInput(n.Inputs[i].Name, l.Blocks, q.members > 0 && q.stacked[i])
	d, err := q.body.NewNode("DequantizeLinear", "v", ir.Attrs{"to": wide, "axis": s.BlockAxis, "block": BlockSize}, in, blocks)
	if err != nil {
		return err
	}
	q.replaceUses(in, d.Outputs[0], nil)
	q.body.Nodes = slices.Concat([]*ir.Node{d}, q.body.Nodes)
	return nil
}

// addInput gives the region another constant operand.
func (q *quantiser) addInput(name string, t *ir.Tensor, stacked bool) *ir.Value {
	q.inputs = append(q.inputs, q.g.Constant(name, t))
	q.scales = append(q.scales, 1)
	shape := t.Shape
	if q.members > 0 {
		q.stacked = append(q.stacked, stacked)
		if stacked {
			shape = shape[1:]
		}
	}
	return q.body.AddInput(fmt.Sprintf("p%d", len(q.body.Inputs)), ir.Type{DType: t.DType, Shape: slices.Clone(shape)})
}

// frontAnchor returns the node of a body that kernels feed straight from memory.
func frontAnchor(b *ir.Graph) *ir.Node {
	for _, n := range b.Nodes {
		switch n.Op.Kind {
		case ir.KindContraction, ir.KindWindow:
			return n
		}
	}
	return nil
}

// read makes the body read inputs of the type that is stored: a Cast, and the scale where it may stand: at once, or, of
// what the anchor reads, behind the anchor.
func (q *quantiser) read() error {
	scalar := 1.0
	for i, v := range q.inputs {
		in := q.body.Inputs[i]
		wide, stored, scale := in.Type.DType, v.Type.DType, q.scales[i]
		if stored == ir.Float4E2M1 && !v.IsConst() {
			scalar *= scale
		}
		if stored == wide || stored == ir.Float4E2M1 {
			continue
		}
		in.Type = ir.Type{DType: stored, Shape: in.Type.Shape}
		c, err := q.body.NewNode("Cast", "v", ir.Attrs{"to": wide}, in)
		if err != nil {
			return err
		}
		nodes := []*ir.Node{c}
		front := q.inFront()
		if scale != 1 && usesOutside(q.body, in, front) {
			m, err := q.body.NewNode("Mul", "v", nil, c.Outputs[0], q.splat(scale))
			if err != nil {
				return err
			}
			nodes = append(nodes, m)
			q.replaceUses(in, m.Outputs[0], func(n *ir.Node) bool { return !front[n] && n != c })
		}
		if scale != 1 && usesInside(q.body, in, front) {
			if q.anchor.Op.Name == "Attention" || q.anchor.Op.Name == "SegmentedMatVec" {
				return fmt.Errorf("%s cannot read %%%s as e4m3", q.anchor.Op.Name, v.Name)
			}
			scalar *= scale
		}
		operand := c.Outputs[0]
		if q.read8 > 0 && stored != ir.Float8E4M3FN && !v.IsConst() && usesInside(q.body, in, front) {
			rounded, err := q.round(operand, ir.Float8E4M3FN, q.read8)
			if err != nil {
				return err
			}
			nodes = append(nodes, rounded...)
			scalar *= q.read8
			q.replaceUses(in, rounded[len(rounded)-1].Outputs[0], func(n *ir.Node) bool { return front[n] })
		}
		q.replaceUses(in, operand, func(n *ir.Node) bool { return n != c })
		q.body.Nodes = slices.Concat(nodes, q.body.Nodes)
	}
	return q.rescale(scalar)
}

// round is x/scale in type d and back in x's type, without the scale.
func (q *quantiser) round(x *ir.Value, d ir.DType, scale float64) ([]*ir.Node, error) {
	m, err := q.body.NewNode("Mul", "v", nil, x, q.splat(1/scale))
	if err != nil {
		return nil, err
	}
	down, err := q.body.NewNode("Cast", "v", ir.Attrs{"to": d}, m.Outputs[0])
	if err != nil {
		return nil, err
	}
	up, err := q.body.NewNode("Cast", "v", ir.Attrs{"to": x.Type.DType}, down.Outputs[0])
	if err != nil {
		return nil, err
	}
	return []*ir.Node{m, down, up}, nil
}

func (q *quantiser) splat(x float64) *ir.Value {
	return q.body.Constant("c", ir.ScalarFloat(ir.Float32, x))
}

// inFront is the anchor and the nodes on the way from inputs to it.
func (q *quantiser) inFront() map[*ir.Node]bool {
	front := map[*ir.Node]bool{}
	if q.anchor == nil {
		return front
	}
	var walk func(n *ir.Node)
	walk = func(n *ir.Node) {
		if n == nil || front[n] {
			return
		}
		front[n] = true
		for _, v := range n.Inputs {
			if v != nil {
				walk(v.Def)
			}
		}
	}
	walk(q.anchor)
	return front
}

func usesInside(b *ir.Graph, v *ir.Value, set map[*ir.Node]bool) bool {
	return slices.ContainsFunc(b.Nodes, func(n *ir.Node) bool { return set[n] && slices.Contains(n.Inputs, v) })
}

func usesOutside(b *ir.Graph, v *ir.Value, set map[*ir.Node]bool) bool {
	return slices.Contains(b.Outputs, v) || slices.ContainsFunc(b.Nodes, func(n *ir.Node) bool { return !set[n] && slices.Contains(n.Inputs, v) })
}

// replaceUses makes the readers that where accepts read by; the body's outputs count as readers where is true for nil.
func (q *quantiser) replaceUses(v, by *ir.Value, where func(n *ir.Node) bool) {
	for _, n := range q.body.Nodes {
		if n == by.Def || where != nil && !where(n) {
			continue
		}
		for k, x := range n.Inputs {
			if x == v {
				n.Inputs[k] = by
			}
		}
	}
	for k, x := range q.body.Outputs {
		if x == v && (where == nil || where(nil)) {
			q.body.Outputs[k] = by
		}
	}
}

// rescale multiplies the anchor's output by the scales of what it read, and adds the correction. The bias of a Conv moves
// behind the scale.
func (q *quantiser) rescale(scalar float64) error {
	if q.anchor == nil || scalar == 1 && q.factor == nil && q.bias == nil {
		return nil
	}
	a := q.anchor
	if a.Depthwise() && scalar != 1 {
		if err := q.scaleWeights(scalar); err != nil {
			return err
		}
		scalar = 1
	}
	last := a.Outputs[0]
	var nodes []*ir.Node
	behind := func(op string, operand *ir.Value) error {
		n, err := q.body.NewNode(op, a.Name, nil, last, operand)
		if err != nil {
			return err
		}
		nodes, last = append(nodes, n), n.Outputs[0]
		return nil
	}
	old := a.Outputs[0]
	var bias *ir.Value
	if scalar != 1 || q.factor != nil {
		operand := q.splat(scalar)
		if q.factor != nil {
			scaled := make([]float64, len(q.factor))
			for i, s := range q.factor {
				scaled[i] = s * scalar
			}
			operand = q.channelInput("scale", scaled)
		}
		if err := behind("Mul", operand); err != nil {
			return err
		}
		if b := a.Bias(); b != nil {
			if bias, a.Inputs = q.onChannels(b), slices.Clone(a.Inputs); a.Op.Name == "Conv" {
				a.Inputs = a.Inputs[:2]
			} else {
				a.Inputs[2] = nil
			}
		}
	}
	own := bias
	if own == nil {
		own = a.Bias()
	}
	if q.bias != nil && own != nil && own.IsConst() { // the same for every channel
		sum := slices.Clone(q.bias)
		for i := range sum {
			sum[i] += own.Const.FloatAt(i % own.Type.Numel())
		}
		if in := q.channelInput("bias", sum); bias != nil {
			bias = in
		} else {
			a.Inputs = slices.Clone(a.Inputs)
			a.Inputs[2] = in
		}
		q.bias = nil
	}
	if q.bias != nil && own != nil {
		if err := q.shift(own); err != nil {
			return err
		}
		q.bias = nil
	}
	if bias != nil {
		if err := behind("Add", bias); err != nil {
			return err
		}
	}
	if q.bias != nil {
		if err := behind("Add", q.channelInput("bias", q.bias)); err != nil {
			return err
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	for _, n := range q.body.Nodes {
		for k, x := range n.Inputs {
			if x == old {
				n.Inputs[k] = last
			}
		}
	}
	for k, x := range q.body.Outputs {
		if x == old {
			q.body.Outputs[k] = last
		}
	}
	nodes[0].Inputs[0] = old
	at := slices.Index(q.body.Nodes, a) + 1
	// Whatever an inserted node reads is an input of the body, or was cast at its start.
	q.body.Nodes = slices.Insert(q.body.Nodes, at, nodes...)
	return nil
}

// channelShape broadcasts a vector over the anchor's output channels.
func (q *quantiser) channelShape(n int) []int {
	if q.anchor.Op.Name == "Conv" && q.anchor.Attrs.String("layout", "NCHW") == "NCHW" {
		shape := []int{n}
		for range q.anchor.Outputs[0].Type.Rank() - 2 {
			shape = append(shape, 1)
		}
		return shape
	}
	return []int{n}
}

// channelInput is a constant operand with one element an output channel (and member).
func (q *quantiser) channelInput(name string, xs []float64) *ir.Value {
	n := len(xs) / max(1, q.members)
	shape := q.channelShape(n)
	if q.members > 0 {
		shape = slices.Concat([]int{q.members}, shape)
	}
	t := ir.FromFloats(ir.Type{DType: ir.Float32, Shape: shape}, xs)
	return q.addInput(name, t, true)
}

// onChannels returns a Conv's bias in the shape in which an Add takes it.
func (q *quantiser) onChannels(b *ir.Value) *ir.Value {
	shape := q.channelShape(b.Type.Numel())
	if len(shape) == 1 || b.IsConst() {
		if len(shape) > 1 {
			return q.body.Constant("bias", b.Const.Reshaped(shape...))
		}
		return b
	}
	for i, in := range q.body.Inputs {
		if in == b && q.inputs[i].IsConst() && countUses(q.body, b) == 1 {
			full := shape
			if q.members > 0 && q.stacked[i] {
				full = slices.Concat([]int{q.members}, shape)
			}
			q.inputs[i] = q.g.Constant(q.inputs[i].Name, q.inputs[i].Const.Reshaped(full...))
			in.Type = ir.Type{DType: in.Type.DType, Shape: shape}
		}
	}
	return b
}

func countUses(b *ir.Graph, v *ir.Value) int {
	count := 0
	for _, n := range b.Nodes {
		for _, x := range n.Inputs {
			if x == v {
				count++
			}
		}
	}
	return count
}

// shift adds the correction to a constant bias.
func (q *quantiser) shift(b *ir.Value) error {
	for i, in := range q.body.Inputs {
		if in != b {
			continue
		}
		v := q.inputs[i]
		if !v.IsConst() {
			return fmt.Errorf("its bias is not constant")
		}
		xs := v.Const.Floats()
		shape := v.Type.Shape
		if q.members > 0 && !q.stacked[i] { // one bias of all members becomes one a member
			xs = slices.Repeat(xs, q.members)
			shape, q.stacked[i] = slices.Concat([]int{q.members}, shape), true
		}
		if len(xs) != len(q.bias) {
			return fmt.Errorf("%d corrections of %d biases", len(q.bias), len(xs))
		}
		sum := make([]float64, len(xs))
		for k := range xs {
			sum[k] = xs[k] + q.bias[k]
		}
		q.inputs[i] = q.g.Constant(v.Name, ir.FromFloats(ir.Type{DType: v.Type.DType, Shape: slices.Clone(shape)}, sum))
		return nil
	}
	return fmt.Errorf("its bias is not an operand of the region")
}

// scaleWeights multiplies the f32 weights of a depthwise convolution: no Mul is left in the kernel.
func (q *quantiser) scaleWeights(scalar float64) error {
	w := q.anchor.Inputs[1]
	for i, in := range q.body.Inputs {
		if in == w && q.inputs[i].IsConst() {
			xs := q.inputs[i].Const.Floats()
			for k := range xs {
				xs[k] *= scalar
			}
			q.inputs[i] = q.g.Constant(q.inputs[i].Name, ir.FromFloats(q.inputs[i].Type, xs))
			return nil
		}
	}
	return fmt.Errorf("depthwise weights are not an operand of the region")
}

// store makes output k of the body narrow.
func (q *quantiser) store(k int, d ir.DType, scale float64) error {
	v := q.body.Outputs[k]
	if c := defOp(v, "Cast"); c != nil && c.Inputs[0].Type.DType == d && scale == 1 {
		q.body.Outputs[k] = c.Inputs[0]
		return nil
	}
	if scale != 1 {
		m, err := q.body.Add("Mul", "v", nil, v, q.splat(1/scale))
		if err != nil {
			return err
		}
		v = m.Outputs[0]
	}
	c, err := q.body.Add("Cast", "v", ir.Attrs{"to": d}, v)
	if err != nil {
		return err
	}
	q.body.Outputs[k] = c.Outputs[0]
	return nil
}
