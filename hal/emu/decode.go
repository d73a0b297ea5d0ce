package emu

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// row32 and row64 are a register of a warp: one value a lane.
type (
	row32 [32]uint32
	row64 [32]uint64
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
	kindLoadParam
	kindLoadGlobal
	kindStoreGlobal
	kindLoadShared
	kindStoreShared
	kindAtomic
	kindPrefetch
	kindCopyAsync
	kindCommit
	kindWaitGroup
	kindMMA
	kindLoadMatrix
	kindShuffle
	kindBranch
	kindExit
	kindBarrier
	kindWarpBarrier
	kindFence
	kindGridWait
	kindNop
)

// inst is a decoded instruction. Operands are indices of rows.
type inst struct {
	kind       kind
	negate     bool
	signed     bool // of a load narrower than its register
	trans      bool
	wide       bool // the data of a load or store are Q rows
	order      order
	size       uint8 // bytes an element
	guard      int32 // predicate row, or -1
	d, a, b, c int32
	imm        int64
	vec        []int32 // rows of a vector operand, or of an mma
	stmt       *ptx.Stmt

	fR   func(d, a, b, c *row32)
	fQ   func(d, a, b, c *row64)
	fQR  func(d *row64, a, b *row32, c *row64)
	fRQ  func(d *row32, a *row64)
	fQQR func(d, a *row64, b *row32)
	fPR  func(a, b *row32) uint32
	fPQ  func(a, b *row64) uint32
	fP   func(a, b uint32) uint32
	fMMA func(r []row32, v []int32)
}

// order is the memory ordering of an access between blocks.
type order uint8

const (
	plain order = iota
	relaxed
	acquire
	release
	acqRel
)

// sharedBase is the address of the dynamic shared block: not 0, so that a kernel that forgets it is found out.
const sharedBase = 1024

// maxRegisters bounds the rows of a warp, 128 or 256 bytes each.
const maxRegisters = 1 << 16

// program is a kernel ready to run.
type program struct {
	name                     string
	kernel                   *ptx.Kernel
	code                     []inst
	nR, nQ, nP               int // rows a warp has
	regR, regQ               int // of which registers; constants and special registers follow
	constR                   []constant[uint32]
	constQ                   []constant[uint64]
	specials                 []special
	paramOff                 []int // offset of each parameter in the block of parameters
	paramBytes               int
	waits                    bool // has griddepcontrol.wait
	grainShared, grainGlobal int  // bytes of the narrowest store
}

type constant[T any] struct {
	row   int32
	value T
}

type special struct {
	row  int32
	name string
}

type decoder struct {
	p      *program
	k      *ptx.Kernel
	labels map[string]int
	r32    map[uint32]int32
	r64    map[uint64]int32
	spec   map[string]int32
	params map[string]int
	base   [ptx.NumClasses]int32
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
	d.base[ptx.F32] = int32(k.Regs[ptx.B32])
	d.base[ptx.B16] = d.base[ptx.F32] + int32(k.Regs[ptx.F32])
	p.regR = int(d.base[ptx.B16]) + k.Regs[ptx.B16]
	d.base[ptx.F64] = int32(k.Regs[ptx.B64])
	p.regQ = int(d.base[ptx.F64]) + k.Regs[ptx.F64]
	p.nR, p.nQ, p.nP = p.regR, p.regQ, k.Regs[ptx.Pred]
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
	for i := range k.Body {
		s := &k.Body[i]
		if s.Instr == nil {
			continue
		}
		in := inst{guard: -1, stmt: s}
		if s.Instr.Guarded {
			in.guard, in.negate = int32(s.Instr.Guard.ID), s.Instr.Negate
		}
		if err := d.instr(&in, s.Instr); err != nil {
			return nil, fmt.Errorf("kernel %s: line %d: %s: %w", k.Name, s.Line, s.Instr, err)
		}
		p.code = append(p.code, in)
	}
	// A body that runs off its end returns.
	last := &ptx.Stmt{Comment: "end of the kernel"}
	if len(k.Body) > 0 {
		last.Line = k.Body[len(k.Body)-1].Line + 1
	}
	p.code = append(p.code, inst{kind: kindExit, guard: -1, stmt: last})
	return p, nil
}

// reg is the row of a register in its file.
func (d *decoder) reg(r ptx.Reg) int32 { return d.base[r.Class] + int32(r.ID) }

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
		d.p.specials = append(d.p.specials, special{r, string(o)})
		return r, nil
	}
	return 0, fmt.Errorf("unexpected operand")
}

