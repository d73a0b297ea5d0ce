package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// gen writes one kernel: coordinates, pipeline, compute core, split-K, epilogue.
type gen struct {
	asm
	p      *problem
	s      Schedule
	t      *target.Target
	plan   *plan
	params []ptx.Sym
	hints  *kernel.Hints

	smem, tid, lane, warp num
	tileM, tileN, share   num
	z                     []num // digits of the problem's z
	tile                  num   // linear index of the tile: z, n, m
	first, count          num   // chunks of K of this block

	made emission // of A's tiles
	a    tileLoad
	b    tileLoad  // of a variable B
	w    panelLoad // of packed weights
	x    tileLoad  // of A's scales

	mask ptx.Reg // of an attention: the mask of this block's z
}

// core is the arithmetic on a stage: tensor cores or fma.
type core interface {
	begin(g *gen)
	// compute consumes a chunk: of A the tile at a byte offset of shared memory, of B that of the stage at another.
	compute(g *gen, tileA, stage num)
	// more adds the product of the tiles at a byte offset, for which second is the generator, in the first warps
	// along K.
	more(g, second *gen, at num)
	// store writes the accumulators to the staging tile: f32, row-major, a tile for every warp along K.
	// Of several parts of a warp's rows, those of one.
	store(g *gen, part int)
}

func (g *gen) emit() {
	g.coordinates()
	var c core = &fmaCore{}
	if g.p.num.tensor() {
		c = &mmaCore{}
	}
	g.pipeline(c)
	if !g.p.shape(g.s).waits {
		g.I("cp.async.wait_group", ptx.Imm(0))
	}
	g.I("bar.sync", ptx.Imm(0))
	if g.p.added != nil {
		g.multiplyAdded(c)
	}
	var t *tail
	if g.s.SplitK == 1 {
		t = g.prepare()
	}
	for part := range g.s.parts() {
		if part > 0 { // the previous part has been read
			g.I("bar.sync", ptx.Imm(0))
		}
		c.store(g, part)
		g.I("bar.sync", ptx.Imm(0))
		g.finish(t, part)
	}
	g.I("ret")
}

// coordinates decomposes the block index: tile along M, tile along N, split, z, from the fastest to the slowest. Blocks
// that share weights are neighbours.
func (g *gen) coordinates() {
	r := g.Reg(ptx.B32)
	g.I("mov.u32", r, ptx.Sym(ptx.SharedName))
	g.smem = inReg(r)
	g.tid = g.special("%tid.x")
	g.lane, g.warp = g.mod(g.tid, 32), g.div(g.tid, 32)
	x := g.special("%ctaid.x")
	d := g.asm.split([]int{g.p.batches(), g.s.SplitK, g.s.tilesN(g.p), g.s.tilesM(g.p)}, x)
	g.tileM, g.tileN, g.share = d[3], d[2], d[1]
	g.z = g.asm.split(g.p.z, d[0])
	g.tile = g.mad(d[0], g.s.tilesM(g.p)*g.s.tilesN(g.p), g.mad(d[2], g.s.tilesM(g.p), d[3]))
	per := g.s.chunksPerSplit(g.p)
	g.first = g.mul(g.share, per)
	last := g.s.chunks(g.p) - per*(g.s.SplitK-1)
	g.count = imm(per)
	if last != per {
		p := g.compare("eq.u32", g.share, imm(g.s.SplitK-1))
		n := g.Reg(ptx.B32)
		g.I("selp.b32", n, ptx.Imm(last), ptx.Imm(per), p)
		g.count = inReg(n)
	}
}

// pointer loads parameter i.
func (g *gen) pointer(i int) ptx.Reg {
	p, q := g.Reg(ptx.B64), g.Reg(ptx.B64)
	g.I("ld.param.u64", p, ptx.At(g.params[i], 0))
	g.I("cvta.to.global.u64", q, p)
	return q
}

// matrix is the address of an operand's matrix for this block's z.
func (g *gen) matrix(param int, o *operand) ptx.Reg {
	return g.matrixAt(g.pointer(param), o)
}

