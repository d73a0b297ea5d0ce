package codegen

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Families turn regions into kernels (kernel.Families). A region that its family rejects, with a reason, becomes
// loops: one for the results of each size. A rejected fused region becomes its parts.
type Families interface {
	Lower(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error)
	Loop(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error)
}

// Result is the code for one target, and which regions fell back to loop.
type Result struct {
	Variant   runtime.Variant
	Regions   [][]*ir.Node                   // of each entry, that its launches compute; nil for a copy
	Made      [][][]int                      // of each entry and launch: bytes of its parts' weights, last first
	Works     [][]*cost.Work                 // of each entry, that its launches' schedules were chosen by; nil where there was no choice by time
	Places    []map[*ir.Value]runtime.Access // of each entry, where its values lie, constants left out
	Fallbacks []Fallback
}

// made returns the bytes of weights of each part of a kernel, the last part first: constants that the family made for
// it, or that it reads unchanged. Those in f32 at every precision, such as biases, do not count.
func made(n *ir.Node, s *kernel.Spec) []int {
	if s == nil {
		return nil
	}
	parts := n.Parts()
	bytes := make([]int, len(parts))
	for _, o := range s.Operands {
		bytes[o.PartsFromLast] += alignUp(len(o.Const))
		v := o.Value
		if v == nil || !v.IsConst() || v.Type.DType.Bits() == 32 {
			continue
		}
		if at := slices.IndexFunc(parts, func(n *ir.Node) bool { return slices.Contains(n.Inputs, v) }); at >= 0 {
			bytes[len(parts)-1-at] += alignUp(v.Type.Bytes())
		}
	}
	return bytes
}

// Fallback says that a region was not lowered by its own family, and why.
type Fallback struct {
	Region, Family, Reason string
}

// Entry is a graph of Regions that becomes a named launch list of the program.
type Entry struct {
	Name     string
	Graph    *ir.Graph
	States   []StateBinding
	Prefetch Prefetch
	// HorizontalFusion makes small loops parts of other loops' launches (Result.Regions then has the region of the
	// other loop).
	HorizontalFusion bool
	// Objective is minimised over plans of a launch list's prefetches and hints, given the works that the launches
	// were planned with. nil: the plan's own estimate of its time, which does not model what else occupies L2.
	Objective func(v *runtime.Variant, e *runtime.Entry, works []*cost.Work) float64

	// Repeats, if above 1, is how many times in sequence the launch list runs, each on the next slice of every input,
	// output and state, which are that many times as large as in the graph. All repetitions share kernels, constants
	// and arena.
	Repeats   int
	Prefix    *BatchPrefix         // computes inputs of Graph; nil: none
	Schedules kernel.ScheduleCache // schedules that are chosen from outside; nil: families choose all
}

func (e *Entry) repeats() int { return max(1, e.Repeats) }

// StateBinding says that an input lives on the device from run to run, for every entry that has an input of that name.
type StateBinding struct {
	Input   string
	Output  string // the output that is its new value after a run; "": a run does not change it
	Initial []byte // of a variable: its value in the weights file; nil: a state, initially zero
	Delay   int    // of a state: how many runs later the input has the output's value; 0 and 1: in the next one
}

// Generate lowers graphs of Regions for one target: entries over the same constants, states and variables, inputs and
// outputs of one name, and one arena. Constants are added to w.
func Generate(entries []Entry, t *target.Target, f Families, w *Weights) (*Result, error) {
	d := &driver{target: t, families: f, weights: w, buffers: &buffers{ports: map[string]*storage{}}, module: ptx.NewModule(t.Name),
		kernels: map[string]string{}, stems: map[string]int{}}
	return d.generate(entries)
}

// PlanLaunches lowers graphs of Regions as Generate does, but packs no weights and emits no kernels: its launches
// have memory, works and what they prefetch.
func PlanLaunches(entries []Entry, t *target.Target, f Families) (*Result, error) {
	d := &driver{target: t, families: f, buffers: &buffers{ports: map[string]*storage{}}}
	return d.generate(entries)
}

func (d *driver) generate(entries []Entry) (*Result, error) {
	for _, e := range entries {
		if err := d.entry(e); err != nil {
			if len(entries) > 1 {
				err = fmt.Errorf("entry %s: %w", e.Name, err)
			}
			return nil, err
		}
	}
	return d.finish(), nil
}

// Schedules are what Generate chooses by, without the program.
type Schedules struct {
	Regions       []*ir.Node   // that launches compute; nil for a copy
	Works         []*cost.Work // that their schedules were chosen by; nil where there was no choice by time
	ConstantBytes int          // that launches read

	Specs   []*kernel.Spec  // nil for a copy
	Context *kernel.Context // that they were lowered in
}

