package loop

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

// schedule says which threads compute which elements.
type schedule struct {
	blocks, threads int
	vector          int // neighbouring elements a thread computes and stores together

	team     int  // threads that share a row; 1: flat
	adjacent bool // the team's threads are neighbours (row), else its teams are (column)
	teams    int  // in a block
	rows     int  // in all
	inRow    []bool
	columns  int // elements of a row
}

func (s *schedule) String() string {
	switch {
	case s.team == 1:
		return fmt.Sprintf("flat x%d", s.vector)
	case s.adjacent:
		return fmt.Sprintf("row %d threads x%d, %d rows a block", s.team, s.vector, s.teams)
	}
	return fmt.Sprintf("column %d threads x%d, %d columns a block", s.team, s.vector, s.teams)
}

// reduction is what the cost of a schedule depends on.
type reduction struct {
	e      *expr.Expr
	trips  float64 // terms, with the reductions outside, times the size of a term
	rowish bool    // neighbouring terms are neighbours in memory
	colish bool    // neighbouring outputs read neighbours in memory
}

func (p *problem) reductions() []reduction {
	var out []reduction
	seen := map[*expr.Expr]bool{}
	var walk func(e *expr.Expr, outer float64)
	walk = func(e *expr.Expr, outer float64) {
		if seen[e] {
			return
		}
		seen[e] = true
		if e.Op == expr.OpReduce {
			trips := outer
			for _, v := range e.Vars {
				trips *= float64(v.Hi + 1)
			}
			r := reduction{e: e, trips: trips * max(1, float64(size(e.Args[0]))/6)}
			r.rowish, r.colish = p.strides(e)
			out = append(out, r)
			walk(e.Args[0], trips)
			return
		}
		for _, a := range e.Args {
			walk(a, outer)
		}
	}
	for _, o := range p.outs {
		walk(o.value, 1)
	}
	return out
}

// size counts the operations of a term.
func size(e *expr.Expr) int {
	seen := map[*expr.Expr]bool{}
	var walk func(e *expr.Expr) int
	walk = func(e *expr.Expr) int {
		if seen[e] || e.Op == expr.OpReduce || e.Op == expr.OpConst || e.Op == expr.OpVar {
			return 0
		}
		seen[e] = true
		n := 1
		for _, a := range e.Args {
			n += walk(a)
		}
		return n
	}
	return walk(e)
}

// strides looks at how the loads under a reduction move with its innermost variable and with the last output dimension.
func (p *problem) strides(r *expr.Expr) (rowish, colish bool) {
	inner := r.Vars[len(r.Vars)-1]
	var last *expr.Expr
	for _, v := range p.index {
		if v.Op == expr.OpVar {
			last = v
		}
	}
	seen := map[*expr.Expr]bool{}
	var walk func(e *expr.Expr)
	walk = func(e *expr.Expr) {
		if seen[e] {
			return
		}
		seen[e] = true
		if e.Op == expr.OpLoad && e.DependsOnAny(r.Vars...) {
			rowish = rowish || unitStride(e.Args[0], inner)
			colish = colish || last != nil && unitStride(e.Args[0], last)
		}
		for _, a := range e.Args {
			walk(a)
		}
	}
	walk(r.Args[0])
	return rowish, colish
}

func unitStride(index, v *expr.Expr) bool {
	if index == v {
		return true
	}
	if index.Op != expr.OpAffine {
		return false
	}
	for i, a := range index.Args {
		if a == v && index.Coef[i] == 1 {
			return true
		}
		// A flattened index moves with its last component.
		if index.Coef[i] == 1 && a.Op == expr.OpFloorMod && unitStride(a.Args[0], v) {
			return true
		}
	}
	return false
}

