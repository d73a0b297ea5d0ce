package ptx

import (
	"fmt"
	"math"
	"sync"
)

// The fragments of warp-level matrix instructions, written from the figures of the PTX ISA (9.7.14.5, "Matrix Fragments
// for mma.m16n8k16 with floating point type", "… for mma.m16n8k32", "… for mma.m16n8k64", "Block Scaling for mma.sync"):
// groupID = lane / 4, threadID_in_group = lane % 4. For every type, a register holds n neighbours along k, the registers of
// a group of four threads hold 4n, and the second half of the registers continues where the first half ends: n is 2 in
// m16n8k16, 4 in m16n8k32, 8 in m16n8k64 and 1 in m16n8k8 of tf32. Codegen has its own description; a test compares the two.

// fragA is the (row, k) of element e of a lane's 4n elements of A: register e/n, place e%n in it. Registers alternate
// between rows 0–7 and 8–15.
func fragA(n, lane, e int) (row, k int) {
	group, thread, register := lane/4, lane%4, e/n
	return group + 8*(register%2), 4*n*(register/2) + n*thread + e%n
}

// fragB is the (k, column) of element e of a lane's 2n elements of B.
func fragB(n, lane, e int) (k, col int) {
	group, thread, register := lane/4, lane%4, e/n
	return 4*n*register + n*thread + e%n, group
}

// fragC is the (row, column) of element e of a lane's four accumulators, m16n8.
func fragC(lane, e int) (row, col int) {
	group, thread := lane/4, lane%4
	row = group
	if e >= 2 {
		row += 8
	}
	return row, thread*2 + e%2
}

// scaleLaneA is the lane that holds the scales of a row of A: thread-id-a selects a pair of threads of the quad, the first
// of them for rows 0–7, the second for rows 8–15.
func scaleLaneA(row, thread int) int { return row%8*4 + 2*thread + row/8 }

// scaleLaneB is the lane that holds the scales of a column of B: thread-id-b selects the thread of the quad.
func scaleLaneB(col, thread int) int { return col*4 + thread }

// mmaFunc computes one mma on rows r; v names d0…d3, a0…a3, b0, b1, c0…c3. With block scaling it goes on with the scales of A,
// their selector (byte, thread), the scales of B and theirs.
type mmaFunc = func(r []Row32, v []int32)

// elements is how a register holds matrix elements: n of them, each of 32/n bits. decode writes the values of a register's.
type elements struct {
	n      int
	decode func(word uint32, to *[8]float64)
}

var (
	elementsF16 = elements{2, func(w uint32, to *[8]float64) {
		to[0], to[1] = float64(halfToFloat(w&0xffff)), float64(halfToFloat(w>>16))
	}}
	elementsBF16 = elements{2, func(w uint32, to *[8]float64) {
		to[0], to[1] = float64(f32(w<<16)), float64(f32(w&^0xffff))
	}}
	elementsE4M3 = elementsOfBytes(func(b uint32) float32 { return valuesE4M3[b] })
	elementsE5M2 = elementsOfBytes(func(b uint32) float32 { return halfToFloat(b << 8) }) // the upper byte of f16
	elementsByte = elementsOfBytes(func(b uint32) float32 { return valuesE2M1[b>>2&15] }) // e2m1 in the middle of a byte
	elementsE2M1 = elements{8, func(w uint32, to *[8]float64) {
		for i := range to {
			to[i] = float64(valuesE2M1[w>>(4*i)&15])
		}
	}}
	elementsTF32 = elements{1, func(w uint32, to *[8]float64) { to[0] = float64(f32(w &^ 0x1fff)) }} // the lowest 13 bits do not count
)

// elementsOfBytes are elements of 8 bits with a value for each code.
func elementsOfBytes(value func(code uint32) float32) elements {
	var values [256]float64
	for c := range values {
		values[c] = float64(value(uint32(c)))
	}
	return elements{4, func(w uint32, to *[8]float64) {
		to[0], to[1], to[2], to[3] = values[w&0xff], values[w>>8&0xff], values[w>>16&0xff], values[w>>24]
	}}
}

