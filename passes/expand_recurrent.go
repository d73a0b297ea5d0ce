package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var expandRecurrent = Pass{
	Name:    "expand-recurrent",
	Summary: "short GRU, LSTM and RNN are unrolled; the product with the inputs becomes one MatMul over all steps",
	Run: func(_ *Context, g *ir.Graph) error {
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			switch n.Op.Name {
			case "GRU", "LSTM", "RNN":
				expandLayer(s, n)
			}
		})
		return err
	},
}

// maxSteps bounds the unrolled steps of one layer, both directions together.
const maxSteps = 256

// cell is one direction of a recurrent layer being unrolled; states are [B,H].
type cell struct {
	s      *sweep
	n      *ir.Node
	hidden int
	act    []activation
	r      *ir.Value   // recurrent weights, [gates·H,H]
	rb     *ir.Value   // recurrent bias of a GRU's candidate with linear_before_reset, [1,H]
	p      []*ir.Value // an LSTM's peepholes: input, output, forget gate
	h, c   *ir.Value
}

func expandLayer(s *sweep, n *ir.Node) {
	x := n.Inputs[0].Type // [T,B,I]
	steps, dirs, hidden := x.Shape[0], n.Inputs[2].Type.Shape[0], n.Inputs[2].Type.Shape[2]
	if steps == 0 || steps*dirs > maxSteps {
		return
	}
	acts := activations(n, dirs)
	lengths := n.In(4)
	if fullLengths(lengths, steps) {
		lengths = nil
	}
	perDir := len(acts) / dirs
	var ys, hs, cs []*ir.Value
	for d := range dirs {
		reverse := d == 1 || n.Attrs.String("direction", "forward") == "reverse"
		c := &cell{s: s, n: n, hidden: hidden, act: acts[d*perDir : (d+1)*perDir]}
		projected := c.prepare(d)
		at := make([]*ir.Value, steps)
		for i := range steps {
			t := i
			if reverse {
				t = steps - 1 - i
			}
			y := c.advance(c.rows(projected, t), lengths, t)
			at[t] = c.reshape(y, 1, 1, x.Shape[1], hidden)
		}
		ys = append(ys, c.add("Concat", ir.Attrs{"axis": 0}, at...))
		hs = append(hs, c.reshape(c.h, 1, x.Shape[1], hidden))
		if c.c != nil {
			cs = append(cs, c.reshape(c.c, 1, x.Shape[1], hidden))
		}
	}
	s.replace(n.Outputs[0], s.add("Concat", n.Name, ir.Attrs{"axis": 1}, ys...))
	s.replace(n.Outputs[1], s.add("Concat", n.Name, ir.Attrs{"axis": 0}, hs...))
	if len(n.Outputs) > 2 {
		s.replace(n.Outputs[2], s.add("Concat", n.Name, ir.Attrs{"axis": 0}, cs...))
	}
}

// advance takes step t and returns its output. A sequence that has ended, or read backwards has not begun, keeps its
// state and puts out zero.
func (c *cell) advance(x, lengths *ir.Value, t int) *ir.Value {
	h, cell := c.h, c.c
	c.step(x)
	if lengths == nil {
		return c.h
	}
	now := c.s.g.Constant(c.n.Name, ir.ScalarInt(lengths.Type.DType, int64(t)))
	runs := c.reshape(c.add("Greater", nil, lengths, now), lengths.Type.Numel(), 1)
	y := c.add("Where", nil, runs, c.h, c.s.scalar(c.n.Name, x.Type.DType, 0))
	c.h = c.add("Where", nil, runs, c.h, h)
	if cell != nil {
		c.c = c.add("Where", nil, runs, c.c, cell)
	}
	return y
}

// fullLengths reports whether every sequence of the batch is known to have all steps.
func fullLengths(v *ir.Value, steps int) bool {
	if v == nil {
		return true
	}
	lengths, ok := intsOf(v)
	return ok && !slices.ContainsFunc(lengths, func(l int) bool { return l != steps })
}

func (c *cell) reshape(v *ir.Value, shape ...int) *ir.Value {
	return c.add("Reshape", ir.Attrs{"shape": shape}, v)
}

func (c *cell) add(op string, attrs ir.Attrs, inputs ...*ir.Value) *ir.Value {
	return c.s.add(op, c.n.Name, attrs, inputs...)
}

// part slices count elements from first on along axis and reshapes the result, unless shape is nil.
func (c *cell) part(v *ir.Value, axis, first, count int, shape []int) *ir.Value {
	if c.s.err != nil {
		return v
	}
	starts, sizes := make([]int, v.Type.Rank()), slices.Clone(v.Type.Shape)
	starts[axis], sizes[axis] = first, count
	v = c.add("Slice", ir.Attrs{"starts": starts, "sizes": sizes}, v)
	if shape == nil {
		return v
	}
	return c.add("Reshape", ir.Attrs{"shape": shape}, v)
}

// gate is columns of gate i of a [B,gates·H] value.
func (c *cell) gate(v *ir.Value, i int) *ir.Value {
	return c.part(v, 1, i*c.hidden, c.hidden, nil)
}

func (c *cell) rows(v *ir.Value, t int) *ir.Value {
	return c.part(v, 0, t, 1, v.Type.Shape[1:])
}

