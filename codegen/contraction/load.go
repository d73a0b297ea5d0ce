package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// tileLoad brings a tile of a matrix in memory to a stage of shared memory, 16 bytes at a time where its strides and
// alignment allow it, zero where the tile reaches beyond the matrix or the image.
type tileLoad struct {
	op         *operand
	fixed      []layout.Mode // of the coordinate that a block keeps: m of A, n of B
	extent     int           // of that coordinate
	advance    []layout.Mode // of k
	k          int           // extent of k
	win        *window       // of A of a padded convolution
	rows, cols int           // of the tile
	kRows      bool          // rows run along k, columns along the fixed coordinate
	elem       int           // bytes of an element in shared memory
	gran       int           // elements a copy moves
	async      bool          // cp.async; else loads, conversion and st.shared
	swizzle    bool
	base       int  // of the tile in a stage
	chunk      int  // extent of the tile along k
	word       int  // bytes that a step of a thread fills at least; 0: 16
	pitch      int  // bytes of a row, where it is longer than its elements and not swizzled
	strided    bool // evenly strided rows may be copied as such

	ptr      ptx.Reg // the matrix of this block's z
	origin   num     // of the fixed coordinate
	steps    int     // copies a thread makes for a tile
	row, col []num   // of each of them, in elements of the tile
	dst      []num   // byte offset in the stage
	spots    map[place]spot
	even     *evenRows // how evenly strided rows are copied; nil: each by itself
	idle     *ptx.Reg  // set in threads that have a copy to make, where not all have
	rest     *ptx.Reg  // and where not all have a last one, in those that have
}

// spot is what a thread knows about one value of the fixed coordinate.
type spot struct {
	off    num
	inside *ptx.Reg // in the matrix; nil: always
	y, x   num      // of the first tap, for a padded convolution
}

// access decides how wide an operand is read: the widest of 16, 8 and 4 bytes that divides its run of neighbouring
// elements, all other strides and its alignment.
func access(o *operand, run []layout.Mode, rest [][]layout.Mode, align, elem int) (gran int, async bool) {
	size := o.dtype.Bits() / 8
	if size != elem {
		return 1, false
	}
	run = layout.Coalesce(run)
	for bytes := 16; bytes >= 4; bytes /= 2 {
		g := bytes / size
		if g == 0 || align%bytes != 0 || o.offset%g != 0 {
			continue
		}
		ok := g == 1 || layout.Run(run)%g == 0
		for i, m := range run {
			ok = ok && (i == len(run)-1 || m.Stride%g == 0)
		}
		for _, modes := range rest {
			for _, m := range modes {
				ok = ok && m.Stride%g == 0
			}
		}
		if ok {
			return g, true
		}
	}
	return 1, false
}

// perCopy is the number of elements that one step of a thread fills: a 16-byte chunk, or a word of 4, where elements
// are loaded singly.
func (l *tileLoad) perCopy() int {
	switch {
	case l.async:
		return l.gran
	case l.word > 0:
		return l.word / l.elem
	}
	return 16 / l.elem
}

// begin computes what does not change along K.
func (l *tileLoad) begin(g *gen) {
	threads := g.s.threads()
	per := l.perCopy()
	across := l.cols / per
	total := l.rows * across
	l.steps = ceilDiv(total, threads)
	if total < threads {
		p := g.compare("lt.u32", g.tid, imm(total))
		l.idle = &p
	} else if total%threads != 0 {
		p := g.compare("lt.u32", g.tid, imm(total%threads))
		l.rest = &p
	}
	sw := layout.NewSwizzle(l.cols * l.elem)
	if l.beginEven(g, sw) {
		return
	}
	l.spots = map[place]spot{}
	for i := 0; i < l.steps; i++ {
		var row, col num
		switch {
		case i == 0:
			row, col = g.div(g.tid, across), g.mul(g.mod(g.tid, across), per)
		case threads%across == 0:
			row, col = g.add(l.row[0], imm(i*threads/across)), l.col[0]
		default:
			at := g.add(g.tid, imm(i*threads))
			row, col = g.div(at, across), g.mul(g.mod(at, across), per)
		}
		l.row, l.col = append(l.row, row), append(l.col, col)
		var dst num
		switch {
		case !l.swizzle:
			dst = g.add(g.mad(row, max(l.pitch, l.cols*l.elem), g.mul(col, l.elem)), imm(l.base))
		case i > 0 && threads%across == 0 && threads/across%8 == 0:
			dst = g.add(l.dst[0], imm(i*threads/across*l.cols*l.elem))
		default:
			b := g.mul(col, l.elem)
			dst = g.add(g.add(g.swizzled(sw, row, g.div(b, 16)), g.mod(b, 16)), imm(l.base))
		}
		l.dst = append(l.dst, dst)
		for e := 0; e < l.singles(); e++ {
			l.spot(g, l.fixedAt(i, e))
		}
	}
}

// singles is the number of elements that a step loads one by one; 1 where a copy moves them together.
func (l *tileLoad) singles() int { return l.perCopy() / l.gran }