// Schedule lowers a graph of Regions as Generate does, but packs no weights and emits no kernels.
func Schedule(e Entry, t *target.Target, f Families) (*Schedules, error) {
	d := &driver{target: t, families: f, buffers: &buffers{ports: map[string]*storage{}}}
	if err := d.entry(e); err != nil {
		return nil, err
	}
	l := d.lists[0]
	s := &Schedules{Context: l.context}
	for _, p := range l.pending {
		s.Regions, s.Works, s.Specs = append(s.Regions, p.region), append(s.Works, p.work), append(s.Specs, p.spec)
	}
	for at := range livesOf(l.pending) {
		if at.kind == runtime.ConstantBuffer {
			s.ConstantBytes += at.bytes
		}
	}
	return s, nil
}

// driver is what the entries of a program share.
type driver struct {
	target   *target.Target
	families Families
	weights  *Weights // nil: no weights are wanted
	planned  int      // bytes of constants, if none is another's
	buffers  *buffers
	module   *ptx.Module // nil: only schedules are wanted

	kernels   map[string]string // emitted text without the name → kernel name
	stems     map[string]int
	infos     []runtime.KernelInfo
	lists     []*list
	counters  *storage
	fallbacks []Fallback
}

// list is an entry's launch list in the making.
type list struct {
	*driver
	*placer
	name           string
	fetch          Prefetch
	objective      func(v *runtime.Variant, e *runtime.Entry, works []*cost.Work) float64 // Entry.Objective
	repeats        int
	before         map[*ir.Value]place // of the batch prefix's values
	prefixLaunches int                 // launches of the batch prefix, which comes first
	prefixRepeats  int                 // how often that runs in each repetition
	context        *kernel.Context
	lowered        map[*ir.Node]*lowered // nodes of the graph whose launches are appended
	pending        []launch
}

// launch is a launch before buffers have indices.
type launch struct {
	runtime.Launch
	region        *ir.Node     // nil for a copy
	spec          *kernel.Spec // likewise; emitted when all launches are known
	work          *cost.Work
	joint         bool // other loops were fused into it horizontally
	prefetch      prefetch
	fetches       bool // its kernel begins with a prefetch, of this launch or of others
	params        []param
	reads, writes []span
}

// param is a parameter: what the kernel asked for, and of a pointer where that is.
type param struct {
	kernel.Operand
	place
}

// span is a range of a storage.
type span struct {
	place
	bytes int
}

func (d *driver) entry(e Entry) error {
	l := &list{driver: d, name: e.Name, fetch: e.Prefetch, objective: e.Objective, repeats: e.repeats()}
	l.context = &kernel.Context{Target: d.target, Unpacked: d.module == nil, Schedules: e.Schedules, Align: l.alignOf, Updates: l.updates}
	d.lists = append(d.lists, l)
	var joined map[string]*storage
	if e.Prefix != nil {
		if err := l.lowerPrefix(e); err != nil {
			return fmt.Errorf("batch prefix: %w", err)
		}
		joined = l.joined
	}
	var err error
	if l.placer, err = placeValues(e, d.buffers, joined); err != nil {
		return err
	}
	if err := l.lowerGraph(e.Graph); err != nil {
		return err
	}
	if e.HorizontalFusion {
		l.fuseHorizontally()
	}
	l.keep()
	return nil
}

// lowerGraph appends the launches of a graph, whose values are placed.
func (l *list) lowerGraph(g *ir.Graph) error {
	l.lowered = make(map[*ir.Node]*lowered)
	var nodes []*ir.Node
	for _, n := range g.Nodes {
		if !isView(n) && !isEmpty(n) {
			nodes = append(nodes, n)
			l.lowered[n] = &lowered{}
		}
	}
	parallel.For(len(nodes), func(i int) {
		to := l.lowered[nodes[i]]
		to.spec, to.err = l.families.Lower(nodes[i], l.context)
	})
	for _, n := range g.Nodes {
		if isView(n) {
			l.emitCopies(n)
			continue
		}
		if isEmpty(n) {
			continue
		}
		if err := l.lower(n); err != nil {
			return fmt.Errorf("region %q: %w", n.Name, err)
		}
	}
	l.emitCopies(nil)
	return nil
}

// alignOf is the alignment of a value's address: of a constant that of a buffer, and of what is in no memory none.
func (l *list) alignOf(v *ir.Value) int {
	if at, ok := l.before[v]; ok { // kernels of a prefix ask again when they are emitted
		return at.align()
	}
	if at, ok := l.places[v]; ok {
		return at.align()
	}
	if v.IsConst() {
		return alignment
	}
	return 1
}

