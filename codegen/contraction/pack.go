package contraction

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// pack lays constant weights out in panels, one for every z that they depend on and every tile along N, in the order in
// which the kernel reads them: chunks of K one after the other, each in the order of the compute core. What lies beyond
// K or N is zero, and so is all where only the size matters.
func pack(p *problem, s Schedule, sizeOnly bool) []byte {
	chunks, tilesN := s.chunks(p), s.tilesN(p)
	order := tileOrder(p, s)
	rows, cols := offsets(p.b.row, p.k, chunks*s.BK), offsets(p.b.col, p.n, tilesN*s.BN)
	zs := p.panels()
	panel := p.num.tileB(s.BN, s.BK)
	out := make([]byte, len(zs)*tilesN*chunks*panel)
	if sizeOnly {
		return out
	}
	w := newWeights(p)
	at := 0
	for _, base := range zs {
		for n := 0; n < tilesN; n++ {
			for k := 0; k < chunks; k++ {
				w.pack(&p.num, out[at:at+panel], order, rows[k*s.BK:(k+1)*s.BK], cols[n*s.BN:(n+1)*s.BN], base)
				at += panel
			}
		}
	}
	return out
}

// panels are the offsets of the matrices of weights, one for every z that they depend on.
func (p *problem) panels() []int {
	zs := []int{p.b.offset}
	for i, extent := range p.z {
		if !p.panelOf(i) {
			continue
		}
		var next []int
		for _, base := range zs {
			for x := range extent {
				next = append(next, base+layout.Offset(p.b.z[i], x))
			}
		}
		zs = next
	}
	return zs
}

// panelOf reports whether the weights depend on dimension i of z.
func (p *problem) panelOf(i int) bool {
	return slices.ContainsFunc(p.b.z[i], func(m layout.Mode) bool { return m.Stride != 0 })
}

// offsets are those of total coordinates in the source, -1 beyond its extent.
func offsets(modes []layout.Mode, extent, total int) []int {
	out := make([]int, total)
	for x := range out {
		out[x] = -1
		if x < extent {
			out[x] = layout.Offset(modes, x)
		}
	}
	return out
}

// pack fills a panel with the elements at base + rows + cols, -1 marking what lies beyond.
func (w *weights) pack(n *numerics, dst []byte, order []kn, rows, cols []int, base int) {
	switch {
	case n.scaled():
		w.packNibbles(n, dst, order, rows, cols, base)
		return
	case n.b == ir.Float6E3M2:
		w.packSixes(dst, order, rows, cols, base)
		return
	}
	size := n.b.Bits() / 8
	for i, o := range order {
		if r, c := rows[o.k], cols[o.n]; r >= 0 && c >= 0 {
			w.put(dst[i*size:(i+1)*size], n.b, w.values, base+r+c)
			if w.rest != nil {
				w.put(dst[(len(order)+i)*size:][:size], n.b, w.rest, base+r+c)
			}
		}
	}
}

// put writes element i of some values, or of the raw bytes, in type d.
func (w *weights) put(dst []byte, d ir.DType, values []float64, i int) {
	switch {
	case values == nil:
		copy(dst, w.raw[i*len(dst):])
	case d == ir.Float32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(values[i])))
	default:
		code := ir.EncodeFloat(d, values[i])
		for b := range dst {
			dst[b] = byte(code >> (8 * b))
		}
	}
}