// fixedAt is the fixed coordinate, within the tile, of element e of step i; advanceAt that along k.
func (l *tileLoad) fixedAt(i, e int) place {
	if l.kRows {
		return place{l.col[i], e}
	}
	return place{l.row[i], 0}
}

func (l *tileLoad) advanceAt(i, e int) place {
	if l.kRows {
		return place{l.row[i], 0}
	}
	return place{l.col[i], e}
}

// place is a coordinate: a number and a constant.
type place struct {
	at  num
	add int
}

func (l *tileLoad) spot(g *gen, at place) spot {
	if s, ok := l.spots[at]; ok {
		return s
	}
	x := g.add(g.add(l.origin, at.at), imm(at.add))
	var s spot
	tile := l.rows
	if l.kRows {
		tile = l.cols
	}
	if l.extent%tile != 0 {
		p := g.compare("lt.u32", x, imm(l.extent))
		s.inside = &p
	}
	if l.win == nil {
		s.off = g.offset(l.fixed, x)
	} else {
		var d []num
		s.off, d = g.digits(l.fixed, x)
		oy, ox := d[l.win.oy], d[l.win.oy+1]
		s.y = g.mad(oy, l.win.sh, imm(-l.win.padTop))
		s.x = g.mad(ox, l.win.sw, imm(-l.win.padLeft))
	}
	l.spots[at] = s
	return s
}

// reach is what a thread knows about one value of k.
type reach struct {
	off    num
	inside *ptx.Reg
	y, x   num
}

func (l *tileLoad) reachAt(g *gen, k num) reach {
	var r reach
	if l.k%l.chunk != 0 {
		p := g.compare("lt.u32", k, imm(l.k))
		r.inside = &p
	}
	if l.win == nil {
		r.off = g.offset(l.advance, k)
		return r
	}
	var d []num
	r.off, d = g.digits(l.advance, k)
	r.y, r.x = g.mul(d[0], l.win.dh), g.mul(d[1], l.win.dw)
	return r
}

// issue emits the copies of the chunk that begins at k into the stage at a byte offset.
func (l *tileLoad) issue(g *gen, k, stage num) {
	if l.even != nil {
		l.issueEven(g, k, stage)
		return
	}
	reaches := map[place]reach{}
	for i := 0; i < l.steps; i++ {
		dst := g.register(g.add(g.add(g.smem, stage), l.dst[i]))
		var vals []ptx.Reg
		for e := 0; e < l.singles(); e++ {
			at := l.advanceAt(i, e)
			r, ok := reaches[at]
			if !ok {
				r = l.reachAt(g, g.add(g.add(k, at.at), imm(at.add)))
				reaches[at] = r
			}
			s := l.spot(g, l.fixedAt(i, e))
			inside := l.inside(g, s, r)
			off := g.add(s.off, r.off)
			if l.async {
				l.copy(g, dst, off, inside, l.mine(i))
			} else {
				vals = append(vals, l.load(g, off, g.both(inside, l.mine(i))))
			}
		}
		if !l.async {
			l.store(g, dst, vals, l.mine(i))
		}
	}
}

// mine is the predicate of threads that have step i; nil: all have.
func (l *tileLoad) mine(i int) *ptx.Reg {
	if i == l.steps-1 && l.rest != nil {
		return l.rest
	}
	return l.idle
}

// inside is the predicate of a valid element; nil: always valid.
func (l *tileLoad) inside(g *gen, s spot, r reach) *ptx.Reg {
	in := g.both(s.inside, r.inside)
	if l.win != nil {
		y := g.compare("lt.u32", g.add(s.y, r.y), imm(l.win.h))
		x := g.compare("lt.u32", g.add(s.x, r.x), imm(l.win.w))
		in = g.both(in, g.both(&y, &x))
	}
	return in
}

func (l *tileLoad) copy(g *gen, dst ptx.Reg, off num, inside, mine *ptx.Reg) {
	var size ptx.Operand = ptx.Imm(l.gran * l.elem)
	if inside != nil {
		// Even where nothing is read the address stays inside the operand's allocation.
		o := g.Reg(ptx.B32)
		g.I("selp.b32", o, off.operand(), ptx.Imm(0), *inside)
		off = inReg(o)
		r := g.Reg(ptx.B32)
		g.I("selp.b32", r, size, ptx.Imm(0), *inside)
		size = r
	}
	l.copyTo(g, ptx.At(dst, 0), ptx.At(g.address(l.ptr, off, l.elem), 0), size, mine)
}

// copyTo copies from an address, of what it fills so many bytes.
func (l *tileLoad) copyTo(g *gen, dst, src ptx.Addr, size ptx.Operand, mine *ptx.Reg) {
	bytes := l.gran * l.elem
	op := "cp.async.ca.shared.global"
	if bytes == 16 {
		op = "cp.async.cg.shared.global"
	}
	g.Where(mine, op, dst, src, ptx.Imm(bytes), size)
}

