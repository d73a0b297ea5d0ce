package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// attentionProducer is an attention as a producer. Its heads are adjacent in the rows of A, and a block computes
// those in its chunks of K. Teams of warps compute one head each at a time, with all of its keys in shared memory,
// and write it to the tiles of A after the stages, while copies of the next heads are in flight. If the last round
// has fewer heads than teams, some teams wait. Without it policy takes 6 to 7 % longer on sm_121, sm_90 and sm_80,
// vision and supercombo 1 to 2 % on the last two and as long on sm_121, where DRAM bounds them (fp16, predicted,
// 2026-11-29).
type attentionProducer struct {
	p, of *problem // the product, and the attention
	ctx   *kernel.Context
	l     *lower.Lowering
	e     *epilogue // of the attention

	q, k, v, mask int                           // operands
	counts        map[attentionSplit]*cost.Work // of a warp
}

// attentionSplit is how the warps of a block compute its heads.
type attentionSplit struct {
	rows, columns int  // warps of a team, along each
	teams, heads  int  // of a block
	moves         bool // the block's first head is not the matrix's
	s             Schedule
}

// rounds is how many heads a team computes one after the other, if it has any; even reports whether all teams have as
// many.
func (pl attentionSplit) rounds() int { return ceilDiv(pl.heads, pl.teams) }
func (pl attentionSplit) even() bool  { return pl.heads%pl.teams == 0 }

func newAttentionProducer(p *problem, producers []*ir.Node, t *target.Target) (producer, error) {
	if len(producers) > 1 {
		return nil, fmt.Errorf("%s before an attention", producers[0].Name)
	}
	of, err := normaliseFor(producers[0], t)
	if err != nil {
		return nil, err
	}
	h := &attentionProducer{p: p, of: of, counts: map[attentionSplit]*cost.Work{}}
	least := 0 // bytes of shared memory
	if of.attn != nil {
		_, least = h.team(attentionSplit{rows: 1, columns: 1, teams: 1, heads: 1})
	}
	switch {
	case of.attn == nil || of.attn.dy != nil:
		return nil, fmt.Errorf("a product of a product")
	case least > t.SharedBlock:
		return nil, fmt.Errorf("a head of %d keys has %d bytes, and shared memory of a block %d", of.k, least, t.SharedBlock)
	case p.sums != nil:
		return nil, fmt.Errorf("sums of rows after an attention")
	case p.num.a != ir.Float32 && !isHalf(p.num.a) && (of.quantise == nil || !of.num.tensor()):
		return nil, fmt.Errorf("heads of %s", p.num.a)
	case h.headBytes()%16 != 0:
		return nil, fmt.Errorf("heads of %d elements of %s", of.n, p.num.a)
	case !of.headsAreRows():
		return nil, fmt.Errorf("heads are not adjacent in the rows of the matrix")
	}
	of.outs[0].dtype = p.num.a // A is rounded to its own type; where several types are multiplied, as a wider one
	return h, nil
}

// headsAreRows reports whether an attention's result is rows of all heads, one of a batch's after the other.
func (p *problem) headsAreRows() bool {
	o, row := &p.outs[0].operand, p.z[2]*p.n
	dense := func(modes []layout.Mode, size, stride int) bool {
		c := layout.Coalesce(modes)
		return size == 1 || len(c) == 1 && c[0] == layout.Mode{Size: size, Stride: stride}
	}
	return o.offset == 0 && dense(o.z[1], p.z[1], p.m*row) && dense(o.z[2], p.z[2], p.n) && dense(o.row, p.m, row) && dense(o.col, p.n, 1)
}

// headBytes is the size of a row of a head in a tile of A.
func (h *attentionProducer) headBytes() int { return bytesFor(h.p.num.a, h.of.n) }

func (h *attentionProducer) traits() traits {
	return traits{stem: "attention", macs: h.of.region.MACs()}
}

func (h *attentionProducer) lower(_ *problem, ctx *kernel.Context) *lower.Lowering {
	h.ctx, h.l = ctx, lower.New(h.of.region, ctx)
	a := h.of.attn
	h.q, h.k, h.v = h.l.Input(h.of.a.value), h.l.Input(h.of.b.value), h.l.Input(a.v.value)
	if a.mask != nil {
		h.mask = h.l.Input(a.mask.value)
	}
	width := 1
	if h.of.num.tensor() {
		width = 2
	}
	var err error
	if h.e, err = newEpilogue(h.of, h.l, ctx, width, ".a"); err != nil {
		lower.Fail(err)
	}
	return h.l
}

