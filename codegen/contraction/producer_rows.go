package contraction

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// rowsProducer computes normalised rows: several lanes of a warp compute a row, all columns that the block
// multiplies, before the first chunk is multiplied. They are stored after the stages, as one tile for every chunk.
type rowsProducer struct {
	p      *problem
	region *ir.Node // with its storage spelled out

	vector int // neighbours that a lane computes: where A is in blocks, those of a block
	value  *expr.Expr
	stored ir.DType
	blocks *ir.Node // BlockQuantize of the value; nil: A is not in blocks
	// variables: place of an element of A
	at, column *expr.Expr
	l          *lower.Lowering
	ctx        *kernel.Context

	counted map[turn]cost.Work
	chosen  map[Schedule]turn
	read    int // bytes of activations that a row reads
}

// turn is how a warp takes rows: so many lanes of each, which compute so many rows at once. What the lanes keep of
// these rows is in registers.
type turn struct{ lanes, each int }

// rows is how many rows that are.
func (t turn) rows() int { return t.each * warpSize / t.lanes }

const (
	mostInRow = 64 // elements that a lane has in registers
	mostRows  = 8  // of which they are
)

// newRowsProducer reads the only producer.
func newRowsProducer(p *problem, producers []*ir.Node) (producer, error) {
	if len(producers) > 1 || !normalisesRows(producers[0]) {
		return nil, fmt.Errorf("%s does not normalise rows, alone", producers[len(producers)-1].Name)
	}
	region, err := producers[0].Explicit()
	if err != nil {
		return nil, err
	}
	r := &rowsProducer{p: p, region: region, blocks: region.Region.BlockQuantize(), counted: map[turn]cost.Work{}, chosen: map[Schedule]turn{}}
	bits := p.num.a.Bits()
	wide := 16 // bits of the widest element that is read
	for i, v := range region.Inputs {
		if !v.IsConst() {
			r.read += v.Type.Bytes() / max(1, v.Type.Numel()) * region.Region.Body.Inputs[i].Type.Numel() / p.m
			wide = max(wide, v.Type.DType.Bits())
		}
	}
	if r.vector = min(128/bits, 128/wide); r.blocks != nil {
		r.vector = ir.BlockSize
	}
	for r.vector > 1 && p.k%r.vector != 0 {
		r.vector /= 2
	}
	if r.vector*bits < 32 {
		return nil, fmt.Errorf("rows of %d elements of %s are not whole words", p.k, p.num.a)
	}
	return r, nil
}

// normalisesRows reports whether the only heavy node of a loop makes of each row, along the last axis, one as long.
func normalisesRows(n *ir.Node) bool {
	heavy := 0
	for _, m := range n.Region.Body.Nodes {
		switch t := m.Outputs[0].Type; {
		case m.Role() == ir.RoleLight && m.Op.Kind != ir.KindMovement:
		case m.Op.Kind == ir.KindReduction && m.Op.Rereads && m.Inputs[0].Type.Equal(t) && m.Attrs.Int("axis", 0) == t.Rank()-1:
			heavy++
		default:
			return false
		}
	}
	return heavy == 1 && len(n.Region.Body.Outputs) == 1
}

const warpSize = 32

func (r *rowsProducer) traits() traits {
	t := traits{stem: "rows", macs: r.region.MACs(), precomputed: true}
	if i := slices.IndexFunc(r.region.Region.Body.Nodes, func(n *ir.Node) bool { return n.Role() == ir.RoleHeavy }); i >= 0 {
		t.stem = strings.ToLower(r.region.Region.Body.Nodes[i].Op.Name)
	}
	return t
}

