package gputest

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// warps is the number of blocks, of one warp each, in cases of warp-wide instructions.
const warps = 8

// products makes cases of an mma.
func products(d *ptx.Def) []*Case {
	var all []*Case
	for _, n := range mmaNumbers {
		if c := mma(d, n.name, n.draw, n.selectors); c != nil {
			all = append(all, c)
		}
	}
	return append(all, accumulatorCases(d)...)
}

// mmaNumbers are the kinds of inputs of an mma. Small integers make every sum exact, so that their case
// is compared bit for bit and shows which lane holds which element. With them the scales of blocks are 1, otherwise anything.
var mmaNumbers = []struct {
	name      string
	draw      func(v values) float64
	selectors [2]int // which threads of a group hold the scales of A and B
}{
	{"integers", func(v values) float64 { return float64(v.IntN(17) - 8) }, [2]int{0, 0}},
	{"near", func(v values) float64 { return 2*v.Float64() - 1 }, [2]int{1, 3}},
	{"wide", func(v values) float64 { return v.moderate(6) }, [2]int{0, 2}},
	{"special", func(v values) float64 {
		if v.IntN(40) == 0 {
			return cornersFloat[v.IntN(len(cornersFloat))]
		}
		return v.moderate(0)
	}, [2]int{1, 1}},
}

// mmaElement is how a type lies in the registers of an mma.
type mmaElement struct {
	name   string
	bits   int // that an element takes
	encode func(x float64) uint64
	sign   uint64 // its sign bit
}

var mmaElements = []mmaElement{
	{"f16", 16, func(x float64) uint64 { return narrow("f16", x) }, 1 << 15},
	{"bf16", 16, func(x float64) uint64 { return narrow("bf16", x) }, 1 << 15},
	{"e4m3", 8, func(x float64) uint64 { return uint64(minifloat.E4M3FN.Encode(x, true)) }, 1 << 7},
	{"e5m2", 8, func(x float64) uint64 { return uint64(minifloat.E5M2.Encode(x, true)) }, 1 << 7},
	{"e2m1", 4, fourBits, 1 << 3},
	{"tf32", 32, func(x float64) uint64 { return uint64(math.Float32bits(float32(x)) &^ 0x1fff) }, 1 << 31},
	{"s8", 8, func(x float64) uint64 { return uint64(uint8(clipTo(x, -128, 127))) }, 0},
	{"u8", 8, func(x float64) uint64 { return uint64(uint8(clipTo(x, 0, 255))) }, 0},
}

// inByte is e2m1 in the middle of a byte, as kind::f8f6f4 has it.
var inByte = mmaElement{"e2m1", 8, func(x float64) uint64 { return fourBits(x) << 2 }, 1 << 5}

// clipTo is the integer that x stands for, many times larger where x is small; 0 for a NaN.
func clipTo(x, least, most float64) int {
	if math.IsNaN(x) {
		return 0
	}
	return int(min(max(math.Trunc(x*16), least), most))
}

// fourBits has no NaN: 0 stands for it.
func fourBits(x float64) uint64 {
	if math.IsNaN(x) {
		x = 0
	}
	return uint64(minifloat.E2M1.Encode(x, true))
}

func elementOf(typ string) (mmaElement, bool) {
	for _, e := range mmaElements {
		if e.name == typ {
			return e, true
		}
	}
	return mmaElement{}, false
}

