package driving

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
)

// conv describes a 2-D convolution with padding (k-1)/2.
type conv struct {
	cout, k, stride, groups int
	gain                    float32 // standard deviation of the output
}

// attrs are the attributes as PyTorch writes them.
func (c conv) attrs() []onnx.Attr {
	pad := (c.k - 1) / 2
	return []onnx.Attr{onnx.A("dilations", []int{1, 1}), onnx.A("group", c.groups), onnx.A("kernel_shape", []int{c.k, c.k}),
		onnx.A("pads", []int{pad, pad, pad, pad}), onnx.A("strides", []int{c.stride, c.stride})}
}

// draw makes weights, convolves the samples with them and counts the multiply-adds.
func (n *net) draw(x value, c conv) (weights []float32, y samples, oh, ow int) {
	in := x.shape[1] / c.groups
	shape := convolution{c, x.shape[1], x.shape[2], x.shape[3]}
	oh, ow = shape.out()
	n.macs += int64(c.cout) * int64(in*c.k*c.k) * int64(oh*ow)
	weights = n.r.normals(c.cout*in*c.k*c.k, float32(1/math.Sqrt(float64(in*c.k*c.k))))
	if in == 1 {
		// Random depthwise kernels on smooth images cancel most of what they see; trained ones mostly blur.
		for i := range weights {
			weights[i] += 1 / float32(c.k)
		}
	}
	y = x.x.each(func(_ int, x []float32) []float32 { return shape.apply(x, weights) })
	return weights, y, oh, ow
}

// convBN is a convolution into which the exporter folded a BatchNorm: each channel of the output is normalised.
func (n *net) convBN(path string, x value, c conv) value {
	w, y, oh, ow := n.draw(x, c)
	scale, bias := n.normalise(w, y, c.cout, c.gain)
	in := []string{x.name, n.folded("Conv", w, c.cout, x.shape[1]/c.groups, c.k, c.k), n.folded("Conv", bias, c.cout)}
	n.anonymous++
	return n.made(n.op(path, "Conv", in, c.attrs()...), y.affine(scale, bias), 1, c.cout, oh, ow)
}

// normalise draws a BatchNorm's weight and bias, gives what they amount to with the statistics of y, and scales the weights w
// that y was computed with.
func (n *net) normalise(w []float32, y samples, channels int, gain float32) (scale, bias []float32) {
	mean, variance := y.moments(channels)
	scale, bias = make([]float32, channels), make([]float32, channels)
	for i := range scale {
		scale[i] = float32(gain*n.r.between(.7, 1.3)) / float32(math.Sqrt(float64(variance[i])+1e-3))
		bias[i] = float32(.1*n.r.normal()) - float32(mean[i]*scale[i])
	}
	for i := range w {
		w[i] *= scale[i*channels/len(w)]
	}
	return scale, bias
}

// convPlain is a convolution without a BatchNorm, named after its module, with a bias of zeros.
func (n *net) convPlain(path, module string, x value, c conv) value {
	w, y, oh, ow := n.draw(x, c)
	y = unit(w, y, c.gain)
	in := []string{x.name, n.weight(module+".weight", w, c.cout, x.shape[1]/c.groups, c.k, c.k), n.filled(module+".bias", 0, c.cout)}
	return n.made(n.op(path, "Conv", in, c.attrs()...), y, 1, c.cout, oh, ow)
}

// unit brings y to a standard deviation, and scales the weights w that y was computed with.
func unit(w []float32, y samples, deviation float32) samples {
	_, variance := y.moments(1)
	scale := deviation / float32(math.Sqrt(float64(variance[0])+1e-6))
	for i := range w {
		w[i] *= scale
	}
	return y.mapped(func(v float32) float32 { return scale * v })
}

// batchNorm is a BatchNormalization node with the statistics of its samples. Where a channel has few, its variance is
// drawn towards the other channels'. The output's channels have a mean of about center and a deviation of about gain.
func (n *net) batchNorm(path, module string, x value, center, gain, epsilon float32, attrs ...onnx.Attr) value {
	c := x.shape[1]
	mean, variance := x.x.moments(c)
	if x.size() == c {
		var all float32
		for _, v := range variance {
			all += v / float32(c)
		}
		for i, v := range variance {
			variance[i] = float32((v + float32(3*all)) / 4)
		}
	}
	weight, bias := make([]float32, c), n.r.normals(c, .1)
	scale, shift := make([]float32, c), make([]float32, c)
	for i := range weight {
		weight[i] = float32(gain * n.r.between(.7, 1.3))
		scale[i] = weight[i] / float32(math.Sqrt(float64(variance[i]+epsilon)))
		bias[i] += center
		shift[i] = bias[i] - float32(mean[i]*scale[i])
	}
	in := []string{x.name, n.weight(module+".weight", weight, c), n.weight(module+".bias", bias, c),
		n.weight(module+".running_mean", mean, c), n.weight(module+".running_var", variance, c)}
	attrs = append([]onnx.Attr{onnx.A("epsilon", float64(epsilon))}, attrs...)
	return n.made(n.op(path, "BatchNormalization", in, attrs...), x.x.affine(scale, shift), x.shape...)
}

