package contraction

import "github.com/spark-compile/spark-compile/internal/ptx"

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
	g.groups(g.columns(), 0, func(index, row, col, m, n num) {
		acc := g.sumWarps(row, col)
		each, stride := s.quads(g.p)
		at := g.address(mine, index, each)
		for h := 0; h < len(acc); h += 4 {
			g.I("st.global.v4.f32", ptx.At(at, h/4*stride), ptx.V(acc[h:h+4]...))
		}
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
	each, stride := g.s.quads(g.p)
	at := g.address(work, index, each)
	var acc []ptx.Reg
	for i := 0; i < g.s.SplitK; i++ {
		var v []ptx.Reg
		for h := 0; h < g.p.group()/4; h++ {
			r := g.RegVec(ptx.F32, 4)
			g.I("ld.global.v4.f32", ptx.V(r...), ptx.At(at, i*g.s.BM*g.s.BN*4+h*stride))
			v = append(v, r...)
		}
		acc = g.plus(acc, v)
	}
	return acc
}

// quads returns the strides, in bytes of the workspace, of groups and of the fours of a group.
func (s Schedule) quads(p *problem) (groups, fours int) {
	if p.wholeSectors() {
		return 16, s.BM * s.BN / p.group() * 16
	}
	return p.group() * 4, 16
}

// wholeSectors reports whether warps write whole sectors of partial sums: blocks with a producer, which is recomputed
// for every tile along N, have few rows and many columns.
func (p *problem) wholeSectors() bool { return p.producer != nil }
