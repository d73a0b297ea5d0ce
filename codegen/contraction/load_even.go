package contraction

import (
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// evenRows is what a thread knows about its copies of a tile with evenly strided rows: each copy is a fixed number of
// rows after the previous one, in memory and in shared memory, so one address serves many.
type evenRows struct {
	stride int      // elements between rows
	each   int      // rows between copies
	row    num      // of the first copy, in the tile
	off    num      // and its element of the matrix, at row 0 of the operand
	dst    []num    // byte offsets in the stage of the first copies, until the swizzle repeats
	in     *ptx.Reg // the thread's columns are some of the matrix; nil: those of all threads are
}

const swizzleRows = 8 // after which a swizzle repeats

// beginEven is begin for evenly strided rows; it reports whether they are.
func (l *tileLoad) beginEven(g *gen, sw layout.Swizzle) bool {
	across, threads := l.cols/l.perCopy(), g.s.threads()
	rows, cols, columns := l.fixed, l.advance, l.k
	if l.kRows {
		rows, cols, columns = l.advance, l.fixed, l.extent
	}
	rows = layout.Coalesce(rows)
	if !l.strided || !l.async || l.win != nil || len(rows) > 1 || threads%across != 0 {
		return false
	}
	e := &evenRows{each: threads / across, row: g.div(g.tid, across)}
	if l.swizzle && e.each%swizzleRows != 0 && swizzleRows%e.each != 0 {
		return false
	}
	if len(rows) == 1 {
		e.stride = rows[0].Stride
	}
	col := g.mul(g.mod(g.tid, across), l.perCopy())
	e.off = g.mad(e.row, e.stride, g.offset(cols, col))
	if columns < l.cols {
		p := g.compare("lt.u32", col, imm(columns))
		e.in = &p
	}
	b := g.mul(col, l.elem)
	switch {
	case !l.swizzle:
		e.dst = []num{g.add(g.mad(e.row, l.rowBytes(), b), imm(l.base))}
	default:
		for i := range max(1, swizzleRows/e.each) {
			row := g.add(e.row, imm(i*e.each))
			e.dst = append(e.dst, g.add(g.add(g.swizzled(sw, row, g.div(b, 16)), g.mod(b, 16)), imm(l.base)))
		}
	}
	l.even = e
	return true
}

// rowBytes is the distance of rows in shared memory.
func (l *tileLoad) rowBytes() int { return max(l.pitch, l.cols*l.elem) }

// issueEven is issue for evenly strided rows.
func (l *tileLoad) issueEven(g *gen, k, stage num) {
	e, base := l.even, g.add(g.smem, stage)
	first, extent, tile := g.add(l.origin, e.row), l.extent, l.rows
	from, moved := l.origin, g.offset(l.advance, k)
	if l.kRows {
		first, extent, tile = g.add(k, e.row), l.k, l.chunk
		from, moved = k, imm(0)
	}
	src := g.address(l.ptr, g.add(g.mad(from, e.stride, e.off), moved), l.elem)
	var dst []ptx.Reg
	for _, d := range e.dst {
		dst = append(dst, g.register(g.add(base, d)))
	}
	for i := range l.steps {
		row := i * e.each
		in, never := e.in, false
		switch {
		case extent%tile == 0, !from.isReg && from.c+min(row+e.each, l.rows) <= extent:
		case row >= extent:
			never = true
		default:
			p := g.compare("lt.u32", first, imm(extent-row))
			in = g.both(in, &p)
		}
		at, size := ptx.At(src, row*e.stride*l.elem), ptx.Operand(ptx.Imm(l.gran*l.elem))
		switch {
		case never:
			at, size = ptx.At(l.ptr, 0), ptx.Imm(0)
		case in != nil: // even where nothing is read the address stays inside the operand's allocation
			r, n := g.Reg(ptx.B64), g.Reg(ptx.B32)
			g.I("add.s64", r, src, ptx.Imm(row*e.stride*l.elem))
			g.I("selp.b64", r, r, l.ptr, *in)
			g.I("selp.b32", n, size, ptx.Imm(0), *in)
			at, size = ptx.At(r, 0), n
		}
		to := ptx.At(dst[i%len(dst)], (i-i%len(dst))*e.each*l.rowBytes())
		l.copyTo(g, to, at, size, l.mine(i))
	}
}