func (d *decoder) const32(v uint32) int32 {
	r, ok := d.r32[v]
	if !ok {
		r = int32(d.p.nR)
		d.p.nR++
		d.r32[v] = r
		d.p.constR = append(d.p.constR, constant[uint32]{r, v})
	}
	return r
}

func (d *decoder) const64(v uint64) int32 {
	r, ok := d.r64[v]
	if !ok {
		r = int32(d.p.nQ)
		d.p.nQ++
		d.r64[v] = r
		d.p.constQ = append(d.p.constQ, constant[uint64]{r, v})
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

// address resolves a memory operand into a row and an offset.
func (d *decoder) address(in *inst, o ptx.Operand, space string) (row int32, off int64, err error) {
	ad, ok := o.(ptx.Addr)
	if !ok {
		return 0, 0, fmt.Errorf("want an address")
	}
	typ := "u64"
	if space == "shared" {
		typ = "u32"
	}
	row, err = d.row(ad.Base, typ)
	return row, int64(ad.Off), err
}

func sizeOf(typ string) uint8 {
	switch typ {
	case "b8", "u8", "s8":
		return 1
	case "b16", "u16", "s16", "f16", "bf16":
		return 2
	case "b64", "u64", "s64", "f64":
		return 8
	}
	return 4
}

// instr fills in what the opcode means.
func (d *decoder) instr(in *inst, pi *ptx.Instr) error {
	def, ops := pi.Def, pi.Operands
	switch def.Kind {
	case ptx.KindLoad, ptx.KindStore, ptx.KindAsync, ptx.KindAtomic:
		return d.memory(in, def, ops)
	case ptx.KindMMA, ptx.KindMatrix, ptx.KindWarp:
		return d.warpWide(in, def, ops)
	case ptx.KindControl, ptx.KindSync:
		return d.control(in, def, ops)
	}
	return d.arithmetic(in, def, ops)
}

func (d *decoder) arithmetic(in *inst, def *ptx.Def, ops []ptx.Operand) error {
	if !semantics(def, in) {
		return fmt.Errorf("the emulator does not know this instruction")
	}
	slots := [...]*int32{&in.d, &in.a, &in.b, &in.c}
	n := 0
	for i, a := range def.Args {
		if a.Kind == ptx.ArgImm {
			in.imm = int64(ops[i].(ptx.Imm))
			continue
		}
		r, err := d.row(ops[i], a.Type)
		if err != nil {
			return err
		}
		*slots[n] = r
		n++
	}
	if def.Name == "lop3" {
		lut := uint8(in.imm)
		in.fR = func(d, a, b, c *row32) { lop3(d, a, b, c, lut) }
	}
	return nil
}

func (d *decoder) memory(in *inst, def *ptx.Def, ops []ptx.Operand) (err error) {
	for _, m := range def.Mods {
		switch m {
		case "acquire":
			in.order = acquire
		case "release":
			in.order = release
		case "acq_rel":
			in.order = acqRel
		}
	}
	data := func(i int) error {
		typ := def.Args[i].Type
		in.size, in.wide, in.signed = sizeOf(typ), isWide(typ), typ[0] == 's'
		in.vec, err = d.rows(ops[i], typ)
		return err
	}
	addr := func(i int) error {
		in.a, in.imm, err = d.address(in, ops[i], def.Args[i].Space)
		return err
	}
	switch {
	case def.Name == "ld" && def.Args[1].Space == "param":
		in.kind = kindLoadParam
		ad := ops[1].(ptx.Addr)
		s, ok := ad.Base.(ptx.Sym)
		off, known := d.params[string(s)]
		if !ok || !known {
			return fmt.Errorf("unknown parameter")
		}
		if err := data(0); err != nil {
			return err
		}
		in.imm = int64(off + ad.Off)
		if in.imm < 0 || int(in.imm)+int(in.size) > d.p.paramBytes {
			return fmt.Errorf("reads past the parameters")
		}
		return nil
	case def.Name == "ld" && def.Args[1].Space == "global":
		in.kind = kindLoadGlobal
	case def.Name == "ld" && def.Args[1].Space == "shared":
		in.kind = kindLoadShared
	case def.Name == "st" && def.Args[0].Space == "global":
		in.kind = kindStoreGlobal
	case def.Name == "st" && def.Args[0].Space == "shared":
		in.kind = kindStoreShared
	case def.Name == "atom" && def.Op[len(def.Op)-8:] == ".add.u32":
		in.kind = kindAtomic
		if in.order == plain {
			in.order = relaxed
		}
		if in.d, err = d.row(ops[0], "u32"); err != nil {
			return err
		}
		if in.b, err = d.row(ops[2], "u32"); err != nil {
			return err
		}
		in.size = 4
		return addr(1)
	case def.Name == "prefetch":
		in.kind, in.size = kindPrefetch, 1
		return addr(0)
	case def.Name == "cp" && len(def.Args) == 4:
		in.kind = kindCopyAsync
		n, ok := ops[2].(ptx.Imm)
		if !ok || n != 16 && (def.Mods[1] == "cg" || n != 4 && n != 8) {
			return fmt.Errorf("copies 16 bytes, or with .ca also 4 or 8")
		}
		in.size = uint8(n)
		if in.d, in.imm, err = d.address(in, ops[0], "shared"); err != nil {
			return err
		}
		in.vec = []int32{int32(in.imm)}
		if in.a, in.imm, err = d.address(in, ops[1], "global"); err != nil {
			return err
		}
		in.b, err = d.row(ops[3], "u32")
		return err
	case def.Op == "cp.async.commit_group":
		in.kind = kindCommit
		return nil
	case def.Op == "cp.async.wait_group":
		in.kind, in.imm = kindWaitGroup, int64(ops[0].(ptx.Imm))
		return nil
	case def.Op == "cp.async.wait_all":
		in.kind, in.imm = kindWaitGroup, -1
		return nil
	default:
		return fmt.Errorf("the emulator does not know this instruction")
	}
	ai, di := 1, 0
	if def.Name == "st" {
		ai, di = 0, 1
	}
	if err := data(di); err != nil {
		return err
	}
	if def.Name == "st" {
		grain := &d.p.grainGlobal
		if in.kind == kindStoreShared {
			grain = &d.p.grainShared
		}
		*grain = min(*grain, int(in.size))
	}
	return addr(ai)
}

func (d *decoder) warpWide(in *inst, def *ptx.Def, ops []ptx.Operand) (err error) {
	switch def.Name {
	case "mma":
		in.kind = kindMMA
		if in.fMMA = mmaOf(def.Op); in.fMMA == nil {
			return fmt.Errorf("the emulator does not know this instruction")
		}
		for i, a := range def.Args {
			v, err := d.rows(ops[i], a.Type)
			if err != nil {
				return err
			}
			in.vec = append(in.vec, v...)
		}
		return nil
	case "ldmatrix":
		in.kind, in.size = kindLoadMatrix, 16
		for _, m := range def.Mods {
			in.trans = in.trans || m == "trans"
		}
		if in.vec, err = d.rows(ops[0], "b32"); err != nil {
			return err
		}
		in.a, in.imm, err = d.address(in, ops[1], "shared")
		return err
	case "shfl":
		in.kind = kindShuffle
		pr := ops[0].(ptx.Pair)
		in.vec = []int32{int32(pr.P.ID), 0}
		in.d = d.reg(pr.D)
		in.imm = int64(shuffleModes[def.Mods[1]])
		for i, slot := range []*int32{&in.a, &in.b, &in.c, &in.vec[1]} {
			if *slot, err = d.row(ops[i+1], "b32"); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("the emulator does not know this instruction")
}

func (d *decoder) control(in *inst, def *ptx.Def, ops []ptx.Operand) (err error) {
	switch def.Op {
	case "bra", "bra.uni":
		in.kind = kindBranch
		t, ok := d.labels[string(ops[0].(ptx.Ref))]
		if !ok {
			return fmt.Errorf("unknown label")
		}
		in.imm = int64(t)
	case "ret", "exit":
		in.kind = kindExit
	case "bar.sync":
		in.kind, in.imm = kindBarrier, int64(ops[0].(ptx.Imm))
		if in.imm < 0 || in.imm > 15 {
			return fmt.Errorf("barriers are numbered 0 to 15")
		}
	case "bar.warp.sync":
		in.kind = kindWarpBarrier
		in.a, err = d.row(ops[0], "b32")
	case "membar.gl", "fence.acq_rel.gpu":
		in.kind = kindFence
	case "griddepcontrol.wait":
		in.kind = kindGridWait
		d.p.waits = true
	case "griddepcontrol.launch_dependents":
		in.kind = kindNop
	default:
		return fmt.Errorf("the emulator does not know this instruction")
	}
	return err
}
