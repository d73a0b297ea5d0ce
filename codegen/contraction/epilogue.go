package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// group is the number of neighbouring columns that a thread finishes together: 16 bytes of f16.
const group = 8

// epilogue is what happens to an accumulator: the nodes behind the anchor as one scalar function of the accumulator and of
// leaves, each a tensor read at the anchor's output index.
type epilogue struct {
	leaves []*leaf
	wide   bool // the output is stored 16 bytes at a time
	exact  bool // every group of columns is inside or outside of the matrix as a whole
}

// leaf is an operand of the epilogue.
type leaf struct {
	operand
	body  *ir.Value // of the region's body
	param int
	kind  leafKind
}

type leafKind int

const (
	leafSingle leafKind = iota // an element for every column
	leafWide                   // 16 bytes at a time
	leafColumn                 // the same for every column of a group
)

// planEpilogue finds the leaves and decides how they and the output are accessed.
func planEpilogue(p *problem, pl *plan, ctx *kernel.Context) (*epilogue, error) {
	e := &epilogue{exact: p.n%group == 0}
	if d := p.out.dtype; d != ir.Float16 && d != ir.Float32 {
		return nil, fmt.Errorf("output of type %s", d)
	}
	e.wide = e.exact && widens16(&p.out, ctx.AlignOf(p.out.value))
	return e, nil
}

// widens16 reports whether every group of columns of an operand lies in consecutive elements, aligned to 16 bytes (f16) or
// to 32 (f32, read as two).
func widens16(o *operand, align int) bool {
	if align%16 != 0 || o.offset%group != 0 || layout.Run(o.col)%group != 0 {
		return false
	}
	col := layout.Coalesce(o.col)
	all := append(slices.Clone(o.z), o.row, col[:len(col)-1])
	for _, modes := range all {
		for _, m := range modes {
			if m.Stride%group != 0 {
				return false
			}
		}
	}
	return true
}

// finish sums the tiles of the warps along K and of the blocks of a split, in fixed order, and runs the epilogue. A
// thread takes groups of eight columns.
func (g *gen) finish() {
	s, p := g.s, g.p
	e := g.plan.epilogue
	out := g.matrix(g.plan.out, &p.out)
	var work ptx.Reg
	if s.SplitK > 1 {
		work = g.partials()
	}
	g.groups(func(index, row, col, m, n num) {
		var acc []ptx.Reg
		if s.SplitK > 1 {
			acc = g.sumSplits(work, index)
		} else {
			acc = g.sumWarps(row, col)
		}
		_ = e
		g.storeOut(out, m, n, acc)
	})
}

// groups runs f for every group of columns of the tile that lies in the matrix.
func (g *gen) groups(f func(index, row, col, m, n num)) {
	s, p := g.s, g.p
	across := s.BN / group
	total := s.BM * across
	index := g.Reg(ptx.B32)
	g.I("mov.b32", index, g.tid.operand())
	loop, next, done := g.NewLabel("group"), g.NewLabel("next"), g.NewLabel("done")
	g.Place(loop)
	if total%s.threads() != 0 {
		q := g.compare("ge.u32", inReg(index), imm(total))
		g.If(q, "bra", done)
	}
	row := g.div(inReg(index), across)
	col := g.mul(g.mod(inReg(index), across), group)
	m, n := g.add(g.mul(g.tileM, s.BM), row), g.add(g.mul(g.tileN, s.BN), col)
	if p.m%s.BM != 0 {
		q := g.compare("ge.u32", m, imm(p.m))
		g.If(q, "bra", next)
	}
	if p.n%s.BN != 0 {
		q := g.compare("ge.u32", n, imm(p.n))
		g.If(q, "bra", next)
	}
	f(inReg(index), row, col, m, n)
	g.Place(next)
	g.I("add.s32", index, index, ptx.Imm(s.threads()))
	more := g.compare("lt.u32", inReg(index), imm(total))
	g.If(more, "bra", loop)
	g.Place(done)
}