func (r *rowsProducer) lower(p *problem, ctx *kernel.Context) *lower.Lowering {
	l := lower.New(r.region, ctx)
	b, y, stored := l.B, r.region.Region.Body.Outputs[0], p.num.a
	if r.blocks != nil {
		y, stored = r.blocks.Inputs[0], ir.Float32
	}
	if r.region.Region.Members > 0 {
		l.Member = b.Index("z0", p.z[0])
	}
	r.l, r.ctx, r.at, r.column = l, ctx, b.Index("row.a", p.m), b.Index("column.a", p.k)
	shape := y.Type.Shape
	last := len(shape) - 1
	// It is rounded to its own type; where several types are multiplied, as a wider one.
	r.value, r.stored = lower.Storage(b, l.Value(y, append(b.Unravel(r.at, shape[:last]), r.column)), stored)
	return l
}

// perTurn is what a warp does in a turn.
func (r *rowsProducer) perTurn(t turn) cost.Work {
	if w, ok := r.counted[t]; ok {
		return w
	}
	k := ptx.NewModule(r.ctx.Target.Name).NewKernel("counted", warpSize)
	s := Schedule{BM: t.rows(), BK: 128 * 8 / r.p.num.a.Bits(), SplitK: 1, WarpsM: 1, WarpsN: 1, WarpsK: 1}
	g := &gen{asm: asm{k}, p: r.p, s: s, t: r.ctx.Target, plan: &plan{Lowering: r.l, ctx: r.ctx}}
	for i := range r.l.Operands {
		g.params = append(g.params, k.AddParam(fmt.Sprint("p", i), "u64"))
	}
	for range r.p.z {
		g.z = append(g.z, g.special("%ctaid.x"))
	}
	g.smem, g.lane, g.tileM, g.first = g.special("%tid.x"), g.special("%tid.x"), g.special("%ctaid.x"), imm(0)
	sectors := map[int]float64{}
	e := &rowsEmitter{rowsProducer: r, gen: g, turn: t}
	e.begin(func(index *expr.Expr, bytes, size int) {
		sectors[len(k.Body)] = expr.Sectors(r.l.B, index, bytes, size, func(lane int, with map[*expr.Expr]*expr.Expr) {
			with[e.lane] = r.l.B.Int(lane % t.lanes)
			for i, own := range e.own {
				if own.Op == expr.OpVar {
					with[own] = r.l.B.Int(i*warpSize/t.lanes + lane/t.lanes)
				}
			}
		})
	})
	e.turnAt(g.special("%ctaid.y"))
	w := cost.Work{Blocks: 1, Warps: 1}
	w.Code(k, sectors)
	bytes := bytesFor(r.p.num.a, r.vector)
	sw := layout.NewSwizzle(r.p.num.tileA(1, s.BK))
	fronts := sharedClocks(bytes, func(lane int) int {
		at := lane % t.lanes * bytes
		return sw.Byte(lane/t.lanes, at/16%sw.Chunks) + at%16
	})
	w.Wavefronts += float64(t.each * r.rounds(s, t) * (fronts - 1)) // beyond the one for each
	r.counted[t] = w
	return w
}

// turns are the ways in which a warp of the schedule can take its rows.
func (r *rowsProducer) turns(s Schedule) (out []turn) {
	whole := s
	whole.SplitK = 1
	for lanes := warpSize; lanes >= 4; lanes /= 2 {
		for each := 1; each <= mostRows && each*warpSize/lanes <= s.rowsOfWarp(); each++ {
			t := turn{lanes, each}
			all := each * r.rounds(whole, t) * r.vector // what is reduced
			if s.rowsOfWarp()%t.rows() == 0 && (all <= mostInRow || t.rows() == 1 && r.rounds(s, t)*r.vector <= mostInRow) {
				out = append(out, t)
			}
		}
	}
	return out
}