// isEmpty reports whether a node computes no element: it needs no launch.
func isEmpty(n *ir.Node) bool {
	for _, v := range n.Outputs {
		if v.Type.Numel() > 0 {
			return false
		}
	}
	return true
}

// updates reports whether out is all of the new value of a state binding, and old all of its input.
func (l *list) updates(out, old *ir.Value) bool {
	next, err := l.of(out)
	if err != nil || next.offset != 0 {
		return false
	}
	was, err := l.of(old)
	return err == nil && was.offset == 0 && slices.ContainsFunc(l.feedback, func(f feedback) bool {
		return f == feedback{was.at, next.at} && f.next.bytes == out.Type.Bytes() && f.next.bytes == old.Type.Bytes()
	})
}

// emitCopies appends the copies that a view needs, or, for nil, those of outputs.
func (l *list) emitCopies(n *ir.Node) {
	for _, c := range l.copies {
		if c.view == n {
			l.emitCopy(c)
		}
	}
}

func (l *list) emitCopy(c copyNeed) {
	l.pending = append(l.pending, launch{
		Launch: runtime.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Copy: &runtime.Copy{Bytes: c.bytes}, Note: "copy for " + c.what},
		reads:  []span{{c.src, c.bytes}}, writes: []span{{c.dst, c.bytes}}})
}

// lowered is what a family makes of a region.
type lowered struct {
	spec *kernel.Spec
	err  error
}

// spec is the region's kernel. Those of a graph's nodes are made before, at the same time.
func (l *list) spec(n *ir.Node) (*kernel.Spec, error) {
	if at := l.lowered[n]; at != nil {
		return at.spec, at.err
	}
	return l.families.Lower(n, l.context)
}

// lower asks the region's family, then that of its parts, or loop, which may take several.
func (l *list) lower(n *ir.Node) error {
	family := n.Region.Family
	spec, err := l.spec(n)
	if bad := (*kernel.ScheduleError)(nil); errors.As(err, &bad) {
		return err
	}
	switch {
	case err == nil:
		return l.add(n, spec)
	case errors.Is(err, kernel.ErrUnfused):
		return l.lowerUnfused(n)
	case family == ir.FamilyLoop:
		return err
	}
	var names []string
	for _, part := range n.Parts() {
		names = append(names, part.Name)
	}
	l.fallbacks = append(l.fallbacks, Fallback{strings.Join(names, " + "), family, err.Error()})
	if family == ir.FamilyFused {
		return l.lowerUnfused(n)
	}
	return l.loops(n)
}

// lowerUnfused makes a launch for each part of a fused region.
func (l *list) lowerUnfused(n *ir.Node) error {
	for _, part := range n.Parts() {
		if err := l.forward(part); err != nil { // intermediate values, which the fused kernel does not store
			return err
		}
		if err := l.lower(part); err != nil {
			return err
		}
	}
	return nil
}

// loops makes a loop for the results of each size.
func (l *list) loops(n *ir.Node) error {
	for _, part := range n.BySize() {
		spec, err := l.families.Loop(part, l.context)
		if err != nil {
			return err
		}
		if err := l.add(part, spec); err != nil {
			return err
		}
	}
	return nil
}

// add appends the launch of a spec.
func (l *list) add(n *ir.Node, s *kernel.Spec) error {
	out := launch{Launch: runtime.Launch{Grid: s.Grid, Block: s.Block, Shared: s.Shared, Priority: s.Priority, Note: s.Note}, region: n, spec: s, work: s.Work}
	if out.Note == "" {
		out.Note = n.Name
	}
	for _, o := range s.Operands { // constants of the graph are placed before those that the kernel packs
		if o.Value != nil {
			if _, err := l.of(o.Value); err != nil {
				return err
			}
		}
	}
	for i, o := range s.Operands {
		if o.Number != nil {
			out.params = append(out.params, param{Operand: o})
			continue
		}
		at, bytes, write, read, err := l.operand(n, i, o)
		if err != nil {
			return err
		}
		out.params = append(out.params, param{o, at})
		if o.Over != nil {
			from, err := l.of(o.Over)
			if err != nil {
				return err
			}
			l.emitCopy(copyNeed{src: from, dst: at, bytes: bytes, what: "what " + out.Note + " leaves"})
		}
		if write {
			out.writes = append(out.writes, span{at, bytes})
		}
		if read {
			out.reads = append(out.reads, span{at, bytes})
		}
	}
	l.pending = append(l.pending, out)
	return nil
}

