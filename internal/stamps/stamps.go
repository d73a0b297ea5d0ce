// Package stamps has the kernels of a program write down when they ran: of each launch, when its first block began, when that and the others
// had waited for the launches in front, and when the last block ended. A timeline of a run is drawn from them.
package stamps

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/runtime"
)

// Buffer is the variable of a stamped program that holds the stamps: 12 bytes a block, u32 each: begun, released, ended, in nanoseconds of
// the device's clock (ptx.Clock), which starts again after 4.3 s.
const (
	Buffer = "launch stamps"
	bytes  = 12
	align  = 256
)

// Program returns a program whose variant for a target writes stamps, and no other variant. Kernels compute what they did, and each thread 0
// reads the clock three times and stores at its end; so what the first warp of a block does counts, and stores behind the wait alone.
// The program given stays as it is.
func Program(p *runtime.Program, targetName string) (*runtime.Program, error) {
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
			n := bytes * blocks(l)
			l.Params = append(slices.Clip(l.Params), runtime.Param{Buffer: number, Offset: size, Bytes: 8})
			l.Writes = append(slices.Clip(l.Writes), runtime.Access{Buffer: number, Offset: size, Bytes: n})
			size += (n + align - 1) / align * align
		}
		v.Entries = append(v.Entries, e)
	}
	out := *p
	out.Weights = append(slices.Clone(p.Weights), make([]byte, -len(p.Weights)&(align-1)+size)...)
	v.Buffers = append(slices.Clip(v.Buffers), runtime.Buffer{Name: Buffer, Kind: runtime.VariableBuffer, Bytes: size, Offset: len(out.Weights) - size})
	out.Variants, out.Identity, out.Digests = []runtime.Variant{v}, "", nil
	return &out, nil
}

func blocks(l *runtime.Launch) int { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// stamp makes a kernel write its blocks' stamps to where its last parameter points.
func stamp(k *ptx.Kernel) {
	body := k.Body
	k.Body = nil
	at, where := k.Reg(ptx.B64), k.AddParam("stamps", "u64")
	begun, released, ended := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	first := k.Reg(ptx.Pred)
	index := func(name string) []ptx.Reg {
		r := k.RegVec(ptx.B32, 3)
		for i, axis := range []string{".x", ".y", ".z"} {
			k.I("mov.u32", r[i], ptx.Special(name+axis))
		}
		return r
	}
	k.I("mov.u32", begun, ptx.Clock)
	k.I("mov.u32", released, begun)
	thread := index("%tid")
	k.I("or.b32", thread[0], thread[0], thread[1])
	k.I("or.b32", thread[0], thread[0], thread[2])
	k.I("setp.eq.u32", first, thread[0], ptx.Imm(0))
	block, grid := index("%ctaid"), index("%nctaid")
	k.I("mad.lo.s32", block[1], block[2], grid[1], block[1])
	k.I("mad.lo.s32", block[0], block[1], grid[0], block[0])
	k.I("ld.param.u64", at, ptx.At(where, 0))
	k.I("cvta.to.global.u64", at, at)
	k.I("mad.wide.u32", at, block[0], ptx.Imm(bytes), at)
	for _, s := range body {
		in := s.Instr
		if in == nil || in.Def.Does != ptx.Exit {
			k.Body = append(k.Body, s)
			if in != nil && in.Def.Does == ptx.GridWait {
				k.I("mov.u32", released, ptx.Clock)
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
		k.I("mov.u32", ended, ptx.Clock)
		for i, r := range []ptx.Reg{begun, released, ended} {
			k.If(first, "st.global.u32", ptx.At(at, 4*i), r)
		}
		k.I(in.Def.Op)
		if in.Guarded {
			k.Place(skip)
		}
	}
}

// Launch is what a launch of an entry was seen to do, in nanoseconds from when the first launch began.
type Launch struct {
	Index    int    `json:"index"`
	Kernel   string `json:"kernel"`
	Note     string `json:"note,omitempty"`
	Begun    int    `json:"begun_ns"`    // the first block
	Released int    `json:"released_ns"` // the first block had waited for the launches in front
	Ended    int    `json:"ended_ns"`    // the last block
}

// Read reads the stamps of a run of an entry that has just ended. Copies leave none.
func Read(s *runtime.Session, entry string) ([]Launch, error) {
	raw, err := s.State(Buffer)
	if err != nil {
		return nil, err
	}
	v := s.Model().Variant
	e := v.Entry(entry)
	if e == nil {
		return nil, fmt.Errorf("%s: no entry %q", s.Model().Program.Model, entry)
	}
	var out []Launch
	var origin uint32 // a stamp, and when that was
	base := 0
	for i := range e.Launches {
		l := &e.Launches[i]
		if l.Kernel == "" {
			continue
		}
		at := l.Params[len(l.Params)-1].Offset
		stamps := runtime.View[uint32](raw[at : at+bytes*blocks(l)])
		if len(out) == 0 {
			origin = stamps[0]
		}
		since := func(x uint32) int { return base + int(int32(x-origin)) } // the clock starts again, more than once in a long run
		base, origin = since(stamps[0]), stamps[0]
		x := Launch{Index: i, Kernel: l.Kernel, Note: l.Note, Begun: since(stamps[0]), Released: since(stamps[1]), Ended: since(stamps[2])}
		for b := 3; b < len(stamps); b += 3 {
			x.Begun, x.Released, x.Ended = min(x.Begun, since(stamps[b])), min(x.Released, since(stamps[b+1])), max(x.Ended, since(stamps[b+2]))
		}
		out = append(out, x)
	}
	earliest := 0
	for _, x := range out {
		earliest = min(earliest, x.Begun)
	}
	for i := range out {
		x := &out[i]
		x.Begun, x.Released, x.Ended = x.Begun-earliest, x.Released-earliest, x.Ended-earliest
	}
	return out, nil
}
