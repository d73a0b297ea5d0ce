package compile

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestTermsHaveTheBitsOfTheirKernel: of images of floats and of bytes that a convolution reads, as the passes leave them, with channels
// that need padding and without, and of the two that small vision reads.
func TestTermsHaveTheBitsOfTheirKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 17 {
		bytes, images := i%2 > 0, 1
		channels, height, width := 2+rng.IntN(7), 8+rng.IntN(20), 8+rng.IntN(20)
		if i%3 == 0 {
			channels = 4 * (1 + rng.IntN(3))
		}
		g := imageGraph(t, channels, height, width, bytes)
		if i == 16 {
			src, err := driving.Made("vision", driving.Small)
			require.NoError(t, err)
			m, err := onnx.Decode("vision.onnx", src.ONNX)
			require.NoError(t, err)
			g, err = onnx.Import(m, onnx.ImportOptions{})
			require.NoError(t, err)
			images = 2
		}
		t.Run(fmt.Sprint(channels, bytes, images), func(t *testing.T) {
			n := imageRegion(t, g)
			terms := termsOf(n)
			require.NotNil(t, terms, "%v", n.Region.Body)
			require.Len(t, terms.images, images)
			in := make([][]*ir.Tensor, 2)
			for at := range in {
				for _, v := range n.Inputs {
					var x *ir.Tensor
					if !v.IsConst() {
						a := ir.NewArray(v.Type)
						for k := range a.F {
							a.F[k] = float64(float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(12)-8))))
							switch rng.IntN(20) {
							case 0:
								a.F[k] = math.Copysign(0, rng.NormFloat64())
							case 1:
								a.F[k] = float64(float32(1e-3 * rng.NormFloat64()))
							}
						}
						for k := range a.I {
							a.I[k] = rng.Int64N(256)
						}
						x = a.Tensor()
					}
					in[at] = append(in[at], x)
				}
			}
			d, err := newNative(target.Default())
			require.NoError(t, err)
			defer d.Close()
			got, err := d.Evaluate(context.Background(), n, in, rubbish(n, len(in)))
			require.NoError(t, err)
			program, err := d.program(context.Background(), n)
			require.NoError(t, err)
			want, err := program.run(context.Background(), n, in, nil)
			require.NoError(t, err)
			require.NoError(t, program.Close())
			require.Equal(t, want, got)
		})
	}
}

// imageGraph is a convolution of an image.
func imageGraph(t *testing.T, channels, height, width int, bytes bool) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("graph")
	weights := ir.NewArray(ir.T(ir.Float32, 16, channels, 3, 3))
	for k := range weights.F {
		weights.F[k] = float64(k%7) / 8
	}
	dtype := ir.Float32
	if bytes {
		dtype = ir.Uint8
	}
	x := g.AddInput("x", ir.T(dtype, 1, channels, height, width))
	if bytes {
		x = add(t, g, "Cast", ir.Attrs{"to": ir.Float32}, x)
		x = add(t, g, "Sub", nil, x, g.Constant("middle", ir.FromFloats(ir.T(ir.Float32), []float64{128})))
	}
	y := add(t, g, "Conv", ir.Attrs{"strides": []int{2, 2}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": 1}, x, g.Constant("w", weights.Tensor()))
	g.Outputs = []*ir.Value{y}
	return g
}

// imageRegion is the region that splits what a graph reads.
func imageRegion(t *testing.T, g *ir.Graph) *ir.Node {
	t.Helper()
	opt := &Options{Precision: "fp8"}
	front, _, _, err := opt.pipeline()
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Target: target.Default(), Precision: "fp8", Greatest: map[string]float64{"x": 3}}, g, front, nil))
	for _, n := range g.Nodes {
		if n.IsFamily(ir.FamilyLoop) {
			return n
		}
	}
	t.Fatalf("no loop: %v", g)
	return nil
}

func add(t *testing.T, g *ir.Graph, op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	t.Helper()
	n, err := g.Add(op, op, attrs, in...)
	require.NoError(t, err)
	return n.Outputs[0]
}
