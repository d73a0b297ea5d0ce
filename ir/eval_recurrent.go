package ir

import (
	"fmt"
	"math"
	"strings"
)

// activation is one activation of a recurrent layer with its parameters filled in.
type activation func(x float64) float64

// activationOf follows the table of ONNX GRU 14; alpha and beta are NaN where not given.
func activationOf(name string, alpha, beta float64) (activation, error) {
	or := func(v, def float64) float64 {
		if math.IsNaN(v) {
			return def
		}
		return v
	}
	switch strings.ToLower(name) {
	case "relu":
		return reluFloat, nil
	case "tanh":
		return tanh, nil
	case "sigmoid":
		return sigmoid, nil
	case "affine":
		a, b := or(alpha, 1), or(beta, 0)
		return func(x float64) float64 { return float64(a*x) + b }, nil
	case "leakyrelu":
		a := or(alpha, 0.01)
		return func(x float64) float64 {
			if x < 0 {
				return a * x
			}
			return x
		}, nil
	case "thresholdedrelu":
		a := or(alpha, 1)
		return func(x float64) float64 {
			if x > a {
				return x
			}
			return 0
		}, nil
	case "scaledtanh":
		a, b := or(alpha, 1), or(beta, 1)
		return func(x float64) float64 { return a * tanh(b*x) }, nil
	case "hardsigmoid":
		a, b := or(alpha, 0.2), or(beta, 0.5)
		return func(x float64) float64 { return min(max(float64(a*x)+b, 0), 1) }, nil
	case "elu":
		a := or(alpha, 1)
		return func(x float64) float64 {
			if x < 0 {
				return a * expm1(x)
			}
			return x
		}, nil
	case "softsign":
		return func(x float64) float64 { return x / (1 + math.Abs(x)) }, nil
	case "softplus":
		return func(x float64) float64 { return max(x, 0) + log1p(exp(-math.Abs(x))) }, nil
	}
	return nil, fmt.Errorf("unknown activation %q", name)
}

