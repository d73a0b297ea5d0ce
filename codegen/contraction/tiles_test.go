package contraction

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// layerCase is a layer of constant weights [n,k] and the gradient of its input, a product with the weights as they
// lie or with a transposed copy, as passes leave them.
type layerCase struct {
	m, k, n int
	dtype   ir.DType
	weights ir.DType // Invalid: those of dtype
	members int
	r       int  // of a second product; 0: none
	copied  bool // the weights of the way back are a transposed copy
	conv    bool // 1×1
}

// regions are the layer and the gradient, one after the other in one graph.
func (c layerCase) regions(t *testing.T) [2]*kerneltest.Region {
	g := kerneltest.NewGraph(t, "g")
	d, size := c.dtype, 0.1
	if c.weights != ir.Invalid {
		d, size = c.weights, 2
	}
	shaped := func(d ir.DType, dims ...int) ir.Type {
		if c.members > 0 {
			dims = append([]int{c.members}, dims...)
		}
		return ir.T(d, dims...)
	}
	constant := func(d ir.DType, draw kerneltest.Draw, n, k int) (v, copied *ir.Value) {
		v = g.Drawn(shaped(d, n, k), draw, true)
		x := v.Const.Floats()
		y := make([]float64, len(x))
		for at := range x {
			z, i, j := at/(n*k)*n*k, at/k%n, at%k
			y[z+j*n+i] = x[at]
		}
		copied = g.Constant(g.Fresh("copy"), ir.FromFloats(shaped(d, k, n), y))
		g.Data[copied] = copied.Const
		return v, copied
	}
	w, copied := constant(d, kerneltest.Numbers(d, size), c.n, c.k)
	var scales, copiedScales *ir.Value
	if d == e2m1 {
		scales, copiedScales = constant(ir.BlockScale, func(r *rand.Rand, _ int) float64 { return math.Ldexp(1+r.Float64(), r.Intn(9)-6) }, c.n, ceilDiv(c.k, blockSize))
	}
	product := func(w, scales *ir.Value, blocked, k, n int, transB bool) *kerneltest.Region {
		b := g.Region(ir.FamilyContraction)
		if c.members > 0 {
			b.Members(c.members)
		}
		read := b.Read(w, c.members > 0)
		v := read
		if scales != nil {
			b.Read(scales, c.members > 0)
			v = b.Dequantise(blocked, blockSize, read, scales)
		} else {
			v = b.Cast(read, f32)
		}
		if c.conv {
			x := b.Cast(b.Input(ir.T(c.dtype, 1, 1, c.m, k), 1, false, false), f32)
			v = b.Add("Reshape", ir.Attrs{"shape": append(slices.Clone(read.Type.Shape), 1, 1)}, v)
			y := b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}, "group": 1, "layout": "NHWC"}, x, v)
			b.Finish(b.Cast(y, c.dtype))
			return b
		}
		x := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, k), 1, false, false), f32)
		if c.r == 0 {
			b.Finish(b.Cast(b.Add("MatMul", ir.Attrs{"transB": transB}, x, v), c.dtype))
			return b
		}
		u := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, c.r), 1, false, c.members > 0), f32)
		e := b.Cast(b.Input(ir.T(c.dtype, c.r, n), 1, false, c.members > 0), f32)
		b.Finish(b.Cast(b.Add("MatMulSum", ir.Attrs{"transB": transB}, x, v, u, e), c.dtype))
		return b
	}
	layer := product(w, scales, 1, c.k, c.n, true)
	if c.copied {
		return [2]*kerneltest.Region{layer, product(copied, copiedScales, 0, c.n, c.k, true)}
	}
	return [2]*kerneltest.Region{layer, product(w, scales, 1, c.n, c.k, false)}
}

// constants are the packed weights of a kernel.
func constants(spec *kernel.Spec) []byte {
	for _, o := range spec.Operands {
		if o.Const != nil {
			return o.Const
		}
	}
	return nil
}