// mma makes a case of an mma with f32 accumulators; nil if its shape or types are none of these. Operands are
// loaded as registers: item by item, in the order of the instruction's operands.
func mma(d *ptx.Def, name string, draw func(values) float64, selectors [2]int) *Case {
	var k int
	if _, err := fmt.Sscanf(d.Mods[2], "m16n8k%d", &k); err != nil {
		return nil
	}
	last := len(d.Mods) - 1
	if strings.HasPrefix(d.Mods[last], "ue") {
		last--
	}
	a, okA := elementOf(d.Mods[last-2])
	b, okB := elementOf(d.Mods[last-1])
	if !okA || !okB {
		return nil
	}
	if strings.Contains(d.Op, "kind::f8f6f4") {
		if a.name == "e2m1" {
			a = inByte
		}
		if b.name == "e2m1" {
			b = inByte
		}
	}
	c := &Case{Name: d.Op + "+" + name, Op: d.Op, Blocks: warps, Threads: 32}
	if d.Args[0].Type == "f32" {
		c.Rule.Float = "f32"
	}
	one, most := uint64(0x38), uint64(0x7f) // 1 in ue4m3, and the codes below NaN
	if strings.HasSuffix(d.Op, "ue8m0") {
		one, most = 127, 20
	}
	if name != "integers" && c.Rule.Float != "" {
		c.Rule = Rule{Float: "f32", Terms: k + 1, Unit: 0x1p-23}
		if a.bits < 16 {
			c.Rule.Unit = 0x1p-13
		}
	}
	v := valuesFor(c.Name)
	elements := []mmaElement{{}, a, b}
	for i, arg := range d.Args {
		words := make([]uint64, warps*32*arg.Count)
		switch {
		case arg.Kind == ptx.ArgDst:
			c.Output = 4 * len(words)
			continue
		case arg.Type == "u16":
			continue
		case i < len(elements):
			c.add32(words, elements[i].sign, elements[i].bits, func() uint64 { return elements[i].encode(draw(v)) })
		case arg.Type == "f32":
			c.add32(words, 1<<31, 32, func() uint64 { return uint64(math.Float32bits(float32(draw(v)))) })
		case arg.Type == "s32":
			c.add32(words, 0, 32, func() uint64 { return uint64(uint32(v.Uint64())) })
		case name == "integers":
			c.add32(words, 0, 8, func() uint64 { return one })
		case most < 0x7f: // around 1
			c.add32(words, 0, 8, func() uint64 { return one - most/2 + v.Uint64N(most) })
		default:
			c.add32(words, 0, 8, func() uint64 { return v.Uint64N(most) })
		}
	}
	c.emit = func(b *body) {
		emitRegisters(b, d, ptx.Vec{ptx.Imm(0), ptx.Imm(selectors[0])}, ptx.Vec{ptx.Imm(0), ptx.Imm(selectors[1])})
	}
	return c
}

// add32 fills words with elements of a number of bits and appends them to the inputs, and without signs to the scale.
func (c *Case) add32(words []uint64, sign uint64, bits int, element func() uint64) {
	plain := make([]uint64, len(words))
	for i := range words {
		for at := 0; at < 32; at += bits {
			e := element()
			words[i] |= e << at
			plain[i] |= e &^ sign << at
		}
	}
	c.Inputs, c.scale = append(c.Inputs, pack(4, words)), append(c.scale, pack(4, plain))
}

// loadMatrix makes a case of ldmatrix: rows of 16 bytes lie in shared memory, lane l gives the address of row order[l].
func loadMatrix(d *ptx.Def) *Case {
	count := d.Args[0].Count
	c := &Case{Name: d.Op, Op: d.Op, Blocks: warps, Threads: 32, Shared: 32 * 16, Output: warps * 32 * 4 * count}
	v := valuesFor(c.Name)
	var order []uint64
	for range warps {
		for _, row := range v.Perm(32) {
			order = append(order, uint64(row))
		}
	}
	c.Inputs = [][]byte{v.bytes(warps * 32 * 16), pack(4, order)}
	c.emit = func(b *body) {
		row := b.load(0, ptx.B32, 4)
		b.I("st.shared.v4.b32", ptx.At(b.shared(b.thread, 16), 0), ptx.V(row...))
		b.I("bar.sync", ptx.Imm(0))
		from := b.shared(b.load(1, ptx.B32, 1)[0], 16)
		out := b.RegVec(ptx.B32, count)
		b.I(d.Op, ptx.V(out...), ptx.At(from, 0))
		b.store(out...)
	}
	return c
}

// storeMatrix makes a case of stmatrix: lane l gives the address of row order[l], and the rows are read back.
func storeMatrix(d *ptx.Def) *Case {
	count := d.Args[1].Count
	c := &Case{Name: d.Op, Op: d.Op, Blocks: warps, Threads: 32, Shared: 32 * 16, Output: warps * 32 * 16}
	v := valuesFor(c.Name)
	var order []uint64
	for range warps {
		for _, row := range v.Perm(32) {
			order = append(order, uint64(row))
		}
	}
	c.Inputs = [][]byte{v.bytes(warps * 32 * 4 * count), pack(4, order)}
	c.emit = func(b *body) {
		to, zero := b.shared(b.load(1, ptx.B32, 1)[0], 16), b.Reg(ptx.B32)
		b.I("mov.b32", zero, ptx.Imm(0)) // rows that no lane names
		b.I("st.shared.v4.b32", ptx.At(b.shared(b.thread, 16), 0), ptx.V(zero, zero, zero, zero))
		b.I("bar.sync", ptx.Imm(0))
		b.I(d.Op, ptx.At(to, 0), ptx.V(b.load(0, ptx.B32, count)...))
		b.I("bar.sync", ptx.Imm(0))
		row := b.RegVec(ptx.B32, 4)
		b.I("ld.shared.v4.b32", ptx.V(row...), ptx.At(b.shared(b.thread, 16), 0))
		b.store(row...)
	}
	return c
}