// choose picks the cheapest schedule by a rough count of what each thread does.
func (p *problem) choose() *schedule {
	best := p.flat()
	if p.outs[0].sub > 1 {
		return best
	}
	rs := p.reductions()
	if len(rs) == 0 {
		return best
	}
	cost := p.flatCost(best, rs)
	if one := p.flatVector(1); p.blocks == nil && p.flatCost(one, rs) < cost {
		best, cost = one, p.flatCost(one, rs)
	}
	for _, r := range rs {
		in := make([]bool, len(p.index))
		for i, v := range p.index {
			in[i] = v.Op == expr.OpVar && r.e.DependsOn(v)
		}
		for _, team := range []int{8, 16, 32, 64, 128, 256, 512} {
			for _, adjacent := range []bool{true, false} {
				s := p.rowSchedule(in, team, adjacent)
				if s == nil || s.shared(rs) > maxShared {
					continue
				}
				if c := p.rowCost(s, rs); c < cost {
					best, cost = s, c
				}
			}
		}
	}
	return best
}

// maxShared is what a block has of shared memory without asking for more.
const maxShared = 48 << 10

// shared is what the reductions of a column schedule at most need: a place a thread for every output.
func (s *schedule) shared(rs []reduction) int {
	if s.adjacent {
		return 0
	}
	bytes := 0
	for _, r := range rs {
		size := 4
		if r.e.Type == expr.F64 || r.e.Type == expr.S64 {
			size = 8
		}
		bytes += s.threads * s.vector * size
	}
	return bytes
}

// waves is how often a thread's work repeats because the device holds no more threads.
func (p *problem) waves(threads float64) float64 {
	t := p.ctx.Target
	return max(1, threads/float64(t.SMs*768))
}

func (p *problem) flatCost(s *schedule, rs []reduction) float64 {
	work := 8.0
	for _, r := range rs {
		w := r.trips * float64(s.vector)
		if r.rowish && !r.colish {
			w *= 4 // lanes of a warp read far apart
		}
		work += w
	}
	return work * p.waves(float64(p.elements/s.vector))
}

func (p *problem) rowCost(s *schedule, rs []reduction) float64 {
	// In units of an element's work, about four cycles: shuffles; a barrier and reading what the warps (or the rows of the
	// block) have left in shared memory.
	combine := 6 * math.Log2(float64(min(s.team, 32)))
	switch {
	case !s.adjacent:
		combine = 25 + float64(s.team)
	case s.team > 32:
		combine += 25 + float64(s.team)/32
	}
	work := 24.0
	share := func(n float64) float64 { return math.Ceil(n / float64(s.team)) } // of a thread
	if p.blocks != nil && s.adjacent {
		share = func(n float64) float64 {
			return ir.BlockSize * math.Ceil(n/ir.BlockSize/float64(s.team))
		}
	}
	each := share(float64(s.columns))
	for _, r := range rs {
		depends := false
		for i, v := range p.index {
			depends = depends || !s.inRow[i] && v.Op == expr.OpVar && r.e.DependsOn(v)
		}
		if depends {
			w := r.trips * each
			if r.rowish && !r.colish {
				w *= 4
			}
			work += w
			continue
		}
		w := share(r.trips) * float64(s.vectorOfColumns())
		if s.adjacent && !r.rowish && r.colish || !s.adjacent && r.rowish && !r.colish {
			w *= 4
		}
		work += w + combine
	}
	work += each
	return work * p.waves(float64(s.rows)/float64(s.vectorOfColumns())*float64(s.team))
}

// vectorOfColumns is the vector width where it runs across rows.
func (s *schedule) vectorOfColumns() int {
	if s.adjacent {
		return 1
	}
	return s.vector
}

// flat computes elements in order, as many a thread as 16 bytes hold where the last dimension allows and enough threads
// remain.
func (p *problem) flat() *schedule {
	if sub := p.outs[0].sub; sub > 1 {
		return p.flatVector(sub)
	}
	if p.blocks != nil {
		return p.flatVector(ir.BlockSize)
	}
	size := 1
	for _, o := range p.outs {
		size = max(size, o.dtype.Bits()/8)
	}
	widest := 8
	if p.outs[0].dtype == ir.Float8E4M3FN {
		widest = 16
	}
	for v := min(16/size, widest); v > 1; v /= 2 {
		if p.divides(v) && (v == 2 || p.elements/v >= p.ctx.Target.SMs*64) {
			return p.flatVector(v)
		}
	}
	return p.flatVector(1)
}

