package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
)

// plan holds what is decided before PTX is written: parameters, and how each operand is read.
type plan struct {
	*lower.Lowering
	ctx          *kernel.Context
	a, b         int // parameters
	outs         []int
	sums         int
	work, ticket int // of split-K

	packed bool   // B is constant and packed
	tiles  *tiles // as several kernels read it; nil: as this one alone does

	scales    int // parameter of A's scales
	outScales int // and of the output's
	perUnit   int // elements of A in a unit of its memory

	loadA, loadB, loadScales tileLoad

	addedA, addedB, factors             int // of a second product
	loadAddedA, loadAddedB, loadFactors tileLoad

	epilogue *epilogue
}

// start is a plan without operands.
func start(p *problem, ctx *kernel.Context) *plan {
	l := lower.New(p.region, ctx)
	if p.producer != nil {
		l = p.producer.lower(p, ctx).Further(p.region)
	}
	return &plan{Lowering: l, ctx: ctx, packed: p.b.src.data != nil, perUnit: p.num.perUnit()}
}

// newPlan decides what does not depend on the schedule: parameters, the width of every access, the epilogue.
func newPlan(p *problem, ctx *kernel.Context) (_ *plan, err error) {
	defer lower.Catch(&err)
	pl := start(p, ctx)
	if err := pl.open(p); err != nil {
		return nil, err
	}
	return pl, pl.close(p)
}

// open adds the operands of the product.
func (pl *plan) open(p *problem) error {
	ctx, elem := pl.ctx, max(1, bytesFor(p.num.a, 1))
	if p.producer == nil {
		pl.a = pl.Input(p.a.value)
		pl.loadA = pl.rowsOfA(p, elem)
	}

	if o := p.scalesA; o != nil {
		if !pl.loadA.async {
			return fmt.Errorf("%s is not aligned", p.a.value.Name)
		}
		pl.scales = pl.Input(o.value)
		pl.loadScales = tileLoad{op: o, fixed: o.row, extent: p.m, advance: o.col, k: p.k / blockSize, win: p.conv, elem: 1, word: 4, gran: 1}
		if wordsOf(o, ctx.AlignOf(o.value)) {
			pl.loadScales.gran, pl.loadScales.async = 4, true
		}
	}
	if pl.packed {
		pl.b = pl.Table(nil) // its bytes are made last
	} else {
		pl.b = pl.Input(p.b.value)
		pl.loadB = pl.rowsOfB(p, &p.b, p.k)
	}
	if p.added != nil {
		pl.loadAdded(p)
	}
	return nil
}

// rowsOfA reads A by rows of m, or by rows of k where its neighbours along m are nearer.
func (pl *plan) rowsOfA(p *problem, elem int) tileLoad {
	mk := tileLoad{op: &p.a, fixed: p.a.row, extent: p.m, advance: p.a.col, k: p.k / pl.perUnit, win: p.conv, elem: elem, swizzle: true}
	km, align := mk, pl.ctx.AlignOf(p.a.value)
	along, across, outer := p.a.col, p.a.row, p.a.z
	if p.conv != nil { // only channels and images are neighbours: a tap may lie outside
		along, across = p.a.col[2:], p.a.row[p.conv.oy+2:]
		outer = append(slices.Clone(outer), p.a.col[:2], p.a.row[:p.conv.oy+2])
	}
	mk.gran, mk.async = access(&p.a, along, append(slices.Clone(outer), across), align, elem)
	km.gran, km.async = access(&p.a, across, append(slices.Clone(outer), along), align, elem)
	if km.gran <= mk.gran || p.num.a != p.num.mul || p.num.a.Bits() < 16 { // ldmatrix transposes 16-bit elements only
		return mk
	}
	km.kRows, km.swizzle = true, p.num.tensor()
	return km
}

// rowsOfB reads a variable B by rows of k or, where tensor cores multiply and its neighbours along k are nearer, of n.
func (pl *plan) rowsOfB(p *problem, o *operand, k int) tileLoad {
	elem, align := max(1, bytesFor(p.num.a, 1)), pl.ctx.AlignOf(o.value)
	kn := tileLoad{op: o, fixed: o.col, extent: p.n, advance: o.row, k: k, kRows: true, elem: elem, swizzle: p.num.tensor()}
	kn.gran, kn.async = access(o, o.col, append(slices.Clone(o.z), o.row), align, elem)
	nk := tileLoad{op: o, fixed: o.col, extent: p.n, advance: o.row, k: k, elem: elem, swizzle: true}
	nk.gran, nk.async = access(o, o.row, append(slices.Clone(o.z), o.col), align, elem)
	if p.num.tensor() && nk.gran > kn.gran || p.num.b.Bits() == 8 { // ldmatrix transposes 16-bit elements only
		return nk
	}
	return kn
}

