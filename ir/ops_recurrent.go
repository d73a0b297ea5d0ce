package ir

import (
	"fmt"
	"slices"
	"strings"
)

// Recurrent layers, as composites: every step written out.
var _ = register(
	Op{Name: "GRU", Kind: KindScan, In: "x float, w x, r x, b? x, lengths? index, h0? x", Out: []string{"y", "yh"},
		Attrs:   append(slices.Clone(recurrence), Attr{Name: "linear_before_reset", Default: false}),
		Summary: "ONNX GRU 14 with layout 0: x [T,B,I], y [T,dirs,B,H], yh [dirs,B,H]; clip 0 = none",
		Batch:   batchRecurrent, Infer: recurrent(3, 2, 2), Expand: expandRecurrent},
	Op{Name: "LSTM", Kind: KindScan, In: "x float, w x, r x, b? x, lengths? index, h0? x, c0? x, p? x", Out: []string{"y", "yh", "yc"},
		Attrs:   append(slices.Clone(recurrence), Attr{Name: "input_forget", Default: false}, Attr{Name: "dynamic", Default: false}),
		Summary: "ONNX LSTM 14 with layout 0; dynamic: the product with r reads hidden states rounded to 8 bits (com.microsoft.DynamicQuantizeLSTM)",
		Batch:   batchRecurrent, Infer: recurrent(4, 3, 3), Expand: expandRecurrent},
	Op{Name: "RNN", Kind: KindScan, In: "x float, w x, r x, b? x, lengths? index, h0? x", Out: []string{"y", "yh"},
		Attrs:   recurrence,
		Summary: "ONNX RNN 14 with layout 0",
		Batch:   batchRecurrent, Infer: recurrent(1, 1, 2), Expand: expandRecurrent},
)

// recurrence are the attributes of all recurrent layers.
var recurrence = []Attr{{Name: "direction", Default: "forward"}, {Name: "activations", Default: []string(nil)}, {Name: "alpha", Default: []float64(nil)}, {Name: "beta", Default: []float64(nil)}, {Name: "clip", Default: 0.0}}

// recurrent is the rule of GRU, LSTM and RNN with the given number of gates and activations per direction.
func recurrent(gates, activations, outputs int) func(n *Node) ([]Type, error) {
	return func(n *Node) ([]Type, error) {
		x, w, r := n.Inputs[0].Type, n.Inputs[1].Type, n.Inputs[2].Type
		if err := n.oneOf("direction", "forward", "forward", "reverse", "bidirectional"); err != nil {
			return nil, err
		}
		dirs := n.directions()
		if x.Rank() != 3 || w.Rank() != 3 || r.Rank() != 3 {
			return nil, fmt.Errorf("x %v, w %v, r %v: want rank 3", x, w, r)
		}
		t, b, in, h := x.Shape[0], x.Shape[1], x.Shape[2], r.Shape[2]
		err := firstError(
			n.shaped(1, dirs, gates*h, in), n.shaped(2, dirs, gates*h, h), n.shaped(3, dirs, 2*gates*h),
			n.shaped(4, b), n.shaped(5, dirs, b, h), n.shaped(6, dirs, b, h), n.shaped(7, dirs, 3*h),
			n.checkActivations(dirs*activations))
		if err != nil {
			return nil, err
		}
		types := []Type{{x.DType, []int{t, dirs, b, h}}}
		for len(types) < outputs {
			types = append(types, Type{x.DType, []int{dirs, b, h}})
		}
		return types, nil
	}
}

// directions is the number of directions of a recurrent node.
func (n *Node) directions() int {
	if n.Attrs.String("direction", "forward") == "bidirectional" {
		return 2
	}
	return 1
}

