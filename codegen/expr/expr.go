package expr

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Type is the type of a scalar in a register.
type Type uint8

// Scalar types. S64 also carries the bits of unsigned 64-bit values.
const (
	Pred Type = iota
	S32
	S64
	F32
	F64
)

func (t Type) String() string { return [...]string{"pred", "s32", "s64", "f32", "f64"}[t] }

// IsFloat reports whether t is F32 or F64.
func (t Type) IsFloat() bool { return t == F32 || t == F64 }

// IsInt reports whether t is S32 or S64.
func (t Type) IsInt() bool { return t == S32 || t == S64 }

// Op is the operation of a node.
type Op uint8

// Operations. Comparisons yield Pred; IEEE order: every comparison with NaN is false except Ne.
const (
	OpConst    Op = iota
	OpVar         // iteration variable or a value that the kernel supplies in a register
	OpLoad        // Args: index [, predicate, else]
	OpReduce      // Args: body; Vars: bound variables
	OpAffine      // integer Σ Coef[i]·Args[i] + I
	OpMul         // integer product of two non-constants, or float
	OpAdd         // float
	OpSub         // float
	OpFma         // float a·b+c, one rounding
	OpDiv         // float: rounded to nearest; integer: truncated, 0 where the divisor is 0
	OpRem         // integer: remainder of the truncated division
	OpDivU        // unsigned 64 bits
	OpRemU        // unsigned 64 bits
	OpFloorDiv    // integer by the positive constant I, rounded down
	OpFloorMod    // remainder of OpFloorDiv
	OpMin         // floats: NaN wins
	OpMax
	OpNeg // float
	OpAbs
	OpSqrt  // rounded to nearest
	OpEx2   // ex2.approx.f32
	OpRound // to integral, ties to even
	OpFloor
	OpCeil
	OpTrunc
	OpCopySign  // magnitude of a, sign of b
	OpRoundF16  // f32 → nearest f16, as f32
	OpRoundBF16 // f32 → nearest bf16, as f32
	OpF16Bits   // f32 → the bits of the nearest f16
	OpBF16Bits  // f32 → the bits of the nearest bf16
	OpF16Value  // bits of an f16 → f32
	OpAnd       // Pred and integers
	OpOr
	OpXor
	OpNot
	OpShl // amount < width
	OpShr // arithmetic
	OpShrU
	OpEq
	OpNe
	OpLt
	OpLe
	OpLtU // unsigned 64 bits
	OpSelect
	OpCast      // value conversion; float → integer truncates and saturates, NaN → 0
	OpCastU     // S64 read as unsigned → float, float → unsigned 64, S32 zero-extended to S64
	OpBits      // same bits: S32↔F32, S64↔F64
	OpRoundE4M3 // f32 → nearest e4m3, as f32; saturates
	numOps
)

var opNames = [numOps]string{"const", "var", "load", "reduce", "affine", "mul", "add", "sub", "fma", "div", "rem", "divu", "remu", "floordiv", "floormod", "min", "max", "neg", "abs", "sqrt", "ex2", "round", "floor", "ceil", "trunc", "copysign", "roundf16", "roundbf16", "f16bits", "bf16bits", "f16value", "and", "or", "xor", "not", "shl", "shr", "shru", "eq", "ne", "lt", "le", "ltu", "select", "cast", "castu", "bits", "rounde4m3"}

func (o Op) String() string { return opNames[o] }

// ReduceOp is how a reduction combines.
type ReduceOp uint8

// Reductions. Max and Min let NaN win.
const (
	Sum ReduceOp = iota
	Prod
	Max
	Min
)

func (r ReduceOp) String() string { return [...]string{"sum", "prod", "max", "min"}[r] }

// Expr is a node of the DAG. Only a Builder makes nodes, and they never change.
type Expr struct {
	Op    Op
	Type  Type
	Args  []*Expr
	I     int64    // OpConst of integers and Pred; OpAffine's constant; divisor of OpFloorDiv, OpFloorMod; operand of OpLoad
	F     float64  // OpConst of floats
	Coef  []int64  // OpAffine
	Vars  []*Expr  // OpReduce
	Red   ReduceOp // OpReduce
	DType ir.DType // OpLoad: element type in memory (not sub-byte)
	Name  string   // OpVar

	// Lo and Hi bound the value of an integer node; of a node that may wrap they are the whole range of the type.
	Lo, Hi int64

	mult int64 // a known divisor of an integer node (0: the value is 0)
	id   int
	free varSet
}