// split says how the warps of a schedule compute the heads of a block, so that no warp has to do much.
func (h *attentionProducer) split(s Schedule) (attentionSplit, error) {
	span, one := min(s.chunksPerSplit(h.p)*s.BK, h.p.k), h.of.attnShape(1, 1)
	warps, rows := s.threads()/warpSize, s.BM/one.rowsWarp
	switch {
	case h.p.k%s.BK != 0 && (s.SplitK > 1 || h.of.quantise != nil):
		return attentionSplit{}, fmt.Errorf("%d columns of heads in chunks of %d", h.p.k, s.BK)
	case span%h.of.n != 0:
		return attentionSplit{}, fmt.Errorf("blocks of %d columns share heads of %d", span, h.of.n)
	case s.BM%one.rowsWarp != 0 || warps%rows != 0:
		return attentionSplit{}, fmt.Errorf("%d rows of heads for %d warps", s.BM, warps)
	}
	n := span / h.of.n
	var best attentionSplit
	least := math.MaxInt
	for teams := 1; rows*teams <= warps; teams++ {
		columns := warps / rows / teams
		if warps%(rows*teams) != 0 || one.BN%columns != 0 || one.BN/columns%h.of.leastColumns() != 0 {
			continue
		}
		pl := attentionSplit{rows: rows, columns: columns, teams: teams, heads: n, moves: s.SplitK > 1, s: s}
		if time := pl.rounds() * (scoresTime + one.BN/columns/16); time < least {
			best, least = pl, time
		}
	}
	if least == math.MaxInt {
		return best, fmt.Errorf("%d heads for %d warps", n, warps)
	}
	return best, nil
}

// scoresTime is about how many times as long a warp computes scores as it multiplies them by 16 columns of v.
const scoresTime = 5

// team is the plan of one of the teams, whose shared memory is a stage of q, all keys and their v for the heads of a
// round, and for those of the next.
func (h *attentionProducer) team(pl attentionSplit) (at *attnPlan, bytes int) {
	at = h.of.attnShape(pl.rows, pl.columns)
	keys := ceilDiv(h.of.k, at.BK) * at.BK
	at.stage = at.qBytes(h.of) + at.keyBytes(h.of, keys)
	at.probs = min(2, pl.rounds()) * at.stage
	if h.ctx != nil {
		at.loads(h.of, h.ctx, keys)
	}
	at.qParam, at.kParam, at.vParam, at.mask = h.q, h.k, h.v, h.mask
	return at, at.probs + at.probsBytes(h.of)
}

func (h *attentionProducer) registers(s Schedule, main int) int {
	pl, err := h.split(s)
	if err != nil {
		return main
	}
	at, _ := h.team(pl)
	return max(main, at.registers(h.of))
}

// tiles is the size of the tiles of A.
func (h *attentionProducer) tiles(s Schedule) int {
	return s.chunksPerSplit(h.p) * h.p.num.madeA(s.BM, s.BK)
}

// shape: rows of a tile are of one attention. For the only round, and whatever was on its way before, a block waits.
func (h *attentionProducer) shape(s Schedule) (tileShape, error) {
	t := tileShape{tilesM: h.of.z[1] * ceilDiv(h.of.m, s.BM)}
	pl, err := h.split(s)
	if err != nil {
		return t, err
	}
	_, bytes := h.team(pl)
	t.afterStages, t.waits = h.tiles(s)+min(pl.teams, pl.heads)*bytes, pl.rounds() == 1
	return t, nil
}

func (h *attentionProducer) row(g *gen, row num, beyond ptx.Ref) num {
	image, tile := h.image(g)
	m := g.add(g.mul(tile, g.s.BM), row)
	if h.of.m%g.s.BM != 0 {
		g.If(g.compare("ge.u32", m, imm(h.of.m)), "bra", beyond)
	}
	return g.mad(image, h.of.m, m)
}

// image is the place of the block in the batch, and its tile of rows there.
func (h *attentionProducer) image(g *gen) (image, tile num) {
	if h.of.z[1] == 1 {
		return imm(0), g.tileM
	}
	at := g.asm.split([]int{h.of.z[1], ceilDiv(h.of.m, g.s.BM)}, g.tileM)
	return at[0], at[1]
}

func (h *attentionProducer) tables(*plan, Schedule) {}

func (h *attentionProducer) emit(g *gen) emission {
	return emission{
		begin: func() { h.begin(g) },
		tile: func(chunk, _ num) num {
			return g.mad(chunk, h.p.num.madeA(g.s.BM, g.s.BK), imm(g.s.Stages*g.s.stageBytes(h.p)))
		},
		row: func(row num, beyond ptx.Ref) num { return h.row(g, row, beyond) },
	}
}

func (h *attentionProducer) work(s Schedule, all, _, tail *cost.Work) {
	pl, err := h.split(s)
	if err != nil {
		return
	}
	x := h.count(pl)
	addCode(tail, x, 1)
	tail.Issued -= x.Float + x.Integer + x.Special + x.Memory
	tail.Loads, tail.Trips, tail.Streamed, tail.Barriers = tail.Loads+x.Loads, x.Trips, x.Streamed, x.Barriers
	elements := h.of.batches() * h.of.m * h.of.n
	each := h.of.attnBytes(ceilDiv(h.of.m, s.BM)) + float64(elements*(h.e.reads[1]/len(h.e.acc)))
	all.L2Read += float64(float64(s.tilesN(h.p)) * each)
}

