package passes

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "rematerialise",
	Summary: "compute values again where they are read late instead of keeping them, so that values between regions fit a number of bytes",
	After: map[string]string{
		"assign-storage": "it says how many bytes a value has",
		"fuse":           "values between regions are what takes memory",
		"views":          "a view has the memory of its operand",
		"fuse-producers": "a copy of a region has its kernel, and so its bits, where no later pass fuses one of the two",
	},
	Needs: []string{"fuse"},
	Run:   rematerialise,
})

// RematerialiseOptions bound memory.
type RematerialiseOptions struct {
	// Memory bounds the bytes that values between regions take at a time; 0: not.
	Memory int
	// Recomputed is filled with what is computed again.
	Recomputed []Recomputed
}

// Recomputed is a region that rematerialise computes again.
type Recomputed struct {
	Region string
	Ops    []string // of its body, in order; none: it copies
	Values []string // its results
	Bytes  int      // of these
	Times  int
	MACs   int64 // multiply-accumulates of all these times
}

// OverBudgetError says that values between regions cannot fit, whatever is computed again.
type OverBudgetError struct {
	Budget int
	Least  int    // that they can fit, or hardly more
	Region string // that does not fit the budget
}

func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("region %q does not fit a memory of %d bytes for values between regions, whatever is computed again: %d bytes would do", e.Region, e.Budget, e.Least)
}

// rematerialise works on regions, so what is computed again has the kernel and the bits of what was forgotten, in every
// precision, and its memory is what codegen plans.
func rematerialise(ctx *Context, g *ir.Graph) error {
	most := peakMemory(g)
	if ctx.Memory == 0 || most <= ctx.Memory {
		return nil
	}
	r := newRecorder(ctx.Target, g, ctx.Memory)
	err := r.record()
	if over := (*OverBudgetError)(nil); errors.As(err, &over) {
		if over.Least = leastMemory(ctx.Target, g, most); over.Least <= ctx.Memory { // less may do where more does not
			r = newRecorder(ctx.Target, g, over.Least)
			err = r.record()
		}
	}
	if err != nil {
		return err
	}
	for n, in := range r.inputs {
		n.Inputs = in
	}
	order := g.Nodes
	g.Nodes = r.nodes
	g.RemoveDead()
	ctx.Recomputed = r.recomputed(order)
	return nil
}

// leastMemory looks for the fewest bytes that do, to 1 %.
func leastMemory(t *target.Target, g *ir.Graph, enough int) int {
	for little := 0; enough-little > enough/100; {
		middle := (little + enough) / 2
		if newRecorder(t, g, middle).record() == nil {
			enough = middle
		} else {
			little = middle
		}
	}
	return enough
}

// recorder rewrites the list of regions within a budget of bytes. It walks through the list as Kirisame et al.
// ("Dynamic Tensor Rematerialization", 2021) walk through a running program: where a region's results do not fit, it
// evicts the storage that is cheapest to recompute for its size and for how long nobody reads it. Evicted values are
// recomputed before their next reader. Unlike there, future readers are known. On a sequence of layers this retains
// what Chen et al. ("Training Deep Nets with Sublinear Memory Cost", 2016) retain: a value every few layers.
type recorder struct {
	g      *ir.Graph
	budget int
	left   int // how many more regions may be computed again
	of     map[*ir.Value]*storage
	list   []*storage
	time   map[*ir.Node]float64
	taken  map[string]bool // names of values

	place  int // in the list before
	live   int // bytes of what is there
	nodes  []*ir.Node
	inputs map[*ir.Node][]*ir.Value // of the nodes before
	copies map[*ir.Value]copied
	copyOf map[*ir.Node]*ir.Node // the region that one computes again
	visit  int
}

// tape is the state of a storage in the walk.
type tape struct {
	from   []*storage // that its writer reads
	there  bool
	pinned int // regions that are about to read it
	epoch  int // how often it was written again
	next   int // the next place that needs it: something there reads it, or what has to be computed again from it
	seen   int // the visit
}

// copied is the value that stands for another one since its storage was written again.
type copied struct {
	*ir.Value
	epoch int
}

const never = math.MaxInt

// maxAgain bounds the regions that are computed again, as a multiple of those that there are: beyond, a budget is no
// use.
const maxAgain = 4

