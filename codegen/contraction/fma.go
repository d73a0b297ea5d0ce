package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// fmaCore is a thread's share with fma.rn.f32: ThreadM rows with a step of BM/ThreadM, by ThreadN columns in runs of
// four. Where A has rows of k, its rows are in runs of four too.
type fmaCore struct {
	acc    [][]ptx.Reg
	ty, tx num
	wk     num
	aStep  []num // byte offset of the thread's first row for every four k; one alone for rows of k
	bBase  num

	factors *ptx.Reg // address of the factor of the thread's first column of A in the chunk; nil: none
}

func (c *fmaCore) begin(g *gen) {
	s := g.s
	ty, tx := s.BM/s.ThreadM, s.BN/s.ThreadN
	d := g.asm.split([]int{s.WarpsK, ty, tx}, g.tid)
	c.wk, c.ty, c.tx = d[0], d[1], d[2]
	for range s.ThreadM {
		c.acc = append(c.acc, g.filled(s.ThreadN, 0))
	}
	c.place(g)
	c.factors = g.factorsFrom(func() num { return g.mul(c.wk, s.BK/s.WarpsK) })
}

// more uses the same accumulators.
func (c *fmaCore) more(g, second *gen, at num) {
	d := &fmaCore{acc: c.acc, ty: c.ty, tx: c.tx, wk: imm(0)}
	g.inFirst(c.wk, g.s.WarpsK > 1, func() {
		d.place(second)
		d.compute(second, at, at)
	})
}

// place says where the thread finds its operands.
func (c *fmaCore) place(g *gen) {
	s := g.s
	steps := s.BK / 4 / s.WarpsK
	if g.plan.loadA.kRows {
		c.aStep = []num{g.mad(c.wk, steps*4*s.BM*4, g.mul(c.ty, 16))}
	} else {
		sw := layout.NewSwizzle(s.BK * 4)
		key := g.mod(g.div(c.ty, 1<<sw.Shift), sw.Mask+1)
		for k := 0; k < steps; k++ {
			ch := g.add(g.mul(c.wk, steps), imm(k))
			c.aStep = append(c.aStep, g.add(g.mul(c.ty, s.BK*4), g.mul(g.xor(ch, key), 16)))
		}
	}
	c.bBase = g.add(imm(s.stageA(g.p)), g.mad(c.wk, steps*4*s.BN*4, g.mul(c.tx, 16)))
}

func (c *fmaCore) compute(g *gen, tileA, stage num) {
	s := g.s
	atA, at := g.addresses(tileA, stage)
	tx := s.BN / s.ThreadN
	b := g.register(g.add(at, c.bBase))
	for k := 0; k < s.BK/4/s.WarpsK; k++ {
		av := c.rows(g, atA, k)
		if c.factors != nil {
			f := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(f...), ptx.At(*c.factors, 16*k))
			for _, row := range av {
				for kk, x := range row {
					g.I("mul.rn.f32", x, x, f[kk])
				}
			}
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
	if c.factors != nil {
		g.I("add.s32", *c.factors, *c.factors, ptx.Imm(4*s.BK))
	}
}

// rows are the four elements of step k that each row of the thread has.
func (c *fmaCore) rows(g *gen, at num, k int) [][]ptx.Reg {
	s := g.s
	ty, av := s.BM/s.ThreadM, make([][]ptx.Reg, s.ThreadM)
	if !g.plan.loadA.kRows {
		row := g.register(g.add(at, c.aStep[k]))
		for i := range av {
			av[i] = g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(av[i]...), ptx.At(row, i*ty*s.BK*4))
		}
		return av
	}
	first := g.register(g.add(at, c.aStep[0]))
	for kk := range 4 {
		for i := 0; i < s.ThreadM; i += 4 {
			r := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(r...), ptx.At(first, ((k*4+kk)*s.BM+i*ty)*4))
			for j := range r {
				av[i+j] = append(av[i+j], r[j])
			}
		}
	}
	return av
}

func (c *fmaCore) store(g *gen, _ int) {
	s := g.s
	ty, tx := s.BM/s.ThreadM, s.BN/s.ThreadN
	thread, stride := c.ty, func(i int) int { return i * ty }
	if g.plan.loadA.kRows {
		thread, stride = g.mul(c.ty, 4), func(i int) int { return i/4*4*ty + i%4 }
	}
	row := g.mad(c.wk, s.BM, thread)
	at := g.register(g.add(g.smem, g.mad(row, s.stagingRow()*4, g.mul(c.tx, 16))))
	for i := range c.acc {
		for j := 0; j < s.ThreadN; j += 4 {
			g.I("st.shared.v4.f32", ptx.At(at, (stride(i)*s.stagingRow()+j*tx)*4), ptx.V(c.acc[i][j:j+4]...))
		}
	}
}
