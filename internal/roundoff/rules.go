package roundoff

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// node applies the rule of an op.
func (m Model) node(n *ir.Node, in []Range) ([]Range, error) {
	switch n.Op.Name {
	case "Region":
		return m.region(n, in)
	case "Conv", "ConvTranspose", "MatMul", "SegmentedMatVec":
		return m.product(n, in)
	case "Attention":
		return m.attention(n, in)
	case "AttentionGrad":
		return m.attentionGrad(n, in)
	case "LayerNorm":
		return layerNorm(n, in)
	case "BatchNorm":
		return batchNorm(n, in)
	case "ReduceMean", "ReduceSum", "CumSum", "AveragePool":
		return sum(n, in)
	case "Resize":
		if n.Role() != ir.RoleLight {
			return interpolation(n, in)
		}
	case "Abs":
		return abs(in[0]), nil
	case "BlockQuantize":
		return blockQuantize(n, in)
	case "QuantizeLinear":
		return quantize(n, in)
	case "Gelu", "Silu":
		return lipschitz(n, in, 1.13)
	case "Softmax", "SoftmaxGrad", "LayerNormGrad", "RMSNormGrad":
		return m.composite(n, in)
	case "MatMulSum":
		return m.sumOfProducts(n, in)
	}
	if n.Op.Expand != nil && n.Op.Kind == ir.KindElementwise {
		return m.composite(n, in)
	}
	relative, ok := relativeError(n)
	if !ok {
		return nil, fmt.Errorf("no bound of its rounding is known")
	}
	out, err := corners(n, in)
	if err != nil || relative == 0 {
		return out, err
	}
	for i := range out {
		out[i] = enlarged(out[i], func(_ int, x float64) float64 { return math.Abs(x)*relative + tiny })
	}
	return out, nil
}

// composite follows the nodes that n stands for.
func (m Model) composite(n *ir.Node, in []Range) ([]Range, error) {
	g := ir.NewGraph(n.Name)
	nodes, outs, err := n.Expand(g)
	if err != nil {
		return nil, err
	}
	g.Inputs, g.Nodes, g.Outputs = n.Inputs, nodes, outs
	return m.body(g, in)
}

// sumOfProducts is the rule of MatMulSum. Kernels on tensor cores round what factors are multiplied with to the 16 bits that it lies in,
// in f16 below 2^-14 as denormals; others do not.
func (m Model) sumOfProducts(n *ir.Node, in []Range) ([]Range, error) {
	d := readAs(n.Inputs[0])
	if n.In(4) == nil || d != ir.Float16 && d != ir.BFloat16 {
		return m.composite(n, in)
	}
	g := ir.NewGraph(n.Name)
	mul, err := g.Add("Mul", n.Name, nil, n.Inputs[0], n.Inputs[4])
	if err != nil {
		return nil, err
	}
	sum, err := g.Add(n.Op.Name, n.Name, n.Attrs, mul.Outputs[0], n.Inputs[1], n.Inputs[2], n.Inputs[3])
	if err != nil {
		return nil, err
	}
	scaled, err := m.node(mul, []Range{in[0], in[4]})
	if err != nil {
		return nil, err
	}
	denormal := 0.0
	if d == ir.Float16 {
		denormal = 0x1p-25
	}
	a := enlarged(scaled[0], func(_ int, x float64) float64 { return float64(math.Abs(x)*halfUnit(d)) + denormal })
	return m.composite(sum, []Range{a, in[1], in[2], in[3]})
}

// special is the relative error of the transcendental functions of codegen/expr, which rest on ex2.approx: 2^-22 (PTX ISA,
// ex2), times what rounding its argument costs.
const special = 0x1p-19

// relativeError is the rounding of ops that are monotone in each of their operands.
func relativeError(n *ir.Node) (float64, bool) {
	if n.Op.Kind == ir.KindMovement {
		return 0, true
	}
	switch n.Op.Name {
	case "Relu", "Round", "Max", "Min", "Neg", "Where", "Cast", "Clip", "MaxPool", "ReduceMax", "ReduceMin":
		return 0, true
	case "DequantizeLinear": // a product of a few bits by a scale: rounded where it is stored
		return 0, true
	case "Add", "Sub", "Mul", "Div", "Sqrt":
		return unit, true
	case "Sigmoid", "Tanh", "Exp":
		return special, true
	}
	return 0, false
}

// corners spans a function's values at the ends of its operands' ranges: its whole range if it is monotone in each operand.
func corners(n *ir.Node, in []Range) ([]Range, error) {
	var free []int
	at := make([]*ir.Array, len(in))
	for i, r := range in {
		at[i] = r.Lo
		if !r.exact() {
			free = append(free, i)
		}
	}
	if len(free) > 8 {
		return moved(n, in)
	}
	var out []Range
	for c := range 1 << len(free) {
		for b, i := range free {
			at[i] = in[i].Lo
			if c>>b&1 == 1 {
				at[i] = in[i].Hi
			}
		}
		res, err := ir.EvaluateNode(n, at)
		if err != nil {
			return nil, err
		}
		if c == 0 {
			for _, a := range res {
				out = append(out, Exactly(a))
			}
			continue
		}
		for k, a := range res {
			out[k] = hull(out[k], a)
		}
	}
	return out, nil
}

