// Package lower gives every op of the table its meaning on a single element: a pull rule "value of the output at an
// index → expression", down to loads of a region's inputs. A family asks for the value of a region's output at its
// iteration variables, or, where it computes the anchor itself, for what the body makes of its sums.
//
//	Lowering   a region being lowered: builder, operands, memo
//	Value      the value of a body's value at an index
//	Epilogue   a value after an anchor whose sums a family supplies
//	Storage    a value as it is stored
//
// Floats narrower than f32 compute in F32 and are rounded to their type by every arithmetic op; bool is Pred;
// integers of up to 32 signed or 16 unsigned bits are S32, others S64.
package lower

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// Lowering is a region being lowered.
type Lowering struct {
	B        *expr.Builder
	Region   *ir.Node
	Operands []kernel.Operand // in the order of their first use
	// Member is the index of the member; nil if the region has none.
	Member *expr.Expr
	Loaded map[int]bool // operands that values read

	ctx      *kernel.Context
	inputs   map[*ir.Value]int // body input → position
	operands map[*ir.Value]int // value of the graph, or constant of the body → operand
	anchor   *ir.Value         // whose elements a family supplies; nil: each value has its node's rule
	element  func(idx []*expr.Expr) *expr.Expr
	memo     map[string]*expr.Expr
	held     int        // operands in shared memory
	guard    *expr.Expr // nil: always
	// ragged, unless it is nil, is an index that leaves its range in a kernel: loads depending on it happen where
	// inside.
	ragged, inside *expr.Expr
	expanded       map[*ir.Node][]*ir.Value
	scratch        *ir.Graph // names the values of expansions
}

// rule computes output number out of a node at an index.
type rule func(l *Lowering, n *ir.Node, out int, idx []*expr.Expr) *expr.Expr

// rules are the ops' by name. Each file registers those that it implements.
var rules = map[string]rule{}

// register adds rules while package variables are initialised: var _ = register(map[string]rule{…}).
func register(more map[string]rule) bool {
	for op, r := range more {
		if ir.LookupOp(op) == nil || rules[op] != nil {
			panic("no op of this name, or two rules for it: " + op)
		}
		rules[op] = r
	}
	return true
}

// failure is what Value panics with; Catch turns it into an error.
type failure struct{ err error }

func (l *Lowering) fail(n *ir.Node, format string, args ...any) *expr.Expr {
	panic(failure{fmt.Errorf("%s %q: %s", n.Op.Name, n.Name, fmt.Sprintf(format, args...))})
}

// Fail ends lowering with an error, which Catch returns.
func Fail(err error) { panic(failure{err}) }

// Catch is deferred around calls of Value: it turns a failure of a rule into an error.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}

// New starts lowering a region whose storage is spelled out (ir.Node.Explicit).
func New(region *ir.Node, ctx *kernel.Context) *Lowering {
	b := expr.NewBuilder()
	b.Target = ctx.Target
	return start(region, ctx, b)
}

// Further starts lowering a further region for the same kernel, once l has its operands: it has them too, as its first.
func (l *Lowering) Further(region *ir.Node) *Lowering {
	m := start(region, l.ctx, l.B)
	m.Operands, m.held = slices.Clone(l.Operands), l.held
	maps.Copy(m.operands, l.operands)
	maps.Copy(m.Loaded, l.Loaded)
	return m
}

func start(region *ir.Node, ctx *kernel.Context, b *expr.Builder) *Lowering {
	l := &Lowering{B: b, Region: region, Loaded: map[int]bool{}, ctx: ctx, inputs: map[*ir.Value]int{}, operands: map[*ir.Value]int{},
		memo:     map[string]*expr.Expr{},
		expanded: map[*ir.Node][]*ir.Value{}, scratch: ir.NewGraph("")}
	for i, v := range region.Region.Body.Inputs {
		l.inputs[v] = i
	}
	return l
}

