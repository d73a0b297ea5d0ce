package quantised

import (
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// blocks is a network of matrix products in which only weights are quantised, with one scale per block along K.
type blocks struct {
	name    string
	opset   int64
	weights ir.DType
	size    int      // of a block
	top     float64  // greatest code
	scales  ir.DType // f32, or a type whose codes a second scale of the tensor multiplies
	// transposed weights are [N, K] and followed by a Transpose, as ModelOpt writes those of torch.nn.Linear.
	transposed bool
}

var blocked = []blocks{
	{"int8-blocks", 21, ir.Int8, 32, 127, ir.Float32, false},
	{"int4-blocks", 21, ir.Int4, 32, 7, ir.Float32, false},
	{"e2m1-blocks", 23, ir.Float4E2M1, 32, 6, ir.Float32, false},
	{"mxfp4", 23, ir.Float4E2M1, 32, 6, ir.Float8E8M0, true},
	{"nvfp4", 23, ir.Float4E2M1, 16, 6, ir.Float8E4M3FN, true},
}

func (f blocks) model() (*Model, error) {
	b := newNetwork(f.name, f.opset)
	in := ir.T(ir.Float32, 24, 64)
	b.Input("x", in.DType, 24, 64)
	h := b.Op("Relu", []string{f.product(b, "x", 64, 128)})
	y := b.Op("Add", []string{f.product(b, h, 128, 64), "x"})
	b.Node("Identity", []string{f.product(b, y, 64, 48)}, []string{"y"})
	b.Output("y", ir.Float32, 24, 48)
	return b.model(f.name, in)
}

// product is x·w for w of k rows and n columns.
func (f blocks) product(b *network, x string, k, n int) string {
	w := b.normal(n*k, k) // rows of k
	per := k / f.size
	units := make([]float64, n*per)
	for i := range units {
		units[i] = greatest(w[i*f.size:(i+1)*f.size]) / f.top
	}
	second := 1.0
	if f.scales == ir.Float8E4M3FN { // the greatest block has the greatest scale
		second = ir.RoundTo(ir.Float32, greatest(units)/448)
	}
	for i := range units {
		units[i] = ir.RoundTo(f.scales, units[i]/second)
	}
	means := make([]float64, len(w))
	for i := range w {
		unit := ir.RoundTo(ir.Float32, float64(units[i/f.size]*second))
		w[i] = round(f.weights, w[i]/unit)
		means[i] = float64(w[i] * unit)
	}
	shape, blockShape, axis := []int{n, k}, []int{n, per}, -1
	if !f.transposed {
		w, units, axis = turned(w, n, k), turned(units, n, per), 0
		shape, blockShape = []int{k, n}, []int{per, n}
	}
	scales := b.Initializer(b.Name("scales"), ir.FromFloats(ir.T(f.scales, blockShape...), units))
	switch f.scales {
	case ir.Float32:
	case ir.Float8E4M3FN:
		scales = b.Op("DequantizeLinear", []string{scales, b.scalar("second", ir.Float32, second)})
	default:
		scales = b.Op("Cast", []string{scales}, onnx.A("to", ir.Float32))
	}
	data := b.Initializer(b.Name("w"), codes(f.weights, shape, w))
	m := b.Op("DequantizeLinear", []string{data, scales}, onnx.A("axis", axis), onnx.A("block_size", f.size))
	if f.transposed {
		m = b.Op("Transpose", []string{m}, onnx.A("perm", []int{1, 0}))
	}
	y := b.Op("MatMul", []string{x, m})
	b.weights[y] = means
	return y
}

// turned is the transpose of a matrix of n rows.
func turned(xs []float64, n, k int) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i%k*n+i/k] = x
	}
	return out
}
