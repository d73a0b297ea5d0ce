package loop

import (
	"math/bits"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// shelf is where an output of a part lies in shared memory.
type shelf struct {
	at, size int // bytes from the beginning; bytes of an element
	first    int // elements of a block, from a multiple of which on it has them; 0: it has all
	base     *ptx.Reg
}

// stage is a part while the kernel is written.
type stage struct {
	frame
	s     *schedule
	first *expr.Expr // element or row that the block's begin with; nil: it has all
	rows  int        // rows, or vectors of elements, that the block computes
	all   int        // of them in all
	teams int        // that share these
	turns int
	team  *expr.Expr // which of them the thread is in
}

// emit writes the kernel of a schedule, which several kernels may have. It returns how many registers hold prefetched
// constants and how many bytes of shared memory the kernel needs. If sectors is not nil, it records the sectors that
// loads and stores access.
func (c *fusedLoops) emit(s *fusedSchedule, k *ptx.Kernel, params []ptx.Sym, sectors map[int]float64) (early, shared int) {
	bases := pointers(k, params)
	shelves, used := c.shelves(s)
	smem, block := k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("mov.u32", smem, ptx.Sym(ptx.SharedName))
	k.I("mov.u32", block, ptx.Special("%ctaid.x"))
	var wait func()
	if t := c.ctx.Target; t.DependentLaunch {
		waited := false
		wait = func() {
			if !waited {
				kernel.Wait(k, t)
			}
			waited = true
		}
	}
	var stages []*stage
	for i, p := range c.parts {
		g := &stage{frame: frame{p: p.problem, k: k, bases: bases}, s: s.parts[i]}
		g.begin(c, s, used, c.env(p, k, bases, shelves, smem, block, wait), block, sectors)
		stages = append(stages, g)
	}
	for i := len(stages) - 1; i > 0; i-- {
		early += stages[i].loadBeforeWait(mostEarly - early/4)
	}
	shared = used
	for i, g := range stages {
		if i > 0 {
			k.I("bar.sync", ptx.Imm(0))
		}
		k.Comment("%s", note(g.p.region.Region.Body))
		g.compute()
		if t := g.frame.team; t != nil {
			shared = max(shared, t.Shared)
		}
	}
	stages[len(stages)-1].m.Wait()
	k.I("ret")
	return early, shared
}

// mostEarly is how many vectors of constants a thread prefetches.
const mostEarly = 12

// shelves lays out what is between the parts.
func (c *fusedLoops) shelves(s *fusedSchedule) (list map[int]*shelf, used int) {
	list = map[int]*shelf{}
	for _, p := range c.parts {
		for i, id := range p.held {
			if id == 0 {
				continue
			}
			h := &shelf{at: used, size: lower.Held(p.outs[i].dtype).Bits() / 8}
			n := p.elements
			if p.own {
				h.first = s.elements()
				n = h.first
			}
			list[id] = h
			used += (n*h.size + 15) &^ 15
		}
	}
	return list, used
}

// elements is how many consecutive elements of the last part a block computes.
func (s *fusedSchedule) elements() int {
	last := s.last()
	if last.team == 1 {
		return last.threads * last.vector
	}
	if !last.adjacent {
		return last.teams * last.vector
	}
	return last.teams * s.turns
}

// env is what a part's emitter is told: of operands in shared memory, too.
func (c *fusedLoops) env(p *part, k *ptx.Kernel, bases []ptx.Reg, shelves map[int]*shelf, smem, block ptx.Reg, wait func()) expr.Env {
	env := p.l.Env(k, bases)
	align := env.Align
	env.Wait = wait
	env.Align = func(i int) int {
		if i >= 0 {
			return align(i)
		}
		h := shelves[i]
		return 1 << min(4, bits.TrailingZeros(uint(h.first*h.size)|16))
	}
	env.Operand = func(i int) ptx.Reg {
		if i >= 0 {
			return bases[i]
		}
		return shelves[i].address(k, smem, block)
	}
	return env
}

// address is that of element 0, whether the block has it or not.
func (h *shelf) address(k *ptx.Kernel, smem, block ptx.Reg) ptx.Reg {
	if h.base == nil {
		r := k.Reg(ptx.B32)
		k.I("add.s32", r, smem, ptx.Imm(int64(h.at)))
		if h.first > 0 {
			k.I("mad.lo.s32", r, block, ptx.Imm(int64(-h.first*h.size)), r)
		}
		h.base = &r
	}
	return *h.base
}

// begin numbers the threads and the rows of a part.
func (g *stage) begin(c *fusedLoops, s *fusedSchedule, used int, env expr.Env, block ptx.Reg, sectors map[int]float64) {
	p, k, b := g.p, g.k, c.b
	if g.s.team > 1 {
		g.frame.team = &expr.Team{Threads: g.s.team, Adjacent: g.s.adjacent, Teams: g.s.teams, Shared: used}
		if p.blocks != nil {
			g.frame.team.Vector = g.s.vector
		}
		env.Team = g.frame.team
	}
	if sectors != nil {
		env.Loads = func(index *expr.Expr, bytes, size int) { sectors[len(k.Body)] = g.sectors(g.s, index, bytes, size) }
		env.Stores = func(index *expr.Expr, bytes, size int) {
			n := g.sectors(g.s, index, bytes, size)
			if p.part.kept && !p.part.own {
				n /= float64(s.last().blocks) // one block writes
			}
			sectors[len(k.Body)] = n
		}
	}
	g.m = expr.NewEmitter(k, b, env)
	id := b.Index("block", s.last().blocks)
	g.m.Bind(id, block)
	if g.s.team > 1 {
		g.places(g.s)
		g.teams, g.team, g.all = g.s.teams, g.frame.team.Index, g.s.rows
		g.near, g.far = g.frame.team.Lane, g.frame.team.Index
		if !g.s.adjacent {
			g.near, g.far = g.far, g.near
			g.all /= g.s.vector
		}
	} else {
		g.team = b.Index("thread", s.threads)
		g.m.Bind(g.team, g.special("%tid.x"))
		g.teams, g.all, g.near, g.far = s.threads, ceilDiv(p.elements, g.s.vector), g.team, g.team
	}
	g.rows = g.all
	switch {
	case p.part.last:
		g.rows = g.teams * s.turns
	case p.part.own:
		g.rows = s.elements()
	}
	if p.part.last || p.part.own {
		g.first = b.Scale(id, int64(g.rows))
	}
	g.turns = ceilDiv(g.rows, g.teams)
	if p.part.kept && !p.part.own {
		g.keeps = b.Eq(id, b.Int(0))
	}
}

// row is the one that the thread's team computes in a turn, and whether there is one. Beyond the last a team computes
// that one again and writes nothing: all threads stay together at barriers.
func (g *stage) row(turn *expr.Expr) (row, valid *expr.Expr) {
	b := g.p.b
	row, valid = b.Add(b.Scale(turn, int64(g.teams)), g.team), b.Bool(true)
	if g.turns*g.teams > g.rows {
		valid = b.Lt(row, b.Int(g.rows))
		row = b.Min(row, b.Int(g.rows-1))
	}
	if g.first != nil {
		row = b.Add(g.first, row)
	}
	if row.Hi >= int64(g.all) {
		valid = b.And(valid, b.Lt(row, b.Int(g.all)))
		row = b.Min(row, b.Int(g.all-1))
	}
	return row, valid
}

// unrolled reports whether the turns are written out.
func (g *stage) unrolled() bool { return g.turns <= mostTurns }

// values are those of all turns, with a free variable for the columns of a row.
func (g *stage) values() (es []*expr.Expr) {
	b := g.p.b
	for turn := range g.turns {
		row, _ := g.row(b.Int(turn))
		switch {
		case g.s.team > 1 && g.s.adjacent:
			es = append(es, g.p.at(g.elementsOf(g.s, row)(b.Index(g.p.part.name("any"), g.s.columns)))...)
		default:
			for v := range g.s.vector {
				es = append(es, g.p.at(b.Offset(b.Scale(row, int64(g.s.vector)), int64(v)))...)
			}
		}
	}
	return es
}

// loadBeforeWait begins the loads of constants, and returns the registers that they take.
func (g *stage) loadBeforeWait(most int) int {
	if !g.unrolled() || most <= 0 {
		return 0
	}
	return g.m.LoadEarly(g.values(), most)
}

// compute writes a part.
func (g *stage) compute() {
	b := g.p.b
	one := func(turn *expr.Expr) {
		row, valid := g.row(turn)
		switch {
		case g.s.team == 1:
			g.store(b.Scale(row, int64(g.s.vector)), g.s.vector, valid)
		case g.s.adjacent:
			g.columns(g.s, row, valid)
		default:
			g.store(b.Scale(row, int64(g.s.vector)), g.s.vector, b.And(valid, b.Eq(g.frame.team.Lane, b.Int(0))))
		}
	}
	if !g.unrolled() {
		g.m.Loop(b.Index(g.p.part.name("turn"), g.turns), g.turns, one)
		return
	}
	if g.s.team > 1 && g.s.adjacent && g.turns > 1 {
		g.m.Hoist(g.values()) // the reductions of all turns together
	}
	for turn := range g.turns {
		one(b.Int(turn))
	}
}

// hold keeps elements of a part, from at on, in shared memory, and stores them if they are results too.
func (f *frame) hold(at *expr.Expr, values [][]*expr.Expr, pred *expr.Expr) {
	p, b := f.p, f.p.b
	var all []*expr.Expr
	for _, v := range values {
		all = append(all, v...)
	}
	f.m.EmitAll(all)
	for i, id := range p.part.held {
		if id != 0 {
			f.m.Hold(id, at, values[i], pred)
		}
		if !p.part.kept {
			continue
		}
		own := b.Bool(true)
		if f.keeps != nil {
			own = f.keeps
		}
		if pred != nil {
			own = b.And(pred, own)
		}
		f.m.Store(p.outputs[i], at, p.outs[i].dtype, values[i], own)
	}
}