// sumWarps reads a group from the staging tiles.
func (g *gen) sumWarps(row, col num) []ptx.Reg {
	s := g.s
	at := g.register(g.add(g.smem, g.mad(row, s.stagingRow()*4, g.mul(col, 4))))
	var acc []ptx.Reg
	for w := 0; w < s.WarpsK; w++ {
		var v []ptx.Reg
		for h := 0; h < group; h += 4 {
			r := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(r...), ptx.At(at, w*s.BM*s.stagingRow()*4+h*4))
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

// partials writes this block's sums to the workspace and lets all but the last block of the tile to arrive return. It
// yields the workspace of the tile. The counter's read-modify-write releases the partial sums of its block and acquires
// those of the blocks before it (PTX ISA 8.9, memory consistency model: barriers extend both to the block's threads).
func (g *gen) partials() ptx.Reg {
	s := g.s
	work := g.pointer(g.plan.work)
	mine, base := g.Reg(ptx.B64), g.Reg(ptx.B64)
	g.I("mul.wide.u32", base, g.register(g.tile), ptx.Imm(s.SplitK*s.BM*s.BN*4))
	g.I("add.s64", base, work, base)
	g.I("mad.wide.u32", mine, g.register(g.share), ptx.Imm(s.BM*s.BN*4), base)
	g.groups(func(index, row, col, m, n num) {
		acc := g.sumWarps(row, col)
		at := g.address(mine, index, group*4)
		g.I("st.global.v4.f32", ptx.At(at, 0), ptx.V(acc[:4]...))
		g.I("st.global.v4.f32", ptx.At(at, 16), ptx.V(acc[4:]...))
	})
	g.I("fence.acq_rel.gpu")
	g.I("bar.sync", ptx.Imm(0))
	first := g.compare("eq.u32", g.tid, imm(0))
	counter := g.address(g.pointer(g.plan.ticket), g.tile, 4)
	ticket := g.s.shared(g.p) - 16
	old := g.Reg(ptx.B32)
	g.If(first, "atom.acq_rel.gpu.global.add.u32", old, ptx.At(counter, 0), ptx.Imm(1))
	g.If(first, "st.shared.b32", ptx.At(g.smem.reg, ticket), old)
	g.I("bar.sync", ptx.Imm(0))
	g.I("ld.shared.b32", old, ptx.At(g.smem.reg, ticket))
	last := g.compare("eq.u32", inReg(old), imm(s.SplitK-1))
	g.Unless(last, "ret")
	g.I("fence.acq_rel.gpu")
	g.If(first, "st.global.u32", ptx.At(counter, 0), ptx.Imm(0))
	return base
}

// sumSplits adds the partial sums of a group in the order of the splits.
func (g *gen) sumSplits(work ptx.Reg, index num) []ptx.Reg {
	at := g.address(work, index, group*4)
	var acc []ptx.Reg
	for i := 0; i < g.s.SplitK; i++ {
		var v []ptx.Reg
		for h := 0; h < 2; h++ {
			r := g.RegVec(ptx.F32, 4)
			g.I("ld.global.v4.f32", ptx.V(r...), ptx.At(at, i*g.s.BM*g.s.BN*4+h*16))
			v = append(v, r...)
		}
		acc = g.plus(acc, v)
	}
	return acc
}

// storeOut writes a group of results.
func (g *gen) storeOut(out ptx.Reg, m, n num, v []ptx.Reg) {
	o := &g.p.out
	size := o.dtype.Bits() / 8
	rowOff := g.offset(o.row, m)
	if g.plan.epilogue.wide {
		at := g.address(out, g.add(rowOff, g.offset(o.col, n)), size)
		if size == 4 {
			g.I("st.global.v4.f32", ptx.At(at, 0), ptx.V(v[:4]...))
			g.I("st.global.v4.f32", ptx.At(at, 16), ptx.V(v[4:]...))
			return
		}
		words := g.RegVec(ptx.B32, 4)
		for i, w := range words {
			g.I("cvt.rn.f16x2.f32", w, v[2*i+1], v[2*i])
		}
		g.I("st.global.v4.b32", ptx.At(at, 0), ptx.V(words...))
		return
	}
	for i, x := range v {
		c := g.add(n, imm(i))
		at := g.address(out, g.add(rowOff, g.offset(o.col, c)), size)
		var r ptx.Operand = x
		op := "st.global.f32"
		if size == 2 {
			h := g.Reg(ptx.B16)
			g.I("cvt.rn.f16.f32", h, x)
			r, op = h, "st.global.b16"
		}
		if g.plan.epilogue.exact {
			g.I(op, ptx.At(at, 0), r)
			continue
		}
		q := g.compare("lt.u32", c, imm(g.p.n))
		g.If(q, op, ptx.At(at, 0), r)
	}
}
