package contraction

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// tiles are constant weights in 16 bits that several kernels read, whatever their schedules and in either direction: a matrix in
// blocks of 16×16, in rows of blocks. A block is four 8×8 matrices, (0–7, 0–7), (0–7, 8–15), (8–15, 0–7), (8–15, 8–15), each of
// eight rows of 16 bytes. Where its rows are n, ldmatrix makes a block the B fragments of two n8 tiles; where they are k, so
// does ldmatrix with .trans. What lies beyond the matrix is zero.
type tiles struct {
	data       []byte
	rows, cols int  // of blocks
	byK        bool // rows run along k and columns along n, for this reader
}

const (
	tileSide  = 16
	tileBytes = tileSide * tileSide * 2
)

// tileable reports whether a problem's weights can lie in tiles.
func (p *problem) tileable() bool {
	n := &p.num
	return p.attn == nil && p.b.src.data != nil && isHalf(n.mul) && n.a == n.mul && n.b == n.mul && n.round == 0 && n.terms == 1 && n.termsB == 1
}

// tilesOf lays weights out, a matrix for every z that they depend on.
func tilesOf(p *problem, byK bool) *tiles {
	rows, cols, r, c := p.b.col, p.b.row, p.n, p.k
	if byK {
		rows, cols, r, c = cols, rows, c, r
	}
	t := &tiles{rows: ceilDiv(r, tileSide), cols: ceilDiv(c, tileSide), byK: byK}
	row, col := offsets(rows, r, t.rows*tileSide), offsets(cols, c, t.cols*tileSide)
	bases, w := p.panels(), newWeights(p)
	t.data = make([]byte, len(bases)*t.rows*t.cols*tileBytes)
	at := 0
	for _, base := range bases {
		for i := 0; i < len(row); i += tileSide {
			for j := 0; j < len(col); j += tileSide {
				for m := range 4 {
					for x := range 8 {
						for y := range 8 {
							if r, c := row[i+m/2*8+x], col[j+m%2*8+y]; r >= 0 && c >= 0 {
								w.put(t.data[at:at+2], p.num.b, w.values, base+r+c)
							}
							at += 2
						}
					}
				}
			}
		}
	}
	return t
}

// digest is the same for weights of the same blocks.
func (t *tiles) digest() [sha256.Size]byte {
	h := sha256.New()
	h.Write(t.data)
	h.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(t.rows)), uint64(t.cols)))
	return [sha256.Size]byte(h.Sum(nil))
}

// Shared knows the weights that several kernels of a program read. They lie in memory once, in tiles: those of a layer are read by its
// product, by the gradient of its input, which is a product with their transpose, and by the norms of an adapter. Of nil every kernel
// packs its own.
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
			if err != nil || !p.tileable() {
				continue // Lower says why
			}
			w, own := s.find(p)
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

// find returns the shared weights that a problem reads, nil if they are not known, and how it reads them.
func (s *Shared) find(p *problem) (w *sharedWeights, own *tiles) {
	if own = s.found[p.weightsKey()]; own == nil {
		if own = tilesOf(p, false); s.all[own.digest()] == nil {
			if other := tilesOf(p, true); s.all[other.digest()] != nil {
				own = other
			}
		}
	}
	if w = s.all[own.digest()]; w != nil {
		own.data = w.tiles.data // once in memory here too
	}
	return w, own
}

// weightsKey tells weights and how they are read apart, as long as their data live.
func (p *problem) weightsKey() string {
	return fmt.Sprintf("%p %v %v %v %d %v", p.b.src.data, p.b.z, p.b.row, p.b.col, p.b.offset, p.num.b)
}

// tilesFor are the tiles of weights that other kernels read too, or nil.
func (s *Shared) tilesFor(p *problem) *tiles {
	if s == nil || !p.tileable() {
		return nil
	}
	w, own := s.find(p)
	if w == nil || w.readers < 2 {
		return nil
	}
	return own
}

