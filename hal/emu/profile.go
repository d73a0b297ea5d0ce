package emu

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Counts is what a launch did, counted while it ran.
type Counts struct {
	Op       int // index in the graph
	Kernel   string
	Grid     [3]int
	Block    [3]int
	Shared   int // bytes of dynamic shared memory of a block
	Sites    []Site
	Memories []Touched
	Reads    []int64 // of each range that the launch declares to read: sectors of 32 bytes that it did read, each counted once
}

// Site is what was counted at one instruction of a kernel.
type Site struct {
	Line  int
	Instr *ptx.Instr
	Warps int64 // times that a warp issued it
	Lanes int64 // threads that executed it

	Sectors     int64 // 32-byte sectors of global memory that its warps requested
	SectorBytes int64 // bytes of those sectors that they used
	L2Sectors   int64 // those of Sectors that would miss a block's first-level cache of 64 KB
	Wavefronts  int64 // passes through shared memory
	Conflicts   int64 // those of Wavefronts that bank conflicts add
	Divergent   int64 // of a branch: times that it split a warp
}

// Touched is what a launch used of one allocation.
type Touched struct {
	Memory                hal.Memory
	Constant              bool // declared so by the launch
	ReadBytes, WriteBytes int64
	ReadSectors           int64 // of 32 bytes, each counted once
	WriteSectors          int64
	PrefetchSectors       int64 // brought into L2 by bulk prefetches
}

// profile collects the counts of a launch from its blocks.
type profile struct {
	mu       sync.Mutex
	sites    []Site
	memories []footprint
}

// footprint marks the bytes of a memory that were read and written, in pages that are made when first needed.
type footprint struct {
	mem                   *memory
	read, write, prefetch []atomic.Pointer[page]
}

// page marks the bytes of pageSectors sectors of 32 bytes: one word per sector, one bit per byte.
type page [pageSectors]uint32

const pageSectors = 1024

func newProfile(l *launch) *profile {
	p := &profile{sites: make([]Site, len(l.prog.code))}
	for i := range l.prog.code {
		p.sites[i].Line, p.sites[i].Instr = l.prog.code[i].stmt.Line, l.prog.code[i].stmt.Instr
	}
	for _, m := range l.memories {
		n := (len(m.data) + 32*pageSectors - 1) / (32 * pageSectors)
		p.memories = append(p.memories, footprint{m, make([]atomic.Pointer[page], n), make([]atomic.Pointer[page], n), make([]atomic.Pointer[page], n)})
	}
	return p
}

// add takes over a block's counts and zeroes them.
func (p *profile) add(sites []Site) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range sites {
		s, t := &sites[i], &p.sites[i]
		t.Warps += s.Warps
		t.Lanes += s.Lanes
		t.Sectors += s.Sectors
		t.SectorBytes += s.SectorBytes
		t.L2Sectors += s.L2Sectors
		t.Wavefronts += s.Wavefronts
		t.Conflicts += s.Conflicts
		t.Divergent += s.Divergent
		*s = Site{}
	}
}

// counts is the launch's result.
func (p *profile) counts(op int, n *node) *Counts {
	c := &Counts{Op: op, Kernel: n.op.Kernel, Grid: n.op.Grid, Block: n.op.Block, Shared: n.op.Shared}
	for _, s := range p.sites {
		if s.Warps > 0 && s.Instr != nil {
			c.Sites = append(c.Sites, s)
		}
	}
	c.Reads = make([]int64, len(n.op.Reads))
	for _, f := range p.memories {
		t := Touched{Memory: f.mem}
		t.ReadBytes, t.ReadSectors = used(f.read)
		t.WriteBytes, t.WriteSectors = used(f.write)
		_, t.PrefetchSectors = used(f.prefetch)
		for i, r := range n.op.Reads {
			if r.Memory == hal.Memory(f.mem) && r.Bytes > 0 {
				c.Reads[i] = usedIn(f.read, r.Offset/32, (r.Offset+r.Bytes-1)/32)
			}
		}
		for _, r := range n.op.Reads {
			t.Constant = t.Constant || r.Constant && r.Memory == hal.Memory(f.mem)
		}
		if t.ReadBytes+t.WriteBytes+t.PrefetchSectors > 0 {
			c.Memories = append(c.Memories, t)
		}
	}
	return c
}

