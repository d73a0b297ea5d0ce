package contraction

import (
	"math/bits"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// team writes what a team of warps does.
type team struct {
	*attentionProducer
	pl     attentionSplit
	at     *attnPlan
	block  *gen
	g      *gen // of the attention: threads, shared memory and coordinates are the team's
	index  num  // of the team
	copies *attnCopies
	core   attnCore
}

func (h *attentionProducer) newTeam(g *gen, pl attentionSplit) *team {
	at, bytes := h.team(pl)
	t := &team{attentionProducer: h, pl: pl, at: at, block: g, index: g.div(g.tid, at.threads()), core: h.of.attnCore()}
	own := *g
	own.p, own.s = h.of, at.Schedule
	own.tid, own.warp = g.mod(g.tid, at.threads()), g.mod(g.warp, at.threads()/warpSize)
	own.smem = g.add(g.smem, g.mad(t.index, bytes, imm(g.s.Stages*g.s.stageBytes(h.p)+h.tiles(g.s))))
	image, tile := h.image(g)
	own.tileM, own.z = tile, []num{g.z[0], image, {}}
	t.g = &own
	t.copies = t.g.attnCopies(at)
	t.core.place(t.g, at)
	return t
}

// head is the team's head of a round among those of the block, and of all.
func (t *team) head(round num) (own, all num) {
	own = t.block.add(t.index, t.block.mul(round, t.pl.teams))
	s, n := t.block.s, t.of.n
	first := t.block.div(t.block.mul(t.block.first, s.BK), n)
	if s.BK%n == 0 {
		first = t.block.mul(t.block.first, s.BK/n)
	}
	all = t.block.add(first, own)
	if s.SplitK*s.chunksPerSplit(t.p) > s.chunks(t.p) { // the last block has fewer
		all = t.block.binary("min.u32", all, imm(t.of.z[2]-1))
	}
	return own, all
}

// ifHead emits f for a round, which teams run that have a head then: which one, of the block and of all.
func (t *team) ifHead(round num, f func(own, all num)) {
	own, all := t.head(round)
	if t.pl.even() {
		f(own, all)
		return
	}
	skip := t.g.NewLabel("idle")
	t.g.If(t.g.compare("ge.u32", own, imm(t.pl.heads)), "bra.uni", skip)
	f(own, all)
	t.g.Place(skip)
}

// issue starts the copies for a round into the team's stage at an offset.
func (t *team) issue(round, stage num) {
	t.ifHead(round, func(_, all num) {
		t.g.z[2] = all
		t.copies.of(t.g)
		for _, l := range []*tileLoad{&t.copies.q, &t.copies.k, &t.copies.v} {
			l.issue(t.g, imm(0), stage)
		}
	})
}

// compute computes the head of a round, for which the stage at an offset is there.
func (t *team) compute(round, stage num) {
	t.ifHead(round, func(own, all num) { t.attend(own, all, stage) })
}

func (t *team) attend(own, all, stage num) {
	g, at := t.g, t.at
	g.z[2] = all
	t.copies.masked(g)
	t.core.begin(g, at, stage)
	if tiles := ceilDiv(t.of.k, at.BK); tiles == 1 {
		t.core.compute(g, at, stage, stage, imm(0))
	} else {
		it := g.Reg(ptx.B32)
		g.I("mov.b32", it, ptx.Imm(0))
		loop := g.NewLabel("keys")
		g.Place(loop)
		first := g.mul(inReg(it), at.BK)
		t.core.compute(g, at, g.mad(first, at.kPitch, stage), g.mad(first, at.BN*t.of.elem(), stage), first)
		g.I("add.s32", it, it, ptx.Imm(1))
		g.If(g.compare("lt.s32", inReg(it), imm(tiles)), "bra.uni", loop)
	}
	t.core.results(g, at, func(row, col num) func(rows, cols int, v []ptx.Reg) { return t.store(own, row, col) })
}

// store rounds results of the block's head of that number, from a row and a column on, and puts them into the tiles
// of A.
func (t *team) store(head, row, col num) func(rows, cols int, v []ptx.Reg) {
	g, em := t.g, t.emitter()
	place := t.places(head, row, col)
	var left []ptx.Reg // of a block, the values in its left half
	return func(rows, cols int, v []ptx.Reg) {
		var there *ptx.Reg
		if t.of.n != t.at.BN {
			in := g.compare("lt.u32", g.add(col, imm(cols)), imm(t.of.n))
			there = &in
		}
		em.Push()
		t.bind(em, g.add(row, imm(rows)), g.add(col, imm(cols)))
		for i, a := range t.e.acc {
			em.Bind(a, v[i])
		}
		values := em.EmitAll(t.e.result)
		if q := t.of.quantise; q != nil {
			em.Pop()
			if left = append(left, values...); cols%blockSize > 0 {
				at, offset := place(rows, cols-blockSize/2)
				scale, after := t.scaleAt(head, g.add(row, imm(rows)), g.add(col, imm(cols-blockSize/2)))
				g.storeQuarter(g.quantised(q, left), ptx.At(at, offset), ptx.At(scale, after), there)
				left = nil
			}
			return
		}
		words := em.Encode(values, t.p.num.a)
		em.Pop()
		op, from := storeWords(words)
		if words[0].Class == ptx.B16 {
			op = "st.shared.b16"
		}
		at, offset := place(rows, cols)
		g.Where(there, op, ptx.At(at, offset), from)
	}
}

// places is where elements at a distance from a row and a column of a head lie in the tiles of A: an address and an
// offset.
func (t *team) places(head, row, col num) func(rows, cols int) (ptx.Reg, int) {
	g, s, elem := t.block, t.block.s, bytesFor(t.p.num.a, 1)
	pitch, tile := t.p.num.tileA(1, s.BK), t.p.num.madeA(s.BM, s.BK)
	sw, after := layout.NewSwizzle(pitch), s.Stages*s.stageBytes(t.p)
	at := g.mad(head, t.headBytes(), g.inRow(&t.p.num, col))
	// Where a warp's columns are a power of two of 16 bytes, and lie at a multiple of that, the number of 16 bytes
	// among them is xored like the key of the swizzle, which is the same eight rows on.
	units := t.at.columnsWarp() * elem / 16
	if t.of.num.tensor() && elem == 2 && bits.OnesCount(uint(units)) == 1 && t.headBytes()/16%units == 0 {
		in := g.mod(at, pitch)
		base := g.add(g.mad(g.div(at, pitch), tile, g.smem), g.mad(row, pitch, g.mod(in, 16)))
		key := g.mul(g.xor(g.div(in, 16), g.mod(g.div(row, 1<<sw.Shift), sw.Mask+1)), 16)
		known := map[int]ptx.Reg{}
		return func(rows, cols int) (ptx.Reg, int) {
			r, ok := known[cols]
			b := cols * elem
			if !ok {
				r = g.register(g.add(base, g.xor(key, imm(b%pitch))))
				known[cols] = r
			}
			return r, after + b/pitch*tile + rows*pitch
		}
	}
	return func(rows, cols int) (ptx.Reg, int) {
		b := g.add(at, g.inRow(&t.p.num, imm(cols)))
		in := g.mod(b, pitch)
		to := g.add(g.mul(g.div(b, pitch), tile), g.add(g.swizzled(sw, g.add(row, imm(rows)), g.div(in, 16)), g.mod(in, 16)))
		return g.register(g.add(g.smem, to)), after
	}
}

// scaleAt is where the scale of the block at a row and a column of a head lies: an address and an offset.
func (t *team) scaleAt(head, row, col num) (ptx.Reg, int) {
	g, s, n := t.block, t.block.s, &t.p.num
	block := g.mad(head, t.of.n/blockSize, g.div(col, blockSize))
	per := n.scalesA(1, s.BK)
	to := g.mad(g.div(block, per), n.madeA(s.BM, s.BK), g.mad(row, per, g.mod(block, per)))
	return g.register(g.add(g.smem, to)), s.Stages*s.stageBytes(t.p) + n.tileA(s.BM, s.BK)
}

// emitter emits the nodes after the attention.
func (t *team) emitter() *expr.Emitter {
	g := t.g
	env := g.envOf(t.l)
	em := expr.NewEmitter(g.Kernel, t.l.B, env)
	for i, z := range t.e.z {
		g.bind(em, z, g.z[i])
	}
	return em
}

// bind gives an element its row and column: the last ones beyond them.
func (t *team) bind(em *expr.Emitter, row, col num) {
	reads := func(v *expr.Expr) (yes bool) {
		expr.Walk(t.e.result, func(x *expr.Expr) { yes = yes || x == v })
		return yes
	}
	g := t.g
	if reads(t.e.m) {
		g.bind(em, t.e.m, g.binary("min.u32", g.add(g.mul(g.tileM, t.at.BM), row), imm(t.of.m-1)))
	}
	if reads(t.e.n) {
		g.bind(em, t.e.n, g.binary("min.u32", col, imm(int(t.e.n.Hi))))
	}
}
