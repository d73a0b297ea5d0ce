package ptx

import (
	"fmt"
	"math"
	"strconv"
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
func (c Class) Prefix() string { return prefixes[c] }

var prefixes = [...]string{"%p", "%h", "%r", "%rd", "%f", "%fd", "%b"}

// Decl is the type in the .reg directive.
func (c Class) Decl() string {
	return [...]string{".pred", ".b16", ".b32", ".b64", ".f32", ".f64", ".b8"}[c]
}

// Operand is an operand of an instruction: Reg, Imm, FImm, DImm, Sym, Special, Addr, Vec, Pair or Ref.
type Operand interface {
	appendTo(b []byte) []byte // its text
}

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

// Special registers that say when and where a block runs (PTX ISA 10). Only mov reads the first two.
const (
	// Clock is the lower half of a clock of nanoseconds that all multiprocessors share; some devices advance it by a microsecond at a time.
	Clock Special = "%globaltimer_lo"
	// Cycles is the lower half of a multiprocessor's own cycle counter (%clock64). Those of two multiprocessors differ.
	Cycles Special = "%clock"
	SM     Special = "%smid" // the number of the multiprocessor
)

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

func (r Reg) appendTo(b []byte) []byte {
	return strconv.AppendInt(append(b, r.Class.Prefix()...), int64(r.ID), 10)
}
func (i Imm) appendTo(b []byte) []byte { return strconv.AppendInt(b, int64(i), 10) }
func (f FImm) appendTo(b []byte) []byte {
	return fmt.Appendf(b, "0f%08X", math.Float32bits(float32(f)))
}
func (f DImm) appendTo(b []byte) []byte {
	return fmt.Appendf(b, "0d%016X", math.Float64bits(float64(f)))
}
func (s Sym) appendTo(b []byte) []byte     { return append(b, s...) }
func (s Special) appendTo(b []byte) []byte { return append(b, s...) }
func (r Ref) appendTo(b []byte) []byte     { return append(b, r...) }
func (p Pair) appendTo(b []byte) []byte    { return p.P.appendTo(append(p.D.appendTo(b), '|')) }
func (a Addr) appendTo(b []byte) []byte {
	b = a.Base.appendTo(append(b, '['))
	if a.Off != 0 {
		b = strconv.AppendInt(append(b, '+'), int64(a.Off), 10)
	}
	return append(b, ']')
}
func (v Vec) appendTo(b []byte) []byte {
	b = append(b, '{')
	for i, o := range v {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = o.appendTo(b)
	}
	return append(b, '}')
}

// textOf is an operand as it is printed.
func textOf(o Operand) string { return string(o.appendTo(nil)) }

// String prints the register as in PTX.
func (r Reg) String() string { return textOf(r) }
