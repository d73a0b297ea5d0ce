package contraction

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// blockProduct is a product whose results stay in the block that needs them: rows in shared memory by a chunk of the
// columns of constant weights. Threads apply the product's epilogue to the sums in their registers, and pass the
// results on in their stored type, a few neighbouring columns of a row at a time.
//
// Rows have the layout of a copied tile of A, one tile for each chunk of K in sequence. The weights of a chunk of
// columns are packed, also one chunk of K after another. The schedule says how many rows (BM), columns (BN) and K
// (BK) these have, and how the block's warps share them.
type blockProduct struct {
	p    *problem // in normal form; its own producer, if it has one, computes the rows
	pl   *plan
	to   ir.DType         // type of the results in shared memory
	held channelConstants // constants that a stage has
}

// newBlockProduct is the product of a region whose results are needed in some type, no narrower than that of its
// output. Its rows may be computed by producers.
func newBlockProduct(producers []*ir.Node, region *ir.Node, t *target.Target, to ir.DType) (*blockProduct, error) {
	p, err := normaliseWithProducers(producers, region, t)
	if err != nil {
		return nil, err
	}
	if p.producer != nil && !p.traits.precomputed {
		return nil, fmt.Errorf("%s before two products", producers[len(producers)-1].Name)
	}
	switch row, col := layout.Coalesce(p.outs[0].row), layout.Coalesce(p.outs[0].col); {
	case p.attn != nil || p.added != nil:
		return nil, fmt.Errorf("producer %s is no single product", p.anchor.Op.Name)
	case p.b.src.data == nil:
		return nil, fmt.Errorf("producer %s multiplies variables", p.anchor.Op.Name)
	case p.scalesA != nil:
		return nil, fmt.Errorf("producer %s multiplies blocks in memory", p.anchor.Op.Name)
	case p.quantise != nil && (to != ir.Float4E2M1 || !p.num.tensor()):
		return nil, fmt.Errorf("producer %s makes blocks of sums of %v, wanted as %v", p.anchor.Op.Name, p.num.mul, to)
	case len(p.outs) != 1 || p.sums != nil:
		return nil, fmt.Errorf("producer %s has several results", p.anchor.Op.Name)
	case p.batches() != p.z[0] || p.outs[0].offset != 0 || p.n > 1 && (len(col) != 1 || col[0].Stride != 1) || p.m > 1 && (len(row) != 1 || row[0].Stride != p.n):
		return nil, fmt.Errorf("producer %s does not yield one row-major matrix", p.anchor.Op.Name)
	}
	return &blockProduct{p: p, to: to}, nil
}

// lower makes what follows the product an expression, and its operands the kernel's first.
func (in *blockProduct) lower(ctx *kernel.Context) *lower.Lowering {
	in.pl = start(in.p, ctx)
	if err := in.pl.open(in.p); err != nil {
		lower.Fail(err)
	}
	e := &epilogue{group: 2, tag: ".inner", exact: true}
	if !in.p.num.tensor() {
		e.group = 4
	}
	in.held.lower(in.pl.Lowering)
	if err := e.lower(in.p, in.pl.Lowering, []ir.DType{in.to}); err != nil {
		lower.Fail(err)
	}
	in.held.take(in.pl.Lowering, e.result, e.n)
	b := in.pl.B
	for i, x := range e.result { // of the last group; groups beyond it are zeroed as a whole
		e.result[i] = b.Select(b.Lt(b.Offset(e.n, int64(i)), b.Int(in.p.n)), x, b.Zero(x.Type))
	}
	e.size = expr.SizeOf(e.result)
	in.pl.epilogue = e
	return in.pl.Lowering
}

