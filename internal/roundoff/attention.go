package roundoff

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// attention is the rule of softmax(q·kᵀ)·v: an error of the scores is a relative one of the probabilities, which kernels
// round to the 16 bits of v as its factors, in f16 below 2^-14 as denormals; their sum is at least 1.
func (m Model) attention(n *ir.Node, in []Range) ([]Range, error) {
	at, err := known(in)
	if err != nil {
		return nil, err
	}
	q, k, v := at[0], at[1], at[2]
	mid, err := ir.EvaluateNode(n, at)
	if err != nil {
		return nil, err
	}
	at[2] = mapped(v, math.Abs)
	weighted, err := ir.EvaluateNode(n, at)
	if err != nil {
		return nil, err
	}
	heads, groups := q.Shape[1], k.Shape[1]
	s, t, dv := q.Shape[2], k.Shape[2], v.Shape[3]
	qs, ks := norms(q), norms(k)
	scale := n.Attrs.Float("scale", 1)
	rounding, denormal := factors(readAs(n.Inputs[2]))
	radius := make([]float64, mid[0].Len())
	for i := range radius {
		row := i / dv
		bh := row / s
		keys := bh/heads*groups + bh%heads/(heads/groups)
		longest, sum := 0.0, 0.0
		for j := keys * t; j < (keys+1)*t; j++ {
			longest = math.Max(longest, ks[j])
			sum += math.Abs(v.F[j*dv+i%dv])
		}
		score := scale * qs[row] * longest // bounds every score of the row (Cauchy–Schwarz)
		e := 2*score*m.products(q.Shape[3]) + rounding + special + m.products(t)
		radius[i] = weighted[0].F[i]*e + denormal*sum
	}
	return []Range{around(mid[0], radius)}, nil
}

// readAs is the type in which a kernel reads a value of f32 from memory.
func readAs(v *ir.Value) ir.DType {
	from, _ := v.Origin()
	if from.Def != nil && from.Def.Op.Name == "Cast" {
		from = from.Def.Inputs[0]
	}
	return from.Type.DType
}

// norms are the lengths of the vectors along the last dimension.
func norms(a *ir.Array) []float64 {
	d := a.Shape[len(a.Shape)-1]
	out := make([]float64, a.Len()/d)
	for i, x := range a.F {
		out[i/d] += x * x
	}
	for i := range out {
		out[i] = math.Sqrt(out[i])
	}
	return out
}

// attentionGrad is the rule of the gradients of softmax(q·kᵀ)·v. As in an attention, the probabilities P have a relative error e, of
// the scores' and of their sum. With D = dy·vᵀ, known to ε, and m = Σ P∘D of a row, which P's error, its own sum and ε move,
// S = scale·P∘(D-m) is known to e·|S| + scale·P·(ε + error of m). Kernels round P and S to 16 bits, and add up S·k, Sᵀ·q and Pᵀ·dy.
func (m Model) attentionGrad(n *ir.Node, in []Range) ([]Range, error) {
	at, err := known(in)
	if err != nil {
		return nil, err
	}
	mid, err := ir.EvaluateNode(n, at)
	if err != nil {
		return nil, err
	}
	q, k, v, dy := at[0], at[1], at[2], at[3]
	d, s, t, dv := q.Shape[3], q.Shape[2], k.Shape[2], v.Shape[3]
	e := &evaluator{}
	size := func(a *ir.Array) *ir.Array { return mapped(a, math.Abs) }
	p := e.probabilities(n, at)
	dp := e.product(dy, v, ir.Attrs{"transB": true})
	dpError := e.product(size(dy), size(v), ir.Attrs{"transB": true})
	if e.err != nil {
		return nil, e.err
	}
	rounding, denormal := factors(readAs(n.Inputs[2]))
	scale, qs, ks := n.Attrs.Float("scale", 1), norms(q), norms(k)
	pError, ds := ir.NewArray(p.Type), ir.NewArray(p.Type) // the error of P, and that of S with what it weighs in a sum
	for row := range len(p.F) / t {
		longest := 0.0
		for j := range t {
			longest = math.Max(longest, ks[row/s*t+j])
		}
		relative := 2*scale*qs[row]*longest*m.products(d) + special + m.products(t)
		mean, meanError := 0.0, 0.0
		for j := row * t; j < (row+1)*t; j++ {
			dpError.F[j] *= m.products(dv)
			mean += p.F[j] * dp.F[j]
			meanError += p.F[j] * (math.Abs(dp.F[j])*(relative+m.products(t)) + dpError.F[j])
		}
		for j := row * t; j < (row+1)*t; j++ {
			x := scale * p.F[j] * math.Abs(dp.F[j]-mean)
			moved := x*(relative+slack*unit) + scale*p.F[j]*(dpError.F[j]+meanError+unit*(math.Abs(dp.F[j])+math.Abs(mean)))
			ds.F[j] = moved + rounding*(x+moved) + denormal + m.products(max(s, t))*x
			pError.F[j] = p.F[j]*(relative+rounding+m.products(s)) + denormal
		}
	}
	left := ir.Attrs{"transA": true}
	parts := []*ir.Array{e.product(ds, size(k), nil), e.product(ds, size(q), left), e.product(pError, size(dy), left)}
	if e.err != nil {
		return nil, e.err
	}
	return []Range{around(mid[0], padded(mid[0].Type, parts))}, nil
}

