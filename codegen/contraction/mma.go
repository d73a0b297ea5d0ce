package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// mmaCore is a warp's share on tensor cores: A by ldmatrix, B in packed fragments or by ldmatrix. Both move 32 bytes
// of K at a time, whatever the type: an 8×8 matrix of 16-bit elements is one of 8×16 bytes.
type mmaCore struct {
	acc    [][][]ptx.Reg // m16 tile, n8 tile, c0–c3
	part   [][][]ptx.Reg // likewise, sums of the last products, where these are added in f32
	zero   []ptx.Reg     // what they begin with
	aStep  []num         // byte offset in a stage of this lane's row of the first m16 tile, for every step; rows of k: for every m16 tile
	bBase  num           // packed: of the lane's 16 bytes; nk: of its row; kn: of its row
	bStep  []num         // nk: for every step; kn: for every pair of n8 tiles
	scales num           // of the lane's column of the first n16 tile
	rowA   num           // of A's scales, in a stage or in a tile that is made: of the lane's row of the first m16 tile
	wm, wn num           // warp's tile origin
	wk     num           // warp's part of the sums
	kPart  num           // and of K

	factors *ptx.Reg // address of the factor of the lane's first column of A in the chunk; nil: none
}

func (c *mmaCore) begin(g *gen) {
	s := g.s
	d := g.asm.split([]int{s.WarpsK, s.WarpsN, s.WarpsM}, g.warp)
	c.wk = d[0]
	c.wn, c.wm = g.mul(d[1], s.warpN()), g.mul(d[2], s.warpM())
	c.kPart = c.wk
	if s.warpsTerm(&g.p.num) == 2 {
		c.kPart = g.div(c.wk, 2)
	}
	mt, nt := s.warpM()/16, s.warpN()/8
	for i := 0; i < mt; i++ {
		row := make([][]ptx.Reg, nt)
		for j := range row {
			row[j] = g.filled(4, 0)
		}
		c.acc = append(c.acc, row)
	}
	if g.p.num.partial > 0 {
		c.zero = g.filled(4, 0)
		for i := range c.acc {
			c.part = append(c.part, nil)
			for range c.acc[i] {
				c.part[i] = append(c.part[i], g.RegVec(ptx.F32, 4))
			}
		}
	}
	c.place(g)
	c.factors = g.factorsFrom(func() num { return g.mad(c.kPart, s.warpK(&g.p.num), g.mul(g.mod(g.lane, 4), 2)) })
}

// more uses the same accumulators.
func (c *mmaCore) more(g, second *gen, at num) {
	d := &mmaCore{acc: c.acc, wm: c.wm, wn: c.wn, wk: imm(0), kPart: imm(0)}
	g.inFirst(c.wk, g.s.WarpsK > 1, func() {
		d.place(second)
		d.compute(second, at, at)
	})
}