// run is the number of bytes of a row of blocks in a stage, where its rows follow each other.
func (t *tiles) run(s Schedule) int {
	if t.byK {
		return s.BN / tileSide * tileBytes
	}
	return s.BK / tileSide * tileBytes
}

// pitch is the distance of rows of blocks in memory.
func (t *tiles) pitch() int { return t.cols * tileBytes }

// apart is how far apart bytes lie in memory that are so far apart in a stage: rows of blocks, or threads' copies, are multiples of
// the other.
func (t *tiles) apart(s Schedule, bytes int) int {
	run := t.run(s)
	return bytes/run*t.pitch() + bytes%run
}

// step is the distance of chunks of K in memory.
func (t *tiles) step(s Schedule) int {
	if t.byK {
		return s.BK / tileSide * t.pitch()
	}
	return t.run(s)
}

// column is the distance of tiles along N in memory.
func (t *tiles) column(s Schedule) int {
	if t.byK {
		return t.run(s)
	}
	return s.BN / tileSide * t.pitch()
}

// extents are the numbers of blocks along N and along K.
func (t *tiles) extents() (n, k int) {
	if t.byK {
		return t.cols, t.rows
	}
	return t.rows, t.cols
}

// ragged reports whether a schedule's tiles reach beyond the matrix, along N and along K.
func (t *tiles) ragged(s Schedule) (n, k bool) {
	n16, k16 := t.extents()
	return n16%(s.BN/tileSide) != 0, k16%(s.BK/tileSide) != 0
}

// inside is the part of a launch's tiles that lies in the matrix.
func (t *tiles) inside(p *problem, s Schedule) float64 {
	return float64(t.rows*t.cols*tileSide*tileSide) / float64(s.tilesN(p)*s.BN*s.chunks(p)*s.BK)
}

// fits returns an error unless the copies of a thread lie equally far apart in memory in all threads.
func (t *tiles) fits(s Schedule) error {
	if run, all := t.run(s), 16*s.threads(); run%all != 0 && all%run != 0 {
		return fmt.Errorf("rows of %d bytes of weights for %d threads", run, s.threads())
	}
	return nil
}

// blocks splits a place in a stage into blocks along N and K.
func (t *tiles) blocks(row, col num) (n, k num) {
	if t.byK {
		return col, row
	}
	return row, col
}

// beginTiles finds the thread's first 16 bytes.
func (l *panelLoad) beginTiles(g *gen) {
	t, s := l.tiles, g.s
	l.first = g.mad(g.tileN, t.column(s)/16, g.mul(g.first, t.step(s)/16))
	l.first = g.mad(g.panel(), t.rows*t.cols*tileBytes/16, l.first)
	row, col := g.div(g.tid, t.run(s)/16), g.mod(g.tid, t.run(s)/16)
	l.start, l.ptr = g.pointer(g.plan.b), g.Reg(ptx.B64)
	g.I("mad.wide.u32", l.ptr, g.register(g.add(l.first, g.mad(row, t.pitch()/16, col))), ptx.Imm(16), l.start)
	n, k := t.blocks(row, g.div(col, tileBytes/16))
	raggedN, raggedK := t.ragged(s)
	if raggedN {
		l.n = g.mad(g.tileN, s.BN/tileSide, n)
	}
	if raggedK {
		l.k = g.Reg(ptx.B32)
		g.I("mov.b32", l.k, g.mad(g.first, s.BK/tileSide, k).operand())
	}
}