// packNibbles packs e2m1 in words of eight, and after them the scales [k64][n16][column][n8][k16]. Where kernels
// convert them, bits are placed so that shifts and masks turn pairs into f16: see unpackE2M1. Scales of blocks across
// N lie as [k64][n16][lane of a quad][k16][the lane's four k].
func (w *weights) packNibbles(num *numerics, dst []byte, order []kn, rows, cols []int, base int) {
	for i, o := range order {
		if r, c := rows[o.k], cols[o.n]; r >= 0 && c >= 0 {
			code := uint32(w.nibble(base + r + c))
			word := code << (4 * (i % 8))
			if num.mul != num.b {
				p := pairs[i%8/2]
				word = ((code&7)<<p.magnitude | code>>3<<p.sign) << (16 * (i % 2))
			}
			at := dst[i/8*4:]
			binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)|word)
		}
	}
	at := len(order) / 2
	put := func(k, n int) {
		if r, c := rows[k], cols[n]; r >= 0 && c >= 0 {
			dst[at] = w.scales[w.blocks.at(base+r+c)]
		}
		at++
	}
	for k := 0; k < len(rows); k += 64 {
		for n := 0; n < len(cols); n += 16 {
			if num.across {
				for i := range 64 {
					put(k+num.k(i/4%4, i/16, i/2%2, i%2), n)
				}
				continue
			}
			for col := 0; col < 8; col++ {
				for half := 0; half < 16; half += 8 {
					for b := k; b < k+64; b += blockSize {
						put(b, n+half+col)
					}
				}
			}
		}
	}
}

// packSixes packs the 16 e3m2 of a lane into three words. Each takes a byte, its sign at bit 7 and its magnitude at
// bit 0, so that a mask turns the odd bytes of a word into f16, and a shift and a mask the even ones; a fourth word
// fills bits 5 and 6 of the others' bytes: see unpackE3M2.
func (w *weights) packSixes(dst []byte, order []kn, rows, cols []int, base int) {
	for i := 0; i < len(order); i += 16 {
		var words [4]uint32
		for e, o := range order[i : i+16] {
			if r, c := rows[o.k], cols[o.n]; r >= 0 && c >= 0 {
				code := uint32(w.raw[base+r+c])
				place := 2*(e%2) + 1 - e%4/2 // the first pair of a word is its odd bytes
				words[e/4] |= (code>>5<<7 | code&31) << (8 * place)
			}
		}
		last := words[3]
		words[0] |= last << 2 & 0x60606060
		words[1] |= last << 4 & 0x60606060
		words[2] |= last>>1&0x40404040 | last<<5&0x20202020
		for k, x := range words[:3] {
			binary.LittleEndian.PutUint32(dst[i/16*12+4*k:], x)
		}
	}
}

// pairs gives, for each of the four e2m1 in half a word, the lowest bit of its magnitude and the bit of its sign. An
// f16 has its sign at 15 and, for a value times 2^-14, these three bits at 9.
var pairs = [4]struct{ magnitude, sign int }{{9, 15}, {12, 0}, {6, 1}, {3, 2}}

type kn struct{ k, n int32 }

// tileOrder is the element at each place of a packed chunk: for tensor cores [k step][n16][lane][16 bytes], so that a
// lane reads the B fragments of two n8 tiles with one 16-byte load, in the order in which it converts them; for fma
// row-major.
func tileOrder(p *problem, s Schedule) []kn {
	var out []kn
	num := &p.num
	if !num.tensor() {
		for k := 0; k < s.BK; k++ {
			for n := 0; n < s.BN; n++ {
				out = append(out, kn{int32(k), int32(n)})
			}
		}
		return out
	}
	step := stepOrder(num)
	for k := 0; k < s.BK; k += num.stepB() {
		for n := 0; n < s.BN; n += 16 {
			for _, o := range step {
				out = append(out, kn{int32(k) + o.k, int32(n) + o.n})
			}
		}
	}
	return out
}

// stepOrder is the element at each place of what a warp reads for two n8 tiles and a step of K.
func stepOrder(num *numerics) (out []kn) {
	// A register of the fragment holds per values; a load holds mma numbers 0…mmas-1 of the step.
	per := 32 / num.mul.Bits()
	mmas := num.stepB() / num.stepMul()
	for lane := 0; lane < 32; lane++ {
		element := func(half, m, r int) {
			for j := 0; j < per; j++ {
				out = append(out, kn{int32(num.k(m, lane%4, r, j)), int32(half*8 + lane/4)})
			}
		}
		if num.scaled() { // [mma][n8][register]
			for m := 0; m < mmas; m++ {
				for i := 0; i < 4; i++ {
					element(i/2, m, i%2)
				}
			}
			continue
		}
		for half := 0; half < 2; half++ { // [n8][mma][register]
			for i := 0; i < 2*mmas; i++ {
				element(half, i/2, i%2)
			}
		}
	}
	return out
}
