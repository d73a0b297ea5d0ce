package gputest

import (
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// narrowTypes are the 8-bit and 4-bit operands of an mma: the format, where its codes lie, and the bits that are signs.
var narrowTypes = map[string]struct {
	format *minifloat.Format
	bits   uint // that a code takes
	shift  uint
	signs  uint64
}{
	"e4m3": {minifloat.E4M3FN, 8, 0, 0x80808080},
	"e5m2": {minifloat.E5M2, 8, 0, 0x80808080},
	"e2m1": {minifloat.E2M1, 8, 2, 0x20202020}, // kind::f8f6f4
	"nvf4": {minifloat.E2M1, 4, 0, 0x88888888}, // kind::mxf4nvf4
	"s8":   {nil, 8, 0, 0},
	"u8":   {nil, 8, 0, 0},
}

// narrowMMA makes cases of an mma on 8-bit or 4-bit operands: every code, and small integers, whose sums are exact.
func narrowMMA(d *ptx.Def) []*Case {
	scaled := strings.Contains(d.Op, ".block_scale.")
	ta, tb, depth := d.Mods[len(d.Mods)-3], d.Mods[len(d.Mods)-2], 32
	if scaled {
		ta, tb, depth = "nvf4", "nvf4", 64
	}
	whole := narrowTypes[ta].format == nil
	var all []*Case
	for _, integers := range []bool{true, false} {
		name := d.Op + "+codes"
		if integers {
			name = d.Op + "+integers"
		}
		c := &Case{Name: name, Op: d.Op, Blocks: warps, Threads: 32, Rule: Rule{Float: "f32"}}
		if whole {
			c.Rule = Rule{}
		} else if !integers {
			c.Rule.Terms = depth + 1
		}
		v := valuesFor(name)
		for i, a := range d.Args {
			if a.Kind == ptx.ArgDst {
				c.Output = 4 * warps * 32 * a.Count
				continue
			}
			if a.Type == "u16" { // a selector
				continue
			}
			words := make([]uint64, warps*32*a.Count)
			signs := uint64(1 << 31)
			for j := range words {
				switch {
				case i == 1 || i == 2:
					typ := []string{ta, tb}[i-1]
					words[j], signs = v.codes(typ, integers), narrowTypes[typ].signs
				case i == 3 && whole:
					words[j] = v.draw("s32")
				case i == 3:
					words[j] = uint64(math.Float32bits(float32(v.IntN(17) - 8)))
				case integers: // scales of 1 and 2
					words[j], signs = 0x38383838+v.Uint64N(2)*0x08080808, 0
				default:
					words[j], signs = v.Uint64()&0x3f3f3f3f, 0
				}
			}
			c.Inputs = append(c.Inputs, pack(4, words))
			for j := range words {
				words[j] &^= signs
			}
			c.scale = append(c.scale, pack(4, words))
		}
		c.emit = func(b *body) { emitNarrowMMA(b, d) }
		all = append(all, c)
	}
	return all
}

// codes draws the codes that fill a register: small integers, or any but NaN.
func (v values) codes(typ string, integers bool) uint64 {
	t := narrowTypes[typ]
	var word uint64
	for at := uint(0); at < 32; at += t.bits {
		code := v.Uint64N(1 << t.bits)
		if t.format != nil {
			code = uint64(t.format.Encode(float64(v.IntN(9)-4), true))
			if !integers {
				for code = v.Uint64N(1 << t.format.Bits()); math.IsNaN(t.format.Decode(uint32(code))) || math.IsInf(t.format.Decode(uint32(code)), 0); {
					code = v.Uint64N(1 << t.format.Bits())
				}
			}
			code <<= t.shift
		}
		word |= code << at
	}
	return word
}

// emitNarrowMMA is emitRegisters with selectors of zero.
func emitNarrowMMA(b *body, d *ptx.Def) {
	var args []ptx.Operand
	var out []ptx.Reg
	n := 0
	for _, a := range d.Args {
		class := ptx.ClassOf(a.Type)
		switch {
		case a.Kind == ptx.ArgDst:
			out = b.RegVec(class, a.Count)
			args = append(args, ptx.V(out...))
		case a.Type == "u16":
			args = append(args, ptx.Vec{ptx.Imm(0), ptx.Imm(0)})
		default:
			args = append(args, ptx.V(b.load(n, class, a.Count)...))
			n++
		}
	}
	b.I(d.Op, args...)
	b.store(out...)
}
