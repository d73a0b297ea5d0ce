package loop

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// schedule says which threads compute which elements.
type schedule struct {
	blocks, threads int
	vector          int  // neighbouring elements a thread computes and stores together
	sized           bool // flat: the threads of a block were chosen too

	team     int  // threads that share a row; 1: flat
	adjacent bool // the team's threads are neighbours (row), else its teams are (column)
	teams    int  // in a block
	rows     int  // in all
	inRow    []bool
	columns  int // elements of a row
	shared   int // bytes of a block's shared memory
}

func (s schedule) String() string {
	switch {
	case s.team == 1 && s.sized:
		return fmt.Sprintf("flat x%d, %d threads a block", s.vector, s.threads)
	case s.team == 1:
		return fmt.Sprintf("flat x%d", s.vector)
	case s.adjacent:
		return fmt.Sprintf("row %d threads x%d, %d rows a block", s.team, s.vector, s.teams)
	}
	return fmt.Sprintf("column %d threads x%d, %d columns a block", s.team, s.vector, s.teams)
}

// Choose implements kernel.Kernel.
func (p *problem) Choose() (kernel.Choice, error) {
	if p.elements == 0 {
		return kernel.Choice{}, nil
	}
	best, work, err := p.fastest(p.candidates())
	if err == nil && best.shared > maxShared {
		err = fmt.Errorf("its reductions need %d bytes of shared memory, a block has %d: use a smaller --batch or --shape", best.shared, maxShared)
	}
	if err != nil {
		return kernel.Choice{}, err
	}
	return kernel.Choice{Schedule: *best, Work: work}, nil
}

// fastest is the schedule of least estimated time of some, and its work.
func (p *problem) fastest(from []*schedule) (best *schedule, work *cost.Work, err error) {
	least, m := math.Inf(1), cost.Of(p.ctx.Target)
	for _, s := range from {
		w, err := p.work(s, m)
		if err != nil {
			return nil, nil, err
		}
		if us := m.Estimate(w).US; best == nil || us < least && s.shared <= maxShared {
			best, work, least = s, w, us
		}
	}
	return best, work, nil
}

// candidates are the flat schedules and, for every reduction, rows and columns of the outputs that share it.
func (p *problem) candidates() []*schedule {
	if p.scatters {
		return []*schedule{p.flatVector(1)}
	}
	out := []*schedule{p.flat()}
	rs := p.rows()
	if p.packed() > 1 || len(rs) == 0 {
		return out
	}
	if p.blocks == nil && out[0].vector > 1 {
		out = append(out, p.flatVector(1))
	}
	for _, in := range rs {
		for _, team := range []int{8, 16, 32, 64, 128, 256, 512} {
			for _, adjacent := range []bool{true, false} {
				if s := p.rowSchedule(in, team, adjacent); s != nil {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// rows lists, for reductions in the outputs, the dimensions on which they depend: outputs that have those in common
// share them.
func (p *problem) rows() (out [][]bool) {
	for _, o := range p.outs {
		expr.Walk([]*expr.Expr{o.value}, func(e *expr.Expr) {
			if e.Op != expr.OpReduce {
				return
			}
			in := make([]bool, len(p.index))
			for i, v := range p.index {
				in[i] = v.Op == expr.OpVar && e.DependsOn(v)
			}
			if !slices.ContainsFunc(out, func(had []bool) bool { return slices.Equal(had, in) }) {
				out = append(out, in)
			}
		})
	}
	return out
}

// maxShared is what a block has of shared memory without asking for more.
const maxShared = 48 << 10

// maxHeld bounds the elements of operands that a thread of a flat schedule computes with: it has 255 registers, and
// may need most of them at a time.
const maxHeld = 192

// flat computes elements in order, as many a thread as 16 bytes hold where the last dimension allows, enough threads
// remain, and registers hold them.
func (p *problem) flat() *schedule {
	if sub := p.packed(); sub > 1 {
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
		if v*len(p.l.Operands) <= maxHeld && p.divides(v) && (v == 2 || p.elements/v >= p.ctx.Target.SMs*64) {
			return p.flatVector(v)
		}
	}
	return p.flatVector(1)
}

// packed is the greatest number of elements of an output that share a byte.
func (p *problem) packed() int {
	most := 1
	for _, o := range p.outs {
		most = max(most, o.sub)
	}
	return most
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
	if n <= p.ctx.Target.SMs*32 && 2*len(p.l.Operands) > maxHeld { // long threads: a multiprocessor for each warp
		s.threads = 32
	}
	s.blocks = (n + s.threads - 1) / s.threads
	return s
}

// divides reports whether vectors of v elements stay within the last dimension, or whether no index depends on
// dimensions.
func (p *problem) divides(v int) bool {
	if p.elements%v != 0 {
		return false
	}
	if last := p.lastDim(); last < 0 || p.shape[last]%v == 0 {
		return true
	}
	t := p.b.Index(p.part.name(fmt.Sprintf("flat.probe%d", v)), p.elements/v)
	with := p.substitution(p.b.Scale(t, int64(v)))
	for _, o := range p.outs {
		if divided(p.b.Subst(o.value, with, nil)) {
			return false
		}
	}
	return true
}

func divided(e *expr.Expr) (found bool) {
	expr.Walk([]*expr.Expr{e}, func(e *expr.Expr) { found = found || e.Op == expr.OpFloorDiv || e.Op == expr.OpFloorMod })
	return found
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
