package compile

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// convolution is a 3×3 or 1×1 Conv of an image of 6×5.
type convolution struct{ in, out, group, window int }

func (c convolution) String() string {
	return fmt.Sprintf("%d to %d channels in %d groups, %d×%d", c.in, c.out, c.group, c.window, c.window)
}

// channels are the sizes on either side: below, at, above and between what instructions and vectors take.
var channels = []int{1, 2, 3, 5, 8, 16, 33}

func (c convolution) depthwise() bool { return c.group > 1 && c.group == c.in }

// convolutions are all dense ones, those of two groups, and the depthwise ones, with a multiplier where it divides. Half of
// the dense ones are products of matrices.
func convolutions() []convolution {
	var all []convolution
	for _, in := range channels {
		for _, out := range channels {
			for _, group := range slices.Compact([]int{1, min(2, in), in}) {
				if in%group == 0 && out%group == 0 {
					window := 3
					if group == 1 && (in+out)%2 == 0 {
						window = 1
					}
					all = append(all, convolution{in, out, group, window})
				}
			}
		}
	}
	return all
}

// convolutionModel is a network with an output for each convolution. All convolutions of as many channels read one value, which a 1×1
// convolution makes, so that it can be stored in the precision that they multiply.
func convolutionModel(t *testing.T, cases []convolution) *onnx.Model {
	t.Helper()
	const h, w, c = 6, 5, 4
	b := onnx.NewBuilder("convolutions", 17)
	r := rand.New(rand.NewPCG(1, 2))
	weights := func(shape ...int) string {
		x := make([]float64, ir.Type{Shape: shape}.Numel())
		for i := range x {
			x[i] = r.NormFloat64() / math.Sqrt(float64(len(x)/shape[0]))
		}
		return b.Initializer(b.Name("w"), ir.FromFloats(ir.T(ir.Float32, shape...), x))
	}
	conv := func(x string, c convolution) []string {
		bias := b.Initializer(b.Name("b"), ir.FromFloats(ir.T(ir.Float32, c.out), make([]float64, c.out)))
		return []string{x, weights(c.out, c.in/c.group, c.window, c.window), bias}
	}
	attrs := func(c convolution) []onnx.Attr {
		p := c.window / 2
		return []onnx.Attr{onnx.A("group", c.group), onnx.A("pads", []int{p, p, p, p}), onnx.A("kernel_shape", []int{c.window, c.window})}
	}
	x := b.Input("x", ir.Float32, 1, c, h, w)
	read := map[int]string{}
	for _, n := range channels {
		first := convolution{c, n, 1, 1}
		read[n] = b.Op("Relu", []string{b.Op("Conv", conv(x, first), attrs(first)...)})
	}
	for _, c := range cases {
		b.Node("Conv", conv(read[c.in], c), []string{c.String()}, attrs(c)...)
		b.Output(c.String(), ir.Float32, 1, c.out, h, w)
	}
	m, err := b.Model()
	require.NoError(t, err)
	return m
}

// TestEveryConvolutionInEveryPrecision compiles convolutions of every kind as outputs of one program, so that a precision
// is calibrated once, and compares each with the file in float64, and with the final graph as it rounds: there only the
// sums' order differs, and in fp8 and nvfp4 codes of the values that the convolutions read.
func TestEveryConvolutionInEveryPrecision(t *testing.T) {
	fulltest.Long(t)
	cases := convolutions()
	for _, p := range []struct {
		name        string
		file, final float64 // relative L2 distances
	}{{"fp32", 1e-6, 1e-6}, {"fp16", 1e-3, 1e-6}, {"bf16", 8e-3, 1e-6}, {"fp8", .15, .015}, {"nvfp4", .15, .015}} {
		t.Run(p.name, func(t *testing.T) {
			r, err := compiled(context.Background(), convolutionModel(t, cases), Options{Precision: p.name, Targets: []string{"sm_121"}, Generated: 2})
			require.NoError(t, err)
			if r.Accuracy != nil {
				low := len(channels)
				for _, c := range cases {
					if !c.depthwise() { // those keep their weights
						low++
					}
				}
				require.Equal(t, low, len(r.Accuracy.Layers))
			}
			in := arrays(t, r.Source)
			got := outputs(t, r.Program, session(t, r.Program, true), in)
			exact, final := evaluate(t, r.Source, in, false), evaluate(t, r.Graph, in, true)
			for _, c := range cases {
				name := c.String()
				distance := func(want []float64) float64 { return judge([][]float64{got[name]}, [][]float64{want}).relL2 }
				if a, b := distance(exact[name]), distance(final[name]); !(a <= p.file && b <= p.final) {
					t.Errorf("%s: relative L2 %.2g from the file, %.2g from the final graph", name, a, b)
				}
			}
		})
	}
}
