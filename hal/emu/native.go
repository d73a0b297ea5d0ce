package emu

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal/emu/internal/jit"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Engine says what executes kernels.
type Engine string

// Engines. With Check or Profile set, the interpreter executes everything; it is any engine's but Specification's.
const (
	Auto          Engine = ""              // native code where the processor has it
	Specification Engine = "specification" // the interpreter in portable Go throughout
	Interpreter   Engine = "interpreter"   // the interpreter, with native forms of instructions that compute on registers alone
	JIT           Engine = "jit"           // native code, or an error
	AVX2          Engine = "avx2"          // native code without AVX-512
)

// level is the instruction set that an engine compiles for.
func (e Engine) level() (jit.Level, error) {
	have := jit.Detect()
	switch e {
	case Auto, Interpreter:
		return have, nil
	case Specification:
		return jit.None, nil
	case JIT, AVX2:
		switch {
		case have == jit.None:
			return jit.None, fmt.Errorf("emu: engine %s: native code needs Linux on arm64, or on amd64 with AVX2; the interpreter runs anywhere", e)
		case e == AVX2 && have == jit.NEON:
			return jit.None, fmt.Errorf("emu: engine %s: this is arm64: use engine %s", e, JIT)
		}
		if e == AVX2 {
			have = jit.AVX2
		}
		return have, nil
	}
	return jit.None, fmt.Errorf("emu: unknown engine %q: want specification, interpreter, jit or avx2", e)
}

// EngineStats counts what the native engine did.
type EngineStats struct {
	Level       string         // the instruction set
	Kernels     int            // compiled
	Bytes       int            // of their code
	Refused     int            // kernels that only the interpreter runs
	Left        map[string]int // instructions without a native form by opcode, but no barriers, exits or atomics
	Interpreted int64          // instructions that the interpreter executed for native code
}

// engine is a device's native side.
type engine struct {
	level       jit.Level
	steps       bool // the interpreter uses it, an instruction at a time
	mu          sync.Mutex
	stats       EngineStats
	interpreted atomic.Int64
}

// EngineStats returns what the native engine has done so far.
func (d *Device) EngineStats() EngineStats {
	e := &d.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Left = maps.Clone(e.stats.Left)
	s.Level, s.Interpreted = e.level.String(), e.interpreted.Load()
	return s
}

// native is a program's compiled form; code is nil where there is none.
type native struct {
	once sync.Once
	code *jit.Code
}

// compile makes the program's native form, once.
func (e *engine) compile(p *program) *jit.Code {
	if e.level == jit.None || p.clocked {
		return nil
	}
	p.native.once.Do(func() {
		insts := nativeForm(p)
		code, err := jit.Compile(insts, p.knownRows(), copyLayout, e.level, e.steps)
		e.mu.Lock()
		defer e.mu.Unlock()
		if err != nil {
			e.stats.Refused++
			return
		}
		e.stats.Kernels++
		e.stats.Bytes += code.Bytes()
		for op, n := range code.Left {
			if e.stats.Left == nil {
				e.stats.Left = map[string]int{}
			}
			e.stats.Left[op] += n
		}
		p.native.code = code
	})
	return p.native.code
}

var copyLayout = jit.CopyLayout{
	Stride:  int(unsafe.Sizeof(asyncCopy{})),
	Size:    int(unsafe.Offsetof(asyncCopy{}.size)),
	Mask:    int(unsafe.Offsetof(asyncCopy{}.mask)),
	Group:   int(unsafe.Offsetof(asyncCopy{}.group)),
	Offsets: int(unsafe.Offsetof(asyncCopy{}.dst)),
	Blocks:  int(unsafe.Offsetof(asyncCopy{}.data)),
}

// nativeForm is the program as the compiler takes it.
func nativeForm(p *program) []jit.Inst {
	out := make([]jit.Inst, len(p.code))
	for i := range p.code {
		in := &p.code[i]
		out[i] = jit.Inst{Def: in.def, Guard: in.guard, Negate: in.negate, D: in.d, A: in.a, B: in.b, C: in.c, Imm: in.imm,
			Vec: in.vec, Size: int(in.size), Dies: in.dies}
	}
	return out
}

// knownRows are the 32-bit rows that no instruction writes.
func (p *program) knownRows() jit.Rows {
	rows := jit.Rows{Constants: map[int32]uint32{}}
	for _, c := range p.constR {
		rows.Constants[c.row] = c.value
	}
	for _, s := range p.specials {
		if s.name == "%tid.x" || s.name == "%laneid" {
			rows.Lanes = append(rows.Lanes, s.row)
		}
	}
	return rows
}

