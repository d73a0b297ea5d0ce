package contraction

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// tiles are constant weights that several kernels read, whatever their schedules and in either direction: a matrix in
// rows of blocks. A block is 16 rows by as many columns as 32 bytes hold.
//
// With 16 bits it is four 8×8 matrices, (0–7, 0–7), (0–7, 8–15), (8–15, 0–7), (8–15, 8–15), each of eight rows of 16
// bytes. Where rows are n, ldmatrix loads a block as the B fragments of two n8 tiles; where they are k, ldmatrix with
// .trans does.
//
// Narrow elements are in the order of a kernel whose rows are n: what a lane converts for two n8 tiles, then the
// scales. Where rows are k, a warp converts the same and transposes the fragments.
//
// Elements beyond the matrix are zero.
type tiles struct {
	data       []byte
	rows, cols int  // of blocks
	width      int  // columns of a block
	bytes      int  // of a block
	byK        bool // rows run along k and columns along n, for this reader
}

// tileRows are the rows of a block.
const tileRows = 16

// tileable reports whether a problem's weights can lie in tiles, by rows of n and by rows of k.
func (p *problem) tileable(t *target.Target) (byN, byK bool) {
	n := &p.num
	if p.attn != nil || p.b.src.data == nil || !isHalf(n.mul) || n.a != n.mul || n.round != 0 || n.terms > 1 || n.termsB > 1 {
		return false, false
	}
	if n.b == n.mul {
		return true, true
	}
	moves := ptx.Lookup(transposeOp).Available(t.Name, ptx.Version{Major: t.ISA[0], Minor: t.ISA[1]}) == nil
	return !n.across, moves && (n.across || !n.scaled())
}

const transposeOp = "movmatrix.sync.aligned.m8n8.trans.b16"

// tilesOf lays weights out, a matrix for every z that they depend on.
func tilesOf(p *problem, byK bool) *tiles {
	num := p.num
	num.across = false
	rows, cols, r, c := p.b.col, p.b.row, p.n, p.k
	if byK {
		rows, cols, r, c = cols, rows, c, r
	}
	t := &tiles{width: num.stepB(), bytes: num.tileB(tileRows, num.stepB()), byK: byK}
	t.rows, t.cols = ceilDiv(r, tileRows), ceilDiv(c, t.width)
	row, col := offsets(rows, r, t.rows*tileRows), offsets(cols, c, t.cols*t.width)
	bases, w, order := p.panels(), newWeights(p), blockOrder(&num)
	t.data = make([]byte, len(bases)*t.rows*t.cols*t.bytes)
	at := 0
	for _, base := range bases {
		for i := 0; i < len(row); i += tileRows {
			for j := 0; j < len(col); j += t.width {
				w.pack(&num, t.data[at:at+t.bytes], order, col[j:j+t.width], row[i:i+tileRows], base)
				at += t.bytes
			}
		}
	}
	return t
}

// blockOrder is the element at each place of a block: k is its column, n its row.
func blockOrder(num *numerics) (order []kn) {
	if num.b != num.mul {
		return stepOrder(num)
	}
	for m := range 4 {
		for n := range 8 {
			for k := range 8 {
				order = append(order, kn{int32(m%2*8 + k), int32(m/2*8 + n)})
			}
		}
	}
	return order
}

// digest is the same for weights of the same blocks.
func (t *tiles) digest() [sha256.Size]byte {
	h := sha256.New()
	h.Write(t.data)
	for _, x := range []int{t.rows, t.cols, t.bytes} {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(x)))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Shared knows the weights that several kernels of a program read. They lie in memory once, in tiles: those of a
// layer are read by its product, by the gradient of its input, which is a product with their transpose, and by the
// norms of an adapter. Of nil every kernel packs its own.
type Shared struct {
	target *target.Target
	all    map[[sha256.Size]byte]*sharedWeights // by the tiles of their first reader
	found  map[string]*tiles                    // by reader
}

type sharedWeights struct {
	tiles   *tiles
	readers int
}

// Share looks through the graphs of a program's entries.
func Share(graphs []*ir.Graph, t *target.Target) *Shared {
	s := &Shared{t, map[[sha256.Size]byte]*sharedWeights{}, map[string]*tiles{}}
	for _, g := range graphs {
		for _, n := range g.Nodes {
			if !n.IsFamily(ir.FamilyContraction) {
				continue
			}
			p, err := normaliseFor(n, t)
			if err != nil {
				continue // Lower says why
			}
			w, own := s.find(p)
			if own == nil {
				continue
			}
			if w == nil {
				w = &sharedWeights{tiles: own}
				s.all[own.digest()] = w
			}
			w.readers++
			s.found[p.weightsKey()] = own
		}
	}
	return s
}

