package emu

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

func (w *warp) loadParam(in *inst, mask uint32) {
	params := w.b.l.params[in.imm:]
	if in.wide {
		fill(&w.tq, binary.LittleEndian.Uint64(params))
		blend(&w.q[in.vec[0]], &w.tq, mask)
		return
	}
	fill(&w.tr, binary.LittleEndian.Uint32(params))
	blend(&w.r[in.vec[0]], &w.tr, mask)
}

func fill[T uint32 | uint64](row *[32]T, v T) {
	for l := range row {
		row[l] = v
	}
}

// locate resolves the addresses row+imm of the lanes to offsets in one span, in w.off. It returns nil if they are in
// several; a single lane's address outside all of them is an error.
func (w *warp) locate(in *inst, spans []span, mask uint32, size uint64) *span {
	a := &w.q[in.a]
	lo, hi, low := ^uint64(0), uint64(0), uint64(0)
	imm := uint64(in.imm)
	if mask == all32 {
		for l := range a {
			v := a[l] + imm
			w.off[l] = v
			lo, hi, low = min(lo, v), max(hi, v), low|v
		}
	} else {
		for l := range lanes(mask) {
			v := a[l] + imm
			w.off[l] = v
			lo, hi, low = min(lo, v), max(hi, v), low|v
		}
	}
	if low&(size-1) != 0 {
		for m := mask; m != 0; m &= m - 1 {
			if l := bits.TrailingZeros32(m); w.off[l]&(size-1) != 0 {
				w.violate(Misaligned, in, l, w.b.l.describe(w.off[l]), "%d bytes", size)
			}
		}
	}
	inside := func(s *span) bool { return lo >= s.lo && hi < s.hi && size <= s.hi-hi }
	if w.hint >= len(spans) || !inside(&spans[w.hint]) {
		w.hint = slices.IndexFunc(spans, func(s span) bool { return inside(&s) })
	}
	if w.hint >= 0 {
		s := &spans[w.hint]
		for l := range w.off {
			w.off[l] -= s.lo
		}
		return s
	}
	w.hint = 0
	if mask&(mask-1) == 0 {
		rule := OutOfBounds
		for _, m := range w.b.l.memories {
			if lo >= m.addr && lo-m.addr < uint64(len(m.data)) && size <= uint64(len(m.data))-(lo-m.addr) {
				rule = Undeclared
			}
		}
		w.violate(rule, in, bits.TrailingZeros32(mask), w.b.l.describe(lo), "%d bytes", size)
	}
	return nil
}

// global is ld.global and st.global.
func (w *warp) global(in *inst, mask uint32) {
	size := uint64(in.size) * uint64(len(in.vec))
	spans := w.b.l.reads
	store, ordered := in.def.Does == ptx.Store, in.def.Order != ptx.Plain
	if store {
		spans = w.b.l.writes
	}
	s := w.locate(in, spans, mask, size)
	if s == nil {
		for m := mask; m != 0; m &= m - 1 {
			w.global(in, m&-m)
		}
		return
	}
	if c := w.b.check; c != nil {
		if ordered {
			c.launch.ordered.Lock()
			defer c.launch.ordered.Unlock()
		}
		if store {
			c.globalWrite(w, in, s, mask, size)
		} else {
			c.globalRead(w, in, s, mask, size)
		}
	}
	switch {
	case ordered:
		w.ordered(in, s, mask)
	case store:
		w.store(in, s.data, mask)
	default:
		w.load(in, s.data, mask)
	}
}

// prefetch is prefetch.global and cp.async.bulk.prefetch (PTX ISA 9.7.9). They change nothing, but with checks on
// they may name only constants that the launch reads or declares to prefetch.
func (w *warp) prefetch(in *inst, mask uint32) {
	for l := range lanes(mask) {
		addr, bytes := w.q[in.a][l]+uint64(in.imm), uint64(1)
		if in.b >= 0 {
			bytes = uint64(w.r[in.b][l])
		}
		if (addr|bytes)&uint64(in.size-1) != 0 {
			w.violate(Misaligned, in, l, w.b.l.describe(addr), "%d bytes", bytes)
		}
		inside := func(s span) bool { return addr >= s.lo && addr <= s.hi && bytes <= s.hi-addr }
		switch {
		case bytes > ptx.MaxBulkPrefetch:
			w.violate(PrefetchSize, in, l, w.b.l.describe(addr), "%d bytes", bytes)
		case !slices.ContainsFunc(w.b.l.memories, func(m *memory) bool { return inside(m.span()) }):
			w.violate(OutOfBounds, in, l, w.b.l.describe(addr), "prefetch of %d bytes", bytes)
		case w.b.check != nil && !slices.ContainsFunc(w.b.l.prefetches, inside):
			w.violate(Undeclared, in, l, w.b.l.describe(addr), "prefetch of %d bytes that are not constants of this launch or of those it prefetches for", bytes)
		}
	}
}

