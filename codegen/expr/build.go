package expr

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// Float returns a float constant, rounded to the type.
func (b *Builder) Float(t Type, f float64) *Expr {
	if t == F32 {
		f = float64(float32(f))
	}
	return b.intern(Expr{Op: OpConst, Type: t, F: f})
}

// F32 returns an F32 constant.
func (b *Builder) F32(f float64) *Expr { return b.Float(F32, f) }

// F64 returns an F64 constant.
func (b *Builder) F64(f float64) *Expr { return b.Float(F64, f) }

// Number returns the constant f of any type.
func (b *Builder) Number(t Type, f float64) *Expr {
	if t.IsFloat() {
		return b.Float(t, f)
	}
	return b.ConstInt(t, int64(f))
}

// Bool returns a Pred constant.
func (b *Builder) Bool(v bool) *Expr {
	if v {
		return b.ConstInt(Pred, 1)
	}
	return b.ConstInt(Pred, 0)
}

// node interns an operation, folding constants.
func (b *Builder) node(op Op, t Type, args ...*Expr) *Expr {
	foldable := op != OpEx2
	for _, a := range args {
		foldable = foldable && a.Op == OpConst
	}
	if foldable {
		if v, ok := fold(op, t, args); ok {
			if t.IsFloat() {
				return b.Float(t, v.f)
			}
			return b.ConstInt(t, v.i)
		}
	}
	return b.intern(Expr{Op: op, Type: t, Args: args})
}

func (e *Expr) isFloatConst(f float64) bool {
	return e.Op == OpConst && e.Type.IsFloat() && math.Float64bits(e.F) == math.Float64bits(f)
}

// Add is x+y; integers wrap.
func (b *Builder) Add(x, y *Expr) *Expr {
	if x.Type.IsInt() {
		return b.addInts(x, y, 1)
	}
	if neg := math.Copysign(0, -1); y.isFloatConst(neg) {
		return x
	} else if x.isFloatConst(neg) {
		return y
	}
	return b.node(OpAdd, x.Type, x, y)
}

// Sub is x-y; integers wrap.
func (b *Builder) Sub(x, y *Expr) *Expr {
	if x.Type.IsInt() {
		return b.addInts(x, y, -1)
	}
	if y.isFloatConst(0) {
		return x
	}
	return b.node(OpSub, x.Type, x, y)
}

// Mul is x·y; integers wrap.
func (b *Builder) Mul(x, y *Expr) *Expr {
	if x.Op == OpConst {
		x, y = y, x
	}
	if x.Type.IsInt() {
		if y.Op == OpConst {
			return b.Scale(x, y.I)
		}
		return b.node(OpMul, x.Type, x, y)
	}
	if y.isFloatConst(1) {
		return x
	}
	return b.node(OpMul, x.Type, x, y)
}

// Fma is x·y+z of floats with one rounding.
func (b *Builder) Fma(x, y, z *Expr) *Expr { return b.node(OpFma, x.Type, x, y, z) }

// Div is the correctly rounded quotient, or the truncated one of integers (0 where y is 0).
func (b *Builder) Div(x, y *Expr) *Expr {
	if y.isFloatConst(1) || y.Type.IsInt() && y.IsConstInt(1) {
		return x
	}
	if y.Type == F32 && y.Op == OpConst {
		// A power of two has an exact reciprocal.
		if frac, exp := math.Frexp(y.F); math.Abs(frac) == 0.5 && exp > -120 && exp < 120 {
			return b.Mul(x, b.F32(1/y.F))
		}
	}
	if x.Type.IsInt() && y.Op == OpConst && y.I > 0 && x.Lo >= 0 {
		return b.FloorDiv(x, y.I)
	}
	return b.node(OpDiv, x.Type, x, y)
}

// Rem is the remainder of the truncated division of integers; x where y is 0.
func (b *Builder) Rem(x, y *Expr) *Expr {
	if y.Op == OpConst && y.I > 0 && x.Lo >= 0 {
		return b.FloorMod(x, y.I)
	}
	return b.node(OpRem, x.Type, x, y)
}

// DivU and RemU divide unsigned 64-bit integers.
func (b *Builder) DivU(x, y *Expr) *Expr { return b.node(OpDivU, S64, x, y) }

