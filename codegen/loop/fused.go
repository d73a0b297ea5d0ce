package loop

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// fusedLoops are loops each of which reads its predecessor's results. Every block computes all loops but the last
// into shared memory, rounded as they are stored, and then its share of the last. This suits values of few elements
// that are cheap to compute. If an element of the last loop only needs the same element of its predecessor, each
// block computes only the elements that it needs, and no two blocks the same ones.
type fusedLoops struct {
	node  *ir.Node
	ctx   *kernel.Context
	b     *expr.Builder
	parts []*part
}

// part is one of the loops. A nil part is a launch of its own.
type part struct {
	*problem
	number int
	last   bool
	kept   bool               // its outputs are results of the kernel
	own    bool               // a block computes the elements that it reads
	read   map[*ir.Value]bool // by later parts
	held   []int              // operands in shared memory that its outputs are; 0: this one is not read
}

// name makes the names of parts' variables distinct.
func (of *part) name(s string) string {
	if of == nil {
		return s
	}
	return fmt.Sprint(s, ".", of.number)
}

func (of *part) stores() bool { return of == nil || of.kept || of.last }
func (of *part) holds() bool  { return of != nil && !of.last }

const (
	mostHeld  = 32 << 10  // bytes of values between the loops
	mostEvery = 256 << 10 // bytes that every block reads: at 64 a clock that takes as long as two launches cost
)

// Signature implements kernel.Kernel.
func (c *fusedLoops) Signature() string {
	last := c.parts[len(c.parts)-1]
	return c.ctx.Signature(ir.FamilyFused, fmt.Sprintf("%s %s", c.stem(), strings.Trim(strings.ReplaceAll(fmt.Sprint(last.shape), " ", "x"), "[]")), c.node)
}

func (c *fusedLoops) stem() string {
	var list []string
	for _, p := range c.parts {
		list = append(list, stem(p.region.Region.Body))
	}
	return strings.Join(list, "_")
}

// tried are the schedules that a tuner tries: of blocks of each size every schedule of the last part, and around the
// family's own choice every one of each other part. Of those with the same text the first counts.
func (c *fusedLoops) tried(own *fusedSchedule) iter.Seq[*fusedSchedule] {
	return func(yield func(*fusedSchedule) bool) {
		seen := map[string]bool{}
		once := func(s *fusedSchedule) bool {
			text := s.String()
			again := seen[text]
			seen[text] = true
			return again || yield(s)
		}
		if !once(own) {
			return
		}
		producers := c.parts[:len(c.parts)-1]
		for i, p := range producers {
			for _, o := range p.inBlock(own.threads) {
				s := *own
				s.parts = slices.Clone(own.parts)
				s.parts[i] = o
				if !once(&s) {
					return
				}
			}
		}
		for _, threads := range blockSizes {
			var usual []*schedule
			for _, p := range producers {
				usual = append(usual, p.usual(threads))
			}
			for _, last := range c.lasts(threads) {
				if !once(&fusedSchedule{threads: threads, parts: append(slices.Clone(usual), last.schedule), turns: last.turns}) {
					return
				}
			}
		}
	}
}

// Parse implements kernel.Kernel.
func (c *fusedLoops) Parse(text string) (kernel.Choice, error) {
	own, _, err := c.choose()
	if err != nil {
		return kernel.Choice{}, err
	}
	for s := range c.tried(own) {
		if s.String() != text {
			continue
		}
		w := s.work(c, cost.Of(c.ctx.Target))
		if s.shared > maxShared {
			return kernel.Choice{}, fmt.Errorf("its loops need %d bytes of shared memory, a block has %d", s.shared, maxShared)
		}
		return kernel.Choice{Schedule: s, Work: w}, nil
	}
	return kernel.Choice{}, fmt.Errorf("no such loops; the usual form is %q", own)
}

// Candidates implements kernel.Kernel.
func (c *fusedLoops) Candidates(own kernel.Choice) (plans []kernel.Candidate, err error) {
	m := cost.Of(c.ctx.Target)
	for s := range c.tried(own.Schedule.(*fusedSchedule)) {
		w := *s.work(c, m)
		w.DRAMBytes = 0 // as Choose compares them
		if s.shared <= maxShared {
			plans = append(plans, kernel.Candidate{Schedule: s.String(), At: s.coordinates(), US: m.Estimate(&w).US})
		}
	}
	return kernel.Within(plans, own.Schedule.(*fusedSchedule).coordinates()), nil
}

