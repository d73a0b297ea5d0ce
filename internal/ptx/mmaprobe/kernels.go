package mmaprobe

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// body is a kernel under construction: its addresses are in registers already.
type body struct {
	*ptx.Kernel
	in        []ptx.Reg
	out, lane ptx.Reg
}

// at is the address of a lane's words, so many each.
func (b *body) at(base ptx.Reg, words int) ptx.Reg {
	r := b.Reg(ptx.B64)
	b.I("mad.wide.u32", r, b.lane, ptx.Imm(4*words), base)
	return r
}

// load reads a lane's words of an input, so many, from an offset in bytes on.
func (b *body) load(input int, c ptx.Class, words, offset int) []ptx.Reg {
	at, regs := b.at(b.in[input], words), b.RegVec(c, words)
	for i, r := range regs {
		b.I("ld.global.b32", r, ptx.At(at, offset+4*i))
	}
	return regs
}

func (b *body) store(regs []ptx.Reg) {
	at := b.at(b.out, len(regs))
	for i, r := range regs {
		b.I("st.global.f32", ptx.At(at, 4*i), r)
	}
}

func (b *body) zeros() []ptx.Reg {
	regs := b.RegVec(ptx.F32, 4)
	for _, r := range regs {
		b.I("mov.f32", r, ptx.FImm(0))
	}
	return regs
}

// kernel is a kernel of which body writes what lies between its addresses and its end.
func kernel(blocks, words int, write func(b *body)) Kernel {
	return Kernel{Blocks: blocks, Output: blocks * 32 * words * 4,
		Emit: func(k *ptx.Kernel, in []ptx.Reg, out, lane ptx.Reg) { write(&body{k, in, out, lane}) }}
}