func newRecorder(t *target.Target, g *ir.Graph, budget int) *recorder {
	if t == nil {
		t = target.Default()
	}
	r := &recorder{g: g, budget: budget, left: maxAgain * len(g.Nodes), time: map[*ir.Node]float64{}, taken: map[string]bool{}, inputs: map[*ir.Node][]*ir.Value{},
		copies: map[*ir.Value]copied{}, copyOf: map[*ir.Node]*ir.Node{}}
	r.of, r.list = storages(g)
	for _, n := range g.Nodes {
		r.time[n] = regionTime(t, n)
		for _, v := range slices.Concat(n.Inputs, n.Outputs) {
			r.taken[v.Name] = true
		}
	}
	for _, s := range r.list {
		if s.again() {
			s.from = r.reads(s.writer)
		}
	}
	return r
}

// again reports whether a storage can be written again: by one region, and not where others write too.
func (s *storage) again() bool { return !s.joined }

// reads are the storages that a node reads and does not write.
func (r *recorder) reads(n *ir.Node) (list []*storage) {
	for _, v := range n.Inputs {
		s := r.of[v]
		if s != nil && !slices.Contains(list, s) && !slices.ContainsFunc(n.Outputs, func(y *ir.Value) bool { return r.of[y] == s }) {
			list = append(list, s)
		}
	}
	return list
}

// regionTime estimates the time of a region in µs: of its arithmetic, or of what it reads and writes.
func regionTime(t *target.Target, n *ir.Node) float64 {
	if renames(n) {
		return 0
	}
	bytes := 0
	for _, v := range slices.Concat(n.Inputs, n.Outputs) {
		bytes += v.Type.Bytes()
	}
	simple := t.TFLOPS["f32"]
	products := simple
	if len(n.Region.Operands) > 0 {
		products = max(simple, t.TFLOPS[n.Region.Operands[0].DType.String()])
	}
	each := 0.0 // member
	for _, m := range n.Region.Body.Nodes {
		each += float64(float64(2*m.MACs())/products) + float64(float64(m.Op.Cost*m.Outputs[0].Type.Numel())/simple)
	}
	return t.LaunchUS + max(float64(each*float64(n.Region.Count()))/1e6, float64(bytes)/t.MemoryGBps/1e3)
}

func (r *recorder) record() error {
	for i, n := range r.g.Nodes {
		r.place = i
		if renames(n) {
			r.nodes = append(r.nodes, n)
			continue
		}
		in, err := r.ready(n, false)
		if err != nil {
			return err
		}
		r.inputs[n] = in
		r.nodes = append(r.nodes, n)
	}
	return nil
}

