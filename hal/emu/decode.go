package emu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// row32 and row64 are a register of a warp: one value a lane.
type (
	row32 = ptx.Row32
	row64 = ptx.Row64
)

// kind selects how the interpreter's loop executes an instruction. R is the file of 32-bit rows, Q that of 64-bit rows,
// P that of predicates.
type kind uint8

const (
	kindR    kind = iota // R ← R R R
	kindQ                // Q ← Q Q Q
	kindQR               // Q ← R R Q
	kindRQ               // R ← Q
	kindQQR              // Q ← Q R
	kindPR               // P ← R R
	kindPQ               // P ← Q Q
	kindP                // P ← P P
	kindSelR             // R ← R R P
	kindSelQ             // Q ← Q Q P
	kindBranch
	kindExit
	kindParam  // a load of a parameter
	kindGlobal // a load or store, as kindShared
	kindShared
	kindEffect // def.Does says which
)

// inst is a decoded instruction. Operands are indices of rows.
type inst struct {
	kind       kind
	negate     bool
	signed     bool  // of a load narrower than its register
	wide       bool  // the data of a load or store are Q rows
	size       uint8 // bytes an element
	guard      int32 // predicate row, or -1
	d, a, b, c int32
	imm        int64
	vec        []int32 // rows of a vector operand, or of an mma
	dies       []int32 // 32-bit rows that nothing reads after the instruction until they are written again
	def        *ptx.Def
	stmt       *ptx.Stmt

	fR    func(d, a, b, c *row32)
	fQ    func(d, a, b, c *row64)
	fQR   func(d *row64, a, b *row32, c *row64)
	fRQ   func(d *row32, a *row64)
	fQQR  func(d, a *row64, b *row32)
	fPR   func(a, b *row32) uint32
	fPQ   func(a, b *row64) uint32
	fP    func(a, b uint32) uint32
	fSel  func(d, a, b *row32, p uint32)
	fSelQ func(d, a, b *row64, p uint32)
	fMMA  func(r []row32, v []int32)
	fTwo  ptx.Combine // of atom and redux
}

// sharedBase is the address of dynamic shared memory: not 0, so that a kernel that forgets to add it fails.
const sharedBase = 1024

// maxRegisters bounds the registers of a class; each takes 128 or 256 bytes per warp.
const maxRegisters = 1 << 16

// program is a kernel ready to run.
type program struct {
	name                     string
	kernel                   *ptx.Kernel
	code                     []inst
	nR, nQ, nP               int // rows a warp has
	regR, regQ               int // of which registers; constants and special registers follow
	rows                     rowOf
	constR                   []constant[uint32]
	constQ                   []constant[uint64]
	specials                 []special
	paramOff                 []int // offset of each parameter in the block of parameters
	paramBytes               int
	waits                    bool // has griddepcontrol.wait
	grainShared, grainGlobal int  // bytes of the narrowest store

	trackOnce sync.Once
	track     *tracking // registers that may be read before they are written

	clocked bool // reads a clock, which native code does not
	native  native

	countedOnce sync.Once // where counts are all that is wanted
	counted     counted
}

type constant[T any] struct {
	row   int32
	value T
}

// special is a row that holds a special register.
type special struct {
	row           int32
	name          string
	launch, block bool // all threads have the same, of a launch or of a block
}

func newSpecial(row int32, name string) special {
	block := name == string(ptx.SM) || strings.HasPrefix(name, "%ctaid")
	thread := name == "%laneid" || name == "%warpid" || strings.HasPrefix(name, "%tid")
	return special{row, name, !block && !thread, block}
}

type decoder struct {
	p      *program
	k      *ptx.Kernel
	labels map[string]int
	r32    map[uint32]int32
	r64    map[uint64]int32
	spec   map[string]int32
	params map[string]int
}

