package contraction

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/fulltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// layerCase is a layer of constant weights [n,k] and the gradient of its input, a product with the weights as they lie or with a
// transposed copy, as passes leave them.
type layerCase struct {
	m, k, n int
	dtype   ir.DType
	members int
	r       int  // of a second product; 0: none
	copied  bool // the weights of the way back are a transposed copy
	conv    bool // 1×1
}

// regions are the layer and the gradient, one after the other in one graph.
func (c layerCase) regions(t *testing.T) [2]*kerneltest.Region {
	g := kerneltest.NewGraph(t, "g")
	typ := ir.T(c.dtype, c.n, c.k)
	if c.members > 0 {
		typ = ir.T(c.dtype, c.members, c.n, c.k)
	}
	w := g.Drawn(typ, kerneltest.Numbers(c.dtype, 0.1), true)
	back := w
	if c.copied {
		x, n, k := w.Const.Floats(), c.n, c.k
		y := make([]float64, len(x))
		for i := range x {
			z, i, j := i/(n*k)*n*k, i/k%n, i%k
			y[z+j*n+i] = x[z+i*k+j]
		}
		shape := slices.Clone(typ.Shape)
		shape[len(shape)-2], shape[len(shape)-1] = k, n
		back = g.Constant("copy", ir.FromFloats(ir.T(c.dtype, shape...), y))
		g.Data[back] = back.Const
	}
	product := func(w *ir.Value, k, n int, transB bool) *kerneltest.Region {
		b := g.Region(ir.FamilyContraction)
		if c.members > 0 {
			b.Members(c.members)
		}
		read := b.Read(w, c.members > 0)
		if c.conv {
			x := b.Cast(b.Input(ir.T(c.dtype, 1, 1, c.m, k), 1, false, false), f32)
			v := b.Add("Reshape", ir.Attrs{"shape": append(slices.Clone(read.Type.Shape), 1, 1)}, b.Cast(read, f32))
			y := b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}, "group": 1, "layout": "NHWC"}, x, v)
			b.Finish(b.Cast(y, c.dtype))
			return b
		}
		x := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, k), 1, false, false), f32)
		v := b.Cast(read, f32)
		if c.r == 0 {
			b.Finish(b.Cast(b.Add("MatMul", ir.Attrs{"transB": transB}, x, v), c.dtype))
			return b
		}
		u := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, c.r), 1, false, c.members > 0), f32)
		d := b.Cast(b.Input(ir.T(c.dtype, c.r, n), 1, false, c.members > 0), f32)
		b.Finish(b.Cast(b.Add("MatMulSum", ir.Attrs{"transB": transB}, x, v, u, d), c.dtype))
		return b
	}
	return [2]*kerneltest.Region{product(w, c.k, c.n, true), product(back, c.n, c.k, c.copied)}
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

// TestBothDirectionsReadTheSameWeights: a layer, and the gradient of its input, of shapes that no tile divides, from the same bytes, no
// more of them than blocks of 16×16 take.
func TestBothDirectionsReadTheSameWeights(t *testing.T) {
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
		} {
			c.dtype = d
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				regions := c.regions(t)
				ctx := kerneltest.Target(t, target.Names()[i%len(target.Names())])
				s := Share([]*ir.Graph{regions[0].Graph.Graph}, ctx.Target)
				var blobs [][]byte
				for _, b := range regions {
					spec := b.Check(s.Lower, ctx)
					kerneltest.Assemble(t, spec, ctx.Target)
					blobs = append(blobs, constants(spec))
				}
				up := func(x int) int { return (x + 15) / 16 * 16 }
				require.Len(t, blobs[0], max(1, c.members)*up(c.n)*up(c.k)*2)
				require.Equal(t, blobs[0], blobs[1])
			})
		}
	}
}

// TestEveryScheduleReadsTiles is TestEveryScheduleComputesTheSame for weights that are read in both directions, of a matrix that tiles
// reach beyond in both.
func TestEveryScheduleReadsTiles(t *testing.T) {
	for i, c := range []layerCase{{m: 40, k: 200, n: 72, dtype: f16}, {m: 33, k: 328, n: 69, dtype: bf16}, {m: 33, k: 256, n: 128, dtype: bf16, r: 3}} {
		ctx := sm121(t)
		regions := c.regions(t)
		share := Share([]*ir.Graph{regions[0].Graph.Graph}, ctx.Target)
		for _, b := range regions {
			p, err := normaliseFor(b.Node, ctx.Target)
			require.NoError(t, err)
			pl, err := newPlan(p, ctx)
			require.NoError(t, err)
			pl.tiles = share.tilesFor(p)
			require.NotNil(t, pl.tiles)
			tried := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
			if i == 2 || !fulltest.Runs(t.Name()) {
				tried = threewise(tried)
			}
			require.Greater(t, len(tried), 15)
			for _, s := range tried {
				b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
			}
		}
	}
}