// flatVector is the flat schedule of a given width.
func (p *problem) flatVector(vector int) *schedule {
	s := &schedule{team: 1, threads: 256, vector: vector}
	n := (p.elements + s.vector - 1) / s.vector
	if n < p.ctx.Target.SMs*256 {
		s.threads = 128
	}
	if n < p.ctx.Target.SMs*64 {
		s.threads = 64
	}
	s.blocks = (n + s.threads - 1) / s.threads
	return s
}

// divides reports whether vectors of v elements stay within the last dimension, or whether no index depends on dimensions.
func (p *problem) divides(v int) bool {
	if p.elements%v != 0 {
		return false
	}
	if last := p.lastDim(); last < 0 || p.shape[last]%v == 0 {
		return true
	}
	t := p.b.Index(fmt.Sprintf("flat.probe%d", v), p.elements/v)
	with := p.substitution(p.b.Scale(t, int64(v)))
	for _, o := range p.outs {
		if divided(p.b.Subst(o.value, with, nil)) {
			return false
		}
	}
	return true
}

func divided(e *expr.Expr) bool {
	seen := map[*expr.Expr]bool{}
	var walk func(e *expr.Expr) bool
	walk = func(e *expr.Expr) bool {
		if seen[e] {
			return false
		}
		seen[e] = true
		if e.Op == expr.OpFloorDiv || e.Op == expr.OpFloorMod {
			return true
		}
		for _, a := range e.Args {
			if walk(a) {
				return true
			}
		}
		return false
	}
	return walk(e)
}

func (p *problem) lastDim() int {
	for i := len(p.shape) - 1; i >= 0; i-- {
		if p.shape[i] > 1 {
			return i
		}
	}
	return -1
}

// substitution replaces the output index by that of element number e.
func (p *problem) substitution(e *expr.Expr) map[*expr.Expr]*expr.Expr {
	with := map[*expr.Expr]*expr.Expr{}
	for i, x := range p.b.Unravel(e, p.shape) {
		if p.index[i].Op == expr.OpVar {
			with[p.index[i]] = x
		}
	}
	return with
}

// rowSchedule makes a row of the dimensions that are not marked; nil where it makes no sense.
func (p *problem) rowSchedule(inRow []bool, team int, adjacent bool) *schedule {
	s := &schedule{team: team, adjacent: adjacent, rows: 1, columns: 1, inRow: inRow, vector: 1}
	for i, d := range p.shape {
		if inRow[i] {
			s.rows *= d
		} else {
			s.columns *= d
		}
	}
	last := p.lastDim()
	if adjacent {
		s.teams = max(128/team, 1)
		// Shuffles want whole warps.
		for s.teams*team > 32 && s.teams > 1 && (s.rows+s.teams-1)/s.teams < p.ctx.Target.SMs {
			s.teams /= 2
		}
		switch {
		case p.blocks != nil && inRow[last]:
			return nil // a block would be several teams'
		case p.blocks != nil:
			s.vector = ir.BlockSize
		case last >= 0 && !inRow[last]:
			for _, v := range []int{8, 4, 2} {
				if p.shape[last]%v == 0 && s.columns/v >= team {
					s.vector = v
					break
				}
			}
		}
		s.threads = team * s.teams
		s.blocks = (s.rows + s.teams - 1) / s.teams
		return s
	}
	// Columns: every output is a row of its own, neighbours side by side.
	if s.columns != 1 || last < 0 || team > 32 {
		return nil
	}
	s.teams = 32
	widths := []int{4, 2}
	if p.blocks != nil {
		widths, s.vector = nil, ir.BlockSize
	}
	for _, v := range widths {
		if p.shape[last]%v == 0 && p.elements/(v*16) >= p.ctx.Target.SMs {
			s.vector = v
			break
		}
	}
	if p.shape[last]/s.vector < 32 {
		s.teams = 16
	}
	s.team = min(team, 1024/s.teams)
	if s.team != team {
		return nil
	}
	s.threads = s.team * s.teams
	n := p.elements / s.vector
	s.blocks = (n + s.teams - 1) / s.teams
	return s
}