// Covers reports whether the op has a rule or expands into ops that do. Recurrent layers are not covered: every element
// would recompute all steps before it.
func Covers(op string) bool {
	row := ir.LookupOp(op)
	return rules[op] != nil || row.Expand != nil && row.Kind != ir.KindScan
}

// Members is the number of members, at least 1.
func (l *Lowering) Members() int { return l.Region.Region.Count() }

// Input is the number of the operand that points to v, an input of the region, which becomes one at its first use.
func (l *Lowering) Input(v *ir.Value) int { return l.operand(v, kernel.Operand{Value: v}) }

// Hold makes v, a value of the graph that the kernel has in shared memory, an operand that is no parameter: they are
// numbered from -1 down. Each element lies there as a register holds it (Held).
func (l *Lowering) Hold(v *ir.Value) int {
	l.held++
	l.operands[v] = -l.held
	return -l.held
}

// Held is how an element that is stored as a type (Storage) lies in shared memory.
func Held(stored ir.DType) ir.DType {
	return map[expr.Type]ir.DType{expr.F32: ir.Float32, expr.F64: ir.Float64, expr.S32: ir.Int32, expr.S64: ir.Int64}[expr.Loaded(stored)]
}

func (l *Lowering) operand(v *ir.Value, o kernel.Operand) int {
	k, ok := l.operands[v]
	if !ok {
		k = l.add(o)
		l.operands[v] = k
	}
	return k
}

func (l *Lowering) add(o kernel.Operand) int {
	l.Operands = append(l.Operands, o)
	return len(l.Operands) - 1
}

// Output adds region output i as a written operand and returns its number.
func (l *Lowering) Output(i int) int {
	return l.add(kernel.Operand{Value: l.Region.Outputs[i], Write: true})
}

// Table adds constant data and returns the operand's number; equal data share one.
func (l *Lowering) Table(data []byte) int {
	for i, o := range l.Operands {
		if o.Const != nil && string(o.Const) == string(data) {
			return i
		}
	}
	return l.add(kernel.Operand{Const: data})
}

// Env describes the lowered region to an emitter. pointers holds each operand's address. On targets with dependent
// launch the kernel waits once, before its first access to anything but constants.
func (l *Lowering) Env(k *ptx.Kernel, pointers []ptx.Reg) expr.Env {
	env := expr.Env{
		Operand: func(i int) ptx.Reg { return pointers[i] },
		Constant: func(i int) bool {
			o := l.Operands[i]
			return o.Const != nil || o.Value.IsConst()
		},
		Align: func(i int) int {
			if v := l.Operands[i].Value; v != nil {
				return l.ctx.AlignOf(v)
			}
			return 256
		},
	}
	if t := l.ctx.Target; t.DependentLaunch {
		env.Wait = func() { kernel.Wait(k, t) }
	}
	return env
}

// Type is the register type of an element type.
func Type(d ir.DType) expr.Type {
	switch d {
	case ir.Bool:
		return expr.Pred
	case ir.Float64:
		return expr.F64
	case ir.Uint32, ir.Int64, ir.Uint64:
		return expr.S64
	}
	if d.IsFloat() {
		return expr.F32
	}
	return expr.S32
}

// Value is the value of v, a value of the region's body, at an index.
func (l *Lowering) Value(v *ir.Value, idx []*expr.Expr) *expr.Expr {
	key := make([]byte, 0, 8*len(idx)+24)
	key = fmt.Appendf(key, "%p", v)
	if l.guard != nil {
		key = binary.AppendUvarint(append(key, '?'), uint64(l.guard.ID()))
	}
	for _, x := range idx {
		key = binary.AppendUvarint(append(key, ','), uint64(x.ID()))
	}
	if e := l.memo[string(key)]; e != nil {
		return e
	}
	e := l.value(v, idx)
	l.memo[string(key)] = e
	return e
}