// wordsOf reports whether an operand of bytes can be copied in aligned words of 4, the scales of one mma.
func wordsOf(o *operand, align int) bool {
	ok := align%4 == 0 && o.offset%4 == 0
	for _, modes := range append(slices.Clone(o.z), o.row, o.col) {
		for _, m := range modes {
			ok = ok && (m.Stride%4 == 0 || m.Stride == 1 && m.Size%4 == 0)
		}
	}
	return ok
}

// fits returns an error if the schedule's threads cannot load its tiles: each makes as many copies, or some none and
// the others one.
func (pl *plan) fits(s Schedule) error {
	share := func(l *tileLoad, rows, cols int) error {
		across := cols / l.perCopy()
		switch total := rows * across; {
		case across > s.threads():
			return refuse("%d copies a row for %d threads", across, s.threads())
		case total > s.threads() && total%s.threads() != 0:
			return refuse("%d copies for %d threads", total, s.threads())
		}
		return nil
	}
	if a := &pl.loadA; a.op != nil {
		rows, cols := s.BM, s.BK/pl.perUnit
		if a.kRows {
			rows, cols = s.BK, s.BM
		}
		if err := share(a, rows, cols); err != nil {
			return err
		}
	}
	if b := &pl.loadB; !pl.packed {
		rows, cols := s.BN, s.BK
		if b.kRows {
			rows, cols = cols, rows
		}
		if err := share(b, rows, cols); err != nil {
			return err
		}
	}
	if pl.tiles != nil {
		return pl.tiles.fits(s)
	}
	return nil
}

// at is the plan for a schedule.
func (pl *plan) at(p *problem, s Schedule) *plan {
	c, low := *pl, *pl.Lowering
	c.Lowering = &low
	c.Operands = slices.Clone(pl.Operands)
	c.loadA.rows, c.loadA.cols, c.loadA.chunk = s.BM, s.BK/c.perUnit, s.BK/c.perUnit
	if c.loadA.kRows {
		c.loadA.rows, c.loadA.cols = s.BK, s.BM
	}
	c.loadScales.rows, c.loadScales.cols, c.loadScales.chunk = s.BM, s.BK/blockSize, s.BK/blockSize
	c.loadScales.base = s.stageA(p) + p.num.tileB(s.BN, s.BK)
	b := &c.loadB
	b.base, b.chunk = s.stageA(p), s.BK
	b.rows, b.cols = s.BN, s.BK
	if b.kRows {
		b.rows, b.cols = s.BK, s.BN
	}
	if p.added != nil {
		c.addedAt(p, s)
	}
	switch {
	case c.tiles != nil:
		c.Operands[c.b].Const = c.tiles.data
	case c.packed:
		c.Operands[c.b].Const = pack(p, s, c.ctx.Unpacked)
	}
	if p.producer != nil {
		p.producer.tables(&c, s)
	}
	if s.SplitK > 1 {
		c.work = len(c.Operands)
		c.ticket = c.work + 1
		c.Operands = append(c.Operands,
			kernel.Operand{Workspace: s.blocks(p) * s.BM * s.BN * 4},
			kernel.Operand{Counter: s.tiles(p) * 4})
	}
	return &c
}

// close adds the epilogue's operands and the output.
func (pl *plan) close(p *problem) error {
	var err error
	if pl.epilogue, err = newEpilogue(p, pl.Lowering, pl.ctx, p.group(), ""); err != nil {
		return err
	}
	for i := range p.region.Region.Body.Outputs {
		if p.sums != nil && i == p.sums.result {
			pl.sums = pl.Output(i)
		} else if len(pl.outs) < len(p.outs) {
			pl.outs = append(pl.outs, pl.Output(i))
		}
	}
	if p.quantise != nil {
		pl.outScales = pl.Output(1)
	}
	return nil
}
