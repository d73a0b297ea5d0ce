package codegen

import (
	"cmp"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/runtime"
)

// Prefetch says how kernels bring the weights of later launches into L2. Weights depend on no other launch, so they
// can come from DRAM while earlier launches compute. Unlike loads before griddepcontrol.wait, a prefetch needs no
// resources on an SM that the predecessor occupies. The zero value is the target's default.
type Prefetch struct {
	Off     bool
	NoHints bool    // contractions do not read weights as evict-first, whatever the plan gains by it
	Window  int     // bytes that may lie in L2 before a launch reads them; 0: the best of several, at most maxWindow
	Backlog float64 // µs that requests may keep DRAM busy beyond the end of the launch that asks, so that it has work while a launch drains; 0: backlogUS
}

// With backlogs of 0, 1, 2, 4 and 8 µs policy takes 73.9, 67.7, 63.2, 58.8 and 58.8 µs with cold weights. A device that
// ignores evict-first takes 354 µs for vision, and 289 for a program without the hint (predicted, 2026-11-24).
const (
	maxWindow   = 16 << 20
	backlogUS   = 4.0      // of Prefetch.Backlog
	worthHints  = 0.03     // of the launches' time
	minPrefetch = 16 << 10 // bytes that are worth a prefetch
	lineBytes   = 128      // of L2
	bulkBytes   = 16       // of which the size of a bulk prefetch is a multiple (PTX ISA 9.7.9.25, cp.async.bulk.prefetch)

	maxSlice = ptx.MaxBulkPrefetch &^ (lineBytes - 1) // bytes of a block's slice
)

// weight is a constant in the order in which launches first read them: the stream that is prefetched.
type weight struct {
	at     *storage
	offset int // in the weights blob
	end    int // in the stream, in which each is as long as in the blob, up to the next
	first  int // launch that reads it first
}

// stream lists the entry's constants in the order of their first use, those of a launch by their place in the blob.
func (l *list) stream(v *runtime.Variant, lives map[*storage]life) []weight {
	var out []weight
	for s, at := range lives {
		if s.kind == runtime.ConstantBuffer && s.bytes > 0 {
			out = append(out, weight{at: s, offset: v.Buffers[s.index].Offset, first: at.first})
		}
	}
	slices.SortFunc(out, func(a, b weight) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.offset, b.offset), cmp.Compare(a.at.index, b.at.index))
	})
	end := 0
	for i := range out {
		end += alignUp(out[i].at.bytes)
		out[i].end = end
	}
	return out
}

// streams is what launches and their repetitions read of DRAM: the stream once, or as often, where L2 cannot keep it.
func (l *list) streams(stream []weight, keeps int) []weight {
	if len(stream) == 0 || stream[len(stream)-1].end <= keeps {
		return stream
	}
	var out []weight
	each, all := len(l.pending)/l.repeats, stream[len(stream)-1].end
	for r := range l.repeats {
		for _, w := range stream {
			w.first, w.end = w.first+r*each, w.end+r*all
			out = append(out, w)
		}
	}
	return out
}

// planPrefetch decides what each launch prefetches, and whether contractions read their weights as evict-first: where
// that is allowed, and makes the launches faster by more than worthHints, since what leaves first is not there in the
// next run.
func (l *list) planPrefetch(v *runtime.Variant, lives map[*storage]life, m *cost.Machine, a Prefetch) {
	if a.Off || !m.DependentLaunch {
		return
	}
	stream, keeps := l.stream(v, lives), m.KeptBytes()-v.ArenaBytes
	p := &prefetchPlanner{stream: l.streams(stream, keeps), keeps: keeps, perUS: m.MemoryGBps * 1e3, prefetchRate: m.PrefetchRate, backlog: cmp.Or(a.Backlog, backlogUS)}
	for i := range l.pending {
		p.computes = append(p.computes, l.pending[i].computes(m))
		p.limits = append(p.limits, l.pending[i].prefetchLimit())
	}
	once := !a.NoHints && l.readOnce(stream, lives, m)
	if l.objective != nil {
		p.once = once
		l.choosePrefetch(v, p, a)
		return
	}
	chosen, us := p.best(a.Window)
	if once {
		p.once = true
		if hinted, least := p.best(a.Window); least < us*(1-worthHints) {
			chosen = hinted
		} else {
			p.once = false
		}
	}
	l.ask(chosen, p.once)
}

