package contraction

import (
	"fmt"
	"math"
	"testing"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

type attentionCase struct {
	h, hk, s, t, d, dv int
	dtype              ir.DType
	causal             bool
	packed             bool // q, k and v are slices of one tensor [1,S,3·H·D], the output is [1,S,H·D]
	members            int
	mask               []int // shape of an additive mask
}

func (c attentionCase) region(b *kerneltest.Region) *ir.Node {
	if c.members > 0 {
		b.Members(c.members)
	}
	var q, k, v *ir.Value
	if c.packed {
		qkv := b.Input(ir.T(c.dtype, 1, c.s, 3*c.h*c.d), 1, false, c.members > 0)
		part := func(i int) *ir.Value {
			x := b.Add("Reshape", ir.Attrs{"shape": []int{1, c.s, 3, c.h, c.d}}, b.Cast(qkv, f32))
			x = b.Add("Slice", ir.Attrs{"starts": []int{0, 0, i, 0, 0}, "sizes": []int{1, c.s, 1, c.h, c.d}}, x)
			x = b.Add("Reshape", ir.Attrs{"shape": []int{1, c.s, c.h, c.d}}, x)
			return b.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, x)
		}
		q, k, v = part(0), part(1), part(2)
	} else {
		q = b.Cast(b.Input(ir.T(c.dtype, 1, c.h, c.s, c.d), 1, false, c.members > 0), f32)
		k = b.Cast(b.Input(ir.T(c.dtype, 1, c.hk, c.t, c.d), 1, false, c.members > 0), f32)
		v = b.Cast(b.Input(ir.T(c.dtype, 1, c.hk, c.t, c.dv), 1, false, c.members > 0), f32)
	}
	in := []*ir.Value{q, k, v}
	if c.mask != nil {
		in = append(in, b.Cast(b.Input(ir.T(c.dtype, c.mask...), 3, false, c.members > 0), f32))
	}
	y := b.Add("Attention", ir.Attrs{"scale": 0.3, "causal": c.causal}, in...)
	if c.packed {
		y = b.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, y)
		y = b.Add("Reshape", ir.Attrs{"shape": []int{1, c.s, c.h * c.d}}, y)
	}
	return b.Finish(b.Cast(y, c.dtype))
}

func TestAttentionEqualsTheReference(t *testing.T) {
	for _, d := range bothTypes {
		for i, c := range []attentionCase{
			{h: 6, hk: 6, s: 25, t: 25, d: 64, dv: 64, dtype: d, packed: true},
			{h: 4, hk: 4, s: 32, t: 32, d: 32, dv: 32, dtype: d, packed: true, members: 2},
			{h: 4, hk: 2, s: 20, t: 70, d: 16, dv: 24, dtype: d},
			{h: 2, hk: 2, s: 70, t: 70, d: 48, dv: 20, dtype: d, causal: true},
			{h: 2, hk: 1, s: 20, t: 40, d: 16, dv: 16, dtype: d, mask: []int{20, 40}},
			{h: 2, hk: 2, s: 9, t: 33, d: 16, dv: 16, dtype: d, mask: []int{1, 2, 1, 33}, members: 2},
			{h: 1, hk: 1, s: 3, t: 5, d: 7, dv: 3, dtype: d},
			{h: 50, hk: 50, s: 64, t: 70, d: 16, dv: 16, dtype: d},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				if d == f16 {
					b.Limits[f16] = 6e-4 // probabilities are rounded to f16
				}
				b.Check(Family.Lower, sm121(t))
				assemble(t, b.Node, i)
			})
		}
	}
}

// TestMaskedTiles: where the first keys are all masked nothing of them remains, not even a NaN; a query without any key
// gives 0.
func TestMaskedTiles(t *testing.T) {
	for _, d := range bothTypes {
		b := newRegion(t)
		attentionCase{h: 1, hk: 1, s: 8, t: 70, d: 16, dv: 16, dtype: d, mask: []int{8, 70}}.region(b)
		mask := make([]float64, 8*70)
		for i := range mask {
			if i%70 < 40 || i/70 == 5 {
				mask[i] = math.Inf(-1)
			}
		}
		v := b.Node.Inputs[3]
		b.Data[v] = ir.FromFloats(v.Type, mask)
		b.Limits[f16] = 6e-4
		b.Check(Family.Lower, sm121(t))
	}
}