// word32 is a word of memory for sync/atomic. The address is aligned: memory is, and locate checked the offset.
func word32(data []byte, off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&data[off : off+4][0])) }

// ordered is ld.acquire and st.release.
func (w *warp) ordered(in *inst, s *span, mask uint32) {
	row := &w.r[in.vec[0]]
	for l := range lanes(mask) {
		if in.def.Does == ptx.Store {
			atomic.StoreUint32(word32(s.data, w.off[l]), row[l])
		} else {
			row[l] = atomic.LoadUint32(word32(s.data, w.off[l]))
		}
	}
}

// atomic is atom.global; lanes take their turns in ascending order.
func (w *warp) atomic(in *inst, mask uint32) {
	s := w.locate(in, w.b.l.writes, mask, 4)
	if s == nil {
		for m := mask; m != 0; m &= m - 1 {
			w.atomic(in, m&-m)
		}
		return
	}
	if c := w.b.check; c != nil {
		c.launch.ordered.Lock()
		defer c.launch.ordered.Unlock()
		c.atomic(w, in, s, mask)
	}
	d, b := &w.r[in.d], w.r[in.b]
	for l := range lanes(mask) {
		word := word32(s.data, w.off[l])
		for {
			old := atomic.LoadUint32(word)
			if atomic.CompareAndSwapUint32(word, old, in.fTwo(old, b[l])) {
				d[l] = old
				break
			}
		}
	}
}

// atomicShared is atom.shared; lanes take their turns in ascending order.
func (w *warp) atomicShared(in *inst, mask uint32) {
	w.locateShared(in, in.a, in.imm, mask, 4)
	if c := w.b.check; c != nil {
		c.sharedAtomic(w, in, mask)
	}
	d, b := &w.r[in.d], w.r[in.b]
	for l := range lanes(mask) {
		word := w.b.shared[w.off[l]:]
		old := binary.LittleEndian.Uint32(word)
		binary.LittleEndian.PutUint32(word, in.fTwo(old, b[l]))
		d[l] = old
	}
}

// load reads in.vec rows of elements at the offsets w.off.
func (w *warp) load(in *inst, data []byte, mask uint32) {
	if mask == all32 && in.size == 4 && len(in.vec) > 1 {
		w.loadVector(in, data)
		return
	}
	for j, row := range in.vec {
		at := uint64(j) * uint64(in.size)
		if in.wide {
			d := &w.q[row]
			for l := range lanes(mask) {
				d[l] = binary.LittleEndian.Uint64(data[w.off[l]+at:])
			}
			continue
		}
		d := &w.r[row]
		switch {
		case in.size == 4 && mask == all32:
			for l := range d {
				d[l] = binary.LittleEndian.Uint32(data[w.off[l]+at:])
			}
		case in.size == 4:
			for l := range lanes(mask) {
				d[l] = binary.LittleEndian.Uint32(data[w.off[l]+at:])
			}
		case in.size == 2:
			for l := range lanes(mask) {
				v := uint32(binary.LittleEndian.Uint16(data[w.off[l]+at:]))
				d[l] = v
			}
		default:
			for l := range lanes(mask) {
				v := uint32(data[w.off[l]+at])
				if in.signed {
					v = uint32(uint16(int8(v)))
				}
				d[l] = v
			}
		}
	}
}

// loadVector is load of two or four words by all lanes.
func (w *warp) loadVector(in *inst, data []byte) {
	d0, d1 := &w.r[in.vec[0]], &w.r[in.vec[1]]
	if len(in.vec) == 2 {
		for l, o := range &w.off {
			b := data[o : o+8]
			d0[l] = binary.LittleEndian.Uint32(b)
			d1[l] = binary.LittleEndian.Uint32(b[4:])
		}
		return
	}
	d2, d3 := &w.r[in.vec[2]], &w.r[in.vec[3]]
	for l, o := range &w.off {
		b := data[o : o+16]
		d0[l] = binary.LittleEndian.Uint32(b)
		d1[l] = binary.LittleEndian.Uint32(b[4:])
		d2[l] = binary.LittleEndian.Uint32(b[8:])
		d3[l] = binary.LittleEndian.Uint32(b[12:])
	}
}

