package compile

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// TestTiesFallAsInTheFile quantises quotients most of which lie at a tie, or an ulp away from one. ONNX Runtime
// divides in f32 and rounds half to even, and so does a program in the file's types and in fp32.
func TestTiesFallAsInTheFile(t *testing.T) {
	const divisor, scale = 2.5, 0.3
	var xs, want []float64
	for k := range 2000 {
		x := float32(k%200-100) + 0.5
		x = math.Float32frombits(math.Float32bits(x*scale*divisor) + uint32(k/200)) // and its neighbours
		xs = append(xs, float64(x))
		y := float32(x/divisor) / float32(scale)
		want = append(want, max(-128, min(127, math.RoundToEven(float64(y)))))
	}
	for _, back := range []bool{false, true} {
		b := onnx.NewBuilder("ties", 21)
		s := b.Initializer("s", ir.ScalarFloat(ir.Float32, scale))
		c := b.Initializer("c", ir.ScalarFloat(ir.Float32, divisor))
		z := b.Initializer("z", ir.ScalarInt(ir.Int8, 0))
		d := b.Op("Div", []string{b.Input("x", ir.Float32, len(xs)), c})
		q := b.Op("QuantizeLinear", []string{d, s, z})
		if back {
			q = b.Op("Div", []string{b.Op("DequantizeLinear", []string{q, s, z}), s})
			q = b.Op("Round", []string{q})
		}
		b.Node("Cast", []string{q}, []string{"y"}, onnx.A("to", ir.Float32))
		b.Output("y", ir.Float32, len(xs))
		m, err := b.Model()
		require.NoError(t, err)
		for _, in := range []string{"file", "fp32"} {
			r, err := compiled(t.Context(), m, Options{Precision: in, Targets: []string{"sm_121"}})
			require.NoError(t, err)
			x := ir.FromFloats(ir.T(ir.Float32, len(xs)), xs)
			got := outputs(t, r.Program, session(t, r.Program, true), map[string]*npy.Array{"x": {DType: "f32", Shape: x.Shape, Data: x.Data}})
			require.Equal(t, want, got["y"], "%s, and back: %v", in, back)
		}
	}
}
