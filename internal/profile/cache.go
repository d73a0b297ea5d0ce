package profile

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/runtime"
)

// The grain by which L2 is modelled. Constants of small layers lie close together.
const (
	blockBytes    = 16 << 10
	constantBytes = 256     // to which they are aligned, so that no two share one
	coarseBytes   = 8 << 10 // of a block of constants in estimates, at most
)

// l2 is the device's second-level cache. What becomes of a block hangs on its reuse distance: how many bytes were touched since it was touched last, each
// once (cost.Machine.Left). Bytes that have left since, as what is read once, made room when they left and not before: so the greatest distance counts that there
// was at the end of a launch.
type l2 struct {
	left   func(distance float64) float64
	first  bool // what is read once leaves first
	blocks map[int][]cacheLine
	last   []int // sums of bytes by the time of their last touch: a Fenwick tree
	now    int
	ends   []int // of launches of all runs: times
	most   []int // bytes touched after each of them, at the end of any launch since
	turns  map[int]turn
	runs   int // that are done
}

// cacheLine is a block.
type cacheLine struct {
	touched int     // time of the last touch, from 1; 0: never
	bytes   int     // that were touched then
	launch  int     // that touched it, of all runs
	gone    bool    // taken by other models
	dirty   float64 // part of it that is in L2 and differs from memory
	writer  int     // launch that wrote it
	fetched fetch   // prefetch that brought it, in this run; none once it was read
	asked   float64 // part of it that the prefetch asked memory for
}

// fetch is a part of a launch's prefetch: the bytes that DRAM has served by then. Launch is one more than its index; 0: none.
type fetch struct {
	launch int
	bytes  float64
}

// add puts bytes at a time.
func (c *l2) add(time, bytes int) {
	for ; time < len(c.last); time += time & -time {
		c.last[time] += bytes
	}
}

// touchedSince are the bytes whose last touch was after a time.
func (c *l2) touchedSince(time int) (sum int) {
	for at := c.now; at > 0; at -= at & -at {
		sum += c.last[at]
	}
	for ; time > 0; time -= time & -time {
		sum -= c.last[time]
	}
	return sum
}

// lines are the blocks of a space, at least n.
func (c *l2) lines(space, n int) []cacheLine {
	if have := len(c.blocks[space]); have < n {
		c.blocks[space] = append(c.blocks[space], make([]cacheLine, n-have)...)
	}
	return c.blocks[space]
}

// missing is which part of what a launch touches memory has to serve.
type missing struct {
	constants  float64 // share of the constants that it reads
	reads      float64 // share of the rest that it reads
	writes     float64 // share of what it writes that leaves L2 before it is touched again
	fetches    float64 // bytes of what it prefetches
	awaits     fetch   // what must have come of an earlier launch's prefetch
	prefetched float64 // bytes of what it reads that earlier launches' prefetches asked memory for
}

// followed is a launch list whose accesses are followed.
type followed struct {
	v        *runtime.Variant
	launches []runtime.Launch
	states   []runtime.State // of the program: buffers of those with a delay take turns
	cuts     []int           // where blocks of constants begin in the weights blob, if not every constantBytes: fewer of them, for estimates; ascending
	read     [][]float64     // of each launch and range that it declares to read: the part that it did read; nil: all
}

// part is how much of an input's range a launch read. Other buffers count as a whole.
func (f *followed) part(launch, range_ int) float64 {
	if f.read == nil || f.v.Buffers[f.launches[launch].Reads[range_].Buffer].Kind != runtime.InputBuffer {
		return 1
	}
	return f.read[launch][range_]
}

// turn is where a buffer of a state with a delay lies in a run: a run reads what the run so many runs ago wrote, and writes what lies longest.
type turn struct{ first, slots, at int }

// turns are those of buffers, whose places are spaces after all others.
func (f *followed) turns() map[int]turn {
	out, next := map[int]turn{}, len(f.v.Buffers)
	for _, st := range f.states {
		if st.Delay < 2 {
			continue
		}
		for i, b := range f.v.Buffers {
			if b.Kind == runtime.StateBuffer && (b.Name == st.Input || b.Name == st.Output) {
				t := turn{first: next, slots: st.Delay + 1}
				if b.Name == st.Input {
					t.at = 1
				}
				out[i] = t
			}
		}
		next += st.Delay + 1
	}
	return out
}