// store writes in.vec rows of elements at the offsets w.off, lanes in ascending order.
func (w *warp) store(in *inst, data []byte, mask uint32) {
	for j, row := range in.vec {
		at := uint64(j) * uint64(in.size)
		if in.wide {
			s := &w.q[row]
			for l := range lanes(mask) {
				binary.LittleEndian.PutUint64(data[w.off[l]+at:], s[l])
			}
			continue
		}
		s := &w.r[row]
		switch in.size {
		case 4:
			for l := range lanes(mask) {
				binary.LittleEndian.PutUint32(data[w.off[l]+at:], s[l])
			}
		case 2:
			for l := range lanes(mask) {
				binary.LittleEndian.PutUint16(data[w.off[l]+at:], uint16(s[l]))
			}
		default:
			for l := range lanes(mask) {
				data[w.off[l]+at] = byte(s[l])
			}
		}
	}
}

// locateShared resolves the shared addresses row+imm of the lanes to offsets in the block's memory, in w.off.
func (w *warp) locateShared(in *inst, row int32, imm int64, mask uint32, size uint64) {
	a := &w.r[row]
	base := uint32(imm) - sharedBase
	hi, low := uint64(0), uint64(0)
	if mask == all32 {
		for l := range a {
			v := uint64(a[l] + base)
			w.off[l] = v
			hi, low = max(hi, v), low|v
		}
	} else {
		for l := range lanes(mask) {
			v := uint64(a[l] + base)
			w.off[l] = v
			hi, low = max(hi, v), low|v
		}
	}
	if low&(size-1) == 0 && hi+size <= uint64(len(w.b.shared)) {
		return
	}
	for l := range lanes(mask) {
		where := describeShared(w.off[l], len(w.b.shared))
		if w.off[l]+size > uint64(len(w.b.shared)) {
			w.violate(OutOfBounds, in, l, where, "%d bytes", size)
		}
		if w.off[l]&(size-1) != 0 {
			w.violate(Misaligned, in, l, where, "%d bytes", size)
		}
	}
}

// shared is ld.shared and st.shared.
func (w *warp) shared(in *inst, mask uint32) {
	size := uint64(in.size) * uint64(len(in.vec))
	w.locateShared(in, in.a, in.imm, mask, size)
	c := w.b.check
	if in.def.Does == ptx.Store {
		if c != nil {
			c.sharedWrite(w, in, mask, size)
		}
		w.store(in, w.b.shared, mask)
		return
	}
	if c != nil {
		c.sharedRead(w, in, mask, size)
	}
	w.load(in, w.b.shared, mask)
}

// loadMatrix is ldmatrix: lanes 8i…8i+7 give the row addresses of matrix i.
func (w *warp) loadMatrix(in *inst) {
	w.locateShared(in, in.a, in.imm, all32, 16)
	if c := w.b.check; c != nil {
		c.matrixRead(w, in)
	}
	trans := bool(in.def.Eval.(ptx.Transposed))
	sh := w.b.shared
	for i, row := range in.vec {
		d := &w.r[row]
		if !trans {
			// Lane l holds columns 2(l%4), +1 of row l/4: four lanes are a row's 16 bytes.
			for g := 0; g < 8; g++ {
				b := sh[w.off[8*i+g]:][:16]
				d[4*g] = binary.LittleEndian.Uint32(b)
				d[4*g+1] = binary.LittleEndian.Uint32(b[4:])
				d[4*g+2] = binary.LittleEndian.Uint32(b[8:])
				d[4*g+3] = binary.LittleEndian.Uint32(b[12:])
			}
			continue
		}
		for l := range d { // rows 2(l%4), +1 of column l/4
			row, at := 8*i+l%4*2, uint64(l/4*2)
			lo := binary.LittleEndian.Uint16(sh[w.off[row]+at:])
			hi := binary.LittleEndian.Uint16(sh[w.off[row+1]+at:])
			d[l] = uint32(lo) | uint32(hi)<<16
		}
	}
}

// storeMatrix is stmatrix: lanes 8i…8i+7 give the row addresses of matrix i, lane l holds columns 2(l%4), +1 of row
// l/4. Addresses of other lanes do not count.
func (w *warp) storeMatrix(in *inst) {
	w.locateShared(in, in.a, in.imm, uint32(uint64(1)<<(8*len(in.vec))-1), 16)
	if c := w.b.check; c != nil {
		c.matrixWrite(w, in)
	}
	for i, row := range in.vec {
		for l, v := range &w.r[row] {
			binary.LittleEndian.PutUint32(w.b.shared[w.off[8*i+l/4]+uint64(4*(l%4)):], v)
		}
	}
}

