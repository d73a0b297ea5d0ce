package expr

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

var unaryOpcodes = map[Op]string{OpNeg: "neg.%s", OpAbs: "abs.%s", OpSqrt: "sqrt.rn.%s", OpEx2: "ex2.approx.%s",
	OpRound: "cvt.rni.%[1]s.%[1]s", OpFloor: "cvt.rmi.%[1]s.%[1]s", OpCeil: "cvt.rpi.%[1]s.%[1]s", OpTrunc: "cvt.rzi.%[1]s.%[1]s"}

var floatOpcodes = map[Op]string{OpAdd: "add.rn.%s", OpSub: "sub.rn.%s", OpMul: "mul.rn.%s", OpFma: "fma.rn.%s", OpDiv: "div.rn.%s"}

var compareOpcodes = map[Op]string{OpEq: "setp.eq.%s", OpNe: "setp.ne.%s", OpLt: "setp.lt.%s", OpLe: "setp.le.%s"}

// operation emits everything but constants, variables, loads, reductions and affine forms.
func (m *Emitter) operation(e *Expr) ptx.Reg {
	k := m.K
	t := e.Type.String()
	from := e.Args[0].Type
	bits := "b32"
	if from == S64 || from == F64 {
		bits = "b64"
	}
	if from == Pred {
		bits = "pred"
	}
	args := func() []ptx.Operand {
		out := []ptx.Operand{ptx.Reg{}}
		for i, a := range e.Args {
			if i == 0 {
				out = append(out, m.reg(a))
			} else {
				out = append(out, m.arg(a))
			}
		}
		return out
	}
	emit := func(op string) ptx.Reg {
		as := args()
		r := k.Reg(ClassOf(e.Type))
		as[0] = r
		k.I(op, as...)
		return r
	}
	switch e.Op {
	case OpNeg, OpAbs, OpSqrt, OpEx2, OpRound, OpFloor, OpCeil, OpTrunc:
		return emit(fmt.Sprintf(unaryOpcodes[e.Op], t))
	case OpAdd, OpSub, OpFma:
		return emit(fmt.Sprintf(floatOpcodes[e.Op], t))
	case OpMul:
		if e.Type.IsInt() {
			return emit("mul.lo." + t)
		}
		return emit("mul.rn." + t)
	case OpDiv, OpRem:
		if e.Type.IsFloat() {
			return emit("div.rn." + t)
		}
		return m.intDivision(e, t)
	case OpDivU, OpRemU:
		return m.intDivision(e, "u64")
	case OpFloorDiv, OpFloorMod:
		return m.floorDivision(e)
	case OpMin, OpMax:
		return m.extremum(e)
	case OpCopySign:
		// PTX's copysign takes the sign from its first source.
		x, y := m.reg(e.Args[0]), m.reg(e.Args[1])
		r := k.Reg(ClassOf(e.Type))
		k.I("copysign."+t, r, y, x)
		return r
	case OpAnd, OpOr, OpXor, OpNot:
		return emit(e.Op.String() + "." + bits)
	case OpShl:
		return emit("shl." + bits)
	case OpShr:
		return emit("shr." + t)
	case OpShrU:
		return emit("shr.u" + t[1:])
	case OpEq, OpNe, OpLt, OpLe:
		op := fmt.Sprintf(compareOpcodes[e.Op], from)
		if e.Op == OpNe && from.IsFloat() {
			op = "setp.neu." + from.String()
		}
		return emit(op)
	case OpLtU:
		return emit("setp.lt.u64")
	case OpSelect:
		p := m.reg(e.Args[0])
		x, y := m.arg(e.Args[1]), m.arg(e.Args[2])
		r := k.Reg(ClassOf(e.Type))
		op := "selp." + t
		if e.Type.IsInt() {
			op = "selp.b" + t[1:]
		}
		k.I(op, r, x, y, p)
		return r
	case OpRoundF16:
		x := m.reg(e.Args[0])
		h, r := k.Reg(ptx.B16), k.Reg(ptx.F32)
		k.I("cvt.rn.f16.f32", h, x)
		k.I("cvt.f32.f16", r, h)
		return r
	case OpRoundBF16:
		x := m.reg(e.Args[0])
		h := k.Reg(ptx.B16)
		k.I("cvt.rn.bf16.f32", h, x)
		return m.bf16Value(h)
	case OpRoundE4M3:
		return m.valuesE4M3(m.pairE4M3(m.reg(e.Args[0]), ptx.FImm(0)), false)[0]
	case OpF16Bits, OpBF16Bits:
		x := m.reg(e.Args[0])
		h, r := k.Reg(ptx.B16), k.Reg(ptx.B32)
		if e.Op == OpF16Bits {
			k.I("cvt.rn.f16.f32", h, x)
		} else {
			k.I("cvt.rn.bf16.f32", h, x)
		}
		k.I("cvt.u32.u16", r, h)
		return r
	case OpF16Value:
		x := m.reg(e.Args[0])
		h, r := k.Reg(ptx.B16), k.Reg(ptx.F32)
		k.I("cvt.u16.u32", h, x)
		k.I("cvt.f32.f16", r, h)
		return r
	case OpCast, OpCastU:
		return m.cast(e)
	case OpBits:
		return emit("mov." + bits)
	}
	panic("expr: no instruction for " + e.Op.String())
}

func (m *Emitter) bf16Value(h ptx.Reg) ptx.Reg {
	w, s, r := m.K.Reg(ptx.B32), m.K.Reg(ptx.B32), m.K.Reg(ptx.F32)
	m.K.I("cvt.u32.u16", w, h)
	m.K.I("shl.b32", s, w, ptx.Imm(16))
	m.K.I("mov.b32", r, s)
	return r
}