// misses follows the launches of an entry, in order, on a machine. Warm is a run after others of the same program.
// Cold is one that finds no constants, as after other models.
func misses(f *followed, m *cost.Machine) (warm, cold []missing) {
	launches, runs, touches := f.launches, 4, 0
	for _, st := range f.states {
		runs = max(runs, 4+st.Delay)
	}
	for i := range launches {
		for _, list := range [][]runtime.Access{launches[i].Reads, launches[i].Writes, prefetches(&launches[i])} {
			for _, a := range list {
				_, _, from, to := f.place(a)
				touches += to - from
			}
		}
	}
	c := &l2{left: m.Left, first: m.LeavesFirst(), blocks: map[int][]cacheLine{}, last: make([]int, runs*touches+1), turns: f.turns()}
	for range runs - 1 {
		warm = c.run(f)
	}
	for i := range c.blocks[constantSpace] {
		c.blocks[constantSpace][i].gone = true
	}
	return warm, c.run(f)
}

// cached is what DRAM serves in runs of an entry on a machine.
type cached struct{ warm, cold []missing }

// caches are those of several machines, which differ only in what L2 keeps and what it evicts first.
type caches struct {
	followed
	known map[keeping]cached
}

// keeping is what of a machine decides which bytes stay in L2.
type keeping struct {
	bytes int
	first bool
}

func (c *caches) on(m *cost.Machine) cached {
	kept := keeping{m.KeptBytes(), m.LeavesFirst()}
	if _, ok := c.known[kept]; !ok {
		warm, cold := misses(&c.followed, m)
		c.known[kept] = cached{warm, cold}
	}
	return c.known[kept]
}

// bytes is the size of a block of a space whose blocks are of a size, or of constants.
func (f *followed) bytes(grain, at int) int {
	switch {
	case grain > 0:
		return grain
	case at+1 < len(f.cuts):
		return f.cuts[at+1] - f.cuts[at]
	}
	return coarseBytes
}

// coarse cuts constants into blocks, none of which two share.
func (f *followed) coarse() {
	f.cuts = []int{0}
	for _, b := range f.v.Buffers {
		if b.Kind == runtime.ConstantBuffer {
			for at := 0; at < b.Bytes; at += coarseBytes {
				f.cuts = append(f.cuts, b.Offset+at)
			}
			f.cuts = append(f.cuts, b.Offset+b.Bytes)
		}
	}
	slices.Sort(f.cuts)
	f.cuts = slices.Compact(f.cuts)
}

// touch makes bytes of a block the last that were touched, and returns which part of them memory has to serve.
func (c *l2) touch(b *cacheLine, bytes int) (miss float64) {
	miss = 1
	if b.touched > 0 && !b.gone {
		distance := c.touchedSince(b.touched)
		if b.launch < len(c.most) {
			distance = max(distance, c.most[b.launch]+distance-c.touchedSince(c.ends[b.launch]))
		}
		miss = c.left(float64(distance))
		c.add(b.touched, -b.bytes)
	}
	c.now++
	c.add(c.now, bytes)
	b.touched, b.bytes, b.launch, b.gone = c.now, bytes, len(c.ends), false
	return miss
}

// end notes how many bytes were touched since each launch when another one ends.
func (c *l2) end() {
	for i, at := range c.ends {
		c.most[i] = max(c.most[i], c.touchedSince(at))
	}
	c.ends, c.most = append(c.ends, c.now), append(c.most, 0)
}

// replace takes blocks of inputs away, which the host fills anew.
func (c *l2) replace(v *runtime.Variant) {
	for space, b := range v.Buffers {
		if b.Kind != runtime.InputBuffer {
			continue
		}
		lines := c.blocks[space]
		for i := range lines {
			if b := &lines[i]; b.touched > 0 && !b.gone {
				c.add(b.touched, -b.bytes)
				b.gone = true
			}
		}
	}
}