// matrices are the operands of an mma.
type matrices struct {
	a, b   elements
	scales *scaling // of blocks along k; nil: none
}

// scaling is how the scales of a block-scaled mma lie: those of a row or column are n bytes of one register from a selected
// byte on, byte i for the i-th of n parts of k.
type scaling struct {
	n     int
	value func(code uint32) float64
}

var (
	scales4X = &scaling{4, func(c uint32) float64 { return float64(valuesE4M3[c&0x7f]) }} // ue4m3
	scales2X = &scaling{2, powerOf2}
	scales1X = &scaling{1, powerOf2}
)

// powerOf2 is the value of a ue8m0.
func powerOf2(code uint32) float64 {
	if code == 0xff {
		return math.NaN()
	}
	return math.Ldexp(1, int(code)-127)
}

// multiply is the definition of mma: for every element of C, k ascending, one fused multiply-add rounded to f32 each. Where
// blocks are scaled, the factors are value·scale of A and value·scale of B, both exact.
func (m matrices) multiply(r []Row32, v []int32) { m.each(r, v, 0) }

// tiles are the matrices of an mma in float64, where products are exact. Rows of B and C are rows of the instruction's.
type tiles struct {
	a [16][64]float64
	b [64][8]float64
	c [16][8]float32
}

var tilesPool = sync.Pool{New: func() any { return new(tiles) }}

// places are where the elements of a fragment lie in tiles, by lane: those of a lane's registers in order.
type places struct {
	a [32][32]struct{ row, k uint8 }
	b [32][16]struct{ k, col uint8 }
	c [32][4]struct{ row, col uint8 }
}

// placesOf has the places by the number of elements of a register.
var placesOf = func() (out [9]*places) {
	for _, n := range []int{1, 2, 4, 8} {
		p := new(places)
		for lane := range 32 {
			for e := range 4 * n {
				row, k := fragA(n, lane, e)
				p.a[lane][e].row, p.a[lane][e].k = uint8(row), uint8(k)
			}
			for e := range 2 * n {
				k, col := fragB(n, lane, e)
				p.b[lane][e].k, p.b[lane][e].col = uint8(k), uint8(col)
			}
			for e := range 4 {
				row, col := fragC(lane, e)
				p.c[lane][e].row, p.c[lane][e].col = uint8(row), uint8(col)
			}
		}
		out[n] = p
	}
	return out
}()

// each computes the elements of C row by row, with sums of so many bits as CutOff describes, or exactly as multiply does.
func (m matrices) each(r []Row32, v []int32, cutOff int) {
	n := m.a.n
	t, at := tilesPool.Get().(*tiles), placesOf[n]
	defer tilesPool.Put(t)
	var values [8]float64
	for i := range 4 {
		for lane, word := range &r[v[4+i]] {
			m.a.decode(word, &values)
			for e, p := range at.a[lane][i*n : i*n+n] {
				t.a[p.row&15][p.k&63] = values[e&7]
			}
		}
		for lane, word := range &r[v[10+i]] {
			p := at.c[lane][i]
			t.c[p.row&15][p.col&7] = f32(word)
		}
	}
	for i := range 2 {
		for lane, word := range &r[v[8+i]] {
			m.b.decode(word, &values)
			for e, p := range at.b[lane][i*n : i*n+n] {
				t.b[p.k&63][p.col&7] = values[e&7]
			}
		}
	}
	if s := m.scales; s != nil {
		threadA, threadB := int(r[v[16]][0]&1), int(r[v[19]][0]&3)
		part := 8 * n / s.n
		scale := func(register, byteID int32, lane, i int) float64 {
			return s.value(r[register][lane] >> (8 * (int(r[byteID][0]) + i)) & 0xff)
		}
		for i := range s.n {
			for row := range t.a {
				factor := scale(v[14], v[15], scaleLaneA(row, threadA), i)
				for k := range part {
					t.a[row][i*part+k] *= factor
				}
			}
			for col := range 8 {
				factor := scale(v[17], v[18], scaleLaneB(col, threadB), i)
				for k := range part {
					t.b[i*part+k][col] *= factor
				}
			}
		}
	}
	for i := range t.c {
		if cutOff == 0 {
			fusedRow(t.a[i][:8*n], &t.b, &t.c[i])
		} else {
			cutRow(t.a[i][:8*n], &t.b, &t.c[i], cutOff)
		}
	}
	for i := range 4 {
		to := &r[v[i]]
		for lane := range to {
			p := at.c[lane][i]
			to[lane] = b32(t.c[p.row&15][p.col&7])
		}
	}
}

