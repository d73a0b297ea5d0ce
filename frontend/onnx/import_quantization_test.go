package onnx_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// TestQuantizeLinearDivides in f32 where no precision is named, whatever the scale's type is, as ONNX Runtime 1.23.2
// does: a quotient rounded to f16 first falls to the other side of many ties. (It divides in f32 where f16 is named,
// too.)
func TestQuantizeLinearDivides(t *testing.T) {
	const scale = 0.1008
	s := ir.RoundTo(ir.Float16, scale)
	var xs, wide, narrow []float64
	for i := range 4000 {
		x := ir.RoundTo(ir.Float16, float64(i)*0.0031)
		xs = append(xs, x)
		wide = append(wide, math.Min(127, math.RoundToEven(float64(float32(x/s)))))
		narrow = append(narrow, math.Min(127, math.RoundToEven(ir.RoundTo(ir.Float16, x/s))))
	}
	require.NotEqual(t, wide, narrow)
	for name, c := range map[string]struct {
		opset int64
		attrs []onnx.Attr
		want  []float64
	}{
		"in f32 at opset 19":                     {19, nil, wide},
		"in f32 at opset 23":                     {23, nil, wide},
		"in f32 at opset 23 if left undefined":   {23, []onnx.Attr{onnx.A("precision", 0)}, wide},
		"as precision says at opset 23":          {23, []onnx.Attr{onnx.A("precision", 1)}, wide},
		"as precision says, in f16, at opset 23": {23, []onnx.Attr{onnx.A("precision", 10)}, narrow},
	} {
		t.Run(name, func(t *testing.T) {
			n := oneNode{c.opset, "QuantizeLinear", []any{
				ir.FromFloats(ir.T(ir.Float16, len(xs)), xs), ir.ScalarFloat(ir.Float16, scale), ir.ScalarInt(ir.Int8, 0),
			}, c.attrs, 1}
			g, err := onnx.Import(n.model(t), onnx.ImportOptions{})
			require.NoError(t, err)
			require.Equal(t, c.want, evaluate(t, g)[0].Floats())
		})
	}
}
