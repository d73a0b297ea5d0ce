package passes

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// opSoup draws a small network out of what the passes look for, mixed without sense.
type opSoup struct {
	*graphBuilder
	images []*ir.Value // [1,C,H,W]
}

func (r *opSoup) pick() *ir.Value { return r.images[r.rng.IntN(len(r.images))] }

// channelConst is a constant that varies over channels, or over nothing, or over the image.
func (r *opSoup) channelConst(x *ir.Value) *ir.Value {
	s := x.Type.Shape
	switch r.rng.IntN(6) {
	case 0:
		return r.weight(1, .3)
	case 1:
		return r.weight(1, .3, s[2], s[3])
	case 2:
		return r.weight(1, .3, 1, s[1], 1, 1)
	}
	return r.weight(1, .3, s[1], 1, 1)
}

// another is a value of x's shape, x itself if there is no other.
func (r *opSoup) another(x *ir.Value) *ir.Value {
	same := []*ir.Value{x}
	for _, v := range r.images {
		if v.Type.Equal(x.Type) {
			same = append(same, v)
		}
	}
	return same[r.rng.IntN(len(same))]
}

func (r *opSoup) step() {
	x := r.pick()
	s := x.Type.Shape
	c, h, w := s[1], s[2], s[3]
	steps := []func() *ir.Value{
		func() *ir.Value { return r.conv(x, c, 1+2*r.rng.IntN(2), 1, 1) },
		func() *ir.Value { return r.conv(x, c, 1+2*r.rng.IntN(2), 1, c) },
		func() *ir.Value { return r.conv(x, c, 3, 1+r.rng.IntN(2), c) },
		func() *ir.Value { return r.batchNorm(x) },
		func() *ir.Value { return r.op("Mul", nil, x, r.channelConst(x)) },
		func() *ir.Value { return r.op("Add", nil, r.channelConst(x), x) },
		func() *ir.Value { return r.op("Div", nil, x, r.channelConst(x)) },
		func() *ir.Value { return r.op("Add", nil, x, r.another(x)) },
		func() *ir.Value { return r.op("Sub", nil, r.another(x), x) },
		func() *ir.Value { return r.op("Mul", nil, r.op("Sigmoid", nil, x), x) },
		func() *ir.Value { return r.gelu(x) },
		func() *ir.Value { return r.op("Relu", nil, x) },
		func() *ir.Value {
			both := r.op("Concat", ir.Attrs{"axis": 1}, x, r.another(x))
			first := r.rng.IntN(c + 1)
			return r.op("Slice", ir.Attrs{"starts": []int{0, first, 0, 0}, "sizes": []int{1, c, h, w}}, both)
		},
		func() *ir.Value {
			gate := r.op("ReduceMean", ir.Attrs{"axes": []int{2, 3}, "keepdims": true}, x)
			return r.op("Mul", nil, x, r.op("Sigmoid", nil, r.conv(gate, c, 1, 1, 1)))
		},
		func() *ir.Value {
			p := r.op("Pad", ir.Attrs{"begin": []int{0, 0, 1, 0}, "end": []int{0, 0, 0, 1}, "mode": "edge"}, x)
			k := []int{2, 2}
			return r.op([]string{"MaxPool", "AveragePool"}[r.rng.IntN(2)], ir.Attrs{"kernel": k, "strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}}, p)
		},
		func() *ir.Value {
			attrs := ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "output_padding": []int{0, 0}}
			return r.op("Mul", nil, r.op("ConvTranspose", attrs, x, r.weight(0, .3, c, c, 3, 3)), r.weight(1, .2, c, 1, 1))
		},
		func() *ir.Value { return r.op("Softmax", ir.Attrs{"axis": 1 + r.rng.IntN(3)}, x) },
		func() *ir.Value { // a layer over the pixels
			seq := r.op("Transpose", ir.Attrs{"perm": []int{0, 2, 1}}, r.op("Reshape", ir.Attrs{"shape": []int{1, c, h * w}}, x))
			y := r.op("Add", nil, r.op("MatMul", nil, seq, r.weight(0, .4, c, c)), r.weight(0, .4, c))
			return r.op("Reshape", ir.Attrs{"shape": s}, r.op("Transpose", ir.Attrs{"perm": []int{0, 2, 1}}, y))
		},
		func() *ir.Value { // a layer over everything, and back
			flat := r.op("Relu", nil, r.op("Reshape", ir.Attrs{"shape": []int{1, c * h * w}}, x))
			return r.op("Reshape", ir.Attrs{"shape": s}, r.op("MatMul", nil, flat, r.weight(0, .1, c*h*w, c*h*w)))
		},
		func() *ir.Value { return visionAttention(r.graphBuilder, x, 2) },
		func() *ir.Value { // a norm over channels, spelled out
			mean := func(v *ir.Value) *ir.Value {
				return r.op("ReduceMean", ir.Attrs{"axes": []int{1}, "keepdims": true}, v)
			}
			d := r.op("Sub", nil, x, mean(x))
			v := r.op("Add", nil, mean(r.op("Mul", nil, d, d)), r.scalar(1e-3))
			return r.op("Mul", nil, r.op("Div", nil, d, r.op("Sqrt", nil, v)), r.weight(1, .2, c, 1, 1))
		},
		func() *ir.Value {
			t := r.op("Transpose", ir.Attrs{"perm": []int{0, 1, 3, 2}}, x)
			return r.op("Transpose", ir.Attrs{"perm": []int{0, 1, 3, 2}}, r.op("Exp", nil, r.op("Tanh", nil, t)))
		},
		func() *ir.Value {
			return r.op("Resize", ir.Attrs{"sizes": []int{1, c, 2 * h, w}, "scales": []float64{1, 1, 2, 1}}, x)
		},
	}
	if y := steps[r.rng.IntN(len(steps))](); y.Type.Numel() <= 1<<9 && y.Type.Numel() >= 8 {
		r.images = append(r.images, y)
	}
}

func randomOps(t testing.TB, seed uint64) *ir.Graph {
	b := newGraphBuilder(t, ir.Float32)
	b.rng = rand.New(rand.NewPCG(seed, 7))
	r := &opSoup{graphBuilder: b}
	r.images = []*ir.Value{b.input("x", ir.Float32, 1, 4, 3, 5)}
	if b.rng.IntN(3) == 0 {
		r.images = append(r.images, b.input("z", ir.Float32, 1, 4, 3, 5))
	}
	for range 3 + b.rng.IntN(12) {
		r.step()
	}
	// Values that nothing reads are what the graph computes; one more is read and put out.
	uses := b.g.Uses()
	for _, v := range r.images[1:] {
		if v.Def != nil && len(uses[v]) == 0 {
			b.g.Outputs = append(b.g.Outputs, v)
		}
	}
	if v := r.pick(); v.Def != nil && len(uses[v]) > 0 {
		b.g.Outputs = append(b.g.Outputs, v)
	}
	if len(b.g.Outputs) == 0 {
		b.g.Outputs = append(b.g.Outputs, b.op("Relu", nil, r.images[0]))
	}
	b.g.RemoveDead()
	require.NoError(t, b.g.Verify())
	return b.g
}

func TestRandomNetworksKeepTheirOutputs(t *testing.T) {
	graphs := uint64(300)
	if testing.Short() {
		graphs = 60
	}
	for seed := range graphs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := randomOps(t, seed)
			for _, precision := range []string{precision.File, precision.FP32} {
				after := g.Clone()
				require.NoError(t, Run(&Context{Precision: precision}, after, semanticNames(t, precision), nil))
				requireSameOutputs(t, g, after, 2e-5)
			}
		})
	}
}