// nativeBlock is what native code keeps of a block.
type nativeBlock struct {
	code  *jit.Code
	ctx   *jit.Context
	sites []jit.Site
}

// newNativeBlock is what native code keeps of a block of a launch, in the memory of another's; nil where there is no
// code.
func newNativeBlock(l *launch, old *nativeBlock) *nativeBlock {
	if l.code == nil {
		return nil
	}
	if old == nil {
		old = &nativeBlock{ctx: new(jit.Context)}
	}
	old.code, old.sites = l.code, append(old.sites[:0], l.learned...)
	return old
}

// bind gives native code the registers of a warp.
func (n *nativeBlock) bind(w *warp) {
	n.ctx.R, n.ctx.Q, n.ctx.P = pointer(w.r), pointer(w.q), pointer(w.p)
}

// stepping is the native code that the interpreter uses, bound to the warp, or nil.
func (w *warp) stepping() *nativeBlock {
	n := w.b.native
	if n == nil || !w.b.l.dev.engine.steps {
		return nil
	}
	n.bind(w)
	return n
}

// step executes the instruction at w.pc for some lanes in native code, if that has a form of it.
func (w *warp) step(n *nativeBlock, mask uint32) bool {
	n.ctx.Mask = mask
	return n.code.Step(n.ctx, w.pc)
}

// runNative is run in native code: it executes about budget instructions at most and returns their number. Native code
// counts only those in loops.
func (w *warp) runNative(n *nativeBlock, budget int64) int64 {
	x, l := n.ctx, w.b.l
	code := l.prog.code
	n.bind(w)
	x.Shared, x.SharedBytes = pointer(w.b.shared), int64(len(w.b.shared))
	x.Params, x.Sites = pointer(l.params), unsafe.SliceData(n.sites)
	x.Steps = budget
	interpreted := int64(0)
	for w.state == ready && x.Steps > 0 {
		if w.pc >= w.nextPC {
			w.merge()
		}
		x.Mask, x.NextPC = w.mask, int32(w.nextPC)
		x.Copies, x.CopyCount, x.CopySpace, x.Group = pointer(w.copies[:cap(w.copies)]), int64(len(w.copies)), int64(cap(w.copies)), int64(w.group)
		if err := n.code.Run(x, w.pc); err != nil {
			w.b.l.dev.engine.refuse()
			w.b.native = nil
			break
		}
		w.copies, w.group = w.copies[:x.CopyCount], int(x.Group)
		w.pc = int(x.PC)
		x.Steps--
		if x.Interpret == 0 {
			continue
		}
		in := &code[w.pc]
		if in.guard < 0 && w.mask == w.full {
			switch in.def.Does {
			case ptx.Barrier:
				w.state, w.barrier = atBarrier, int(in.imm)
				w.pc++
				continue
			case ptx.Exit:
				w.exit(w.mask)
				continue
			}
		}
		pc := w.pc
		w.run(1)
		switch in.def.Does {
		case ptx.Barrier, ptx.Exit, ptx.Branch:
			continue
		case ptx.Load, ptx.Store, ptx.CopyAsync:
			n.learn(w, in, pc)
		}
		interpreted++
	}
	if interpreted > 0 {
		l.dev.engine.interpreted.Add(interpreted)
	}
	return budget - x.Steps
}

func (e *engine) refuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Refused++
}

func pointer[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// learn caches the span that an instruction has just accessed.
func (n *nativeBlock) learn(w *warp, in *inst, pc int) {
	site := n.code.SiteOf(pc)
	spans := w.b.l.reads
	if in.def.Does == ptx.Store {
		spans = w.b.l.writes
	}
	if site < 0 || w.hint >= len(spans) {
		return
	}
	s := &spans[w.hint]
	size := uint64(in.size)
	if in.def.Does != ptx.CopyAsync {
		size *= uint64(len(in.vec))
	}
	if uint64(len(s.data)) < size || len(s.data) == 0 {
		return
	}
	n.sites[site] = jit.Site{Low: s.lo - uint64(in.imm), Limit: uint64(len(s.data)) - size,
		Delta: uint64(uintptr(pointer(s.data))) - s.lo + uint64(in.imm)}
}
