package quantised

import (
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// layers is a network of convolutions with quantised weights and activations.
type layers struct {
	name        string
	opset       int64
	activations ir.DType
	zero        float64 // of activations
	weights     ir.DType
	channels    bool // one scale per output channel
}

var layered = []layers{
	{"int8-tensor", 17, ir.Int8, 0, ir.Int8, false},
	{"int8-channel", 17, ir.Int8, -7, ir.Int8, true},
	{"uint8-zero", 17, ir.Uint8, 113, ir.Int8, true},
	{"fp8", 19, ir.Float8E4M3FN, 0, ir.Float8E4M3FN, true},
}

// model is a 3×3 convolution, an inverted residual block (1×1, depthwise, 1×1), and a 1×1 convolution. Two layers read what
// the residual carries.
func (f layers) model() (*Model, error) {
	b := newNetwork(f.name, f.opset)
	in := ir.T(ir.Float32, 1, 8, 12, 16)
	b.Input("x", in.DType, 1, 8, 12, 16)
	x := f.activation(b, "x", 4)
	x = f.activation(b, b.Op("Relu", []string{f.conv(b, x, 32, 8, 3, 1)}), 4)
	y := f.activation(b, b.Op("Relu", []string{f.conv(b, x, 32, 32, 1, 1)}), 4)
	y = f.activation(b, b.Op("Relu", []string{f.conv(b, y, 32, 1, 3, 32)}), 4)
	y = f.activation(b, f.conv(b, y, 32, 32, 1, 1), 3)
	y = f.activation(b, b.Op("Add", []string{x, y}), 5)
	b.Node("Identity", []string{f.conv(b, y, 16, 32, 1, 1)}, []string{"y"})
	b.Output("y", ir.Float32, 1, 16, 12, 16)
	return b.model(f.name, in)
}

// activation quantises a value over the range ±top, and dequantises it.
func (f layers) activation(b *network, x string, top float64) string {
	scale := top / 448
	if f.activations.IsInt() {
		scale = 2 * top / 255
	}
	s, z := b.scalar("scale", ir.Float32, scale), b.scalar("zero", f.activations, f.zero)
	q := b.Op("QuantizeLinear", []string{x, s, z})
	return b.Op("DequantizeLinear", []string{q, s, z})
}

// conv is a convolution of n output channels, with a bias.
func (f layers) conv(b *network, x string, n, channels, size, group int) string {
	k := channels * size * size
	w := b.normal(n*k, k)
	top := 127.0
	if f.weights == ir.Float8E4M3FN {
		top = 448
	}
	scales := make([]float64, n)
	for i := range scales {
		row := w
		if f.channels {
			row = w[i*k : (i+1)*k]
		}
		scales[i] = ir.RoundTo(ir.Float32, greatest(row)/top)
	}
	means := make([]float64, len(w))
	for i := range w {
		w[i] = round(f.weights, w[i]/scales[i/k])
		means[i] = float64(w[i] * scales[i/k])
	}
	name := b.Name("w")
	data := b.Initializer(name, codes(f.weights, []int{n, channels, size, size}, w))
	var dq string
	if f.channels {
		s := b.Initializer(b.Name("scale"), ir.FromFloats(ir.T(ir.Float32, n), scales))
		z := b.Initializer(b.Name("zero"), ir.Splat(ir.T(f.weights, n), 0))
		dq = b.Op("DequantizeLinear", []string{data, s, z}, onnx.A("axis", 0))
	} else {
		dq = b.Op("DequantizeLinear", []string{data, b.scalar("scale", ir.Float32, scales[0]), b.scalar("zero", f.weights, 0)})
	}
	bias := b.Initializer(b.Name("bias"), ir.FromFloats(ir.T(ir.Float32, n), b.normal(n, 4)))
	y := b.Op("Conv", []string{x, dq, bias}, onnx.A("pads", []int{size / 2, size / 2, size / 2, size / 2}), onnx.A("group", group))
	b.weights[y] = means
	return y
}
