package lower

import (
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// scalar computes an elementwise op on values at one index, before rounding.
type scalar func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr

// scalars are the rules of the elementwise ops whose operands broadcast.
var scalars = map[string]scalar{
	"Abs":     ofSigned((*expr.Builder).Abs),
	"Neg":     monadic((*expr.Builder).Neg),
	"Sign":    sign,
	"Ceil":    monadic((*expr.Builder).Ceil),
	"Floor":   monadic((*expr.Builder).Floor),
	"Round":   monadic((*expr.Builder).Round),
	"Sqrt":    monadic((*expr.Builder).Sqrt),
	"Exp":     monadic((*expr.Builder).Exp),
	"Log":     monadic((*expr.Builder).Log),
	"Log1p":   monadic((*expr.Builder).Log1p),
	"Sin":     monadic((*expr.Builder).Sin),
	"Cos":     monadic((*expr.Builder).Cos),
	"Tan":     monadic((*expr.Builder).Tan),
	"Asin":    monadic((*expr.Builder).Asin),
	"Acos":    monadic((*expr.Builder).Acos),
	"Atan":    monadic((*expr.Builder).Atan),
	"Sinh":    monadic((*expr.Builder).Sinh),
	"Cosh":    monadic((*expr.Builder).Cosh),
	"Tanh":    monadic((*expr.Builder).Tanh),
	"Asinh":   monadic((*expr.Builder).Asinh),
	"Acosh":   monadic((*expr.Builder).Acosh),
	"Atanh":   monadic((*expr.Builder).Atanh),
	"Erf":     monadic((*expr.Builder).Erf),
	"Sigmoid": monadic((*expr.Builder).Sigmoid),
	"Relu":    ofSigned(func(b *expr.Builder, x *expr.Expr) *expr.Expr { return b.Max(x, b.Zero(x.Type)) }),
	"Silu": monadic(func(b *expr.Builder, x *expr.Expr) *expr.Expr {
		return b.Div(x, b.Add(b.Exp(b.Neg(x)), b.Float(x.Type, 1)))
	}),
	"Gelu":   gelu,
	"Not":    monadic((*expr.Builder).Not),
	"BitNot": monadic((*expr.Builder).Not),
	"IsNaN":  monadic((*expr.Builder).IsNaN),
	"IsInf":  isInf,
	"Cast": func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
		return Convert(b, x[0], n.Inputs[0].Type.DType, n.Attrs.DType("to"), n.Flag("saturate"), n.Attrs.String("round", "nearest"))
	},
	"BitCast": func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
		return fromBits(b, toBits(b, x[0], n.Inputs[0].Type.DType), n.Attrs.DType("to"))
	},

	"Add": dyadic((*expr.Builder).Add),
	"Sub": dyadic((*expr.Builder).Sub),
	"Mul": dyadic((*expr.Builder).Mul),
	"Div": orUnsigned((*expr.Builder).Div, (*expr.Builder).DivU),
	"Mod": mod,
	"Pow": func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
		return pow(b, x[0], x[1], n.Inputs[0].Type.DType, n.Inputs[1].Type.DType)
	},
	"Min": orUnsigned((*expr.Builder).Min, func(b *expr.Builder, x, y *expr.Expr) *expr.Expr { return b.Select(b.LtU(y, x), y, x) }),
	"Max": orUnsigned((*expr.Builder).Max, func(b *expr.Builder, x, y *expr.Expr) *expr.Expr { return b.Select(b.LtU(x, y), y, x) }),
	"And": dyadic((*expr.Builder).And), "BitAnd": dyadic((*expr.Builder).And),
	"Or": dyadic((*expr.Builder).Or), "BitOr": dyadic((*expr.Builder).Or),
	"Xor": dyadic((*expr.Builder).Xor), "BitXor": dyadic((*expr.Builder).Xor),
	"ShiftLeft":  shift,
	"ShiftRight": shift,
	"Equal":      dyadic((*expr.Builder).Eq),
	"Less":       compare(func(b *expr.Builder, d ir.DType, x, y *expr.Expr) *expr.Expr { return less(b, x, y, d) }),
	"LessEqual":  compare(func(b *expr.Builder, d ir.DType, x, y *expr.Expr) *expr.Expr { return lessEqual(b, x, y, d) }),
	"Where":      func(b *expr.Builder, _ *ir.Node, x []*expr.Expr) *expr.Expr { return b.Select(x[0], x[1], x[2]) },
}