// intDivision divides with the result for a zero divisor that the language promises.
func (m *Emitter) intDivision(e *Expr, t string) ptx.Reg {
	k := m.K
	x, y := m.reg(e.Args[0]), m.arg(e.Args[1])
	q := k.Reg(ClassOf(e.Type))
	name := "div."
	if e.Op == OpRem || e.Op == OpRemU {
		name = "rem."
	}
	if c := e.Args[1]; c.Op == OpConst && c.I != 0 {
		k.I(name+t, q, x, y)
		return q
	}
	y = m.reg(e.Args[1])
	zero, safe, r := k.Reg(ptx.Pred), k.Reg(ClassOf(e.Type)), k.Reg(ClassOf(e.Type))
	sel := "selp.b" + e.Type.String()[1:]
	k.I("setp.eq."+t, zero, y, ptx.Imm(0))
	k.I(sel, safe, ptx.Imm(1), y, zero)
	k.I(name+t, q, x, safe)
	var z ptx.Operand = ptx.Imm(0)
	if name == "rem." {
		z = x
	}
	k.I(sel, r, z, q, zero)
	return r
}

// floorDivision divides by a positive constant. Numbers that may be negative are shifted up by a multiple of it first.
func (m *Emitter) floorDivision(e *Expr) ptx.Reg {
	k := m.K
	x, c := e.Args[0], e.I
	n := e.Type.String()[1:]
	src := m.reg(x)
	r := k.Reg(ClassOf(e.Type))
	switch pow2 := c&(c-1) == 0; {
	case pow2 && e.Op == OpFloorDiv:
		k.I("shr.s"+n, r, src, ptx.Imm(log2(c)))
		return r
	case pow2:
		k.I("and.b"+n, r, src, ptx.Imm(c-1))
		return r
	}
	if x.Lo >= 0 {
		if e.Op == OpFloorDiv {
			k.I("div.u"+n, r, src, ptx.Imm(c))
		} else {
			k.I("rem.u"+n, r, src, ptx.Imm(c))
		}
		return r
	}
	// ⌊x/c⌋ = trunc(x/c) - (x - c·trunc(x/c) < 0)
	q, rem, p := k.Reg(ClassOf(e.Type)), k.Reg(ClassOf(e.Type)), k.Reg(ptx.Pred)
	k.I("div.s"+n, q, src, ptx.Imm(c))
	k.I("rem.s"+n, rem, src, ptx.Imm(c))
	k.I("setp.lt.s"+n, p, rem, ptx.Imm(0))
	adj := k.Reg(ClassOf(e.Type))
	if e.Op == OpFloorDiv {
		k.I("add.s"+n, adj, q, ptx.Imm(-1))
		k.I("selp.b"+n, r, adj, q, p)
	} else {
		k.I("add.s"+n, adj, rem, ptx.Imm(c))
		k.I("selp.b"+n, r, adj, rem, p)
	}
	return r
}

func (m *Emitter) extremum(e *Expr) ptx.Reg {
	x := m.reg(e.Args[0])
	y := m.arg(e.Args[1])
	r := m.K.Reg(ClassOf(e.Type))
	m.extremumInto(r, e.Op, e.Type, x, y)
	return r
}

func (m *Emitter) extremumInto(r ptx.Reg, op Op, t Type, x ptx.Reg, y ptx.Operand) {
	k := m.K
	switch t {
	case F32:
		k.I(op.String()+".NaN.f32", r, x, y)
	case F64:
		// There is no .NaN form: x where it is ordered before y or NaN, else y.
		less, nan, p := k.Reg(ptx.Pred), k.Reg(ptx.Pred), k.Reg(ptx.Pred)
		cmp := "setp.lt.f64"
		if op == OpMax {
			cmp = "setp.gt.f64"
		}
		k.I(cmp, less, x, y)
		k.I("setp.nan.f64", nan, x, x)
		k.I("or.pred", p, less, nan)
		k.I("selp.f64", r, x, y, p)
	default:
		k.I(op.String()+"."+t.String(), r, x, y)
	}
}

func (m *Emitter) cast(e *Expr) ptx.Reg {
	k := m.K
	from := e.Args[0].Type
	x := m.reg(e.Args[0])
	r := k.Reg(ClassOf(e.Type))
	if from == Pred {
		one := Immediate(&Expr{Op: OpConst, Type: e.Type, I: 1, F: 1})
		zero := Immediate(&Expr{Op: OpConst, Type: e.Type})
		op := "selp." + e.Type.String()
		if e.Type.IsInt() {
			op = "selp.b" + e.Type.String()[1:]
		}
		k.I(op, r, one, zero, x)
		return r
	}
	src, dst := from.String(), e.Type.String()
	if e.Op == OpCastU {
		if from.IsInt() {
			src = "u" + src[1:]
		}
		if e.Type.IsInt() {
			dst = "u" + dst[1:]
		}
	}
	switch {
	case from == S64 && e.Type == S32:
		k.I("cvt.u32.u64", r, x)
	case from.IsInt() && e.Type.IsInt():
		k.I("cvt."+dst+"."+src, r, x)
	case from.IsInt(), from == F64 && e.Type == F32:
		k.I("cvt.rn."+dst+"."+src, r, x)
	case from == F32 && e.Type == F64:
		k.I("cvt.f64.f32", r, x)
	default:
		k.I("cvt.rzi."+dst+"."+src, r, x)
	}
	return r
}