func (n *Node) checkActivations(count int) error {
	names, _ := n.Attrs["activations"].([]string)
	if len(names) != 0 && len(names) != count {
		return fmt.Errorf("activations=%v, want %d names", names, count)
	}
	for _, a := range names {
		if activationTable[strings.ToLower(a)].apply == nil {
			return fmt.Errorf("unknown activation %q", a)
		}
	}
	if c := n.Attrs.Float("clip", 0); !(c >= 0) {
		return fmt.Errorf("clip=%v is negative", c)
	}
	return nil
}

// cell is one direction of a recurrent layer being unrolled; states are [B,H].
type cell struct {
	*Expansion
	n      *Node
	hidden int
	act    []activation
	r      *Value   // recurrent weights, [gates·H,H]
	rb     *Value   // recurrent bias of a GRU's candidate with linear_before_reset, [1,H]
	p      []*Value // an LSTM's peepholes: input, output, forget gate
	h, c   *Value
}

// expandRecurrent unrolls all steps; the product with the inputs is one MatMul over them.
func expandRecurrent(x *Expansion, n *Node) []*Value {
	in := n.Inputs[0].Type // [T,B,I]
	steps, batch, dirs, hidden := in.Shape[0], in.Shape[1], n.directions(), n.Inputs[2].Type.Shape[2]
	acts := activations(n, dirs)
	lengths := n.In(4)
	if fullLengths(lengths, steps) {
		lengths = nil
	}
	perDir := len(acts) / dirs
	var ys, hs, cs []*Value
	for d := range dirs {
		reverse := d == 1 || n.Attrs.String("direction", "forward") == "reverse"
		c := &cell{Expansion: x, n: n, hidden: hidden, act: acts[d*perDir : (d+1)*perDir]}
		projected := c.prepare(d)
		at := make([]*Value, steps)
		for i := range steps {
			t := i
			if reverse {
				t = steps - 1 - i
			}
			y := c.advance(c.rows(projected, t), lengths, t)
			at[t] = c.Reshape(y, 1, 1, batch, hidden)
		}
		c.zeroEmpty(lengths)
		if steps == 0 {
			at = []*Value{x.Constant(Splat(T(in.DType, 0, 1, batch, hidden), 0))}
		}
		ys = append(ys, c.Add("Concat", Attrs{"axis": 0}, at...))
		hs = append(hs, c.Reshape(c.h, 1, batch, hidden))
		if c.c != nil {
			cs = append(cs, c.Reshape(c.c, 1, batch, hidden))
		}
	}
	outs := []*Value{x.Add("Concat", Attrs{"axis": 1}, ys...), x.Add("Concat", Attrs{"axis": 0}, hs...)}
	if len(cs) > 0 {
		outs = append(outs, x.Add("Concat", Attrs{"axis": 0}, cs...))
	}
	return outs
}

// advance takes step t and returns its output. A sequence that has ended, or read backwards has not begun, keeps its
// state and puts out zero.
func (c *cell) advance(x, lengths *Value, t int) *Value {
	h, cell := c.h, c.c
	c.step(x)
	if lengths == nil {
		return c.h
	}
	now := c.Constant(ScalarInt(lengths.Type.DType, int64(t)))
	runs := c.Reshape(c.Add("Greater", nil, lengths, now), lengths.Type.Numel(), 1)
	y := c.Add("Where", nil, runs, c.h, c.Like(x, 0))
	c.h = c.Add("Where", nil, runs, c.h, h)
	if cell != nil {
		c.c = c.Add("Where", nil, runs, c.c, cell)
	}
	return y
}

// zeroEmpty makes the last states of sequences of length 0 zero. The text of ONNX is silent on them; ONNX Runtime
// gives zero for GRU and LSTM, and for RNN the initial state, where it reads backwards.
func (c *cell) zeroEmpty(lengths *Value) {
	if lengths == nil || c.n.Op.Name == "RNN" || lengths.IsConst() && !slices.Contains(lengths.Const.Ints(), 0) {
		return
	}
	runs := c.Add("Greater", nil, lengths, c.Constant(ScalarInt(lengths.Type.DType, 0)))
	runs = c.Reshape(runs, lengths.Type.Numel(), 1)
	if c.n.In(5) != nil {
		c.h = c.Add("Where", nil, runs, c.h, c.Like(c.h, 0))
	}
	if c.c != nil && c.n.In(6) != nil {
		c.c = c.Add("Where", nil, runs, c.c, c.Like(c.c, 0))
	}
}

