package passes

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// visionTower has the blocks of openpilot's vision towers (FastViT before its branches are merged), small.
func visionTower(b *graphBuilder, img *ir.Value) *ir.Value {
	x := b.op("Cast", ir.Attrs{"to": b.d}, img)
	x = b.op("Div", nil, b.op("Sub", nil, x, b.scalar(128)), b.scalar(64))
	zero := b.scalar(0)
	mobileOne := func(x *ir.Value, out, stride, group int) *ir.Value {
		y := b.op("Add", nil, b.conv(x, out, 1, stride, group), zero)
		return b.op("Add", nil, y, b.conv(x, out, 3, stride, group))
	}
	pointwise := func(x *ir.Value) *ir.Value { // identity branch and 1×1 convolution
		c := x.Type.Shape[1]
		return b.op("Add", nil, b.op("Add", nil, b.batchNorm(x), zero), b.conv(x, c, 1, 1, 1))
	}
	mlp := func(x *ir.Value) *ir.Value { // the layer scale is last
		c := x.Type.Shape[1]
		y := b.conv(x, c, 7, 1, c)
		y = b.conv(b.gelu(b.conv(y, 4*c, 1, 1, 1)), c, 1, 1, 1)
		return b.op("Add", nil, x, b.op("Mul", nil, y, b.weight(.3, .1, c, 1, 1)))
	}
	x = b.gelu(mobileOne(x, 8, 2, 1))
	x = b.gelu(mobileOne(x, 8, 2, 8))
	x = b.gelu(pointwise(x))
	repMixer := func(x *ir.Value) *ir.Value {
		c := x.Type.Shape[1]
		mixer := b.op("Add", nil, b.op("Add", nil, b.conv(x, c, 1, 1, c), b.batchNorm(x)), b.conv(x, c, 3, 1, c))
		diff := b.op("Sub", nil, mixer, b.batchNorm(x))
		return b.op("Add", nil, x, b.op("Mul", nil, diff, b.weight(.3, .1, c, 1, 1)))
	}
	x = mlp(repMixer(x))
	x = b.op("Add", nil, b.conv(x, 16, 7, 2, 8), b.conv(x, 16, 3, 2, 8)) // downsample
	x = b.gelu(pointwise(x))
	x = b.op("Add", nil, b.conv(x, 16, 7, 1, 16), x) // position encoding
	x = b.op("Add", nil, x, b.op("Mul", nil, visionAttention(b, b.batchNorm(x), 4), b.weight(.3, .1, 16, 1, 1)))
	x = mlp(x)
	x = mobileOne(x, 32, 1, 16)
	se := b.op("ReduceMean", ir.Attrs{"axes": []int{2, 3}, "keepdims": true}, x)
	se = b.op("Sigmoid", nil, b.conv(b.op("Relu", nil, b.conv(se, 4, 1, 1, 1)), 32, 1, 1, 1))
	x = b.gelu(b.op("Mul", nil, x, se))
	x = b.op("ReduceMean", ir.Attrs{"axes": []int{2, 3}, "keepdims": true}, x)
	return b.op("Reshape", ir.Attrs{"shape": []int{1, 32}}, x)
}

// visionAttention is multi-head attention over the pixels of an image, the scale at q and k.
func visionAttention(b *graphBuilder, x *ir.Value, heads int) *ir.Value {
	sh := x.Type.Shape
	c, n := sh[1], sh[2]*sh[3]
	seq := b.op("Transpose", ir.Attrs{"perm": []int{0, 2, 1}}, b.op("Reshape", ir.Attrs{"shape": []int{1, c, n}}, x))
	qkv := b.op("MatMul", nil, seq, b.weight(0, .3, c, 3*c))
	qkv = b.op("Reshape", ir.Attrs{"shape": []int{1, n, 3, heads, c / heads}}, qkv)
	qkv = b.op("Transpose", ir.Attrs{"perm": []int{2, 0, 3, 1, 4}}, qkv)
	part := func(i int) *ir.Value {
		p := b.op("Slice", ir.Attrs{"starts": []int{i, 0, 0, 0, 0}, "sizes": []int{1, 1, heads, n, c / heads}}, qkv)
		return b.op("Reshape", ir.Attrs{"shape": []int{1, heads, n, c / heads}}, p)
	}
	scale := b.scalar(math.Sqrt(math.Sqrt(float64(heads) / float64(c))))
	q := b.op("Mul", nil, part(0), scale)
	k := b.op("Mul", nil, b.op("Transpose", ir.Attrs{"perm": []int{0, 1, 3, 2}}, part(1)), scale)
	y := b.op("MatMul", nil, b.op("Softmax", ir.Attrs{"axis": 3}, b.op("MatMul", nil, q, k)), part(2))
	y = b.op("Reshape", ir.Attrs{"shape": []int{1, n, c}}, b.op("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, y))
	y = b.op("Add", nil, b.weight(0, .1, c), b.op("MatMul", nil, y, b.weight(0, .3, c, c)))
	return b.op("Reshape", ir.Attrs{"shape": sh}, b.op("Transpose", ir.Attrs{"perm": []int{0, 2, 1}}, y))
}

func semanticNames(t testing.TB, name string) []string {
	t.Helper()
	p, err := precision.Lookup(name)
	require.NoError(t, err)
	return pipeline(pipelineOf(p), stages[:regionStage()])
}

func TestVisionTowerBecomesOneConvABlock(t *testing.T) {
	b := newGraphBuilder(t, ir.Float32)
	g := b.output(visionTower(b, b.input("img", ir.Uint8, 1, 12, 32, 64)))
	before := g.Clone()
	require.NoError(t, Run(&Context{Precision: precision.FP32}, g, semanticNames(t, precision.FP32), nil))
	requireSameOutputs(t, before, g, 1e-5)

	counts := opCounts(g)
	t.Log(counts)
	require.Equal(t, 14, counts["Conv"])
	require.Equal(t, 1, counts["Attention"])
	for _, gone := range []string{"BatchNorm", "Erf", "Softmax", "Div", "Sub"} {
		require.Zero(t, counts[gone], gone)
	}
}

func TestPassesAreDeterministic(t *testing.T) {
	texts := map[string]bool{}
	for range 3 {
		b := newGraphBuilder(t, ir.Float16)
		g := b.output(visionTower(b, b.input("img", ir.Uint8, 1, 12, 32, 64)))
		require.NoError(t, Run(&Context{Precision: precision.FP16}, g, semanticNames(t, precision.FP16), nil))
		texts[g.String()] = true
	}
	require.Len(t, texts, 1)
}
