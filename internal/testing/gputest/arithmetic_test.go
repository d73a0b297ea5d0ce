package gputest

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Shape of the cases of instructions that work a lane at a time.
const (
	threads = 128
	blocks  = 4
	items   = threads * blocks
)

// arithmeticCases makes cases of an instruction whose operands are registers and, for lop3, an immediate.
func arithmeticCases(d *ptx.Def) []*Case {
	if d.Name == "lop3" {
		var all []*Case
		for _, table := range []int{0x96, 0xe8, 0xca, 0x1b} { // three-way xor, majority, select, and one without symmetry
			c := arithmeticCase(d, fmt.Sprintf("%s+%02x", d.Op, table))
			c.emit = func(b *body) { emitRegisters(b, d, ptx.Imm(table)) }
			all = append(all, c)
		}
		return all
	}
	if d.Name == "bfi" {
		var all []*Case
		for _, field := range [][2]int{{0, 8}, {5, 11}, {24, 20}, {3, 0}, {0, 32}} { // position, length
			c := arithmeticCase(d, fmt.Sprintf("%s+%d+%d", d.Op, field[0], field[1]))
			c.emit = func(b *body) { emitRegisters(b, d, ptx.Imm(field[0]), ptx.Imm(field[1])) }
			all = append(all, c)
		}
		return all
	}
	c := arithmeticCase(d, d.Op)
	c.emit = func(b *body) { emitRegisters(b, d) }
	return []*Case{c}
}

func arithmeticCase(d *ptx.Def, name string) *Case {
	c := &Case{Name: name, Op: d.Op, Blocks: blocks, Threads: threads, Rule: ruleOf(d)}
	v := valuesFor(name)
	columns := make([][]uint64, 0, len(d.Args))
	for _, a := range d.Args {
		_, size := bitsOf(ptx.ClassOf(a.Type))
		if a.Kind == ptx.ArgDst {
			c.Output = items * size
			continue
		}
		if a.Kind != ptx.ArgSrc {
			continue
		}
		column := make([]uint64, items)
		for i := range column {
			column[i] = v.source(d, len(columns), a.Type)
		}
		columns = append(columns, column)
	}
	switch d.Name {
	case "div", "rem":
		avoidUndefined(d, columns)
	case "setp":
		for i := 0; i < items; i += 5 {
			columns[1][i] = columns[0][i]
		}
	}
	n := 0
	for _, a := range d.Args {
		if a.Kind == ptx.ArgSrc {
			_, size := bitsOf(ptx.ClassOf(a.Type))
			c.Inputs = append(c.Inputs, pack(size, columns[n]))
			n++
		}
	}
	return c
}

// source draws the n-th source operand of an instruction.
func (v values) source(d *ptx.Def, n int, typ string) uint64 {
	switch {
	case (d.Name == "shl" || d.Name == "shr") && n == 1: // beyond the width the result is all sign
		return v.Uint64N(80)
	case d.Name == "bfe" && n > 0: // position and length are read modulo 256 (PTX ISA, bfe)
		if v.IntN(4) == 0 {
			return v.Uint64N(256)
		}
		return v.Uint64N(40)
	case d.Kind == ptx.KindSpecial:
		return uint64(math.Float32bits(v.argument()))
	}
	return v.draw(typ)
}

// argument is an argument of ex2: mostly where its result is neither 0 nor infinite.
func (v values) argument() float32 {
	if v.IntN(8) == 0 {
		return float32(cornersFloat[v.IntN(len(cornersFloat))])
	}
	return float32(v.Float64()*280 - 152)
}

// avoidUndefined replaces divisors for which the ISA leaves the result open: zero, and -1 under the least integer.
func avoidUndefined(d *ptx.Def, columns [][]uint64) {
	if d.Kind == ptx.KindFloat {
		return
	}
	_, size := bitsOf(ptx.ClassOf(d.Types[0]))
	ones := ^uint64(0) >> (64 - 8*size)
	for i, b := range columns[1] {
		if b == 0 || b == ones && columns[0][i] == ones>>1+1 {
			columns[1][i] = 3
		}
	}
}

// ruleOf says what of a result the ISA fixes.
func ruleOf(d *ptx.Def) Rule {
	if d.Kind == ptx.KindSpecial {
		return approximate[d.Op]
	}
	typ := ""
	for _, a := range d.Args {
		if a.Kind == ptx.ArgDst {
			if typ = strings.TrimSuffix(a.Type, "x2"); a.Type == "f32x2" {
				return Rule{Float: "f32"} // word by word
			}
		}
	}
	moved := d.Kind == ptx.KindMove || d.Name == "selp" // bits as they are
	switch typ {
	case "f16", "bf16", "f32", "f64":
		if !moved {
			return Rule{Float: typ}
		}
	}
	return Rule{}
}

// approximate holds the greatest errors that the PTX ISA names for approximate functions, half a unit of the last place
// added, by which the CPU device's rounded result may be off; and two units of a subnormal number's last place.
var approximate = map[string]Rule{
	"ex2.approx.f32": {Float: "f32", Relative: 0x1p-22 + 0x1p-24, Absolute: 0x1p-148},
}

// emitRegisters loads the sources, executes the instruction and stores its result. immediates take the places of the
// operands that must be such: lop3's table, and the selectors of an mma with scales.
func emitRegisters(b *body, d *ptx.Def, immediates ...ptx.Operand) {
	var args []ptx.Operand
	var results []ptx.Reg
	n := 0
	for _, a := range d.Args {
		class := ptx.ClassOf(a.Type)
		switch {
		case a.Kind == ptx.ArgImm || d.Kind == ptx.KindMMA && a.Type == "u16":
			args, immediates = append(args, immediates[0]), immediates[1:]
		case a.Kind == ptx.ArgDst:
			regs := b.RegVec(class, max(a.Count, 1))
			results = append(results, regs...)
			args = append(args, operand(a, regs))
		default:
			args = append(args, operand(a, b.load(n, class, max(a.Count, 1))))
			n++
		}
	}
	b.I(d.Op, args...)
	b.store(results...)
}

// operand is a register, or a vector where the row asks for one.
func operand(a ptx.Arg, regs []ptx.Reg) ptx.Operand {
	if a.Count == 0 {
		return regs[0]
	}
	return ptx.V(regs...)
}