// fusedRow adds to the sums of a row the products of A's row with the columns of B, one by one.
func fusedRow(a []float64, b *[64][8]float64, sums *[8]float32) {
	for half := 0; half < 8; half += 4 {
		s0, s1, s2, s3 := float64(sums[half]), float64(sums[half+1]), float64(sums[half+2]), float64(sums[half+3])
		for k, x := range a {
			y := b[k&63][half : half+4 : half+4]
			p0, p1, p2, p3 := float64(x*y[0]), float64(x*y[1]), float64(x*y[2]), float64(x*y[3])
			t0, t1, t2, t3 := p0+s0, p1+s1, p2+s2, p3+s3
			if midpoint(t0) {
				t0 = oddSum(p0, s0)
			}
			if midpoint(t1) {
				t1 = oddSum(p1, s1)
			}
			if midpoint(t2) {
				t2 = oddSum(p2, s2)
			}
			if midpoint(t3) {
				t3 = oddSum(p3, s3)
			}
			s0, s1, s2, s3 = float64(float32(t0)), float64(float32(t1)), float64(float32(t2)), float64(float32(t3))
		}
		sums[half], sums[half+1], sums[half+2], sums[half+3] = float32(s0), float32(s1), float32(s2), float32(s3)
	}
}

// CutOff is the meaning of an mma of floats on a tensor core that keeps so many bits of a sum's fraction, 1 to 30, or nil for
// other instructions. The products and the accumulator are aligned to the largest of them, 2^e ≤ |largest| < 2^(e+1), and what they
// have below 2^(e-bits) is dropped, towards zero; their sum is dropped to f32 likewise. So Hopper is reported to add products of 8-bit floats, with
// 13 bits (DeepSeek-V3 Technical Report, 2024, section 3.5.2); the PTX ISA leaves order and precision open. Sums with infinities
// or NaNs are those of Eval.
func (d *Def) CutOff(bits int) func(r []Row32, v []int32) {
	if d.matrices == nil || bits < 1 || bits > 30 {
		return nil
	}
	m := *d.matrices
	return func(r []Row32, v []int32) { m.each(r, v, bits) }
}

func cutRow(a []float64, b *[64][8]float64, sums *[8]float32, bits int) {
	plain := *sums
	fusedRow(a, b, &plain)
	for col := range sums {
		most := math.Abs(float64(sums[col]))
		for k, x := range a {
			most = max(most, math.Abs(x*b[k][col]))
		}
		if most == 0 || math.IsInf(most, 0) || most != most {
			sums[col] = plain[col]
			continue
		}
		unit := math.Ldexp(1, math.Ilogb(most)-bits)
		sum := math.Trunc(float64(sums[col]) / unit)
		for k, x := range a { // of at most 65 terms of bits + 1 bits: exact
			sum += math.Trunc(float64(x*b[k][col]) / unit)
		}
		sums[col] = towardsZero(sum * unit)
	}
}

// towardsZero is the f32 next to x that is not larger in magnitude.
func towardsZero(x float64) float32 {
	f := float32(x)
	if math.Abs(float64(f)) > math.Abs(x) {
		f = math.Nextafter32(f, 0)
	}
	return f
}