// load reads one element, as f32 where shared memory holds that.
func (l *tileLoad) load(g *gen, off num, inside *ptx.Reg) ptx.Reg {
	src := g.address(l.ptr, off, l.op.dtype.Bits()/8)
	f, d := g.Reg(ptx.F32), l.op.dtype
	if d == ir.Float32 {
		g.I("mov.f32", f, ptx.FImm(0))
		g.Where(inside, "ld.global.f32", f, ptx.At(src, 0))
		return f
	}
	h, op := g.Reg(ptx.B16), "ld.global.b16"
	if d == ir.Float8E4M3FN {
		op = "ld.global.u8"
	}
	g.I("mov.b16", h, ptx.Imm(0))
	g.Where(inside, op, h, ptx.At(src, 0))
	if l.elem <= 2 {
		return h
	}
	g.promote(f, h, d)
	return f
}

// store writes what a step has loaded.
func (l *tileLoad) store(g *gen, dst ptx.Reg, vals []ptx.Reg, mine *ptx.Reg) {
	words := make(ptx.Vec, l.perCopy()*l.elem/4)
	for i := range words {
		switch l.elem {
		case 4:
			words[i] = vals[i]
		case 2:
			words[i] = g.joinHalves(vals[2*i], vals[2*i+1])
		default:
			words[i] = g.packBytes(vals[4*i : 4*i+4])
		}
	}
	op, from := "st.shared.v4.b32", ptx.Operand(words)
	if len(words) == 1 {
		op, from = "st.shared.b32", words[0]
	}
	g.Where(mine, op, ptx.At(dst, 0), from)
}

// packBytes is a word of the low bytes of four registers.
func (g *gen) packBytes(v []ptx.Reg) ptx.Reg {
	var w [4]ptx.Reg
	for i, x := range v {
		w[i] = x
		if x.Class == ptx.B16 {
			w[i] = g.Reg(ptx.B32)
			g.I("cvt.u32.u16", w[i], x)
		}
	}
	lo, hi, r := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("prmt.b32", lo, w[0], w[1], ptx.Imm(0x0040))
	g.I("prmt.b32", hi, w[2], w[3], ptx.Imm(0x0040))
	g.I("prmt.b32", r, lo, hi, ptx.Imm(0x5410))
	return r
}

// panelLoad brings packed weights to shared memory: a linear copy, or of tiles one from each row of blocks.
type panelLoad struct {
	base  int     // of the tile in a stage
	bytes int     // of a tile
	ptr   ptx.Reg // this thread's first 16 bytes of the block's next chunk
	idle  *ptx.Reg

	policy *ptx.Reg // of the cache: they leave it first; nil: as any other

	tiles *tiles
	start ptx.Reg     // of all tiles
	first num         // of the block's first chunk, in 16 bytes
	n     num         // blocks of ptr along N
	k     ptx.Reg     // and along K, where tiles reach beyond the matrix there
	spots []panelSpot // of the thread's copies, beyond ptr
}

func (l *panelLoad) begin(g *gen) {
	if g.hints.ReadOnce {
		policy := g.Reg(ptx.B64)
		g.I("createpolicy.fractional.L2::evict_first.b64", policy, ptx.FImm(1))
		l.policy = &policy
	}
	if l.tiles != nil {
		l.beginTiles(g)
	} else {
		panel := g.mad(g.panel(), g.s.tilesN(g.p), g.tileN)
		base := g.pointer(g.plan.b)
		off, ptr := g.Reg(ptx.B64), g.Reg(ptx.B64)
		g.I("mul.wide.u32", off, g.register(g.mad(panel, g.s.chunks(g.p), g.first)), ptx.Imm(l.bytes))
		g.I("add.s64", ptr, base, off)
		g.I("mad.wide.u32", ptr, g.register(g.tid), ptx.Imm(16), ptr)
		l.ptr = ptr
	}
	if l.bytes/16 < g.s.threads() {
		p := g.compare("lt.u32", g.tid, imm(l.bytes/16))
		l.idle = &p
	}
}

// issue copies the chunk that l.ptr points at and moves on.
func (l *panelLoad) issue(g *gen, stage num) {
	threads := g.s.threads() * 16
	dst := g.register(g.add(g.add(g.smem, stage), g.mad(g.tid, 16, imm(l.base))))
	for i, off := 0, 0; off < l.bytes; i, off = i+1, off+threads {
		mine := l.idle
		if mine == nil && off+threads > l.bytes {
			p := g.compare("lt.u32", g.tid, imm((l.bytes-off)/16))
			mine = &p
		}
		src, size := ptx.At(l.ptr, off), ptx.Operand(ptx.Imm(16))
		if l.tiles != nil {
			src, size = l.source(g, i)
		}
		if l.policy != nil {
			g.Where(mine, "cp.async.cg.shared.global.L2::cache_hint", ptx.At(dst, off), src, ptx.Imm(16), size, *l.policy)
		} else {
			g.Where(mine, "cp.async.cg.shared.global", ptx.At(dst, off), src, ptx.Imm(16), size)
		}
	}
	if l.tiles != nil {
		l.moveOn(g)
		return
	}
	g.I("add.s64", l.ptr, l.ptr, ptx.Imm(l.bytes))
}