func used(pages []atomic.Pointer[page]) (bytes, n int64) {
	for i := range pages {
		p := pages[i].Load()
		if p == nil {
			continue
		}
		for _, s := range p {
			if s != 0 {
				bytes += int64(bits.OnesCount32(s))
				n++
			}
		}
	}
	return bytes, n
}

// usedIn counts the used sectors from one to another, both included.
func usedIn(pages []atomic.Pointer[page], from, to int) (n int64) {
	for at := from; at <= to; {
		i := at / pageSectors
		end := min(to, (i+1)*pageSectors-1)
		if p := pages[i].Load(); p != nil {
			for _, s := range p[at%pageSectors : end%pageSectors+1] {
				if s != 0 {
					n++
				}
			}
		}
		at = end + 1
	}
	return n
}

// advance runs the warp, counting where the launch is profiled.
func (w *warp) advance(budget int64) int64 {
	p := w.b.l.profile
	if p == nil {
		if n := w.b.native; n != nil && !w.b.l.dev.engine.steps && budget > 1 {
			return w.runNative(n, budget)
		}
		return w.run(budget)
	}
	code, native, executes := w.b.l.prog.code, w.stepping(), w.b.l.executes
	var n int64
	for ; n < budget && w.state == ready; n++ {
		if w.pc >= w.nextPC {
			w.merge()
		}
		in := &code[w.pc]
		mask := w.executing(in)
		w.count(p, in, &w.b.sites[w.pc], mask)
		if executes != nil && !executes[w.pc] {
			w.pc++
			continue
		}
		if native != nil && mask != 0 && in.kind < kindBranch && w.step(native, mask) {
			w.pc++
			continue
		}
		w.run(1)
	}
	return n
}

// count adds what an instruction is about to do to its site.
func (w *warp) count(p *profile, in *inst, s *Site, mask uint32) {
	s.Warps++
	s.Lanes += int64(bits.OnesCount32(mask))
	if in.kind < kindBranch {
		return
	}
	t := &w.b.touched
	t.n = 0
	global := func(size uint64) {
		for m := mask; m != 0; m &= m - 1 {
			t.add(w.q[in.a][bits.TrailingZeros32(m)&31]+uint64(in.imm), size)
		}
	}
	switch does := in.def.Does; {
	case does == ptx.Branch:
		if mask != 0 && mask != w.mask {
			s.Divergent++
		}
	case does == ptx.Fence:
		clear(w.b.cache[:])
	case in.kind == kindGlobal:
		load := does == ptx.Load
		global(uint64(in.size) * uint64(len(in.vec)))
		t.count(p, s, load, !load)
		s.L2Sectors += t.misses(w.b.cache, load && in.def.Order == ptx.Plain)
	case does == ptx.Atomic && in.def.Args[1].Space == "shared":
		w.wavefronts(s, in.a, int32(in.imm), int(in.size), mask)
	case does == ptx.Atomic:
		global(uint64(in.size))
		t.count(p, s, true, true)
		s.L2Sectors += t.misses(w.b.cache, false)
	case does == ptx.CopyAsync:
		for l := range lanes(mask) {
			if n := uint64(w.r[in.b][l]); n > 0 {
				t.add(w.q[in.a][l]+uint64(in.imm), min(n, uint64(in.size)))
			}
		}
		t.count(p, s, true, false)
		s.L2Sectors += t.misses(w.b.cache, in.size < 16) // .cg, which copies 16 bytes, goes past the first level
		w.wavefronts(s, in.d, in.vec[0], int(in.size), mask)
	case does == ptx.Prefetch && in.b >= 0:
		for l := range lanes(mask) {
			p.prefetched(w.q[in.a][l]+uint64(in.imm), uint64(w.r[in.b][l]))
		}
	case in.kind == kindShared:
		w.wavefronts(s, in.a, int32(in.imm), int(in.size)*len(in.vec), mask)
	case does == ptx.LoadMatrix || does == ptx.StoreMatrix:
		w.wavefronts(s, in.a, int32(in.imm), 16, mask)
	}
}

// sectors are the 32-byte sectors that a warp's access touches, with a bit for each byte used.
type sectors struct {
	n    int
	id   [64]uint64
	mask [64]uint32
}