// fullLengths reports whether every sequence of the batch is known to have all steps.
func fullLengths(v *Value, steps int) bool {
	if v == nil {
		return true
	}
	return v.IsConst() && !slices.ContainsFunc(v.Const.Ints(), func(l int64) bool { return l != int64(steps) })
}

// part slices count elements from first on along axis and reshapes the result, unless shape is nil.
func (c *cell) part(v *Value, axis, first, count int, shape []int) *Value {
	if c.err != nil {
		return v
	}
	starts, sizes := make([]int, v.Type.Rank()), slices.Clone(v.Type.Shape)
	starts[axis], sizes[axis] = first, count
	v = c.Add("Slice", Attrs{"starts": starts, "sizes": sizes}, v)
	if shape == nil {
		return v
	}
	return c.Reshape(v, shape...)
}

// gate is columns of gate i of a [B,gates·H] value.
func (c *cell) gate(v *Value, i int) *Value {
	return c.part(v, 1, i*c.hidden, c.hidden, nil)
}

func (c *cell) rows(v *Value, t int) *Value {
	return c.part(v, 0, t, 1, v.Type.Shape[1:])
}

// prepare takes direction d's weights and initial state and returns the inputs' share of all gates, [T,B,gates·H].
func (c *cell) prepare(d int) *Value {
	n, h := c.n, c.hidden
	x, w := n.Inputs[0], n.Inputs[1]
	gates, batch := w.Type.Shape[1]/h, x.Type.Shape[1]
	w = c.part(w, 0, d, 1, []int{gates * h, w.Type.Shape[2]})
	c.r = c.part(n.Inputs[2], 0, d, 1, []int{gates * h, h})
	y := c.Add("MatMul", Attrs{"transB": true}, x, w)
	if b := n.In(3); b != nil {
		b = c.part(b, 0, d, 1, []int{2, gates * h})
		wb, rb := c.part(b, 0, 0, 1, nil), c.part(b, 0, 1, 1, nil)
		if n.Op.Name == "GRU" && n.Attrs.Bool("linear_before_reset") {
			c.rb = c.gate(rb, 2)
			zero := c.Constant(Splat(T(x.Type.DType, 1, h), 0))
			rb = c.Add("Concat", Attrs{"axis": 1}, c.part(rb, 1, 0, 2*h, nil), zero)
		}
		y = c.Add("Add", nil, y, c.Add("Add", nil, wb, rb))
	}
	state := func(v *Value) *Value {
		if v == nil {
			return c.Constant(Splat(T(x.Type.DType, batch, h), 0))
		}
		return c.part(v, 0, d, 1, []int{batch, h})
	}
	c.h = state(n.In(5))
	if n.Op.Name == "LSTM" {
		c.c = state(n.In(6))
		if p := n.In(7); p != nil {
			p = c.part(p, 0, d, 1, []int{1, 3 * h})
			c.p = []*Value{c.gate(p, 0), c.gate(p, 1), c.gate(p, 2)}
		}
	}
	return y
}

// step computes the next state from the inputs' share of the gates, by the equations of ONNX GRU 14, LSTM 14, RNN 14.
func (c *cell) step(x *Value) {
	switch c.n.Op.Name {
	case "RNN":
		c.h = c.gated(0, c.Add("Add", nil, x, c.recur(c.h, 0, 1)))
	case "GRU":
		c.gru(x)
	case "LSTM":
		c.lstm(x)
	}
}

// recur multiplies a state by the recurrent weights of count gates.
func (c *cell) recur(state *Value, first, count int) *Value {
	r := c.part(c.r, 0, first*c.hidden, count*c.hidden, nil)
	return c.Add("MatMul", Attrs{"transB": true}, state, r)
}

