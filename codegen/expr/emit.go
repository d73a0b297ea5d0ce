package expr

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Env is what an emitter needs to know about the surrounding kernel.
type Env struct {
	// Operand returns the register that holds the global address of a pointer parameter. Operands below 0 lie in
	// shared memory: its register has 32 bits, and elements are as Hold writes them.
	Operand func(operand int) ptx.Reg
	// Align is the alignment in bytes of an operand's address; nil means 256, if none lies in shared memory.
	Align func(operand int) int
	// Constant reports operands that no launch writes: they may be read before griddepcontrol.wait and through the
	// read-only path; nil means none.
	Constant func(operand int) bool
	// Wait is called once, outside loops, before the first access to an operand that is not constant; nil if the kernel
	// has waited itself.
	Wait func()
	// Loads is called before every load is written, with the index of its first element, its bytes and an element's;
	// nil: not.
	Loads func(index *Expr, bytes, size int)
	// Stores is the same of stores.
	Stores func(index *Expr, bytes, size int)
	// Team shares reductions between threads; nil reduces in each thread.
	Team *Team
}

// Emitter writes expressions into a kernel. A node is computed once per scope; values of outer scopes are visible in
// inner ones, and what a loop does not change is computed before it.
type Emitter struct {
	K   *ptx.Kernel
	B   *Builder
	env Env

	scopes []*scope
	waited bool
	begun  int // length of the kernel's body after the last load of a constant before the wait
	height map[*Expr]int
}

type scope struct {
	regs   map[*Expr]ptx.Reg
	addrs  map[addrKey]ptx.Reg
	groups map[*Expr]*loadGroup
	avail  varSet
}

type addrKey struct {
	operand int64
	index   *Expr
	size    int
}

// NewEmitter returns an emitter with one scope.
func NewEmitter(k *ptx.Kernel, b *Builder, env Env) *Emitter {
	m := &Emitter{K: k, B: b, env: env, height: map[*Expr]int{}, waited: env.Wait == nil}
	m.Push()
	return m
}

// Push opens a scope; Pop forgets what was computed in it. Open one around code that may be skipped or that runs more
// than once.
func (m *Emitter) Push() {
	s := &scope{regs: map[*Expr]ptx.Reg{}, addrs: map[addrKey]ptx.Reg{}}
	if n := len(m.scopes); n > 0 {
		s.avail = m.scopes[n-1].avail
		m.Wait()
	}
	m.scopes = append(m.scopes, s)
}

// Pop closes the innermost scope.
func (m *Emitter) Pop() { m.scopes = m.scopes[:len(m.scopes)-1] }

func (m *Emitter) top() *scope { return m.scopes[len(m.scopes)-1] }

// Bind says which register holds a variable in the innermost scope.
func (m *Emitter) Bind(v *Expr, r ptx.Reg) {
	if v.Op != OpVar {
		return // an index of range 1 is the constant 0
	}
	m.top().regs[v] = r
	m.top().avail.add(int(v.I))
}

// Wait makes sure that the kernel has waited for its predecessors. The wait goes right after the last load of a
// constant, before the code that uses it: that code would otherwise wait for the load first, and delay the start of
// the next launch.
func (m *Emitter) Wait() {
	if m.waited {
		return
	}
	m.waited = true
	at := len(m.K.Body)
	m.env.Wait()
	if m.begun > 0 {
		wait := slices.Clone(m.K.Body[at:])
		m.K.Body = slices.Insert(m.K.Body[:at], m.begun, wait...)
	}
}

func (m *Emitter) lookup(e *Expr) (ptx.Reg, bool) {
	for i := len(m.scopes) - 1; i >= 0; i-- {
		if r, ok := m.scopes[i].regs[e]; ok {
			return r, true
		}
	}
	return ptx.Reg{}, false
}

// ClassOf is the register class of a scalar type.
func ClassOf(t Type) ptx.Class {
	return [...]ptx.Class{ptx.Pred, ptx.B32, ptx.B64, ptx.F32, ptx.F64}[t]
}

// Emit computes e and returns its register.
func (m *Emitter) Emit(e *Expr) ptx.Reg { return m.EmitAll([]*Expr{e})[0] }

// EmitAll computes several expressions together: neighbouring loads become vector loads, reductions over the same
// variables share a loop.
func (m *Emitter) EmitAll(es []*Expr) []ptx.Reg {
	m.reductions(es)
	m.groupLoads(es)
	out := make([]ptx.Reg, len(es))
	for i, e := range es {
		out[i] = m.reg(e)
	}
	m.top().groups = nil
	return out
}

// reg emits e in the innermost scope unless some scope has it.
func (m *Emitter) reg(e *Expr) ptx.Reg {
	if r, ok := m.lookup(e); ok {
		return r
	}
	var r ptx.Reg
	switch e.Op {
	case OpVar:
		panic(fmt.Sprintf("expr: kernel %s: variable %s is not bound", m.K.Name, e.Name))
	case OpLoad:
		return m.load(e)
	case OpReduce:
		m.reductions([]*Expr{e})
		r, _ = m.lookup(e)
		return r
	case OpConst:
		r = m.K.Reg(ClassOf(e.Type))
		m.constant(r, e)
	case OpAffine:
		r = m.affine(e)
	default:
		r = m.operation(e)
	}
	m.top().regs[e] = r
	return r
}

// arg is the operand for e: an immediate for constants.
func (m *Emitter) arg(e *Expr) ptx.Operand {
	if e.Op == OpConst && e.Type != Pred {
		if r, ok := m.lookup(e); ok {
			return r
		}
		return Immediate(e)
	}
	return m.reg(e)
}