var _ = register(elementwiseRules())

func elementwiseRules() map[string]rule {
	rules := map[string]rule{"QuantizeLinear": quantize, "DequantizeLinear": dequantize}
	for op := range scalars {
		rules[op] = elementwise
	}
	return rules
}

func monadic(f func(b *expr.Builder, x *expr.Expr) *expr.Expr) scalar {
	return func(b *expr.Builder, _ *ir.Node, x []*expr.Expr) *expr.Expr { return f(b, x[0]) }
}

// ofSigned is a function that is the identity on unsigned integers.
func ofSigned(f func(b *expr.Builder, x *expr.Expr) *expr.Expr) scalar {
	return func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
		if !n.Inputs[0].Type.DType.IsSigned() {
			return x[0]
		}
		return f(b, x[0])
	}
}

func dyadic(f func(b *expr.Builder, x, y *expr.Expr) *expr.Expr) scalar { return orUnsigned(f, f) }

// orUnsigned is g on u64, f on every other type.
func orUnsigned(f, g func(b *expr.Builder, x, y *expr.Expr) *expr.Expr) scalar {
	return func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
		if n.Inputs[0].Type.DType == ir.Uint64 {
			return g(b, x[0], x[1])
		}
		return f(b, x[0], x[1])
	}
}

func compare(f func(b *expr.Builder, d ir.DType, x, y *expr.Expr) *expr.Expr) scalar {
	return func(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
		return f(b, n.Inputs[0].Type.DType, x[0], x[1])
	}
}

// elementwise evaluates the inputs at the broadcast index, then the op, then rounds to the output's type.
func elementwise(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	xs := make([]*expr.Expr, len(n.Inputs))
	for i, v := range n.Inputs {
		xs[i] = l.at(v, idx)
	}
	e := scalars[n.Op.Name](l.B, n, xs)
	switch n.Op.Name {
	case "Cast", "BitCast", "Where":
		return e
	}
	if n.Op.Exact && e.Type.IsFloat() {
		return e
	}
	return Round(l.B, e, n.Outputs[0].Type.DType)
}

func sign(b *expr.Builder, n *ir.Node, xs []*expr.Expr) *expr.Expr {
	x := xs[0]
	zero, one, minus := b.Zero(x.Type), b.Number(x.Type, 1), b.Number(x.Type, -1)
	switch d := n.Inputs[0].Type.DType; {
	case d == ir.Uint64:
		return b.Select(b.Eq(x, zero), zero, one)
	case d.IsFloat():
		return b.Select(b.Lt(zero, x), one, b.Select(b.Lt(x, zero), minus, b.Add(x, zero)))
	}
	return b.Select(b.Lt(zero, x), one, b.Select(b.Lt(x, zero), minus, zero))
}

func gelu(b *expr.Builder, n *ir.Node, xs []*expr.Expr) *expr.Expr {
	x, t := xs[0], xs[0].Type
	one, half := b.Float(t, 1), b.Float(t, 0.5)
	if n.Flag("tanh") {
		cube := b.Mul(b.Mul(x, x), x)
		inner := b.Mul(b.Fma(cube, b.Float(t, 0.044715), x), b.Float(t, math.Sqrt(2/math.Pi)))
		return b.Mul(b.Mul(half, x), b.Add(b.Tanh(inner), one))
	}
	return b.Mul(b.Mul(half, x), b.Add(b.Erf(b.Mul(x, b.Float(t, 1/n.Attrs.Float("sqrt2", math.Sqrt2)))), one))
}

func isInf(b *expr.Builder, n *ir.Node, x []*expr.Expr) *expr.Expr {
	is := func(attr string, sign int) *expr.Expr {
		if !n.Flag(attr) {
			return b.Bool(false)
		}
		return b.Eq(x[0], b.Float(x[0].Type, math.Inf(sign)))
	}
	return b.Or(is("positive", 1), is("negative", -1))
}

// shift yields 0 for amounts of the width or more.
func shift(b *expr.Builder, n *ir.Node, xs []*expr.Expr) *expr.Expr {
	x, y, d := xs[0], xs[1], n.Inputs[0].Type.DType
	fits := b.Within(y, 0, int64(d.Bits()))
	by := b.Cast(b.Select(fits, y, b.Zero(y.Type)), expr.S32)
	var e *expr.Expr
	switch {
	case n.Op.Name == "ShiftLeft":
		e = b.Shl(x, by)
	case d == ir.Uint64:
		e = b.ShrU(x, by)
	default:
		e = b.Shr(x, by)
	}
	return b.Select(fits, e, b.Zero(x.Type))
}