func (l *Lowering) value(v *ir.Value, idx []*expr.Expr) *expr.Expr {
	if v == l.anchor {
		return l.element(idx)
	}
	if i, ok := l.inputs[v]; ok {
		outer := l.Region.Inputs[i]
		if c := outer.Const; c != nil && (c.Splat || c.Numel() == 1) {
			return immediate(l.B, c)
		}
		return l.load(v, l.Input(outer), idx, l.Region.Region.Operands[i].Batched)
	}
	if v.Const != nil {
		if v.Const.Splat || v.Const.Numel() == 1 {
			return immediate(l.B, v.Const)
		}
		return l.load(v, l.operand(v, kernel.Operand{Const: v.Const.Dense()}), idx, false)
	}
	n := v.Def
	switch {
	case rules[n.Op.Name] != nil:
		return rules[n.Op.Name](l, n, v.Index, idx)
	case Covers(n.Op.Name):
		return l.Value(l.expand(n)[v.Index], idx)
	}
	return l.fail(n, "no kernel runs a sequence this long: pass expand unrolls up to 256 steps; split the sequence, or export the layer unrolled")
}

// expand returns the values that a composite op's outputs stand for.
func (l *Lowering) expand(n *ir.Node) []*ir.Value {
	if l.expanded[n] == nil {
		_, outs, err := n.Expand(l.scratch)
		if err != nil {
			l.fail(n, "%v", err)
		}
		l.expanded[n] = outs
	}
	return l.expanded[n]
}

func immediate(b *expr.Builder, c *ir.Tensor) *expr.Expr {
	t := Type(c.DType)
	if c.DType.IsFloat() {
		return b.Float(t, c.FloatAt(0))
	}
	return b.ConstInt(t, c.IntAt(0))
}

// load reads an element of an operand and decodes it, under the guard unless the index is provably in range.
func (l *Lowering) load(v *ir.Value, operand int, idx []*expr.Expr, batched bool) *expr.Expr {
	b := l.B
	shape := v.Type.Shape
	inside := true
	for i, x := range idx {
		inside = inside && x.Lo >= 0 && x.Hi < int64(shape[i])
	}
	if batched && l.Member != nil {
		idx = append([]*expr.Expr{l.Member}, idx...)
		shape = append([]int{l.Members()}, shape...)
	}
	d, at := v.Type.DType, b.Linear(idx, shape)
	l.Loaded[operand] = true
	memory := d
	sub := int64(1) // elements in a byte
	switch {
	case d.Bits() < 8:
		sub, memory = int64(8/d.Bits()), ir.Uint8
	case d.Bits() == 8 && d != ir.Int8 && !b.Converts(d):
		memory = ir.Uint8 // decode needs the bits
	}
	if operand < 0 {
		memory = Held(memory)
	}
	byteAt := b.FloorDiv(at, sub)
	e := l.fetch(operand, byteAt, memory, inside)
	if sub > 1 {
		shift := b.Scale(b.Cast(b.FloorMod(at, sub), expr.S32), int64(d.Bits()))
		e = b.And(b.ShrU(e, shift), b.Int(1<<d.Bits()-1))
	}
	return decode(b, e, d)
}

// fetch loads an element of an operand where the kernel may: always, if the index is provably inside, else under the
// guard.
func (l *Lowering) fetch(operand int, at *expr.Expr, d ir.DType, inside bool) *expr.Expr {
	guard := l.guard
	if inside {
		guard = nil
	}
	if l.ragged != nil && at.DependsOn(l.ragged) {
		if guard = l.inside; !inside && l.guard != nil {
			guard = l.B.And(l.guard, l.inside)
		}
	}
	return l.B.Load(operand, at, d, guard, l.B.Zero(expr.Loaded(d)))
}

