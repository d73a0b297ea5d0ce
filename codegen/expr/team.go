package expr

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Team is a group of threads in one block that share the work of every reduction that does not depend on Vary. All
// threads of the block must execute the emitted code together.
type Team struct {
	Threads int   // a power of two
	Lane    *Expr // variable in [0, Threads), bound: the thread's place in its team
	// Adjacent teams are consecutive threads: Threads ≤ 32 share a warp, larger ones consist of whole warps. Otherwise
	// member y of team x is thread y·Teams + x.
	Adjacent bool
	Teams    int     // teams in the block
	Index    *Expr   // variable in [0, Teams): the team's number (constant 0 if there is one)
	Vary     []*Expr // variables that differ between the threads of a team
	// Vector, if not 0, is the number of neighbours that a thread stores together: reductions whose range it divides
	// take as many, so that a thread reads what it stores.
	Vector int
	// Unrolled is how many terms of a reduction a thread writes out, and then has in registers for what reads them
	// again; 0: 32.
	Unrolled int
	// Shared is the first free byte of dynamic shared memory, 16-byte aligned; teamReduce reserves what it needs and
	// advances it.
	Shared int
}

// shared reports whether a reduction is done by the team.
func (m *Emitter) shared(r *Expr) bool {
	t := m.env.Team
	if t == nil || t.Threads == 1 || varCount(r.Vars) < int64(min(8, t.Threads)) {
		return false
	}
	return !r.DependsOnAny(t.Vary...)
}

// spread is how a team shares the range of the variables of reductions: thread l takes vectors l, l+T, l+2T …
type spread struct {
	vec, rounds int64
	unrolled    bool
	terms       func(round *Expr) [][]*Expr // of each reduction, a thread's in a round
}

func (m *Emitter) spread(rs []*Expr) *spread {
	b, t := m.B, m.env.Team
	vars := rs[0].Vars
	bs := bodies(rs)
	s := &spread{vec: 1}
	total := varCount(vars)
	if t.Adjacent {
		widths := []int64{8, 4, 2}
		if t.Vector == 16 || m.readsE4M3(bs) {
			widths = []int64{16, 8, 4, 2}
		}
		if t.Vector > 0 {
			widths = slices.Insert(widths, 0, int64(t.Vector))
		}
		for _, v := range widths {
			if (vars[len(vars)-1].Hi+1)%v == 0 && (total/v >= int64(t.Threads) || v == int64(t.Vector)) {
				s.vec = v
				break
			}
		}
	}
	count := total / s.vec
	s.rounds = (count + int64(t.Threads) - 1) / int64(t.Threads)
	full := count%int64(t.Threads) == 0
	index := S32
	if s.rounds*int64(t.Threads)*s.vec > math.MaxInt32 {
		index = S64
	}
	s.terms = func(round *Expr) [][]*Expr {
		at := b.Add(b.Scale(b.Cast(round, index), int64(t.Threads)), b.Cast(t.Lane, index))
		valid := b.Lt(at, b.ConstInt(index, count))
		if !full {
			at = b.Min(at, b.ConstInt(index, count-1))
		}
		out := make([][]*Expr, len(rs))
		for u := range s.vec {
			for r, x := range m.bodiesAt(rs, b.Offset(b.Scale(at, s.vec), u)) {
				out[r] = append(out[r], b.Select(valid, x, b.Identity(rs[r].Red, x.Type)))
			}
		}
		return out
	}
	s.unrolled = s.rounds*s.vec <= int64(cmp.Or(t.Unrolled, 32)) && int(s.rounds*s.vec)*weight(bs) <= 2000
	return s
}

// all are the terms of all rounds.
func (s *spread) all(b *Builder) (terms [][]*Expr) {
	for j := range s.rounds {
		for r, ts := range s.terms(b.ConstInt(S32, j)) {
			if j == 0 {
				terms = append(terms, nil)
			}
			terms[r] = append(terms[r], ts...)
		}
	}
	return terms
}

// teamReduce spreads reductions over the team.
func (m *Emitter) teamReduce(rs []*Expr) {
	bs, vars := bodies(rs), rs[0].Vars
	m.Hoist(bs)
	s := m.spread(rs)
	n := int(s.vec)
	if s.rounds > 1 {
		n = max(n, 2)
	}
	acc := m.newAccumulators(rs, min(n, lanes))
	if s.unrolled {
		acc.add(s.all(m.B))
	} else {
		// Each thread loops. In a partial last round indices are clamped and surplus terms replaced by the identity.
		j := m.B.variable(fmt.Sprintf("round.%s%d", vars[0].Name, s.rounds), S32, 0, s.rounds-1, 1, m.B.depth[vars[0].I])
		m.Loop(j, int(s.rounds), func(*Expr) {
			m.Hoist(bs)
			acc.add(s.terms(j))
		})
	}
	acc.finish()
	for r, regs := range acc.acc {
		m.shareAcross(rs[r], regs[0])
	}
	acc.publish()
}