// schedule is how a block's warps share a tile of so many rows and columns; the error says why they cannot.
func (in *blockProduct) schedule(rows, columns, warps int) (Schedule, error) {
	s := Schedule{BM: rows, BN: columns, BK: in.chunk(), SplitK: 1, WarpsM: warps, WarpsN: 1, WarpsK: 1}
	num, least := &in.p.num, math.Inf(1)
	if !num.tensor() {
		s.ThreadM, s.ThreadN = rows*columns/(warpSize*warps*4), 4
		if s.ThreadM > 8 {
			s.ThreadM, s.ThreadN = s.ThreadM/2, 8
		}
		if s.ThreadM == 0 || s.ThreadM > 8 || in.pl.loadA.kRows && s.ThreadM%4 != 0 || rows%s.ThreadM != 0 || columns%s.ThreadN != 0 || rows/s.ThreadM%8 != 0 || rows/s.ThreadM*(columns/s.ThreadN) != warpSize*warps {
			return s, fmt.Errorf("%d threads for %dx%d sums of the producer", warpSize*warps, rows, columns)
		}
		return s, in.fits(s)
	}
	best := s
	for k := 1; k <= warps; k *= 2 {
		for m := 1; m*k <= warps; m++ {
			c := s
			c.WarpsM, c.WarpsN, c.WarpsK = m, warps/k/m, k
			if m*k*c.WarpsN != warps || rows%(16*m) != 0 || columns%(16*c.WarpsN) != 0 || c.BK%(num.unit()*k) != 0 {
				continue
			}
			tm, tn := c.warpM()/16, c.warpN()/16
			if parts := 4 * tm * tn; tm*tn > 8 || parts%k != 0 || !oneDivides(parts/k, 2*tm) || in.p.quantise != nil && tn%k != 0 { // whole blocks of a warp
				continue
			}
			us := float64(4*(tm+tn)*c.chunks(in.p)*c.BK/k/num.unit()) + float64(8*tm*tn)
			if k > 1 {
				us += float64(40 + 16*tm*tn)
			}
			if us < least {
				best, least = c, us
			}
		}
	}
	if math.IsInf(least, 1) {
		return s, fmt.Errorf("%d warps for %dx%d sums of the producer", warps, rows, columns)
	}
	return best, in.fits(best)
}

func oneDivides(a, b int) bool { return a%b == 0 || b%a == 0 }

// fits returns an error if the schedule's threads cannot load the rows.
func (in *blockProduct) fits(s Schedule) error {
	if in.pl.loadA.kRows && !powersOfTwo(s.BM) {
		return fmt.Errorf("rows of k of %d elements", s.BM)
	}
	if l := &in.pl.loadA; l.op != nil {
		if n := s.BM * s.BK / l.perCopy(); n > s.threads() && n%s.threads() != 0 {
			return fmt.Errorf("%d copies of a tile for %d threads", n, s.threads())
		}
	}
	return in.pl.fits(s)
}

// chunk is how many elements of a row lie in one tile: as many as 256 bytes hold, unless fewer are padded with fewer
// zeros.
func (in *blockProduct) chunk() (best int) {
	num := &in.p.num
	unit := 4
	if num.tensor() {
		unit = num.unit()
	}
	least := math.MaxInt
	for bytes := 256; bytes >= leastRow; bytes /= 2 {
		if k := bytes * 8 / num.a.Bits(); k%unit == 0 && ceilDiv(in.p.k, k)*k < least {
			best, least = k, ceilDiv(in.p.k, k)*k
		}
	}
	return best
}

// Sizes in shared memory of the rows, of the weights of a chunk of columns, and of what warps exchange that share K:
// this lies where the weights were, if it is no larger.
func (in *blockProduct) rowBytes(s Schedule) int { return s.chunks(in.p) * in.p.num.madeA(s.BM, s.BK) }
func (in *blockProduct) weightBytes(s Schedule) int {
	return s.chunks(in.p) * in.p.num.tileB(s.BN, s.BK)
}
func (in *blockProduct) exchangeBytes(s Schedule) int {
	if n := s.WarpsK * s.BM * s.BN * 4; s.WarpsK > 1 && n > in.weightBytes(s) {
		return n
	}
	return 0
}

// registers of a thread, while it has others.
func (in *blockProduct) registers(s Schedule) int {
	if !in.p.num.tensor() {
		return s.ThreadM*s.ThreadN + 4*s.ThreadM + 2*s.ThreadN + 24
	}
	a, b := s.warpM()/16, s.warpN()/16
	return a*b*8 + 2*(a+b)*4 + 4*b + 32
}

// pack lays the weights out as chunks of columns read them.
func (in *blockProduct) pack(s Schedule, sizeOnly bool) []byte { return pack(in.p, s, sizeOnly) }

// running is an inner product in a kernel: where its operands lie, in bytes of shared memory.
type running struct {
	*blockProduct
	g        *gen // of the kernel, with the inner product's problem, schedule and plan
	rows     num
	exchange num
	shelves  num // where warps exchange sums of the chunk
	// at is the row of the product that a row of the tile is, for what follows the product: of rows that are none, any.
	at func(row num) num

	mma *mmaCore
	fma *fmaCore
}