// ready makes a region's operands live, evicts enough for its results, and returns its operands' current values. Its
// results are live then; of a recomputed region, only those that were not.
func (r *recorder) ready(n *ir.Node, again bool) ([]*ir.Value, error) {
	from := r.reads(n)
	for _, s := range from {
		s.pinned++
		defer func() { s.pinned-- }()
	}
	for _, s := range from {
		if !s.there {
			if err := r.compute(s.writer); err != nil {
				return nil, err
			}
		}
	}
	var missing []*storage
	bytes, spare := 0, 0 // spare: results that are there, or cannot be written again
	for _, y := range n.Outputs {
		switch s := r.of[y]; {
		case slices.Contains(missing, s):
		case s != nil && !s.there && (!again || s.again()):
			missing = append(missing, s)
			bytes += s.bytes
		case again:
			spare += newStorage(y).bytes
		}
	}
	if !r.evictFor(bytes + spare) {
		return nil, &OverBudgetError{Budget: r.budget, Region: n.Name}
	}
	r.live += bytes
	for _, s := range missing {
		s.there = true
		if again {
			s.epoch++
		}
	}
	in := make([]*ir.Value, len(n.Inputs))
	for i, v := range n.Inputs {
		var err error
		if in[i], err = r.current(v); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// compute puts a region on the list again.
func (r *recorder) compute(n *ir.Node) error {
	if r.left--; r.left < 0 {
		return &OverBudgetError{Budget: r.budget, Region: n.Name}
	}
	before := make([]int, len(n.Outputs))
	for i, y := range n.Outputs {
		if s := r.of[y]; s != nil {
			before[i] = s.epoch
		}
	}
	in, err := r.ready(n, true)
	if err != nil {
		return err
	}
	m, err := r.copied(n, in)
	if err != nil {
		return err
	}
	r.copyOf[m] = n
	for i, y := range n.Outputs {
		if s := r.of[y]; s != nil && s.epoch > before[i] {
			r.copies[y] = copied{m.Outputs[i], s.epoch}
		}
	}
	return nil
}

func (r *recorder) copied(n *ir.Node, in []*ir.Value) (*ir.Node, error) {
	m, err := r.g.RegionNode(n.Name, n.Region.Clone(), in...)
	if err != nil {
		return nil, err
	}
	m.From = n.From
	for i, y := range n.Outputs {
		for m.Outputs[i].Name = r.g.Fresh(y.Name); r.taken[m.Outputs[i].Name]; { // parts that were joined have names of their own
			m.Outputs[i].Name = r.g.Fresh(y.Name)
		}
	}
	r.nodes = append(r.nodes, m)
	return m, nil
}

// current is the value that stands for v now: v itself, what was computed again, or a view of that.
func (r *recorder) current(v *ir.Value) (*ir.Value, error) {
	s := r.of[v]
	if s == nil || s.epoch == 0 {
		return v, nil
	}
	if c, ok := r.copies[v]; ok && c.epoch == s.epoch {
		return c.Value, nil
	}
	operand, err := r.current(v.Def.Inputs[0])
	if err != nil {
		return nil, err
	}
	m, err := r.copied(v.Def, []*ir.Value{operand})
	if err != nil {
		return nil, err
	}
	r.copies[v] = copied{m.Outputs[0], s.epoch}
	return m.Outputs[0], nil
}

// evictFor evicts values until so many bytes fit, first those that nothing needs.
func (r *recorder) evictFor(bytes int) bool {
	if r.live+bytes <= r.budget {
		return true
	}
	r.look()
	for _, s := range r.list {
		if s.there && s.pinned == 0 && s.next == never {
			r.forget(s)
		}
	}
	for r.live+bytes > r.budget {
		var least *storage
		score := math.Inf(1)
		for _, s := range r.list {
			if !s.there || s.pinned > 0 || !s.again() || s.bytes == 0 {
				continue
			}
			r.visit++
			if x := r.timeAgain(s) / float64(s.bytes) / float64(s.next-r.place+1); x < score {
				least, score = s, x
			}
		}
		if least == nil {
			return false
		}
		r.forget(least)
		r.look()
	}
	return true
}

func (r *recorder) forget(s *storage) {
	s.there = false
	r.live -= s.bytes
}

// look finds the next place that needs each storage.
func (r *recorder) look() {
	for _, s := range r.list {
		s.next = never
		if i, _ := slices.BinarySearch(s.readers, r.place); i < len(s.readers) {
			s.next = s.readers[i]
		}
	}
	for _, s := range slices.Backward(r.list) {
		if !s.there {
			for _, x := range s.from {
				x.next = min(x.next, s.next)
			}
		}
	}
}

// timeAgain is the time to have a storage again, with all before it that is not there; without end where that cannot
// be had.
func (r *recorder) timeAgain(s *storage) float64 {
	s.seen = r.visit
	if !s.again() {
		return math.Inf(1)
	}
	sum := r.time[s.writer]
	for _, x := range s.from {
		if !x.there && x.seen != r.visit {
			sum += r.timeAgain(x)
		}
	}
	return sum
}

// recomputed lists what the graph computes again, in the order that it had. A region that is read only where it was
// computed again is computed there for the first time.
func (r *recorder) recomputed(order []*ir.Node) (list []Recomputed) {
	times := map[*ir.Node]int{}
	for _, m := range r.g.Nodes {
		times[cmp.Or(r.copyOf[m], m)]++
	}
	for _, n := range order {
		if times[n] < 2 {
			continue
		}
		c := Recomputed{Region: n.Name, Times: times[n] - 1}
		for _, m := range n.Region.Body.Nodes {
			c.Ops = append(c.Ops, m.Op.Name)
			c.MACs += int64(c.Times*n.Region.Count()) * m.MACs()
		}
		for _, y := range n.Outputs {
			c.Values = append(c.Values, y.Name)
			c.Bytes += y.Type.Bytes()
		}
		list = append(list, c)
	}
	return list
}
