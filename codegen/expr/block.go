package expr

import (
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// QuantizeBlock rounds 16 neighbours in F32 registers to NVFP4 as ir.QuantizeBlocks does: two words of eight e2m1, the first
// in the low bits, and a 16-bit register whose low byte is the e4m3 of their scale. Quotients are products with a
// reciprocal rounded to f32, so that a quotient within 2^-23 of the middle between two values may fall to the other side.
func QuantizeBlock(k *ptx.Kernel, x []ptx.Reg, scale float64) (codes [2]ptx.Reg, code ptx.Reg) {
	s, code := blockScale(k, x, float32(1/(minifloat.E2M1.Max()*scale)))
	positive, step, inverse := k.Reg(ptx.Pred), k.Reg(ptx.F32), k.Reg(ptx.F32)
	k.I("setp.gt.f32", positive, s, ptx.FImm(0))
	k.I("mul.rn.f32", step, s, ptx.FImm(float32(scale)))
	k.I("rcp.rn.f32", inverse, step)
	for i := range codes {
		w := packE2M1(k, x[8*i:8*i+8], inverse)
		codes[i] = k.Reg(ptx.B32)
		k.I("selp.b32", codes[i], w, ptx.Imm(0), positive) // a block whose scale is 0 or NaN is zeros
	}
	return codes, code
}

// blockScale is the scale of a block, factor times its greatest magnitude rounded to e4m3: the value and the code.
func blockScale(k *ptx.Kernel, x []ptx.Reg, factor float32) (s, code ptx.Reg) {
	top := make([]ptx.Reg, len(x))
	for i, v := range x {
		top[i] = k.Reg(ptx.F32)
		k.I("abs.f32", top[i], v)
	}
	for len(top) > 1 {
		half := len(top) / 2
		for i := range half {
			k.I("max.NaN.f32", top[i], top[i], top[i+half])
		}
		top = top[:half]
	}
	t, code := k.Reg(ptx.F32), k.Reg(ptx.B16)
	k.I("mul.rn.f32", t, top[0], ptx.FImm(factor))
	k.I("cvt.rn.satfinite.e4m3x2.f32", code, ptx.FImm(0), t)
	w, h, s := k.Reg(ptx.B32), k.Reg(ptx.B16), k.Reg(ptx.F32)
	k.I("cvt.rn.f16x2.e4m3x2", w, code)
	k.I("cvt.u16.u32", h, w)
	k.I("cvt.f32.f16", s, h)
	return s, code
}

// packE2M1 is a word of the e2m1 nearest to eight values times a factor.
func packE2M1(k *ptx.Kernel, x []ptx.Reg, factor ptx.Reg) ptx.Reg {
	var pairs [4]ptx.Reg
	for i := range pairs {
		lo, hi, pair := k.Reg(ptx.F32), k.Reg(ptx.F32), k.Reg(ptx.B8)
		k.I("mul.rn.f32", lo, x[2*i], factor)
		k.I("mul.rn.f32", hi, x[2*i+1], factor)
		k.I("cvt.rn.satfinite.e2m1x2.f32", pair, hi, lo)
		pairs[i] = k.Reg(ptx.B32)
		k.I("cvt.u32.u8", pairs[i], pair)
	}
	join := func(lo, hi ptx.Reg, selector int) ptx.Reg {
		w := k.Reg(ptx.B32)
		k.I("prmt.b32", w, lo, hi, ptx.Imm(int64(selector)))
		return w
	}
	return join(join(pairs[0], pairs[1], 0x1140), join(pairs[2], pairs[3], 0x1140), 0x5410)
}

// StoreBlocks writes F32 values, whole blocks of them, as NVFP4 (ir.QuantizeBlocks): e2m1 from element index of one operand
// on, which is a multiple of 16 and whose operand is aligned to 8 bytes, and their scales to another, where pred holds
// (nil: always). Only on targets with NVFP4.
func (m *Emitter) StoreBlocks(codes, scales int, index *Expr, values []*Expr, scale float64, pred *Expr) {
	rs, where, ok := m.emitWhere(pred, values)
	if !ok {
		return
	}
	for i := 0; i < len(values); i += ir.BlockSize {
		words, s := QuantizeBlock(m.K, rs[i:i+ir.BlockSize], scale)
		at := m.B.Offset(index, int64(i))
		code, scale := m.B.FloorDiv(at, 2), m.B.FloorDiv(at, ir.BlockSize)
		to := m.address(int64(codes), code, 1)
		m.stores(code, ir.BlockSize/2, 1)
		m.K.Where(where, "st.global.v2.b32", to, ptx.V(words[:]...))
		to = m.address(int64(scales), scale, 1)
		m.stores(scale, 1, 1)
		m.K.Where(where, "st.global.u8", to, s)
	}
}