// find returns the shared weights that a problem reads, nil if they are not known, and how it reads them; nil if it
// can read no tiles of that kind.
func (s *Shared) find(p *problem) (w *sharedWeights, own *tiles) {
	own = s.found[p.weightsKey()]
	byN, byK := p.tileable(s.target)
	if own == nil && byN {
		own = tilesOf(p, false)
		w = s.all[own.digest()]
	}
	if w == nil && byK && s.found[p.weightsKey()] == nil {
		if other := tilesOf(p, true); s.all[other.digest()] != nil {
			own = other
		}
	}
	if own == nil {
		return nil, nil
	}
	if w = s.all[own.digest()]; w != nil {
		own.data = w.tiles.data // once in memory here too
	}
	return w, own
}

// weightsKey distinguishes weights and how they are read, as long as their data live.
func (p *problem) weightsKey() string {
	return fmt.Sprintf("%p %v %v %v %d %v %v", p.b.src.data, p.b.z, p.b.row, p.b.col, p.b.offset, p.num.b, p.num.mul)
}

// tilesFor are the tiles of weights that other kernels read too, or nil.
func (s *Shared) tilesFor(p *problem) *tiles {
	if s == nil {
		return nil
	}
	w, own := s.find(p)
	if w == nil || w.readers < 2 {
		return nil
	}
	return own
}

// share makes a kernel read its weights where others read them too, and reports whether it does.
func (pl *plan) share(p *problem, s *Shared) bool {
	if pl.tiles = s.tilesFor(p); pl.tiles == nil {
		return false
	}
	p.num.across = false // for whichever reader blocks lie across, it converts them as the other one does
	return true
}

// run is the number of bytes of a row of blocks in a stage, where its rows follow each other.
func (t *tiles) run(s Schedule) int {
	if t.byK {
		return s.BN / t.width * t.bytes
	}
	return s.BK / t.width * t.bytes
}

// pitch is the distance of rows of blocks in memory.
func (t *tiles) pitch() int { return t.cols * t.bytes }

// step is the distance of chunks of K in memory.
func (t *tiles) step(s Schedule) int {
	if t.byK {
		return s.BK / tileRows * t.pitch()
	}
	return t.run(s)
}

// column is the distance of tiles along N in memory.
func (t *tiles) column(s Schedule) int {
	if t.byK {
		return t.run(s)
	}
	return s.BN / tileRows * t.pitch()
}

// blocks are the numbers of blocks of the matrix along N and along K, and those of a tile.
func (t *tiles) blocks(s Schedule) (n, k, tileN, tileK int) {
	if t.byK {
		return t.cols, t.rows, s.BN / t.width, s.BK / tileRows
	}
	return t.rows, t.cols, s.BN / tileRows, s.BK / t.width
}

// ragged reports whether a schedule's tiles reach beyond the matrix, along N and along K.
func (t *tiles) ragged(s Schedule) (n, k bool) {
	allN, allK, tileN, tileK := t.blocks(s)
	return allN%tileN != 0, allK%tileK != 0
}

// inside is the part of a launch's tiles that lies in the matrix.
func (t *tiles) inside(p *problem, s Schedule) float64 {
	_, _, n, k := t.blocks(s)
	return float64(t.rows*t.cols) / float64(s.tilesN(p)*n*s.chunks(p)*k)
}

// even reports whether the copies of all threads have a constant stride, in memory and in blocks.
func (t *tiles) even(s Schedule) bool {
	run, all := t.run(s), 16*s.threads()
	return all%t.bytes == 0 && (run%all == 0 || all%run == 0)
}

// fits returns an error unless warps convert whole blocks.
func (t *tiles) fits(s Schedule) error {
	if t.byK && s.warpN()%t.width != 0 {
		return refuse("blocks of %d columns for warps of %d", t.width, s.warpN())
	}
	return nil
}

// panelSpot is where 16 bytes of a tile lie beyond others: in memory, in units of 16 bytes, and in blocks along N and
// K.
type panelSpot struct{ at, n, k num }

// spot is where a unit of 16 bytes of a stage lies.
func (t *tiles) spot(g *gen, unit num) panelSpot {
	units := t.run(g.s) / 16
	row, col := g.div(unit, units), g.mod(unit, units)
	s := panelSpot{at: g.mad(row, t.pitch()/16, col), n: row, k: g.div(col, t.bytes/16)}
	if t.byK {
		s.n, s.k = s.k, s.n
	}
	return s
}