// run begins an inner product, outside of the loop over chunks of columns.
func (in *blockProduct) run(g *gen, s Schedule, rows, exchange num, at func(row num) num) *running {
	sub, pl := *g, *in.pl
	pl.loadA.rows, pl.loadA.cols, pl.loadA.chunk = s.BM, s.BK, s.BK
	if pl.loadA.kRows {
		pl.loadA.rows, pl.loadA.cols = s.BK, s.BM
	}
	sub.p, sub.s, sub.plan, sub.first, sub.count = in.p, s, &pl, imm(0), imm(s.chunks(in.p))
	sub.z = in.digits(g)
	return &running{blockProduct: in, g: &sub, rows: rows, exchange: exchange, at: at}
}

// digits are the block's coordinates in the product's z, in which only members can exceed one.
func (in *blockProduct) digits(g *gen) []num {
	z := make([]num, len(in.p.z))
	z[0] = g.z[0]
	return z
}

// load brings the rows of the block's tile along M to shared memory: with plain stores, or with copies of the next
// group.
func (r *running) load() {
	g := r.g
	if r.p.producer != nil {
		return
	}
	a := g.plan.loadA
	a.ptr, a.origin = g.matrix(g.plan.a, &r.p.a), g.mul(g.tileM, g.s.BM)
	a.begin(g)
	for c := range g.s.chunks(r.p) {
		a.issue(g, imm(c*g.s.BK), g.add(r.rows, imm(c*g.p.num.tileA(g.s.BM, g.s.BK))))
	}
}

// begin is what does not depend on the chunk of columns. Rows that are computed are, here.
func (r *running) begin() {
	g := r.g
	if r.p.producer != nil {
		own := *g
		own.smem = g.add(g.smem, r.rows)
		r.p.producer.emit(&own).begin()
	}
	if r.p.num.tensor() {
		r.mma = &mmaCore{}
		r.mma.begin(g)
	} else {
		r.fma = &fmaCore{}
		r.fma.begin(g)
	}
}

// group is a run of neighbouring columns, of several rows, whose sums a thread has.
type group struct {
	column num // in the tile
	rows   []groupRow
	em     *expr.Emitter
	inside *ptx.Reg // whether the matrix has these columns; nil: it does
}

type groupRow struct {
	row  num
	more int // to row
	sums func() []ptx.Reg
}

// multiply computes the chunk of columns that begins at column, whose weights are at a byte offset in shared memory.
// It calls put with the words of each group of columns: for a row of the tile, the sum of row and more, a multiple of
// 8, and the group's first column in the chunk. For results in blocks, the words are the codes of two groups, 8
// columns from each other, and the block's scale. All threads of the block call it.
func (r *running) multiply(weights, column num, put func(row num, more int, column num, words []ptx.Reg)) {
	g := r.g
	var groups []*group
	var c core
	if r.mma != nil {
		groups, c = r.pairs(), r.mma
		for _, row := range r.mma.acc {
			for _, acc := range row {
				zero(g, acc)
			}
		}
	} else {
		groups, c = r.fours(), r.fma
		for _, acc := range r.fma.acc {
			zero(g, acc)
		}
	}
	for _, x := range groups {
		r.prepare(x, column)
	}
	g.Comment("product in front: %dx%dx%d warps=%dx%dx%d", g.s.BM, g.s.BN, g.s.BK, g.s.WarpsM, g.s.WarpsN, g.s.WarpsK)
	for i := range g.s.chunks(r.p) { // the core expects B after a tile of A
		at := g.add(weights, imm(i*g.p.num.tileB(g.s.BN, g.s.BK)-g.s.stageA(g.p)))
		c.compute(g, g.add(r.rows, imm(i*g.p.num.madeA(g.s.BM, g.s.BK))), at)
	}
	if g.s.WarpsK > 1 {
		r.shelves = r.exchange
		if r.exchangeBytes(g.s) == 0 {
			g.I("bar.sync", ptx.Imm(0))
			r.shelves = weights
		}
		r.give()
	}
	each := 1
	if r.p.quantise != nil {
		each = 2
	}
	for x := range slices.Chunk(groups, each) {
		r.finish(x, put)
	}
}

func zero(g *gen, regs []ptx.Reg) {
	for _, x := range regs {
		g.I("mov.f32", x, ptx.FImm(0))
	}
}

