package compile

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// drawing builds graphs with random weights.
type drawing struct {
	*testing.T
	*ir.Graph
	r *rand.Rand
}

func (d *drawing) weight(t ir.DType, shape ...int) *ir.Value {
	a := ir.NewArray(ir.T(t, shape...))
	for i := range a.F {
		a.F[i] = ir.RoundTo(t, d.r.NormFloat64()/4)
	}
	for i := range a.I {
		a.I[i] = int64(d.r.IntN(15) - 7)
	}
	return d.Constant("w", a.Tensor())
}

func (d *drawing) op(name string, attrs ir.Attrs, inputs ...*ir.Value) *ir.Value {
	d.Helper()
	n, err := d.Graph.Add(name, name, attrs, inputs...)
	require.NoError(d, err)
	return n.Outputs[0]
}

func (d *drawing) conv(group int, inputs ...*ir.Value) *ir.Value {
	attrs := ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": group}
	return d.op("Conv", attrs, inputs...)
}

func (d *drawing) float(v *ir.Value) *ir.Value { return d.op("Cast", ir.Attrs{"to": ir.Float32}, v) }

// oddLayers are layers that no format of fewer bits suits, or whose operands are not the f32 matrices that most layers
// have.
var oddLayers = []struct {
	name string
	draw func(d *drawing) *ir.Value
	why  string // in the report; "": the layer is quantised, or empty
}{
	{name: "f16 matrix", draw: func(d *drawing) *ir.Value {
		return d.op("MatMul", nil, d.AddInput("x", ir.T(ir.Float16, 5, 64)), d.weight(ir.Float16, 64, 32))
	}},
	{name: "f16 matrix and residual", draw: func(d *drawing) *ir.Value {
		x := d.AddInput("x", ir.T(ir.Float16, 5, 64))
		return d.op("Add", nil, d.op("Relu", nil, d.op("MatMul", nil, x, d.weight(ir.Float16, 64, 64))), x)
	}},
	{name: "f16 matrix and residual, yielding f32", draw: func(d *drawing) *ir.Value {
		x := d.float(d.AddInput("x", ir.T(ir.Float16, 5, 64)))
		return d.op("Add", nil, d.op("MatMul", nil, x, d.weight(ir.Float32, 64, 64)), x)
	}},
	{name: "f16 image in groups", draw: func(d *drawing) *ir.Value {
		return d.conv(2, d.AddInput("x", ir.T(ir.Float16, 1, 32, 6, 6)), d.weight(ir.Float16, 32, 16, 3, 3))
	}},
	{name: "GRU that resets behind, of two samples", draw: func(d *drawing) *ir.Value {
		x := d.AddInput("x", ir.T(ir.Float32, 2, 2, 16))
		attrs := ir.Attrs{"linear_before_reset": true, "activations": []string{"Sigmoid", "Tanh"}}
		w, r, b := d.weight(ir.Float32, 1, 48, 16), d.weight(ir.Float32, 1, 48, 16), d.weight(ir.Float32, 1, 96)
		return d.op("GRU", attrs, x, w, r, b)
	}},
	{name: "padded vector", draw: func(d *drawing) *ir.Value {
		pad := ir.Attrs{"begin": []int{-2}, "end": []int{9}, "mode": "wrap"}
		return d.op("Pad", pad, d.AddInput("x", ir.T(ir.Float32, 16)))
	}},
	{name: "output of 4 bits", draw: func(d *drawing) *ir.Value {
		scaled := d.op("Mul", nil, d.AddInput("x", ir.T(ir.Float32, 5, 3)), d.Constant("k", ir.ScalarFloat(ir.Float32, 8)))
		return d.op("Cast", ir.Attrs{"to": ir.Int4}, scaled)
	}},
	{name: "mask of infinities", draw: func(d *drawing) *ir.Value {
		x, mask := d.AddInput("x", ir.T(ir.Float32, 1, 2, 8, 32)), d.AddInput("m", ir.T(ir.Float32, 1, 1, 8, 8))
		never := d.Constant("never", ir.ScalarFloat(ir.Float32, math.Inf(-1)))
		limit := d.Constant("limit", ir.ScalarFloat(ir.Float32, 0.9))
		mask = d.op("Where", nil, d.op("Greater", nil, mask, limit), never, mask)
		x = d.op("MatMul", nil, x, d.weight(ir.Float32, 32, 32))
		scores := d.op("Add", nil, d.op("MatMul", ir.Attrs{"transB": true}, x, x), mask)
		return d.op("MatMul", nil, d.op("Softmax", ir.Attrs{"axis": 3}, scores), x)
	}},
	{name: "logarithm of generated inputs", draw: func(d *drawing) *ir.Value {
		x := d.AddInput("x", ir.T(ir.Float32, 5, 64))
		y := d.op("MatMul", nil, x, d.weight(ir.Float32, 64, 64))
		return d.op("Concat", ir.Attrs{"axis": 0}, d.op("Log", nil, x), y)
	}},
	{name: "integers", why: "i32", draw: func(d *drawing) *ir.Value {
		return d.float(d.op("MatMul", nil, d.AddInput("x", ir.T(ir.Int32, 5, 64)), d.weight(ir.Int32, 64, 32)))
	}},
	{name: "integers in a convolution", why: "i32", draw: func(d *drawing) *ir.Value {
		return d.float(d.conv(1, d.AddInput("x", ir.T(ir.Int32, 1, 8, 6, 6)), d.weight(ir.Int32, 16, 8, 3, 3)))
	}},
	{name: "two integers beside a layer", draw: func(d *drawing) *ir.Value {
		i := d.op("MatMul", nil, d.AddInput("a", ir.T(ir.Int32, 4, 8)), d.AddInput("b", ir.T(ir.Int32, 8, 32)))
		return d.op("Add", nil, d.float(i), d.op("MatMul", nil, d.AddInput("x", ir.T(ir.Float32, 4, 64)), d.weight(ir.Float32, 64, 32)))
	}},
	{name: "f64", why: "f64", draw: func(d *drawing) *ir.Value {
		return d.op("MatMul", nil, d.AddInput("x", ir.T(ir.Float64, 5, 64)), d.weight(ir.Float64, 64, 32))
	}},
	{name: "constant image", why: "constant", draw: func(d *drawing) *ir.Value {
		image, w := d.weight(ir.Float32, 1, 16, 6, 6), d.weight(ir.Float32, 16, 16, 3, 3)
		return d.conv(1, image, w, d.AddInput("x", ir.T(ir.Float32, 16)))
	}},
	{name: "no rows", draw: func(d *drawing) *ir.Value {
		w := d.weight(ir.Float32, 64, 32)
		none := d.op("Relu", nil, d.op("MatMul", nil, d.AddInput("x", ir.T(ir.Float32, 0, 64)), w))
		return d.op("Concat", ir.Attrs{"axis": 0}, none, d.op("MatMul", nil, d.AddInput("y", ir.T(ir.Float32, 4, 64)), w))
	}},
	{name: "no sums", draw: func(d *drawing) *ir.Value {
		y := d.op("MatMul", nil, d.AddInput("y", ir.T(ir.Float32, 4, 64)), d.weight(ir.Float32, 64, 32))
		return d.op("Add", nil, y, d.op("MatMul", nil, d.AddInput("x", ir.T(ir.Float32, 4, 0)), d.weight(ir.Float32, 0, 32)))
	}},
	{name: "no columns", draw: func(d *drawing) *ir.Value {
		x := d.op("Relu", nil, d.AddInput("x", ir.T(ir.Float32, 4, 64)))
		return d.op("MatMul", nil, x, d.weight(ir.Float32, 64, 0))
	}},
}

