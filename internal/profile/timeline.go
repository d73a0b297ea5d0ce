// A program with a timeline records for each launch when its first block began, when that and the others had
// waited for preceding launches, and when the last block ended.

package profile

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/runtime"
)

// TimelineBuffer is the variable of a stamped program that holds the stamps, u32 each, of every block: begun, released and ended, in nanoseconds of
// the shared clock (ptx.Clock), which starts again after 4.3 s; the same three in cycles of its multiprocessor (ptx.Cycles); and which
// multiprocessor that was.
const (
	TimelineBuffer = "launch stamps"
	words          = 7
	align          = 256
)

// WithTimeline returns a program whose variant for a target writes stamps, and no other variant. Kernels compute
// what they did. Thread 0 of each block also reads both clocks three times and stores at its end, so counts
// include those of its warp, and its stores after the wait. The given program is not changed.
func WithTimeline(p *runtime.Program, targetName string) (*runtime.Program, error) {
	given, err := p.Variant(targetName)
	if err != nil {
		return nil, err
	}
	m, err := ptx.Parse(given.PTX)
	if err != nil {
		return nil, fmt.Errorf("%s: kernels for %s: %w", p.Model, given.Target, err)
	}
	for _, k := range m.Kernels {
		stamp(k)
	}
	v := *given
	v.PTX, v.Cubin, v.Entries = m.String(), nil, nil
	size, number := 0, len(v.Buffers)
	for _, e := range given.Entries {
		e.Launches = slices.Clone(e.Launches)
		for i := range e.Launches {
			l := &e.Launches[i]
			if l.Kernel == "" {
				continue
			}
			n := 4 * words * stampedBlocks(l)
			l.Params = append(slices.Clip(l.Params), runtime.Param{Buffer: number, Offset: size, Bytes: 8})
			l.Writes = append(slices.Clip(l.Writes), runtime.Access{Buffer: number, Offset: size, Bytes: n})
			size += (n + align - 1) / align * align
		}
		v.Entries = append(v.Entries, e)
	}
	out := *p
	out.Weights = append(slices.Clone(p.Weights), make([]byte, -len(p.Weights)&(align-1)+size)...)
	v.Buffers = append(slices.Clip(v.Buffers), runtime.Buffer{Name: TimelineBuffer, Kind: runtime.VariableBuffer, Bytes: size, Offset: len(out.Weights) - size})
	out.Variants, out.Identity, out.Digests = []runtime.Variant{v}, "", nil
	return &out, nil
}

