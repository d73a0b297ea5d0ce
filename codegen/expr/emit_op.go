package expr

import (
	"fmt"
	"math/bits"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// The opcodes of operations that are one instruction, by the type of the first operand. PTX's ne is false with a NaN.
var (
	floatOpcodes = map[Op]string{
		OpNeg: "neg.%s", OpAbs: "abs.%s", OpSqrt: "sqrt.rn.%s", OpEx2: "ex2.approx.%s",
		OpRound: "cvt.rni.%[1]s.%[1]s", OpFloor: "cvt.rmi.%[1]s.%[1]s", OpCeil: "cvt.rpi.%[1]s.%[1]s", OpTrunc: "cvt.rzi.%[1]s.%[1]s",
		OpAdd: "add.rn.%s", OpSub: "sub.rn.%s", OpMul: "mul.rn.%s", OpFma: "fma.rn.%s", OpDiv: "div.rn.%s",
		OpEq: "setp.eq.%s", OpNe: "setp.neu.%s", OpLt: "setp.lt.%s", OpLe: "setp.le.%s",
	}
	intOpcodes = map[Op]string{
		OpAbs: "abs.%s", OpAdd: "add.%s", OpMul: "mul.lo.%s", OpShr: "shr.%s",
		OpEq: "setp.eq.%s", OpNe: "setp.ne.%s", OpLt: "setp.lt.%s", OpLe: "setp.le.%s",
	}
	bitOpcodes = map[Op]string{OpAnd: "and.%s", OpOr: "or.%s", OpXor: "xor.%s", OpNot: "not.%s", OpShl: "shl.%s", OpBits: "mov.%s"}
)

// untyped is the suffix of a type's bits.
func untyped(t Type) string { return [...]string{"pred", "b32", "b64", "b32", "b64"}[t] }

// opcode is the instruction of an operation on operands of a type, or "".
func opcode(op Op, t Type) string {
	switch f, i, b := floatOpcodes[op], intOpcodes[op], bitOpcodes[op]; {
	case b != "":
		return fmt.Sprintf(b, untyped(t))
	case t.IsFloat() && f != "":
		return fmt.Sprintf(f, t)
	case t.IsInt() && i != "":
		return fmt.Sprintf(i, t)
	case op == OpShrU:
		return "shr.u" + t.String()[1:]
	case op == OpLtU:
		return "setp.lt.u64"
	}
	return ""
}

// operation emits everything but constants, variables, loads, reductions and affine forms.
func (m *Emitter) operation(e *Expr) ptx.Reg {
	k := m.K
	if op := opcode(e.Op, e.Args[0].Type); op != "" {
		args := []ptx.Operand{nil, m.reg(e.Args[0])}
		for _, a := range e.Args[1:] {
			args = append(args, m.arg(a))
		}
		r := k.Reg(ClassOf(e.Type))
		args[0] = r
		k.I(op, args...)
		return r
	}
	switch e.Op {
	case OpDiv, OpRem:
		return m.intDivision(e, e.Type.String())
	case OpDivU, OpRemU:
		return m.intDivision(e, "u64")
	case OpFloorDiv, OpFloorMod:
		return m.floorDivision(e)
	case OpCast, OpCastU:
		return m.cast(e)
	case OpSelect:
		p := m.reg(e.Args[0])
		x, y := m.arg(e.Args[1]), m.arg(e.Args[2])
		r := k.Reg(ClassOf(e.Type))
		k.I("selp."+suffix(r.Class), r, x, y, p)
		return r
	}
	x := m.reg(e.Args[0])
	switch e.Op {
	case OpMin, OpMax:
		y := m.arg(e.Args[1])
		r := k.Reg(ClassOf(e.Type))
		m.extremum(r, e.Op, e.Type, x, y)
		return r
	case OpCopySign:
		y := m.reg(e.Args[1])
		r := k.Reg(ClassOf(e.Type))
		k.I("copysign."+e.Type.String(), r, y, x) // PTX takes the sign from the first source
		return r
	case OpRoundF16:
		h, r := k.Reg(ptx.B16), k.Reg(ptx.F32)
		k.I("cvt.rn.f16.f32", h, x)
		k.I("cvt.f32.f16", r, h)
		return r
	case OpRoundBF16:
		h := k.Reg(ptx.B16)
		k.I("cvt.rn.bf16.f32", h, x)
		return m.bf16Value(h)
	case OpRoundE4M3:
		return m.valuesE4M3(m.pairE4M3(x, ptx.FImm(0)), false)[0]
	case OpF16Bits, OpBF16Bits:
		h, r := k.Reg(ptx.B16), k.Reg(ptx.B32)
		k.I(map[Op]string{OpF16Bits: "cvt.rn.f16.f32", OpBF16Bits: "cvt.rn.bf16.f32"}[e.Op], h, x)
		k.I("cvt.u32.u16", r, h)
		return r
	case OpF16Value:
		return m.lowHalf(x)
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
	sel := "selp." + suffix(q.Class)
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
		k.I("shr.s"+n, r, src, ptx.Imm(bits.TrailingZeros64(uint64(c))))
		return r
	case pow2:
		k.I("and.b"+n, r, src, ptx.Imm(c-1))
		return r
	}
	if x.Lo >= 0 {
		k.I(map[Op]string{OpFloorDiv: "div.u", OpFloorMod: "rem.u"}[e.Op]+n, r, src, ptx.Imm(c))
		return r
	}
	// ⌊x/c⌋ = trunc(x/c) - (x - c·trunc(x/c) < 0)
	q, rem, p := k.Reg(ClassOf(e.Type)), k.Reg(ClassOf(e.Type)), k.Reg(ptx.Pred)
	k.I("div.s"+n, q, src, ptx.Imm(c))
	k.I("rem.s"+n, rem, src, ptx.Imm(c))
	k.I("setp.lt.s"+n, p, rem, ptx.Imm(0))
	adj := k.Reg(ClassOf(e.Type))
	res, by := q, int64(-1)
	if e.Op == OpFloorMod {
		res, by = rem, c
	}
	k.I("add.s"+n, adj, res, ptx.Imm(by))
	k.I("selp.b"+n, r, adj, res, p)
	return r
}

// extremum emits min or max of x and y into r.
func (m *Emitter) extremum(r ptx.Reg, op Op, t Type, x ptx.Reg, y ptx.Operand) {
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
		k.I("selp."+suffix(r.Class), r, one, zero, x)
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