// place says where the lane finds its fragments.
func (c *mmaCore) place(g *gen) {
	s, num := g.s, &g.p.num
	nt := s.warpN() / 8
	perWarp := s.warpK(num)
	steps := perWarp / num.stepA()
	pitch := num.tileA(1, s.BK)
	sw := layout.NewSwizzle(pitch)
	chunk0 := c.placeA(g, sw, pitch, steps)
	if num.scalesA(1, blockSize) > 0 { // PTX ISA, "Block scaling for mma.sync"; what the other lanes of a quad hold is not read
		row := g.add(c.wm, g.add(g.div(g.lane, 4), g.mul(g.mod(g.lane, 2), 8)))
		first := g.plan.loadScales.base
		if g.p.scalesA == nil { // of a tile that is made
			first = num.tileA(s.BM, s.BK)
		}
		c.rowA = g.add(imm(first), g.mad(row, num.scalesA(1, s.BK), g.mul(c.kPart, perWarp/blockSize)))
	}
	base := s.stageA(g.p)
	switch {
	case g.plan.tiles != nil:
		c.placeTiles(g, base)
	case g.plan.packed:
		c.placePacked(g, base)
	case !g.plan.loadB.kRows:
		// Rows are n: matrices (n 0–7, left), (n 0–7, right), (n 8–15, left), (n 8–15, right).
		n := g.add(c.wn, g.add(g.mod(g.lane, 8), g.mul(g.div(g.lane, 16), 8)))
		key := g.mod(g.div(n, 1<<sw.Shift), sw.Mask+1)
		half := g.mod(g.div(g.lane, 8), 2)
		for k := 0; k < steps; k++ {
			ch := g.add(g.add(chunk0, imm(2*k)), half)
			c.bStep = append(c.bStep, g.add(g.mad(n, pitch, imm(base)), g.mul(g.xor(ch, key), 16)))
		}
	default:
		// Rows are k, transposed on the way: (k 0–7, n 0–7), (k 8–15, n 0–7), (k 0–7, n 8–15), (k 8–15, n 8–15).
		sw := layout.NewSwizzle(s.BN * 2)
		k := g.add(g.mul(c.kPart, steps*16), g.mod(g.lane, 16))
		key := g.mod(g.div(k, 1<<sw.Shift), sw.Mask+1)
		for j := 0; j < nt/2; j++ {
			ch := g.add(g.add(g.div(c.wn, 8), imm(2*j)), g.div(g.lane, 16))
			c.bStep = append(c.bStep, g.add(g.mad(k, s.BN*2, imm(base)), g.mul(g.xor(ch, key), 16)))
		}
	}
}

// placePacked says where the lane finds packed weights, which begin at a byte.
func (c *mmaCore) placePacked(g *gen, base int) {
	// [k step][n16 tile][lane][16 bytes, or what is left of them]
	s, num := g.s, &g.p.num
	lane := g.mul(g.lane, num.laneB())
	first := g.add(g.mul(c.kPart, s.warpK(num)/num.stepB()*s.BN/16), g.div(c.wn, 16))
	c.bBase = g.add(imm(base), g.add(lane, g.mul(first, 32*num.laneB())))
	if s.warpsTerm(num) == 2 {
		c.bBase = g.add(c.bBase, g.mul(g.mod(c.wk, 2), num.termB(s.BN, s.BK)))
	}
	if num.scaled() {
		// [k64][n16 tile][column][n8 tile][k16], or across [k64][n16 tile][lane of a quad][k16][k]
		own := g.mul(g.div(g.lane, 4), 8)
		if num.across {
			own = g.mul(g.mod(g.lane, 4), 16)
		}
		c.scales = g.add(imm(base+num.elementsB(s.BN, s.BK)), g.add(own, g.mul(first, 64)))
	}
}

// placeA says where the lane finds A, and returns the first of the warp's 16-byte chunks of K of a row of m.
func (c *mmaCore) placeA(g *gen, sw layout.Swizzle, pitch, steps int) num {
	if g.plan.loadA.kRows {
		// Rows are k, transposed on the way: (k 0–7, m 0–7), (k 0–7, m 8–15), (k 8–15, m 0–7), (k 8–15, m 8–15).
		pitch := g.s.BM * 2
		sw := layout.NewSwizzle(pitch)
		k := g.add(g.mul(c.kPart, steps*16), g.add(g.mod(g.lane, 8), g.mul(g.div(g.lane, 16), 8)))
		key := g.mod(g.div(k, 1<<sw.Shift), sw.Mask+1)
		for i := range c.acc {
			ch := g.add(g.add(g.div(c.wm, 8), imm(2*i)), g.mod(g.div(g.lane, 8), 2))
			c.aStep = append(c.aStep, g.mad(k, pitch, g.mul(g.xor(ch, key), 16)))
		}
		return g.mul(c.kPart, steps*2)
	}
	// ldmatrix.x4 on A: lanes 0–15 name the rows of the left 8×8 matrices, 16–31 those of the right ones.
	row, right := g.add(c.wm, g.mod(g.lane, 16)), g.div(g.lane, 16)
	at := g.mul(row, pitch)
	key := g.mod(g.div(row, 1<<sw.Shift), sw.Mask+1)
	chunk0 := g.mul(c.kPart, steps*2)
	for k := 0; k < steps; k++ {
		ch := g.add(g.add(chunk0, imm(2*k)), right)
		c.aStep = append(c.aStep, g.add(at, g.mul(g.xor(ch, key), 16)))
	}
	return chunk0
}