// begin computes the heads of the block.
func (h *attentionProducer) begin(g *gen) {
	pl, err := h.split(g.s)
	if err != nil {
		panic(err) // of a schedule that is not valid
	}
	t := h.newTeam(g, pl)
	at := t.at
	g.Comment("A: %d heads, %d at a time by %dx%d warps each", pl.heads, pl.teams, pl.rows, pl.columns)
	t.issue(imm(0), imm(0))
	g.I("cp.async.commit_group")
	h.fill(g)
	if pl.rounds() == 1 {
		g.I("cp.async.wait_group", ptx.Imm(0))
		g.I("bar.sync", ptx.Imm(0))
		t.compute(imm(0), imm(0))
		return
	}
	round, read, write := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("mov.b32", round, ptx.Imm(0))
	g.I("mov.b32", read, ptx.Imm(0))
	g.I("mov.b32", write, ptx.Imm(at.stage))
	loop, skip := g.NewLabel("heads"), g.NewLabel("skip")
	g.Place(loop)
	g.If(g.compare("ge.u32", inReg(round), imm(pl.rounds()-1)), "bra.uni", skip)
	t.issue(g.add(inReg(round), imm(1)), inReg(write))
	g.Place(skip)
	g.I("cp.async.commit_group")
	g.I("cp.async.wait_group", ptx.Imm(1))
	g.I("bar.sync", ptx.Imm(0))
	t.compute(inReg(round), inReg(read))
	g.I("bar.sync", ptx.Imm(0))
	for _, slot := range []ptx.Reg{read, write} {
		g.I("sub.s32", slot, ptx.Imm(at.stage), slot)
	}
	g.I("add.s32", round, round, ptx.Imm(1))
	g.If(g.compare("lt.u32", inReg(round), imm(pl.rounds())), "bra.uni", loop)
}

// fill makes the columns beyond K 0.
func (h *attentionProducer) fill(g *gen) {
	s, pitch := g.s, h.p.num.tileA(1, g.s.BK)
	from := bytesFor(h.p.num.a, h.p.k%s.BK)
	if from == 0 {
		return
	}
	sw, units, zero := layout.NewSwizzle(pitch), (pitch-from)/16, ptx.Imm(0)
	last := s.Stages*s.stageBytes(h.p) + (s.chunks(h.p)-1)*h.p.num.tileA(s.BM, s.BK)
	for i := 0; i < s.BM*units; i += s.threads() {
		at := g.add(g.tid, imm(i))
		var there *ptx.Reg
		if i+s.threads() > s.BM*units {
			in := g.compare("lt.u32", at, imm(s.BM*units))
			there = &in
		}
		to := g.register(g.add(g.smem, g.swizzled(sw, g.div(at, units), g.add(g.mod(at, units), imm(from/16)))))
		g.Where(there, "st.shared.v4.b32", ptx.At(to, last), ptx.Vec{zero, zero, zero, zero})
	}
}

// count is what a warp does for the heads of a block, by the code.
func (h *attentionProducer) count(pl attentionSplit) *cost.Work {
	// It is the same for schedules that differ in these.
	pl.s.Stages, pl.s.WarpsM, pl.s.WarpsN, pl.s.WarpsK, pl.s.BN = 2, pl.s.threads()/warpSize, 1, 1, 8
	if w := h.counts[pl]; w != nil {
		return w
	}
	at, _ := h.team(pl)
	g := at.scratch(h.p, &plan{Lowering: h.l, ctx: h.ctx}, h.ctx.Target)
	g.s = pl.s
	g.smem, g.tid, g.tileM, g.first = g.special("%tid.x"), g.special("%tid.x"), g.special("%ctaid.x"), imm(0)
	g.lane, g.warp = g.special("%tid.x"), g.special("%tid.x")
	if pl.moves {
		g.first = g.special("%ctaid.y")
	}
	for range h.p.z {
		g.z = append(g.z, g.special("%ctaid.x"))
	}
	var t *team
	begin := g.counted(func() { t = h.newTeam(g, pl) })
	round, stage := imm(0), imm(0)
	if pl.rounds() > 1 {
		round, stage = g.special("%ctaid.x"), g.special("%ctaid.x")
	}
	each := g.counted(func() {
		t.issue(round, stage)
		t.compute(round, stage)
	})
	n := float64(pl.rounds())
	w := &cost.Work{Trips: 1, Barriers: 1 + float64(n*each.Barriers), Loads: float64(n * each.Loads)}
	addCode(w, begin, 1)
	addCode(w, each, n) // of a team that has a head in all of them: others wait
	busy := float64(pl.heads) / float64(pl.teams*pl.rounds())
	for i := range w.Products {
		w.Products[i].MACs = float64(w.Products[i].MACs * busy)
	}
	if pl.rounds() > 1 {
		w.Trips, w.Streamed, w.Barriers = 0, n/2, float64(n*(2+each.Barriers))
		w.Integer += float64(5 * n)
		w.Issued += float64(9 * n)
	}
	h.counts[pl] = w
	return w
}
