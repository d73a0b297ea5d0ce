package compile

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// pairsModel is a network with an output for each pair of an op that computes where to read and an op that may ask for elements
// that its operand does not have: those of padding, of the other operand, of a tile's rest. Each pair is a region.
func pairsModel(t *testing.T) (*onnx.Model, []string) {
	t.Helper()
	const n, c, h, w = 1, 3, 5, 7
	b := onnx.NewBuilder("pairs", 18)
	input := b.Input("x", ir.Float32, n, c, h, w)
	x := input // changed a little for each pair, so that none shares its first op with another
	ramp := func(shape ...int) string {
		a := make([]float64, ir.Type{Shape: shape}.Numel())
		for i := range a {
			a[i] = float64(i%7-3) / 8
		}
		return b.Initializer(b.Name("c"), ir.FromFloats(ir.T(ir.Float32, shape...), a))
	}
	floats := func(xs ...float64) string {
		return b.Initializer(b.Name("f"), ir.FromFloats(ir.T(ir.Float32, len(xs)), xs))
	}
	ints := func(xs ...int) string { return b.Initializer(b.Name("i"), ir.Vector(xs...)) }
	op := func(name string, in []string, attrs ...onnx.Attr) string { return b.Op(name, in, attrs...) }
	resize := func(to float64, attrs ...onnx.Attr) func() string {
		return func() string { return op("Resize", []string{x, "", floats(1, 1, to, to)}, attrs...) }
	}
	a := onnx.A
	sources := []struct {
		name string
		make func() string
	}{
		{"nearest", resize(1.4)},
		{"nearest twice", resize(2, a("coordinate_transformation_mode", "asymmetric"), a("nearest_mode", "floor"))},
		{"nearest half", resize(.5)},
		{"linear", resize(1.4, a("mode", "linear"))},
		{"cubic", resize(.8, a("mode", "cubic"))},
		{"cropped", func() string {
			roi := floats(0, 0, .2, -.4, 1, 1, 1.2, .7)
			return op("Resize", []string{x, roi, floats(1, 1, 1, 1)}, a("mode", "linear"), a("coordinate_transformation_mode", "tf_crop_and_resize"), a("extrapolation_value", 9.0))
		}},
		{"gather", func() string { return op("Gather", []string{x, ints(4, 0, -1, 2, 2, 1)}, a("axis", 2)) }},
		{"backwards", func() string { return op("Slice", []string{x, ints(-1, -1), ints(-99, -99), ints(2, 3), ints(-1, -2)}) }},
		{"tile", func() string { return op("Tile", []string{x, ints(1, 1, 2, 1)}) }},
		{"pad", func() string { return op("Pad", []string{x, ints(0, 0, 1, 2, 0, 0, 0, 1), floats(2)}) }},
		{"pad edge", func() string { return op("Pad", []string{x, ints(0, 0, 1, 2, 0, 0, 0, 1)}, a("mode", "edge")) }},
		{"pad reflected", func() string { return op("Pad", []string{x, ints(0, 0, 2, 2, 0, 0, 0, 1)}, a("mode", "reflect")) }},
		{"concat", func() string { return op("Concat", []string{x, ramp(n, c, 2, w), x}, a("axis", 2)) }},
		{"grid", func() string { return op("GridSample", []string{x, ramp(n, 4, 6, 2)}) }},
		{"turned", func() string { return op("Transpose", []string{x}, a("perm", []int{0, 1, 3, 2})) }},
		{"reversed", func() string {
			y := op("Reshape", []string{x, ints(c*h, w)})
			lengths := b.Initializer(b.Name("i"), ir.Vector(2, 5, 7, 1, 3, 7, 4))
			return op("Reshape", []string{op("ReverseSequence", []string{y, lengths}, a("time_axis", 0), a("batch_axis", 1)), ints(n, c, h, w)})
		}},
		{"triangle", func() string { return op("Trilu", []string{x}) }},
		{"windows", func() string {
			return op("AveragePool", []string{x}, a("kernel_shape", []int{2, 3}), a("pads", []int{1, 1, 0, 1}))
		}},
	}
	two := func(k int) []int { return []int{k, k, k, k} }
	consumers := []struct {
		name string
		rank int
		make func(y string) string
	}{
		{"padded", 4, func(y string) string { return op("Pad", []string{y, ints(0, 1, 2, 3, 0, 0, 1, 2), floats(1)}) }},
		{"cut and padded", 4, func(y string) string { return op("Pad", []string{y, ints(0, 0, -1, 3, 0, 1, 2, -2)}) }},
		{"reflected", 4, func(y string) string {
			return op("Pad", []string{y, ints(0, 0, 1, 1, 0, 0, 1, 1)}, a("mode", "reflect"))
		}},
		{"concatenated", 4, func(y string) string { return op("Concat", []string{y, op("Relu", []string{y}), y}, a("axis", 2)) }},
		{"convolved", 4, func(y string) string {
			return op("Conv", []string{y, ramp(4, c, 3, 3)}, a("pads", two(2)), a("kernel_shape", []int{3, 3}))
		}},
		{"depthwise", 4, func(y string) string {
			return op("Conv", []string{y, ramp(c, 1, 3, 3)}, a("group", c), a("pads", two(1)), a("strides", []int{2, 2}), a("kernel_shape", []int{3, 3}))
		}},
		{"transposed convolution", 4, func(y string) string {
			return op("ConvTranspose", []string{y, ramp(c, 2, 3, 3)}, a("strides", []int{2, 2}), a("pads", two(1)), a("kernel_shape", []int{3, 3}))
		}},
		{"pooled", 4, func(y string) string {
			return op("MaxPool", []string{y}, a("kernel_shape", []int{3, 3}), a("pads", two(1)), a("strides", []int{2, 2}))
		}},
		{"multiplied", 4, func(y string) string {
			return op("MatMul", []string{y, op("Transpose", []string{y}, a("perm", []int{0, 1, 3, 2}))})
		}},
		{"flattened and multiplied", 2, func(y string) string {
			flat := op("Reshape", []string{y, ints(c, -1)})
			return op("MatMul", []string{flat, op("Transpose", []string{flat}, a("perm", []int{1, 0}))})
		}},
		{"padded and multiplied", 4, func(y string) string {
			y = op("Pad", []string{y, ints(0, 0, 1, 2, 0, 0, 1, 2)})
			return op("MatMul", []string{y, op("Transpose", []string{y}, a("perm", []int{0, 1, 3, 2}))})
		}},
		{"resized", 4, func(y string) string { return op("Resize", []string{y, "", floats(1, 1, 1.3, 1.3)}) }},
		{"cumulated", 4, func(y string) string { return op("CumSum", []string{y, ints(2)}) }},
	}
	var names []string
	for _, s := range sources {
		for _, c := range consumers {
			name := s.name + ", " + c.name
			x = op("Mul", []string{input, floats(1 + float64(len(names))/64)})
			b.Node("Identity", []string{c.make(s.make())}, []string{name})
			dims := []any{name + "0", name + "1", name + "2", name + "3"}
			b.Output(name, ir.Float32, dims[:c.rank]...)
			names = append(names, name)
		}
	}
	m, err := b.Model()
	require.NoError(t, err)
	return m, names
}

// TestPairs_ReadsPastPadding holds every pair to the evaluator, under the CPU device's checks.
func TestPairs_ReadsPastPadding(t *testing.T) {
	m, names := pairsModel(t)
	for p, bound := range map[string]float64{"fp32": 2e-6, "fp16": 2e-3} {
		t.Run(p, func(t *testing.T) {
			r, err := compiled(context.Background(), m, Options{Precision: p, Targets: []string{"sm_121"}})
			require.NoError(t, err)
			in := arrays(t, r.Source)
			got, want := outputs(t, r.Program, session(t, r.Program, true), in), evaluate(t, r.Source, in, false)
			for _, name := range names {
				if d := judge([][]float64{got[name]}, [][]float64{want[name]}).relL2; !(d <= bound) {
					t.Errorf("%s: relative L2 %.2g", name, d)
				}
			}
			t.Log(fmt.Sprint(len(names), " pairs"))
		})
	}
}