func (c *mmaCore) compute(g *gen, tileA, stage num) {
	atA, at := g.addresses(tileA, stage)
	c.sum(g, func(u int) *operands {
		t := c.load(g, atA, u)
		c.loadB(g, at, u, t)
		return t
	})
	if c.factors != nil {
		g.I("add.s32", *c.factors, *c.factors, ptx.Imm(4*g.s.BK))
	}
}

// sum adds up the products of the warp's part of K, of which load reads one unit after the other.
func (c *mmaCore) sum(g *gen, load func(u int) *operands) {
	s, num := g.s, &g.p.num
	unit, terms := num.unit(), s.warpTerms(num)
	fresh := true // no product is in part
	for u := 0; u < s.warpK(num)/unit; u++ {
		t := load(u)
		for m := 0; m < unit/num.stepMul(); m++ {
			var a [][][]ptx.Reg // m16 tile, term
			factors := c.factorsOf(g, u*unit+m*num.stepMul())
			for i := range c.acc {
				x := t.fragsA(g, i, m)
				if factors != nil {
					x[0] = g.scaled(x[0], factors)
				}
				a = append(a, x)
			}
			b := t.fragsB(g, m)
			for term := range num.terms * terms {
				for i := range c.acc {
					for j, acc := range c.acc[i] {
						if c.part != nil {
							acc = c.part[i][j]
						}
						from := acc
						if fresh && c.zero != nil {
							from = c.zero
						}
						args := []ptx.Operand{ptx.V(acc...), ptx.V(a[i][term/terms]...), ptx.V(b[term%terms][j]...), ptx.V(from...)}
						if num.blockScaled() {
							zero := ptx.Vec{ptx.Imm(0), ptx.Imm(0)}
							args = append(args, ptx.V(t.scalesA[i]), zero, ptx.V(t.scales[j/2][j%2]), zero)
						}
						g.I(num.mmaOpcode(), args...)
					}
				}
				fresh = false
			}
			if done := u*unit + (m+1)*num.stepMul(); c.part != nil && (done == s.warpK(num) || done%num.partial == 0) {
				c.promote(g)
				fresh = true
			}
		}
	}
}

// promote adds the partial sums in f32.
func (c *mmaCore) promote(g *gen) {
	for i := range c.acc {
		for j, acc := range c.acc[i] {
			for e, r := range acc {
				g.I("add.rn.f32", r, r, c.part[i][j][e])
			}
		}
	}
}

// factorsOf are the factors of the lane's columns of the 16 that begin at k of the chunk: two of the left half, two
// of the right one.
func (c *mmaCore) factorsOf(g *gen, k int) []ptx.Reg {
	if c.factors == nil {
		return nil
	}
	var f []ptx.Reg
	for _, half := range []int{0, 8} {
		r := g.RegVec(ptx.F32, 2)
		g.I("ld.shared.v2.f32", ptx.V(r...), ptx.At(*c.factors, 4*(k+half)))
		f = append(f, r...)
	}
	return f
}

// operands are what a warp reads for a unit of K.
type operands struct {
	a      [][][]ptx.Reg // m16 tile, step of A
	b      [][][]ptx.Reg // n16 tile, step of B; second terms follow the first ones of all steps
	scales [][]ptx.Reg   // n16 tile: a word of four scales for each n8 tile, or across for each k16

	tileA   num       // where it lies
	scalesA []ptx.Reg // m16 tile: a word of four scales

	ready [][][][]ptx.Reg // for every mma of the unit its B fragments of every term, of n8 tiles; nil: they are made of b
}

