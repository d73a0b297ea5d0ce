package gputest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// How a tensor core adds the products of an mma is not in the PTX ISA: calibration assumes f32 throughout, and Hopper is reported to keep 14
// bits of sums of 8-bit floats. Two cases of each mma of floats tell. "kept" adds terms that are 2^-1 to 2^-32 of the accumulator, or of
// another term that a third one cancels. "sums" adds positive numbers, up to K = 2048, where what is dropped shows as an error of one sign.

// Accumulator is how a device was seen to add the products of an mma.
type Accumulator struct {
	Kept   int             `json:"kept"`   // bits below the accumulator's first that a term may have; f32 has 23
	Within int             `json:"within"` // the same below the largest term, in one instruction, as far as the types reach
	Bias   map[int]float64 `json:"bias"`   // mean signed error of a sum of so many positive terms, relative to it
}

// unbiased is what the mean of 256 sums may be off where each step rounds to nearest.
const unbiased = 0x1p-22

// Exact reports whether sums are those of f32, each step rounded to nearest, within one instruction up to the bits that the types reach.
func (a Accumulator) Exact() bool {
	for _, b := range a.Bias {
		if math.Abs(b) > unbiased {
			return false
		}
	}
	return a.Kept >= 23
}

func (a Accumulator) String() string {
	if a.Exact() {
		return fmt.Sprintf("f32, mean error %.1e at K = 2048", a.Bias[2048])
	}
	return fmt.Sprintf("%d bits (%d within an instruction), mean error %.1e at K = 64 and %.1e at K = 2048: biased", a.Kept, a.Within, a.Bias[64], a.Bias[2048])
}

const (
	probes     = 32 // terms of 2^-1 to 2^-32
	longestSum = 2048
)

// reach are the powers of two that a type has, of moderate size.
var reach = map[string][2]int{"f16": {-24, 10}, "bf16": {-40, 10}, "tf32": {-40, 10}, "e4m3": {-9, 8}, "e5m2": {-16, 10}, "e2m1": {-1, 2}}

// shape is what accumulator cases know of an mma: PTX ISA, "Matrix Fragments": element e of register 2h or 2h+1 of A, and of register h of
// B, of thread t of a quad have one k; A's registers alternate between rows 0–7 and 8–15; lanes of a quad have one row, and one
// column.
type shape struct {
	d    *ptx.Def
	k    int
	a, b mmaElement
	one  uint32 // scales of 1
}

// accumulatorShape is that of an mma with f32 sums; false of others.
func accumulatorShape(d *ptx.Def) (s shape, ok bool) {
	if d.Does != ptx.Multiply || d.Args[0].Type != "f32" {
		return s, false
	}
	last := len(d.Mods) - 1
	switch d.Mods[last] {
	case "ue4m3":
		s.one, last = 0x38383838, last-1
	case "ue8m0":
		s.one, last = 0x7f7f7f7f, last-1
	}
	s.d = d
	_, err := fmt.Sscanf(d.Mods[2], "m16n8k%d", &s.k)
	var okA, okB bool
	s.a, okA = elementOf(d.Mods[last-2])
	s.b, okB = elementOf(d.Mods[last-1])
	if s.k == 32 && s.a.name == "e2m1" {
		s.a = inByte
	}
	if s.k == 32 && s.b.name == "e2m1" {
		s.b = inByte
	}
	return s, err == nil && okA && okB
}

// each is the number of elements of a register.
func (s shape) each() int { return s.k / 8 }

// bits is where element e of a register lies.
func (s shape) bits(m mmaElement, e int, x float64) uint64 {
	return m.encode(x) << (32 / s.each() * e)
}

