package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// tail finishes a tile: the epilogue's emitter, how a group of results is stored, and a thread's columns.
type tail struct {
	em    *expr.Emitter
	store storer
	columns
}

// storer stores a group of results: of every output.
type storer func(m, n num, v []ptx.Reg)

// prepare emits the part of the epilogue that depends on a thread's columns only, so that scales and biases are loaded
// while the sums are still being computed.
func (g *gen) prepare() *tail {
	e := g.plan.epilogue
	env := g.envOf(g.plan.Lowering)
	t := &tail{store: g.storer(), columns: g.columns()}
	t.em = expr.NewEmitter(g.Kernel, g.plan.B, env)
	for i, z := range e.z {
		g.bind(t.em, z, g.z[i])
	}
	if t.fixed {
		n := t.n
		if e.n.Op == expr.OpVar && g.p.n%g.s.BN != 0 { // columns beyond the matrix read those of the last group
			n = g.binary("min.u32", n, imm(int(e.n.Hi)))
		}
		g.bind(t.em, e.n, n)
		t.em.Hoist(e.result)
	}
	return t
}

// finish sums the tiles of the warps along K and of the blocks of a split, in fixed order, and runs the epilogue, for
// a part of the rows. A thread takes groups of columns.
func (g *gen) finish(t *tail, part int) {
	var work ptx.Reg
	if g.s.SplitK > 1 {
		work = g.partials()
	}
	if t == nil {
		t = g.prepare()
	}
	g.groups(t.columns, part, func(index, row, col, m, n num) {
		var acc []ptx.Reg
		if g.s.SplitK > 1 {
			acc = g.sumSplits(work, index)
		} else {
			acc = g.sumWarps(row, col)
		}
		v := g.apply(t, acc, m, n)
		if g.p.sums != nil {
			last := len(v) - g.p.group()
			g.stage(row, col, v[last:])
			v = v[:last]
		}
		t.store(m, n, v)
	})
	if g.p.sums != nil {
		g.I("bar.sync", ptx.Imm(0))
		g.sumRows()
	}
}

// stage puts what is summed where the group's accumulators were: their thread alone has read them.
func (g *gen) stage(row, col num, v []ptx.Reg) {
	at := g.staged(row, col)
	for h := 0; h < len(v); h += 4 {
		g.I("st.shared.v4.f32", ptx.At(at, h*4), ptx.V(v[h:h+4]...))
	}
}

// staged is the address of an element of the first staging tile.
func (g *gen) staged(row, col num) ptx.Reg {
	return g.register(g.add(g.smem, g.mad(row, g.s.stagingRow()*4, g.mul(col, 4))))
}

// unstaged is the row of the tile that a row of the staging tile holds.
func (g *gen) unstaged(row num, part int) num {
	s, parts := g.s, g.s.parts()
	if parts == 1 {
		return row
	}
	each := s.warpM() / parts
	return g.add(g.mad(g.div(row, each), s.warpM(), g.mod(row, each)), imm(part*each))
}

