package expr

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// blockInputs are blocks of f32: normal numbers of many sizes, and the cases that QuantizeBlocks names.
func blockInputs(scale float64) []float64 {
	rng := rand.New(rand.NewSource(1))
	const n = ir.BlockSize
	var x []float64
	for range 4000 {
		size := scale * math.Ldexp(1, rng.Intn(24)-12)
		for range n {
			x = append(x, size*rng.NormFloat64())
		}
	}
	special := func(top float64, at int, rest float64) {
		for i := range n {
			if i == at {
				x = append(x, top)
			} else {
				x = append(x, rest)
			}
		}
	}
	special(0, 0, 0)
	special(math.Copysign(0, -1), 0, 0)
	special(math.NaN(), 3, 1)
	special(math.NaN(), 15, math.Inf(1))
	special(math.Inf(-1), 7, 1)
	special(1e38, 2, -1e30)
	special(scale*6*448*0.999, 9, -scale*6*448) // the greatest scale
	special(scale*6*0x1p-9, 1, scale*0x1p-9)    // the least
	special(scale*6*0x1p-11, 1, scale*0x1p-12)  // below it
	special(1e-42, 4, -1e-44)
	for i := range x {
		x[i] = float64(float32(x[i]))
	}
	return x
}

// TestStoreBlocksEqualsQuantizeBlocks: bit for bit but where a rounded quotient meets the middle between two values.
func TestStoreBlocksEqualsQuantizeBlocks(t *testing.T) {
	for _, scale := range []float64{1, 0.0371, 0x1p-5, 3.7} {
		x := blockInputs(scale)
		blocks := len(x) / ir.BlockSize
		const threads = 128
		m := ptx.NewModule("sm_121a")
		k := m.NewKernel("k", threads)
		var bases []ptx.Reg
		for _, name := range []string{"x", "codes", "scales"} {
			r := k.Reg(ptx.B64)
			k.I("ld.param.u64", r, ptx.At(k.AddParam(name, "u64"), 0))
			k.I("cvta.to.global.u64", r, r)
			bases = append(bases, r)
		}
		b := NewBuilder()
		e := NewEmitter(k, b, Env{Operand: func(i int) ptx.Reg { return bases[i] }})
		thread := b.Index("thread", (blocks+threads-1)/threads*threads)
		id, block := k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("mov.u32", id, ptx.Special("%tid.x"))
		k.I("mov.u32", block, ptx.Special("%ctaid.x"))
		k.I("mad.lo.s32", id, block, ptx.Imm(threads), id)
		e.Bind(thread, id)
		at := b.Scale(b.Min(thread, b.Int(blocks-1)), ir.BlockSize)
		var values []*Expr
		for i := range ir.BlockSize {
			values = append(values, b.Load(0, b.Offset(at, int64(i)), ir.Float32, nil, nil))
		}
		e.StoreBlocks(1, 2, at, values, scale, b.Lt(thread, b.Int(blocks)))
		k.I("ret")

		codes, scales := make([]byte, len(x)/2), make([]byte, blocks)
		in := ir.FromFloats(ir.T(ir.Float32, len(x)), x)
		require.NoError(t, emu.RunKernel(m.String(), "k", [3]int{(blocks + threads - 1) / threads, 1, 1}, [3]int{threads, 1, 1}, 0, in.Data, emu.Out{Data: codes}, emu.Out{Data: scales}))

		y, s := make([]float64, len(x)), make([]float64, blocks)
		ir.QuantizeBlocks(x, scale, y, s)
		wantCodes, wantScales := ir.FromFloats(ir.T(ir.Float4E2M1, len(x)), y), ir.FromFloats(ir.T(ir.Float8E4M3FN, blocks), s)
		ties := 0
		for i := range x {
			if scales[i/16] != wantScales.Data[i/16] {
				require.True(t, math.IsNaN(s[i/16]) && scales[i/16]&0x7f == 0x7f, "scale %g: block %d has scale %#x, want %#x", scale, i/16, scales[i/16], wantScales.Data[i/16])
			}
			got, want := codes[i/2]>>(i%2*4)&15, wantCodes.Data[i/2]>>(i%2*4)&15
			if got == want {
				continue
			}
			q := x[i] / (s[i/16] * scale)
			require.True(t, got^want == 1 || got^want == 3 || got^want == 7, "scale %g: element %d is %#x, want %#x", scale, i, got, want)
			require.True(t, nearMiddle(q), "scale %g: element %d, %g, is %#x, want %#x", scale, i, q, got, want)
			ties++
		}
		require.LessOrEqual(t, ties, 2, "scale %g", scale)
	}
}

// nearMiddle reports whether q lies within a few roundings to f32 of the middle between two e2m1.
func nearMiddle(q float64) bool {
	for _, mid := range []float64{0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5} {
		if math.Abs(math.Abs(q)-mid) <= mid*0x1p-22 {
			return true
		}
	}
	return false
}