// multiply appends an mma.
func (s shape) multiply(b *body, acc, a, bb []ptx.Reg) []ptx.Reg {
	out := b.RegVec(ptx.F32, 4)
	args := []ptx.Operand{ptx.V(out...), ptx.V(a...), ptx.V(bb...), ptx.V(acc...)}
	if s.one != 0 {
		one := b.Reg(ptx.B32)
		b.I("mov.b32", one, ptx.Imm(int(s.one)))
		zero := ptx.Vec{ptx.Imm(0), ptx.Imm(0)}
		args = append(args, ptx.V(one), zero, ptx.V(one), zero)
	}
	b.I(s.d.Op, args...)
	return out
}

// accumulatorCases are those of an mma.
func accumulatorCases(d *ptx.Def) []*Case {
	s, ok := accumulatorShape(d)
	if !ok {
		return nil
	}
	return []*Case{s.kept(), s.sums()}
}

// term is a product of 2^exponent: exponents of A and B; false if the types do not reach it.
func (s shape) term(exponent int) (a, b int, ok bool) {
	ra, rb := reach[s.a.name], reach[s.b.name]
	a = min(max(exponent-rb[1], ra[0]), ra[1])
	b = exponent - a
	return a, b, b >= rb[0] && b <= rb[1]
}

// small is a term of 2^-j of the largest, whose A is the same for all eight j of a block; false if the types do not reach it.
func (s shape) small(j int) (a, b int, ok bool) {
	ra, rb := reach[s.a.name], reach[s.b.name]
	top, largest := ra[1]+rb[1], (j-1)/8*8+1
	a = max(top-largest-rb[1], ra[0])
	b = top - j - a
	return a, b, b >= rb[0] && b <= rb[1]
}

// kept probes 2^-j of the accumulator, and of a term that another cancels; j-1 is eight times the block and the column.
func (s shape) kept() *Case {
	const blocks = probes / 8
	c := &Case{Name: s.d.Op + "+kept", Op: s.d.Op, Blocks: blocks, Threads: 32, Output: blocks * 32 * 8 * 4, Rule: Rule{Measured: true}}
	top := reach[s.a.name][1] + reach[s.b.name][1]
	x := [2][]uint64{make([]uint64, blocks*32*4), make([]uint64, blocks*32*4)} // A of both products
	y := [2][]uint64{make([]uint64, blocks*32*2), make([]uint64, blocks*32*2)}
	accumulators := make([]uint64, blocks*32*4)
	put := func(product, lane, a, b int, sign float64) {
		for row := range 2 {
			x[product][lane*4+row] |= s.bits(s.a, 0, math.Ldexp(1, a))
		}
		y[product][lane*2] |= s.bits(s.b, 0, sign*math.Ldexp(1, b))
	}
	for lane := range blocks * 32 {
		block, column := lane/32, lane%32/4 // of B
		for e := range 4 {
			accumulators[lane*4+e] = uint64(math.Float32bits(float32(math.Ldexp(1, 8*block+lane%4*2+e%2+1))))
		}
		switch a, b, _ := s.term(top); lane % 4 {
		case 0:
			put(1, lane, a, b, 1)
			a, b, _ = s.term(0)
			put(0, lane, a, b, 1)
		case 1:
			put(1, lane, a, b, -1)
		case 2: // A is the same for all columns of a block
			a, b, ok := s.small(8*block + column + 1)
			sign := 1.0
			if !ok {
				sign, b = 0, 0
			}
			put(1, lane, a, b, sign)
		}
	}
	c.Inputs = [][]byte{pack(4, x[0]), pack(4, y[0]), pack(4, x[1]), pack(4, y[1]), pack(4, accumulators)}
	c.emit = func(b *body) {
		zero := b.RegVec(ptx.F32, 4)
		for _, r := range zero {
			b.I("mov.f32", r, ptx.FImm(0))
		}
		first := s.multiply(b, b.load(4, ptx.F32, 4), b.load(0, ptx.B32, 4), b.load(1, ptx.B32, 2))
		second := s.multiply(b, zero, b.load(2, ptx.B32, 4), b.load(3, ptx.B32, 2))
		b.store(append(first, second...)...)
	}
	return c
}

