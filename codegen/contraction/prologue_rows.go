package contraction

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// rows is a prologue whose rows are normalised: a warp computes a row at a time, all columns that the block multiplies. They lie behind the
// stages, a tile for every chunk, before the first one is multiplied.
type rows struct {
	p      *problem
	region *ir.Node // with its storage spelled out

	vector int // neighbours that a lane computes
	value  *expr.Expr
	stored ir.DType
	// variables: place of an element of A
	at, column, lane *expr.Expr
	l                *lower.Lowering

	each cost.Work // what a warp does for a row
	read int       // bytes of activations that a row reads
}

const (
	mostInRow  = 64 // elements of a row that a lane has in registers
	mostAtOnce = 32 // of rows that a warp computes together
)

func newRows(p *problem, region *ir.Node) (*rows, error) {
	r := &rows{p: p, region: region}
	bits := p.num.a.Bits()
	for v := min(8, 128/bits); v*bits >= 32; v /= 2 {
		if p.k%v == 0 {
			if r.vector == 0 || p.k/r.vector < warpSize {
				r.vector = v
			}
		}
	}
	if r.vector == 0 {
		return nil, fmt.Errorf("rows of %d elements of %s are not whole words", p.k, p.num.a)
	}
	for i, v := range region.Inputs {
		if !v.IsConst() {
			r.read += v.Type.Bytes() / max(1, v.Type.Numel()) * region.Region.Body.Inputs[i].Type.Numel() / p.m
		}
	}
	return r, nil
}

const warpSize = 32

func (r *rows) stem() string {
	for _, n := range r.region.Region.Body.Nodes {
		if n.Role() == ir.RoleHeavy {
			return strings.ToLower(n.Op.Name)
		}
	}
	return "rows"
}

func (r *rows) macs() int64 { return r.region.MACs() }

func (r *rows) lower(p *problem, ctx *kernel.Context) *lower.Lowering {
	l := lower.New(r.region, ctx)
	b, y := l.B, r.region.Region.Body.Outputs[0]
	if r.region.Region.Members > 0 {
		l.Member = b.Index("z0", p.z[0])
	}
	r.l, r.at, r.column, r.lane = l, b.Index("row.a", p.m), b.Index("column.a", p.k), b.Index("lane.a", warpSize)
	shape := y.Type.Shape
	last := len(shape) - 1
	// It is rounded to its own type; where several types are multiplied, as a wider one.
	r.value, r.stored = lower.Storage(b, l.Value(y, append(b.Unravel(r.at, shape[:last]), r.column)), p.num.a)
	r.each = r.count(ctx)
	return l
}

// count emits one row, of a warp by itself.
func (r *rows) count(ctx *kernel.Context) cost.Work {
	k := ptx.NewModule(ctx.Target.Name).NewKernel("counted", warpSize)
	plan := &plan{Lowering: r.l, ctx: ctx}
	g := &gen{asm: asm{k}, p: r.p, s: Schedule{BM: 1, BK: 128 * 8 / r.p.num.a.Bits(), SplitK: 1, WarpsM: 1, WarpsN: 1, WarpsK: 1}, t: ctx.Target, plan: plan}
	for i := range r.l.Operands {
		g.params = append(g.params, k.AddParam(fmt.Sprint("p", i), "u64"))
	}
	for range r.p.z {
		g.z = append(g.z, g.special("%ctaid.x"))
	}
	g.smem, g.lane, g.tileM, g.first = g.special("%tid.x"), g.special("%tid.x"), g.special("%ctaid.x"), imm(0)
	sectors := map[int]float64{}
	em := r.emitter(g, func(_ *expr.Expr, bytes, _ int) { sectors[len(k.Body)] = float64(bytes) })
	r.emit(g, em, []num{g.special("%ctaid.y")})
	w := cost.Work{Blocks: 1, Warps: 1}
	w.Code(k, sectors)
	return w
}

// rounds is how many vectors of a row a lane has.
func (r *rows) rounds(s Schedule) int { return ceilDiv(r.vectors(s), warpSize) }

// vectors is how many of them a row of the block's tiles has.
func (r *rows) vectors(s Schedule) int { return s.chunksPerSplit(r.p) * s.BK / r.vector }

// together is how many rows a warp computes together.
func (r *rows) together(s Schedule) int {
	n := s.rowsOfWarp()
	for n > 1 && (n*r.rounds(s)*r.vector > mostAtOnce || s.rowsOfWarp()%n != 0) {
		n--
	}
	return n
}

// rowsOfWarp is how many rows of a tile each of the block's warps has.
func (s Schedule) rowsOfWarp() int { return s.BM / (s.threads() / warpSize) }

func (r *rows) valid(s Schedule) error {
	switch {
	case s.BM%(s.threads()/warpSize) != 0:
		return fmt.Errorf("%d rows for %d warps", s.BM, s.threads()/warpSize)
	case r.rounds(s)*r.vector > mostInRow:
		return fmt.Errorf("rows of %d elements in registers of a warp", r.vectors(s)*r.vector)
	}
	return nil
}

func (r *rows) registers(s Schedule, main int) int {
	return max(main, 60+2*r.together(s)*r.rounds(s)*r.vector)
}

func (r *rows) tilesM(s Schedule) int                   { return ceilDiv(r.p.m, s.BM) }
func (r *rows) row(g *gen, row num, beyond ptx.Ref) num { return g.inOrder(row, beyond) }
func (r *rows) tables(*plan, Schedule)                  {}
func (r *rows) ahead(*gen)                              {}
func (r *rows) constants(*gen, num)                     {}
func (r *rows) arrive(*gen)                             {}
func (r *rows) issue(*gen, num, num)                    {}

