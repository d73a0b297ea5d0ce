package expr

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// val is the value of a scalar: i for integers and Pred, f for floats.
type val struct {
	i int64
	f float64
}

// fold computes an operation on constants. It reports false where the operation is not foldable.
func fold(op Op, t Type, args []*Expr) (val, bool) {
	vs := make([]val, len(args))
	for i, a := range args {
		vs[i] = val{a.I, a.F}
	}
	from := t
	if len(args) > 0 {
		from = args[0].Type
	}
	return compute(op, t, from, vs)
}

// compute is the meaning of the operations on scalars: t is the result's type, from the first argument's.
func compute(op Op, t, from Type, v []val) (val, bool) {
	var r val
	var ok bool
	switch {
	case op == OpSelect:
		r, ok = v[2], true
		if v[0].i != 0 {
			r = v[1]
		}
	case op == OpCast || op == OpCastU || op == OpBits:
		r, ok = convert(op, t, from, v[0])
	case from.IsFloat():
		r, ok = computeFloat(op, v)
	default:
		r, ok = computeInt(op, t, from, v)
	}
	if t == F32 {
		r.f = float64(float32(r.f))
	}
	r.i = wrap(t, r.i)
	return r, ok
}

// The meanings of the operations on floats, and on integers of 64 bits; fold wraps them to the type.
var (
	unaryFloat = map[Op]func(x float64) float64{
		OpNeg: func(x float64) float64 { return -x }, OpAbs: math.Abs, OpSqrt: math.Sqrt, OpEx2: ptx.Exp2,
		OpRound: math.RoundToEven, OpFloor: math.Floor, OpCeil: math.Ceil, OpTrunc: math.Trunc,
		OpRoundF16: roundTo(minifloat.Float16, false), OpRoundBF16: roundTo(minifloat.BFloat16, false), OpRoundE4M3: roundTo(minifloat.E4M3FN, true),
	}
	binaryFloat = map[Op]func(x, y float64) float64{
		OpAdd: func(x, y float64) float64 { return x + y },
		OpSub: func(x, y float64) float64 { return x - y },
		OpMul: func(x, y float64) float64 { return x * y },
		OpDiv: func(x, y float64) float64 { return x / y },
		OpMin: math.Min, OpMax: math.Max, OpCopySign: math.Copysign,
	}
	binaryInt = map[Op]func(x, y int64) int64{
		OpMul:  func(x, y int64) int64 { return x * y },
		OpDiv:  func(x, y int64) int64 { return quotient(x, y) },
		OpRem:  func(x, y int64) int64 { return x - y*quotient(x, y) },
		OpDivU: func(x, y int64) int64 { return int64(quotient(uint64(x), uint64(y))) },
		OpRemU: func(x, y int64) int64 { return x - y*int64(quotient(uint64(x), uint64(y))) },
		OpMin:  func(x, y int64) int64 { return min(x, y) },
		OpMax:  func(x, y int64) int64 { return max(x, y) },
		OpAbs:  func(x, _ int64) int64 { return max(x, -x) },
		OpAnd:  func(x, y int64) int64 { return x & y },
		OpOr:   func(x, y int64) int64 { return x | y },
		OpXor:  func(x, y int64) int64 { return x ^ y },
		OpShl:  func(x, y int64) int64 { return x << uint(y) },
		OpShr:  func(x, y int64) int64 { return x >> uint(y) },
	}
)

func roundTo(f *minifloat.Format, saturate bool) func(float64) float64 {
	return func(x float64) float64 { return f.Round(x, saturate) }
}

// quotient is 0 where y is 0.
func quotient[T int64 | uint64](x, y T) T {
	if y == 0 {
		return 0
	}
	return x / y
}

func truth(p bool) (val, bool) {
	if p {
		return val{i: 1}, true
	}
	return val{}, true
}

// compare is the meaning of the comparisons; of floats in IEEE order.
func compare[T int64 | float64](op Op, x, y T) (val, bool) {
	switch op {
	case OpEq:
		return truth(x == y)
	case OpNe:
		return truth(x != y)
	case OpLt:
		return truth(x < y)
	case OpLe:
		return truth(x <= y)
	}
	return val{}, false
}

func computeFloat(op Op, v []val) (val, bool) {
	x := v[0].f
	switch f, g := unaryFloat[op], binaryFloat[op]; {
	case f != nil:
		return val{f: f(x)}, true
	case g != nil:
		return val{f: g(x, v[1].f)}, true
	case op == OpFma:
		return val{f: math.FMA(x, v[1].f, v[2].f)}, true
	case op == OpBF16Bits:
		return val{i: int64(minifloat.BFloat16.Encode(x, false))}, true
	case len(v) < 2:
		return val{}, false
	}
	return compare(op, x, v[1].f)
}

func computeInt(op Op, t, from Type, v []val) (val, bool) {
	x, y := v[0].i, int64(0)
	if len(v) > 1 {
		y = v[1].i
	}
	switch f := binaryInt[op]; {
	case f != nil:
		return val{i: f(x, y)}, true
	case op == OpNot && t == Pred:
		return val{i: 1 - x}, true
	case op == OpNot:
		return val{i: ^x}, true
	case op == OpShrU && from == S32:
		return val{i: int64(uint32(x) >> uint(y))}, true
	case op == OpShrU:
		return val{i: int64(uint64(x) >> uint(y))}, true
	case op == OpLtU:
		return truth(uint64(x) < uint64(y))
	case op == OpF16Value:
		return val{f: minifloat.Float16.Decode(uint32(x) & 0xffff)}, true
	}
	return compare(op, x, y)
}

func convert(op Op, t, from Type, x val) (val, bool) {
	switch {
	case op == OpBits && t == F32:
		return val{f: float64(math.Float32frombits(uint32(x.i)))}, true
	case op == OpBits && t == S32:
		return val{i: int64(int32(math.Float32bits(float32(x.f))))}, true
	case op == OpBits && t == F64:
		return val{f: math.Float64frombits(uint64(x.i))}, true
	case op == OpBits:
		return val{i: int64(math.Float64bits(x.f))}, true
	case from.IsFloat() && t.IsFloat():
		return x, true
	case from.IsFloat() && op == OpCastU:
		switch {
		case !(x.f > 0):
			return val{}, true
		case x.f >= 1<<64:
			return val{i: -1}, true
		}
		return val{i: int64(uint64(x.f))}, true
	case from.IsFloat():
		lo, hi := typeRange(t)
		switch {
		case x.f != x.f:
			return val{}, true
		case x.f <= float64(lo):
			return val{i: lo}, true
		case x.f >= -float64(lo):
			return val{i: hi}, true
		}
		return val{i: int64(x.f)}, true
	case op == OpCastU && from == S32:
		return val{i: int64(uint32(x.i)), f: float64(uint32(x.i))}, true
	case op == OpCastU:
		if t == F32 {
			return val{f: float64(float32(uint64(x.i)))}, true
		}
		return val{f: float64(uint64(x.i))}, true
	}
	if t == F32 {
		return val{i: x.i, f: float64(float32(x.i))}, true
	}
	return val{i: x.i, f: float64(x.i)}, true
}