// shareAcross combines a register over the team, in a fixed order, and leaves the result in every thread.
func (m *Emitter) shareAcross(e *Expr, r ptx.Reg) {
	t := m.env.Team
	if !t.Adjacent {
		m.shareColumns(e, r)
		return
	}
	for d := min(t.Threads, 32) / 2; d > 0; d /= 2 {
		o := m.shuffle(r, d)
		m.combine(e.Red, e.Type, r, r, o)
	}
	if t.Threads > 32 {
		m.shareWarps(e, r)
	}
}

func (m *Emitter) shuffle(r ptx.Reg, d int) ptx.Reg {
	k := m.K
	exchange := func(x ptx.Reg) ptx.Reg {
		y := k.Reg(x.Class)
		k.I("shfl.sync.bfly.b32", ptx.Pair{D: y, P: k.Reg(ptx.Pred)}, x, ptx.Imm(int64(d)), ptx.Imm(31), ptx.Imm(-1))
		return y
	}
	if r.Class == ptx.F32 || r.Class == ptx.B32 {
		return exchange(r)
	}
	w := k.Reg(ptx.B64)
	k.I("mov.b64", w, r)
	lo, hi, sh := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B64)
	k.I("cvt.u32.u64", lo, w)
	k.I("shr.u64", sh, w, ptx.Imm(32))
	k.I("cvt.u32.u64", hi, sh)
	lo, hi = exchange(lo), exchange(hi)
	l64, h64, up, both, out := k.Reg(ptx.B64), k.Reg(ptx.B64), k.Reg(ptx.B64), k.Reg(ptx.B64), k.Reg(r.Class)
	k.I("cvt.u64.u32", l64, lo)
	k.I("cvt.u64.u32", h64, hi)
	k.I("shl.b64", up, h64, ptx.Imm(32))
	k.I("or.b64", both, l64, up)
	k.I("mov.b64", out, both)
	return out
}

// reserve takes n bytes of shared memory.
func (t *Team) reserve(n int) int {
	at := t.Shared
	t.Shared += (n + 15) &^ 15
	return at
}

// shareWarps combines the warps' results of a team of several warps.
func (m *Emitter) shareWarps(e *Expr, r ptx.Reg) {
	k, t := m.K, m.env.Team
	size := bytesOf(r)
	warps := t.Threads / 32
	at := t.reserve(t.Teams * warps * size)
	base := m.sharedBase()
	team := m.reg(t.Index)
	lane := m.reg(t.Lane)
	row, warp, slot, first := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.Pred)
	k.I("mad.lo.s32", row, team, ptx.Imm(int64(warps*size)), base)
	k.I("shr.u32", warp, lane, ptx.Imm(5))
	k.I("mad.lo.s32", slot, warp, ptx.Imm(int64(size)), row)
	in := k.Reg(ptx.B32)
	k.I("and.b32", in, lane, ptx.Imm(31))
	k.I("setp.eq.s32", first, in, ptx.Imm(0))
	k.If(first, "st.shared."+suffix(r.Class), ptx.At(slot, at), r)
	k.I("bar.sync", ptx.Imm(0))
	m.fold(e, r, warps, func(i int) ptx.Addr { return ptx.At(row, at+i*size) })
}

// shareColumns combines over the rows of a block whose fast index is the team.
func (m *Emitter) shareColumns(e *Expr, r ptx.Reg) {
	k, t := m.K, m.env.Team
	size := bytesOf(r)
	at := t.reserve(t.Teams * t.Threads * size)
	base := m.sharedBase()
	team, lane := m.reg(t.Index), m.reg(t.Lane)
	col, slot := k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("mad.lo.s32", col, team, ptx.Imm(int64(size)), base)
	k.I("mad.lo.s32", slot, lane, ptx.Imm(int64(t.Teams*size)), col)
	k.I("st.shared."+suffix(r.Class), ptx.At(slot, at), r)
	k.I("bar.sync", ptx.Imm(0))
	m.fold(e, r, t.Threads, func(i int) ptx.Addr { return ptx.At(col, at+i*t.Teams*size) })
}

// fold reads n partial results from shared memory and combines them.
func (m *Emitter) fold(e *Expr, r ptx.Reg, n int, at func(i int) ptx.Addr) {
	k := m.K
	rs := k.RegVec(r.Class, n)
	for i, x := range rs {
		k.I("ld.shared."+suffix(r.Class), x, at(i))
	}
	m.pairwise(e, rs)
	k.I("mov."+suffix(r.Class), r, rs[0])
	if len(m.scopes) > 1 {
		k.I("bar.sync", ptx.Imm(0)) // the slots are written again in the next iteration
	}
}

// bytesOf is the size of a register in shared memory.
func bytesOf(r ptx.Reg) int {
	if r.Class == ptx.B64 || r.Class == ptx.F64 {
		return 8
	}
	return 4
}

func (m *Emitter) sharedBase() ptx.Reg {
	r := m.K.Reg(ptx.B32)
	m.K.I("mov.u32", r, ptx.Sym(ptx.SharedName))
	return r
}
