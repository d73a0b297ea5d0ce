package ptx

import "math"

// The fragments of warp-level matrix instructions, written from the figures of the PTX ISA (9.7.14.5, "Matrix Fragments
// for mma.m16n8k16 with floating point type", "… for mma.m16n8k32", "… for mma.m16n8k64", "Block Scaling for mma.sync"):
// groupID = lane / 4, threadID_in_group = lane % 4. Whatever the type, a register holds neighbours along k, n of
// them, the registers of a group of four threads hold 4n, and the latter half of the registers goes on where the first
// ends: n is 2 in m16n8k16, 4 in m16n8k32, 8 in m16n8k64. Codegen has its own description; a test holds the two against
// each other.

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
// of them for rows 0–7, the second for rows 8–15. All four bytes of its register are scales (scale_vec::4X): byte i of k
// 16i…16i+15.
func scaleLaneA(row, thread int) int { return row%8*4 + 2*thread + row/8 }

// scaleLaneB is the lane that holds the scales of a column of B: thread-id-b selects the thread of the quad.
func scaleLaneB(col, thread int) int { return col*4 + thread }

// mmaFunc computes one mma on rows r; v names d0…d3, a0…a3, b0, b1, c0…c3.
type mmaFunc = func(r []Row32, v []int32)

func mmaF16Go(r []Row32, v []int32) { mma16(r, v, halfToFloat) }

func mmaBF16Go(r []Row32, v []int32) {
	mma16(r, v, func(h uint32) float32 { return f32(h << 16) })
}

// mma16 is the definition: for every element of C, k ascending, one fused multiply-add rounded to f32 each.
func mma16(r []Row32, v []int32, widen func(uint32) float32) {
	var a [16][16]float32
	var b [16][8]float32
	var c [16][8]float32
	for lane := 0; lane < 32; lane++ {
		for e := 0; e < 8; e++ {
			row, k := fragA(2, lane, e)
			a[row][k] = widen(r[v[4+e/2]][lane] >> (16 * (e % 2)) & 0xffff)
		}
		for e := 0; e < 4; e++ {
			k, col := fragB(2, lane, e)
			b[k][col] = widen(r[v[8+e/2]][lane] >> (16 * (e % 2)) & 0xffff)
			row, col := fragC(lane, e)
			c[row][col] = f32(r[v[10+e]][lane])
		}
	}
	for row := range c {
		for k := range b {
			for col := range c[row] {
				c[row][col] = fma32(a[row][k], b[k][col], c[row][col])
			}
		}
	}
	for lane := 0; lane < 32; lane++ {
		for e := 0; e < 4; e++ {
			row, col := fragC(lane, e)
			r[v[e]][lane] = b32(c[row][col])
		}
	}
}

// The definition of mma on narrower floats is the same. Where blocks are scaled, the factors are value·scale of A and
// value·scale of B, both exact.
//
// All of these factors are f16 numbers: e4m3, e5m2 and e2m1 are contained in it, and e2m1·ue4m3 has at most six significant
// bits between 2^-10 and 2688. So an mma over k32 or k64 is two or four f16 ones, one after the other along k.

// valueE4M3 decodes e4m3, which has no infinity and one NaN.
func valueE4M3(c int) float64 {
	e, m := c>>3&15, float64(c&7)
	v := math.Ldexp(m+8, e-10)
	switch {
	case c&0x7f == 0x7f:
		return math.NaN()
	case e == 0:
		v = math.Ldexp(m, -9)
	}
	return math.Copysign(v, float64(64-c&128))
}

// valueE2M1 decodes e2m1, which has neither.
func valueE2M1(c int) float64 {
	return math.Copysign([...]float64{0, .5, 1, 1.5, 2, 3, 4, 6}[c&7], float64(4-c&8))
}

// floatToE4M3 and floatToE2M1 round to nearest even and clip to the greatest finite value; NaN has a code of its own, in
// e2m1, which has none, that of the greatest value (PTX ISA, cvt.satfinite).
func floatToE4M3(v float32) uint32 { return saturate(v, math.Float64bits(448), 3, -6, 0x7f, 0x80) }
func floatToE2M1(v float32) uint32 { return saturate(v, math.Float64bits(6), 1, 0, 7, 8) }

func saturate(v float32, most uint64, mantissa, least int, nan, sign uint32) uint32 {
	if v != v {
		return nan
	}
	b := math.Float64bits(float64(v))
	return encode(min(b&^(1<<63), most), mantissa, least) | sign&-uint32(b>>63)
}

