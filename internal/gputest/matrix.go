package gputest

import (
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// warps is the number of blocks of one warp of the cases of warp-wide instructions.
const warps = 8

// matrixCases makes cases of ldmatrix and of mma.
func matrixCases(d *ptx.Def) []*Case {
	if d.Name == "ldmatrix" {
		return []*Case{loadMatrix(d)}
	}
	if d.Name != "mma" {
		return nil
	}
	if !strings.Contains(d.Op, ".m16n8k16.") {
		return narrowMMA(d)
	}
	var all []*Case
	for _, n := range mmaNumbers {
		if c := mma(d, n.name, n.draw); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// mmaNumbers are the kinds of numbers that an mma is fed with. Small integers make every sum exact, so that their case
// is compared bit for bit and shows who holds which element.
var mmaNumbers = []struct {
	name string
	draw func(v values) float64
}{
	{"integers", func(v values) float64 { return float64(v.IntN(17) - 8) }},
	{"near", func(v values) float64 { return 2*v.Float64() - 1 }},
	{"wide", func(v values) float64 { return v.moderate(6) }},
	{"special", func(v values) float64 {
		if v.IntN(40) == 0 {
			return cornersFloat[v.IntN(len(cornersFloat))]
		}
		return v.moderate(0)
	}},
}

// mma makes a case for the shapes whose A and B are of one 16-bit type and whose accumulators are f32; nil for others.
// Operands are loaded as registers: item by item, in the order of the instruction's operands.
func mma(d *ptx.Def, name string, draw func(values) float64) *Case {
	typ := d.Mods[len(d.Mods)-2]
	if !strings.Contains(d.Op, ".m16n8k16.") || typ != "f16" && typ != "bf16" {
		return nil
	}
	const k = 16
	c := &Case{Name: d.Op + "+" + name, Op: d.Op, Blocks: warps, Threads: 32, Rule: Rule{Float: "f32", Terms: k + 1}}
	if name == "integers" {
		c.Rule.Terms = 0
	}
	v := valuesFor(c.Name)
	for _, a := range d.Args {
		words := make([]uint64, warps*32*a.Count)
		size := 4
		switch {
		case a.Kind == ptx.ArgDst:
			c.Output = size * len(words)
			continue
		case a.Type == "f32":
			for i := range words {
				words[i] = uint64(math.Float32bits(float32(draw(v))))
			}
		default:
			for i := range words {
				words[i] = narrow(typ, draw(v))<<16 | narrow(typ, draw(v))
			}
		}
		in := pack(size, words)
		c.Inputs = append(c.Inputs, in)
		c.scale = append(c.scale, magnitudes(in, a.Type == "f32"))
	}
	c.emit = func(b *body) { emitRegisters(b, d, nil) }
	return c
}

// magnitudes clears the signs of f32 numbers, or of pairs of 16-bit ones.
func magnitudes(in []byte, whole bool) []byte {
	words := unpack(4, in)
	for i := range words {
		if words[i] &= 0x7fff7fff; whole {
			words[i] = unpack(4, in[4*i:4*i+4])[0] & 0x7fffffff
		}
	}
	return pack(4, words)
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
