package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// fuseAdapters joins the products of adapters with those of their layers, and lets products take gains for factors.
func fuseAdapters(g *ir.Graph) error {
	if _, err := rewrite(g, func(s *sweep, n *ir.Node) { joinProducts(s, n) }); err != nil {
		return err
	}
	scales := gainsOfProducts(g)
	_, err := rewrite(g, func(s *sweep, n *ir.Node) { scaleProduct(s, scales, n) })
	return err
}

// joinProducts makes one product of a layer's, by constant weights, and of the one of low rank that an adapter adds
// to it: x·W + u·B in the forward direction, and g·Wᵀ + v·A in the gradient. Alone the second one reads and writes
// the layer's result for a few multiply-adds an element.
func joinProducts(s *sweep, n *ir.Node) {
	if n.Op.Name != "Add" {
		return
	}
	for i := range 2 {
		layer, added := productOf(s, n.Inputs[i]), productOf(s, n.Inputs[1-i])
		if layer == nil || added == nil || !layer.joins(added) {
			continue
		}
		w, b := layer.matrix(s), added.matrix(s)
		y := s.add("MatMulSum", n.Name, ir.Attrs{"transB": layer.transposed, "transD": added.transposed}, layer.x, w, added.x, b)
		s.replace(n.Outputs[0], y)
		return
	}
}

// rowProduct is a product of rows x [..., K] with a matrix [K, N], or of an image with channels last and a
// convolution that moves nowhere.
type rowProduct struct {
	x, w       *ir.Value
	transposed bool // [N, K], perhaps with taps of 1
}

// productOf is the product that computes v for one reader alone; or nil.
func productOf(s *sweep, v *ir.Value) *rowProduct {
	n := v.Def
	if n == nil || !s.only(v) || n.Role() != ir.RoleContraction || len(n.Inputs) != 2 {
		return nil
	}
	p := &rowProduct{x: n.Inputs[0], w: n.Inputs[1], transposed: n.Op.Name == "Conv" || n.Attrs.Bool("transB")}
	switch w := p.w.Type; n.Op.Name {
	case "MatMul":
		if n.Attrs.Bool("transA") || w.Rank() != 2 {
			return nil
		}
	case "Conv":
		still := func(name string, x int) bool {
			return !slices.ContainsFunc(n.Attrs.Ints(name), func(v int) bool { return v != x })
		}
		if n.Attrs.Int("group", 1) != 1 || w.Shape[2]*w.Shape[3] != 1 || !still("strides", 1) || !still("pads", 0) {
			return nil
		}
	default:
		return nil
	}
	return p
}

// k is the number of products that an element adds up.
func (p *rowProduct) k() int { return p.x.Type.Shape[p.x.Type.Rank()-1] }

// joins reports whether a layer's kernel should add a low-rank product. Weights that a file or insert-dora has
// rounded keep a product of their own, which their scales follow.
func (p *rowProduct) joins(added *rowProduct) bool {
	return p.w.IsConst() && p.w.Const.Codes == nil && !added.w.IsConst() && added.k() <= ir.MostAdded && 2*added.k() <= p.k() &&
		p.x.Type.Rank() == added.x.Type.Rank()
}

// matrix is the weights as a matrix [N, K] or [K, N].
func (p *rowProduct) matrix(s *sweep) *ir.Value {
	w := p.w
	if w.Type.Rank() == 2 {
		return w
	}
	if w.IsConst() {
		return s.g.Constant(w.Name, w.Const.Reshaped(w.Type.Shape[:2]...))
	}
	// A convolution's weights have been transposed for the gradient of its image.
	if d := w.Def; d != nil && d.Op.Name == "Transpose" && slices.Equal(d.Attrs.Ints("perm"), []int{1, 0, 2, 3}) {
		w, p.transposed = d.Inputs[0], !p.transposed
	}
	return s.add("Reshape", w.Name, ir.Attrs{"shape": slices.Clone(w.Type.Shape[:2])}, w)
}

// gainsOfProducts finds the products of the gradient of an attention with a gain of each channel that products of
// matrices alone read: the layer's, which multiplies by the gain as it reads, and those of an adapter, of whose few
// numbers a factor is made. No epilogue can hold the gain, since the gradient is written packed.
func gainsOfProducts(g *ir.Graph) map[*ir.Value]*ir.Node {
	scales, uses := map[*ir.Value]*ir.Node{}, g.Uses()
	for _, n := range g.Nodes {
		if n.Op.Name != "Mul" {
			continue
		}
		x, gain, y := n.Inputs[0], n.Inputs[1], n.Outputs[0]
		last := y.Type.Rank() - 1
		from, path := x.Origin()
		if defOp(from, "AttentionGrad") == nil || len(path) == 0 || last < 1 || y.Type.DType != ir.Float32 || !x.Type.Equal(y.Type) ||
			gain.IsConst() || gain.Type.Numel() != y.Type.Shape[last] || gain.Type.Shape[gain.Type.Rank()-1] != y.Type.Shape[last] || y.Type.Shape[last] > ir.MostFactors {
			continue
		}
		if !slices.ContainsFunc(uses[y], func(u ir.Use) bool { return !takesFactors(u) }) {
			scales[y] = n
		}
	}
	return scales
}

// takesFactors reports whether a reader of rows can be computed from others, of which they are the products with a
// factor of each column.
func takesFactors(u ir.Use) bool {
	n := u.Node
	switch {
	case n == nil:
		return false
	case n.Op.Name == "MatMulSum":
		return u.Index == 0 && len(n.Inputs) == 4
	case n.Op.Name != "MatMul":
		return false
	case u.Index == 0 && !n.Attrs.Bool("transA"):
		w := n.Inputs[1]
		return w.Type.Rank() == 2 && !w.IsConst() && w.Type.Numel() <= ir.MostAdded*n.Inputs[0].Type.Shape[n.Inputs[0].Type.Rank()-1]
	case u.Index == 0:
		return n.Inputs[1] != n.Inputs[0]
	}
	return n.Inputs[1] != n.Inputs[0] && !n.Attrs.Bool("transB")
}

// scaleProduct computes a product from the operand of a gain, and applies the gain to the other factor or to the
// result.
func scaleProduct(s *sweep, scales map[*ir.Value]*ir.Node, n *ir.Node) {
	for i, v := range n.Inputs {
		mul := scales[v]
		if mul == nil {
			continue
		}
		x, k := mul.Inputs[0], v.Type.Shape[v.Type.Rank()-1]
		factors := func(shape ...int) *ir.Value {
			return s.add("Reshape", mul.Inputs[1].Name, ir.Attrs{"shape": shape}, mul.Inputs[1])
		}
		inputs := slices.Clone(n.Inputs)
		inputs[i] = x
		switch {
		case n.Op.Name == "MatMulSum":
			s.replace(n.Outputs[0], s.add(n.Op.Name, n.Name, n.Attrs, append(inputs, factors(k))...))
			return
		case i == 0 && !n.Attrs.Bool("transA"):
			shape := []int{k, 1}
			if n.Attrs.Bool("transB") {
				shape = []int{k}
			}
			inputs[1] = s.add("Mul", n.Inputs[1].Name, nil, n.Inputs[1], factors(shape...))
			s.replace(n.Outputs[0], s.add(n.Op.Name, n.Name, n.Attrs, inputs...))
			return
		}
		shape := []int{k}
		if i == 0 {
			shape = []int{k, 1}
		}
		y := s.add(n.Op.Name, n.Name, n.Attrs, inputs...)
		s.replace(n.Outputs[0], s.add("Mul", n.Name, nil, y, factors(shape...)))
		return
	}
}