// decode resolves a kernel's operands to rows and its opcodes to functions.
func decode(k *ptx.Kernel) (*program, error) {
	p := &program{name: k.Name, kernel: k, grainShared: 4, grainGlobal: 4}
	d := &decoder{p: p, k: k, labels: map[string]int{}, r32: map[uint32]int32{}, r64: map[uint64]int32{},
		spec: map[string]int32{}, params: map[string]int{}}
	for c, n := range k.Regs {
		if n > maxRegisters {
			return nil, fmt.Errorf("kernel %s: %d registers %s, at most %d", k.Name, n, ptx.Class(c).Prefix(), maxRegisters)
		}
	}
	for _, prm := range k.Params {
		n := prm.Size()
		if n == 0 {
			return nil, fmt.Errorf("kernel %s: parameter %s has type %s", k.Name, prm.Name, prm.Type)
		}
		p.paramBytes = (p.paramBytes + n - 1) &^ (n - 1)
		d.params[prm.Name] = p.paramBytes
		p.paramOff = append(p.paramOff, p.paramBytes)
		p.paramBytes += n
	}
	n := 0
	for i := range k.Body {
		if l := k.Body[i].Label; l != "" {
			d.labels[l] = n
		} else if k.Body[i].Instr != nil {
			n++
		}
	}
	rows, dies, regR, regQ := allocateRows(k, d.labels)
	p.rows, p.regR, p.regQ = rows, regR, regQ
	p.nR, p.nQ, p.nP = p.regR, p.regQ, k.Regs[ptx.Pred]
	for i := range k.Body {
		s := &k.Body[i]
		if s.Instr == nil {
			continue
		}
		in := inst{guard: -1, stmt: s, def: s.Instr.Def}
		if s.Instr.Guarded {
			in.guard, in.negate = int32(s.Instr.Guard.ID), s.Instr.Negate
		}
		if err := d.instr(&in, s.Instr.Operands); err != nil {
			return nil, fmt.Errorf("kernel %s: line %d: %s: %w", k.Name, s.Line, s.Instr, err)
		}
		in.dies = dies[len(p.code)]
		p.code = append(p.code, in)
	}
	// A body that runs off its end returns.
	last := &ptx.Stmt{Comment: "end of the kernel"}
	if len(k.Body) > 0 {
		last.Line = k.Body[len(k.Body)-1].Line + 1
	}
	p.code = append(p.code, inst{kind: kindExit, guard: -1, stmt: last, def: ptx.Lookup("ret")})
	return p, nil
}

// reg is the row of a register in its file.
func (d *decoder) reg(r ptx.Reg) int32 { return d.p.rows[r.Class][r.ID] }

func isWide(typ string) bool {
	c := ptx.ClassOf(typ)
	return c == ptx.B64 || c == ptx.F64
}

// row is the row of an operand of a type; immediates and special registers get rows of their own.
func (d *decoder) row(o ptx.Operand, typ string) (int32, error) {
	wide := isWide(typ)
	if _, ok := o.(ptx.Reg); !ok && typ == "pred" {
		return 0, fmt.Errorf("want a predicate register")
	}
	switch o := o.(type) {
	case ptx.Reg:
		return d.reg(o), nil
	case ptx.Imm:
		v := uint64(o)
		switch {
		case wide:
			if typ == "f64" {
				return 0, fmt.Errorf("integer immediate for f64")
			}
			return d.const64(v), nil
		case typ == "f32":
			return 0, fmt.Errorf("integer immediate for f32")
		case ptx.ClassOf(typ) == ptx.B16:
			return d.const32(uint32(v) & 0xffff), nil
		}
		return d.const32(uint32(v)), nil
	case ptx.FImm:
		if wide || ptx.ClassOf(typ) == ptx.B16 {
			return 0, fmt.Errorf("f32 immediate for %s", typ)
		}
		return d.const32(math.Float32bits(float32(o))), nil
	case ptx.DImm:
		if !wide {
			return 0, fmt.Errorf("f64 immediate for %s", typ)
		}
		return d.const64(math.Float64bits(float64(o))), nil
	case ptx.Sym:
		if o != ptx.SharedName {
			return 0, fmt.Errorf("unknown symbol %s", o)
		}
		if wide {
			return d.const64(sharedBase), nil
		}
		return d.const32(sharedBase), nil
	case ptx.Special:
		if wide || ptx.ClassOf(typ) == ptx.B16 {
			return 0, fmt.Errorf("special register %s for %s", o, typ)
		}
		if r, ok := d.spec[string(o)]; ok {
			return r, nil
		}
		r := int32(d.p.nR)
		d.p.nR++
		d.spec[string(o)] = r
		d.p.specials = append(d.p.specials, newSpecial(r, string(o)))
		return r, nil
	}
	return 0, fmt.Errorf("a %T cannot be an operand here", o)
}

func (d *decoder) const32(v uint32) int32 { return constantRow(d.r32, &d.p.constR, &d.p.nR, v) }
func (d *decoder) const64(v uint64) int32 { return constantRow(d.r64, &d.p.constQ, &d.p.nQ, v) }

// constantRow is the row of a constant in a file of n rows: one that it has, or a new one.
func constantRow[T comparable](rows map[T]int32, constants *[]constant[T], n *int, v T) int32 {
	r, ok := rows[v]
	if !ok {
		r = int32(*n)
		*n++
		rows[v] = r
		*constants = append(*constants, constant[T]{r, v})
	}
	return r
}