// evaluator evaluates nodes that a rule is made of, up to the first error.
type evaluator struct{ err error }

func (e *evaluator) node(op string, attrs ir.Attrs, in ...*ir.Array) *ir.Array {
	if e.err != nil {
		return nil
	}
	g := ir.NewGraph(op)
	var values []*ir.Value
	for i, a := range in {
		values = append(values, g.AddInput(fmt.Sprint("x", i), a.Type))
	}
	n, err := g.Add(op, op, attrs, values...)
	if err != nil {
		e.err = err
		return nil
	}
	out, err := ir.EvaluateNode(n, in)
	if e.err = err; err != nil {
		return nil
	}
	return out[0]
}

func (e *evaluator) product(a, b *ir.Array, attrs ir.Attrs) *ir.Array {
	return e.node("MatMul", attrs, a, b)
}

// probabilities are those of an attention [B,H,S,T]: what it makes of the vectors that each key has for itself.
func (e *evaluator) probabilities(n *ir.Node, at []*ir.Array) *ir.Array {
	q, t := at[0], at[1].Shape[2]
	own := ir.NewArray(ir.T(q.DType, q.Shape[0], q.Shape[1], t, t))
	for i := range own.F {
		if i/t%t == i%t {
			own.F[i] = 1
		}
	}
	in := []*ir.Array{q, at[1], own}
	if len(at) > 4 && at[4] != nil {
		in = append(in, at[4])
	}
	return e.node("Attention", ir.Attrs{"scale": n.Attrs.Float("scale", 1), "causal": n.Attrs.Bool("causal")}, in...)
}

// padded concatenates matrices [B,H,rows,columns], each at the beginning of its part [B,H,R,C].
func padded(t ir.Type, parts []*ir.Array) []float64 {
	out := make([]float64, t.Numel())
	rows, columns := t.Shape[3], t.Shape[4]
	for i, a := range parts {
		r, c := a.Shape[2], a.Shape[3]
		for j, x := range a.F {
			head := i*t.Shape[1]*t.Shape[2] + j/c/r
			out[(head*rows+j/c%r)*columns+j%c] = x
		}
	}
	return out
}

// known are operands whose ranges hold one number each.
func known(in []Range) ([]*ir.Array, error) {
	at := make([]*ir.Array, len(in))
	for i, r := range in {
		if r.Lo != nil && !r.exact() {
			return nil, fmt.Errorf("operand %d is not known exactly", i)
		}
		at[i] = r.Lo
	}
	return at, nil
}

// factors is what rounding factors of a product to a type costs: relative to them, and where they are denormals.
func factors(d ir.DType) (rounding, denormal float64) {
	switch d {
	case ir.Float16:
		return halfUnit(d), 0x1p-25
	case ir.BFloat16:
		return halfUnit(d), 0
	}
	return 0, 0
}