// sumRows adds up the columns of the staging tile, a part of its rows at a time: always in the same order.
func (g *gen) sumRows() {
	s, p := g.s, g.p
	part, total := p.sums.part, s.BM/p.sums.part*s.BN
	out := g.address(g.pointer(g.plan.sums), g.mul(g.z[0], p.m/part*p.n), 4)
	index := g.Reg(ptx.B32)
	g.I("mov.b32", index, g.tid.operand())
	loop, next, done := g.NewLabel("column"), g.NewLabel("beyond"), g.NewLabel("summed")
	g.Place(loop)
	if total%s.threads() != 0 {
		g.If(g.compare("ge.u32", inReg(index), imm(total)), "bra", done)
	}
	k, col := g.div(inReg(index), s.BN), g.mod(inReg(index), s.BN)
	n, first := g.add(g.mul(g.tileN, s.BN), col), g.add(g.mul(g.tileM, s.BM/part), k)
	if p.n%s.BN != 0 {
		g.If(g.compare("ge.u32", n, imm(p.n)), "bra", next)
	}
	if p.m%s.BM != 0 {
		g.If(g.compare("ge.u32", first, imm(p.m/part)), "bra", next)
	}
	at := g.staged(g.mul(k, part), col)
	var acc [4]ptx.Reg
	for i := range part {
		x := g.Reg(ptx.F32)
		g.I("ld.shared.f32", x, ptx.At(at, i*s.stagingRow()*4))
		if a := &acc[i%4]; i < 4 {
			*a = x
		} else {
			g.I("add.rn.f32", *a, *a, x)
		}
	}
	g.I("add.rn.f32", acc[0], acc[0], acc[2])
	g.I("add.rn.f32", acc[1], acc[1], acc[3])
	g.I("add.rn.f32", acc[0], acc[0], acc[1])
	g.I("st.global.f32", ptx.At(g.address(out, g.mad(first, p.n, n), 4), 0), acc[0])
	g.Place(next)
	g.I("add.s32", index, index, ptx.Imm(s.threads()))
	g.If(g.compare("lt.u32", inReg(index), imm(total)), "bra", loop)
	g.Place(done)
}

// storer loads the outputs' pointers.
func (g *gen) storer() storer {
	if g.p.quantise != nil {
		return g.blockStorer()
	}
	var pointers []ptx.Reg
	for i := range g.p.outs {
		pointers = append(pointers, g.matrix(g.plan.outs[i], &g.p.outs[i].operand))
	}
	return func(m, n num, v []ptx.Reg) {
		group := len(v) / len(pointers)
		for i, out := range pointers {
			g.storeOut(i, out, m, n, v[i*group:(i+1)*group])
		}
	}
}

// columns says whether every thread has a group and all groups of a thread cover the same columns (fixed), and which.
type columns struct {
	fixed  bool
	col, n num // in the tile and in the matrix, if fixed
}

func (g *gen) columns() columns {
	across := g.s.BN / g.p.group()
	threads := g.s.threads()
	c := columns{fixed: threads%across == 0 && threads <= g.s.stagingRows()*across}
	if c.fixed {
		c.col = g.mul(g.mod(g.tid, across), g.p.group())
		c.n = g.add(g.mul(g.tileN, g.s.BN), c.col)
	}
	return c
}

// groups runs f for every group of columns of a part of the tile that lies in the matrix; row is that of the staging
// tile.
func (g *gen) groups(c columns, part int, f func(index, row, col, m, n num)) {
	s, p := g.s, g.p
	group := p.group()
	across := s.BN / group
	total := s.stagingRows() * across
	index := g.Reg(ptx.B32)
	g.I("mov.b32", index, g.tid.operand())
	loop, next, done := g.NewLabel("group"), g.NewLabel("next"), g.NewLabel("done")
	if c.fixed && p.n%s.BN != 0 {
		q := g.compare("ge.u32", c.n, imm(p.n))
		g.If(q, "bra", done)
	}
	g.Place(loop)
	if total%s.threads() != 0 {
		q := g.compare("ge.u32", inReg(index), imm(total))
		g.If(q, "bra", done)
	}
	row := g.div(inReg(index), across)
	m := g.row(g.unstaged(row, part), next)
	col, n := c.col, c.n
	if !c.fixed {
		col = g.mul(g.mod(inReg(index), across), group)
		n = g.add(g.mul(g.tileN, s.BN), col)
		if p.n%s.BN != 0 {
			q := g.compare("ge.u32", n, imm(p.n))
			g.If(q, "bra", next)
		}
	}
	f(inReg(index), row, col, m, n)
	g.Place(next)
	g.I("add.s32", index, index, ptx.Imm(s.threads()))
	more := g.compare("lt.u32", inReg(index), imm(total))
	g.If(more, "bra", loop)
	g.Place(done)
}