// beginTiles finds what the thread copies.
func (l *panelLoad) beginTiles(g *gen) {
	t, s := l.tiles, g.s
	l.first = g.mad(g.tileN, t.column(s)/16, g.mul(g.first, t.step(s)/16))
	l.first = g.mad(g.panel(), t.rows*t.cols*t.bytes/16, l.first)
	_, _, tileN, tileK := t.blocks(s)
	l.n = g.mul(g.tileN, tileN)
	at, k := l.first, g.mul(g.first, tileK)
	for unit := 0; unit < l.bytes/16; unit += s.threads() {
		if t.even(s) {
			l.spots = append(l.spots, t.spot(g, imm(unit)))
		} else {
			l.spots = append(l.spots, t.spot(g, g.add(g.tid, imm(unit))))
		}
	}
	if t.even(s) {
		own := t.spot(g, g.tid)
		at, l.n, k = g.add(at, own.at), g.add(l.n, own.n), g.add(k, own.k)
	}
	l.start, l.ptr = g.pointer(g.plan.b), g.Reg(ptx.B64)
	g.I("mad.wide.u32", l.ptr, g.register(at), ptx.Imm(16), l.start)
	if _, ragged := t.ragged(s); ragged {
		l.k = g.Reg(ptx.B32)
		g.I("mov.b32", l.k, k.operand())
	}
}

// source is where copy i of the thread reads, and how many bytes: none, and from the first tile, where that is
// outside of the matrix.
func (l *panelLoad) source(g *gen, i int) (src ptx.Addr, size ptx.Operand) {
	t, spot := l.tiles, l.spots[i]
	allN, allK, _, _ := t.blocks(g.s)
	below := func(first, more num, limit int) *ptx.Reg {
		if !more.isReg {
			limit, more = max(0, limit-more.c), imm(0)
		}
		p := g.compare("lt.u32", g.add(first, more), imm(limit))
		return &p
	}
	var in *ptx.Reg
	raggedN, raggedK := t.ragged(g.s)
	if raggedN {
		in = below(l.n, spot.n, allN)
	}
	if raggedK {
		in = g.both(in, below(inReg(l.k), spot.k, allK))
	}
	if in == nil && !spot.at.isReg {
		return ptx.At(l.ptr, 16*spot.at.c), ptx.Imm(16)
	}
	r := g.Reg(ptx.B64)
	if spot.at.isReg {
		g.I("mad.wide.u32", r, spot.at.reg, ptx.Imm(16), l.ptr)
	} else {
		g.I("add.s64", r, l.ptr, ptx.Imm(16*spot.at.c))
	}
	if in == nil {
		return ptx.At(r, 0), ptx.Imm(16)
	}
	bytes := g.Reg(ptx.B32)
	g.I("selp.b64", r, r, l.start, *in)
	g.I("selp.b32", bytes, ptx.Imm(16), ptx.Imm(0), *in)
	return ptx.At(r, 0), bytes
}

// moveOn makes the next chunk of K the thread's.
func (l *panelLoad) moveOn(g *gen) {
	g.I("add.s64", l.ptr, l.ptr, ptx.Imm(l.tiles.step(g.s)))
	if _, ragged := l.tiles.ragged(g.s); ragged {
		_, _, _, tileK := l.tiles.blocks(g.s)
		g.I("add.s32", l.k, l.k, ptx.Imm(tileK))
	}
}

// placeTiles says where the lane finds its part of the warp's first block.
func (c *mmaCore) placeTiles(g *gen, base int) {
	t, s, num := g.plan.tiles, g.s, &g.p.num
	_, _, tileN, tileK := t.blocks(s)
	perWarp := s.warpK(num)
	first := g.add(g.mul(c.kPart, perWarp/t.width), g.mul(g.div(c.wn, tileRows), tileK))
	if t.byK {
		first = g.add(g.mul(c.kPart, perWarp/tileRows*tileN), g.div(c.wn, t.width))
	}
	first = g.mad(first, t.bytes, imm(base))
	c.bBase = g.mad(g.lane, num.laneB(), first)
	if num.scaled() { // [column][n8 tile][k16]
		c.scales = g.add(g.mad(g.div(g.lane, 4), 8, imm(32*num.laneB())), first)
	}
}