// coordinates are those of a plan (kernel.Candidate): of the last part, then of the others, the nearest first.
func (s *fusedSchedule) coordinates() []int {
	at := append(s.last().coordinates(), s.turns)
	for i := len(s.parts) - 2; i >= 0; i-- {
		at = append(at, s.parts[i].coordinates()...)
	}
	return at
}

// Key implements kernel.Kernel.
func (c *fusedLoops) Key() string {
	var k strings.Builder
	for _, p := range c.parts {
		fmt.Fprintln(&k, p.kept, p.held, p.Key())
	}
	return k.String()
}

// Choose implements kernel.Kernel.
func (c *fusedLoops) Choose() (kernel.Choice, error) {
	s, work, err := c.choose()
	if err != nil {
		return kernel.Choice{}, err
	}
	return kernel.Choice{Schedule: s, Work: work}, nil
}

// Spec implements kernel.Kernel.
func (c *fusedLoops) Spec(choice kernel.Choice) (*kernel.Spec, error) {
	s := choice.Schedule.(*fusedSchedule)
	var notes []string
	for _, p := range c.parts {
		notes = append(notes, note(p.region.Region.Body))
	}
	return &kernel.Spec{Stem: c.stem(), Family: ir.FamilyFused, Grid: [3]int{s.last().blocks, 1, 1}, Block: [3]int{s.threads, 1, 1},
		Shared: s.shared, MACs: c.node.MACs(), Note: strings.Join(notes, ", then "), Operands: c.operands(), Schedule: s.String(),
		Emit: func(k *ptx.Kernel, params []ptx.Sym) { c.emit(s, k, params, nil) }}, nil
}

// operands are those of all parts.
func (c *fusedLoops) operands() []kernel.Operand { return c.parts[len(c.parts)-1].l.Operands }

func newFusedLoops(n *ir.Node, ctx *kernel.Context) (c *fusedLoops, err error) {
	defer lower.Catch(&err)
	c = &fusedLoops{node: n, ctx: ctx}
	parts := n.Parts()
	read := map[*ir.Value]bool{}
	for _, m := range parts {
		for _, v := range m.Inputs {
			read[v] = true
		}
	}
	var l *lower.Lowering
	for i, m := range parts {
		if !m.IsFamily(ir.FamilyLoop) {
			return nil, fmt.Errorf("%s is no loop", m.Name)
		}
		region, err := m.Explicit()
		if err != nil {
			return nil, err
		}
		if l == nil {
			l = lower.New(region, ctx)
		} else {
			l = l.Further(region)
		}
		of := &part{number: i, read: read, last: i == len(parts)-1, kept: i == 0 && len(n.Outputs) > len(parts[len(parts)-1].Outputs)}
		if of.problem, err = problemOf(region, ctx, l, of); err != nil {
			return nil, err
		}
		c.parts = append(c.parts, of)
	}
	c.b = l.B
	return c, c.check()
}

// check reports what no block could compute, and finds out of what blocks need their own elements only.
func (c *fusedLoops) check() error {
	held := 0
	for i, p := range c.parts {
		if p.elements == 0 {
			return fmt.Errorf("%s computes nothing", p.region.Name)
		}
		if p.last && p.packed() > 1 {
			return fmt.Errorf("%s yields numbers that share bytes", p.region.Name)
		}
		if p.last {
			continue
		}
		if p.blocks != nil || p.packed() > 1 {
			return fmt.Errorf("%s yields numbers that share bytes or scales", p.region.Name)
		}
		p.own = i == len(c.parts)-2 && c.readsOwn(c.parts[i+1].problem, p)
		if p.own {
			continue
		}
		for k, id := range p.held {
			if id != 0 {
				held += p.elements * lower.Held(p.outs[k].dtype).Bits() / 8
			}
		}
	}
	if held > mostHeld {
		return fmt.Errorf("%d bytes between the loops: at most %d are kept", held, mostHeld)
	}
	read := 0
	for i := range c.every() {
		if o := c.operands()[i]; o.Value != nil {
			read += o.Value.Type.Bytes()
		} else {
			read += len(o.Const)
		}
	}
	if read > mostEvery {
		return fmt.Errorf("every block would read %d bytes for what it needs whole: at most %d pay", read, mostEvery)
	}
	return nil
}