// prepare takes direction d's weights and initial state and returns the inputs' share of all gates, [T,B,gates·H].
func (c *cell) prepare(d int) *ir.Value {
	n, h := c.n, c.hidden
	x, w := n.Inputs[0], n.Inputs[1]
	gates, batch := w.Type.Shape[1]/h, x.Type.Shape[1]
	w = c.part(w, 0, d, 1, []int{gates * h, w.Type.Shape[2]})
	c.r = c.part(n.Inputs[2], 0, d, 1, []int{gates * h, h})
	y := c.add("MatMul", ir.Attrs{"transB": true}, x, w)
	if b := n.In(3); b != nil {
		b = c.part(b, 0, d, 1, []int{2, gates * h})
		wb, rb := c.part(b, 0, 0, 1, nil), c.part(b, 0, 1, 1, nil)
		if n.Op.Name == "GRU" && n.Attrs.Bool("linear_before_reset") {
			c.rb = c.gate(rb, 2)
			zero := c.s.g.Constant(n.Name, ir.Splat(ir.T(x.Type.DType, 1, h), 0))
			rb = c.add("Concat", ir.Attrs{"axis": 1}, c.part(rb, 1, 0, 2*h, nil), zero)
		}
		y = c.add("Add", nil, y, c.add("Add", nil, wb, rb))
	}
	state := func(v *ir.Value) *ir.Value {
		if v == nil {
			return c.s.g.Constant(n.Name, ir.Splat(ir.T(x.Type.DType, batch, h), 0))
		}
		return c.part(v, 0, d, 1, []int{batch, h})
	}
	c.h = state(n.In(5))
	if n.Op.Name == "LSTM" {
		c.c = state(n.In(6))
		if p := n.In(7); p != nil {
			p = c.part(p, 0, d, 1, []int{1, 3 * h})
			c.p = []*ir.Value{c.gate(p, 0), c.gate(p, 1), c.gate(p, 2)}
		}
	}
	return y
}

// step computes the next state from the inputs' share of the gates, by the equations of ONNX GRU 14, LSTM 14, RNN 14.
func (c *cell) step(x *ir.Value) {
	switch c.n.Op.Name {
	case "RNN":
		c.h = c.gated(0, c.add("Add", nil, x, c.recur(c.h, 0, 1)))
	case "GRU":
		c.gru(x)
	case "LSTM":
		c.lstm(x)
	}
}

// recur multiplies a state by the recurrent weights of count gates.
func (c *cell) recur(state *ir.Value, first, count int) *ir.Value {
	r := c.part(c.r, 0, first*c.hidden, count*c.hidden, nil)
	return c.add("MatMul", ir.Attrs{"transB": true}, state, r)
}

// gated clips a gate's sum where the layer asks for it and applies activation i.
func (c *cell) gated(i int, v *ir.Value) *ir.Value {
	if clip := c.n.Attrs.Float("clip", 0); clip > 0 {
		v = c.add("Min", nil, v, c.s.scalar(c.n.Name, v.Type.DType, clip))
		v = c.add("Max", nil, v, c.s.scalar(c.n.Name, v.Type.DType, -clip))
	}
	return c.act[i].apply(c, v)
}

func (c *cell) oneMinus(v *ir.Value) *ir.Value {
	return c.add("Sub", nil, c.s.scalar(c.n.Name, v.Type.DType, 1), v)
}

func (c *cell) gru(x *ir.Value) {
	zr := c.gated(0, c.add("Add", nil, c.part(x, 1, 0, 2*c.hidden, nil), c.recur(c.h, 0, 2)))
	z, r := c.gate(zr, 0), c.gate(zr, 1)
	var candidate *ir.Value
	if c.n.Attrs.Bool("linear_before_reset") {
		candidate = c.recur(c.h, 2, 1)
		if c.rb != nil {
			candidate = c.add("Add", nil, candidate, c.rb)
		}
		candidate = c.add("Mul", nil, r, candidate)
	} else {
		candidate = c.recur(c.add("Mul", nil, r, c.h), 2, 1)
	}
	candidate = c.gated(1, c.add("Add", nil, c.gate(x, 2), candidate))
	fresh := c.add("Mul", nil, c.oneMinus(z), candidate)
	c.h = c.add("Add", nil, fresh, c.add("Mul", nil, z, c.h))
}

func (c *cell) lstm(x *ir.Value) {
	all := c.add("Add", nil, x, c.recur(c.h, 0, 4)) // gates i, o, f, c
	peep := func(v *ir.Value, gate int, state *ir.Value) *ir.Value {
		if c.p == nil {
			return v
		}
		return c.add("Add", nil, v, c.add("Mul", nil, c.p[gate], state))
	}
	i := c.gated(0, peep(c.gate(all, 0), 0, c.c))
	var f *ir.Value
	if c.n.Attrs.Bool("input_forget") {
		f = c.oneMinus(i)
	} else {
		f = c.gated(0, peep(c.gate(all, 2), 2, c.c))
	}
	fresh := c.add("Mul", nil, i, c.gated(1, c.gate(all, 3)))
	c.c = c.add("Add", nil, c.add("Mul", nil, f, c.c), fresh)
	o := c.gated(0, peep(c.gate(all, 1), 1, c.c))
	c.h = c.add("Mul", nil, o, c.act[2].apply(c, c.c))
}
