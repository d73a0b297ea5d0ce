package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// mmaCore is a warp's share on tensor cores: mma.sync.m16n8k16, A by ldmatrix, B in packed fragments or by ldmatrix.
type mmaCore struct {
	acc    [][][]ptx.Reg // m16 tile, n8 tile, c0–c3
	aRow   num           // byte offset of this lane's row of the first m16 tile in a stage
	aStep  []num         // byte offset within the row for every k16 step
	bBase  num           // packed: of the lane's 16 bytes; nk: of its row; kn: of its row
	bStep  []num         // nk: for every k16 step; kn: for every pair of n8 tiles
	wm, wn num           // warp's tile origin
	wk     num
}

func (c *mmaCore) begin(g *gen) {
	s := g.s
	d := g.asm.split([]int{s.WarpsK, s.WarpsN, s.WarpsM}, g.warp)
	c.wk = d[0]
	c.wn, c.wm = g.mul(d[1], s.warpN()), g.mul(d[2], s.warpM())
	mt, nt := s.warpM()/16, s.warpN()/8
	for i := 0; i < mt; i++ {
		row := make([][]ptx.Reg, nt)
		for j := range row {
			row[j] = g.RegVec(ptx.F32, 4)
			for _, r := range row[j] {
				g.I("mov.f32", r, ptx.FImm(0))
			}
		}
		c.acc = append(c.acc, row)
	}
	steps := s.BK / 16 / s.WarpsK
	// ldmatrix.x4 on A: lanes 0–15 name the rows of the left 8×8 matrices, 16–31 those of the right ones.
	sw := layout.NewSwizzle(s.BK * 2)
	row, right := g.add(c.wm, g.mod(g.lane, 16)), g.div(g.lane, 16)
	c.aRow = g.mul(row, s.BK*2)
	key := g.mod(g.div(row, 1<<sw.Shift), sw.Mask+1)
	chunk0 := g.mul(c.wk, steps*2)
	for k := 0; k < steps; k++ {
		ch := g.add(g.add(chunk0, imm(2*k)), right)
		c.aStep = append(c.aStep, g.add(c.aRow, g.mul(g.xor(ch, key), 16)))
	}
	base := s.BM * s.BK * 2
	switch {
	case g.plan.packed:
		// [k16 step][n16 tile][lane][16 bytes]
		c.bBase = g.add(imm(base), g.add(g.mul(g.lane, 16), g.mul(g.add(g.mul(c.wk, steps*s.BN/16), g.div(c.wn, 16)), 512)))
	case !g.plan.loadB.kRows:
		// Rows are n: matrices (n 0–7, k 0–7), (n 0–7, k 8–15), (n 8–15, k 0–7), (n 8–15, k 8–15).
		n := g.add(c.wn, g.add(g.mod(g.lane, 8), g.mul(g.div(g.lane, 16), 8)))
		key := g.mod(g.div(n, 1<<sw.Shift), sw.Mask+1)
		half := g.mod(g.div(g.lane, 8), 2)
		for k := 0; k < steps; k++ {
			ch := g.add(g.add(chunk0, imm(2*k)), half)
			c.bStep = append(c.bStep, g.add(g.mad(n, s.BK*2, imm(base)), g.mul(g.xor(ch, key), 16)))
		}
	default:
		// Rows are k, transposed on the way: (k 0–7, n 0–7), (k 8–15, n 0–7), (k 0–7, n 8–15), (k 8–15, n 8–15).
		sw := layout.NewSwizzle(s.BN * 2)
		k := g.add(g.mul(c.wk, steps*16), g.mod(g.lane, 16))
		key := g.mod(g.div(k, 1<<sw.Shift), sw.Mask+1)
		for j := 0; j < nt/2; j++ {
			ch := g.add(g.add(g.div(c.wn, 8), imm(2*j)), g.div(g.lane, 16))
			c.bStep = append(c.bStep, g.add(g.mad(k, s.BN*2, imm(base)), g.mul(g.xor(ch, key), 16)))
		}
	}
}

func (c *mmaCore) compute(g *gen, stage num) {
	s := g.s
	at := g.add(g.smem, stage)
	for k := 0; k < s.BK/16/s.WarpsK; k++ {
		var a, b [][]ptx.Reg
		row := g.register(g.add(at, c.aStep[k]))
		for i := range c.acc {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(row, i*16*s.BK*2))
			a = append(a, r)
		}
		for j := 0; j < len(c.acc[0])/2; j++ {
			r := g.RegVec(ptx.B32, 4)
			switch {
			case g.plan.packed:
				g.I("ld.shared.v4.b32", ptx.V(r...), ptx.At(g.register(g.add(at, c.bBase)), (k*s.BN/16+j)*512))
			case !g.plan.loadB.kRows:
				g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(at, c.bStep[k])), j*16*s.BK*2))
			default:
				g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(at, c.bStep[j])), k*16*s.BN*2))
			}
			b = append(b, r[:2], r[2:])
		}
		for i := range c.acc {
			for j, acc := range c.acc[i] {
				g.I("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ptx.V(acc...), ptx.V(a[i]...), ptx.V(b[j]...), ptx.V(acc...))
			}
		}
	}
}

func (c *mmaCore) store(g *gen) {
	s := g.s
	f := layout.C16x8
	row := g.add(g.add(c.wm, g.mul(c.wk, s.BM)), g.offset(f.LaneRow, g.lane))
	col := g.add(c.wn, g.offset(f.LaneCol, g.lane))
	at := g.register(g.add(g.smem, g.mad(row, s.stagingRow()*4, g.mul(col, 4))))
	for i := range c.acc {
		for j, acc := range c.acc[i] {
			for v := 0; v < 4; v += 2 {
				r, n := i*16+layout.Offset(f.ValueRow, v), j*8+layout.Offset(f.ValueCol, v)
				g.I("st.shared.v2.f32", ptx.At(at, (r*s.stagingRow()+n)*4), ptx.V(acc[v], acc[v+1]))
			}
		}
	}
}