// turn is the fastest of these.
func (r *rowsProducer) turn(s Schedule) turn {
	key := Schedule{BM: s.BM, BN: s.threads(), BK: s.BK, SplitK: s.SplitK}
	if t, ok := r.chosen[key]; ok {
		return t
	}
	m := cost.Of(r.ctx.Target)
	var best turn
	least := math.Inf(1)
	for _, t := range r.turns(s) {
		each, times := r.perTurn(t), float64(s.rowsOfWarp()/t.rows())
		w := cost.Work{Blocks: 1, Warps: s.threads() / warpSize, Resident: 1, Loads: float64(times * each.Loads)}
		all := float64(times * float64(w.Warps))
		w.Issued, w.Float, w.Integer, w.Special = float64(all*each.Issued), float64(all*each.Float), float64(all*each.Integer), float64(all*each.Special)
		w.Memory, w.Wavefronts = float64(all*each.Memory), float64(all*each.Wavefronts)
		if us := m.Estimate(&w).US; us < least {
			best, least = t, us
		}
	}
	r.chosen[key] = best
	return best
}

// rounds is how many vectors of a row a lane has.
func (r *rowsProducer) rounds(s Schedule, t turn) int { return ceilDiv(r.vectors(s), t.lanes) }

// vectors is how many of them a row of the block's tiles has.
func (r *rowsProducer) vectors(s Schedule) int { return s.chunksPerSplit(r.p) * s.BK / r.vector }

// rowsOfWarp is how many rows of a tile each of the block's warps has.
func (s Schedule) rowsOfWarp() int { return s.BM / (s.threads() / warpSize) }

func (r *rowsProducer) shape(s Schedule) (t tileShape, err error) {
	switch {
	case s.BM%(s.threads()/warpSize) != 0:
		err = refuse("%d rows for %d warps", s.BM, s.threads()/warpSize)
	case len(r.turns(s)) == 0:
		err = refuse("rows of %d elements in registers of a warp", r.vectors(s)*r.vector)
	}
	return tileShape{tilesM: ceilDiv(r.p.m, s.BM), afterStages: s.chunksPerSplit(r.p) * r.p.num.madeA(s.BM, s.BK)}, err
}

func (r *rowsProducer) registers(s Schedule, main int) int {
	t := r.turn(s)
	return max(main, 60+2*t.each*r.rounds(s, t)*r.vector)
}

func (r *rowsProducer) tables(*plan, Schedule) {}

func (r *rowsProducer) emit(g *gen) emission {
	return emission{begin: func() { r.begin(g) }, tile: func(chunk, _ num) num {
		return g.mad(chunk, g.p.num.madeA(g.s.BM, g.s.BK), imm(g.s.Stages*g.s.stageBytes(g.p)))
	}}
}

func (r *rowsProducer) work(s Schedule, all, _, tail *cost.Work) {
	t := r.turn(s)
	taken := 0 // turns of all blocks of a column
	for first := 0; first < r.p.m; first += s.BM {
		taken += ceilDiv(min(s.BM, r.p.m-first), t.rows())
	}
	n, e := float64(taken)/float64(s.tilesM(r.p)*s.threads()/warpSize), r.perTurn(t)
	tail.Float += float64(n * e.Float)
	tail.Integer += float64(n * e.Integer)
	tail.Special += float64(n * e.Special)
	tail.Memory += float64(n * e.Memory)
	tail.Issued += float64(n * (e.Issued - e.Float - e.Integer - e.Special - e.Memory))
	tail.Wavefronts += float64(n * e.Wavefronts)
	tail.Loads += float64(n * e.Loads)
	all.L2Read += float64(s.tilesN(r.p) * s.SplitK * r.p.batches() * r.p.m * r.read)
}

func (r *rowsProducer) begin(g *gen) {
	s, t := g.s, r.turn(g.s)
	times, warps := s.rowsOfWarp()/t.rows(), s.threads()/warpSize
	g.Comment("A: %d rows of a warp, %d at a time, each of %d lanes", s.rowsOfWarp(), t.rows(), t.lanes)
	e := &rowsEmitter{rowsProducer: r, gen: g, turn: t}
	e.begin(nil)
	first := g.mul(g.warp, t.rows())
	loop := g.NewLabel("rows")
	if times > 1 {
		r := g.Reg(ptx.B32)
		g.I("mov.b32", r, first.operand())
		first = inReg(r)
		g.Place(loop)
		e.em.Push()
	}
	e.emit(first)
	if times > 1 {
		e.em.Pop()
		g.I("add.s32", first.reg, first.reg, ptx.Imm(warps*t.rows()))
		g.If(g.compare("lt.u32", first, imm(s.BM)), "bra.uni", loop)
	}
}