// sumWarps adds up a group over the staging tiles of the warps along K.
func (g *gen) sumWarps(row, col num) []ptx.Reg {
	s := g.s
	at := g.staged(row, col)
	var acc []ptx.Reg
	for w := 0; w < s.WarpsK; w++ {
		var v []ptx.Reg
		for h := 0; h < g.p.group(); h += 4 {
			r := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(r...), ptx.At(at, w*s.stagingRows()*s.stagingRow()*4+h*4))
			v = append(v, r...)
		}
		acc = g.plus(acc, v)
	}
	return acc
}

func (g *gen) plus(acc, v []ptx.Reg) []ptx.Reg {
	if acc == nil {
		return v
	}
	for i := range acc {
		g.I("add.rn.f32", acc[i], acc[i], v[i])
	}
	return acc
}

// storeOut writes a group of results of output i.
func (g *gen) storeOut(i int, out ptx.Reg, m, n num, v []ptx.Reg) {
	o := &g.p.outs[i].operand
	size := o.dtype.Bits() / 8
	rowOff := g.offset(o.row, m)
	if g.plan.epilogue.wide[i] {
		at := g.address(out, g.add(rowOff, g.offset(o.col, n)), size)
		if size == 4 {
			g.I("st.global.v4.f32", ptx.At(at, 0), ptx.V(v[:4]...))
			g.I("st.global.v4.f32", ptx.At(at, 16), ptx.V(v[4:]...))
			return
		}
		words := g.RegVec(ptx.B32, len(v)*size/4)
		for i, w := range words {
			switch {
			case size == 2:
				g.I("cvt.rn."+o.dtype.String()+"x2.f32", w, v[2*i+1], v[2*i])
			case g.t.Multiplies(o.dtype.String()):
				words[i] = g.joinHalves(g.pairE4M3(v[4*i], v[4*i+1]), g.pairE4M3(v[4*i+2], v[4*i+3]))
			default: // codes
				words[i] = g.packBytes(v[4*i : 4*i+4])
			}
		}
		g.I(fmt.Sprintf("st.global.v%d.b32", len(words)), ptx.At(at, 0), ptx.V(words...))
		return
	}
	for i, x := range v {
		c := g.add(n, imm(i))
		at := g.address(out, g.add(rowOff, g.offset(o.col, c)), size)
		var r ptx.Operand = x
		op := "st.global.f32"
		switch {
		case size == 2:
			h := g.Reg(ptx.B16)
			g.I("cvt.rn."+o.dtype.String()+".f32", h, x)
			r, op = h, "st.global.b16"
		case size == 1 && g.t.Multiplies(o.dtype.String()):
			r, op = g.pairE4M3(x, x), "st.global.u8"
		case size == 1:
			h := g.Reg(ptx.B16)
			g.I("cvt.u16.u32", h, x)
			r, op = h, "st.global.u8"
		}
		if g.plan.epilogue.exact {
			g.I(op, ptx.At(at, 0), r)
			continue
		}
		q := g.compare("lt.u32", c, imm(g.p.n))
		g.If(q, op, ptx.At(at, 0), r)
	}
}

// pairE4M3 is the codes of two values, the first in the low byte.
func (g *gen) pairE4M3(lo, hi ptx.Reg) ptx.Reg {
	h := g.Reg(ptx.B16)
	g.I("cvt.rn.satfinite.e4m3x2.f32", h, hi, lo)
	return h
}

// apply runs the epilogue on a group's accumulators.
func (g *gen) apply(t *tail, acc []ptx.Reg, m, n num) []ptx.Reg {
	e := g.plan.epilogue
	t.em.Push()
	defer t.em.Pop()
	g.bind(t.em, e.m, m)
	if !t.fixed {
		g.bind(t.em, e.n, n)
	}
	for i, a := range e.acc {
		t.em.Bind(a, acc[i])
	}
	return t.em.EmitAll(e.result)
}

func (g *gen) bind(em *expr.Emitter, v *expr.Expr, x num) {
	if v.Op == expr.OpVar {
		em.Bind(v, g.register(x))
	}
}
