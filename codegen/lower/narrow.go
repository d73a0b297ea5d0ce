package lower

import (
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{"BlockQuantize": blockQuantize})

// roundNarrow is minifloat.Format.Round (or E8M0's) on an F32.
func roundNarrow(b *expr.Builder, x *expr.Expr, d ir.DType, saturate bool) *expr.Expr {
	x = b.Cast(x, expr.F32)
	if d == ir.Float8E8M0 {
		return decodeNarrow(b, encodeE8M0(b, x, "nearest", saturate), d)
	}
	f := d.Format()
	a := b.Abs(x)
	nan := b.F32(math.NaN())
	// One quantum is 2^(e-mantissa), e at least that of the least normal number.
	e := b.Max(b.Offset(b.ShrU(b.Bits(a, expr.S32), b.Int(23)), -127), b.Int(1-f.Bias))
	e = b.Min(e, b.Int(120))
	q := b.Offset(e, int64(-f.Mantissa))
	r := b.Mul(b.Round(b.Mul(a, b.Pow2(b.Neg(q)))), b.Pow2(q))
	over := nan
	switch {
	case saturate || f.Special == minifloat.AllValid:
		over = b.F32(f.Max())
	case f.Special == minifloat.IEEE:
		over = b.F32(math.Inf(1))
	}
	r = b.Select(b.Lt(b.F32(f.Max()), r), over, r)
	y := b.CopySign(r, x)
	if f.Special == minifloat.NegZero {
		y = b.Select(b.Eq(r, b.F32(0)), b.F32(0), y)
	}
	if f.Special == minifloat.AllValid {
		nan = b.F32(math.Copysign(0, -1))
	}
	return b.Select(b.IsNaN(x), nan, y)
}

// encodeNarrow is the code of the rounded value, S32.
func encodeNarrow(b *expr.Builder, x *expr.Expr, d ir.DType, saturate bool) *expr.Expr {
	if d == ir.Float8E8M0 {
		return encodeE8M0(b, x, "nearest", saturate)
	}
	f := d.Format()
	v := roundNarrow(b, x, d, saturate)
	bits := b.Bits(v, expr.S32)
	mag := b.And(bits, b.Int(math.MaxInt32))
	top := f.Exponent + f.Mantissa
	sign := b.Shl(b.ShrU(bits, b.Int(31)), b.Int(top))
	normal := b.Offset(b.ShrU(mag, b.Int(23-f.Mantissa)), -int64(127-f.Bias)<<f.Mantissa)
	a := b.Abs(v)
	sub := b.Cast(b.Mul(a, b.F32(math.Ldexp(1, f.Bias-1+f.Mantissa))), expr.S32)
	code := b.Select(b.Lt(a, b.F32(math.Ldexp(1, 1-f.Bias))), sub, normal)
	var nan *expr.Expr
	switch f.Special {
	case minifloat.IEEE:
		inf := (1<<f.Exponent - 1) << f.Mantissa
		code = b.Select(b.Eq(a, b.F32(math.Inf(1))), b.Int(inf), code)
		nan = b.Or(sign, b.Int(inf|1<<(f.Mantissa-1)))
	case minifloat.OnlyNaN:
		nan = b.Or(sign, b.Int(1<<top-1))
	default:
		nan = b.Int(1 << top)
	}
	return b.Select(b.IsNaN(v), nan, b.Or(sign, code))
}