// activationsOf returns the activations of every direction, direction by direction. Given alphas and betas belong to the
// activations in order.
func (n *Node) activationsOf(defaults ...string) ([]activation, error) {
	names, _ := n.Attrs["activations"].([]string)
	if len(names) == 0 {
		for range n.directions() {
			names = append(names, defaults...)
		}
	}
	alpha, beta := n.Attrs.Floats("alpha"), n.Attrs.Floats("beta")
	out := make([]activation, len(names))
	for i, name := range names {
		a, b := math.NaN(), math.NaN()
		if i < len(alpha) {
			a = alpha[i]
		}
		if i < len(beta) {
			b = beta[i]
		}
		var err error
		if out[i], err = activationOf(name, a, b); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// layer is one direction of a recurrent node while it runs.
type layer struct {
	gates, hidden, input int
	w, r                 []float64 // [gates·hidden, input], [gates·hidden, hidden]
	wb, rb               []float64 // [gates·hidden] each, or nil
	f                    []activation
	clip                 float64
}

func (l *layer) limit(x float64) float64 {
	if l.clip > 0 {
		return min(max(x, -l.clip), l.clip)
	}
	return x
}

// fromInput is W_row·x + Wb_row.
func (l *layer) fromInput(row int, x []float64) float64 {
	s := dot(l.w[row*l.input:(row+1)*l.input], x)
	if l.wb != nil {
		s += l.wb[row]
	}
	return s
}

// fromState is R_row·h + Rb_row.
func (l *layer) fromState(row int, h []float64) float64 {
	s := dot(l.r[row*l.hidden:(row+1)*l.hidden], h)
	if l.rb != nil {
		s += l.rb[row]
	}
	return s
}

// step advances the states of one sequence by one element of it. States are h, and for LSTM also c.
type step func(l *layer, x []float64, h, c []float64)

// evalRecurrent runs the steps over time for every direction and batch element.
func evalRecurrent(n *Node, in []*Array, gates int, advance func(dir int) step, f []activation) ([]*Array, error) {
	get := func(i int) *Array {
		if i < len(in) {
			return in[i]
		}
		return nil
	}
	x, y := in[0], NewArray(n.Outputs[0].Type)
	yh := NewArray(n.Outputs[1].Type)
	out := []*Array{y, yh}
	lstm := n.Op.Name == "LSTM"
	cell := &Array{}
	if lstm {
		cell = NewArray(n.Outputs[2].Type)
		out = append(out, cell)
	}
	times, batch, input, hidden := x.Shape[0], x.Shape[1], x.Shape[2], in[2].Shape[2]
	dirs, rows := n.directions(), gates*hidden
	for dir := range dirs {
		l := &layer{gates: gates, hidden: hidden, input: input, clip: n.Attrs.Float("clip", 0)}
		l.w = in[1].F[dir*rows*input : (dir+1)*rows*input]
		l.r = in[2].F[dir*rows*hidden : (dir+1)*rows*hidden]
		if b := get(3); b != nil {
			l.wb, l.rb = b.F[dir*2*rows:dir*2*rows+rows], b.F[dir*2*rows+rows:(dir+1)*2*rows]
		}
		l.f = f[dir*len(f)/dirs : (dir+1)*len(f)/dirs]
		one := advance(dir)
		reverse := dir == 1 || n.Attrs.String("direction", "forward") == "reverse"
		for b := range batch {
			length := times
			if lens := get(4); lens != nil {
				length = int(lens.I[b])
			}
			if length < 0 || length > times {
				return nil, fmt.Errorf("sequence %d has length %d of %d", b, length, times)
			}
			at := (dir*batch + b) * hidden
			h := yh.F[at : at+hidden]
			var c []float64
			if h0 := get(5); h0 != nil {
				copy(h, h0.F[at:at+hidden])
			}
			if lstm {
				c = cell.F[at : at+hidden]
				if c0 := get(6); c0 != nil {
					copy(c, c0.F[at:at+hidden])
				}
			}
			for s := range length {
				t := s
				if reverse {
					t = length - 1 - s
				}
				one(l, x.F[(t*batch+b)*input:(t*batch+b+1)*input], h, c)
				copy(y.F[((t*dirs+dir)*batch+b)*hidden:], h)
			}
		}
	}
	return out, nil
}

func evalGRU(n *Node, in []*Array) ([]*Array, error) {
	f, err := n.activationsOf("sigmoid", "tanh")
	if err != nil {
		return nil, err
	}
	linear := n.Attrs.Bool("linear_before_reset")
	one := func(l *layer, x, h, _ []float64) {
		z, r, reset := make([]float64, l.hidden), make([]float64, l.hidden), make([]float64, l.hidden)
		for j := range z {
			z[j] = l.f[0](l.limit(l.fromInput(j, x) + l.fromState(j, h)))
			r[j] = l.f[0](l.limit(l.fromInput(l.hidden+j, x) + l.fromState(l.hidden+j, h)))
			reset[j] = r[j] * h[j]
		}
		next := make([]float64, l.hidden)
		for j := range next {
			row := 2*l.hidden + j
			g := 0.0
			if linear {
				g = float64(r[j] * l.fromState(row, h))
			} else {
				g = l.fromState(row, reset)
			}
			g = l.f[1](l.limit(l.fromInput(row, x) + g))
			next[j] = float64((1-z[j])*g) + float64(z[j]*h[j])
		}
		copy(h, next)
	}
	return evalRecurrent(n, in, 3, func(int) step { return one }, f)
}

func evalLSTM(n *Node, in []*Array) ([]*Array, error) {
	f, err := n.activationsOf("sigmoid", "tanh", "tanh")
	if err != nil {
		return nil, err
	}
	couple := n.Attrs.Bool("input_forget")
	advance := func(dir int) step {
		var peep []float64 // of the input, output and forget gates
		if len(in) > 7 && in[7] != nil {
			k := 3 * in[2].Shape[2]
			peep = in[7].F[dir*k : (dir+1)*k]
		}
		return func(l *layer, x, h, c []float64) {
			hidden := l.hidden
			next := make([]float64, hidden)
			look := func(gate, j int, cell float64) float64 {
				if peep == nil {
					return 0
				}
				return float64(peep[gate*hidden+j] * cell)
			}
			sum := func(gate, j int) float64 {
				return l.fromInput(gate*hidden+j, x) + l.fromState(gate*hidden+j, h)
			}
			for j := range next {
				i := l.f[0](l.limit(sum(0, j) + look(0, j, c[j])))
				forget := 1 - i
				if !couple {
					forget = l.f[0](l.limit(sum(2, j) + look(2, j, c[j])))
				}
				g := l.f[1](l.limit(sum(3, j)))
				c[j] = float64(forget*c[j]) + float64(i*g)
				o := l.f[0](l.limit(sum(1, j) + look(1, j, c[j])))
				next[j] = o * l.f[2](c[j])
			}
			copy(h, next)
		}
	}
	return evalRecurrent(n, in, 4, advance, f)
}

func evalRNN(n *Node, in []*Array) ([]*Array, error) {
	f, err := n.activationsOf("tanh")
	if err != nil {
		return nil, err
	}
	one := func(l *layer, x, h, _ []float64) {
		next := make([]float64, l.hidden)
		for j := range next {
			next[j] = l.f[0](l.limit(l.fromInput(j, x) + l.fromState(j, h)))
		}
		copy(h, next)
	}
	return evalRecurrent(n, in, 1, func(int) step { return one }, f)
}