func (r *rows) inStage(Schedule) int { return 0 }

func (r *rows) behind(s Schedule) int { return s.chunksPerSplit(r.p) * r.p.num.tileA(s.BM, s.BK) }

func (r *rows) work(s Schedule, _, tail *cost.Work) (bytes, constants float64) {
	n := float64(s.rowsOfWarp())
	e := &r.each
	tail.Float += float64(n * e.Float)
	tail.Integer += float64(n * e.Integer)
	tail.Special += float64(n * e.Special)
	tail.Memory += float64(n * e.Memory)
	tail.Issued += float64(n * (e.Issued - e.Float - e.Integer - e.Special - e.Memory))
	tail.Wavefronts += float64(n * e.Wavefronts)
	tail.Loads += float64(n * e.Loads)
	return float64(s.tilesN(r.p)*s.SplitK*r.p.batches()*r.p.m) * float64(r.read), 0
}

func (r *rows) begin(g *gen) {
	s := g.s
	n, warps := r.together(s), s.threads()/warpSize
	g.Comment("A: %d rows of a warp, %d at a time", s.rowsOfWarp(), n)
	em := r.emitter(g, nil)
	turn := g.Reg(ptx.B32)
	g.I("mov.b32", turn, ptx.Imm(0))
	loop := g.NewLabel("rows")
	if n < s.rowsOfWarp() {
		g.Place(loop)
		em.Push()
	}
	var list []num
	for i := range n {
		list = append(list, g.add(g.mad(inReg(turn), warps*n, g.warp), imm(i*warps)))
	}
	r.emit(g, em, list)
	if n < s.rowsOfWarp() {
		em.Pop()
		g.I("add.s32", turn, turn, ptx.Imm(1))
		g.If(g.compare("lt.u32", inReg(turn), imm(s.rowsOfWarp()/n)), "bra.uni", loop)
	}
}

// emitter is that of the rows of a block.
func (r *rows) emitter(g *gen, loads func(*expr.Expr, int, int)) *expr.Emitter {
	pointers := make([]ptx.Reg, len(g.plan.Operands))
	for i := range pointers {
		if r.l.Loaded[i] {
			pointers[i] = g.pointer(i)
		}
	}
	env := r.l.Env(g.Kernel, pointers)
	env.Wait, env.Loads = nil, loads // it has waited
	env.Team = &expr.Team{Threads: warpSize, Lane: r.lane, Adjacent: true, Teams: 1, Index: r.l.B.Int(0), Vary: []*expr.Expr{r.lane}}
	em := expr.NewEmitter(g.Kernel, r.l.B, env)
	em.Bind(r.lane, g.register(g.lane))
	if r.l.Member != nil {
		g.bind(em, r.l.Member, g.z[0])
	}
	return em
}

// emit computes rows of the tile, and stores them. Rows beyond the matrix are the last one again, and columns are 0.
func (r *rows) emit(g *gen, em *expr.Emitter, list []num) {
	p, s, b := r.p, g.s, r.l.B
	from := b.Int(0) // vectors in front of the block's
	if g.first.isReg {
		from = b.Index("from.a", p.k/r.vector)
		g.bind(em, from, g.mul(g.first, s.BK/r.vector))
	}
	vectors, rounds := r.vectors(s), r.rounds(s)
	var values []*expr.Expr
	for i, row := range list {
		m := g.add(g.mul(g.tileM, s.BM), row)
		if p.m%s.BM != 0 {
			m = g.binary("min.u32", m, imm(p.m-1))
		}
		own := b.Index(fmt.Sprint("row.a", i), p.m)
		g.bind(em, own, m)
		for j := range rounds {
			values = append(values, r.vectorAt(own, b.Add(from, b.Offset(r.lane, int64(j*warpSize))), s.SplitK*rounds*warpSize)...)
		}
	}
	regs := em.EmitAll(values)
	elem := bytesFor(p.num.a, 1)
	pitch, sw := p.num.tileA(1, s.BK), layout.NewSwizzle(p.num.tileA(1, s.BK))
	for i := range list {
		for j := range rounds {
			var there *ptx.Reg
			at := g.add(g.lane, imm(j*warpSize))
			if (j+1)*warpSize > vectors {
				q := g.compare("lt.u32", at, imm(vectors))
				there = &q
			}
			byteAt := g.mul(at, r.vector*elem)
			chunk, in := g.div(byteAt, pitch), g.mod(byteAt, pitch)
			to := g.add(g.mul(chunk, p.num.tileA(s.BM, s.BK)), g.add(g.swizzled(sw, list[i], g.div(in, 16)), g.mod(in, 16)))
			words := em.Encode(regs[:r.vector], r.stored)
			regs = regs[r.vector:]
			op, from := storeWords(words)
			g.Where(there, op, ptx.At(g.register(g.add(g.smem, to)), s.Stages*s.stageBytes(p)), from)
		}
	}
}

// vectorAt are the elements of a vector of a row as they are stored: 0 beyond K. Vectors are below most.
func (r *rows) vectorAt(row, at *expr.Expr, most int) []*expr.Expr {
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

func (r *rows) tile(g *gen, chunk, _ num) num {
	return g.mad(chunk, g.p.num.tileA(g.s.BM, g.s.BK), imm(g.s.Stages*g.s.stageBytes(g.p)))
}
