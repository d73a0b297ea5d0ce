package driving

import (
	"math"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// attend is softmax(q·kᵀ/√dim)·v for samples [t, 3, heads, dim]; the result is [t, heads·dim].
func (s samples) attend(t, heads, dim int) samples {
	width := heads * dim
	scale := float32(1 / math.Sqrt(float64(dim)))
	return s.each(func(_ int, x []float32) []float32 {
		y := make([]float32, t*width)
		logits := make([]float32, t)
		row := func(token, part, head int) []float32 { return x[token*3*width+part*width+head*dim:][:dim] }
		for h := range heads {
			for a := range t {
				top := float32(math.Inf(-1))
				for b := range t {
					logits[b] = float32(scale * dot(row(a, 0, h), row(b, 1, h)))
					top = max(top, logits[b])
				}
				var sum float32
				for b, l := range logits {
					logits[b] = float32(exp(float64(l - top)))
					sum += logits[b]
				}
				dst := y[a*width+h*dim:][:dim]
				for b, p := range logits {
					for j, v := range row(b, 2, h) {
						dst[j] += float32(p / sum * v)
					}
				}
			}
		}
		return y
	})
}

// split takes q, k and v out of [1, t, 3·heads·dim]; each becomes [1, heads, t, dim].
func (n *net) split(path, qkv string, t, heads, dim int) (q, k, v string) {
	y := n.op(path, "Reshape", []string{qkv, n.ints(path, 1, t, 3, heads, dim)}, onnx.A("allowzero", 0))
	y = n.op(path, "Transpose", []string{y}, onnx.A("perm", []int{2, 0, 3, 1, 4}))
	parts := n.ops(path, "Split", 3, []string{y, n.ints(path, 1, 1, 1)}, onnx.A("axis", 0))
	for i := range parts {
		parts[i] = n.op(path, "Squeeze", []string{parts[i], n.ints(path, 0)})
	}
	return parts[0], parts[1], parts[2]
}

// mixed multiplies probabilities and values and lays the heads side by side: [1, t, heads·dim].
func (n *net) mixed(path, logits, v string, t, heads, dim int) string {
	y := n.op(path, "Softmax", []string{logits}, onnx.A("axis", -1))
	y = n.op(path, "MatMul", []string{y, v})
	y = n.op(path, "Transpose", []string{y}, onnx.A("perm", []int{0, 2, 1, 3}))
	return n.op(path, "Reshape", []string{y, n.ints(path, 1, t, heads*dim)}, onnx.A("allowzero", 0))
}

// selfAttention is what PyTorch exports for softmax(q @ k.transpose(-1, -2) * dim ** -.5) @ v.
func (n *net) selfAttention(path, module string, x value, heads int) value {
	t, d := x.shape[1], x.shape[2]
	dim := d / heads
	qkv := n.linear(path+"/qkv", module+".qkv", x, 3*d, 1.3, n.r.normals(3*d, .05))
	q, k, v := n.split(path, qkv.name, t, heads, dim)
	y := n.op(path, "Transpose", []string{k}, onnx.A("perm", []int{0, 1, 3, 2}))
	y = n.op(path, "MatMul", []string{q, y})
	base := n.op(path, "Constant", nil, onnx.A("value", tensor(ir.Float32, []float32{float32(dim)})))
	power := n.op(path, "Constant", nil, onnx.A("value", tensor(ir.Float32, []float32{-.5})))
	scale := n.op(path, "Pow", []string{base, power})
	scale = n.op(path, "Cast", []string{scale}, onnx.A("to", n.d))
	y = n.op(path, "Mul", []string{y, scale})
	y = n.mixed(path, y, v, t, heads, dim)
	n.macs += int64(2 * t * t * d)
	mixed := n.made(y, qkv.x.attend(t, heads, dim), 1, t, d)
	return n.linear(path+"/proj", module+".proj", mixed, d, .5, n.r.normals(d, .05))
}

// spatialAttention is what PyTorch exports for scaled_dot_product_attention over the pixels of x: shapes are computed in the
// graph, and q and k are each scaled by the root of the scale.
func (n *net) spatialAttention(path, module string, x value) value {
	const dim = 32
	c, h, w := x.shape[1], x.shape[2], x.shape[3]
	t, heads := h*w, c/dim

	// x.flatten(2).transpose(1, 2)
	shape := n.op(path, "Shape", []string{x.name})
	axis, from, to := n.ints(path, 0), n.ints(path, 0), n.ints(path, 2)
	shape = n.op(path, "Slice", []string{shape, from, to, axis})
	shape = n.op(path, "Concat", []string{shape, n.ints(path, -1)}, onnx.A("axis", 0))
	y := n.op(path, "Reshape", []string{x.name, shape}, onnx.A("allowzero", 0))
	y = n.op(path, "Transpose", []string{y}, onnx.A("perm", []int{0, 2, 1}))
	tokens := n.made(y, x.x.transposed(c, t), 1, t, c)

	qkv := n.linear(path+"/qkv", module+".qkv", tokens, 3*c, 1.3, nil)
	q, k, v := n.split(path, qkv.name, t, heads, dim)
	shape = n.op(path, "Shape", []string{q})
	from, to = n.ints(path, -1), n.ints(path, math.MaxInt64)
	width := n.op(path, "Slice", []string{shape, from, to})
	width = n.op(path, "Sqrt", []string{n.op(path, "Cast", []string{width}, onnx.A("to", n.d))})
	one := n.op(path, "Constant", nil, onnx.A("value", tensor(ir.Float32, []float32{1}, 1)))
	scale := n.op(path, "Div", []string{one, n.op(path, "Cast", []string{width}, onnx.A("to", ir.Float32))})
	scale = n.op(path, "Cast", []string{scale}, onnx.A("to", n.d))
	k = n.op(path, "Transpose", []string{k}, onnx.A("perm", []int{0, 1, 3, 2}))
	q = n.op(path, "Mul", []string{q, n.op(path, "Sqrt", []string{scale})})
	k = n.op(path, "Mul", []string{k, n.op(path, "Sqrt", []string{scale})})
	y = n.mixed(path, n.op(path, "MatMul", []string{q, k}), v, t, heads, dim)
	n.macs += int64(2 * t * t * c)
	mixed := n.made(y, qkv.x.attend(t, heads, dim), 1, t, c)

	out := n.linear(path+"/proj", module+".proj", mixed, c, .5, n.r.normals(c, .05))
	y = n.op(path, "Transpose", []string{out.name}, onnx.A("perm", []int{0, 2, 1}))
	y = n.op(path, "Reshape", []string{y, n.ints(path, 1, c, h, w)}, onnx.A("allowzero", 0))
	return n.made(y, out.x.transposed(t, c), 1, c, h, w)
}

// transposed transposes each sample, a matrix of r × c.
func (s samples) transposed(r, c int) samples {
	return s.each(func(_ int, x []float32) []float32 { return transpose(x, r, c) })
}

func transpose(x []float32, r, c int) []float32 {
	out := make([]float32, r*c)
	for j, v := range x {
		out[j%c*r+j/c] = v
	}
	return out
}