// TestBothDirectionsReadTheSameWeights: a layer, and the gradient of its input, of shapes that no tile divides, from
// the same bytes, no more of them than blocks of 16×16 take.
func TestBothDirectionsReadTheSameWeights(t *testing.T) {
	fulltest.Long(t)
	for _, d := range []ir.DType{f16, bf16} {
		for i, c := range []layerCase{
			{m: 25, k: 384, n: 1152},
			{m: 25, k: 522, n: 48},
			{m: 130, k: 64, n: 72, copied: true},
			{m: 40, k: 200, n: 69, copied: true},
			{m: 5, k: 7, n: 3},
			{m: 17, k: 33, n: 130, members: 3},
			{m: 32, k: 990, n: 512, r: 2},
			{m: 33, k: 104, n: 264, r: 17, members: 2, copied: true},
			{m: 64, k: 24, n: 40, conv: true, copied: true},

			{m: 25, k: 384, n: 1152, weights: e4m3},
			{m: 40, k: 200, n: 69, weights: e4m3, copied: true},
			{m: 33, k: 104, n: 264, weights: e4m3, members: 2},
			{m: 25, k: 384, n: 1152, weights: e3m2, copied: true},
			{m: 40, k: 200, n: 69, weights: e3m2},
			{m: 17, k: 33, n: 130, weights: e3m2, members: 3},
			{m: 25, k: 384, n: 1152, weights: e2m1},
			{m: 40, k: 200, n: 69, weights: e2m1, copied: true},
			{m: 33, k: 104, n: 264, weights: e2m1, members: 2},
			{m: 64, k: 80, n: 40, weights: e2m1, conv: true, copied: true},
		} {
			c.dtype = d
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				regions := c.regions(t)
				names := target.Names()
				if c.weights != ir.Invalid { // the PTX of others has no movmatrix
					names = slices.DeleteFunc(names, func(name string) bool { return name == "sm_80" })
				}
				ctx := kerneltest.Target(t, names[i%len(names)])
				s := Share([]*ir.Graph{regions[0].Graph.Graph}, ctx.Target)
				var blobs [][]byte
				for _, b := range regions {
					spec := b.Check(s.Family().Lower, ctx)
					kerneltest.Assemble(t, spec, ctx.Target)
					blobs = append(blobs, constants(spec))
				}
				width, bytes := 16, 512
				switch c.weights {
				case e4m3:
					width = 32
				case e3m2:
					width, bytes = 32, 384
				case e2m1:
					width, bytes = 64, 512+64
				}
				require.Equal(t, max(1, c.members)*ceilDiv(c.n, 16)*ceilDiv(c.k, width)*bytes, len(blobs[0]))
				require.True(t, slices.Equal(blobs[0], blobs[1]))
			})
		}
	}
}

// TestEveryScheduleReadsTiles is TestEveryScheduleComputesTheSame for weights that are read in both directions, of a
// matrix that tiles reach beyond in both.
func TestEveryScheduleReadsTiles(t *testing.T) {
	fulltest.Long(t)
	for i, c := range []layerCase{{m: 40, k: 200, n: 72, dtype: f16}, {m: 33, k: 328, n: 69, dtype: bf16}, {m: 33, k: 256, n: 128, dtype: bf16, r: 3},
		{m: 33, k: 328, n: 72, dtype: f16, weights: e4m3}, {m: 33, k: 328, n: 69, dtype: bf16, weights: e3m2}, {m: 40, k: 200, n: 160, dtype: bf16, weights: e2m1}} {
		ctx := sm121(t)
		regions := c.regions(t)
		share := Share([]*ir.Graph{regions[0].Graph.Graph}, ctx.Target)
		for _, b := range regions {
			p, err := normaliseFor(b.Node, ctx.Target)
			require.NoError(t, err)
			pl, err := newPlan(p, ctx)
			require.NoError(t, err)
			require.True(t, pl.share(p, share))
			tried := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
			if i >= 2 || !fulltest.Runs(t.Name()) {
				tried = threewise(tried)
			}
			require.Greater(t, len(tried), 10)
			for _, s := range tried {
				b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
			}
		}
	}
}