// every are the operands that every block reads whole.
func (c *fusedLoops) every() map[int]bool {
	out := map[int]bool{}
	for _, p := range c.parts {
		if p.last || p.own {
			continue
		}
		for i := range p.l.Operands {
			if p.l.Loaded[i] {
				out[i] = true
			}
		}
	}
	return out
}

// readsOwn reports whether each element of q reads the same element alone of p.
func (c *fusedLoops) readsOwn(q *problem, p *part) bool {
	ok := p.elements == q.elements && q.packed() == 1
	for _, o := range q.outs {
		expr.Walk([]*expr.Expr{o.value}, func(e *expr.Expr) {
			if e.Op == expr.OpLoad && e.I < 0 && slices.Contains(p.held, int(e.I)) && e.Args[0] != o.linear {
				ok = false
			}
		})
	}
	return ok
}

// fusedSchedule is the schedule of fused loops: one for each part, all of as many threads.
type fusedSchedule struct {
	threads int
	parts   []*schedule
	turns   int // rows of the last that a team computes
	shared  int
}

func (s *fusedSchedule) last() *schedule { return s.parts[len(s.parts)-1] }

func (s *fusedSchedule) String() string {
	var list []string
	for _, p := range s.parts {
		list = append(list, p.String())
	}
	text := strings.Join(list, ", then ")
	if s.turns > 1 {
		text += fmt.Sprintf(", %d times", s.turns)
	}
	return text
}

// blockSizes are the threads that a block of fused loops may have, the usual first. With more threads, each has too few
// registers for the weights of its rows.
var blockSizes = []int{256, 128, 512}

// mostTurns bounds the rows of the last that a team computes together, and of the others without a loop.
const mostTurns = 4