// matrixAt is matrix of an operand that lies at an address.
func (g *gen) matrixAt(at ptx.Reg, o *operand) ptx.Reg {
	off := imm(o.offset)
	for i, modes := range o.z {
		off = g.add(off, g.offset(modes, g.z[i]))
	}
	return g.address(at, off, o.dtype.Bits()/8)
}

// pipeline fills Stages-1 stages. Then, for every chunk, it waits for it, starts the copies of the chunk Stages-1
// later, and computes. Weights are constants: copies of their first stages start before griddepcontrol.wait.
func (g *gen) pipeline(c core) {
	g.made = g.p.emission(g)
	g.constants()
	kernel.Wait(g.Kernel, g.t)
	g.arrive()
	c.begin(g)
	g.copyFactors()
	k := g.Reg(ptx.B32) // first element of the next chunk to copy
	g.I("mov.b32", k, g.mul(g.first, g.s.BK/g.p.num.perUnit()).operand())
	for i := range g.s.Stages - 1 {
		g.ifChunk(imm(i), func() { g.issue(k, imm(i*g.s.stageBytes(g.p))) })
		g.I("cp.async.commit_group")
	}
	if g.p.added != nil {
		g.copyAdded()
	}
	if g.made.begin != nil {
		g.made.begin()
	}
	g.mainLoop(c, k)
}

// constants starts the first copies of constants.
func (g *gen) constants() {
	s, stage := g.s, g.s.stageBytes(g.p)
	if g.made.beforeWait != nil {
		g.made.beforeWait()
	}
	if g.made.constants != nil {
		for i := range s.Stages - 1 {
			g.ifChunk(imm(i), func() { g.made.constants(imm(i * stage)) })
		}
	}
	if g.plan.packed {
		g.w = panelLoad{base: s.stageA(g.p), bytes: g.p.num.tileB(s.BN, s.BK), tiles: g.plan.tiles}
		g.w.begin(g)
		for i := range s.Stages - 1 {
			g.ifChunk(imm(i), func() { g.w.issue(g, imm(i*stage)) })
		}
		g.prefetch()
	}
}

// arrive prepares the copies of variables.
func (g *gen) arrive() {
	if g.made.arrive != nil {
		g.made.arrive()
	}
	if g.p.scalesA != nil {
		g.x = g.plan.loadScales
		g.x.ptr, g.x.origin = g.matrix(g.plan.scales, g.p.scalesA), g.a.origin
		g.x.begin(g)
	}
	if !g.plan.packed {
		g.b = g.plan.loadB
		g.b.ptr, g.b.origin = g.matrix(g.plan.b, &g.p.b), g.mul(g.tileN, g.s.BN)
		g.b.begin(g)
	}
}

// issue starts the copies of variables for the chunk that begins at k, which moves on.
func (g *gen) issue(k ptx.Reg, stage num) {
	per := g.p.num.perUnit()
	if g.made.issue != nil {
		g.made.issue(inReg(k), stage)
	}
	if g.p.scalesA != nil {
		g.x.issue(g, g.div(inReg(k), blockSize/per), stage)
	}
	if !g.plan.packed {
		g.b.issue(g, inReg(k), stage)
	}
	g.I("add.s32", k, k, ptx.Imm(g.s.BK/per))
}