// RemU is the remainder of DivU.
func (b *Builder) RemU(x, y *Expr) *Expr { return b.node(OpRemU, S64, x, y) }

// Min is the lesser; of floats NaN wins.
func (b *Builder) Min(x, y *Expr) *Expr { return b.extremum(OpMin, x, y) }

// Max is the greater; of floats NaN wins.
func (b *Builder) Max(x, y *Expr) *Expr { return b.extremum(OpMax, x, y) }

func (b *Builder) extremum(op Op, x, y *Expr) *Expr {
	if x == y {
		return x
	}
	lesser, greater := x, y
	if op == OpMax {
		lesser, greater = y, x
	}
	switch {
	case !x.Type.IsInt():
	case x.Hi <= y.Lo:
		return lesser
	case y.Hi <= x.Lo:
		return greater
	}
	return b.node(op, x.Type, x, y)
}

// Neg is -x.
func (b *Builder) Neg(x *Expr) *Expr {
	if x.Type.IsInt() {
		return b.Scale(x, -1)
	}
	if x.Op == OpNeg {
		return x.Args[0]
	}
	return b.node(OpNeg, x.Type, x)
}

// Abs is |x|.
func (b *Builder) Abs(x *Expr) *Expr {
	if x.Type.IsInt() && x.Lo >= 0 || x.Op == OpAbs {
		return x
	}
	return b.node(OpAbs, x.Type, x)
}

// Sqrt is the correctly rounded square root.
func (b *Builder) Sqrt(x *Expr) *Expr { return b.node(OpSqrt, x.Type, x) }

// Ex2Approx is the hardware's 2^x of an F32, accurate to 2 ulp.
func (b *Builder) Ex2Approx(x *Expr) *Expr { return b.node(OpEx2, F32, x) }

// Round is the nearest integral value, ties to even; Floor, Ceil and Trunc likewise.
func (b *Builder) Round(x *Expr) *Expr { return b.integral(OpRound, x) }

// Floor rounds down.
func (b *Builder) Floor(x *Expr) *Expr { return b.integral(OpFloor, x) }

// Ceil rounds up.
func (b *Builder) Ceil(x *Expr) *Expr { return b.integral(OpCeil, x) }

// Trunc rounds towards zero.
func (b *Builder) Trunc(x *Expr) *Expr { return b.integral(OpTrunc, x) }

func (b *Builder) integral(op Op, x *Expr) *Expr {
	if x.Type.IsInt() {
		return x
	}
	return b.node(op, x.Type, x)
}

// CopySign has the magnitude of x and the sign of y.
func (b *Builder) CopySign(x, y *Expr) *Expr { return b.node(OpCopySign, x.Type, x, y) }

// RoundF16 rounds an F32 to the nearest f16 value.
func (b *Builder) RoundF16(x *Expr) *Expr {
	if x.isF16() {
		return x
	}
	return b.node(OpRoundF16, F32, x)
}

// RoundBF16 rounds an F32 to the nearest bf16 value.
func (b *Builder) RoundBF16(x *Expr) *Expr {
	if x.Op == OpRoundBF16 || x.Op == OpLoad && x.DType == ir.BFloat16 {
		return x
	}
	return b.node(OpRoundBF16, F32, x)
}

// isF16 reports whether a node's value is an f16 value already.
func (e *Expr) isF16() bool {
	switch e.Op {
	case OpRoundF16, OpF16Value:
		return true
	case OpLoad:
		return e.DType == ir.Float16 && (len(e.Args) == 1 || e.Args[2].isF16())
	case OpConst:
		v := minifloat.Float16.Round(e.F, false)
		return math.Float64bits(v) == math.Float64bits(e.F)
	case OpNeg, OpAbs:
		return e.Args[0].isF16()
	case OpMin, OpMax:
		return e.Args[0].isF16() && e.Args[1].isF16()
	case OpSelect:
		return e.Args[1].isF16() && e.Args[2].isF16()
	}
	return false
}

// F16Bits converts an F32 to f16 and returns the bits as S32; BF16Bits likewise.
func (b *Builder) F16Bits(x *Expr) *Expr { return b.node(OpF16Bits, S32, x) }

// BF16Bits converts an F32 to bf16 and returns the bits as S32.
func (b *Builder) BF16Bits(x *Expr) *Expr { return b.node(OpBF16Bits, S32, x) }