// gelu is spelled out, as PyTorch exports it before opset 20. √2 is the element type's nearest.
func (n *net) gelu(path string, x value) value {
	root := n.scalar(path, math.Sqrt2)
	y := n.op(path, "Erf", []string{n.op(path, "Div", []string{x.name, root})})
	y = n.op(path, "Add", []string{y, n.scalar(path, 1)})
	y = n.op(path, "Mul", []string{x.name, y})
	y = n.op(path, "Mul", []string{y, n.scalar(path, .5)})
	return n.made(y, x.x.mapped(gelu), x.shape...)
}

func (n *net) relu(path string, x value) value {
	return n.made(n.op(path, "Relu", []string{x.name}), x.x.mapped(relu), x.shape...)
}

func (n *net) sigmoid(path string, x value) value {
	return n.made(n.op(path, "Sigmoid", []string{x.name}), x.x.mapped(sigmoid), x.shape...)
}

func (n *net) add(path string, x, y value) value {
	return n.made(n.op(path, "Add", []string{x.name, y.name}), x.x.zipped(y.x, func(a, b float32) float32 { return a + b }), x.shape...)
}

// layerScale multiplies each channel by a parameter.
func (n *net) layerScale(path, module string, x value) value {
	c := x.shape[1]
	gamma := make([]float32, c)
	for i := range gamma {
		gamma[i] = n.r.between(.2, .6)
	}
	in := []string{x.name, n.weight(module+".gamma", gamma, c, 1, 1)}
	return n.made(n.op(path, "Mul", in), x.x.affine(gamma, make([]float32, c)), x.shape...)
}

// layerNorm normalises the last dimension, with weight 1 and bias 0.
func (n *net) layerNorm(path, module string, x value) value {
	d := x.shape[len(x.shape)-1]
	in := []string{x.name, n.filled(module+".weight", 1, d), n.filled(module+".bias", 0, d)}
	name := n.op(path, "LayerNormalization", in, onnx.A("axis", -1), onnx.A("epsilon", 1e-5))
	y := x.x.each(func(_ int, x []float32) []float32 {
		var out []float32
		for row := range slices.Chunk(x, d) {
			mean, variance := samples{row}.moments(1)
			scale := 1 / float32(math.Sqrt(float64(variance[0])+1e-5))
			for _, v := range row {
				out = append(out, float32((v-mean[0])*scale))
			}
		}
		return out
	})
	return n.made(name, y, x.shape...)
}

// drawLinear makes weights [m, k] and multiplies the samples' rows, scaled to a standard deviation.
func (n *net) drawLinear(x value, m int, gain float32) ([]float32, samples) {
	k := x.shape[len(x.shape)-1]
	n.macs += int64(x.size()) * int64(m)
	w := n.r.normals(k*m, float32(1/math.Sqrt(float64(k))))
	return w, unit(w, x.x.rows(w, k, m), gain)
}

// gemm is a linear layer on a matrix.
func (n *net) gemm(path, module string, x value, m int, gain float32) value {
	w, y := n.drawLinear(x, m, gain)
	bias := n.r.normals(m, .05)
	in := []string{x.name, n.weight(module+".weight", w, m, x.shape[1]), n.weight(module+".bias", bias, m)}
	name := n.op(path, "Gemm", in, onnx.A("alpha", 1.0), onnx.A("beta", 1.0), onnx.A("transB", 1))
	return n.made(name, y.shifted(bias), 1, m)
}

// linear is a linear layer on anything else: MatMul with the transposed weight, and an Add if there is a bias.
func (n *net) linear(path, module string, x value, m int, gain float32, bias []float32) value {
	k := x.shape[len(x.shape)-1]
	w, y := n.drawLinear(x, m, gain)
	shape := append(append([]int{}, x.shape[:len(x.shape)-1]...), m)
	name := n.op(path, "MatMul", []string{x.name, n.folded("MatMul", transpose(w, m, k), k, m)})
	n.anonymous += 9
	if bias == nil {
		return n.made(name, y, shape...)
	}
	name = n.op(path, "Add", []string{n.weight(module+".bias", bias, m), name})
	return n.made(name, y.shifted(bias), shape...)
}

// concat joins along the last dimension.
func (n *net) concat(path string, axis int, list ...value) value {
	var in []string
	shape := slices.Clone(list[0].shape)
	last := len(shape) - 1
	rows := list[0].size() / shape[last]
	shape[last] = 0
	for _, v := range list {
		in = append(in, v.name)
		shape[last] += v.shape[last]
	}
	y := list[0].x.each(func(i int, _ []float32) (out []float32) {
		for r := range rows {
			for _, v := range list {
				d := v.shape[last]
				out = append(out, v.x[i][r*d:(r+1)*d]...)
			}
		}
		return out
	})
	return n.made(n.op(path, "Concat", in, onnx.A("axis", axis)), y, shape...)
}
