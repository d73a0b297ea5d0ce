package ptx

import (
	"fmt"
	"math"
	"strings"
)

// Class is a register file: registers of a class are declared together and printed with its prefix.
type Class uint8

// Register classes. B32 registers carry any 32-bit integer, f16x2 or bf16x2; F32 and F64 only their type.
const (
	Pred Class = iota
	B16
	B32
	B64
	F32
	F64
	B8 // two e2m1
	NumClasses
)

// Prefix is the register name's stem: %p, %h, %r, %rd, %f, %fd, %b.
func (c Class) Prefix() string { return [...]string{"%p", "%h", "%r", "%rd", "%f", "%fd", "%b"}[c] }

// Decl is the type in the .reg directive.
func (c Class) Decl() string {
	return [...]string{".pred", ".b16", ".b32", ".b64", ".f32", ".f64", ".b8"}[c]
}

// Operand is an operand of an instruction: Reg, Imm, FImm, DImm, Sym, Special, Addr, Vec, Pair or Ref.
type Operand interface{ operand() string }

// Reg is a virtual register.
type Reg struct {
	Class Class
	ID    int
}

// Imm is an integer immediate.
type Imm int64

// FImm is an f32 immediate, printed as 0fXXXXXXXX.
type FImm float32

// DImm is an f64 immediate, printed as 0dXXXXXXXXXXXXXXXX.
type DImm float64

// Sym names a parameter, or stands for the address of a shared variable (mov.u32 %r1, smem).
type Sym string

// Special is a special register: %tid.x, %ctaid.y, %laneid …
type Special string

// Clock is the lower half of a clock of nanoseconds that all multiprocessors share (PTX ISA, %globaltimer); some devices advance it by a
// microsecond at a time. Only mov reads it.
const Clock Special = "%globaltimer_lo"

// Addr is a memory operand [Base+Off]; Base is a Reg or a Sym.
type Addr struct {
	Base Operand
	Off  int
}

// Vec is a vector operand {a, b, …}.
type Vec []Operand

// Pair is d|p, the two destinations of shfl.sync.
type Pair struct{ D, P Reg }

// Ref is the target label of a branch.
type Ref string

func (r Reg) operand() string     { return fmt.Sprintf("%s%d", r.Class.Prefix(), r.ID) }
func (i Imm) operand() string     { return fmt.Sprintf("%d", int64(i)) }
func (f FImm) operand() string    { return fmt.Sprintf("0f%08X", math.Float32bits(float32(f))) }
func (f DImm) operand() string    { return fmt.Sprintf("0d%016X", math.Float64bits(float64(f))) }
func (s Sym) operand() string     { return string(s) }
func (s Special) operand() string { return string(s) }
func (r Ref) operand() string     { return string(r) }
func (p Pair) operand() string    { return p.D.operand() + "|" + p.P.operand() }
func (a Addr) operand() string {
	if a.Off == 0 {
		return "[" + a.Base.operand() + "]"
	}
	return fmt.Sprintf("[%s+%d]", a.Base.operand(), a.Off)
}
func (v Vec) operand() string {
	parts := make([]string, len(v))
	for i, o := range v {
		parts[i] = o.operand()
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// String prints the register as in PTX.
func (r Reg) String() string { return r.operand() }