// loadTiles reads the blocks of unit u of the chunk at a shared address: as B fragments, or where numbers are narrow
// as what becomes the fragments, with rows of k those of the transpose.
func (c *mmaCore) loadTiles(g *gen, at num, u int, o *operands) {
	t, s, num := g.plan.tiles, g.s, &g.p.num
	_, _, tileN, tileK := t.blocks(s)
	alongN, alongK, block := s.warpN()/tileRows, num.unit()/t.width, func(n, k int) int { return (n*tileK + k) * t.bytes }
	if t.byK {
		alongN, alongK, block = s.warpN()/t.width, num.unit()/tileRows, func(n, k int) int { return (k*tileN + n) * t.bytes }
	}
	from := g.register(g.add(at, c.bBase))
	o.b = make([][][]ptx.Reg, alongN)
	for k := range alongK {
		for n := range o.b {
			r, off := g.RegVec(ptx.B32, num.laneB()/4), block(n, u*alongK+k)
			switch {
			case num.b == num.mul && t.byK:
				g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r[0], r[2], r[1], r[3]), ptx.At(from, off))
			case num.b == num.mul:
				g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(from, off))
			case len(r) == 4:
				g.I("ld.shared.v4.b32", ptx.V(r...), ptx.At(from, off))
			default: // lanes have a stride of 3 words, so a load has no bank conflicts
				for w := range r {
					g.I("ld.shared.b32", r[w], ptx.At(from, off+4*w))
				}
			}
			o.b[n] = append(o.b[n], r)
			if num.scaled() {
				r := g.RegVec(ptx.B32, 2)
				g.I("ld.shared.v2.b32", ptx.V(r...), ptx.At(g.register(g.add(at, c.scales)), off))
				o.scales = append(o.scales, r) // [k][n]
			}
		}
	}
}

// transposed are the B fragments of n16 tile j for mma number m of the unit, where blocks lie by rows of k: those of
// the block, with each 8×8 matrix transposed.
func (t *operands) transposed(g *gen, j, m int) (lo, hi []ptx.Reg) {
	column := j * tileRows
	block, part := column/g.plan.tiles.width, column%g.plan.tiles.width/tileRows
	one := operands{b: [][][]ptx.Reg{{t.b[block][m]}}}
	if g.p.num.scaled() {
		one.scales = [][]ptx.Reg{t.scales[m*len(t.b)+block]}
	}
	for i, x := range g.p.num.convertB().unpack(&one, g, 0, part) {
		r := g.Reg(ptx.B32)
		g.I(transposeOp, r, x)
		if i%2 == 0 {
			lo = append(lo, r)
		} else {
			hi = append(hi, r)
		}
	}
	return lo, hi
}

// prefetchTiles is prefetch of chunks of tiles, of as many as there are beyond the first stages.
func (g *gen) prefetchTiles(chunks int, skip ptx.Ref) {
	t, s := g.plan.tiles, g.s
	allN, allK, tileN, tileK := t.blocks(s)
	raggedN, _ := t.ragged(s)
	// Blocks along K: in the last of several shares there may be fewer.
	before, most := s.Stages-1, chunks*tileK
	last := max(0, min(most, allK-((s.SplitK-1)*s.chunksPerSplit(g.p)+before)*tileK))
	limit := imm(most)
	switch {
	case s.SplitK == 1:
		limit = imm(last)
	case last < most:
		r, p := g.Reg(ptx.B32), g.compare("eq.u32", g.share, imm(s.SplitK-1))
		g.I("selp.b32", r, ptx.Imm(last), ptx.Imm(most), p)
		limit = inReg(r)
	}
	const line = 128
	first := g.add(g.w.first, imm(before*t.step(s)/16))
	at, ptr := g.Reg(ptx.B32), g.Reg(ptx.B64)
	// A row of blocks for every line of threads, or a line of all rows for every thread: how far each goes on, in the
	// unit of the limit and in bytes, and how many rows it takes at once.
	var on, bytes, rows int
	n := imm(0)
	if t.byK {
		lines := t.run(s) / line
		row, col := g.div(g.tid, lines), g.mod(g.tid, lines)
		g.I("mov.b32", at, row.operand())
		first = g.add(first, g.mad(row, t.pitch()/16, g.mul(col, line/16)))
		on = s.threads() / lines
		bytes, rows, n = on*t.pitch(), 1, g.div(g.mul(col, line), t.bytes)
	} else {
		g.I("mov.b32", at, g.mul(g.tid, line).operand())
		first = g.add(first, g.mul(g.tid, line/16))
		limit = g.mul(limit, t.bytes)
		on, bytes, rows = s.threads()*line, s.threads()*line, tileN
	}
	g.I("mad.wide.u32", ptr, g.register(first), ptx.Imm(16), g.w.start)
	n = g.mad(g.tileN, tileN, n)
	loop := g.NewLabel("prefetch")
	g.Place(loop)
	done := g.compare("ge.u32", inReg(at), limit)
	g.If(done, "bra", skip)
	for r := range rows {
		var in *ptx.Reg
		if raggedN {
			p := g.compare("lt.u32", n, imm(max(0, allN-r)))
			in = &p
		}
		g.Where(in, "prefetch.global.L2", ptx.At(ptr, r*t.pitch()))
	}
	g.I("add.s32", at, at, ptx.Imm(on))
	g.I("add.s64", ptr, ptr, ptx.Imm(bytes))
	g.I("bra", loop)
	g.Place(skip)
}