func (t *sectors) add(addr, size uint64) {
	for size > 0 {
		id, at := addr/32, addr%32
		n := min(size, 32-at)
		m := uint32((uint64(1)<<n - 1) << at)
		i := t.n - 1
		for i >= 0 && t.id[i] != id {
			i--
		}
		switch {
		case i >= 0:
			t.mask[i] |= m
		case t.n < len(t.id):
			t.id[t.n], t.mask[t.n] = id, m
			t.n++
		}
		addr, size = addr+n, size-n
	}
}

func (t *sectors) count(p *profile, s *Site, read, write bool) {
	s.Sectors += int64(t.n)
	for i := range t.n {
		s.SectorBytes += int64(bits.OnesCount32(t.mask[i]))
		for j := range p.memories {
			f := &p.memories[j]
			at := t.id[i] - f.mem.addr/32 // memory is aligned to more than a sector
			if at >= uint64(len(f.mem.data)+31)/32 {
				continue
			}
			if read {
				mark(&f.read[at/pageSectors], at%pageSectors, t.mask[i])
			}
			if write {
				mark(&f.write[at/pageSectors], at%pageSectors, t.mask[i])
			}
			break
		}
	}
}

// prefetched marks what a bulk prefetch names, where that is in a memory.
func (p *profile) prefetched(addr, bytes uint64) {
	for j := range p.memories {
		f := &p.memories[j]
		if s := f.mem.span(); addr < s.lo || addr > s.hi || bytes > s.hi-addr {
			continue
		}
		from := addr - f.mem.addr
		for at := from / 32; 32*at < from+bytes; at++ {
			mark(&f.prefetch[at/pageSectors], at%pageSectors, ^uint32(0))
		}
		return
	}
}

// cache is a block's own first-level cache, so that counts do not depend on the order of blocks; direct-mapped. A
// fence empties it: what other blocks wrote is in L2. What the last block of a split K reads after its fence then
// does not depend on which block is the last.
type cache [cacheSectors]uint64

const cacheSectors = 2048

// misses counts the sectors that the first level does not hold; accesses that bypass it always miss.
func (t *sectors) misses(c *cache, cached bool) (n int64) {
	if !cached {
		return int64(t.n)
	}
	for _, id := range t.id[:t.n] {
		if e := &c[id%cacheSectors]; *e != id {
			*e = id
			n++
		}
	}
	return n
}

func mark(at *atomic.Pointer[page], sector uint64, m uint32) {
	p := at.Load()
	if p == nil {
		at.CompareAndSwap(nil, new(page))
		p = at.Load()
	}
	if w := &p[sector]; atomic.LoadUint32(w)&m != m {
		atomic.OrUint32(w, m)
	}
}

// wavefronts counts the passes of an access through shared memory: 32 banks of 4 bytes; a warp's 8-byte accesses go
// in halves, 16-byte accesses in quarters; in each part a bank serves one word a pass, to any number of lanes (CUDA
// C++ Programming Guide, shared memory; Nsight Compute documentation, "wavefronts"). An access of several words is
// aligned to its size, so that its banks are no other access's in part.
func (w *warp) wavefronts(s *Site, row, off int32, size int, mask uint32) {
	unit, part := 4, 32
	if size > 4 {
		unit, part = size, 128/size
	}
	shift := bits.TrailingZeros(uint(unit))
	words := w.b.banks
	for first := 0; first < 32; first += part {
		if lanes := w.r[row][first : first+part]; mask>>first&uint32(uint64(1)<<part-1) == uint32(uint64(1)<<part-1) && neighbours(lanes, uint32(unit)) {
			s.Wavefronts++
			continue
		}
		var used [32]uint8 // by group of banks: words that it has to serve
		passes := uint8(1)
		for m := mask & uint32((uint64(1)<<part-1)<<first); m != 0; m &= m - 1 {
			word := (w.r[row][bits.TrailingZeros32(m)&31] + uint32(off)) >> shift
			b := word % uint32(part)
			k := uint8(0)
			for k < used[b] && words[b][k] != word {
				k++
			}
			if k == used[b] {
				words[b][k&31] = word
				used[b]++
				passes = max(passes, used[b])
			}
		}
		if mask>>first&uint32(uint64(1)<<part-1) != 0 {
			s.Wavefronts += int64(passes)
			s.Conflicts += int64(passes - 1)
		}
	}
}

// neighbours reports whether addresses have a constant stride, so that each is in a bank of its own.
func neighbours(addresses []uint32, stride uint32) bool {
	want := addresses[0]
	for _, a := range addresses {
		if a != want {
			return false
		}
		want += stride
	}
	return true
}