// halfOfE4M3 and halfOfE5M2 are the f16 bits of codes, halfOfScaled those of e2m1·ue4m3: index scale·16 + nibble. e5m2 is
// the upper byte of f16.
var halfOfE4M3, halfOfE5M2, halfOfScaled = func() (e4m3, e5m2 [256]uint16, scaled [128 * 16]uint16) {
	for c := range 256 {
		e4m3[c] = uint16(floatToHalf(valueE4M3(c)))
		e5m2[c] = uint16(floatToHalf(float64(halfToFloat(uint32(c) << 8))))
	}
	for i := range scaled {
		scaled[i] = uint16(floatToHalf(valueE2M1(i%16) * valueE4M3(i/16)))
	}
	return e4m3, e5m2, scaled
}()

// halves are the registers of one f16 mma: d0…d3, a0…a3, b0, b1, c0…c3.
type halves [14]Row32

var inPlace = []int32{10, 11, 12, 13, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13} // accumulates in c

// begin takes C, end puts it where D is.
func (h *halves) begin(r []Row32, v []int32) {
	for i := range 4 {
		h[10+i] = r[v[10+i]]
	}
}

func (h *halves) end(r []Row32, v []int32) {
	for i := range 4 {
		r[v[i]] = h[10+i]
	}
}

// mma8 is m16n8k32: the sixteen k of step s lie in registers a2s, a2s+1 and b_s, four to a lane; an f16 fragment wants
// those of k 2t, 2t+1 from lane t/2 of the quad and those of 2t+8, 2t+9 from lane 2 + t/2.
func mma8(ca, cb *[256]uint16) mmaFunc {
	return func(r []Row32, v []int32) {
		var h halves
		h.begin(r, v)
		for s := range 2 {
			spread8(&h[4], &h[6], &r[v[4+2*s]], ca)
			spread8(&h[5], &h[7], &r[v[5+2*s]], ca)
			spread8(&h[8], &h[9], &r[v[8+s]], cb)
			mmaF16(h[:], inPlace)
		}
		h.end(r, v)
	}
}

func spread8(low, high, from *Row32, codes *[256]uint16) {
	for lane := range low {
		quad, t := lane&^3, lane&3
		shift := uint(t&1) * 16
		x, y := from[quad+t>>1]>>shift, from[quad+2+t>>1]>>shift
		low[lane] = uint32(codes[uint8(x)]) | uint32(codes[uint8(x>>8)])<<16
		high[lane] = uint32(codes[uint8(y)]) | uint32(codes[uint8(y>>8)])<<16
	}
}

// mmaScaled4 is m16n8k64 of e2m1 with a ue4m3 scale for every 16 of k. v goes on with the scales of A, its selector
// (byte, thread), the scales of B and its selector. The k of step s (16s…16s+15) lie in the register of their half, in the
// quad's lanes 2(s%2) and 2(s%2)+1, eight to a lane.
func mmaScaled4(r []Row32, v []int32) {
	var h halves
	h.begin(r, v)
	ta, tb := int(r[v[16]][0]&1), int(r[v[19]][0]&3)
	var sa, sb [16]uint32
	for row := range 16 {
		sa[row] = r[v[14]][scaleLaneA(row, ta)]
	}
	for col := range 8 {
		sb[col] = r[v[17]][scaleLaneB(col, tb)]
	}
	for s := range 4 {
		a := 4 + s/2*2
		spread4(&h[4], &h[6], &r[v[a]], s, sa[:8])
		spread4(&h[5], &h[7], &r[v[a+1]], s, sa[8:])
		spread4(&h[8], &h[9], &r[v[8+s/2]], s, sb[:8])
		mmaF16(h[:], inPlace)
	}
	h.end(r, v)
}

func spread4(low, high, from *Row32, s int, scales []uint32) {
	for lane := range low {
		g, t := lane>>2, uint(lane&3)
		codes := (*[16]uint16)(halfOfScaled[int(scales[g]>>(8*s)&0x7f)*16:])
		x, y := from[lane&^3+s&1*2]>>(8*t), from[lane&^3+s&1*2+1]>>(8*t)
		low[lane] = uint32(codes[x&15]) | uint32(codes[x>>4&15])<<16
		high[lane] = uint32(codes[y&15]) | uint32(codes[y>>4&15])<<16
	}
}

// badSelector is the lane and the reason of a scale selector that scale_vec::4X does not define: byte 0, thread of A 0 or 1,
// of B 0 to 3, the same in all lanes; "" if all is well.
func badSelector(r []Row32, v []int32) (lane int, why string) {
	for _, s := range [...]struct {
		row   int32
		most  uint32
		which string
	}{{v[15], 0, "byte-id-a"}, {v[16], 1, "thread-id-a"}, {v[18], 0, "byte-id-b"}, {v[19], 3, "thread-id-b"}} {
		for lane, x := range r[s.row] {
			if x > s.most {
				return lane, s.which + " is undefined for scale_vec::4X"
			}
			if x != r[s.row][0] {
				return lane, s.which + " differs between lanes"
			}
		}
	}
	return 0, ""
}