// ask makes launches ask for what was chosen, and read weights once or not.
func (l *list) ask(chosen []prefetch, once bool) {
	for i := range l.pending {
		l.pending[i].prefetch = chosen[i]
		if spec := l.pending[i].spec; spec != nil && spec.Hints != nil {
			spec.Hints.ReadOnce = once
		}
	}
}

// choosePrefetch chooses the plan of which Entry.Objective says the least, among windows and backlogs.
func (l *list) choosePrefetch(v *runtime.Variant, p *prefetchPlanner, a Prefetch) {
	windows, backlogs := []int{a.Window}, []float64{a.Backlog}
	if a.Window == 0 {
		windows = nil
		for sixteenths := 12; sixteenths <= 16; sixteenths++ {
			windows = append(windows, min(p.keeps/16*sixteenths, maxWindow))
		}
	}
	if a.Backlog == 0 {
		backlogs = []float64{backlogUS / 4, backlogUS / 2, backlogUS * 3 / 4}
	}
	for i := range l.pending {
		p.others = append(p.others, l.pending[i].fetched(v))
	}
	var best []prefetch
	least := math.Inf(1)
	for _, window := range slices.Compact(windows) {
		for _, p.backlog = range backlogs {
			chosen, _ := p.within(window)
			l.ask(chosen, p.once)
			e, works := l.entry()
			if us := l.objective(v, &e, works); us < least {
				least, best = us, chosen
			}
		}
	}
	l.ask(best, p.once)
}

// fetched are the bytes that a launch reads of DRAM besides weights: of inputs, as far as its plan says that it reads
// them.
func (l *launch) fetched(v *runtime.Variant) (bytes int) {
	for _, r := range l.reads {
		if v.Buffers[r.at.index].Kind == runtime.InputBuffer {
			bytes += r.bytes
		}
	}
	if l.work != nil && l.work.Sparse > 0 {
		bytes = int(l.work.Sparse)
	}
	return bytes
}

// best plans for a window, or for 0 for that of several by which the launches take least time.
func (p *prefetchPlanner) best(window int) (chosen []prefetch, us float64) {
	windows := []int{window}
	if window == 0 {
		windows = nil
		for eighths := 2; eighths <= 8; eighths++ {
			windows = append(windows, min(p.keeps/8*eighths, maxWindow))
		}
	}
	us = math.Inf(1)
	for _, w := range windows {
		if c, t := p.within(w); t < us {
			chosen, us = c, t
		}
	}
	return chosen, us
}

// prefetchPlanner is what a plan is made from.
type prefetchPlanner struct {
	stream []weight
	once   bool    // what is read leaves L2 first
	keeps  int     // bytes of weights that L2 keeps
	perUS  float64 // bytes that DRAM delivers to loads

	prefetchRate float64 // of prefetches, as a share of perUS

	backlog  float64   // µs
	computes []float64 // µs of each launch, if its weights are in L2
	limits   []int     // bytes that each launch can prefetch at most; 0: it cannot
	others   []int     // bytes of DRAM that each launch reads besides weights; nil: none
}