// gated clips a gate's sum where the layer asks for it and applies activation i.
func (c *cell) gated(i int, v *Value) *Value {
	if clip := c.n.Attrs.Float("clip", 0); clip > 0 {
		v = c.Add("Min", nil, v, c.Like(v, clip))
		v = c.Add("Max", nil, v, c.Like(v, -clip))
	}
	return c.activate(i, v)
}

func (c *cell) activate(i int, v *Value) *Value {
	return c.act[i].apply(c.Expansion, v, c.act[i].alpha, c.act[i].beta)
}

func (c *cell) oneMinus(v *Value) *Value {
	return c.Add("Sub", nil, c.Like(v, 1), v)
}

func (c *cell) gru(x *Value) {
	zr := c.gated(0, c.Add("Add", nil, c.part(x, 1, 0, 2*c.hidden, nil), c.recur(c.h, 0, 2)))
	z, r := c.gate(zr, 0), c.gate(zr, 1)
	var candidate *Value
	if c.n.Attrs.Bool("linear_before_reset") {
		candidate = c.recur(c.h, 2, 1)
		if c.rb != nil {
			candidate = c.Add("Add", nil, candidate, c.rb)
		}
		candidate = c.Add("Mul", nil, r, candidate)
	} else {
		candidate = c.recur(c.Add("Mul", nil, r, c.h), 2, 1)
	}
	candidate = c.gated(1, c.Add("Add", nil, c.gate(x, 2), candidate))
	fresh := c.Add("Mul", nil, c.oneMinus(z), candidate)
	c.h = c.Add("Add", nil, fresh, c.Add("Mul", nil, z, c.h))
}

func (c *cell) lstm(x *Value) {
	h := c.h
	if c.n.Attrs.Bool("dynamic") {
		h = c.dynamic(h)
	}
	all := c.Add("Add", nil, x, c.recur(h, 0, 4)) // gates i, o, f, c
	peep := func(v *Value, gate int, state *Value) *Value {
		if c.p == nil {
			return v
		}
		return c.Add("Add", nil, v, c.Add("Mul", nil, c.p[gate], state))
	}
	i := c.gated(0, peep(c.gate(all, 0), 0, c.c))
	var f *Value
	if c.n.Attrs.Bool("input_forget") {
		f = c.oneMinus(i)
	} else {
		f = c.gated(0, peep(c.gate(all, 2), 2, c.c))
	}
	fresh := c.Add("Mul", nil, i, c.gated(1, c.gate(all, 3)))
	c.c = c.Add("Add", nil, c.Add("Mul", nil, f, c.c), fresh)
	o := c.gated(0, peep(c.gate(all, 1), 1, c.c))
	c.h = c.Add("Mul", nil, o, c.activate(2, c.c))
}

// dynamic rounds a state to 8 bits and back, as DynamicQuantizeLinear 11 does.
func (c *cell) dynamic(v *Value) *Value {
	all := Attrs{"axes": []int{0, 1}}
	lo := c.Add("Min", nil, c.Add("ReduceMin", all, v), c.Like(v, 0))
	hi := c.Add("Max", nil, c.Add("ReduceMax", all, v), c.Like(v, 0))
	scale := c.Add("Div", nil, c.Add("Sub", nil, hi, lo), c.Like(v, 255))
	scale = c.Add("Where", nil, c.Add("Equal", nil, scale, c.Like(v, 0)), c.Like(v, 1), scale)
	zero := c.Add("Cast", Attrs{"to": Uint8}, c.Add("Round", nil, c.Add("Div", nil, c.Add("Neg", nil, lo), scale)))
	q := c.Add("QuantizeLinear", Attrs{"to": Uint8}, v, scale, zero)
	return c.Add("DequantizeLinear", Attrs{"to": v.Type.DType}, q, scale, zero)
}

