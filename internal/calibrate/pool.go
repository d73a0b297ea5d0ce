package calibrate

import (
	"cmp"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// BufferPool is memory for tensors that is used again. What make returns is cleared, twice where its pages are new to the process, and
// collected late: of large images that takes as long as computing small layers. The zero Room is empty; a nil one has only new
// memory. One goroutine at a time may use it.
type BufferPool struct {
	Least int // bytes of a tensor, below which new memory is as good; 0: those of small images
	slabs []*slab
	taken map[*byte]taken // by the first byte
}

// slab is memory, and which parts of it are free: in order, none next to another.
type slab struct {
	data []byte
	free []span
	idle int // regions since all of it is free
}

type span struct{ at, size int }

type taken struct {
	*slab
	span
}

const (
	slabBytes = 32 << 20
	minPooled = 256 << 10
	lines     = 64 // bytes: tensors begin at multiples of it
	mostIdle  = 4  // regions for which a slab waits for tensors
)

// Tensor makes a tensor of any contents.
func (r *BufferPool) Tensor(t ir.Type) *ir.Tensor {
	size := t.Bytes()
	if r == nil || size < r.least() {
		return &ir.Tensor{Type: t, Data: make([]byte, size)}
	}
	need := (size + lines - 1) / lines * lines
	for _, s := range r.slabs {
		for i, f := range s.free {
			if f.size < need {
				continue
			}
			if s.free[i] = (span{f.at + need, f.size - need}); f.size == need {
				s.free = slices.Delete(s.free, i, i+1)
			}
			data := s.data[f.at:][:size:size]
			r.taken[&data[0]] = taken{s, span{f.at, need}}
			return &ir.Tensor{Type: t, Data: data}
		}
	}
	s := &slab{data: make([]byte, max(slabBytes, need))}
	s.free = []span{{0, len(s.data)}}
	if r.slabs = append(r.slabs, s); r.taken == nil {
		r.taken = map[*byte]taken{}
	}
	return r.Tensor(t)
}

func (r *BufferPool) least() int { return cmp.Or(r.Least, minPooled) }

// copied is a tensor that may be changed.
func (r *BufferPool) copied(t *ir.Tensor) *ir.Tensor {
	out := r.Tensor(t.Type)
	copy(out.Data, t.Data)
	return out
}

// matrix makes a matrix of any contents.
func (r *BufferPool) matrix(rows, cols int) *matrix {
	t := r.Tensor(ir.T(ir.Float32, rows, cols))
	return &matrix{rows, cols, floats(t), t}
}

// zeros makes a matrix of zeros.
func (r *BufferPool) zeros(rows, cols int) *matrix {
	m := r.matrix(rows, cols)
	clear(m.a)
	return m
}

// giveMatrices takes back matrices that nobody reads any more, nil ones too.
func (r *BufferPool) giveMatrices(list ...*matrix) {
	for _, m := range list {
		if m != nil && m.memory != nil {
			r.Give([]*ir.Tensor{m.memory})
		}
	}
}

// Give takes back tensors that nobody reads any more, whoever made them.
func (r *BufferPool) Give(list []*ir.Tensor) {
	if r == nil {
		return
	}
	for _, t := range list {
		if len(t.Data) < r.least() {
			continue
		}
		p, ok := r.taken[&t.Data[0]]
		if !ok {
			continue
		}
		delete(r.taken, &t.Data[0])
		s := p.slab
		i, _ := slices.BinarySearchFunc(s.free, p.at, func(f span, at int) int { return cmp.Compare(f.at, at) })
		s.free = slices.Insert(s.free, i, p.span)
		if i+1 < len(s.free) && p.at+p.size == s.free[i+1].at {
			s.free[i].size += s.free[i+1].size
			s.free = slices.Delete(s.free, i+1, i+2)
		}
		if i > 0 && s.free[i-1].at+s.free[i-1].size == p.at {
			s.free[i-1].size += s.free[i].size
			s.free = slices.Delete(s.free, i, i+1)
		}
	}
}

// next begins the next region.
func (r *BufferPool) next() {
	r.slabs = slices.DeleteFunc(r.slabs, func(s *slab) bool {
		if s.idle++; len(s.free) != 1 || s.free[0].size < len(s.data) {
			s.idle = 0
		}
		return s.idle > mostIdle
	})
}

// leave forgets all memory.
func (r *BufferPool) leave() { *r = BufferPool{Least: r.Least} }