// insides gives the predicate of a copy that reads the matrix, by its place in the tile; nil: it does in any case.
func (l *panelLoad) insides(g *gen) func(off int) *ptx.Reg {
	if l.tiles == nil {
		return func(int) *ptx.Reg { return nil }
	}
	t := l.tiles
	n16, k16 := t.extents()
	raggedN, raggedK := t.ragged(g.s)
	known := map[[2]int]*ptx.Reg{}
	below := func(axis int, at num, limit int) *ptx.Reg {
		key := [2]int{axis, limit}
		if known[key] == nil {
			p := g.compare("lt.u32", at, imm(max(0, limit)))
			known[key] = &p
		}
		return known[key]
	}
	return func(off int) (in *ptx.Reg) {
		n, k := t.blocks(imm(off/t.run(g.s)), imm(off%t.run(g.s)/tileBytes))
		if raggedN {
			in = below(0, l.n, n16-n.c)
		}
		if raggedK {
			in = g.both(in, below(1, inReg(l.k), k16-k.c))
		}
		return in
	}
}

// within is the address of a copy, and its size: nothing of the first tile where it lies outside of the matrix.
func (l *panelLoad) within(g *gen, at int, in ptx.Reg) (src ptx.Reg, size ptx.Operand) {
	src, bytes := g.Reg(ptx.B64), g.Reg(ptx.B32)
	g.I("add.s64", src, l.ptr, ptx.Imm(at))
	g.I("selp.b64", src, src, l.start, in)
	g.I("selp.b32", bytes, ptx.Imm(16), ptx.Imm(0), in)
	return src, bytes
}

// prefetchTiles is prefetch of chunks of tiles, as many as there are beyond the first stages.
func (g *gen) prefetchTiles(chunks int, skip ptx.Ref) {
	t, s := g.plan.tiles, g.s
	n16, k16 := t.extents()
	raggedN, _ := t.ragged(s)
	// Blocks along K: in the last of several shares there may be fewer.
	before := s.Stages - 1
	most := chunks * s.BK / tileSide
	last := max(0, min(most, k16-((s.SplitK-1)*s.chunksPerSplit(g.p)+before)*s.BK/tileSide))
	limit := imm(last)
	if s.SplitK > 1 && last < most {
		r, p := g.Reg(ptx.B32), g.compare("eq.u32", g.share, imm(s.SplitK-1))
		g.I("selp.b32", r, ptx.Imm(last), ptx.Imm(most), p)
		limit = inReg(r)
	} else if s.SplitK > 1 {
		limit = imm(most)
	}
	first := g.add(g.w.first, imm(before*t.step(s)/16))
	k, line := g.Reg(ptx.B32), g.Reg(ptx.B64)
	var step int // blocks along K that the threads together take
	var rows int // lines that a thread takes of them
	var n num    // of the first, along N
	if lines := t.run(s) / 128; t.byK {
		row, col := g.div(g.tid, lines), g.mod(g.tid, lines)
		g.I("mov.b32", k, row.operand())
		first = g.add(first, g.mad(row, t.pitch()/16, g.mul(col, 128/16)))
		step, rows, n = s.threads()/lines, 1, g.div(col, tileBytes/128)
	} else {
		g.I("mov.b32", k, g.div(g.tid, tileBytes/128).operand())
		first = g.add(first, g.mul(g.tid, 128/16))
		step, rows, n = s.threads()*128/tileBytes, s.BN/tileSide, imm(0)
	}
	g.I("mad.wide.u32", line, g.register(first), ptx.Imm(16), g.w.start)
	n = g.mad(g.tileN, s.BN/tileSide, n)
	loop := g.NewLabel("prefetch")
	g.Place(loop)
	done := g.compare("ge.u32", inReg(k), limit)
	g.If(done, "bra", skip)
	for r := range rows {
		var in *ptx.Reg
		if raggedN {
			p := g.compare("lt.u32", n, imm(max(0, n16-r)))
			in = &p
		}
		g.Where(in, "prefetch.global.L2", ptx.At(line, r*t.pitch()))
	}
	g.I("add.s32", k, k, ptx.Imm(step))
	along := step * tileBytes
	if t.byK {
		along = step * t.pitch()
	}
	g.I("add.s64", line, line, ptx.Imm(along))
	g.I("bra", loop)
	g.Place(skip)
}