// F16Value is the value of an f16 given by its bits.
func (b *Builder) F16Value(x *Expr) *Expr { return b.node(OpF16Value, F32, x) }

// And is the conjunction of Preds or the bitwise and of integers.
func (b *Builder) And(x, y *Expr) *Expr {
	if x.Op == OpConst {
		x, y = y, x
	}
	if x == y {
		return x
	}
	if x.Type == Pred && y.Op == OpConst {
		if y.I != 0 {
			return x
		}
		return y
	}
	return b.node(OpAnd, x.Type, x, y)
}

// Or is the disjunction of Preds or the bitwise or of integers.
func (b *Builder) Or(x, y *Expr) *Expr {
	if x.Op == OpConst {
		x, y = y, x
	}
	if x == y {
		return x
	}
	if y.IsConstInt(0) {
		return x
	}
	if x.Type == Pred && y.IsConstInt(1) {
		return y
	}
	return b.node(OpOr, x.Type, x, y)
}

// Xor is exclusive or of Preds or integers.
func (b *Builder) Xor(x, y *Expr) *Expr { return b.node(OpXor, x.Type, x, y) }

// Not is the complement of a Pred or an integer.
func (b *Builder) Not(x *Expr) *Expr {
	if x.Op == OpNot {
		return x.Args[0]
	}
	return b.node(OpNot, x.Type, x)
}

// Shl shifts left by an S32 amount less than the width.
func (b *Builder) Shl(x, n *Expr) *Expr { return b.shift(OpShl, x, n) }

// Shr shifts right, arithmetically.
func (b *Builder) Shr(x, n *Expr) *Expr { return b.shift(OpShr, x, n) }

// ShrU shifts right, filling with zeros.
func (b *Builder) ShrU(x, n *Expr) *Expr { return b.shift(OpShrU, x, n) }

func (b *Builder) shift(op Op, x, n *Expr) *Expr {
	if n.IsConstInt(0) {
		return x
	}
	return b.node(op, x.Type, x, n)
}

// Eq is x = y.
func (b *Builder) Eq(x, y *Expr) *Expr {
	if x.Type.IsInt() {
		if x == y {
			return b.Bool(true)
		}
		if x.Hi < y.Lo || y.Hi < x.Lo {
			return b.Bool(false)
		}
	}
	if x.Type == Pred {
		return b.Not(b.Xor(x, y))
	}
	return b.node(OpEq, Pred, x, y)
}

// Ne is x ≠ y, true of NaN.
func (b *Builder) Ne(x, y *Expr) *Expr {
	if x.Type.IsInt() {
		return b.Not(b.Eq(x, y))
	}
	return b.node(OpNe, Pred, x, y)
}

// IsNaN holds for NaN.
func (b *Builder) IsNaN(x *Expr) *Expr { return b.Ne(x, x) }

// Lt is x < y.
func (b *Builder) Lt(x, y *Expr) *Expr {
	if x.Type.IsInt() {
		if x.Hi < y.Lo {
			return b.Bool(true)
		}
		if x.Lo >= y.Hi {
			return b.Bool(false)
		}
	}
	return b.node(OpLt, Pred, x, y)
}

// Le is x ≤ y.
func (b *Builder) Le(x, y *Expr) *Expr {
	if x.Type.IsInt() {
		if x.Hi <= y.Lo {
			return b.Bool(true)
		}
		if x.Lo > y.Hi {
			return b.Bool(false)
		}
	}
	return b.node(OpLe, Pred, x, y)
}

// LtU is x < y of unsigned 64-bit integers.
func (b *Builder) LtU(x, y *Expr) *Expr { return b.node(OpLtU, Pred, x, y) }

// Within is lo ≤ x < hi of integers.
func (b *Builder) Within(x *Expr, lo, hi int64) *Expr {
	return b.And(b.Le(b.ConstInt(x.Type, lo), x), b.Lt(x, b.ConstInt(x.Type, hi)))
}

// Select is p ? x : y.
func (b *Builder) Select(p, x, y *Expr) *Expr {
	switch {
	case p.IsConstInt(1) || x == y:
		return x
	case p.IsConstInt(0):
		return y
	case p.Op == OpNot:
		return b.Select(p.Args[0], y, x)
	case x.Type == Pred:
		return b.Or(b.And(p, x), b.And(b.Not(p), y))
	}
	return b.node(OpSelect, x.Type, p, x, y)
}