// asyncCopy is a cp.async in flight: its data appear in shared memory when they are waited for.
type asyncCopy struct {
	size  uint32 // bytes that a lane copies
	mask  uint32
	group int
	dst   [32]uint32 // offsets in shared memory
	data  [32][16]byte
}

// copyAsync is cp.async: in.size bytes, of which the last operand says how many come from global memory.
func (w *warp) copyAsync(in *inst, mask uint32) {
	size := uint64(in.size)
	n := len(w.copies)
	if n < cap(w.copies) {
		w.copies = w.copies[:n+1]
	} else {
		w.copies = append(w.copies, asyncCopy{})
	}
	c := &w.copies[n]
	c.size, c.mask, c.group = uint32(in.size), mask, w.group
	w.locateShared(in, in.d, int64(in.vec[0]), mask, size)
	if k := w.b.check; k != nil {
		k.asyncWrite(w, in, mask, size)
	}
	for l := range c.dst {
		c.dst[l] = uint32(w.off[l])
	}
	// A lane that copies nothing does not read its source, wherever it points.
	counts := &w.r[in.b]
	full, some := uint32(0), uint32(0)
	for l := range lanes(mask) {
		c.data[l] = [16]byte{}
		switch k := uint64(counts[l]); {
		case k > size:
			w.violate(OutOfBounds, in, l, "", "copies %d bytes of %d", k, size)
		case k == size:
			full |= 1 << l
		case k > 0:
			some |= 1 << l
		}
	}
	w.fetch(in, c, full, size)
	for l := range lanes(some) {
		w.fetch(in, c, 1<<l, uint64(counts[l]))
	}
}

// fetch reads n bytes a lane of a copy's source.
func (w *warp) fetch(in *inst, c *asyncCopy, mask uint32, n uint64) {
	if mask == 0 {
		return
	}
	// The source is aligned to the copy's size, however few bytes of it are read.
	for m := mask; m != 0 && n < uint64(in.size); m &= m - 1 {
		l := bits.TrailingZeros32(m)
		if a := w.q[in.a][l] + uint64(in.imm); a&uint64(in.size-1) != 0 {
			w.violate(Misaligned, in, l, w.b.l.describe(a), "%d bytes", in.size)
		}
	}
	s := w.locateBytes(in, mask, n)
	if s == nil {
		for m := mask; m != 0; m &= m - 1 {
			w.fetch(in, c, m&-m, n)
		}
		return
	}
	if k := w.b.check; k != nil {
		k.globalRead(w, in, s, mask, n)
	}
	for l := range lanes(mask) {
		if n == 16 {
			c.data[l] = [16]byte(s.data[w.off[l]:])
		} else {
			copy(c.data[l][:n], s.data[w.off[l]:])
		}
	}
}

// locateBytes is locate for a size that need not be a power of two.
func (w *warp) locateBytes(in *inst, mask uint32, n uint64) *span {
	if n&(n-1) == 0 {
		return w.locate(in, w.b.l.reads, mask, n)
	}
	first := w.locate(in, w.b.l.reads, mask, 1)
	if first == nil {
		return nil
	}
	for l := range lanes(mask) {
		if w.off[l]+n > uint64(len(first.data)) {
			w.violate(OutOfBounds, in, l, w.b.l.describe(first.lo+w.off[l]), "%d bytes", n)
		}
	}
	return first
}

// waitGroup makes the copies of all groups but the in.imm most recent visible; in.imm < 0: all copies.
func (w *warp) waitGroup(in *inst) {
	before := w.group - int(in.imm)
	if in.imm < 0 {
		before = w.group + 1
	}
	done := 0
	for done < len(w.copies) && w.copies[done].group < before {
		c := &w.copies[done]
		for l := range lanes(c.mask) {
			if c.size == 16 {
				*(*[16]byte)(w.b.shared[c.dst[l]:]) = c.data[l]
			} else {
				copy(w.b.shared[c.dst[l]:], c.data[l][:c.size])
			}
		}
		if k := w.b.check; k != nil {
			k.asyncArrived(w, c)
		}
		done++
	}
	if done > 0 {
		// Rotate, so that the buffers are used again.
		rest := len(w.copies) - done
		for i := 0; i < rest; i++ {
			w.copies[i], w.copies[done+i] = w.copies[done+i], w.copies[i]
		}
		w.copies = w.copies[:rest]
	}
}