// moved is corners of a movement of many operands: each element comes from one of them.
func moved(n *ir.Node, in []Range) ([]Range, error) {
	if n.Op.Kind != ir.KindMovement {
		return nil, fmt.Errorf("%d operands that are not known exactly", len(in))
	}
	lo, hi := make([]*ir.Array, len(in)), make([]*ir.Array, len(in))
	for i, r := range in {
		lo[i], hi[i] = r.Lo, r.Hi
	}
	a, err := ir.EvaluateNode(n, lo)
	if err != nil {
		return nil, err
	}
	b, err := ir.EvaluateNode(n, hi)
	if err != nil {
		return nil, err
	}
	return []Range{{a[0], b[0]}}, nil
}

func hull(r Range, a *ir.Array) Range {
	out := Range{ir.NewArray(a.Type), ir.NewArray(a.Type)}
	for i, x := range a.I {
		out.Lo.I[i], out.Hi.I[i] = min(r.Lo.I[i], x), max(r.Hi.I[i], x)
	}
	for i, x := range a.F {
		out.Lo.F[i], out.Hi.F[i] = math.Min(r.Lo.F[i], x), math.Max(r.Hi.F[i], x)
	}
	return out
}

// with evaluates a bilinear node on other operands.
func with(n *ir.Node, in []Range, a, b, bias *ir.Array) ([]float64, error) {
	at := make([]*ir.Array, len(in))
	for i, r := range in {
		at[i] = r.Lo
	}
	at[0], at[1] = a, b
	if n.Bias() != nil {
		at[n.Op.Bias] = bias
	}
	out, err := ir.EvaluateNode(n, at)
	if err != nil {
		return nil, err
	}
	return out[0].F, nil
}

// product is the rule of what sums products of two operands, and adds a bias.
func (m Model) product(n *ir.Node, in []Range) ([]Range, error) {
	a, ra := split(in[0])
	b, rb := split(in[1])
	var bias, rbias *ir.Array
	if n.Bias() != nil {
		bias, rbias = split(in[n.Op.Bias])
	}
	mid, err := with(n, in, a, b, bias)
	if err != nil {
		return nil, err
	}
	radius, err := with(n, in, mapped(a, math.Abs), mapped(b, math.Abs), mapped(bias, math.Abs))
	if err != nil {
		return nil, err
	}
	e := m.products(length(n))
	for i := range radius {
		radius[i] *= e
	}
	if ra != nil || rb != nil || rbias != nil {
		carried, err := carried(n, in, a, ra, b, rb, rbias)
		if err != nil {
			return nil, err
		}
		for i, x := range carried {
			radius[i] += x
		}
	}
	return []Range{around(&ir.Array{Type: n.Outputs[0].Type, F: mid}, radius)}, nil
}

// length is the greatest number of products in a sum.
func length(n *ir.Node) int {
	if n.Op.Name == "ConvTranspose" {
		w := n.Inputs[1].Type
		return w.Numel() / (w.Shape[1] * n.Attrs.Int("group", 1))
	}
	return int(n.MACs()) / max(1, n.Outputs[0].Type.Numel())
}

// carried bounds how far errors ra and rb of the operands move the sum.
func carried(n *ir.Node, in []Range, a, ra, b, rb, rbias *ir.Array) ([]float64, error) {
	plain, squares := make([]float64, n.Outputs[0].Type.Numel()), make([]float64, n.Outputs[0].Type.Numel())
	add := func(x, y *ir.Array) error {
		if x == nil || y == nil {
			return nil
		}
		p, err := with(n, in, mapped(x, math.Abs), mapped(y, math.Abs), nil)
		if err != nil {
			return err
		}
		q, err := with(n, in, mapped(x, square), mapped(y, square), nil)
		if err != nil {
			return err
		}
		for i := range p {
			plain[i] += p[i]
			squares[i] += q[i]
		}
		return nil
	}
	for _, pair := range [][2]*ir.Array{{a, rb}, {ra, b}, {ra, rb}} {
		if err := add(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	if rbias != nil {
		p, err := with(n, in, mapped(a, zero), mapped(b, zero), rbias)
		if err != nil {
			return nil, err
		}
		for i := range p {
			plain[i] += p[i]
			squares[i] += p[i] * p[i]
		}
	}
	for i := range plain {
		plain[i] = math.Min(plain[i], lambda*math.Sqrt(squares[i]))
	}
	return plain, nil
}

func square(x float64) float64 { return x * x }

func zero(float64) float64 { return 0 }

func mapped(a *ir.Array, f func(float64) float64) *ir.Array {
	if a == nil {
		return nil
	}
	out := ir.NewArray(a.Type)
	for i, x := range a.F {
		out.F[i] = f(x)
	}
	return out
}

// lipschitz is the rule of a function whose slope is bounded, and that rounds relative to its operand.
func lipschitz(n *ir.Node, in []Range, slope float64) ([]Range, error) {
	mid, r := split(in[0])
	out, err := ir.EvaluateNode(n, []*ir.Array{mid})
	if err != nil {
		return nil, err
	}
	radius := make([]float64, mid.Len())
	for i, x := range mid.F {
		radius[i] = math.Abs(x) * special
		if r != nil {
			radius[i] += slope * r.F[i]
		}
	}
	return []Range{around(out[0], radius)}, nil
}

// quantize divides in f32 whatever the scale's type is, as ONNX Runtime does.
func quantize(n *ir.Node, in []Range) ([]Range, error) {
	wide := make([]Range, len(in))
	copy(wide, in)
	wide[0] = enlarged(in[0], func(_ int, x float64) float64 { return math.Abs(x)*unit + tiny })
	if d := in[1].Lo.DType; d == ir.Float16 || d == ir.BFloat16 {
		wide[1] = Exactly(&ir.Array{Type: ir.Type{DType: ir.Float32, Shape: in[1].Lo.Shape}, F: in[1].Lo.F})
	}
	return corners(n, wide)
}