// rowsEmitter writes turns of a warp.
type rowsEmitter struct {
	*rowsProducer
	gen  *gen
	turn turn
	em   *expr.Emitter
	lane *expr.Expr   // of those that share a row
	own  []*expr.Expr // rows that a lane has a share of
	at   num          // of the lane, in its row
	part num          // of the row, among those that the warp's lanes share at once
}

// begin prepares an emitter, which tells loads what it reads.
func (e *rowsEmitter) begin(loads func(index *expr.Expr, bytes, size int)) {
	g, b := e.gen, e.l.B
	teams := warpSize / e.turn.lanes
	e.lane = b.Index(fmt.Sprint("lane.a", e.turn.lanes), e.turn.lanes)
	env := g.envOf(e.l)
	env.Loads = loads
	env.Team = &expr.Team{Threads: e.turn.lanes, Lane: e.lane, Adjacent: true, Teams: teams, Index: b.Index(fmt.Sprint("team.a", teams), teams),
		Vary: []*expr.Expr{e.lane}, Vector: e.vector, Unrolled: mostInRow}
	e.em = expr.NewEmitter(g.Kernel, b, env)
	e.at, e.part = g.lane, imm(0)
	if teams > 1 {
		e.at, e.part = g.mod(g.lane, e.turn.lanes), g.div(g.lane, e.turn.lanes)
	}
	g.bind(e.em, e.lane, e.at)
	if e.l.Member != nil {
		g.bind(e.em, e.l.Member, g.z[0])
	}
	for i := range e.turn.each {
		e.own = append(e.own, b.Index(fmt.Sprint("row.a", i), e.p.m))
	}
}

// emit computes a warp's rows of the tile from first on, unless all are beyond the matrix: they are 0 then.
func (e *rowsEmitter) emit(first num) {
	g, m := e.gen, e.p.m
	if m%g.s.BM == 0 {
		e.turnAt(first)
		return
	}
	there, done := g.NewLabel("inside"), g.NewLabel("normalised")
	g.If(g.compare("lt.u32", g.add(g.mul(g.tileM, g.s.BM), first), imm(m)), "bra.uni", there)
	words := g.RegVec(ptx.B32, e.vector*e.p.num.a.Bits()/32)
	if e.blocks != nil {
		words = append(words, g.Reg(ptx.B16))
	}
	for _, w := range words {
		g.I("mov."+suffixOf([]ptx.Reg{w}), w, ptx.Imm(0))
	}
	e.store(first, func() []ptx.Reg { return words })
	g.I("bra.uni", done)
	g.Place(there)
	e.em.Push()
	e.turnAt(first)
	e.em.Pop()
	g.Place(done)
}

// row is the i-th row of the tile that a lane has a share of, in the turn that begins at first.
func (e *rowsEmitter) row(first num, i int) num {
	return e.gen.add(e.gen.add(first, e.part), imm(i*warpSize/e.turn.lanes))
}

