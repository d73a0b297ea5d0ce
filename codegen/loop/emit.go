package loop

import (
	"math/bits"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// unrolledRounds is the number of elements of a row that a thread handles without a loop.
const unrolledRounds = 32

// frame is what the kernels of the family begin with.
type frame struct {
	p     *problem
	k     *ptx.Kernel
	m     *expr.Emitter
	team  *expr.Team
	bases []ptx.Reg

	// Variables that number a warp's lanes: near those that work side by side, far their groups.
	near, far *expr.Expr
	keeps     *expr.Expr // of a fused part whose outputs are results too: whether this block stores them
}

// emit writes the kernel and returns the bytes of shared memory it uses. If accesses is not nil, it is called before
// every load and store with its element index, its bytes and an element's.
func (p *problem) emit(s *schedule, k *ptx.Kernel, params []ptx.Sym, accesses func(f *frame, index *expr.Expr, bytes, size int)) int {
	f := &frame{p: p, k: k, bases: pointers(k, params)}
	if s.team > 1 {
		f.team = &expr.Team{Threads: s.team, Adjacent: s.adjacent, Teams: s.teams}
		if p.blocks != nil {
			f.team.Vector = s.vector
		}
	}
	env := p.l.Env(k, f.bases)
	env.Team = f.team
	if accesses != nil {
		env.Loads = func(index *expr.Expr, bytes, size int) { accesses(f, index, bytes, size) }
		env.Stores = env.Loads
	}
	f.m = expr.NewEmitter(k, p.b, env)
	if s.team == 1 {
		f.flat(s)
	} else {
		f.rows(s)
	}
	f.m.Wait()
	k.I("ret")
	if f.team == nil {
		return 0
	}
	return f.team.Shared
}

// pointers loads the parameters.
func pointers(k *ptx.Kernel, params []ptx.Sym) []ptx.Reg {
	bases := make([]ptx.Reg, len(params))
	for i, sym := range params {
		raw := k.Reg(ptx.B64)
		bases[i] = k.Reg(ptx.B64)
		k.I("ld.param.u64", raw, ptx.At(sym, 0))
		k.I("cvta.to.global.u64", bases[i], raw)
	}
	return bases
}

func (f *frame) special(name string) ptx.Reg {
	r := f.k.Reg(ptx.B32)
	f.k.I("mov.u32", r, ptx.Special(name))
	return r
}

// flat: thread t of the grid computes vector t.
func (f *frame) flat(s *schedule) {
	p, k, b := f.p, f.k, f.p.b
	n := (p.elements + s.vector - 1) / s.vector
	id := b.Index("t", n)
	f.near, f.far = id, id
	if id.Op == expr.OpVar {
		t := k.Reg(ptx.B32)
		k.I("mad.lo.s32", t, f.special("%ctaid.x"), ptx.Imm(int64(s.threads)), f.special("%tid.x"))
		f.bound(t, n)
		f.m.Bind(id, t)
	} else {
		f.bound(f.special("%tid.x"), 1)
	}
	if p.packed() > 1 {
		f.packed(id, s.vector)
		return
	}
	f.store(b.Scale(id, int64(s.vector)), s.vector, nil)
}

// bound ends threads from n on.
func (f *frame) bound(t ptx.Reg, n int) {
	out := f.k.Reg(ptx.Pred)
	f.k.I("setp.ge.s32", out, t, ptx.Imm(int64(n)))
	f.k.If(out, "exit")
}

// store computes and writes elements at … at+n-1 of every output.
func (f *frame) store(at *expr.Expr, n int, pred *expr.Expr) {
	p, b := f.p, f.p.b
	values := make([][]*expr.Expr, len(p.outs))
	var all []*expr.Expr
	for v := range n {
		with := p.substitution(b.Offset(at, int64(v)))
		memo := map[*expr.Expr]*expr.Expr{}
		for i, o := range p.outs {
			values[i] = append(values[i], b.Subst(o.value, with, memo))
			if p.scatters {
				at = b.Subst(o.linear, with, memo)
			}
		}
	}
	for i := range values {
		all = append(all, expr.Stored(values[i], p.outs[i].dtype)...)
	}
	if p.part.holds() {
		f.hold(at, values, pred)
		return
	}
	if p.blocks != nil {
		f.m.StoreBlocks(p.outputs[0], p.outputs[1], at, values[0], p.blocks.Attrs.Float("scale", 1), pred)
		return
	}
	f.m.EmitAll(all)
	for i, o := range p.outs {
		f.m.Store(p.outputs[i], at, o.dtype, values[i], pred)
	}
}

// packed writes n elements of every output, of which those that share a byte have one or more bytes; beyond the last
// element their bits are 0.
func (f *frame) packed(id *expr.Expr, n int) {
	p, b := f.p, f.p.b
	last := b.Int(p.elements - 1)
	for i, o := range p.outs {
		for first := 0; first < n; first += o.sub {
			code := b.Int(0)
			var value, in *expr.Expr
			for v := range o.sub {
				at := b.Offset(b.Scale(id, int64(n)), int64(first+v))
				value = b.Subst(o.value, p.substitution(b.Min(at, last)), nil)
				if v == 0 {
					in = b.Le(at, last)
				}
				if o.sub > 1 {
					x := b.Select(b.Le(at, last), value, b.Int(0))
					code = b.Or(code, b.Shl(x, b.Int(v*8/o.sub)))
				}
			}
			if o.sub > 1 {
				value = code
			}
			if first == 0 {
				in = nil // the thread has an element
			}
			to := b.Offset(b.Scale(id, int64(n/o.sub)), int64(first/o.sub))
			f.m.Store(p.outputs[i], to, o.dtype, []*expr.Expr{value}, in)
		}
	}
}

// rows: a team of threads computes each row, or (column) each vector of outputs.
func (f *frame) rows(s *schedule) {
	k, b, t := f.k, f.p.b, f.team
	team := f.places(s)
	count := s.rows
	if !s.adjacent {
		count /= s.vector
	}
	row := b.Index("row", max(s.blocks*s.teams, 2))
	r := k.Reg(ptx.B32)
	k.I("mad.lo.s32", r, f.special("%ctaid.x"), ptx.Imm(int64(s.teams)), team)
	f.m.Bind(row, r)
	f.near, f.far = t.Lane, row
	if !s.adjacent {
		f.near, f.far = row, t.Lane
	}
	// Teams beyond the last row compute that one again and write nothing: all threads stay together at barriers.
	valid := b.Bool(true)
	if s.blocks*s.teams > count || row.Hi >= int64(count) {
		valid = b.Lt(row, b.Int(count))
		row = b.Min(row, b.Int(count-1))
	}
	if !s.adjacent {
		first := b.Eq(t.Lane, b.Int(0))
		f.store(b.Scale(row, int64(s.vector)), s.vector, b.And(valid, first))
		return
	}
	f.columns(s, row, valid)
}

// places numbers the threads of a block: their teams, whose register it returns, and their places in these.
func (f *frame) places(s *schedule) ptx.Reg {
	k, b, t, part := f.k, f.p.b, f.team, f.p.part
	t.Lane = b.Index(part.name("lane"), s.team)
	t.Index = b.Index(part.name("team"), s.teams)
	t.Vary = []*expr.Expr{t.Lane}
	tid := f.special("%tid.x")
	lane, team := k.Reg(ptx.B32), k.Reg(ptx.B32)
	low, high, width := lane, team, s.team
	if !s.adjacent {
		low, high, width = team, lane, s.teams
	}
	k.I("and.b32", low, tid, ptx.Imm(int64(width-1)))
	k.I("shr.u32", high, tid, ptx.Imm(bits.Len(uint(width-1))))
	f.m.Bind(t.Lane, lane)
	f.m.Bind(t.Index, team)
	return team
}

// columns computes the elements of a row: thread l of the team takes vectors l, l+T, l+2T …
func (f *frame) columns(s *schedule, row, valid *expr.Expr) {
	b, t, element := f.p.b, f.team, f.elementsOf(s, row)
	vectors := s.columns / s.vector
	rounds := (vectors + s.team - 1) / s.team
	round := func(j *expr.Expr) {
		at := b.Add(b.Scale(j, int64(s.team)), t.Lane)
		in := b.Lt(at, b.Int(vectors))
		if vectors%s.team != 0 {
			at = b.Min(at, b.Int(vectors-1))
		}
		f.store(element(b.Scale(at, int64(s.vector))), s.vector, b.And(valid, in))
	}
	// The row's reductions come first, outside any loop.
	f.shared(s, element)
	if rounds*s.vector <= unrolledRounds {
		for j := range rounds {
			round(b.Int(j))
		}
		return
	}
	f.m.Loop(b.Index(f.p.part.name("column"), rounds), rounds, round)
}

// elementsOf is the element of a row in a column.
func (f *frame) elementsOf(s *schedule, row *expr.Expr) func(col *expr.Expr) *expr.Expr {
	p, b := f.p, f.p.b
	var rowShape, colShape []int
	for i, d := range p.shape {
		if s.inRow[i] {
			rowShape = append(rowShape, d)
		} else {
			colShape = append(colShape, d)
		}
	}
	rowIndex := b.Unravel(row, rowShape)
	return func(col *expr.Expr) *expr.Expr {
		colIndex := b.Unravel(col, colShape)
		idx := make([]*expr.Expr, len(p.shape))
		ri, ci := 0, 0
		for i := range idx {
			if s.inRow[i] {
				idx[i] = rowIndex[ri]
				ri++
			} else {
				idx[i] = colIndex[ci]
				ci++
			}
		}
		return b.Linear(idx, p.shape)
	}
}

// shared emits the reductions that the whole team needs.
func (f *frame) shared(s *schedule, element func(*expr.Expr) *expr.Expr) {
	f.m.Hoist(f.p.at(element(f.p.b.Index(f.p.part.name("any"), s.columns))))
}

// at are the outputs' values at an element.
func (p *problem) at(element *expr.Expr) (es []*expr.Expr) {
	with, memo := p.substitution(element), map[*expr.Expr]*expr.Expr{}
	for _, o := range p.outs {
		es = append(es, p.b.Subst(o.value, with, memo))
	}
	return es
}