// within plans for a window of so many bytes, and returns the predicted time of all launches. It models the launches'
// times and one DRAM channel, which serves requests in order. A launch prefetches as much of the stream as the
// channel can bring while it runs, plus a small backlog, so that no load waits long. L2 must retain a part until it
// is read: it competes with all prefetches issued meanwhile and, unless evicted first, with all weights read
// meanwhile, since reading touches them again.
func (p *prefetchPlanner) within(window int) (chosen []prefetch, us float64) {
	chosen = make([]prefetch, len(p.computes))
	perUS := float64(p.perUS * p.prefetchRate) // of prefetches
	var free float64                           // when the channel has served all requests
	asked, needed, at := 0, 0, 0               // in the stream
	var waiting []struct{ end, from int }      // requests: where they end, and what was needed when they were made
	for i, computes := range p.computes {
		for ; at < len(p.stream) && p.stream[at].first <= i; at++ {
			needed = p.stream[at].end
		}
		if needed > asked {
			free = max(free, us) + float64(needed-asked)/p.perUS
			asked = needed
		}
		if p.others != nil && p.others[i] > 0 {
			free = max(free, us) + float64(p.others[i])/p.perUS
			computes = max(computes, free-us)
		}
		for len(waiting) > 0 && waiting[0].end <= needed {
			waiting = waiting[1:]
		}
		end := max(us+computes, free-float64(asked-needed)/perUS)
		most := needed + window
		if len(waiting) > 0 && !p.once {
			most = min(most, waiting[0].from+p.keeps)
		}
		bytes := min(int((end+p.backlog-max(free, us))*perUS), most-asked, p.limits[i])
		if bytes >= minPrefetch {
			if chosen[i] = run(p.stream, asked, bytes); chosen[i].bytes > 0 {
				asked += chosen[i].stream
				waiting = append(waiting, struct{ end, from int }{asked, needed})
				free = max(free, us) + float64(chosen[i].bytes)/perUS
			}
		}
		us = end
	}
	return chosen, us
}

// prefetchLimit is how many bytes the launch can prefetch: a slice for each block, none larger than one instruction
// brings.
func (l *launch) prefetchLimit() int {
	if l.spec == nil {
		return 0
	}
	return l.spec.Grid[0] * l.spec.Grid[1] * l.spec.Grid[2] * (maxSlice - lineBytes)
}

// readOnce reports whether the entry's weights pass through L2 once a run: it cannot keep them all, and nearly all
// have one reader.
func (l *list) readOnce(stream []weight, lives map[*storage]life, m *cost.Machine) bool {
	all, shared := 0, 0
	for _, w := range stream {
		all += w.at.bytes
		if at := lives[w.at]; at.last != at.first {
			shared += w.at.bytes
		}
	}
	return m.LeavesFirst() && all > m.KeptBytes() && shared < all/10
}

// computes is the time of a launch whose weights are in L2, in µs.
func (l *launch) computes(m *cost.Machine) float64 {
	if l.Copy != nil {
		return m.Copy(l.Copy.Bytes).US
	}
	w := cost.Work{Blocks: 1, Warps: 1, Resident: 1, Loads: 1}
	if l.work != nil {
		w = *l.work
		w.DRAMBytes = 0
	}
	return m.Estimate(&w).US
}

// prefetch is a range of the weights blob that a launch prefetches.
type prefetch struct {
	at     place // in a constant
	bytes  int   // from there on, through the constants that follow it
	stream int   // of them, bytes of the stream
}

// run is the part of the stream from a position on, up to so many bytes, that lies in one piece in the blob.
func run(stream []weight, from, bytes int) (r prefetch) {
	bytes &^= alignment - 1
	i, _ := slices.BinarySearchFunc(stream, from+1, func(w weight, at int) int { return cmp.Compare(w.end, at) })
	if i == len(stream) {
		return r
	}
	inside := func(w *weight) int { return from + r.stream - (w.end - alignUp(w.at.bytes)) }
	w := &stream[i]
	r.at = place{w.at, inside(w)}
	begin, end := w.offset+r.at.offset, 0
	for ; i < len(stream) && r.stream < bytes && (r.stream == 0 || stream[i].offset == begin+r.stream); i++ {
		w = &stream[i]
		r.stream = min(w.end-from, bytes)
		end = min(begin+r.stream, w.offset+w.at.bytes)
	}
	r.bytes = (end - begin) &^ (bulkBytes - 1)
	return r
}

