package codegen

import (
	"fmt"
	"sort"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Lower turns a region into a kernel; families are functions of this type.
type Lower func(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error)

// Families are the lowerings in use. A family that refuses a region says why, and Loop takes it: loop can lower
// everything.
type Families struct {
	Contraction, Window, Loop Lower
}

// Result is the code for one target, and what was noticed on the way.
type Result struct {
	Variant   runtime.Variant
	Regions   []*ir.Node // that the launches of entry run compute; nil for a copy
	Fallbacks []Fallback
}

// Fallback says that a region did not get the family it was meant for.
type Fallback struct {
	Region, Family, Reason string
}

// Generate lowers a graph of Regions for one target. Constants are added to w.
func Generate(g *ir.Graph, t *target.Target, f Families, w *Weights) (*Result, error) {
	p, err := placeValues(g)
	if err != nil {
		return nil, err
	}
	d := &driver{placer: p, target: t, families: f, weights: w, module: ptx.NewModule(t.Name), kernels: map[string]string{}, stems: map[string]int{}}
	d.context = &kernel.Context{Target: t, Align: func(v *ir.Value) int {
		at, err := p.of(v)
		if err != nil {
			return 1
		}
		return at.align()
	}}
	if err := d.run(); err != nil {
		return nil, err
	}
	return d.finish(), nil
}

type driver struct {
	*placer
	target   *target.Target
	families Families
	weights  *Weights
	context  *kernel.Context
	module   *ptx.Module

	kernels   map[string]string // emitted text without the name → kernel name
	stems     map[string]int
	infos     []runtime.KernelInfo
	pending   []launch
	counters  *storage
	fallbacks []Fallback
}

// launch is a launch before buffers have indices.
type launch struct {
	runtime.Launch
	region        *ir.Node // nil for a copy
	params        []place
	reads, writes []span2
}

// span2 is a range of a storage.
type span2 struct {
	place
	bytes int
}

func (d *driver) run() error {
	for _, n := range d.graph.Nodes {
		if isView(n) {
			d.emitCopies(n)
			continue
		}
		if isEmpty(n) {
			continue
		}
		if err := d.lower(n); err != nil {
			return fmt.Errorf("region %q: %w", n.Name, err)
		}
	}
	d.emitCopies(nil)
	return nil
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

// emitCopies appends the copies that a view needs, or, for nil, those of outputs.
func (d *driver) emitCopies(n *ir.Node) {
	for _, c := range d.copies {
		if c.view == n {
			d.emitCopy(c)
		}
	}
}

func (d *driver) emitCopy(c copyNeed) {
	d.pending = append(d.pending, launch{
		Launch: runtime.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Copy: &runtime.Copy{Bytes: c.bytes}, Note: "copy for " + c.what},
		reads:  []span2{{c.src, c.bytes}}, writes: []span2{{c.dst, c.bytes}}})
}

// lower asks the region's family, then loop.
func (d *driver) lower(n *ir.Node) error {
	family := n.Attrs.String("family", "")
	first := d.families.Loop
	switch family {
	case "contraction":
		first = d.families.Contraction
	case "window":
		first = d.families.Window
	}
	spec, err := first(n, d.context)
	if err != nil && family != "loop" {
		d.fallbacks = append(d.fallbacks, Fallback{n.Name, family, err.Error()})
		spec, err = d.families.Loop(n, d.context)
	}
	if err != nil {
		return err
	}
	return d.add(n, spec)
}

// add appends the launch of a spec.
func (d *driver) add(n *ir.Node, s *kernel.Spec) error {
	l := launch{Launch: runtime.Launch{Grid: s.Grid, Block: s.Block, Shared: s.Shared, Note: s.Note}, region: n}
	if l.Note == "" {
		l.Note = n.Name
	}
	for i, o := range s.Operands {
		at, bytes, write, read, err := d.operand(n, i, o)
		if err != nil {
			return err
		}
		l.params = append(l.params, at)
		if write {
			l.writes = append(l.writes, span2{at, bytes})
		}
		if read {
			l.reads = append(l.reads, span2{at, bytes})
		}
	}
	l.Kernel = d.kernel(s)
	d.pending = append(d.pending, l)
	return nil
}

func (d *driver) operand(n *ir.Node, i int, o kernel.Operand) (at place, bytes int, write, read bool, err error) {
	switch {
	case o.Value != nil:
		at, err = d.of(o.Value)
		return at, o.Value.Type.Bytes(), o.Write, !o.Write || o.Read, err
	case o.Const != nil:
		s := d.storage(fmt.Sprintf("%s#%d", n.Name, i), runtime.ConstantBuffer, len(o.Const))
		s.data = o.Const
		return place{s, 0}, len(o.Const), false, true, nil
	case o.Workspace > 0:
		return place{d.storage(fmt.Sprintf("%s#work%d", n.Name, i), runtime.ArenaBuffer, o.Workspace), 0}, o.Workspace, true, false, nil
	case o.Counter > 0:
		if d.counters == nil {
			d.counters = d.storage("counters", runtime.StateBuffer, 0)
		}
		at := place{d.counters, d.counters.bytes}
		d.counters.bytes += alignUp(o.Counter)
		return at, o.Counter, true, false, nil
	}
	return place{}, 0, false, false, fmt.Errorf("operand %d points to nothing", i)
}

// kernel emits the spec unless an equal kernel is there, and returns its name.
func (d *driver) kernel(s *kernel.Spec) string {
	probe := ptx.NewModule(d.target.Name)
	s.EmitInto(probe, "probe")
	text := probe.String()
	if name, ok := d.kernels[text]; ok {
		for i := range d.infos {
			if d.infos[i].Name == name {
				d.infos[i].Launches++
			}
		}
		return name
	}
	d.stems[s.Stem]++
	name := s.Stem
	if k := d.stems[s.Stem]; k > 1 {
		name = fmt.Sprintf("%s_%d", s.Stem, k)
	}
	for _, k := range probe.Kernels {
		k.Name = name
		d.module.Kernels = append(d.module.Kernels, k)
	}
	d.kernels[text] = name
	d.infos = append(d.infos, runtime.KernelInfo{Name: name, Family: s.Family, Shared: s.Shared, MACs: s.MACs, Schedule: s.Schedule, Reason: s.Reason, Launches: 1})
	return name
}

// finish numbers the buffers, plans the arena and writes the launch list.
func (d *driver) finish() *Result {
	v := runtime.Variant{Target: d.target.Name, Kernels: d.infos, PTX: d.module.String()}
	d.liveRanges()
	var arena []*planned
	var arenaIndex []int
	for _, s := range d.all {
		if !s.used && s.kind != runtime.InputBuffer && s.kind != runtime.OutputBuffer {
			continue
		}
		b := runtime.Buffer{Name: s.name, Kind: s.kind, Bytes: s.bytes}
		switch s.kind {
		case runtime.ConstantBuffer:
			b.Offset = d.weights.Add(s.data)
		case runtime.ArenaBuffer:
			arena = append(arena, &planned{bytes: s.bytes, first: s.first, last: s.last})
			arenaIndex = append(arenaIndex, len(v.Buffers))
		}
		s.index = len(v.Buffers)
		v.Buffers = append(v.Buffers, b)
	}
	v.ArenaBytes, v.LiveBytes = planArena(arena)
	for i, r := range arena {
		v.Buffers[arenaIndex[i]].Offset = r.offset
	}
	launches := make([]runtime.Launch, len(d.pending))
	regions := make([]*ir.Node, len(d.pending))
	for i, l := range d.pending {
		regions[i] = l.region
		launches[i] = l.resolve()
		launches[i].Dependent = d.target.DependentLaunch && i > 0 && l.Copy == nil && d.pending[i-1].Copy == nil
	}
	addHazards(&v, launches)
	v.Entries = []runtime.Entry{{Name: "run", Launches: launches}}
	return &Result{Variant: v, Regions: regions, Fallbacks: d.fallbacks}
}

func (d *driver) liveRanges() {
	touch := func(s *storage, t int) {
		if !s.used {
			s.used, s.first = true, t
		}
		s.last = t
	}
	for t, l := range d.pending {
		for _, r := range append(append([]span2{}, l.reads...), l.writes...) {
			touch(r.at, t)
		}
	}
}

func (l *launch) resolve() runtime.Launch {
	out := l.Launch
	access := func(list []span2) []runtime.Access {
		acc := make([]runtime.Access, 0, len(list))
		for _, r := range list {
			acc = append(acc, runtime.Access{Buffer: r.at.index, Offset: r.offset, Bytes: r.bytes})
		}
		sort.SliceStable(acc, func(i, j int) bool { return acc[i].Buffer < acc[j].Buffer })
		return acc
	}
	out.Reads, out.Writes = access(l.reads), access(l.writes)
	if out.Copy != nil {
		c := *out.Copy
		c.Src, c.Dst = out.Reads[0], out.Writes[0]
		out.Copy = &c
	}
	out.Params = []runtime.Param{}
	for _, p := range l.params {
		out.Params = append(out.Params, runtime.Param{Buffer: p.at.index, Offset: p.offset, Bytes: 8})
	}
	return out
}