// turnAt computes the rows of a turn, and stores them. A row beyond the matrix is the last one again, and columns
// beyond K are 0.
func (e *rowsEmitter) turnAt(first num) {
	g, p, s, b, em := e.gen, e.p, e.gen.s, e.l.B, e.em
	from := b.Int(0) // vectors before the block's
	if g.first.isReg {
		from = b.Index("from.a", p.k/e.vector)
		g.bind(em, from, g.mul(g.first, s.BK/e.vector))
	}
	lanes, rounds := e.turn.lanes, e.rounds(s, e.turn)
	var values []*expr.Expr
	for i, own := range e.own {
		m := g.add(g.mul(g.tileM, s.BM), e.row(first, i))
		if p.m%s.BM != 0 {
			m = g.binary("min.u32", m, imm(p.m-1))
		}
		g.bind(em, own, m)
		for j := range rounds {
			values = append(values, e.vectorAt(own, b.Add(from, b.Offset(e.lane, int64(j*lanes))), s.SplitK*rounds*lanes)...)
		}
	}
	regs := em.EmitAll(values)
	e.store(first, func() []ptx.Reg {
		own := regs[:e.vector]
		regs = regs[e.vector:]
		if e.blocks != nil {
			codes, scale := expr.QuantizeBlock(g.Kernel, own, e.blocks.Attrs.Float("scale", 1))
			return append(codes[:], scale)
		}
		return em.Encode(own, e.stored)
	})
}

// store stores the vectors that a lane has of the rows of a turn, one row after the other: words, and where A is in
// blocks the scale.
func (e *rowsEmitter) store(first num, next func() []ptx.Reg) {
	g, s, lanes := e.gen, e.gen.s, e.turn.lanes
	num, after := &e.p.num, s.Stages*s.stageBytes(e.p)
	bytes, pitch := bytesFor(num.a, e.vector), num.tileA(1, s.BK)
	tile, sw := num.madeA(s.BM, s.BK), layout.NewSwizzle(pitch)
	in := g.mul(e.at, bytes) // of a row, the lane's first vector
	chunk := imm(0)
	if lanes*bytes > pitch {
		chunk, in = g.div(in, pitch), g.mod(in, pitch)
	}
	within := g.add(g.smem, g.add(g.mul(chunk, tile), g.mod(in, 16)))
	for i := range e.own {
		at, scales := map[int]ptx.Reg{}, map[int]ptx.Reg{} // addresses by place in the row of a tile
		for j := range e.rounds(s, e.turn) {
			off := j * lanes * bytes
			place := off % pitch
			to, ok := at[place]
			if !ok {
				row, column := e.row(first, i), g.add(in, imm(place))
				to = g.register(g.add(within, g.swizzled(sw, row, g.div(column, 16))))
				at[place] = to
				if e.blocks != nil {
					scales[place] = g.register(g.add(g.add(g.smem, g.mul(chunk, tile)), g.mad(row, num.scalesA(1, s.BK), g.div(column, bytes))))
				}
			}
			var there *ptx.Reg
			if n := e.vectors(s) - j*lanes; n < lanes {
				q := g.compare("lt.u32", e.at, imm(n))
				there = &q
			}
			words := next()
			if last := len(words) - 1; e.blocks != nil {
				g.Where(there, "st.shared.u8", ptx.At(scales[place], after+off/pitch*tile+num.tileA(s.BM, s.BK)), words[last])
				words = words[:last]
			}
			op, from := storeWords(words)
			g.Where(there, op, ptx.At(to, after+off/pitch*tile), from)
		}
	}
}

// vectorAt are the elements of a vector of a row as they are stored: 0 beyond K. Vectors are below most.
func (r *rowsProducer) vectorAt(row, at *expr.Expr, most int) []*expr.Expr {
	b, all := r.l.B, r.p.k/r.vector
	inside := b.Lt(at, b.Int(all))
	if most > all {
		at = b.Min(at, b.Int(all-1))
	}
	var out []*expr.Expr
	for u := range r.vector {
		with := map[*expr.Expr]*expr.Expr{r.column: b.Offset(b.Scale(at, int64(r.vector)), int64(u))}
		if r.at.Op == expr.OpVar {
			with[r.at] = row
		}
		x := expr.Stored([]*expr.Expr{b.Subst(r.value, with, nil)}, r.stored)[0]
		out = append(out, b.Select(inside, x, b.Zero(x.Type)))
	}
	return out
}