// decode turns what was loaded (expr.Loaded) into a value of the element type.
func decode(b *expr.Builder, e *expr.Expr, d ir.DType) *expr.Expr {
	switch d {
	case ir.Bool:
		return b.Ne(e, b.Int(0))
	case ir.Int4, ir.Int2:
		return wrapInt(b, e, d)
	}
	if d.IsFloat() && d.Bits() <= 8 && !b.Converts(d) {
		return decodeNarrow(b, e, d)
	}
	return e
}

// Storage converts a value to what Emitter.Store takes and returns the element type to store it as: bool becomes a
// byte, 8-bit floats their codes (e4m3 stays a value where the target converts it); sub-byte types become codes that
// the caller packs.
func Storage(b *expr.Builder, e *expr.Expr, d ir.DType) (*expr.Expr, ir.DType) {
	switch {
	case d == ir.Bool:
		return b.Cast(e, expr.S32), ir.Uint8
	case b.Converts(d):
		return e, d
	case d.IsFloat() && d.Bits() <= 8:
		return encodeNarrow(b, e, d, false), ir.Uint8
	case d.Bits() < 8:
		return b.And(e, b.Int(1<<d.Bits()-1)), ir.Uint8
	}
	return e, d
}

// Round fits a result to the element type: floats are rounded, integers wrap.
func Round(b *expr.Builder, e *expr.Expr, d ir.DType) *expr.Expr {
	switch {
	case d == ir.Float16:
		return b.RoundF16(e)
	case d == ir.BFloat16:
		return b.RoundBF16(e)
	case d == ir.Float32, d == ir.Float64, d == ir.Bool:
		return e
	case d.IsFloat():
		return roundNarrow(b, e, d, false)
	}
	return wrapInt(b, e, d)
}

func wrapInt(b *expr.Builder, e *expr.Expr, d ir.DType) *expr.Expr {
	bits := d.Bits()
	if lo, hi := minifloat.Range(bits, d.IsSigned()); bits == 64 || e.Lo >= lo && e.Hi <= hi {
		return e
	}
	if d.IsSigned() {
		s := b.Int(32 - bits)
		return b.Shr(b.Shl(e, s), s)
	}
	return b.And(e, b.ConstInt(e.Type, 1<<bits-1))
}

// orZero is the value of v where p holds and 0 elsewhere.
func (l *Lowering) orZero(p *expr.Expr, v *ir.Value, idx []*expr.Expr) *expr.Expr {
	return l.Under(p, l.B.Zero(Type(v.Type.DType)), func() *expr.Expr { return l.Value(v, idx) })
}

// Under is f() where p holds and els elsewhere. Loads in f that might leave their tensor are predicated.
func (l *Lowering) Under(p, els *expr.Expr, f func() *expr.Expr) *expr.Expr {
	if p.IsConstInt(1) {
		return f()
	}
	if p.IsConstInt(0) {
		return els
	}
	saved := l.guard
	g := p
	if saved != nil {
		g = l.B.And(saved, p)
	}
	l.guard = g
	e := f()
	l.guard = saved
	if e.Op == expr.OpLoad && len(e.Args) == 3 && e.Args[1] == g && e.Args[2] == els {
		return e // the load itself yields els
	}
	return l.B.Select(p, e, els)
}

// broadcast maps an index into shape to to an index into a value that broadcasts to it.
func (l *Lowering) broadcast(v *ir.Value, idx []*expr.Expr) []*expr.Expr {
	s := v.Type.Shape
	out := make([]*expr.Expr, len(s))
	for i := range s {
		if s[i] == 1 {
			out[i] = l.B.Int(0)
		} else {
			out[i] = idx[i+len(idx)-len(s)]
		}
	}
	return out
}

// at is the value of an operand that broadcasts to the index.
func (l *Lowering) at(v *ir.Value, idx []*expr.Expr) *expr.Expr {
	return l.Value(v, l.broadcast(v, idx))
}

func set(idx []*expr.Expr, axis int, x *expr.Expr) []*expr.Expr {
	out := append([]*expr.Expr{}, idx...)
	out[axis] = x
	return out
}
