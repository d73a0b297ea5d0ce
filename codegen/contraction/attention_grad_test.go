package contraction

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

type attentionGradCase struct {
	b, h, s, t, d, dv int
	dtype             ir.DType
	causal            bool
	packed            bool // q, k and v are slices of one tensor [B,S,3·H·D], and so are their gradients
	members           int
	mask              []int // shape of an additive mask
}

func (c attentionGradCase) region(b *kerneltest.Region) *ir.Node {
	if c.members > 0 {
		b.Members(c.members)
	}
	in := make([]*ir.Value, 4)
	operand := func(shape ...int) *ir.Value {
		return b.Cast(b.Input(ir.T(c.dtype, shape...), 1, false, c.members > 0), f32)
	}
	byHead := func(x *ir.Value) *ir.Value {
		x = b.Add("Reshape", ir.Attrs{"shape": []int{c.b, c.s, c.h, c.d}}, x)
		return b.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, x)
	}
	if c.packed {
		qkv := operand(c.b, c.s, 3*c.h*c.d)
		for i := range 3 {
			x := b.Add("Slice", ir.Attrs{"starts": []int{0, 0, i * c.h * c.d}, "sizes": []int{c.b, c.s, c.h * c.d}}, qkv)
			in[i] = byHead(x)
		}
		in[3] = byHead(operand(c.b, c.s, c.h*c.d))
	} else {
		for i, s := range [][2]int{{c.s, c.d}, {c.t, c.d}, {c.t, c.dv}, {c.s, c.dv}} {
			in[i] = operand(c.b, c.h, s[0], s[1])
		}
	}
	if c.mask != nil {
		in = append(in, operand(c.mask...))
	}
	y := b.Add("AttentionGrad", ir.Attrs{"scale": 0.3, "causal": c.causal}, in...)
	if c.packed {
		y = b.Add("Transpose", ir.Attrs{"perm": []int{1, 3, 0, 2, 4}}, y)
		y = b.Add("Reshape", ir.Attrs{"shape": []int{c.b, c.s, 3 * c.h * c.d}}, y)
	}
	return b.Finish(b.Cast(y, c.dtype))
}

// rounded allows for what rounding P and Q to 16 bits does, half a unit in the last place of each element.
func (attentionGradCase) rounded(b *kerneltest.Region) {
	b.Limits[f16], b.Limits[bf16] = 6e-4, 8*6e-4
}

func TestAttentionGradEqualsTheReference(t *testing.T) {
	for _, d := range []ir.DType{f16, bf16} {
		for i, c := range []attentionGradCase{
			{b: 2, h: 6, s: 25, t: 25, d: 64, dv: 64, dtype: d, packed: true},
			{b: 1, h: 3, s: 32, t: 32, d: 32, dv: 32, dtype: d, packed: true, members: 2},
			{b: 1, h: 1, s: 16, t: 16, d: 16, dv: 16, dtype: d},
			{b: 3, h: 1, s: 64, t: 64, d: 128, dv: 128, dtype: d},
			{b: 1, h: 3, s: 20, t: 47, d: 16, dv: 24, dtype: d},
			{b: 1, h: 1, s: 50, t: 7, d: 80, dv: 40, dtype: d},
			{b: 1, h: 2, s: 33, t: 33, d: 48, dv: 20, dtype: d, causal: true},
			{b: 1, h: 2, s: 9, t: 40, d: 24, dv: 24, dtype: d, causal: true, mask: []int{9, 40}},
			{b: 2, h: 2, s: 9, t: 33, d: 16, dv: 16, dtype: d, mask: []int{1, 2, 1, 33}, members: 2},
			{b: 1, h: 1, s: 3, t: 5, d: 7, dv: 3, dtype: d},
			{b: 1, h: 1, s: 1, t: 1, d: 8, dv: 8, dtype: d},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				c.rounded(b)
				b.Check(Family.Lower, sm121(t))
				assemble(t, b.Node, i)
			})
		}
	}
}

// TestMaskedQueriesHaveNoGradient: keys that a mask hides get none, and a query without any key has none and gives
// none.
func TestMaskedQueriesHaveNoGradient(t *testing.T) {
	b := newRegion(t)
	c := attentionGradCase{b: 1, h: 1, s: 8, t: 40, d: 16, dv: 16, dtype: f16, mask: []int{8, 40}}
	c.region(b)
	c.rounded(b)
	mask := make([]float64, 8*40)
	for i := range mask {
		if i%40 < 30 || i/40 == 5 {
			mask[i] = math.Inf(-1)
		}
	}
	v := b.Node.Inputs[4]
	b.Data[v] = ir.FromFloats(v.Type, mask)
	spec := b.Check(Family.Lower, sm121(t))
	out := kerneltest.Run(t, spec, sm121(t).Target, b.Data)[b.Node.Outputs[0]].Floats()
	require.Zero(t, norm(out[5*16:6*16]), "dq of a query without keys")
	require.Zero(t, norm(out[40*16:(40+30)*16]), "dk of hidden keys")
	require.NotZero(t, norm(out[(40+30)*16:2*40*16]))
}

func norm(x []float64) (sum float64) {
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}
