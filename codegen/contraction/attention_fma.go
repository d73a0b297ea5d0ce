package contraction

import "github.com/spark-compile/spark-compile/internal/ptx"

// attnFMA: a warp owns four rows of q. A lane computes the scores of one key of the tile, and then some columns of p·v,
// reading the probabilities from shared memory.
type attnFMA struct {
	out      [][]ptx.Reg // for every row, for every 32 columns of Dv
	max, sum []ptx.Reg
	row      num
	q, p     ptx.Reg // addresses of the warp's rows of q and of the probabilities
}

func (c *attnFMA) begin(g *gen, at *attnPlan) {
	c.max, c.sum = g.filled(fmaRows, lowest), g.filled(fmaRows, 0)
	for r := 0; r < fmaRows; r++ {
		c.out = append(c.out, g.filled(at.BN/32, 0))
	}
	c.row = g.add(g.mul(g.tileM, at.BM), g.mul(g.warp, fmaRows))
	c.q = g.register(g.add(g.smem, g.mul(g.warp, fmaRows*at.dp*4)))
	c.p = g.register(g.add(g.smem, g.mad(g.warp, fmaRows*at.BK*4, imm(at.probs))))
}

func (c *attnFMA) compute(g *gen, at *attnPlan, stage, first num) {
	base := g.add(g.smem, stage)
	key := g.register(g.add(base, g.mad(g.lane, at.kPitch, imm(at.k.base))))
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
		g.score(x, g.add(first, g.lane), g.add(c.row, imm(r)))
		factor := g.running(c.max[r], g.across("max.f32", x, 1, 2, 4, 8, 16))
		g.I("sub.rn.f32", x, x, c.max[r])
		g.I("ex2.approx.f32", x, x)
		g.I("fma.rn.f32", c.sum[r], c.sum[r], factor, x)
		for _, o := range c.out[r] {
			g.I("mul.rn.f32", o, o, factor)
		}
		g.I("st.shared.f32", ptx.At(mine, r*at.BK*4), x)
	}
	g.I("bar.warp.sync", ptx.Imm(-1))
	v := g.register(g.add(base, g.mad(g.lane, 4, imm(at.v.base))))
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

func (c *attnFMA) store(g *gen, at *attnPlan) {
	to := g.register(g.add(g.smem, g.mad(g.warp, fmaRows*at.stagingRow()*4, g.mul(g.lane, 4))))
	for r := range c.out {
		total := g.total(g.across("add.rn.f32", c.sum[r], 1, 2, 4, 8, 16))
		for j, o := range c.out[r] {
			q := g.Reg(ptx.F32)
			g.I("div.rn.f32", q, o, total)
			g.I("st.shared.f32", ptx.At(to, (r*at.stagingRow()+j*32)*4), q)
		}
	}
}
