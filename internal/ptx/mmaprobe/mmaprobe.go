// Package mmaprobe measures how a device accumulates the products of an mma, which the PTX ISA leaves open. Calibration assumes f32
// throughout; Hopper is reported to keep 14 bits of sums of 8-bit floats (DeepSeek-V3 Technical Report, 2024, section 3.5.2). Each float mma
// has two probes. Kept adds terms that are 2^-1 to 2^-32 of the accumulator, or of another term that a third one cancels. Added sums positive
// numbers, up to K = 2048, where truncation shows as an error of one sign.
//
// The GPU bundle's vectors (internal/testing/gputest) and spark-bench --machine (bench/machine) run them.
package mmaprobe

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Accumulator is how a device was seen to add the products of an mma.
type Accumulator struct {
	Kept   int             `json:"kept"`   // bits below the accumulator's first that a term may have; f32 has 23
	Within int             `json:"within"` // the same below the largest term, in one instruction, as far as the types reach
	Bias   map[int]float64 `json:"bias"`   // mean signed error of a sum of so many positive terms, relative to it
}

// Bits are those that sums in f32 keep below their first.
const Bits = 23

// Unbiased is what the mean of 256 sums may be off where each step rounds to nearest.
const Unbiased = 0x1p-22

// Exact reports whether sums are those of f32, each step rounded to nearest, within one instruction up to the bits that the types reach.
func (a Accumulator) Exact() bool {
	for _, b := range a.Bias {
		if math.Abs(b) > Unbiased {
			return false
		}
	}
	return a.Kept >= Bits
}

func (a Accumulator) String() string {
	if a.Exact() {
		return fmt.Sprintf("f32, mean error %.1e at K = %d", a.Bias[longest], longest)
	}
	return fmt.Sprintf("%d bits (%d within an instruction), mean error %.1e at K = 64 and %.1e at K = %d: biased", a.Kept, a.Within, a.Bias[64], a.Bias[longest], longest)
}

const (
	probes  = 32   // terms of 2^-1 to 2^-32
	longest = 2048 // K of a sum
)

// Kernel is one of the two: it takes the addresses of its inputs and of its output, all of whose bytes it writes. A block is a warp.
type Kernel struct {
	Inputs [][]byte
	Output int // bytes
	Blocks int
	// Emit writes the kernel's body: in are the addresses of the inputs, out that of the output, lane is the number of the thread in the grid.
	Emit func(k *ptx.Kernel, in []ptx.Reg, out, lane ptx.Reg)
}

// Probe is both kernels for an mma. Of its fragments it knows what PTX ISA, "Matrix Fragments", says: element e of register 2h or 2h+1 of A, and of
// register h of B, of thread t of a quad have one k; A's registers alternate between rows 0–7 and 8–15; lanes of a quad have one row, and one
// column.
type Probe struct {
	Kept, Added Kernel

	d    *ptx.Def
	k    int
	a, b element
	one  uint32 // scales of 1
}

// element is how a type lies in the registers of an mma.
type element struct {
	format *minifloat.Format // nil: tf32
	bits   int               // that an element takes
	shift  int               // of its code in them
	least  int               // powers of two that the type has, of moderate size: the least
	most   int               // and the greatest
}

// elementOf is that of a type of the PTX ISA, which lies in a register as often as each says; false of others.
func elementOf(name string, each int) (e element, ok bool) {
	reach, ok := map[string][2]int{"f16": {-24, 10}, "bf16": {-40, 10}, "tf32": {-40, 10}, "e4m3": {-9, 8}, "e5m2": {-16, 10}, "e2m1": {-1, 2}}[name]
	e.format, e.bits, e.least, e.most = minifloat.Named(name), 32/each, reach[0], reach[1]
	if name == "e2m1" && each == 4 { // kind::f8f6f4 has it in the middle of a byte
		e.shift = 2
	}
	return e, ok
}

func (e element) encode(x float64) uint64 {
	if e.format == nil {
		return uint64(math.Float32bits(float32(x)) &^ 0x1fff)
	}
	return uint64(e.format.Encode(x, true)) << e.shift
}

func (e element) decode(bits uint64) float64 {
	if e.format == nil {
		return float64(math.Float32frombits(uint32(bits)))
	}
	return e.format.Decode(uint32(bits >> e.shift))
}

// For is the probe for an mma of floats with f32 sums; nil for other instructions.
func For(d *ptx.Def) *Probe {
	if d.Does != ptx.Multiply || d.Args[0].Type != "f32" {
		return nil
	}
	p := &Probe{d: d}
	last := len(d.Mods) - 1
	switch d.Mods[last] {
	case "ue4m3":
		p.one, last = 0x38383838, last-1
	case "ue8m0":
		p.one, last = 0x7f7f7f7f, last-1
	}
	if _, err := fmt.Sscanf(d.Mods[2], "m16n8k%d", &p.k); err != nil {
		return nil
	}
	var okA, okB bool
	p.a, okA = elementOf(d.Mods[last-2], p.each())
	p.b, okB = elementOf(d.Mods[last-1], p.each())
	if !okA || !okB {
		return nil
	}
	p.Kept, p.Added = p.kept(), p.added()
	return p
}

// each is the number of elements of a register.
func (p *Probe) each() int { return p.k / 8 }

// Reach is how many bits below the largest term the types reach: Within is no more.
func (p *Probe) Reach() (n int) {
	for j := 1; j <= probes; j++ {
		if _, _, ok := p.small(j); !ok {
			return n
		}
		n = j
	}
	return n
}

// Read is how a device adds, by the outputs of both kernels.
func (p *Probe) Read(kept, added []byte) (a Accumulator) {
	a.Kept, a.Within = readKept(kept)
	a.Bias = p.readBias(added)
	return a
}