// prepare computes what depends on a group's columns only, so that scales and biases are loaded while sums are being
// computed.
func (r *running) prepare(x *group, first num) {
	g, e := r.g, r.pl.epilogue
	x.em = expr.NewEmitter(g.Kernel, r.pl.B, g.envOf(r.pl.Lowering))
	for i, z := range e.z {
		g.bind(x.em, z, g.z[i])
	}
	n := g.add(first, x.column)
	if r.p.n%g.s.BN != 0 {
		q := g.compare("lt.u32", n, imm(r.p.n))
		x.inside = &q
		n = g.binary("min.u32", n, imm((ceilDiv(r.p.n, e.group)-1)*e.group))
	}
	g.bind(x.em, e.n, n)
	x.em.Hoist(e.result)
}

// finish makes of a group's sums what is stored, or of those of two groups, which with the other lanes of a quad have
// a block.
func (r *running) finish(groups []*group, put func(row num, more int, column num, words []ptx.Reg)) {
	first := groups[0]
	for i, row := range first.rows {
		if len(groups) == 1 {
			put(row.row, row.more, first.column, r.values(first, row))
			continue
		}
		values := append(r.values(first, row), r.values(groups[1], groups[1].rows[i])...)
		put(row.row, row.more, first.column, r.g.quantised(r.p.quantise, values))
	}
}

// values are what follows the product made of a group's sums of a row: as they are stored, unless in blocks.
func (r *running) values(x *group, row groupRow) []ptx.Reg {
	g, e := r.g, r.pl.epilogue
	x.em.Push()
	defer x.em.Pop()
	g.bind(x.em, e.m, r.at(g.add(row.row, imm(row.more))))
	for i, sum := range row.sums() {
		if f := r.p.num.convertB().factor; f != 1 {
			g.I("mul.rn.f32", sum, sum, ptx.FImm(f))
		}
		x.em.Bind(e.acc[i], sum)
	}
	values := x.em.EmitAll(e.result)
	if x.inside != nil {
		g.zeroUnless(*x.inside, values)
	}
	if r.p.quantise != nil {
		return values
	}
	return x.em.Encode(values, e.stored[0])
}

// fours are the groups of a thread that multiplies with fma.
func (r *running) fours() (out []*group) {
	g, c, s := r.g, r.fma, r.g.s
	ty, tx := s.BM/s.ThreadM, s.BN/s.ThreadN
	for j := 0; j < s.ThreadN; j += 4 {
		x := &group{column: g.mad(c.tx, 4, imm(j*tx))}
		for i, acc := range c.acc {
			row, more := c.ty, i*ty
			if g.plan.loadA.kRows {
				row, more = g.mad(c.ty, 4, imm(i%4)), i/4*4*ty
			}
			x.rows = append(x.rows, groupRow{row, more, func() []ptx.Reg { return acc[j : j+4] }})
		}
		out = append(out, x)
	}
	return out
}

// pairs are the groups of a lane's fragments, where the warps along K share them. Fragments are numbered by n8 tile,
// m16 tile and half.
func (r *running) pairs() (out []*group) {
	g, c, s := r.g, r.mma, r.g.s
	f := layout.C16x8
	row, col := g.add(c.wm, g.offset(f.LaneRow, g.lane)), g.add(c.wn, g.offset(f.LaneCol, g.lane))
	rows, own := 2*len(c.acc), r.own()
	more := func(i int) int { return 8 * i } // halves of m16 tiles
	if s.WarpsK == 1 {
		for j := range c.acc[0] {
			x := &group{column: g.add(col, imm(8*j))}
			for i := range rows {
				x.rows = append(x.rows, groupRow{row, more(i), func() []ptx.Reg { return c.acc[i/2][j][i%2*2:][:2] }})
			}
			out = append(out, x)
		}
		return out
	}
	if own < rows { // some rows of an n8 tile
		per := rows / own
		j, part := g.div(c.wk, per), g.mod(c.wk, per)
		x := &group{column: g.mad(j, 8, col)}
		first := g.mad(part, more(own), row)
		for i := range own {
			x.rows = append(x.rows, groupRow{first, more(i), func() []ptx.Reg { return r.take(i) }})
		}
		return append(out, x)
	}
	for j := range own / rows {
		x := &group{column: g.add(g.mad(c.wk, own/rows*8, col), imm(8*j))}
		for i := range rows {
			x.rows = append(x.rows, groupRow{row, more(i), func() []ptx.Reg { return r.take(j*rows + i) }})
		}
		out = append(out, x)
	}
	return out
}

// own is how many pairs of sums each of the warps along K finishes.
func (r *running) own() int { return 2 * len(r.mma.acc) * len(r.mma.acc[0]) / r.g.s.WarpsK }

