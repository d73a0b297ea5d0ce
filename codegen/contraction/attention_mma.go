package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// attnMMA: a warp owns 16 rows of q. The scores' accumulators are, rounded to 16 bits, the A fragments of p·v: the C
// fragments of two neighbouring n8 tiles hold what an A fragment of k16 wants.
type attnMMA struct {
	q        [][]ptx.Reg // A fragments of q, for every k16 step of D
	out      [][]ptx.Reg // accumulators, for every n8 tile of the warp's columns of Dv
	max, sum []ptx.Reg   // of the lane's two rows
	row      num         // of q: the lane's first
	first    [2]num      // its row of the block and column of the head
	zero     []ptx.Reg   // what sums begin with
	own      []num       // byte offset of the lane's row of q, for every k16 step
	k, v     []num       // byte offsets of the lane's rows in a stage: of k for every k16 step, of v for every pair of n8 tiles
}

func (c *attnMMA) place(g *gen, at *attnPlan) {
	wm, wn := at.warps(g)
	row := g.add(g.mul(wm, 16), g.mod(g.lane, 16))
	sw := layout.NewSwizzle(at.dp * 2)
	for k := 0; k < at.dp/16; k++ {
		c.own = append(c.own, g.swizzled(sw, row, g.add(g.div(g.lane, 16), imm(2*k))))
		// Rows are keys: matrices (t 0–7, d 0–7), (t 0–7, d 8–15), (t 8–15, d 0–7), (t 8–15, d 8–15).
		t := g.add(g.mod(g.lane, 8), g.mul(g.div(g.lane, 16), 8))
		half := g.mod(g.div(g.lane, 8), 2)
		c.k = append(c.k, g.add(g.swizzled(sw, t, g.add(half, imm(2*k))), imm(at.k.base)))
	}
	vs := layout.NewSwizzle(at.BN * 2)
	for j := 0; j < at.columnsWarp()/16; j++ {
		t := g.mod(g.lane, 16)
		col := g.add(g.mul(wn, at.columnsWarp()/8), imm(2*j))
		c.v = append(c.v, g.add(g.swizzled(vs, t, g.add(g.div(g.lane, 16), col)), imm(at.v.base)))
	}
	f := layout.C16x8
	c.first = [2]num{g.add(g.mul(wm, 16), g.offset(f.LaneRow, g.lane)), g.add(g.mul(wn, at.columnsWarp()), g.offset(f.LaneCol, g.lane))}
	c.row = g.add(g.mul(g.tileM, at.BM), c.first[0])
	c.zero = g.filled(4, 0)
}

func (c *attnMMA) begin(g *gen, at *attnPlan, q num) {
	c.q, c.out = nil, nil
	base := g.add(g.smem, q)
	for _, own := range c.own {
		r := g.RegVec(ptx.B32, 4)
		g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(base, own)), 0))
		c.q = append(c.q, r)
	}
	for range c.v {
		c.out = append(c.out, g.filled(4, 0), g.filled(4, 0))
	}
	c.max, c.sum = g.filled(2, lowest), g.filled(2, 0)
}

func (c *attnMMA) compute(g *gen, at *attnPlan, kAt, vAt, first num) {
	from := g.addressesFrom(g.add(g.smem, kAt), c.k)
	var scores [][]ptx.Reg
	for j := 0; j < at.BK/16; j++ {
		s := [][]ptx.Reg{g.RegVec(ptx.F32, 4), g.RegVec(ptx.F32, 4)}
		for k := range c.q {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(from[k], j*16*at.dp*2))
			for h := range s {
				sum := s[h]
				if k == 0 {
					sum = c.zero
				}
				g.I(g.p.num.mmaOpcode(), ptx.V(s[h]...), ptx.V(c.q[k]...), ptx.V(r[2*h:2*h+2]...), ptx.V(sum...))
			}
		}
		scores = append(scores, s...)
	}
	col := g.add(first, g.offset(layout.C16x8.LaneCol, g.lane))
	var top [2]ptx.Reg
	for j, s := range scores {
		for v, x := range s {
			r := v / 2
			g.score(x, place{col, j*8 + v%2}, place{c.row, 8 * r}, g.inside(first, j*8+8))
			switch {
			case j == 0 && v%2 == 0:
				top[r] = x
			case j == 0:
				top[r] = g.Reg(ptx.F32)
				g.I("max.f32", top[r], s[v-1], x)
			default:
				g.I("max.f32", top[r], top[r], x)
			}
		}
	}
	for r := range top {
		tile := g.across("max.f32", top[r], 1, 2)
		if !first.isReg { // nothing is summed yet
			g.I("max.f32", c.max[r], c.max[r], tile)
			continue
		}
		factor := g.running(c.max[r], tile)
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
	from = g.addressesFrom(g.add(g.smem, vAt), c.v)
	for k := 0; k < at.BK/16; k++ {
		a := g.RegVec(ptx.B32, 4)
		for i, s := range scores[2*k : 2*k+2] {
			g.I("cvt.rn."+g.p.num.mul.String()+"x2.f32", a[2*i], s[1], s[0])
			g.I("cvt.rn."+g.p.num.mul.String()+"x2.f32", a[2*i+1], s[3], s[2])
		}
		for j := range c.v {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r...), ptx.At(from[j], k*16*at.BN*2))
			for h := 0; h < 2; h++ {
				o := c.out[2*j+h]
				g.I(g.p.num.mmaOpcode(), ptx.V(o...), ptx.V(a...), ptx.V(r[2*h:2*h+2]...), ptx.V(o...))
			}
		}
	}
}

func (c *attnMMA) results(g *gen, at *attnPlan, to func(row, col num) func(rows, cols int, v []ptx.Reg)) {
	store := to(c.first[0], c.first[1])
	for r := 0; r < 2; r++ {
		inv := g.Reg(ptx.F32)
		g.I("rcp.rn.f32", inv, g.total(g.across("add.rn.f32", c.sum[r], 1, 2)))
		for j, o := range c.out {
			for v := 2 * r; v < 2*r+2; v++ {
				g.I("mul.rn.f32", o[v], o[v], inv)
			}
			store(8*r, 8*j, o[2*r:2*r+2])
		}
	}
}

// addressesFrom are addresses at distances from a place in shared memory.
func (g *gen) addressesFrom(base num, distances []num) []ptx.Reg {
	var at []ptx.Reg
	for _, d := range distances {
		at = append(at, g.register(g.add(base, d)))
	}
	return at
}
