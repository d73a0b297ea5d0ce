package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// linear is a value as a sum of convolutions of one other value:
//
//	y = Σᵢ coefᵢ·convᵢ(x) + scale·x + bias
//
// where coef, scale and bias have one number for each channel of y. FastViT's training-time blocks, RepVGG's and
// residual connections around one convolution are of this form.
type linear struct {
	x     *ir.Value
	terms []term
	scale []float64  // nil if x itself does not take part
	bias  []float64  // nil if zero
	nodes []*ir.Node // nodes that compute the value from x
}

type term struct {
	conv *ir.Node
	coef []float64 // nil if all ones
}

// linearOf reads every value of the graph that is a linear function of another one. Values inside a sum have one
// reader.
func linearOf(g *ir.Graph, layout string, uses map[*ir.Value][]ir.Use) map[*ir.Value]*linear {
	known := map[*ir.Value]*linear{}
	inner := func(v *ir.Value) *linear {
		if len(uses[v]) == 1 {
			return known[v]
		}
		return nil
	}
	for _, n := range g.Nodes {
		if len(n.Outputs) != 1 || !n.Outputs[0].Type.DType.IsFloat() || n.Outputs[0].Type.Rank() < 3 {
			continue
		}
		y := n.Outputs[0]
		var l *linear
		switch n.Op.Name {
		case "Conv":
			if n.Attrs.String("layout", "NCHW") == layout && n.Inputs[1].IsConst() && (n.In(2) == nil || n.In(2).IsConst()) {
				l = &linear{x: n.Inputs[0], terms: []term{{conv: n}}}
			}
		case "Mul":
			if l = scaled(n.Inputs[0], n.Inputs[1], y, layout, inner); l == nil {
				l = scaled(n.Inputs[1], n.Inputs[0], y, layout, inner)
			}
		case "Add":
			if l = shifted(n.Inputs[0], n.Inputs[1], y, layout, inner); l == nil {
				l = shifted(n.Inputs[1], n.Inputs[0], y, layout, inner)
			}
			if l == nil {
				l = summed(n.Inputs[0], n.Inputs[1], 1, y, inner, layout)
			}
		case "Sub":
			l = summed(n.Inputs[0], n.Inputs[1], -1, y, inner, layout)
		}
		if l != nil {
			l.nodes = append(l.nodes, n)
			known[y] = l
		}
	}
	return known
}

// channelAxis is the dimension of an image's channels.
func channelAxis(layout string, rank int) int {
	if layout == "NHWC" {
		return rank - 1
	}
	return 1
}

// scaled reads v·c for a constant c, v itself becoming x if it is no sum.
func scaled(v, c, y *ir.Value, layout string, inner func(*ir.Value) *linear) *linear {
	l, k := addConst(v, c, y, layout, inner)
	if l == nil {
		return nil
	}
	return l.times(k)
}

// shifted reads v+c for a constant c.
func shifted(v, c, y *ir.Value, layout string, inner func(*ir.Value) *linear) *linear {
	l, k := addConst(v, c, y, layout, inner)
	if l == nil {
		return nil
	}
	m := *l
	m.nodes = slices.Clone(l.nodes)
	m.bias = addVec(l.bias, k)
	return &m
}

// addConst reads v + c: v as a linear function, and c's number for each channel of y. It returns nil if c is no such
// constant.
func addConst(v, c, y *ir.Value, layout string, inner func(*ir.Value) *linear) (*linear, []float64) {
	k, ok := channelOf(c, y.Type.Shape, channelAxis(layout, y.Type.Rank()))
	if !ok || v.IsConst() || !v.Type.Equal(y.Type) {
		return nil, nil
	}
	l := inner(v)
	if l == nil {
		l = itself(v, len(k))
	}
	return l, k
}

// itself is x as a linear function of x.
func itself(x *ir.Value, channels int) *linear {
	return &linear{x: x, scale: slices.Repeat([]float64{1}, channels)}
}

// summed reads u + sign·v where both are functions of one value, or one is a function of the other.
func summed(u, v *ir.Value, sign float64, y *ir.Value, inner func(*ir.Value) *linear, layout string) *linear {
	if !u.Type.Equal(y.Type) || !v.Type.Equal(y.Type) {
		return nil
	}
	channels := y.Type.Shape[channelAxis(layout, y.Type.Rank())]
	a, b := inner(u), inner(v)
	switch {
	case a != nil && b != nil && a.x == b.x:
	case a != nil && a.x == v:
		b = itself(v, channels)
	case b != nil && b.x == u:
		a = itself(u, channels)
	default:
		return nil
	}
	if sign < 0 {
		b = b.times(slices.Repeat([]float64{-1}, channels))
	}
	return &linear{
		x:     a.x,
		terms: slices.Concat(a.terms, b.terms),
		scale: addVec(a.scale, b.scale),
		bias:  addVec(a.bias, b.bias),
		nodes: slices.Concat(a.nodes, b.nodes),
	}
}

// times is the linear function multiplied by k channel by channel.
func (l *linear) times(k []float64) *linear {
	m := &linear{x: l.x, scale: mulVec(l.scale, k), bias: mulVec(l.bias, k), nodes: slices.Clone(l.nodes)}
	for _, t := range l.terms {
		coef := k
		if t.coef != nil {
			coef = mulVec(t.coef, k)
		}
		m.terms = append(m.terms, term{t.conv, coef})
	}
	return m
}

// addVec adds two vectors of which either may be nil, meaning zero.
func addVec(a, b []float64) []float64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// mulVec multiplies two vectors of which the first may be nil, meaning zero.
func mulVec(a, b []float64) []float64 {
	if a == nil {
		return nil
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = float64(a[i] * b[i])
	}
	return out
}
