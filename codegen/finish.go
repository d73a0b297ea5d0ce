package codegen

import (
	"slices"
	"sort"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// life is the first and the last launch that touch a storage.
type life struct{ first, last int }

// livesOf are the lives of the storages that launches access. What a batch prefix's slices are joined in lives from
// the first launch on, since the prefix runs again before the last of them is read.
func livesOf(launches []launch) map[*storage]life {
	all := map[*storage]life{}
	for t, p := range launches {
		for _, spans := range [][]span{p.reads, p.writes} {
			for _, r := range spans {
				at, ok := all[r.at]
				if !ok && !r.at.joins() {
					at.first = t
				}
				all[r.at] = life{at.first, t}
			}
		}
	}
	return all
}

// keep decides where the new value of each state binding is written. It overwrites the old one if every launch that
// accesses the old value comes before the first that writes the new one, or is that launch and computes each element
// from the old one alone. Otherwise it goes to the arena, and a copy at the end carries it over. A copy of an old
// value to itself is dropped.
func (l *list) keep() {
	lives := livesOf(l.pending)
	for _, f := range l.feedback {
		old, read := lives[f.old]
		next, written := lives[f.next]
		if !read || !written || old.last < next.first || old.last == next.first && l.overwrites(&l.pending[next.first], f) {
			f.next.into = f.old
			continue
		}
		l.emitCopy(copyNeed{src: place{f.next, 0}, dst: place{f.old, 0}, bytes: f.next.bytes, what: "state " + f.old.name})
	}
	l.pending = slices.DeleteFunc(l.pending, func(p launch) bool {
		return p.Copy != nil && p.reads[0].offset == p.writes[0].offset && p.reads[0].at == p.writes[0].at.into
	})
}

// overwrites reports whether a launch that reads an old value may write the new one over it: a loop without sums, in
// which no element depends on another of that value. Its threads load all that they need before they store.
func (l *list) overwrites(p *launch, f feedback) bool {
	n := p.region
	if p.Copy != nil {
		return true
	}
	if p.joint || !n.IsFamily(ir.FamilyLoop) || n.Region.Members > 0 {
		return false
	}
	for _, v := range n.Outputs {
		if v.Type.DType.Bits() < 32 { // threads share words
			return false
		}
	}
	own := map[*ir.Value]bool{} // that depend on the old value, element by element
	for i, v := range n.Inputs {
		if at, err := l.of(v); err == nil && at.at == f.old {
			if at.offset != 0 || v.Type.Bytes() != f.next.bytes {
				return false
			}
			own[n.Region.Body.Inputs[i]] = true
		}
	}
	for _, m := range n.Region.Body.Nodes {
		if m.Role() != ir.RoleLight {
			return false
		}
		for i, v := range m.Inputs {
			if v == nil || !own[v] {
				continue
			}
			if m.Outputs[0].Type.Numel() != v.Type.Numel() || !m.PullsSame(i) {
				return false
			}
			own[m.Outputs[0]] = true
		}
	}
	return true
}

// finish numbers the buffers, plans the arena and writes the launch lists.
func (d *driver) finish() *Result {
	r := &Result{Fallbacks: d.fallbacks}
	v := &r.Variant
	var lives []map[*storage]life
	for _, l := range d.lists {
		lives = append(lives, livesOf(l.pending))
	}
	d.number(v, lives)
	for i := range d.lists {
		d.assignOffsets(v, lives[i])
	}
	for _, l := range d.lists {
		l.repeat()
		l.planPrefetch(v, livesOf(l.once()), cost.Of(d.target), l.fetch)
	}
	v.Target = d.target.Name
	if d.module != nil {
		d.emit()
		d.document()
		v.Kernels, v.PTX = d.infos, d.module.String()
	}
	for _, l := range d.lists {
		regions := make([]*ir.Node, len(l.pending))
		constants := make([][]int, len(l.pending))
		for i, p := range l.pending {
			regions[i], constants[i] = p.region, made(p.region, p.spec)
		}
		e, works := l.entry()
		r.Regions, r.Works, r.Places = append(r.Regions, regions), append(r.Works, works), append(r.Places, l.accesses())
		r.Made = append(r.Made, constants)
		v.Entries = append(v.Entries, e)
	}
	for _, e := range v.Entries {
		v.Order(e.Launches)
	}
	return r
}

// entry is the launch list as it is, and what its launches were planned by.
func (l *list) entry() (runtime.Entry, []*cost.Work) {
	launches, works := make([]runtime.Launch, len(l.pending)), make([]*cost.Work, len(l.pending))
	for i := range l.pending {
		p := &l.pending[i]
		launches[i], works[i] = p.resolve(), p.work
		launches[i].Dependent = l.target.DependentLaunch && i > 0 && p.Copy == nil && l.pending[i-1].Copy == nil
	}
	return runtime.Entry{Name: l.name, Launches: launches, Repeats: l.more(), Fronts: l.prefixRepeats * l.repeats}, works
}

// more is Entry.Repeats, which leaves out one.
func (l *list) more() int {
	if l.repeats == 1 {
		return 0
	}
	return l.repeats
}

// accesses are the places of the entry's values in the variant's buffers.
func (l *list) accesses() map[*ir.Value]runtime.Access {
	out := map[*ir.Value]runtime.Access{}
	for v, at := range l.places {
		if !v.IsConst() && at.at.index >= 0 {
			out[v] = runtime.Access{Buffer: at.at.index, Offset: at.offset, Bytes: v.Type.Bytes()}
		}
	}
	return out
}

// number makes the variant's buffers. Those that a user can name exist even if no launch touches them.
func (d *driver) number(v *runtime.Variant, lives []map[*storage]life) {
	for _, s := range d.buffers.all {
		used := false
		for _, l := range lives {
			_, touched := l[s]
			used = used || touched
		}
		switch {
		case s.into != nil:
			s.index = s.into.index
			continue
		case !used && (s.kind == runtime.ArenaBuffer || s.kind == runtime.ConstantBuffer):
			continue
		}
		b := runtime.Buffer{Name: s.name, Kind: s.kind, Bytes: s.bytes}
		switch s.kind {
		case runtime.ConstantBuffer:
			if b.Offset = d.planned; d.weights != nil {
				b.Offset = d.weights.Add(s.data)
			}
			d.planned += alignUp(s.bytes)
		case runtime.VariableBuffer:
			if d.weights != nil {
				b.Offset = d.weights.AddVariable(s.name, s.data)
			}
		}
		s.index = len(v.Buffers)
		v.Buffers = append(v.Buffers, b)
	}
}

// assignOffsets gives the arena buffers of one entry their offsets. Entries run one after the other, so the largest
// sizes the arena.
func (d *driver) assignOffsets(v *runtime.Variant, lives map[*storage]life) {
	var ranges []*arenaRange
	var index []int
	for _, s := range d.buffers.all {
		if at, touched := lives[s]; touched && s.kind == runtime.ArenaBuffer && s.into == nil {
			ranges = append(ranges, &arenaRange{bytes: s.bytes, first: at.first, last: at.last})
			index = append(index, s.index)
		}
	}
	arena, live := packArena(ranges)
	v.ArenaBytes, v.LiveBytes = max(v.ArenaBytes, arena), max(v.LiveBytes, live)
	for i, r := range ranges {
		v.Buffers[index[i]].Offset = r.offset
	}
}

// resolve gives buffers their indices.
func (l *launch) resolve() runtime.Launch {
	out := l.Launch
	out.Reads, out.Writes = accesses(l.reads), accesses(l.writes)
	if out.Copy != nil {
		c := *out.Copy
		c.Src, c.Dst = out.Reads[0], out.Writes[0]
		out.Copy = &c
	}
	out.Params = []runtime.Param{}
	for _, p := range l.params {
		q := runtime.Param{Buffer: -1, Bytes: 8}
		if p.Number != nil {
			q.Value, q.Bytes = p.Number.Bits, ptx.Param{Type: p.Number.Type}.Size()
		} else {
			q.Buffer, q.Offset = p.at.index, p.offset
		}
		out.Params = append(out.Params, q)
	}
	out.ReadOnce = l.spec != nil && l.spec.Hints != nil && l.spec.Hints.ReadOnce
	if l.fetches || l.Kernel == "" && l.prefetch.bytes > 0 { // the latter is planned only
		out.Params, out.Prefetch = l.prefetch.params(out.Params, l.Grid)
	}
	return out
}

// accesses are ranges of buffers, sorted by buffer.
func accesses(list []span) []runtime.Access {
	acc := make([]runtime.Access, 0, len(list))
	for _, r := range list {
		acc = append(acc, runtime.Access{Buffer: r.at.index, Offset: r.offset, Bytes: r.bytes})
	}
	sort.SliceStable(acc, func(i, j int) bool { return acc[i].Buffer < acc[j].Buffer })
	return acc
}