func less(b *expr.Builder, x, y *expr.Expr, d ir.DType) *expr.Expr {
	if d == ir.Uint64 {
		return b.LtU(x, y)
	}
	return b.Lt(x, y)
}

// lessEqual is not the negation of the mirrored less for floats: NaN is neither.
func lessEqual(b *expr.Builder, x, y *expr.Expr, d ir.DType) *expr.Expr {
	if x.Type.IsFloat() {
		return b.Le(x, y)
	}
	return b.Not(less(b, y, x, d))
}

// mod has the divisor's sign, with fmod the dividend's; integers modulo 0 are 0.
func mod(b *expr.Builder, n *ir.Node, xs []*expr.Expr) *expr.Expr {
	x, y, d, fmod := xs[0], xs[1], n.Inputs[0].Type.DType, n.Flag("fmod")
	if x.Type.IsFloat() {
		t := x.Type
		y64 := b.Cast(y, expr.F64)
		r := b.ModFloat(b.Cast(x, expr.F64), y64)
		if !fmod {
			zero := b.F64(0)
			differ := b.And(b.Ne(r, zero), b.Xor(b.Lt(r, zero), b.Lt(y64, zero)))
			r = b.Select(differ, b.Add(r, y64), r)
		}
		return b.Cast(r, t)
	}
	zero := b.Zero(x.Type)
	r := b.Rem(x, y)
	if d == ir.Uint64 {
		r = b.RemU(x, y)
	} else if !fmod && d.IsSigned() {
		differ := b.And(b.Ne(r, zero), b.Xor(b.Lt(r, zero), b.Lt(y, zero)))
		r = b.Select(differ, b.Add(r, y), r)
	}
	return b.Select(b.Eq(y, zero), zero, r)
}

func pow(b *expr.Builder, x, y *expr.Expr, d, dy ir.DType) *expr.Expr {
	if !d.IsFloat() && !dy.IsFloat() {
		return b.PowInt(x, y, dy.IsSigned())
	}
	if d.IsFloat() {
		if !dy.IsFloat() || y.Type != x.Type {
			y = Convert(b, y, dy, map[bool]ir.DType{true: ir.Float64, false: ir.Float32}[x.Type == expr.F64], false, "nearest")
		}
		return b.Pow(x, y)
	}
	r := b.Pow(Convert(b, x, d, ir.Float64, false, "nearest"), b.Cast(y, expr.F64))
	return Convert(b, r, ir.Float64, d, false, "nearest")
}

// Convert is the op Cast: float to integer truncates, then saturates to the type, but to at least 32 bits, of which
// narrower integers keep the low ones; NaN becomes 0, or true.
func Convert(b *expr.Builder, x *expr.Expr, from, to ir.DType, saturate bool, direction string) *expr.Expr {
	t := Type(to)
	switch {
	case to == ir.Bool:
		if from == ir.Bool {
			return x
		}
		return b.Ne(x, b.Zero(x.Type))
	case to == ir.Float8E8M0:
		return decodeNarrow(b, encodeE8M0(b, asFloat(b, x, from, expr.F32), direction, saturate), to)
	case b.Converts(to) && saturate:
		return b.RoundE4M3(asFloat(b, x, from, expr.F32))
	case to.IsFloat() && to.Bits() <= 8:
		return roundNarrow(b, asFloat(b, x, from, expr.F32), to, saturate)
	case to.IsFloat():
		return Round(b, asFloat(b, x, from, t), to)
	case from.IsFloat():
		return floatToInt(b, x, to)
	}
	if x.Type == expr.S64 && t == expr.S32 || x.Type != t {
		x = b.Cast(x, t)
	}
	return wrapInt(b, x, to)
}

func asFloat(b *expr.Builder, x *expr.Expr, from ir.DType, t expr.Type) *expr.Expr {
	if from == ir.Uint64 {
		return b.CastU(x, t)
	}
	return b.Cast(x, t)
}

