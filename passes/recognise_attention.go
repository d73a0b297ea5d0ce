package passes

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "recognise-attention",
	Summary: "recognise softmax(q·kᵀ·scale + mask)·v as Attention; the scale may be applied to q, k or their product",
	After: map[string]string{
		"recognise-softmax": "a softmax may be written as elementary ops",
		"simplify":          "patterns do not look through casts or expansions",
	},
	Tolerance: 1e-6, // scales multiply in float64
	Run: func(_ *Context, g *ir.Graph) error {
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			if n.Op.Name == "MatMul" {
				attention(s, n)
			}
		})
		return err
	},
})

// attention matches n = MatMul(Softmax(scores), v).
func attention(s *sweep, n *ir.Node) {
	probs, v := n.Inputs[0], n.Inputs[1]
	softmax := defOp(probs, "Softmax")
	rank := v.Type.Rank()
	if softmax == nil || !s.only(probs) || n.Attrs.Bool("transA") || rank < 2 || rank > 4 || probs.Type.Rank() != rank ||
		softmax.Attrs.Int("axis", 0) != rank-1 || !v.Type.DType.IsFloat() {
		return
	}
	sc := scores{scale: 1}
	if !sc.match(s, softmax.Inputs[0], rank) {
		return
	}
	q, k := sc.q, sc.k
	// Transposed operands are taken as they are stored where the product says so.
	if !sc.transK {
		k = swapLast(s, n.Name, k)
	}
	if n.Attrs.Bool("transB") {
		v = swapLast(s, n.Name, v)
	}
	if sc.transQ {
		q = swapLast(s, n.Name, q)
	}
	if !sameBatch(q.Type.Shape, k.Type.Shape, v.Type.Shape) {
		return
	}
	inputs := []*ir.Value{toRank4(s, n.Name, q), toRank4(s, n.Name, k), toRank4(s, n.Name, v)}
	if sc.mask != nil {
		inputs = append(inputs, toRank4(s, n.Name, sc.mask))
	}
	y := s.add("Attention", n.Name, ir.Attrs{"scale": sc.scale}, inputs...)
	reshapeTo(s, n, y)
}

// scores is what a softmax of attention is taken of: q·kᵀ·scale + mask.
type scores struct {
	q, k           *ir.Value
	transQ, transK bool // q is stored [D,S]; k is stored [T,D] and multiplied transposed
	mask           *ir.Value
	scale          float64
}

func (sc *scores) match(s *sweep, v *ir.Value, rank int) bool {
	n := defOp(v, "Add", "Where", "Mul", "Div", "MatMul")
	if n == nil || !s.only(v) {
		return false
	}
	switch n.Op.Name {
	case "Add":
		return sc.mask == nil && sc.scale == 1 && mirrored(n, func(w, mask *ir.Value) bool {
			return additiveMask(mask, v.Type.Shape) && w.Type.Equal(v.Type) && sc.masked(s, w, mask, rank)
		})
	case "Where": // scores where the condition holds, -inf elsewhere: additive with an exact -inf
		c, ok := scalarOf(n.Inputs[2])
		if sc.mask != nil || sc.scale != 1 || !ok || !math.IsInf(c, -1) || !n.Inputs[1].Type.Equal(v.Type) || n.Inputs[0].Type.Rank() > rank {
			return false
		}
		zero := s.scalar(n.Name, v.Type.DType, 0)
		mask := s.add("Where", n.Name, nil, n.Inputs[0], zero, n.Inputs[2])
		return additiveMask(mask, v.Type.Shape) && sc.masked(s, n.Inputs[1], mask, rank)
	case "Mul", "Div":
		w, ok := sc.factor(n)
		return ok && sc.match(s, w, rank)
	}
	return sc.product(s, n, rank)
}

// masked matches the scores below a mask; on failure nothing is remembered.
func (sc *scores) masked(s *sweep, w, mask *ir.Value, rank int) bool {
	inner := scores{scale: sc.scale, mask: mask}
	if !inner.match(s, w, rank) {
		return false
	}
	*sc = inner
	return true
}

// product matches q·kᵀ with factors and transpositions at either operand.
func (sc *scores) product(s *sweep, n *ir.Node, rank int) bool {
	q, k := n.Inputs[0], n.Inputs[1]
	if q.Type.Rank() != rank || k.Type.Rank() != rank {
		return false
	}
	q, sc.transQ = sc.operand(s, q, n.Attrs.Bool("transA"))
	k, sc.transK = sc.operand(s, k, n.Attrs.Bool("transB"))
	sc.q, sc.k = q, k
	return true
}

// operand looks through factors and a transposition of the last two dimensions.
func (sc *scores) operand(s *sweep, v *ir.Value, trans bool) (*ir.Value, bool) {
	for {
		n := defOp(v, "Mul", "Div", "Transpose")
		if n == nil {
			return v, trans
		}
		switch n.Op.Name {
		case "Transpose":
			if !swapsLast(n.Attrs.Ints("perm")) {
				return v, trans
			}
			v, trans = n.Inputs[0], !trans
		default:
			w, ok := v, s.only(v)
			if ok {
				w, ok = sc.factor(n)
			}
			if !ok {
				return v, trans
			}
			v = w
		}
	}
}

// factor strips a product with a number, or a quotient by one: it multiplies the scale and returns the operand.
func (sc *scores) factor(n *ir.Node) (*ir.Value, bool) {
	x, c := withConst(n)
	factor, ok := scalarOf(c)
	if !ok || !x.Type.Equal(n.Outputs[0].Type) || n.Op.Name == "Div" && n.Inputs[1] != c {
		return nil, false
	}
	if n.Op.Name == "Div" {
		factor = 1 / factor
	}
	sc.scale = float64(sc.scale * factor)
	return x, true
}

// additiveMask reports whether a mask can be one of Attention: a float that broadcasts to the scores.
func additiveMask(mask *ir.Value, shape []int) bool {
	return mask.Type.DType.IsFloat() && ir.BroadcastsTo(mask.Type.Shape, shape)
}

// swapsLast reports whether perm exchanges the last two dimensions and no others.
func swapsLast(perm []int) bool {
	r := len(perm)
	return r >= 2 && perm[r-1] == r-2 && perm[r-2] == r-1 && isIdentityPerm(perm[:r-2])
}

// swapLast transposes the last two dimensions, or undoes such a transposition.
func swapLast(s *sweep, name string, v *ir.Value) *ir.Value {
	perm := identityPerm(v.Type.Rank())
	r := len(perm)
	perm[r-1], perm[r-2] = r-2, r-1
	return s.add("Transpose", name, ir.Attrs{"perm": perm}, v)
}

// sameBatch reports whether the shapes agree in all but their last two dimensions.
func sameBatch(shapes ...[]int) bool {
	lead := shapes[0][:len(shapes[0])-2]
	for _, sh := range shapes[1:] {
		if !slices.Equal(sh[:len(sh)-2], lead) {
			return false
		}
	}
	return true
}

// toRank4 prepends ones to a shape: [S,D] and [H,S,D] become [1,1,S,D] and [1,H,S,D].
func toRank4(s *sweep, name string, v *ir.Value) *ir.Value {
	if v.Type.Rank() == 4 {
		return v
	}
	shape := slices.Concat([]int{1, 1, 1, 1}[:4-v.Type.Rank()], v.Type.Shape)
	return s.add("Reshape", name, ir.Attrs{"shape": shape}, v)
}