// readKept counts the bits from the first on of which terms were kept, in all rows.
func readKept(output []byte) (kept, within int) {
	words := unpack(4, output)
	seen := [2][probes]bool{}
	for p := range seen {
		for j := range seen[p] {
			seen[p][j] = true
		}
	}
	for lane := range len(words) / 8 {
		for e := range 4 {
			j := 8*(lane/32) + lane%4*2 + e%2
			got := math.Float32frombits(uint32(words[lane*8+e]))
			seen[0][j] = seen[0][j] && float64(got) > math.Ldexp(1, j+1)
			seen[1][j] = seen[1][j] && math.Float32frombits(uint32(words[lane*8+4+e])) > 0
		}
	}
	count := func(s [probes]bool) (n int) {
		for n < probes && s[n] {
			n++
		}
		return n
	}
	return count(seen[0]), count(seen[1])
}

// sumLengths are those after which sums are stored.
func sumLengths() (ks []int) {
	for k := 64; k <= longestSum; k *= 2 {
		ks = append(ks, k)
	}
	return ks
}

const sumBlocks = 2

// sums adds products of numbers up to 1, of several magnitudes.
func (s shape) sums() *Case {
	steps, lanes := longestSum/s.k, sumBlocks*32
	c := &Case{Name: s.d.Op + "+sums", Op: s.d.Op, Blocks: sumBlocks, Threads: 32, Output: lanes * 4 * 4 * len(sumLengths()), Rule: Rule{Float: "f32", Relative: 0.05}}
	v := valuesFor(c.Name)
	for _, m := range []struct {
		element mmaElement
		count   int
	}{{s.a, 4}, {s.b, 2}} {
		words := make([]uint64, steps*lanes*m.count)
		for i := range words {
			for e := range s.each() {
				words[i] |= s.bits(m.element, e, math.Ldexp(.5+v.Float64()/2, -v.IntN(1+min(5, -reach[m.element.name][0]-1))))
			}
		}
		c.Inputs = append(c.Inputs, pack(4, words))
	}
	c.emit = func(b *body) {
		acc := b.RegVec(ptx.F32, 4)
		for _, r := range acc {
			b.I("mov.f32", r, ptx.FImm(0))
		}
		var out []ptx.Reg
		for step := range steps {
			load := func(input, count int) []ptx.Reg {
				at, regs := b.at(b.in[input], b.item, 4*count), b.RegVec(ptx.B32, count)
				for i, r := range regs {
					b.I("ld.global.b32", r, ptx.At(at, 4*(step*lanes*count+i)))
				}
				return regs
			}
			acc = s.multiply(b, acc, load(0, 4), load(1, 2))
			if k := (step + 1) * s.k; k >= 64 && k&(k-1) == 0 {
				out = append(out, acc...)
			}
		}
		b.store(out...)
	}
	return c
}

// readBias is the mean signed error by number of terms, relative to the exact sums.
func (s shape) readBias(c *Case, output []byte) map[int]float64 {
	steps, lanes, n := longestSum/s.k, sumBlocks*32, s.each()
	a, b, got := unpack(4, c.Inputs[0]), unpack(4, c.Inputs[1]), unpack(4, output)
	value := func(m mmaElement, word uint64, e int) float64 {
		width := 32 / n
		return decodeElement(m, word>>(width*e)&(1<<width-1))
	}
	ks, bias := sumLengths(), map[int]float64{}
	for block := range sumBlocks {
		for row := range 16 {
			for col := range 8 {
				sum, at := 0.0, 0
				for step := range steps {
					for t := range 4 {
						for half := range 2 {
							wordA := a[step*lanes*4+(block*32+row%8*4+t)*4+2*half+row/8]
							wordB := b[step*lanes*2+(block*32+col*4+t)*2+half]
							for e := range n {
								sum += value(s.a, wordA, e) * value(s.b, wordB, e)
							}
						}
					}
					if (step+1)*s.k != ks[at] {
						continue
					}
					lane, e := block*32+row%8*4+col/2, row/8*2+col%2
					x := math.Float32frombits(uint32(got[(lane*len(ks)+at)*4+e]))
					bias[ks[at]] += (float64(x)/sum - 1) / (sumBlocks * 16 * 8)
					at++
				}
			}
		}
	}
	return bias
}

