package expr

import (
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// QuantizeBlock rounds 16 neighbours in F32 registers to NVFP4 as ir.QuantizeBlocks does: two words of eight e2m1,
// the first in the low bits, and a 16-bit register whose low byte is the e4m3 of their scale. Quotients are products
// with a reciprocal rounded to f32, so that a quotient within 2^-23 of the middle between two values may fall to the
// other side.
func QuantizeBlock(k *ptx.Kernel, x []ptx.Reg, scale float64) (codes [2]ptx.Reg, code ptx.Reg) {
	f, code := scaleBlock(k, magnitude(k, x), scale)
	for i := range codes {
		codes[i] = f.kept(k, packE2M1(k, x[8*i:8*i+8], f.inverse))
	}
	return codes, code
}

// QuantizePairs is QuantizeBlock where several threads share a block: for each two neighbours that a thread has, a
// 16-bit register whose low byte is their codes. most combines the greatest magnitudes of all threads.
func QuantizePairs(k *ptx.Kernel, x []ptx.Reg, scale float64, most func(own ptx.Reg) ptx.Reg) (codes []ptx.Reg, code ptx.Reg) {
	f, code := scaleBlock(k, most(magnitude(k, x)), scale)
	for i := 0; i < len(x); i += 2 {
		pair := k.Reg(ptx.B16)
		k.I("cvt.u16.u32", pair, f.kept(k, pairE2M1(k, x[i], x[i+1], f.inverse)))
		codes = append(codes, pair)
	}
	return codes, code
}

// magnitude is the greatest of several, NaN if there is one.
func magnitude(k *ptx.Kernel, x []ptx.Reg) ptx.Reg {
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
	return top[0]
}

// blockFactor is what numbers of a block are multiplied by, if that is finite: else they are 0.
type blockFactor struct{ inverse, finite ptx.Reg }

func (f blockFactor) kept(k *ptx.Kernel, word ptx.Reg) ptx.Reg {
	w := k.Reg(ptx.B32)
	k.I("selp.b32", w, word, ptx.Imm(0), f.finite)
	return w
}

// scaleBlock is the factor and the scale's code of a block whose greatest magnitude is known; a scale of 0 or NaN has
// no factor.
func scaleBlock(k *ptx.Kernel, top ptx.Reg, scale float64) (f blockFactor, code ptx.Reg) {
	t, code := k.Reg(ptx.F32), k.Reg(ptx.B16)
	k.I("mul.rn.f32", t, top, ptx.FImm(float32(1/(minifloat.E2M1.Max()*scale))))
	k.I("cvt.rn.satfinite.e4m3x2.f32", code, ptx.FImm(0), t)
	w, h, s := k.Reg(ptx.B32), k.Reg(ptx.B16), k.Reg(ptx.F32)
	k.I("cvt.rn.f16x2.e4m3x2", w, code)
	k.I("cvt.u16.u32", h, w)
	k.I("cvt.f32.f16", s, h)
	f.finite = k.Reg(ptx.Pred)
	step := k.Reg(ptx.F32)
	f.inverse = k.Reg(ptx.F32)
	k.I("setp.gt.f32", f.finite, s, ptx.FImm(0))
	k.I("mul.rn.f32", step, s, ptx.FImm(float32(scale)))
	k.I("rcp.rn.f32", f.inverse, step)
	return f, code
}

// packE2M1 is a word of the e2m1 nearest to eight values times a factor.
func packE2M1(k *ptx.Kernel, x []ptx.Reg, factor ptx.Reg) ptx.Reg {
	var pairs [4]ptx.Reg
	for i := range pairs {
		pairs[i] = pairE2M1(k, x[2*i], x[2*i+1], factor)
	}
	join := func(lo, hi ptx.Reg, selector int) ptx.Reg {
		w := k.Reg(ptx.B32)
		k.I("prmt.b32", w, lo, hi, ptx.Imm(int64(selector)))
		return w
	}
	return join(join(pairs[0], pairs[1], 0x1140), join(pairs[2], pairs[3], 0x1140), 0x5410)
}

// pairE2M1 is the byte of the e2m1 nearest to two values times a factor, the first in the low bits.
func pairE2M1(k *ptx.Kernel, x, y, factor ptx.Reg) ptx.Reg {
	lo, hi, pair := k.Reg(ptx.F32), k.Reg(ptx.F32), k.Reg(ptx.B8)
	k.I("mul.rn.f32", lo, x, factor)
	k.I("mul.rn.f32", hi, y, factor)
	k.I("cvt.rn.satfinite.e2m1x2.f32", pair, hi, lo)
	w := k.Reg(ptx.B32)
	k.I("cvt.u32.u8", w, pair)
	return w
}

// StoreBlocks writes F32 values, whole blocks of them, as NVFP4 (ir.QuantizeBlocks): e2m1 from element index of one
// operand on, which is a multiple of 16 and whose operand is aligned to 8 bytes, and their scales to another, where
// pred holds (nil: always). Only on targets with NVFP4.
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
