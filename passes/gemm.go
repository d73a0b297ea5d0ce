package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "gemm",
	Summary: "normalise MatMul by a constant: B stored as [N,K] (transB), operands of rank ≥ 2; turn Conv of 1×1 images into MatMul",
	After: map[string]string{
		"expand":              "an Einsum may contain a product by a constant",
		"recognise-attention": "attention patterns need their transposes as separate nodes",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			switch n.Op.Name {
			case "MatMul":
				_ = vectorsToMatrices(s, n) || storeTransposed(s, n) || takeTransposed(s, n)
			case "Conv":
				convOfPixel(s, n)
			}
		})
	},
})

// vectorsToMatrices gives operands of rank 1 a dimension.
func vectorsToMatrices(s *sweep, n *ir.Node) bool {
	a, b := n.Inputs[0], n.Inputs[1]
	if a.Type.Rank() > 1 && b.Type.Rank() > 1 {
		return false
	}
	if a.Type.Rank() == 1 {
		a = s.add("Reshape", n.Name, ir.Attrs{"shape": []int{1, a.Type.Numel()}}, a)
	}
	if b.Type.Rank() == 1 {
		b = s.add("Reshape", n.Name, ir.Attrs{"shape": []int{b.Type.Numel(), 1}}, b)
	}
	attrs := ir.Attrs{} // a vector is not transposed, whatever the attributes say
	if n.Attrs.Bool("transA") && n.Inputs[0].Type.Rank() > 1 {
		attrs["transA"] = true
	}
	if n.Attrs.Bool("transB") && n.Inputs[1].Type.Rank() > 1 {
		attrs["transB"] = true
	}
	return reshapeTo(s, n, s.add("MatMul", n.Name, attrs, a, b))
}

// storeTransposed stores a constant second matrix as [N,K]: each output's weights are one row, as in Conv.
func storeTransposed(s *sweep, n *ir.Node) bool {
	b := n.Inputs[1]
	if !b.IsConst() || b.Type.Rank() != 2 || n.Attrs.Bool("transB") {
		return false
	}
	attrs := n.Attrs.Clone()
	attrs["transB"] = true
	t := s.g.Constant(b.Name, moved(b.Const, func(t *ir.Tensor) *ir.Tensor { return transposeTensor(t, []int{1, 0}) }))
	s.replace(n.Outputs[0], s.add("MatMul", n.Name, attrs, n.Inputs[0], t))
	return true
}

// takeTransposed replaces a transpose of the second matrix's last two dimensions by transB.
func takeTransposed(s *sweep, n *ir.Node) bool {
	t := defOp(n.Inputs[1], "Transpose")
	if t == nil || !swapsLast(t.Attrs.Ints("perm")) {
		return false
	}
	attrs := n.Attrs.Clone()
	attrs["transB"] = !n.Attrs.Bool("transB")
	s.replace(n.Outputs[0], s.add("MatMul", n.Name, attrs, n.Inputs[0], t.Inputs[0]))
	return true
}

// convOfPixel replaces a 1×1 convolution of one-pixel images by a MatMul.
func convOfPixel(s *sweep, n *ir.Node) {
	x, w, y := n.Inputs[0].Type, n.Inputs[1], n.Outputs[0].Type
	in, out := w.Type.Shape[1], w.Type.Shape[0]
	padded := slices.ContainsFunc(n.Attrs.Ints("pads"), func(p int) bool { return p != 0 })
	if !w.IsConst() || padded || n.Attrs.Int("group", 1) != 1 || w.Type.Numel() != in*out || x.Numel() != x.Shape[0]*in || y.Numel() != y.Shape[0]*out {
		return
	}
	rows := s.add("Reshape", n.Name, ir.Attrs{"shape": []int{x.Shape[0], in}}, n.Inputs[0])
	weight := s.g.Constant(w.Name, w.Const.Reshaped(out, in))
	v := s.add("MatMul", n.Name, ir.Attrs{"transB": true}, rows, weight)
	if b := n.In(2); b != nil {
		v = s.add("Add", n.Name, nil, v, b)
	}
	reshapeTo(s, n, v)
}

// transposeTensor permutes the dimensions of a constant.
func transposeTensor(t *ir.Tensor, perm []int) *ir.Tensor {
	shape := permute(t.Shape, perm)
	if t.Splat || ir.KeepsOrder(perm, t.Shape) {
		return t.Reshaped(shape...)
	}
	return gatherTensor(t, shape, transposedStrides(t.Shape, perm))
}

// transposedStrides are the strides of a dense tensor of the shape, in the order of perm.
func transposedStrides(shape, perm []int) []int {
	stride := make([]int, len(perm))
	for i, p := range perm {
		stride[i] = ir.Type{Shape: shape[p+1:]}.Numel()
	}
	return stride
}

// gatherTensor returns a tensor whose element at an index is t's at the offset index·stride.
func gatherTensor(t *ir.Tensor, shape, stride []int) *ir.Tensor {
	out := ir.Type{DType: t.DType, Shape: slices.Clone(shape)}
	size := t.DType.Bits() / 8
	if size == 0 { // packed: go through values
		a := ir.NewArray(out)
		from := t.Array()
		eachOffset(shape, stride, func(i, at int) {
			if a.F != nil {
				a.F[i] = from.F[at]
			} else {
				a.I[i] = from.I[at]
			}
		})
		return a.Tensor()
	}
	data := make([]byte, out.Bytes())
	eachOffset(shape, stride, func(i, at int) {
		copy(data[i*size:(i+1)*size], t.Data[at*size:])
	})
	return &ir.Tensor{Type: out, Data: data}
}

// eachOffset visits the elements of shape in row-major order with their offset under the strides.
func eachOffset(shape, stride []int, visit func(i, at int)) {
	index := make([]int, len(shape))
	at := 0
	for i := range (ir.Type{Shape: shape}).Numel() {
		visit(i, at)
		for d := len(shape) - 1; d >= 0; d-- {
			index[d]++
			at += stride[d]
			if index[d] < shape[d] {
				break
			}
			at -= stride[d] * shape[d]
			index[d] = 0
		}
	}
}