func (l *list) operand(n *ir.Node, i int, o kernel.Operand) (at place, bytes int, write, read bool, err error) {
	switch {
	case o.Value != nil:
		at, err = l.of(o.Value)
		return at, o.Value.Type.Bytes(), o.Write, !o.Write || o.Read, err
	case o.Const != nil:
		s := l.storage(fmt.Sprintf("%s#%d", n.Name, i), runtime.ConstantBuffer, len(o.Const))
		s.data = o.Const
		return place{s, 0}, len(o.Const), false, true, nil
	case o.Workspace > 0:
		return place{l.storage(fmt.Sprintf("%s#work%d", n.Name, i), runtime.ArenaBuffer, o.Workspace), 0}, o.Workspace, true, false, nil
	case o.Counter > 0:
		if l.counters == nil {
			l.counters = l.storage("counters", runtime.StateBuffer, 0)
		}
		at := place{l.counters, l.counters.bytes}
		l.counters.bytes += alignUp(o.Counter)
		return at, o.Counter, true, false, nil
	}
	return place{}, 0, false, false, fmt.Errorf("operand %d is neither a pointer nor a number: this is a bug in the kernel family, please report it", i)
}

// emit writes the kernels. Launches of one kernel, some of which prefetch, go on sharing it.
func (d *driver) emit() {
	if d.module == nil {
		return
	}
	byText, as := map[string]*written{}, map[*kernel.Spec]*written{} // repetitions share the spec
	names := map[*kernel.Spec]string{}
	each := func(f func(p *launch)) {
		for _, l := range d.lists {
			for i := range l.pending {
				if p := &l.pending[i]; p.spec != nil {
					f(p)
				}
			}
		}
	}
	var specs []*kernel.Spec
	each(func(p *launch) { specs = append(specs, p.spec) })
	texts := d.writeAll(specs)
	each(func(p *launch) {
		w, ok := as[p.spec]
		if !ok {
			w = texts[p.spec]
			if same, ok := byText[w.text]; ok {
				w = same
			}
			byText[w.text], as[p.spec] = w, w
		}
		w.fetches = w.fetches || p.prefetch.bytes > 0
	})
	fetching := map[*kernel.Spec]*kernel.Spec{}
	specs = nil
	each(func(p *launch) {
		if as[p.spec].fetches && fetching[p.spec] == nil {
			fetching[p.spec] = Fetching(p.spec)
			specs = append(specs, fetching[p.spec])
		}
	})
	texts = d.writeAll(specs)
	each(func(p *launch) {
		spec := p.spec
		w := as[spec]
		p.fetches = w.fetches
		if name, ok := names[spec]; ok {
			p.Kernel = name
			d.info(name).Launches++
			return
		}
		if p.fetches {
			p.spec = fetching[spec]
			w = texts[p.spec]
		}
		p.Kernel = d.kernel(p.spec, w)
		names[spec] = p.Kernel
	})
}

// info is what is known of a kernel of that name.
func (d *driver) info(name string) *runtime.KernelInfo {
	i := slices.IndexFunc(d.infos, func(k runtime.KernelInfo) bool { return k.Name == name })
	return &d.infos[i]
}

// written is a kernel without its name.
type written struct {
	kernels []*ptx.Kernel
	text    string
	fetches bool // a launch of it prefetches
}

func (d *driver) write(s *kernel.Spec) *written {
	probe := ptx.NewModule(d.target.Name)
	s.EmitInto(probe, "probe")
	return &written{kernels: probe.Kernels, text: probe.String()}
}

// writeAll writes different specs at the same time.
func (d *driver) writeAll(specs []*kernel.Spec) map[*kernel.Spec]*written {
	out := map[*kernel.Spec]*written{}
	for _, s := range specs {
		out[s] = nil
	}
	distinct := slices.Collect(maps.Keys(out))
	texts := make([]*written, len(distinct))
	parallel.For(len(distinct), func(i int) { texts[i] = d.write(distinct[i]) })
	for i, s := range distinct {
		out[s] = texts[i]
	}
	return out
}

// kernel returns the name of the spec's kernel as it was written, and adds it to the module unless an equal one is
// there.
func (d *driver) kernel(s *kernel.Spec, w *written) string {
	if name, ok := d.kernels[w.text]; ok {
		d.info(name).Launches++
		return name
	}
	d.stems[s.Stem]++
	name := s.Stem
	if k := d.stems[s.Stem]; k > 1 {
		name = fmt.Sprintf("%s_%d", s.Stem, k)
	}
	for _, k := range w.kernels {
		k.Name = name
		d.module.Kernels = append(d.module.Kernels, k)
	}
	d.kernels[w.text] = name
	d.infos = append(d.infos, runtime.KernelInfo{Name: name, Family: s.Family, Shared: s.Shared, MACs: s.MACs, Schedule: s.Schedule, Reason: s.Reason, Launches: 1})
	return name
}