// load reads A of unit u of the chunk at a shared address.
func (c *mmaCore) load(g *gen, atA num, u int) *operands {
	s, num := g.s, &g.p.num
	t := &operands{tileA: atA, a: make([][][]ptx.Reg, len(c.acc))}
	pitch := num.tileA(1, s.BK)
	stepsA := num.unit() / num.stepA()
	for k := u * stepsA; k < (u+1)*stepsA; k++ {
		var row ptx.Reg
		if !g.plan.loadA.kRows {
			row = g.register(g.add(atA, c.aStep[k]))
		}
		for i := range t.a {
			r := g.RegVec(ptx.B32, 4)
			if g.plan.loadA.kRows {
				g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(atA, c.aStep[i])), k*16*s.BM*2))
			} else {
				g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(row, i*16*pitch))
			}
			t.a[i] = append(t.a[i], r)
		}
	}
	return t
}

// loadB reads B of unit u of the chunk in the stage at a shared address, and scales of blocks.
func (c *mmaCore) loadB(g *gen, at num, u int, t *operands) {
	s, num := g.s, &g.p.num
	t.b = make([][][]ptx.Reg, len(c.acc[0])/2)
	pitch, stepsB := num.tileA(1, s.BK), num.unit()/num.stepB()
	if g.plan.tiles != nil {
		c.loadTiles(g, at, u, t)
		return
	}
	for i := range stepsB * s.warpTerms(num) {
		k := u*stepsB + i%stepsB
		for j := range t.b {
			r, packed := g.RegVec(ptx.B32, 4), i/stepsB*num.termB(s.BN, s.BK)+(k*s.BN/16+j)*32*num.laneB()
			switch {
			case g.plan.packed && num.laneB() < 16: // lanes have a stride of 3 words, so a load has no bank conflicts
				r = r[:num.laneB()/4]
				for w := range r {
					g.I("ld.shared.b32", r[w], ptx.At(g.register(g.add(at, c.bBase)), packed+4*w))
				}
			case g.plan.packed:
				g.I("ld.shared.v4.b32", ptx.V(r...), ptx.At(g.register(g.add(at, c.bBase)), packed))
			case !g.plan.loadB.kRows:
				g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(at, c.bStep[k])), j*16*pitch))
			default:
				g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(at, c.bStep[j])), k*16*s.BN*2))
			}
			t.b[j] = append(t.b[j], r)
		}
	}
	if num.scalesA(1, blockSize) > 0 {
		from := at
		if g.p.scalesA == nil {
			from = t.tileA
		}
		row := g.register(g.add(from, c.rowA))
		for i := range c.acc {
			r := g.Reg(ptx.B32)
			g.I("ld.shared.b32", r, ptx.At(row, i*num.scalesA(16, s.BK)+u*num.scalesA(1, num.unit())))
			t.scalesA = append(t.scalesA, r)
		}
	}
	if num.scaled() {
		for j := range t.b {
			r, load := g.RegVec(ptx.B32, 2), "ld.shared.v2.b32"
			if num.across {
				r, load = g.RegVec(ptx.B32, 4), "ld.shared.v4.b32"
			}
			g.I(load, ptx.V(r...), ptx.At(g.register(g.add(at, c.scales)), (u*s.BN/16+j)*64))
			t.scales = append(t.scales, r)
		}
	}
}

func (c *mmaCore) store(g *gen, part int) {
	s, each := g.s, len(c.acc)/g.s.parts()
	f, factor := layout.C16x8, g.p.num.convertB().factor
	row := g.add(g.add(g.div(c.wm, s.parts()), g.mul(c.wk, s.stagingRows())), g.offset(f.LaneRow, g.lane))
	col := g.add(c.wn, g.offset(f.LaneCol, g.lane))
	at := g.register(g.add(g.smem, g.mad(row, s.stagingRow()*4, g.mul(col, 4))))
	for i := range each {
		for j, acc := range c.acc[part*each+i] {
			if factor != 1 {
				for _, r := range acc {
					g.I("mul.rn.f32", r, r, ptx.FImm(factor))
				}
			}
			for v := 0; v < 4; v += 2 {
				r, n := i*16+layout.Offset(f.ValueRow, v), j*8+layout.Offset(f.ValueCol, v)
				g.I("st.shared.v2.f32", ptx.At(at, (r*s.stagingRow()+n)*4), ptx.V(acc[v], acc[v+1]))
			}
		}
	}
}
