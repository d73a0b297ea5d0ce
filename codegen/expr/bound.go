package expr

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// bound sets range and known divisor of a new integer or Pred node.
func (b *Builder) bound(e *Expr) {
	e.Lo, e.Hi = typeRange(e.Type)
	e.mult = 1
	if e.Type == Pred {
		if e.Op == OpConst {
			e.Lo, e.Hi = e.I, e.I
		}
		return
	}
	a := func(i int) *Expr { return e.Args[i] }
	switch e.Op {
	case OpConst:
		e.Lo, e.Hi, e.mult = e.I, e.I, gcd(e.I, 0)
	case OpLoad:
		e.Lo, e.Hi = loadRange(e.DType, e.Type)
		if len(e.Args) == 3 {
			e.Lo, e.Hi = min(e.Lo, a(2).Lo), max(e.Hi, a(2).Hi)
		}
	case OpAffine:
		e.boundAffine()
	case OpMul:
		e.boundProduct(a(0), a(1))
	case OpFloorDiv:
		e.Lo, e.Hi = floorDiv(a(0).Lo, e.I), floorDiv(a(0).Hi, e.I)
		if a(0).mult%e.I == 0 {
			e.mult = a(0).mult / e.I
		}
	case OpFloorMod:
		e.Lo, e.Hi, e.mult = 0, e.I-1, gcd(a(0).mult, e.I)
	case OpMin:
		e.Lo, e.Hi, e.mult = min(a(0).Lo, a(1).Lo), min(a(0).Hi, a(1).Hi), gcd(a(0).mult, a(1).mult)
	case OpMax:
		e.Lo, e.Hi, e.mult = max(a(0).Lo, a(1).Lo), max(a(0).Hi, a(1).Hi), gcd(a(0).mult, a(1).mult)
	case OpSelect:
		e.Lo, e.Hi, e.mult = min(a(1).Lo, a(2).Lo), max(a(1).Hi, a(2).Hi), gcd(a(1).mult, a(2).mult)
	case OpAnd:
		if m := max(a(0).Lo, a(1).Lo); m >= 0 {
			// A non-negative operand bounds the result.
			e.Lo, e.Hi = 0, math.MaxInt64
			for _, x := range e.Args {
				if x.Lo >= 0 {
					e.Hi = min(e.Hi, x.Hi)
				}
			}
		}
	case OpShr, OpShrU:
		if a(1).Op == OpConst && (e.Op == OpShr || a(0).Lo >= 0) {
			e.Lo, e.Hi = a(0).Lo>>uint(a(1).I), a(0).Hi>>uint(a(1).I)
		}
	case OpDiv:
		if c := a(1); c.Op == OpConst && c.I > 0 {
			e.Lo, e.Hi = a(0).Lo/c.I, a(0).Hi/c.I
		}
	case OpRem:
		if c := a(1); c.Op == OpConst && c.I > 0 {
			e.Lo, e.Hi = 1-c.I, c.I-1
			if a(0).Lo >= 0 {
				e.Lo = 0
			}
		}
	case OpCast:
		switch from := a(0); {
		case from.Type == Pred:
			e.Lo, e.Hi = 0, 1
		case from.Type.IsInt() && from.Lo >= e.Lo && from.Hi <= e.Hi:
			e.Lo, e.Hi, e.mult = from.Lo, from.Hi, from.mult
		}
	case OpCastU:
		if a(0).Type == S32 {
			e.Lo, e.Hi = 0, math.MaxUint32
		}
	case OpReduce:
		if e.Red == Max || e.Red == Min {
			e.Lo, e.Hi = a(0).Lo, a(0).Hi
		}
	case OpF16Bits, OpBF16Bits:
		e.Lo, e.Hi = 0, 0xffff
	}
}

// boundAffine bounds a sum of multiples.
func (e *Expr) boundAffine() {
	lo, hi, ok := affineRange(e)
	if !ok {
		return
	}
	e.Lo, e.Hi, e.mult = lo, hi, gcd(e.I, 0)
	for i, x := range e.Args {
		m, ok := mulOK(e.Coef[i], x.mult)
		if !ok {
			m = 1
		}
		e.mult = gcd(e.mult, m)
	}
}

// boundProduct bounds a product, unless it may overflow.
func (e *Expr) boundProduct(a, b *Expr) {
	lo, hi, ok := int64(math.MaxInt64), int64(math.MinInt64), true
	for _, p := range [4][2]int64{{a.Lo, b.Lo}, {a.Lo, b.Hi}, {a.Hi, b.Lo}, {a.Hi, b.Hi}} {
		x, fits := mulOK(p[0], p[1])
		lo, hi, ok = min(lo, x), max(hi, x), ok && fits
	}
	if ok && lo >= e.Lo && hi <= e.Hi {
		e.Lo, e.Hi = lo, hi
	}
}

func loadRange(d ir.DType, t Type) (lo, hi int64) {
	switch {
	case d == ir.Bool:
		return 0, 1
	case d.Bits() == 64:
		return typeRange(t)
	case d.IsInt():
		return minifloat.Range(d.Bits(), d.IsSigned())
	}
	return 0, 255
}