// activation is one of a recurrent layer's: its parameters, and what it does to v.
type activation struct {
	alpha, beta float64
	apply       func(x *Expansion, v *Value, alpha, beta float64) *Value
}

// activationTable is that of ONNX GRU 14, with the parameters where a layer gives none. Names are in lower case: ONNX
// compares them without regard to case.
var activationTable = map[string]activation{
	"relu":    {0, 0, func(x *Expansion, v *Value, _, _ float64) *Value { return x.Add("Relu", nil, v) }},
	"tanh":    {0, 0, func(x *Expansion, v *Value, _, _ float64) *Value { return x.Add("Tanh", nil, v) }},
	"sigmoid": {0, 0, func(x *Expansion, v *Value, _, _ float64) *Value { return x.Add("Sigmoid", nil, v) }},
	"affine":  {1, 0, affine},
	"leakyrelu": {0.01, 0, func(x *Expansion, v *Value, a, _ float64) *Value {
		return x.whereAbove(v, 0, v, x.Add("Mul", nil, v, x.Like(v, a)))
	}},
	"thresholdedrelu": {1, 0, func(x *Expansion, v *Value, a, _ float64) *Value { return x.whereAbove(v, a, v, x.Like(v, 0)) }},
	"scaledtanh": {1, 1, func(x *Expansion, v *Value, a, b float64) *Value {
		return x.Add("Mul", nil, x.Add("Tanh", nil, x.Add("Mul", nil, v, x.Like(v, b))), x.Like(v, a))
	}},
	"hardsigmoid": {0.2, 0.5, func(x *Expansion, v *Value, a, b float64) *Value {
		return x.Add("Max", nil, x.Add("Min", nil, affine(x, v, a, b), x.Like(v, 1)), x.Like(v, 0))
	}},
	"elu": {1, 0, func(x *Expansion, v *Value, a, _ float64) *Value {
		return x.whereAbove(v, 0, v, x.Add("Mul", nil, x.Add("Sub", nil, x.Add("Exp", nil, v), x.Like(v, 1)), x.Like(v, a)))
	}},
	"softsign": {0, 0, func(x *Expansion, v *Value, _, _ float64) *Value {
		return x.Add("Div", nil, v, x.Add("Add", nil, x.Add("Abs", nil, v), x.Like(v, 1)))
	}},
	"softplus": {0, 0, func(x *Expansion, v *Value, _, _ float64) *Value { // without overflow
		small := x.Add("Exp", nil, x.Add("Neg", nil, x.Add("Abs", nil, v)))
		return x.Add("Add", nil, x.Add("Relu", nil, v), x.Add("Log1p", nil, small))
	}},
}

func affine(x *Expansion, v *Value, a, b float64) *Value {
	return x.Add("Add", nil, x.Add("Mul", nil, v, x.Like(v, a)), x.Like(v, b))
}

func (x *Expansion) whereAbove(v *Value, limit float64, yes, no *Value) *Value {
	return x.Add("Where", nil, x.Add("Greater", nil, v, x.Like(v, limit)), yes, no)
}

// activations are those of every direction, direction by direction. Given alphas and betas belong to them in order.
func activations(n *Node, dirs int) []activation {
	names, _ := n.Attrs["activations"].([]string)
	if len(names) == 0 {
		names = slices.Repeat(map[string][]string{"GRU": {"Sigmoid", "Tanh"}, "LSTM": {"Sigmoid", "Tanh", "Tanh"}, "RNN": {"Tanh"}}[n.Op.Name], dirs)
	}
	alpha, beta := n.Attrs.Floats("alpha"), n.Attrs.Floats("beta")
	out := make([]activation, len(names))
	for i, name := range names {
		out[i] = activationTable[strings.ToLower(name)]
		if i < len(alpha) {
			out[i].alpha = alpha[i]
		}
		if i < len(beta) {
			out[i].beta = beta[i]
		}
	}
	return out
}
