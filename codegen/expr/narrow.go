package expr

import (
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// e4m3 through the hardware's conversions, which work on pairs, where the builder Converts it.

// RoundE4M3 rounds an F32 to the nearest e4m3 value and saturates.
func (b *Builder) RoundE4M3(x *Expr) *Expr {
	if x.Op == OpRoundE4M3 || x.Op == OpLoad && x.DType == ir.Float8E4M3FN {
		return x
	}
	return b.node(OpRoundE4M3, F32, x)
}

// pairE4M3 is the codes of two F32 registers, the first in the low byte.
func (m *Emitter) pairE4M3(lo, hi ptx.Operand) ptx.Reg {
	h := m.K.Reg(ptx.B16)
	m.K.I("cvt.rn.satfinite.e4m3x2.f32", h, hi, lo)
	return h
}

// valuesE4M3 are the values of the two codes in a 16-bit register; hi is only made if want2.
func (m *Emitter) valuesE4M3(h ptx.Reg, want2 bool) []ptx.Reg {
	k := m.K
	w := k.Reg(ptx.B32)
	k.I("cvt.rn.f16x2.e4m3x2", w, h)
	out := []ptx.Reg{m.lowHalf(w)}
	if want2 {
		s := k.Reg(ptx.B32)
		k.I("shr.u32", s, w, ptx.Imm(16))
		out = append(out, m.lowHalf(s))
	}
	return out
}

// lowHalf is the f16 in the low half of a word as F32.
func (m *Emitter) lowHalf(w ptx.Reg) ptx.Reg {
	h, r := m.K.Reg(ptx.B16), m.K.Reg(ptx.F32)
	m.K.I("cvt.u16.u32", h, w)
	m.K.I("cvt.f32.f16", r, h)
	return r
}

// decodeE4M3 converts n codes that were loaded together.
func (m *Emitter) decodeE4M3(words []ptx.Reg, n int) []ptx.Reg {
	if words[0].Class == ptx.B16 {
		return m.valuesE4M3(words[0], n > 1)
	}
	k := m.K
	var out []ptx.Reg
	for _, w := range words {
		s, lo, hi := k.Reg(ptx.B32), k.Reg(ptx.B16), k.Reg(ptx.B16)
		k.I("cvt.u16.u32", lo, w)
		k.I("shr.u32", s, w, ptx.Imm(16))
		k.I("cvt.u16.u32", hi, s)
		out = append(append(out, m.valuesE4M3(lo, true)...), m.valuesE4M3(hi, true)...)
	}
	return out
}

// encodeE4M3 packs values into words for one store.
func (m *Emitter) encodeE4M3(rs []ptx.Reg) []ptx.Reg {
	k := m.K
	switch len(rs) {
	case 1:
		return []ptx.Reg{m.pairE4M3(rs[0], ptx.FImm(0))}
	case 2:
		return []ptx.Reg{m.pairE4M3(rs[0], rs[1])}
	}
	var out []ptx.Reg
	for i := 0; i < len(rs); i += 4 {
		lo, hi, w := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("cvt.u32.u16", lo, m.pairE4M3(rs[i], rs[i+1]))
		k.I("cvt.u32.u16", hi, m.pairE4M3(rs[i+2], rs[i+3]))
		k.I("prmt.b32", w, lo, hi, ptx.Imm(0x5410))
		out = append(out, w)
	}
	return out
}

// readsE4M3 reports whether es still need to load e4m3, of which 16 neighbours are 16 bytes.
func (m *Emitter) readsE4M3(es []*Expr) bool {
	found := false
	m.pending(es, func(e *Expr) { found = found || e.Op == OpLoad && e.DType == ir.Float8E4M3FN })
	return found
}
