package codegen

import (
	"sort"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// life is the first and the last launch that touch a storage.
type life struct{ first, last int }

// lives are those of the storages that the list touches.
func (l *list) lives() map[*storage]life {
	all := map[*storage]life{}
	for t, p := range l.pending {
		for _, spans := range [][]span2{p.reads, p.writes} {
			for _, r := range spans {
				at, ok := all[r.at]
				if !ok {
					at.first = t
				}
				all[r.at] = life{at.first, t}
			}
		}
	}
	return all
}

// keep decides where the new value of each kept input is written: over the old one, if every launch that touches the old
// value comes before the first that writes the new one; else to the arena, and a copy at the end carries it over.
func (l *list) keep() {
	lives := l.lives()
	for _, f := range l.feedback {
		old, read := lives[f.old]
		next, written := lives[f.next]
		if !read || !written || old.last < next.first {
			f.next.into = f.old
			continue
		}
		l.emitCopy(copyNeed{src: place{f.next, 0}, dst: place{f.old, 0}, bytes: f.old.bytes, what: "state " + f.old.name})
	}
}

// finish numbers the buffers, plans the arena and writes the launch lists.
func (d *driver) finish() *Result {
	r := &Result{Fallbacks: d.fallbacks}
	v := &r.Variant
	v.Target, v.Kernels, v.PTX = d.target.Name, d.infos, d.module.String()
	var lives []map[*storage]life
	for _, l := range d.lists {
		lives = append(lives, l.lives())
	}
	d.number(v, lives)
	for i, l := range d.lists {
		d.plan(v, lives[i])
		launches := make([]runtime.Launch, len(l.pending))
		regions := make([]*ir.Node, len(l.pending))
		for i, p := range l.pending {
			regions[i] = p.region
			launches[i] = p.resolve()
			launches[i].Dependent = d.target.DependentLaunch && i > 0 && p.Copy == nil && l.pending[i-1].Copy == nil
		}
		r.Regions = append(r.Regions, regions)
		v.Entries = append(v.Entries, runtime.Entry{Name: l.name, Launches: launches})
	}
	for _, e := range v.Entries {
		v.Order(e.Launches)
	}
	return r
}

// number makes the variant's buffers. What the program's user can name is there even if no launch touches it.
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
			b.Offset = d.weights.Add(s.data)
		case runtime.VariableBuffer:
			b.Offset = d.weights.AddVariable(s.name, s.data)
		}
		s.index = len(v.Buffers)
		v.Buffers = append(v.Buffers, b)
	}
}

// plan gives the arena buffers of one entry their offsets. Entries run one after the other, so the largest sizes the arena.
func (d *driver) plan(v *runtime.Variant, lives map[*storage]life) {
	var ranges []*planned
	var index []int
	for _, s := range d.buffers.all {
		if at, touched := lives[s]; touched && s.kind == runtime.ArenaBuffer && s.into == nil {
			ranges = append(ranges, &planned{bytes: s.bytes, first: at.first, last: at.last})
			index = append(index, s.index)
		}
	}
	arena, live := planArena(ranges)
	v.ArenaBytes, v.LiveBytes = max(v.ArenaBytes, arena), max(v.LiveBytes, live)
	for i, r := range ranges {
		v.Buffers[index[i]].Offset = r.offset
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