// prefetches is what a launch prefetches, as a list.
func prefetches(l *runtime.Launch) []runtime.Access {
	if l.Prefetch == nil {
		return nil
	}
	return []runtime.Access{*l.Prefetch}
}

// run touches what the launches of a run touch.
func (c *l2) run(f *followed) []missing {
	launches := f.launches
	out := make([]missing, len(launches))
	written, back := make([]float64, len(launches)), make([]float64, len(launches))
	c.replace(f.v)
	for i := range launches {
		var constants, reads, constantsMissed, readsMissed float64
		for _, a := range prefetches(&launches[i]) {
			space, grain, from, to := f.place(a)
			lines := c.lines(space, to)
			for at := from; at < to; at++ {
				bytes := f.bytes(grain, at)
				if miss := c.touch(&lines[at], bytes); miss > 0 {
					out[i].fetches += float64(miss * float64(bytes))
					lines[at].fetched, lines[at].asked = fetch{i + 1, out[i].fetches}, miss
				}
			}
		}
		use := func(a runtime.Access, writes bool, part float64) {
			space, grain, from, to := f.place(a)
			if t, ok := c.turns[a.Buffer]; ok {
				space = t.first + (c.runs+t.at)%t.slots
			}
			lines := c.lines(space, to)
			for at := from; at < to; at++ {
				b := &lines[at]
				bytes := f.bytes(grain, at)
				miss := c.touch(b, int(part*float64(bytes)))
				if f := b.fetched; f.launch > out[i].awaits.launch || f.launch == out[i].awaits.launch && f.bytes > out[i].awaits.bytes {
					out[i].awaits = f
				}
				if b.fetched.launch > 0 {
					out[i].prefetched += float64(b.asked * float64(bytes))
				}
				b.fetched = fetch{}
				if space == constantSpace && launches[i].ReadOnce && c.first { // it leaves first, so it takes no place
					c.add(b.touched, -b.bytes)
					b.gone = true
				}
				back[b.writer] += float64(miss * b.dirty)
				if b.dirty = float64((1 - miss) * b.dirty); writes {
					b.dirty, b.writer = 1, i
					written[i]++
				}
				switch {
				case writes:
				case space == constantSpace:
					weight := 1.0
					if grain == 0 {
						weight = float64(bytes)
					}
					constants, constantsMissed = constants+weight, constantsMissed+float64(miss*weight)
				default:
					reads, readsMissed = reads+part, readsMissed+float64(miss*part)
				}
			}
		}
		l := &launches[i]
		for k, a := range l.Reads {
			use(a, false, f.part(i, k))
		}
		for _, a := range l.Writes {
			use(a, true, 1)
		}
		out[i].constants, out[i].reads = share(constantsMissed, constants), share(readsMissed, reads)
		c.end()
	}
	for i := range out {
		out[i].writes = min(1, share(back[i], written[i]))
	}
	c.runs++
	return out
}

func share(part, all float64) float64 {
	if all == 0 {
		return 0
	}
	return part / all
}

// Spaces in which offsets of buffers count; others are buffers by themselves.
const (
	arenaSpace    = -1
	constantSpace = -2
)

// place is where an access lies: its space, the size of blocks there, and which blocks it touches.
func (f *followed) place(a runtime.Access) (space, grain, from, to int) {
	b, begin := &f.v.Buffers[a.Buffer], a.Offset
	space, grain = a.Buffer, blockBytes
	switch b.Kind {
	case runtime.ArenaBuffer:
		space, begin = arenaSpace, b.Offset+a.Offset
	case runtime.ConstantBuffer:
		space, grain, begin = constantSpace, constantBytes, b.Offset+a.Offset
		if f.cuts != nil {
			from, _ = slices.BinarySearch(f.cuts, begin+1)
			to, _ = slices.BinarySearch(f.cuts, begin+max(a.Bytes, 1))
			return space, 0, from - 1, to
		}
	}
	return space, grain, begin / grain, (begin+max(a.Bytes, 1)-1)/grain + 1
}