// ID numbers the nodes of a builder in order of creation.
func (e *Expr) ID() int { return e.id }

// DependsOn reports whether variable v occurs free in e.
func (e *Expr) DependsOn(v *Expr) bool { return e.free.has(int(v.I)) }

// DependsOnAny reports whether one of the variables occurs free in e.
func (e *Expr) DependsOnAny(vs ...*Expr) bool {
	for _, v := range vs {
		if e.DependsOn(v) {
			return true
		}
	}
	return false
}

// IsConst reports whether e is a constant.
func (e *Expr) IsConst() bool { return e.Op == OpConst }

// IsConstInt reports whether e is the integer or Pred constant c.
func (e *Expr) IsConstInt(c int64) bool { return e.Op == OpConst && !e.Type.IsFloat() && e.I == c }

const maxVars = 512

type varSet [maxVars / 64]uint64

func (s *varSet) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s *varSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *varSet) del(i int)      { s[i/64] &^= 1 << (i % 64) }
func (s *varSet) union(t *varSet) {
	for i := range s {
		s[i] |= t[i]
	}
}
func (s *varSet) subsetOf(t *varSet) bool {
	for i := range s {
		if s[i]&^t[i] != 0 {
			return false
		}
	}
	return true
}
func (s *varSet) empty() bool { return *s == varSet{} }
func (s *varSet) list() []int {
	var out []int
	for w, m := range s {
		for ; m != 0; m &= m - 1 {
			out = append(out, w*64+bits.TrailingZeros64(m))
		}
	}
	return out
}

// Builder makes and owns expressions.
type Builder struct {
	Target *target.Target // nil: one that converts no narrow floats; set it before building anything

	nodes map[string]*Expr
	key   []byte
	vars  []*Expr
	depth []int // of each variable: 0 for outer ones, else the nesting level of the reduction that binds it
	next  int
}

// NewBuilder returns an empty builder.
func NewBuilder() *Builder { return &Builder{nodes: map[string]*Expr{}} }

// Converts reports whether instructions of the target convert an 8-bit float, which is then loaded and stored as a
// value. Others are loaded and stored as their bits.
func (b *Builder) Converts(d ir.DType) bool {
	return d == ir.Float8E4M3FN && b.Target != nil && b.Target.Multiplies(d.String())
}

func (b *Builder) put(x uint64) {
	for x >= 0x80 {
		b.key = append(b.key, byte(x)|0x80)
		x >>= 7
	}
	b.key = append(b.key, byte(x))
}

// intern returns the node equal to proto, making it if there is none.
func (b *Builder) intern(proto Expr) *Expr {
	b.key = append(b.key[:0], byte(proto.Op), byte(proto.Type), byte(proto.Red), byte(proto.DType))
	b.put(uint64(proto.I))
	b.put(math.Float64bits(proto.F))
	b.put(uint64(len(proto.Args)))
	for _, a := range proto.Args {
		b.put(uint64(a.id))
	}
	for _, c := range proto.Coef {
		b.put(uint64(c))
	}
	for _, v := range proto.Vars {
		b.put(uint64(v.id))
	}
	b.key = append(b.key, proto.Name...)
	if e := b.nodes[string(b.key)]; e != nil {
		return e
	}
	e := new(Expr)
	*e = proto
	e.id = b.next
	b.next++
	for _, a := range e.Args {
		e.free.union(&a.free)
	}
	for _, v := range e.Vars {
		e.free.del(int(v.I))
	}
	if e.Op == OpVar {
		e.free.add(int(e.I))
	}
	if e.Type.IsInt() || e.Type == Pred {
		b.bound(e)
	}
	b.nodes[string(b.key)] = e
	return e
}

// Var returns an outer variable: an integer in [lo, hi] that is a multiple of mult, or (lo and hi ignored) a float or
// Pred that the kernel supplies. Names are unique in a builder.
func (b *Builder) Var(name string, t Type, lo, hi, mult int64) *Expr {
	return b.variable(name, t, lo, hi, mult, 0)
}

// Index returns an outer iteration variable in [0, n).
func (b *Builder) Index(name string, n int) *Expr {
	if n <= 1 {
		return b.Int(0)
	}
	return b.variable(name, S32, 0, int64(n-1), 1, 0)
}

