package expr

import (
	"math"
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
		r, ok = computeFloat(op, t, from, v)
	default:
		r, ok = computeInt(op, t, from, v)
	}
	if t == F32 {
		r.f = float64(float32(r.f))
	}
	r.i = wrap(t, r.i)
	return r, ok
}

func truth(p bool) val {
	if p {
		return val{i: 1}
	}
	return val{}
}

func computeFloat(op Op, t, from Type, v []val) (val, bool) {
	x := v[0].f
	var y float64
	if len(v) > 1 {
		y = v[1].f
	}
	f := func(f float64) (val, bool) { return val{f: f}, true }
	switch op {
	case OpAdd:
		return f(x + y)
	case OpSub:
		return f(x - y)
	case OpMul:
		return f(x * y)
	case OpFma:
		return f(math.FMA(x, y, v[2].f))
	case OpDiv:
		return f(x / y)
	case OpMin:
		return f(math.Min(x, y))
	case OpMax:
		return f(math.Max(x, y))
	case OpNeg:
		return f(-x)
	case OpAbs:
		return f(math.Abs(x))
	case OpSqrt:
		return f(math.Sqrt(x))
	case OpEx2:
		return f(math.Exp2(x))
	case OpRound:
		return f(math.RoundToEven(x))
	case OpFloor:
		return f(math.Floor(x))
	case OpCeil:
		return f(math.Ceil(x))
	case OpTrunc:
		return f(math.Trunc(x))
	case OpCopySign:
		return f(math.Copysign(x, y))
	case OpRoundF16:
		return f(roundF16(x))
	case OpRoundBF16:
		return f(roundBF16(x))
	case OpRoundE4M3:
		return f(roundE4M3(x))
	case OpBF16Bits:
		return val{i: int64(math.Float32bits(float32(roundBF16(x))) >> 16)}, true
	case OpEq:
		return truth(x == y), true
	case OpNe:
		return truth(x != y), true
	case OpLt:
		return truth(x < y), true
	case OpLe:
		return truth(x <= y), true
	}
	return val{}, false
}

func computeInt(op Op, t, from Type, v []val) (val, bool) {
	x := v[0].i
	var y int64
	if len(v) > 1 {
		y = v[1].i
	}
	n := func(i int64) (val, bool) { return val{i: i}, true }
	switch op {
	case OpMul:
		return n(x * y)
	case OpDiv:
		if y == 0 {
			return n(0)
		}
		return n(x / y)
	case OpRem:
		if y == 0 {
			return n(x)
		}
		return n(x % y)
	case OpDivU:
		if y == 0 {
			return n(0)
		}
		return n(int64(uint64(x) / uint64(y)))
	case OpRemU:
		if y == 0 {
			return n(x)
		}
		return n(int64(uint64(x) % uint64(y)))
	case OpMin:
		return n(min(x, y))
	case OpMax:
		return n(max(x, y))
	case OpAbs:
		return n(max(x, -x))
	case OpAnd:
		return n(x & y)
	case OpOr:
		return n(x | y)
	case OpXor:
		return n(x ^ y)
	case OpNot:
		if t == Pred {
			return n(1 - x)
		}
		return n(^x)
	case OpShl:
		return n(x << uint(y))
	case OpShr:
		return n(x >> uint(y))
	case OpShrU:
		if from == S32 {
			return n(int64(uint32(x) >> uint(y)))
		}
		return n(int64(uint64(x) >> uint(y)))
	case OpEq:
		return truth(x == y), true
	case OpNe:
		return truth(x != y), true
	case OpLt:
		return truth(x < y), true
	case OpLe:
		return truth(x <= y), true
	case OpLtU:
		return truth(uint64(x) < uint64(y)), true
	case OpF16Value:
		return val{f: f16Value(uint16(x))}, true
	}
	return val{}, false
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

// roundF16 is the nearest f16 value, ties to even.
func roundF16(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || x != x {
		return x
	}
	_, e := math.Frexp(x)
	ulp := math.Ldexp(1, max(e-11, -24))
	r := math.RoundToEven(x/ulp) * ulp
	if math.Abs(r) >= 65536 {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return r
}

func roundBF16(x float64) float64 {
	u := math.Float32bits(float32(x))
	if x != x {
		return x
	}
	u += 0x7fff + u>>16&1
	return float64(math.Float32frombits(u &^ 0xffff))
}

func f16Value(h uint16) float64 {
	sign, e, m := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch e {
	case 0:
		return sign * math.Ldexp(m, -24)
	case 31:
		if m != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+m, e-25)
}