func floatToInt(b *expr.Builder, x *expr.Expr, to ir.DType) *expr.Expr {
	t := Type(to)
	var e *expr.Expr
	switch {
	case to == ir.Uint64:
		e = b.Select(b.Lt(x, b.Zero(x.Type)), b.Cast(x, expr.S64), b.CastU(x, expr.S64))
	default:
		e = b.Cast(x, t)
	}
	if x.Type != expr.F32 || t != expr.S32 {
		// Only f32 → s32 makes 0 of NaN by itself (PTX ISA, cvt).
		e = b.Select(b.IsNaN(x), b.Zero(t), e)
	}
	return wrapInt(b, e, to)
}

// toBits is the pattern of a value as S32 or S64.
func toBits(b *expr.Builder, x *expr.Expr, d ir.DType) *expr.Expr {
	switch d {
	case ir.Bool:
		return b.Cast(x, expr.S32)
	case ir.Float16:
		return b.F16Bits(x)
	case ir.BFloat16:
		return b.BF16Bits(x)
	case ir.Float32:
		return b.Bits(x, expr.S32)
	case ir.Float64:
		return b.Bits(x, expr.S64)
	case ir.Uint32:
		return b.Cast(x, expr.S32)
	}
	if d.IsFloat() {
		return encodeNarrow(b, x, d, false)
	}
	return x
}

func fromBits(b *expr.Builder, x *expr.Expr, d ir.DType) *expr.Expr {
	switch d {
	case ir.Bool:
		return b.Ne(b.And(x, b.Int(255)), b.Int(0))
	case ir.Float16:
		return b.F16Value(b.And(x, b.Int(0xffff)))
	case ir.BFloat16:
		return b.Bits(b.Shl(x, b.Int(16)), expr.F32)
	case ir.Float32:
		return b.Bits(x, expr.F32)
	case ir.Float64:
		return b.Bits(x, expr.F64)
	case ir.Uint32:
		return b.CastU(x, expr.S64)
	}
	if d.IsFloat() {
		return decodeNarrow(b, b.And(x, b.Int(1<<d.Bits()-1)), d)
	}
	return wrapInt(b, x, d)
}

// scaleAt is the index into scale and zero of a quantisation.
func scaleAt(l *Lowering, n *ir.Node, idx []*expr.Expr) []*expr.Expr {
	s := n.Inputs[1].Type
	axis, block := n.Attrs.Int("axis", 1), n.Attrs.Int("block", 0)
	switch {
	case s.Rank() == 0:
		return nil
	case block == 0 && s.Numel() == 1:
		return []*expr.Expr{l.B.Int(0)}
	case block == 0:
		return []*expr.Expr{idx[axis]}
	}
	return set(idx, axis, l.B.FloorDiv(idx[axis], int64(block)))
}

func quantize(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	k := scaleAt(l, n, idx)
	sd := n.Inputs[1].Type.DType
	scale := l.Value(n.Inputs[1], k)
	q := Round(b, b.Div(asFloat(b, l.Value(n.Inputs[0], idx), n.Inputs[0].Type.DType, scale.Type), scale), sd)
	out := n.Outputs[0].Type.DType
	zero := b.Float(q.Type, 0)
	if z := n.In(2); z != nil {
		zero = asFloat(b, l.Value(z, k), z.Type.DType, q.Type)
	}
	if out.IsFloat() {
		return roundNarrow(b, b.Add(q, zero), out, n.Flag("saturate"))
	}
	e := floatToInt(b, b.Add(b.Round(q), zero), ir.Int32)
	lo, hi := minifloat.Range(out.Bits(), out.IsSigned())
	return b.Min(b.Max(e, b.ConstInt(e.Type, lo)), b.ConstInt(e.Type, hi))
}

func dequantize(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	k := scaleAt(l, n, idx)
	out := n.Outputs[0].Type.DType
	scale := l.Value(n.Inputs[1], k)
	t := expr.F32
	if out == ir.Float64 || scale.Type == expr.F64 {
		t = expr.F64
	}
	d := n.Inputs[0].Type.DType
	x := l.Value(n.Inputs[0], idx)
	if z := n.In(2); z != nil {
		y := l.Value(z, k)
		if x.Type.IsInt() {
			x = b.Sub(b.Cast(x, expr.S64), b.Cast(y, expr.S64)) // exact
			d = ir.Int64
		} else {
			x = b.Sub(x, y)
		}
	}
	y := b.Mul(asFloat(b, x, d, t), b.Cast(scale, t))
	return Round(b, b.Cast(y, Type(out)), out)
}