// suffix is the type of a register class as opcodes name it.
func suffix(c ptx.Class) string { return [...]string{"pred", "b16", "b32", "b64", "f32", "f64"}[c] }

// Immediate is the PTX immediate of a constant.
func Immediate(e *Expr) ptx.Operand {
	switch e.Type {
	case F32:
		return ptx.FImm(float32(e.F))
	case F64:
		return ptx.DImm(e.F)
	}
	return ptx.Imm(e.I)
}

func (m *Emitter) constant(r ptx.Reg, e *Expr) {
	if e.Type != Pred {
		m.K.I("mov."+suffix(r.Class), r, Immediate(e))
		return
	}
	zero := m.K.Reg(ptx.B32)
	m.K.I("mov.b32", zero, ptx.Imm(e.I))
	m.K.I("setp.ne.s32", r, zero, ptx.Imm(0))
}

// affine emits Σ cᵢ·aᵢ + c. A partial sum that an outer scope holds already is taken from there.
func (m *Emitter) affine(e *Expr) ptx.Reg {
	b := m.B
	if e.I != 0 {
		base := m.reg(b.Offset(e, -e.I))
		r := m.K.Reg(ClassOf(e.Type))
		m.K.I("add."+e.Type.String(), r, base, ptx.Imm(e.I))
		return r
	}
	var acc ptx.Reg
	have := false
	rest := make([]bool, len(e.Args))
	for d := len(m.scopes) - 2; d >= 0 && !have; d-- {
		p, in := b.partial(e, &m.scopes[d].avail)
		if p == nil || p == e {
			continue
		}
		if r, ok := m.lookup(p); ok {
			acc, have, rest = r, true, in
		}
	}
	for i, a := range e.Args {
		if rest[i] {
			continue
		}
		x := m.reg(a)
		r := m.K.Reg(ClassOf(e.Type))
		t := e.Type.String()
		switch c := e.Coef[i]; {
		case have && c == 1:
			m.K.I("add."+t, r, acc, x)
		case have && c == -1:
			m.K.I("sub."+t, r, acc, x)
		case have:
			m.K.I("mad.lo."+t, r, x, ptx.Imm(c), acc)
		case c == 1:
			r = x
		case c > 0 && c&(c-1) == 0:
			m.K.I("shl.b"+t[1:], r, x, ptx.Imm(bits.TrailingZeros64(uint64(c))))
		case c == -1:
			m.K.I("neg."+t, r, x)
		default:
			m.K.I("mul.lo."+t, r, x, ptx.Imm(c))
		}
		acc, have = r, true
	}
	return acc
}

// partial is the part of an affine form whose atoms are available, and which atoms those are; nil if there are none.
func (b *Builder) partial(e *Expr, avail *varSet) (*Expr, []bool) {
	s := sum{t: e.Type}
	in := make([]bool, len(e.Args))
	n := 0
	for i, a := range e.Args {
		if a.free.subsetOf(avail) {
			s.terms = append(s.terms, term{a, e.Coef[i]})
			in[i] = true
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return b.affine(s), in
}

// Hoist emits, in the innermost scope, every largest part of es that needs no variable beyond those bound: for a loop
// that the caller is about to write.
func (m *Emitter) Hoist(es []*Expr) { m.EmitAll(m.available(es)) }

// available lists the largest parts of es that need no variable beyond those bound.
func (m *Emitter) available(es []*Expr) (found []*Expr) {
	avail := &m.top().avail
	m.walk(es, func(e *Expr) []*Expr {
		if e.free.subsetOf(avail) {
			found = append(found, e)
			return nil
		}
		switch e.Op {
		case OpAffine:
			if p, _ := m.B.partial(e, avail); p != nil {
				return append([]*Expr{p}, e.Args...)
			}
		case OpLoad:
			// Only the variable part of the index is computed inside; a constant offset goes into the instruction.
			if x := e.Args[0]; x.Op == OpAffine && x.I != 0 {
				return append([]*Expr{m.B.Offset(x, -x.I)}, e.Args[1:]...)
			}
		}
		return e.Args
	}, func(*Expr) {})
	return found
}

// LoadEarly issues loads of constants that es need and whose addresses are known, at most so many vectors. They are
// used later, after code of another emitter. It returns the number of registers that hold them.
func (m *Emitter) LoadEarly(es []*Expr, most int) (words int) {
	es = m.available(es)
	for _, rs := range m.grouped(es) {
		if !m.shared(rs[0]) {
			continue
		}
		if s := m.spread(rs); s.unrolled {
			es = append(es, flat(rs, s.all(m.B))...)
		}
	}
	m.groupLoads(es)
	var loads []*Expr
	m.pending(es, func(e *Expr) {
		if e.Op == OpLoad && m.isConstant(int(e.I)) && m.early(e) {
			loads = append(loads, e)
		}
	})
	for _, e := range loads {
		if _, ok := m.lookup(e); ok {
			continue
		}
		if most--; most < 0 {
			break
		}
		m.reg(e)
		words += 4
	}
	m.top().groups = nil
	return words
}

// Loop writes a counted loop from 0 to n-1 around body, with v bound to the counter.
func (m *Emitter) Loop(v *Expr, n int, body func(v *Expr)) {
	c := m.K.Reg(ptx.B32)
	m.Push()
	m.K.I("mov.b32", c, ptx.Imm(0))
	l := m.K.NewLabel("loop")
	m.K.Place(l)
	m.Bind(v, c)
	body(v)
	m.Pop()
	p := m.K.Reg(ptx.Pred)
	m.K.I("add.s32", c, c, ptx.Imm(1))
	m.K.I("setp.lt.s32", p, c, ptx.Imm(int64(n)))
	m.K.If(p, "bra", l)
}