func (g *gen) mainLoop(c core, k ptx.Reg) {
	s, stage := g.s, g.s.stageBytes(g.p)
	it, fetched, read, write := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("mov.b32", it, ptx.Imm(0))
	g.I("mov.b32", fetched, ptx.Imm(s.Stages-1))
	g.I("mov.b32", read, ptx.Imm(0))
	g.I("mov.b32", write, ptx.Imm((s.Stages-1)*stage))
	loop := g.NewLabel(mainLoopLabel)
	g.Comment("main loop: %s", s)
	g.Place(loop)
	g.I("cp.async.wait_group", ptx.Imm(s.Stages-2))
	g.I("bar.sync", ptx.Imm(0))
	g.ifChunk(inReg(fetched), func() {
		if g.plan.packed {
			g.w.issue(g, inReg(write))
		}
		if g.made.constants != nil {
			g.made.constants(inReg(write))
		}
		g.issue(k, inReg(write))
	})
	g.I("cp.async.commit_group")
	c.compute(g, g.made.tile(inReg(it), inReg(read)), inReg(read))
	for _, slot := range []ptx.Reg{read, write} {
		g.I("add.s32", slot, slot, ptx.Imm(stage))
		p := g.compare("eq.u32", inReg(slot), imm(s.Stages*stage))
		g.I("selp.b32", slot, ptx.Imm(0), slot, p)
	}
	g.I("add.s32", it, it, ptx.Imm(1))
	g.I("add.s32", fetched, fetched, ptx.Imm(1))
	more := g.compare("lt.u32", inReg(it), g.count)
	g.If(more, "bra.uni", loop)
	g.Comment("main loop ends")
}

const mainLoopLabel = "mainloop"

// ifChunk emits f, which runs if the block has a chunk of that index.
func (g *gen) ifChunk(i num, f func()) {
	if !i.isReg && !g.count.isReg {
		if i.c < g.count.c {
			f()
		}
		return
	}
	skip := g.NewLabel("skip")
	p := g.compare("lt.u32", i, g.count)
	g.Unless(p, "bra.uni", skip)
	f()
	g.Place(skip)
}

// panel is the index of this block's matrix of weights: z as far as they depend on it.
func (g *gen) panel() num {
	x := imm(0)
	for i, n := range g.p.z {
		if g.p.panelOf(i) {
			x = g.mad(x, n, g.z[i])
		}
	}
	return x
}

// prefetchBytes is how many bytes of its weights a block prefetches into L2 before it waits: all blocks together at
// most half of L2.
func (g *gen) prefetchBytes() int {
	s, p := g.s, g.p
	rest := (s.chunksPerSplit(p) - (s.Stages - 1)) * g.w.bytes
	panels := s.tilesN(p) * s.SplitK * p.batches()
	return max(0, min(rest, g.t.L2Bytes/2/panels))
}

// prefetch brings the weights after the first stages into L2, one 128-byte line per thread. Of the blocks that share a
// panel only the first does so.
func (g *gen) prefetch() {
	bytes := g.prefetchBytes() / 128 * 128
	if bytes == 0 || !g.t.DependentLaunch || g.plan.tiles != nil && bytes < g.w.bytes {
		return
	}
	skip := g.NewLabel("noprefetch")
	if g.s.tilesM(g.p) > 1 {
		p := g.compare("ne.u32", g.tileM, imm(0))
		g.If(p, "bra.uni", skip)
	}
	if g.plan.tiles != nil {
		g.prefetchTiles(bytes/g.w.bytes, skip)
		return
	}
	// A last block of a split may have fewer chunks; w.ptr has advanced past the stages that exist.
	limit := g.Reg(ptx.B32)
	g.I("mov.b32", limit, ptx.Imm(bytes))
	if g.count.isReg {
		last := (g.s.chunks(g.p) - g.s.chunksPerSplit(g.p)*(g.s.SplitK-1) - (g.s.Stages - 1)) * g.w.bytes
		p := g.compare("eq.u32", g.share, imm(g.s.SplitK-1))
		g.I("selp.b32", limit, ptx.Imm(max(0, min(bytes, last))), limit, p)
	}
	at, line := g.Reg(ptx.B32), g.Reg(ptx.B64)
	g.I("shl.b32", at, g.tid.reg, ptx.Imm(7))
	g.I("mad.wide.u32", line, g.tid.reg, ptx.Imm(128-16), g.w.ptr)
	loop := g.NewLabel("prefetch")
	g.Place(loop)
	done := g.compare("ge.u32", inReg(at), inReg(limit))
	g.If(done, "bra", skip)
	g.I("prefetch.global.L2", ptx.At(line, 0))
	g.I("add.s32", at, at, ptx.Imm(128*g.s.threads()))
	g.I("add.s64", line, line, ptx.Imm(128*g.s.threads()))
	g.I("bra", loop)
	g.Place(skip)
}