// Fetching is a spec whose kernel begins with a prefetch: thread 0 of each block asks for a slice of a range.
// Pointer, bytes of a slice and of all are parameters, so launches that prefetch different ranges, or none, share the
// kernel.
func Fetching(s *kernel.Spec) *kernel.Spec {
	out := *s
	at := slices.IndexFunc(s.Operands, func(o kernel.Operand) bool { return o.Number != nil })
	if at < 0 {
		at = len(s.Operands)
	}
	number := func(typ string) kernel.Operand { return kernel.Operand{Number: &kernel.Number{Type: typ}} }
	out.Operands = slices.Insert(slices.Clone(s.Operands), at, number("u64"))
	out.Operands = append(out.Operands, number("u32"), number("u32"))
	out.Emit = func(k *ptx.Kernel, params []ptx.Sym) {
		n := len(params)
		emitFetch(k, s.Grid, params[at], params[n-2], params[n-1])
		s.Emit(k, slices.Delete(slices.Clone(params[:n-2]), at, at+1))
	}
	return &out
}

// emitFetch writes the prefetch.
func emitFetch(k *ptx.Kernel, grid [3]int, pointer, slice, all ptx.Sym) {
	tid, block, each, from, total, size := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	p, end := k.Reg(ptx.Pred), k.NewLabel("fetched")
	k.Comment("weights of later launches into L2")
	k.I("mov.u32", tid, ptx.Sym("%tid.x"))
	k.I("setp.ne.u32", p, tid, ptx.Imm(0))
	k.If(p, "bra", end)
	k.I("mov.u32", block, ptx.Sym("%ctaid.x"))
	for _, d := range []struct {
		index  ptx.Sym
		blocks int // of the grid that one step passes over
		n      int
	}{{"%ctaid.y", grid[0], grid[1]}, {"%ctaid.z", grid[0] * grid[1], grid[2]}} {
		if d.n > 1 {
			c := k.Reg(ptx.B32)
			k.I("mov.u32", c, d.index)
			k.I("mad.lo.u32", block, c, ptx.Imm(d.blocks), block)
		}
	}
	k.I("ld.param.u32", each, ptx.At(slice, 0))
	k.I("ld.param.u32", total, ptx.At(all, 0))
	k.I("mul.lo.s32", from, block, each)
	q := k.Reg(ptx.Pred)
	k.I("setp.ge.u32", q, from, total)
	k.If(q, "bra", end)
	k.I("sub.u32", size, total, from)
	k.I("min.u32", size, size, each)
	base, global, address := k.Reg(ptx.B64), k.Reg(ptx.B64), k.Reg(ptx.B64)
	k.I("ld.param.u64", base, ptx.At(pointer, 0))
	k.I("cvta.to.global.u64", global, base)
	k.I("mad.wide.u32", address, from, ptx.Imm(1), global)
	k.I("cp.async.bulk.prefetch.L2.global", ptx.At(address, 0), size)
	k.Place(end)
}

// sliceBytes is what each block prefetches of a range: whole lines, and at most maxSlice of a range within the
// launch's prefetchLimit.
func sliceBytes(bytes, blocks int) int { return (bytes/blocks + lineBytes) &^ (lineBytes - 1) }

// params adds the parameters that Fetching asks for, and says what they make the kernel prefetch.
func (a *prefetch) params(params []runtime.Param, grid [3]int) ([]runtime.Param, *runtime.Access) {
	at := slices.IndexFunc(params, func(p runtime.Param) bool { return p.Buffer < 0 })
	if at < 0 {
		at = len(params)
	}
	pointer, slice, all := runtime.Param{Buffer: -1, Bytes: 8}, runtime.Param{Buffer: -1, Bytes: 4}, runtime.Param{Buffer: -1, Bytes: 4}
	var range_ *runtime.Access
	if a.bytes > 0 {
		blocks := grid[0] * grid[1] * grid[2]
		pointer.Buffer, pointer.Offset = a.at.at.index, a.at.offset
		slice.Value, all.Value = uint64(sliceBytes(a.bytes, blocks)), uint64(a.bytes)
		range_ = &runtime.Access{Buffer: a.at.at.index, Offset: a.at.offset, Bytes: a.bytes}
	}
	return append(slices.Insert(params, at, pointer), slice, all), range_
}
