package contraction

import "github.com/spark-compile/spark-compile/internal/ptx"

// attnFMA: a warp owns four rows of q. A lane computes the scores of one key of the tile, and then some columns of p·v,
// reading the probabilities from shared memory.
type attnFMA struct {
	out      [][]ptx.Reg // for every row, for every 32 of the warp's columns of Dv
	max, sum []ptx.Reg
	row      num
	first    [2]num  // row of the block and column of the head
	own      num     // byte offset of the warp's rows of q
	q, p     ptx.Reg // addresses of the warp's rows of q and of the probabilities
}

func (c *attnFMA) place(g *gen, at *attnPlan) {
	wm, wn := at.warps(g)
	c.first = [2]num{g.mul(wm, fmaRows), g.add(g.mul(wn, at.columnsWarp()), g.lane)}
	c.row = g.add(g.mul(g.tileM, at.BM), g.mul(wm, fmaRows))
	c.own = g.mul(wm, fmaRows*at.dp*4)
	c.p = g.register(g.add(g.smem, g.mad(g.warp, fmaRows*at.BK*4, imm(at.probs))))
}

func (c *attnFMA) begin(g *gen, at *attnPlan, q num) {
	c.max, c.sum, c.out = g.filled(fmaRows, lowest), g.filled(fmaRows, 0), nil
	for r := 0; r < fmaRows; r++ {
		c.out = append(c.out, g.filled(at.columnsWarp()/32, 0))
	}
	c.q = g.register(g.add(g.add(g.smem, q), c.own))
}

func (c *attnFMA) compute(g *gen, at *attnPlan, kAt, vAt, first num) {
	key := g.register(g.add(g.add(g.smem, kAt), g.mad(g.lane, at.kPitch, imm(at.k.base))))
	s := g.filled(fmaRows, 0)
	for d := 0; d < at.dp; d += 4 {
		k := g.RegVec(ptx.F32, 4)
		g.I("ld.shared.v4.f32", ptx.V(k...), ptx.At(key, d*4))
		for r := range s {
			q := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(q...), ptx.At(c.q, (r*at.dp+d)*4))
			for i := range q {
				g.I("fma.rn.f32", s[r], q[i], k[i], s[r])
			}
		}
	}
	mine := g.register(g.mad(g.lane, 4, inReg(c.p)))
	for r, x := range s {
		g.score(x, place{at: g.add(first, g.lane)}, place{c.row, r}, g.inside(first, at.BK))
		tile := g.across("max.f32", x, 1, 2, 4, 8, 16)
		factor := ptx.Operand(ptx.FImm(1))
		if first.isReg { // something is summed already
			f := g.running(c.max[r], tile)
			for _, o := range c.out[r] {
				g.I("mul.rn.f32", o, o, f)
			}
			factor = f
		} else {
			g.I("max.f32", c.max[r], c.max[r], tile)
		}
		g.I("sub.rn.f32", x, x, c.max[r])
		g.I("ex2.approx.f32", x, x)
		g.I("fma.rn.f32", c.sum[r], c.sum[r], factor, x)
		g.I("st.shared.f32", ptx.At(mine, r*at.BK*4), x)
	}
	g.I("bar.warp.sync", ptx.Imm(-1))
	_, wn := at.warps(g)
	v := g.register(g.add(g.add(g.smem, vAt), g.add(g.mul(wn, at.columnsWarp()*4), g.mad(g.lane, 4, imm(at.v.base)))))
	for t := 0; t < at.BK; t += 4 {
		var prob [][]ptx.Reg
		for r := range s {
			x := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(x...), ptx.At(c.p, (r*at.BK+t)*4))
			prob = append(prob, x)
		}
		for i := 0; i < 4; i++ {
			for j := range c.out[0] {
				x := g.Reg(ptx.F32)
				g.I("ld.shared.f32", x, ptx.At(v, ((t+i)*at.BN+j*32)*4))
				for r := range s {
					g.I("fma.rn.f32", c.out[r][j], prob[r][i], x, c.out[r][j])
				}
			}
		}
	}
	g.I("bar.warp.sync", ptx.Imm(-1)) // before the next tile's probabilities
}

func (c *attnFMA) results(g *gen, at *attnPlan, to func(row, col num) func(rows, cols int, v []ptx.Reg)) {
	store := to(c.first[0], c.first[1])
	for r := range c.out {
		total := g.total(g.across("add.rn.f32", c.sum[r], 1, 2, 4, 8, 16))
		for j, o := range c.out[r] {
			q := g.Reg(ptx.F32)
			g.I("div.rn.f32", q, o, total)
			store(r, j*32, []ptx.Reg{q})
		}
	}
}