// little are words as memory has them; words is its inverse.
func little(words []uint32) []byte {
	b := make([]byte, 0, 4*len(words))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func words(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

// put is element e of a register.
func (e element) put(i int, x float64) uint32 { return uint32(e.encode(x)) << (e.bits * i) }

// get is the value of element i of a register.
func (e element) get(i int, word uint32) float64 {
	return e.decode(uint64(word) >> (e.bits * i) & (1<<e.bits - 1))
}

// multiply appends an mma.
func (p *Probe) multiply(b *body, acc, a, bb []ptx.Reg) []ptx.Reg {
	out := b.RegVec(ptx.F32, 4)
	args := []ptx.Operand{ptx.V(out...), ptx.V(a...), ptx.V(bb...), ptx.V(acc...)}
	if p.one != 0 {
		one := b.Reg(ptx.B32)
		b.I("mov.b32", one, ptx.Imm(int(p.one)))
		zero := ptx.Vec{ptx.Imm(0), ptx.Imm(0)}
		args = append(args, ptx.V(one), zero, ptx.V(one), zero)
	}
	b.I(p.d.Op, args...)
	return out
}

// term is a product of 2^exponent: exponents of A and B; false if the types do not reach it.
func (p *Probe) term(exponent int) (a, b int, ok bool) {
	a = min(max(exponent-p.b.most, p.a.least), p.a.most)
	b = exponent - a
	return a, b, b >= p.b.least && b <= p.b.most
}

// small is a term of 2^-j of the largest, whose A is the same for all eight j of a block; false if the types do not reach it.
func (p *Probe) small(j int) (a, b int, ok bool) {
	top, largest := p.a.most+p.b.most, (j-1)/8*8+1
	a = max(top-largest-p.b.most, p.a.least)
	b = top - j - a
	return a, b, b >= p.b.least && b <= p.b.most
}

// kept probes 2^-j of the accumulator, and of a term that another cancels; j-1 is eight times the block and the column.
func (p *Probe) kept() Kernel {
	const blocks = probes / 8
	top := p.a.most + p.b.most
	x := [2][]uint32{make([]uint32, blocks*32*4), make([]uint32, blocks*32*4)} // A of both products
	y := [2][]uint32{make([]uint32, blocks*32*2), make([]uint32, blocks*32*2)}
	accumulators := make([]uint32, blocks*32*4)
	put := func(product, lane, a, b int, sign float64) {
		for row := range 2 {
			x[product][lane*4+row] |= p.a.put(0, math.Ldexp(1, a))
		}
		y[product][lane*2] |= p.b.put(0, sign*math.Ldexp(1, b))
	}
	for lane := range blocks * 32 {
		block, column := lane/32, lane%32/4 // of B
		for e := range 4 {
			accumulators[lane*4+e] = math.Float32bits(float32(math.Ldexp(1, 8*block+lane%4*2+e%2+1)))
		}
		switch a, b, _ := p.term(top); lane % 4 {
		case 0:
			put(1, lane, a, b, 1)
			a, b, _ = p.term(0)
			put(0, lane, a, b, 1)
		case 1:
			put(1, lane, a, b, -1)
		case 2: // A is the same for all columns of a block
			a, b, ok := p.small(8*block + column + 1)
			sign := 1.0
			if !ok {
				sign, b = 0, 0
			}
			put(1, lane, a, b, sign)
		}
	}
	c := kernel(blocks, 8, func(b *body) {
		first := p.multiply(b, b.load(4, ptx.F32, 4, 0), b.load(0, ptx.B32, 4, 0), b.load(1, ptx.B32, 2, 0))
		second := p.multiply(b, b.zeros(), b.load(2, ptx.B32, 4, 0), b.load(3, ptx.B32, 2, 0))
		b.store(append(first, second...))
	})
	c.Inputs = [][]byte{little(x[0]), little(y[0]), little(x[1]), little(y[1]), little(accumulators)}
	return c
}

// readKept counts the bits from the first on of which terms were kept, in all rows.
func readKept(output []byte) (kept, within int) {
	got := words(output)
	seen := [2][probes]bool{}
	for p := range seen {
		for j := range seen[p] {
			seen[p][j] = true
		}
	}
	for lane := range len(got) / 8 {
		for e := range 4 {
			j := 8*(lane/32) + lane%4*2 + e%2
			seen[0][j] = seen[0][j] && float64(math.Float32frombits(got[lane*8+e])) > math.Ldexp(1, j+1)
			seen[1][j] = seen[1][j] && math.Float32frombits(got[lane*8+4+e]) > 0
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

// lengths are those after which sums are stored.
func lengths() (ks []int) {
	for k := 64; k <= longest; k *= 2 {
		ks = append(ks, k)
	}
	return ks
}

const addedBlocks = 2

// added adds products of numbers up to 1, of several magnitudes.
func (p *Probe) added() Kernel {
	steps, lanes := longest/p.k, addedBlocks*32
	c := kernel(addedBlocks, 4*len(lengths()), func(b *body) {
		sums, out := b.zeros(), []ptx.Reg(nil)
		for step := range steps {
			sums = p.multiply(b, sums, b.load(0, ptx.B32, 4, 16*step*lanes), b.load(1, ptx.B32, 2, 8*step*lanes))
			if k := (step + 1) * p.k; k >= 64 && k&(k-1) == 0 {
				out = append(out, sums...)
			}
		}
		b.store(out)
	})
	seed := fnv.New64a()
	seed.Write([]byte(p.d.Op + "+sums"))
	v := rand.New(rand.NewPCG(seed.Sum64(), 20)) // the same for an mma on every machine and at any time
	for _, m := range []struct {
		element element
		count   int
	}{{p.a, 4}, {p.b, 2}} {
		all := make([]uint32, steps*lanes*m.count)
		for i := range all {
			for e := range p.each() {
				all[i] |= m.element.put(e, math.Ldexp(.5+float64(v.Float64()/2), -v.IntN(1+min(5, -m.element.least-1))))
			}
		}
		c.Inputs = append(c.Inputs, little(all))
	}
	return c
}

// readBias is the mean signed error by number of terms, relative to the exact sums.
func (p *Probe) readBias(output []byte) map[int]float64 {
	steps, lanes := longest/p.k, addedBlocks*32
	a, b, got := words(p.Added.Inputs[0]), words(p.Added.Inputs[1]), words(output)
	ks, bias := lengths(), map[int]float64{}
	for block := range addedBlocks {
		for row := range 16 {
			for col := range 8 {
				sum, at := 0.0, 0
				for step := range steps {
					for t := range 4 {
						for half := range 2 {
							wordA := a[step*lanes*4+(block*32+row%8*4+t)*4+2*half+row/8]
							wordB := b[step*lanes*2+(block*32+col*4+t)*2+half]
							for e := range p.each() {
								sum += float64(p.a.get(e, wordA) * p.b.get(e, wordB))
							}
						}
					}
					if (step+1)*p.k != ks[at] {
						continue
					}
					lane, e := block*32+row%8*4+col/2, row/8*2+col%2
					x := math.Float32frombits(got[(lane*len(ks)+at)*4+e])
					bias[ks[at]] += float64((float64(x)/sum - 1) / (addedBlocks * 16 * 8))
					at++
				}
			}
		}
	}
	return bias
}