func TestLowPrecision_OddLayersCompileAndAgree(t *testing.T) {
	for _, l := range oddLayers {
		for _, p := range precision.All() {
			t.Run(l.name+"/"+p.Name, func(t *testing.T) {
				d := &drawing{t, ir.NewGraph("odd"), rand.New(rand.NewPCG(1, 2))}
				d.Outputs = append(d.Outputs, l.draw(d))
				opt := Options{Precision: p.Name, Targets: []string{"sm_121"}, Generated: 2}
				r, err := Graph(context.Background(), "odd.onnx", d.Graph, opt)
				require.NoError(t, err)
				in := arrays(t, d.Graph)
				name := d.Outputs[0].Name
				got, want := outputs(t, r.Program, session(t, r.Program, true), in)[name], evaluate(t, d.Graph, in, false)[name]
				require.Len(t, got, len(want))
				least := 0.99
				if p.Name == precision.NVFP4 {
					least = 0.9
				}
				if len(want) > 0 {
					require.GreaterOrEqual(t, cosineOf(got, want), least)
				}
				if !p.Calibrates() {
					return
				}
				fixed := ""
				for _, layer := range r.Accuracy.Layers {
					if layer.Fixed {
						fixed = layer.Precision + ": " + layer.Why
					}
				}
				if l.why == "" {
					require.Empty(t, fixed)
					return
				}
				require.Contains(t, fixed, l.why)
			})
		}
	}
}

// cosineOf is 1 for two vectors of zeros. NaNs that are where they are wanted do not count.
func cosineOf(got, want []float64) float64 {
	var xy, xx, yy float64
	for i, x := range got {
		if math.IsNaN(x) && math.IsNaN(want[i]) {
			continue
		}
		xy, xx, yy = xy+x*want[i], xx+x*x, yy+want[i]*want[i]
	}
	if xx == 0 && yy == 0 {
		return 1
	}
	return xy / math.Sqrt(xx*yy)
}