// Cast converts between types; float to integer truncates and saturates, NaN becomes 0; S64 to S32 wraps; to Pred is
// ≠ 0.
func (b *Builder) Cast(x *Expr, t Type) *Expr {
	if x.Type == t {
		return x
	}
	if t == Pred {
		return b.Ne(x, b.Zero(x.Type))
	}
	if x.Op == OpCast && x.Args[0].Type == t && (t == S32 || t == F32) && x.Type.IsInt() == t.IsInt() {
		return x.Args[0] // converted from it before
	}
	return b.node(OpCast, t, x)
}

// CastU converts reading or making unsigned integers: S64 → float, float → S64, S32 → S64.
func (b *Builder) CastU(x *Expr, t Type) *Expr {
	if x.Type == t {
		return x
	}
	if x.Type == S32 && x.Lo >= 0 {
		return b.Cast(x, t)
	}
	return b.node(OpCastU, t, x)
}

// Bits reinterprets S32↔F32 or S64↔F64.
func (b *Builder) Bits(x *Expr, t Type) *Expr {
	if x.Type == t {
		return x
	}
	return b.node(OpBits, t, x)
}

// Rebuild makes the node e again with other arguments, through the simplifying constructors.
func (b *Builder) Rebuild(e *Expr, args []*Expr) *Expr {
	switch e.Op {
	case OpConst, OpVar:
		return e
	case OpLoad:
		if len(args) == 3 {
			return b.Load(int(e.I), args[0], e.DType, args[1], args[2])
		}
		return b.Load(int(e.I), args[0], e.DType, nil, nil)
	case OpReduce:
		return b.Reduce(e.Red, e.Vars, args[0])
	case OpAffine:
		s := sum{t: e.Type, k: e.I}
		for i, a := range args {
			s.addExpr(a, e.Coef[i])
		}
		return b.affine(s)
	case OpFloorDiv:
		return b.FloorDiv(args[0], e.I)
	case OpFloorMod:
		return b.FloorMod(args[0], e.I)
	case OpNot:
		return b.Not(args[0])
	case OpAbs:
		return b.Abs(args[0])
	case OpSelect:
		return b.Select(args[0], args[1], args[2])
	case OpCast:
		return b.Cast(args[0], e.Type)
	}
	if f := simplifying[e.Op]; f != nil {
		return f(b, args[0], args[1])
	}
	return b.node(e.Op, e.Type, args...)
}

// simplifying are the constructors of two arguments that do more than make a node.
var simplifying = map[Op]func(b *Builder, x, y *Expr) *Expr{
	OpMul: (*Builder).Mul, OpAdd: (*Builder).Add, OpSub: (*Builder).Sub, OpDiv: (*Builder).Div, OpRem: (*Builder).Rem,
	OpMin: (*Builder).Min, OpMax: (*Builder).Max, OpAnd: (*Builder).And, OpOr: (*Builder).Or,
	OpEq: (*Builder).Eq, OpLt: (*Builder).Lt, OpLe: (*Builder).Le,
}

// Subst replaces variables in e, simplifying again. memo may be shared between calls with equal replacements; nil is
// fine.
func (b *Builder) Subst(e *Expr, with map[*Expr]*Expr, memo map[*Expr]*Expr) *Expr {
	if memo == nil {
		memo = map[*Expr]*Expr{}
	}
	var touched varSet
	for v := range with {
		touched.add(int(v.I))
	}
	return b.subst(e, with, &touched, memo)
}

func (b *Builder) subst(e *Expr, with map[*Expr]*Expr, touched *varSet, memo map[*Expr]*Expr) *Expr {
	if r := with[e]; r != nil {
		return r
	}
	var common varSet
	for i := range common {
		common[i] = e.free[i] & touched[i]
	}
	if common.empty() {
		return e
	}
	if r := memo[e]; r != nil {
		return r
	}
	args := make([]*Expr, len(e.Args))
	for i, a := range e.Args {
		args[i] = b.subst(a, with, touched, memo)
	}
	r := b.Rebuild(e, args)
	memo[e] = r
	return r
}