// choose takes the schedule that is estimated to be fastest, one thing after the other, as every candidate is a
// kernel to count: the last part's schedule in blocks of the usual size, then how many turns that has, then both for
// similar ones in blocks of other sizes, and for the best of these each of the other parts, step by step.
func (c *fusedLoops) choose() (best *fusedSchedule, work *cost.Work, err error) {
	m, producers := cost.Of(c.ctx.Target), c.parts[:len(c.parts)-1]
	least := math.Inf(1)
	try := func(s *fusedSchedule) bool {
		w := s.work(c, m)
		warm := *w // as it is compared with launches for its parts
		warm.DRAMBytes = 0
		us := m.Estimate(&warm).US
		if us >= least || s.shared > maxShared {
			return false
		}
		best, work, least = s, w, us
		return true
	}
	for _, threads := range blockSizes {
		var usual []*schedule
		for _, p := range producers {
			usual = append(usual, p.usual(threads))
		}
		lasts, like := c.lasts(threads), best
		for _, last := range lasts {
			if last.turns == 1 && (like == nil || last.similar(like.last())) {
				try(&fusedSchedule{threads: threads, parts: append(slices.Clone(usual), last.schedule), turns: 1})
			}
		}
		like = best
		for _, last := range lasts {
			if last.turns > 1 && like != nil && like.threads == threads && last.same(like.last()) &&
				!try(&fusedSchedule{threads: threads, parts: append(slices.Clone(usual), last.schedule), turns: last.turns}) {
				break // more would be slower still
			}
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("no schedule of %d loops fits into %d bytes of shared memory", len(c.parts), maxShared)
	}
	for i, p := range producers {
		list := p.inBlock(best.threads)
		list = slices.DeleteFunc(list, func(o *schedule) bool { return o.same(best.parts[i]) })
		for better := true; better; {
			better = false
			list = slices.DeleteFunc(list, func(o *schedule) bool {
				if better || !o.similar(best.parts[i]) {
					return false
				}
				s := &fusedSchedule{threads: best.threads, parts: slices.Clone(best.parts), turns: best.turns}
				s.parts[i] = o
				better = try(s)
				return true
			})
		}
	}
	return best, work, nil
}

// same reports whether threads take the same elements.
func (s *schedule) same(o *schedule) bool {
	return s.String() == o.String() && slices.Equal(s.inRow, o.inRow)
}

// similar reports whether another schedule's teams have half as many to twice as many threads.
func (s *schedule) similar(o *schedule) bool {
	return s.adjacent == o.adjacent && s.team <= 2*o.team && o.team <= 2*s.team
}

// work counts the kernel of a schedule, and sets its shared memory.
func (s *fusedSchedule) work(of *fusedLoops, m *cost.Machine) *cost.Work {
	c, err := newFusedLoops(of.node, of.ctx)
	if err != nil {
		panic(err) // it was made before
	}
	w := &cost.Work{Blocks: s.last().blocks, Warps: s.threads / 32}
	count(w, c.operands(), m, s.threads, c.every(), func(k *ptx.Kernel, params []ptx.Sym, sectors map[int]float64) (int, int) {
		early, shared := c.emit(s, k, params, sectors)
		s.shared = shared
		return s.shared, registers + early
	})
	return w
}

// inBlock lists the schedules of a part that blocks compute: all threads take rows, or elements, in turns.
func (p *part) inBlock(threads int) (list []*schedule) {
	rs := p.rows()
	if len(rs) == 0 {
		s := p.flatVector(1)
		s.threads, s.sized = threads, true
		return append(list, s)
	}
	for _, fixed := range rs {
		for team := 4; team <= min(threads, 512); team *= 2 {
			s := p.rowSchedule(fixed, team, true)
			if s == nil || p.own && s.columns > 1 {
				continue
			}
			s.threads, s.teams = threads, threads/team
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		s := p.flatVector(1)
		s.threads, s.sized = threads, true
		list = append(list, s)
	}
	return list
}

// usual is the schedule that a part has while the others are chosen: the fewest turns, and of these the largest teams
// of a warp at most.
func (p *part) usual(threads int) *schedule {
	var best *schedule
	least := math.MaxInt
	for _, s := range p.inBlock(threads) {
		turns := 1
		if s.team > 1 && !p.own { // of its own a block has few
			turns = ceilDiv(s.rows, s.teams)
		}
		if best == nil || s.team <= 32 && turns <= max(least, mostTurns) && !(p.own && s.team > 8) {
			best, least = s, turns
		}
	}
	return best
}

// lastly is a schedule of the last part.
type lastly struct {
	*schedule
	turns int
}

// lasts lists the schedules of the last part for blocks of some threads.
func (c *fusedLoops) lasts(threads int) (list []lastly) {
	p := c.parts[len(c.parts)-1]
	own := c.parts[len(c.parts)-2].own
	if rs := p.rows(); len(rs) > 0 && p.blocks == nil {
		for _, fixed := range rs {
			for team := 4; team <= min(threads, 512); team *= 2 {
				if s := p.rowSchedule(fixed, team, true); s != nil && !(own && s.columns > 1) {
					list = append(list, p.turns(s, threads)...)
				}
				if s := p.rowSchedule(fixed, team, false); s != nil && s.threads == threads {
					list = append(list, lastly{s, 1})
				}
			}
		}
		return list
	}
	s := p.flat()
	s.threads, s.sized = threads, true
	s.blocks = ceilDiv(ceilDiv(p.elements, s.vector), threads)
	return append(list, lastly{s, 1})
}

// turns are schedules whose teams compute so many rows each, or whose one block computes all.
func (p *part) turns(s *schedule, threads int) (list []lastly) {
	s.threads, s.teams = threads, threads/s.team
	all := ceilDiv(s.rows, s.teams)
	for _, turns := range []int{1, 2, 3, mostTurns, all} {
		if turns > all || turns == all && turns > mostTurns && all > 16 {
			continue
		}
		one := *s
		one.blocks = ceilDiv(s.rows, s.teams*turns)
		list = append(list, lastly{&one, turns})
	}
	return list
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