// give writes a warp's sums to shared memory, pair by pair, for the warps along K that finish them.
func (r *running) give() {
	g, c := r.g, r.mma
	at := g.register(r.shelf(c.wk))
	q := 0
	for j := range c.acc[0] {
		for i := range c.acc {
			for half := range 2 {
				g.I("st.shared.v2.f32", ptx.At(at, q*pairBytes), ptx.V(c.acc[i][j][2*half:][:2]...))
				q++
			}
		}
	}
	g.I("bar.sync", ptx.Imm(0))
}

const pairBytes = 8 * warpSize

// shelf is the address of a lane's first pair of one of the warps along K.
func (r *running) shelf(wk num) num {
	g, c, s := r.g, r.mma, r.g.s
	pairs := 2 * len(c.acc) * len(c.acc[0])
	tile := g.add(g.div(c.wn, s.warpN()), g.mul(g.div(c.wm, s.warpM()), s.WarpsN))
	at := g.mad(g.mad(tile, s.WarpsK, wk), pairs*pairBytes, g.mul(g.lane, 8))
	return g.add(g.add(g.smem, r.shelves), at)
}

// take adds up the sums of one of the warp's own pairs, always in the same order.
func (r *running) take(i int) (sum []ptx.Reg) {
	g, c := r.g, r.mma
	pairs := 2 * len(c.acc) * len(c.acc[0])
	at := g.register(g.mad(c.wk, r.own()*pairBytes, r.shelf(imm(0))))
	for k := range g.s.WarpsK {
		v := g.RegVec(ptx.F32, 2)
		g.I("ld.shared.v2.f32", ptx.V(v...), ptx.At(at, (k*pairs+i)*pairBytes))
		sum = g.plus(sum, v)
	}
	return sum
}

// work is what a warp does for a chunk of columns, copies of weights included, and for the rows that lie in memory;
// and the block's multiply-adds for the chunk.
func (in *blockProduct) work(s Schedule, loop, tail *cost.Work) (macs float64) {
	p, pl := in.p, in.pl
	chunks := float64(s.chunks(p))
	w := s.multiply(p, pl)
	copies := float64(ceilDiv(in.weightBytes(s), 16*s.threads()))
	e, groups := pl.epilogue, float64(s.BM*s.BN)/float64(pl.epilogue.group*s.threads())
	size := e.size
	loop.Float += float64(chunks*w.Float) + float64(groups*size.Float)
	loop.Special += float64(groups * size.Special)
	rows := s.ThreadM // of a thread's columns
	if p.num.tensor() {
		rows = s.warpM() / 8
	}
	loop.Loads += float64(groups*float64(ceilDiv(e.reads[1], 16))) + float64(groups*float64(ceilDiv(e.reads[0], 4*e.group)))/float64(rows)
	loop.Integer += float64(chunks*w.Integer) + 10 + float64(groups*(4+size.Integer))
	loop.Issued += float64(chunks*w.Issued) + float64(s.BM*s.BN)/float64(s.threads())
	loop.Memory += float64(chunks*w.Memory) + copies + float64(groups*(1+float64(float64(e.reads[1])/16)))
	loop.Wavefronts += float64(chunks*w.Wavefronts) + float64(in.weightBytes(s))/float64(4*s.threads()) + groups
	if p.quantise != nil { // half a quad's share of a block for each group
		loop.Float += float64(8 * groups)
		loop.Integer += float64(6 * groups)
		loop.Special += groups
		loop.Memory += float64(2 * groups)
	}
	if s.WarpsK > 1 {
		pairs := float64(float64(s.WarpsK) * groups)
		loop.Memory += float64(2 * pairs)
		loop.Wavefronts += float64(4 * pairs)
		loop.Float += float64(2 * pairs)
		loop.Barriers++
		if in.exchangeBytes(s) == 0 {
			loop.Barriers++
		}
	}
	if p.producer == nil {
		rows := float64(ceilDiv(in.rowBytes(s), pl.loadA.perCopy()*pl.loadA.elem*s.threads()))
		tail.Memory += rows
		tail.Integer += float64(5 * rows)
		tail.Wavefronts += float64(in.rowBytes(s)) / float64(4*s.threads())
		if !pl.loadA.async {
			tail.Loads += float64(rows * float64(pl.loadA.perCopy()))
			tail.Memory += float64(rows * float64(pl.loadA.perCopy()))
		}
	}
	return chunks * float64(s.BM*s.BN*s.BK*p.num.terms*p.num.termsB)
}