// valuesE4M3 and valuesE2M1 are the values by code. e4m3 has no infinity and one NaN, e2m1 has neither.
var valuesE4M3, valuesE2M1 = func() (e4m3 [256]float32, e2m1 [16]float32) {
	for c := range e4m3 {
		e, m := c>>3&15, float64(c&7)
		v := math.Ldexp(m+8, e-10)
		switch {
		case c&0x7f == 0x7f:
			v = math.NaN()
		case e == 0:
			v = math.Ldexp(m, -9)
		}
		e4m3[c] = float32(math.Copysign(v, float64(64-c&128)))
	}
	for c := range e2m1 {
		e2m1[c] = float32(math.Copysign([...]float64{0, .5, 1, 1.5, 2, 3, 4, 6}[c&7], float64(4-c&8)))
	}
	return e4m3, e2m1
}()

// floatToE4M3, floatToE5M2 and floatToE2M1 round to nearest even and clip to the greatest finite value; NaN has a code of its own, in
// e2m1, which has none, that of the greatest value (PTX ISA, cvt.satfinite).
func floatToE4M3(v float32) uint32 { return saturate(v, math.Float64bits(448), 3, -6, 0x7f, 0x80) }
func floatToE5M2(v float32) uint32 { return saturate(v, math.Float64bits(57344), 2, -14, 0x7f, 0x80) }
func floatToE2M1(v float32) uint32 { return saturate(v, math.Float64bits(6), 1, 0, 7, 8) }

func saturate(v float32, most uint64, mantissa, least int, nan, sign uint32) uint32 {
	if v != v {
		return nan
	}
	b := math.Float64bits(float64(v))
	return encode(min(b&^(1<<63), most), mantissa, least) | sign&-uint32(b>>63)
}

// bad is the lane and the reason of a scale selector that the scale_vec does not define: the first of as many bytes as there
// are scales, aligned to their number, thread of A 0 or 1, of B 0 to 3, the same in all lanes; "" if all is well.
func (s *scaling) bad(r []Row32, v []int32) (lane int, why string) {
	for _, x := range [...]struct {
		row   int32
		most  uint32
		step  uint32
		which string
	}{{v[15], 3, uint32(s.n), "byte-id-a"}, {v[16], 1, 1, "thread-id-a"}, {v[18], 3, uint32(s.n), "byte-id-b"}, {v[19], 3, 1, "thread-id-b"}} {
		for lane, id := range r[x.row] {
			if id > x.most || id%x.step != 0 {
				return lane, fmt.Sprintf("%s is undefined for scale_vec::%dX", x.which, s.n)
			}
			if id != r[x.row][0] {
				return lane, x.which + " differs between lanes"
			}
		}
	}
	return 0, ""
}

// integers are the operands of an mma m16n8k32 of 8-bit integers.
type integers struct {
	signedA, signedB bool
	saturate         bool // the sum clips to s32 instead of wrapping around
}

func (m integers) multiply(r []Row32, v []int32) {
	value := func(bits uint32, signed bool) int64 {
		if signed {
			return int64(int8(bits))
		}
		return int64(uint8(bits))
	}
	var a [16][32]int64
	var b [32][8]int64
	for lane := range 32 {
		for e := range 16 {
			row, k := fragA(4, lane, e)
			a[row][k] = value(r[v[4+e/4]][lane]>>(e%4*8), m.signedA)
		}
		for e := range 8 {
			k, col := fragB(4, lane, e)
			b[k][col] = value(r[v[8+e/4]][lane]>>(e%4*8), m.signedB)
		}
	}
	var out [4]Row32
	for lane := range 32 {
		for e := range 4 {
			row, col := fragC(lane, e)
			sum := int64(int32(r[v[10+e]][lane]))
			for k := range b {
				sum += a[row][k] * b[k][col]
			}
			if m.saturate {
				sum = min(max(sum, math.MinInt32), math.MaxInt32)
			}
			out[e][lane] = uint32(sum)
		}
	}
	for e := range out {
		r[v[e]] = out[e]
	}
}