func stampedBlocks(l *runtime.Launch) int { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// stamp makes a kernel write its blocks' stamps to where its last parameter points.
func stamp(k *ptx.Kernel) {
	body := k.Body
	k.Body = nil
	at, where := k.Reg(ptx.B64), k.AddParam("stamps", "u64")
	begun, released, ended := k.RegVec(ptx.B32, 2), k.RegVec(ptx.B32, 2), k.RegVec(ptx.B32, 2)
	read := func(to []ptx.Reg) {
		k.I("mov.u32", to[0], ptx.Clock)
		k.I("mov.u32", to[1], ptx.Cycles)
	}
	first := k.Reg(ptx.Pred)
	index := func(name string) []ptx.Reg {
		r := k.RegVec(ptx.B32, 3)
		for i, axis := range []string{".x", ".y", ".z"} {
			k.I("mov.u32", r[i], ptx.Special(name+axis))
		}
		return r
	}
	read(begun)
	for i := range released {
		k.I("mov.u32", released[i], begun[i])
	}
	thread := index("%tid")
	k.I("or.b32", thread[0], thread[0], thread[1])
	k.I("or.b32", thread[0], thread[0], thread[2])
	k.I("setp.eq.u32", first, thread[0], ptx.Imm(0))
	block, grid := index("%ctaid"), index("%nctaid")
	k.I("mad.lo.s32", block[1], block[2], grid[1], block[1])
	k.I("mad.lo.s32", block[0], block[1], grid[0], block[0])
	k.I("ld.param.u64", at, ptx.At(where, 0))
	k.I("cvta.to.global.u64", at, at)
	k.I("mad.wide.u32", at, block[0], ptx.Imm(4*words), at)
	for _, s := range body {
		in := s.Instr
		if in == nil || in.Def.Does != ptx.Exit {
			k.Body = append(k.Body, s)
			if in != nil && in.Def.Does == ptx.GridWait {
				read(released)
			}
			continue
		}
		skip := ptx.Ref("")
		if in.Guarded {
			skip = ptx.Ref(fmt.Sprintf("$unstamped_%d", len(k.Body)))
			if in.Negate {
				k.If(in.Guard, "bra", skip)
			} else {
				k.Unless(in.Guard, "bra", skip)
			}
		}
		read(ended)
		k.I("mov.u32", thread[1], ptx.SM)
		for i, r := range []ptx.Reg{begun[0], released[0], ended[0], begun[1], released[1], ended[1], thread[1]} {
			k.If(first, "st.global.u32", ptx.At(at, 4*i), r)
		}
		k.I(in.Def.Op)
		if in.Guarded {
			k.Place(skip)
		}
	}
}

// LaunchTimes is what a launch of an entry was seen to do, in nanoseconds from when the first launch began.
type LaunchTimes struct {
	Index    int    `json:"index"`
	Kernel   string `json:"kernel"`
	Note     string `json:"note,omitempty"`
	Begun    int    `json:"begun_ns"`    // the first block
	Released int    `json:"released_ns"` // the first block had waited for preceding launches
	Ended    int    `json:"ended_ns"`    // the last block
}

// Timeline is when the launches of a run ran.
type Timeline struct {
	Launches []LaunchTimes
	TickNS   int // of the shared clock: its least step
	// RefinedNS is how well times are known that are finer than the shared clock: half of the stamps are known to lie within so many
	// nanoseconds. 0: times are those of the shared clock.
	RefinedNS int
}

// ReadTimeline reads the stamps of a run of an entry that has just ended. Copies leave none.
func ReadTimeline(s *runtime.Session, entry string) (*Timeline, error) {
	raw, err := s.State(TimelineBuffer)
	if err != nil {
		return nil, err
	}
	v := s.Model().Variant
	e := v.Entry(entry)
	if e == nil {
		return nil, fmt.Errorf("%s: no entry %q", s.Model().Program.Model, entry)
	}
	out := &Timeline{}
	var all []reading
	var origin uint32 // a stamp, and when that was
	base, begin := 0, []int{}
	for i := range e.Launches {
		l := &e.Launches[i]
		if l.Kernel == "" {
			continue
		}
		at := l.Params[len(l.Params)-1].Offset
		records := runtime.View[uint32](raw[at : at+4*words*stampedBlocks(l)])
		if len(all) == 0 {
			origin = records[0]
		}
		since := func(x uint32) int { return base + int(int32(x-origin)) } // the clock starts again, more than once in a long run
		base, origin = since(records[0]), records[0]
		begin = append(begin, len(all))
		for ; len(records) > 0; records = records[words:] {
			for k := range 3 {
				all = append(all, reading{ns: since(records[k]), cycles: records[3+k], sm: records[6]})
			}
		}
		out.Launches = append(out.Launches, LaunchTimes{Index: i, Kernel: l.Kernel, Note: l.Note})
	}
	times := out.refine(all)
	earliest := math.MaxInt
	for i := range out.Launches {
		end := len(all)
		if i+1 < len(begin) {
			end = begin[i+1]
		}
		out.Launches[i].span(times[begin[i]:end])
		earliest = min(earliest, out.Launches[i].Begun)
	}
	for i := range out.Launches {
		x := &out.Launches[i]
		x.Begun, x.Released, x.Ended = x.Begun-earliest, x.Released-earliest, x.Ended-earliest
	}
	return out, nil
}

// span takes the first time that a block began and was released, and the last one that a block ended, of three times a block.
func (l *LaunchTimes) span(times []int) {
	l.Begun, l.Released, l.Ended = times[0], times[1], times[2]
	for ; len(times) > 0; times = times[3:] {
		l.Begun, l.Released, l.Ended = min(l.Begun, times[0]), min(l.Released, times[1]), max(l.Ended, times[2])
	}
}
