package expr

import (
	"fmt"
	"math"
	"sort"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// unrollLimit is the number of terms that are written out instead of looped over.
const unrollLimit = 16

// heightOf is how deeply reductions nest in e; 0 if there are none.
func (m *Emitter) heightOf(e *Expr) int {
	if e.Op == OpConst || e.Op == OpVar {
		return 0
	}
	if h, ok := m.height[e]; ok {
		return h
	}
	h := 0
	for _, a := range e.Args {
		h = max(h, m.heightOf(a))
	}
	if e.Op == OpReduce {
		h++
	}
	m.height[e] = h
	return h
}

// reductions emits every reduction that es need and whose variables are all available, lower ones first, those of the
// same variables and height in one loop.
func (m *Emitter) reductions(es []*Expr) {
	for _, rs := range m.grouped(es) {
		if m.shared(rs[0]) {
			m.teamReduce(rs)
		} else {
			m.threadReduce(rs)
		}
	}
}

// grouped lists the reductions that es need and whose variables are all available, lower ones first, those that share
// a loop together.
func (m *Emitter) grouped(es []*Expr) (out [][]*Expr) {
	avail := &m.top().avail
	var found []*Expr
	m.walk(es, func(e *Expr) []*Expr {
		if m.heightOf(e) == 0 {
			return nil
		}
		return e.Args
	}, func(e *Expr) {
		if e.Op == OpReduce && e.free.subsetOf(avail) {
			found = append(found, e)
		}
	})
	type key struct {
		height int
		vars   string
		team   bool
	}
	groups := map[key][]*Expr{}
	var order []key
	for _, r := range found {
		k := key{m.heightOf(r), varNames(r.Vars), m.shared(r)}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	sort.SliceStable(order, func(i, j int) bool { return order[i].height < order[j].height })
	for _, k := range order {
		out = append(out, groups[k])
	}
	return out
}

func varNames(vs []*Expr) string {
	s := ""
	for _, v := range vs {
		s += v.Name + " "
	}
	return s
}

// Identity is the neutral element of a reduction.
func (b *Builder) Identity(op ReduceOp, t Type) *Expr {
	lo, hi := typeRange(t)
	switch {
	case op == Sum:
		return b.Zero(t)
	case op == Prod:
		return b.Number(t, 1)
	case t.IsFloat() && op == Max:
		return b.Float(t, math.Inf(-1))
	case t.IsFloat():
		return b.Float(t, math.Inf(1))
	case op == Max:
		return b.ConstInt(t, lo)
	}
	return b.ConstInt(t, hi)
}

// lanes is the number of partial accumulators: they shorten the dependency chain and keep sums accurate.
const lanes = 4

// accumulators are the running values of a group of reductions.
type accumulators struct {
	m   *Emitter
	rs  []*Expr
	acc [][]ptx.Reg // of each reduction
}

func (m *Emitter) newAccumulators(rs []*Expr, n int) *accumulators {
	a := &accumulators{m: m, rs: rs}
	for _, r := range rs {
		regs := m.K.RegVec(ClassOf(r.Type), n)
		for _, reg := range regs {
			m.constant(reg, m.B.Identity(r.Red, r.Type))
		}
		a.acc = append(a.acc, regs)
	}
	return a
}

// product returns the factors of a term that can be added with one fma.
func product(red ReduceOp, term *Expr) (x, y *Expr, ok bool) {
	if red == Sum && term.Op == OpMul && (term.Type.IsFloat() || term.Type == S32) {
		return term.Args[0], term.Args[1], true
	}
	return nil, nil, false
}

// flat lists what the terms of reductions are made of.
func flat(rs []*Expr, terms [][]*Expr) (out []*Expr) {
	for r, ts := range terms {
		for _, t := range ts {
			if x, y, ok := product(rs[r].Red, t); ok {
				out = append(out, x, y)
			} else {
				out = append(out, t)
			}
		}
	}
	return out
}

// add combines terms[r][i] into lane i of reduction r.
func (a *accumulators) add(terms [][]*Expr) {
	m := a.m
	m.EmitAll(flat(a.rs, terms))
	for r, ts := range terms {
		for i, t := range ts {
			acc := a.acc[r][i%len(a.acc[r])]
			if x, y, ok := product(a.rs[r].Red, t); ok {
				op := "fma.rn."
				if t.Type == S32 {
					op = "mad.lo."
				}
				m.K.I(op+t.Type.String(), acc, m.reg(x), m.arg(y), acc)
				continue
			}
			m.combine(a.rs[r].Red, t.Type, acc, acc, m.arg(t))
		}
	}
}

// finish folds the lanes, pairwise, and records the results.
func (a *accumulators) finish() {
	for r, regs := range a.acc {
		a.m.pairwise(a.rs[r], regs)
	}
}

// pairwise combines registers into the first: as a tree, which keeps sums accurate.
func (m *Emitter) pairwise(r *Expr, regs []ptx.Reg) {
	for n := len(regs); n > 1; n = (n + 1) / 2 {
		for i := 0; i+(n+1)/2 < n; i++ {
			m.combine(r.Red, r.Type, regs[i], regs[i], regs[i+(n+1)/2])
		}
	}
}

func (a *accumulators) publish() {
	for r, regs := range a.acc {
		a.m.top().regs[a.rs[r]] = regs[0]
	}
}

func (m *Emitter) combine(op ReduceOp, t Type, d, x ptx.Reg, y ptx.Operand) {
	switch op {
	case Max, Min:
		m.extremum(d, map[ReduceOp]Op{Max: OpMax, Min: OpMin}[op], t, x, y)
	default:
		m.K.I(opcode(map[ReduceOp]Op{Sum: OpAdd, Prod: OpMul}[op], t), d, x, y)
	}
}

func varCount(vs []*Expr) int64 {
	n := int64(1)
	for _, v := range vs {
		n *= v.Hi + 1
	}
	return n
}

// bodiesAt are the reductions' bodies at element number at of their variables' range, in row-major order.
func (m *Emitter) bodiesAt(rs []*Expr, at *Expr) []*Expr {
	vars := rs[0].Vars
	shape := make([]int, len(vars))
	for i, v := range vars {
		shape[i] = int(v.Hi + 1)
	}
	with, memo := map[*Expr]*Expr{}, map[*Expr]*Expr{}
	for i, x := range m.B.Unravel(at, shape) {
		with[vars[i]] = x
	}
	out := bodies(rs)
	for i, body := range out {
		out[i] = m.B.Subst(body, with, memo)
	}
	return out
}

func bodies(rs []*Expr) []*Expr {
	out := make([]*Expr, len(rs))
	for i, r := range rs {
		out[i] = r.Args[0]
	}
	return out
}

// weight estimates the size of the code of es, to decide how far to unroll.
func weight(es []*Expr) (n int) {
	Walk(es, func(e *Expr) {
		switch e.Op {
		case OpConst, OpVar:
		case OpReduce:
			n += 21
		default:
			n++
		}
	})
	return n
}

// threadReduce reduces within each thread: nested loops over the variables, the innermost partly unrolled.
func (m *Emitter) threadReduce(rs []*Expr) {
	vars := rs[0].Vars
	bs := bodies(rs)
	m.Hoist(bs)
	total := varCount(vars)
	w := weight(bs)
	if total <= unrollLimit && int(total)*w <= 1200 {
		acc := m.newAccumulators(rs, int(min(total, lanes)))
		terms := make([][]*Expr, len(rs))
		for n := range int(total) {
			for r, term := range m.bodiesAt(rs, m.B.Int(n)) {
				terms[r] = append(terms[r], term)
			}
		}
		acc.add(terms)
		acc.finish()
		acc.publish()
		return
	}
	unroll := 1
	inner := vars[len(vars)-1]
	for _, u := range []int{8, 4, 2} {
		if int(inner.Hi+1)%u == 0 && u*w <= 800 && u*len(rs) <= 64 {
			unroll = u
			break
		}
	}
	acc := m.newAccumulators(rs, min(unroll, lanes))
	m.nest(vars, unroll, bs, acc)
	acc.finish()
	acc.publish()
}

func (m *Emitter) nest(vars []*Expr, unroll int, bs []*Expr, acc *accumulators) {
	v := vars[0]
	n := int(v.Hi + 1)
	if len(vars) > 1 {
		m.Loop(v, n, func(*Expr) {
			m.Hoist(bs)
			m.nest(vars[1:], unroll, bs, acc)
		})
		return
	}
	counter := v
	if unroll > 1 {
		counter = m.B.variable(fmt.Sprintf("%s/%d", v.Name, unroll), S32, 0, int64(n/unroll-1), 1, m.B.depth[v.I])
	}
	body := func(*Expr) {
		terms := make([][]*Expr, len(bs))
		for u := range unroll {
			memo := map[*Expr]*Expr{}
			for r, body := range bs {
				t := body
				if unroll > 1 {
					t = m.B.Subst(body, map[*Expr]*Expr{v: m.B.Offset(m.B.Scale(counter, int64(unroll)), int64(u))}, memo)
				}
				terms[r] = append(terms[r], t)
			}
		}
		acc.add(terms)
	}
	if n == unroll {
		m.Push()
		defer m.Pop()
		zero := m.K.Reg(ptx.B32)
		m.K.I("mov.b32", zero, ptx.Imm(0))
		m.Bind(counter, zero)
		body(counter)
		return
	}
	m.Loop(counter, n/unroll, body)
}