// decodeElement is the value of an element.
func decodeElement(m mmaElement, bits uint64) float64 {
	switch m.name {
	case "tf32":
		return float64(math.Float32frombits(uint32(bits)))
	case "e2m1":
		if m.bits == 8 {
			bits >>= 2
		}
	}
	for _, f := range minifloat.AllFormats {
		if f.Name == m.name {
			return f.Decode(uint32(bits))
		}
	}
	panic("no format " + m.name)
}

// accumulators reads how a device adds, by opcode, from the outputs of its cases.
func accumulators(cases []*Case, output func(c *Case) []byte) map[string]Accumulator {
	out := map[string]Accumulator{}
	for _, c := range cases {
		kind := strings.TrimPrefix(c.Name, c.Op)
		if kind != "+kept" && kind != "+sums" {
			continue
		}
		raw := output(c)
		if raw == nil {
			continue
		}
		a := out[c.Op]
		if kind == "+kept" {
			a.Kept, a.Within = readKept(raw)
		} else {
			s, _ := accumulatorShape(ptx.Lookup(c.Op))
			a.Bias = s.readBias(c, raw)
		}
		out[c.Op] = a
	}
	return out
}

// TestAccumulatorsAreFound: the CPU device adds in f32, and, told to cut sums off at some bits, is seen to.
func TestAccumulatorsAreFound(t *testing.T) {
	ctx := context.Background()
	var cases []*Case
	for _, c := range availableCases("sm_121a") {
		if strings.HasSuffix(c.Name, "+kept") || strings.HasSuffix(c.Name, "+sums") {
			cases = append(cases, c)
		}
	}
	for _, bits := range []int{0, 10, 13, 22} {
		cut := map[string]int{}
		for _, c := range cases {
			if bits > 0 {
				cut[c.Op] = bits
			}
		}
		d, err := emu.Open(emu.Options{CutOff: cut})
		require.NoError(t, err)
		r := &Runner{Device: d, Target: "sm_121a"}
		require.NoError(t, r.Open(ctx, cases))
		found := accumulators(cases, func(c *Case) []byte {
			out, err := r.Run(ctx, c)
			require.NoError(t, err)
			return out
		})
		require.Len(t, found, len(cases)/2)
		for op, a := range found {
			t.Logf("%d bits: %s: %v", bits, op, a)
			want := bits
			if bits == 0 {
				want = 23
			}
			require.Equal(t, bits == 0, a.Exact(), "%s: %+v", op, a)
			require.Equal(t, want, a.Kept, "%s: %+v", op, a)
			if bits == 0 { // the specification adds terms that cancel before it adds the small one
				require.Equal(t, reached(op), a.Within, "%s: %+v", op, a)
			} else {
				require.Equal(t, min(bits, reached(op)), a.Within, "%s: %+v", op, a)
			}
			// Products of narrow numbers have few bits, so that nothing of their sums is dropped.
			if s, _ := accumulatorShape(ptx.Lookup(op)); bits == 10 || bits == 13 && !strings.Contains(op, "e2m1.e2m1") || bits > 0 && s.a.bits >= 16 {
				require.Less(t, a.Bias[2048], -unbiased, "%s: %+v", op, a)
			}
		}
		require.NoError(t, d.Close())
	}
}

// reached is how many bits below the largest term the types of an mma reach.
func reached(op string) (n int) {
	s, _ := accumulatorShape(ptx.Lookup(op))
	for j := 1; j <= probes; j++ {
		if _, _, ok := s.small(j); !ok {
			return n
		}
		n = j
	}
	return n
}
