package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// attnMMA: a warp owns 16 rows of q. The scores' accumulators are, rounded to 16 bits, the A fragments of p·v: the C fragments
// of two neighbouring n8 tiles hold what an A fragment of k16 wants.
type attnMMA struct {
	q        [][]ptx.Reg // A fragments of q, for every k16 step of D
	out      [][]ptx.Reg // accumulators, for every n8 tile of Dv
	max, sum []ptx.Reg   // of the lane's two rows
	row      num         // of q: the lane's first
	k, v     []num       // byte offsets of the lane's rows in a stage: of k for every k16 step, of v for every pair of n8 tiles
}

func (c *attnMMA) begin(g *gen, at *attnPlan) {
	row := g.add(g.mul(g.warp, 16), g.mod(g.lane, 16))
	sw := layout.NewSwizzle(at.dp * 2)
	for k := 0; k < at.dp/16; k++ {
		r := g.RegVec(ptx.B32, 4)
		ch := g.add(g.div(g.lane, 16), imm(2*k))
		g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(g.smem, g.swizzled(sw, row, ch))), 0))
		c.q = append(c.q, r)
		// Rows are keys: matrices (t 0–7, d 0–7), (t 0–7, d 8–15), (t 8–15, d 0–7), (t 8–15, d 8–15).
		t := g.add(g.mod(g.lane, 8), g.mul(g.div(g.lane, 16), 8))
		half := g.mod(g.div(g.lane, 8), 2)
		c.k = append(c.k, g.add(g.swizzled(sw, t, g.add(half, imm(2*k))), imm(at.k.base)))
	}
	vs := layout.NewSwizzle(at.BN * 2)
	for j := 0; j < at.BN/16; j++ {
		t := g.mod(g.lane, 16)
		c.v = append(c.v, g.add(g.swizzled(vs, t, g.add(g.div(g.lane, 16), imm(2*j))), imm(at.v.base)))
		c.out = append(c.out, g.filled(4, 0), g.filled(4, 0))
	}
	c.max, c.sum = g.filled(2, lowest), g.filled(2, 0)
	c.row = g.add(g.add(g.mul(g.tileM, at.BM), g.mul(g.warp, 16)), g.offset(layout.C16x8.LaneRow, g.lane))
}

func (c *attnMMA) compute(g *gen, at *attnPlan, stage, first num) {
	base := g.add(g.smem, stage)
	var scores [][]ptx.Reg
	for j := 0; j < at.BK/16; j++ {
		s := [][]ptx.Reg{g.filled(4, 0), g.filled(4, 0)}
		for k := range c.q {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(base, c.k[k])), j*16*at.dp*2))
			for h := range s {
				g.I(g.p.num.mmaOpcode(), ptx.V(s[h]...), ptx.V(c.q[k]...), ptx.V(r[2*h:2*h+2]...), ptx.V(s[h]...))
			}
		}
		scores = append(scores, s...)
	}
	col := g.add(first, g.offset(layout.C16x8.LaneCol, g.lane))
	var top [2]ptx.Reg
	for j, s := range scores {
		for v, x := range s {
			r := v / 2
			g.score(x, g.add(col, imm(j*8+v%2)), g.add(c.row, imm(8*r)))
			if j == 0 && v%2 == 0 {
				top[r] = g.Reg(ptx.F32)
				g.I("mov.f32", top[r], x)
			} else {
				g.I("max.f32", top[r], top[r], x)
			}
		}
	}
	for r := range top {
		factor := g.running(c.max[r], g.across("max.f32", top[r], 1, 2))
		g.I("mul.rn.f32", c.sum[r], c.sum[r], factor)
		for _, o := range c.out {
			for v := 2 * r; v < 2*r+2; v++ {
				g.I("mul.rn.f32", o[v], o[v], factor)
			}
		}
	}
	for _, s := range scores {
		for v, x := range s {
			g.I("sub.rn.f32", x, x, c.max[v/2])
			g.I("ex2.approx.f32", x, x)
			g.I("add.rn.f32", c.sum[v/2], c.sum[v/2], x)
		}
	}
	for k := 0; k < at.BK/16; k++ {
		a := g.RegVec(ptx.B32, 4)
		for i, s := range scores[2*k : 2*k+2] {
			g.I("cvt.rn."+g.p.num.mul.String()+"x2.f32", a[2*i], s[1], s[0])
			g.I("cvt.rn."+g.p.num.mul.String()+"x2.f32", a[2*i+1], s[3], s[2])
		}
		for j := range c.v {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(base, c.v[j])), k*16*at.BN*2))
			for h := 0; h < 2; h++ {
				o := c.out[2*j+h]
				g.I(g.p.num.mmaOpcode(), ptx.V(o...), ptx.V(a...), ptx.V(r[2*h:2*h+2]...), ptx.V(o...))
			}
		}
	}
}

func (c *attnMMA) store(g *gen, at *attnPlan) {
	f := layout.C16x8
	row := g.add(g.mul(g.warp, 16), g.offset(f.LaneRow, g.lane))
	to := g.register(g.add(g.smem, g.mad(row, at.stagingRow()*4, g.mul(g.offset(f.LaneCol, g.lane), 4))))
	for r := 0; r < 2; r++ {
		inv := g.Reg(ptx.F32)
		g.I("rcp.rn.f32", inv, g.total(g.across("add.rn.f32", c.sum[r], 1, 2)))
		for j, o := range c.out {
			for v := 2 * r; v < 2*r+2; v++ {
				g.I("mul.rn.f32", o[v], o[v], inv)
			}
			g.I("st.shared.v2.f32", ptx.At(to, (8*r*at.stagingRow()+8*j)*4), ptx.V(o[2*r], o[2*r+1]))
		}
	}
}