// decodeNarrow is the value of a code, F32.
func decodeNarrow(b *expr.Builder, c *expr.Expr, d ir.DType) *expr.Expr {
	if d == ir.Float8E8M0 {
		bits := b.Select(b.Eq(c, b.Int(0)), b.Int(1<<22), b.Shl(c, b.Int(23)))
		return b.Select(b.Eq(c, b.Int(255)), b.F32(math.NaN()), b.Bits(bits, expr.F32))
	}
	f := d.Format()
	top := f.Exponent + f.Mantissa
	sign := b.Shl(b.ShrU(c, b.Int(top)), b.Int(31))
	mag := b.And(c, b.Int(1<<top-1))
	man := b.And(c, b.Int(1<<f.Mantissa-1))
	normal := b.Shl(b.Offset(mag, int64(127-f.Bias)<<f.Mantissa), b.Int(23-f.Mantissa))
	sub := b.Bits(b.Mul(b.Cast(man, expr.F32), b.F32(math.Ldexp(1, 1-f.Bias-f.Mantissa))), expr.S32)
	bits := b.Select(b.Lt(mag, b.Int(1<<f.Mantissa)), sub, normal)
	nan := b.Int(0x7fc00000)
	switch f.Special {
	case minifloat.IEEE:
		inf := (1<<f.Exponent - 1) << f.Mantissa
		bits = b.Select(b.Eq(mag, b.Int(inf)), b.Int(0x7f800000), b.Select(b.Lt(b.Int(inf), mag), nan, bits))
	case minifloat.OnlyNaN:
		bits = b.Select(b.Eq(mag, b.Int(1<<top-1)), nan, bits)
	case minifloat.NegZero:
		bits = b.Select(b.Eq(c, b.Int(1<<top)), nan, bits)
	}
	return b.Bits(b.Or(bits, sign), expr.F32)
}

// blockQuantize is ir.QuantizeBlocks for one element. Kernels that store whole blocks do without it: expr.StoreBlocks.
func blockQuantize(l *Lowering, n *ir.Node, out int, idx []*expr.Expr) *expr.Expr {
	b, last, scale := l.B, len(idx)-1, n.Attrs.Float("scale", 1)
	block := idx[last]
	if out == 0 {
		block = b.FloorDiv(block, ir.BlockSize)
	}
	vars := l.vars([]int{ir.BlockSize}, idx...)
	in := set(idx, last, b.Add(b.Scale(block, ir.BlockSize), vars[0]))
	top := b.Reduce(expr.Max, vars, b.Abs(l.Value(n.Inputs[0], in)))
	s := roundNarrow(b, b.Mul(top, b.F32(1/(minifloat.E2M1.Max()*scale))), ir.Float8E4M3FN, true)
	if out == 1 {
		return s
	}
	y := roundNarrow(b, b.Div(l.Value(n.Inputs[0], idx), b.Mul(s, b.F32(scale))), ir.Float4E2M1, true)
	return b.Select(b.Lt(b.F32(0), s), y, b.F32(0))
}

// encodeE8M0 is minifloat.EncodeE8M0 on an F32.
func encodeE8M0(b *expr.Builder, x *expr.Expr, direction string, saturate bool) *expr.Expr {
	x = b.Cast(x, expr.F32)
	tiny := b.Lt(x, b.F32(0x1p-126))
	bits := b.Bits(b.Select(tiny, b.Mul(x, b.F32(0x1p64)), x), expr.S32)
	frac := b.And(bits, b.Int(1<<23-1))
	e := b.Sub(b.ShrU(bits, b.Int(23)), b.Select(tiny, b.Int(64), b.Int(0)))
	least, greatest := b.Int(255), b.Int(255)
	if saturate {
		least, greatest = b.Int(0), b.Int(254)
	}
	below := b.F32(0x1p-127)
	under := least
	switch direction {
	case "up":
		e = b.Add(e, b.Cast(b.Lt(b.Int(0), frac), expr.S32))
		under = b.Select(b.Lt(b.F32(0), x), b.Int(0), least)
	case "nearest":
		e = b.Add(e, b.Cast(b.Le(b.Int(1<<22), frac), expr.S32))
		under = b.Select(b.Le(b.F32(0x1p-128), x), b.Int(0), least)
	}
	code := b.Select(b.Lt(x, below), under, b.Select(b.Lt(b.Int(254), e), greatest, e))
	return b.Select(b.Le(b.F32(0), x), code, b.Int(255))
}