// rows resolves a vector operand, or a single one as a vector of one.
func (d *decoder) rows(o ptx.Operand, typ string) ([]int32, error) {
	v, ok := o.(ptx.Vec)
	if !ok {
		v = ptx.Vec{o}
	}
	out := make([]int32, len(v))
	for i, e := range v {
		r, err := d.row(e, typ)
		if err != nil {
			return nil, err
		}
		out[i] = r
	}
	return out, nil
}

// meaning puts the row's function into in, which says what kind of instruction it is.
func meaning(in *inst) error {
	switch f := in.def.Eval.(type) {
	case func(d, a, b, c *row32):
		in.kind, in.fR = kindR, f
	case func(d, a, b, c *row64):
		in.kind, in.fQ = kindQ, f
	case func(d *row64, a, b *row32, c *row64):
		in.kind, in.fQR = kindQR, f
	case func(d *row32, a *row64):
		in.kind, in.fRQ = kindRQ, f
	case func(d, a *row64, b *row32):
		in.kind, in.fQQR = kindQQR, f
	case func(a, b *row32) uint32:
		in.kind, in.fPR = kindPR, f
	case func(a, b *row64) uint32:
		in.kind, in.fPQ = kindPQ, f
	case func(a, b uint32) uint32:
		in.kind, in.fP = kindP, f
	case func(d, a, b *row32, p uint32):
		in.kind, in.fSel = kindSelR, f
	case func(d, a, b *row64, p uint32):
		in.kind, in.fSelQ = kindSelQ, f
	case func(imm int64) func(d, a, b, c *row32):
		in.kind, in.fR = kindR, f(in.imm)
	default:
		return fmt.Errorf("the emulator has no kind of instruction for a meaning of type %T", f)
	}
	return nil
}

// clock is a mov of a clock, which has another value each time: of the host's, or of a multiprocessor's.
func (d *decoder) clock(in *inst, ops []ptx.Operand) (err error) {
	if in.def.Name != "mov" || len(ops) != 2 {
		return fmt.Errorf("%s and %s can be moved to a register, and nothing else", ptx.Clock, ptx.Cycles)
	}
	if in.d, err = d.row(ops[0], "u32"); err != nil {
		return err
	}
	d.p.clocked = true
	in.kind, in.a, in.b, in.c = kindR, in.d, in.d, in.d
	in.fR = func(to, _, _, _ *row32) { fill(to, uint32(time.Since(started))) }
	if ops[1] == ptx.Cycles {
		if in.a, err = d.row(ptx.SM, "u32"); err != nil {
			return err
		}
		in.fR = func(to, sm, _, _ *row32) { fill(to, cycles(time.Since(started), sm[0])) }
	}
	return nil
}

var started = time.Now()

// The multiprocessors of the CPU device: blocks take turns on them. Each has a counter of its own, of two cycles a
// nanosecond.
const (
	multiprocessors = 4
	cyclesPerNS     = 2
	cycleOffset     = 0x35a00000 // from the counter of one multiprocessor to the next
)

// cycles is what a multiprocessor has counted at a time.
func cycles(at time.Duration, sm uint32) uint32 {
	return uint32(cyclesPerNS*at.Nanoseconds()) + sm*cycleOffset
}

// instr resolves the operands.
func (d *decoder) instr(in *inst, ops []ptx.Operand) (err error) {
	def := in.def
	switch def.Does {
	case ptx.Compute:
		if slices.Contains(ops, ptx.Operand(ptx.Clock)) || slices.Contains(ops, ptx.Operand(ptx.Cycles)) {
			return d.clock(in, ops)
		}
		slots, n := [...]*int32{&in.d, &in.a, &in.b, &in.c}, 0
		for i, a := range def.Args {
			if a.Kind == ptx.ArgImm {
				in.imm = in.imm<<8 | int64(ops[i].(ptx.Imm)) // bfi has two, of 8 bits each
				continue
			}
			if *slots[n], err = d.row(ops[i], a.Type); err != nil {
				return err
			}
			n++
		}
		return meaning(in)
	case ptx.Branch:
		t, ok := d.labels[string(ops[0].(ptx.Ref))]
		if !ok {
			return fmt.Errorf("unknown label")
		}
		in.kind, in.imm = kindBranch, int64(t)
		return nil
	case ptx.Exit:
		in.kind = kindExit
		return nil
	}
	in.kind = kindEffect
	return d.effect(in, ops)
}

// op is the opcode, "" at the end of the kernel.
func (in *inst) op() string {
	if in.def == nil {
		return ""
	}
	return in.def.Op
}