func (b *Builder) variable(name string, t Type, lo, hi, mult int64, depth int) *Expr {
	for _, v := range b.vars {
		if v.Name == name {
			if v.Type != t || t.IsInt() && (v.Lo != lo || v.Hi != hi) {
				panic(fmt.Sprintf("expr: variable %s declared twice with other bounds", name))
			}
			return v
		}
	}
	if len(b.vars) == maxVars {
		panic("expr: too many variables")
	}
	v := &Expr{Op: OpVar, Type: t, I: int64(len(b.vars)), Name: name, Lo: lo, Hi: hi, mult: max(mult, 1), id: b.next}
	b.next++
	v.free.add(len(b.vars))
	b.vars = append(b.vars, v)
	b.depth = append(b.depth, depth)
	return v
}

// ReduceVar returns the variable in [0, n) for a reduction whose body is a function of the given indices. Reductions of
// the same nesting level and range share variables, so that equal ones become one node and others can share a loop;
// slot distinguishes the variables of one reduction.
func (b *Builder) ReduceVar(n, slot int, indices []*Expr) *Expr {
	level := 0
	for _, e := range indices {
		for _, v := range e.free.list() {
			level = max(level, b.depth[v])
		}
	}
	return b.variable(fmt.Sprintf("k%d.%d.%d", level+1, slot, n), S32, 0, int64(n-1), 1, level+1)
}

// Reduce combines body over the variables' ranges, in row-major order of the variables. Without variables, or if the
// body does not depend on them and op is idempotent, it returns the body.
func (b *Builder) Reduce(op ReduceOp, vars []*Expr, body *Expr) *Expr {
	if len(vars) == 0 || (op == Max || op == Min) && !body.DependsOnAny(vars...) {
		return body
	}
	return b.intern(Expr{Op: OpReduce, Type: body.Type, Red: op, Args: []*Expr{body}, Vars: vars})
}

// Load reads element index of an operand as a value of type Loaded(d). With a pred it reads only where pred holds and
// yields els elsewhere.
func (b *Builder) Load(operand int, index *Expr, d ir.DType, pred, els *Expr) *Expr {
	p := Expr{Op: OpLoad, Type: Loaded(d), I: int64(operand), DType: d, Args: []*Expr{index}}
	if pred != nil && !pred.IsConstInt(1) {
		if pred.IsConstInt(0) {
			return els
		}
		p.Args = append(p.Args, pred, els)
	}
	return b.intern(p)
}

// Loaded is the register type of an element type in memory: f16 and bf16 become F32, integers of up to 16 bits and bool
// S32, u32 S64 (zero-extended); 8-bit floats are S32, their bits.
func Loaded(d ir.DType) Type {
	switch d {
	case ir.Float16, ir.BFloat16, ir.Float32, ir.Float8E4M3FN:
		return F32
	case ir.Float64:
		return F64
	case ir.Int64, ir.Uint64, ir.Uint32:
		return S64
	}
	return S32
}

// String prints the expression as a tree, for tests and messages.
func (e *Expr) String() string {
	switch e.Op {
	case OpConst:
		if e.Type.IsFloat() {
			return fmt.Sprint(e.F)
		}
		return fmt.Sprint(e.I)
	case OpVar:
		return e.Name
	case OpAffine:
		var s []string
		for i, a := range e.Args {
			if e.Coef[i] == 1 {
				s = append(s, a.String())
			} else {
				s = append(s, fmt.Sprintf("%d*%s", e.Coef[i], a))
			}
		}
		if e.I != 0 {
			s = append(s, fmt.Sprint(e.I))
		}
		return "(" + strings.Join(s, " + ") + ")"
	case OpFloorDiv:
		return fmt.Sprintf("(%s / %d)", e.Args[0], e.I)
	case OpFloorMod:
		return fmt.Sprintf("(%s %% %d)", e.Args[0], e.I)
	}
	var s []string
	for _, a := range e.Args {
		s = append(s, a.String())
	}
	name := e.Op.String()
	switch e.Op {
	case OpLoad:
		name = fmt.Sprintf("p%d.%s", e.I, e.DType)
	case OpReduce:
		name = e.Red.String()
		for _, v := range e.Vars {
			name += " " + v.Name
		}
	case OpCast, OpCastU, OpBits:
		name += "." + e.Type.String()
	}
	return name + "(" + strings.Join(s, ", ") + ")"
}
