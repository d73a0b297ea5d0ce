package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// fmaCore is a thread's share with fma.rn.f32: ThreadM rows, BM/ThreadM apart, by ThreadN columns in runs of four.
type fmaCore struct {
	acc    [][]ptx.Reg
	ty, tx num
	wk     num
	aStep  []num // byte offset of the thread's first row for every four k
	bBase  num
}

func (c *fmaCore) begin(g *gen) {
	s := g.s
	ty, tx := s.BM/s.ThreadM, s.BN/s.ThreadN
	d := g.asm.split([]int{s.WarpsK, ty, tx}, g.tid)
	c.wk, c.ty, c.tx = d[0], d[1], d[2]
	for i := 0; i < s.ThreadM; i++ {
		c.acc = append(c.acc, g.RegVec(ptx.F32, s.ThreadN))
		for _, r := range c.acc[i] {
			g.I("mov.f32", r, ptx.FImm(0))
		}
	}
	sw := layout.NewSwizzle(s.BK * 4)
	key := g.mod(g.div(c.ty, 1<<sw.Shift), sw.Mask+1)
	steps := s.BK / 4 / s.WarpsK
	for k := 0; k < steps; k++ {
		ch := g.add(g.mul(c.wk, steps), imm(k))
		c.aStep = append(c.aStep, g.add(g.mul(c.ty, s.BK*4), g.mul(g.xor(ch, key), 16)))
	}
	c.bBase = g.add(imm(s.BM*s.BK*4), g.mad(c.wk, steps*4*s.BN*4, g.mul(c.tx, 16)))
}

func (c *fmaCore) compute(g *gen, stage num) {
	s := g.s
	at := g.add(g.smem, stage)
	ty, tx := s.BM/s.ThreadM, s.BN/s.ThreadN
	b := g.register(g.add(at, c.bBase))
	for k := 0; k < s.BK/4/s.WarpsK; k++ {
		row := g.register(g.add(at, c.aStep[k]))
		av := make([][]ptx.Reg, s.ThreadM)
		for i := range av {
			av[i] = g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(av[i]...), ptx.At(row, i*ty*s.BK*4))
		}
		for kk := 0; kk < 4; kk++ {
			var bv []ptx.Reg
			for j := 0; j < s.ThreadN/4; j++ {
				r := g.RegVec(ptx.F32, 4)
				g.I("ld.shared.v4.f32", ptx.V(r...), ptx.At(b, ((k*4+kk)*s.BN+j*tx*4)*4))
				bv = append(bv, r...)
			}
			for i := range c.acc {
				for j, acc := range c.acc[i] {
					g.I("fma.rn.f32", acc, av[i][kk], bv[j], acc)
				}
			}
		}
	}
}

func (c *fmaCore) store(g *gen) {
	s := g.s
	ty, tx := s.BM/s.ThreadM, s.BN/s.ThreadN
	row := g.mad(c.wk, s.BM, c.ty)
	at := g.register(g.add(g.smem, g.mad(row, s.stagingRow()*4, g.mul(c.tx, 16))))
	for i := range c.acc {
		for j := 0; j < s.ThreadN; j += 4 {
			g.I("st.shared.v4.f32", ptx.At(at, (i*ty*s.stagingRow()+j*tx)*4), ptx.V(c.acc[i][j:j+4]...))
		}
	}
}
