package emu

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// The definition of mma on narrow floats is that of f16: for every element of C, k ascending, one fused multiply-add
// rounded to f32 each. Where blocks are scaled, the factors are value·scale of A and value·scale of B, both exact.
//
// All of these factors are f16 numbers: e4m3, e5m2 and e2m1 are contained in it, and e2m1·ue4m3 has at most six significant
// bits between 2^-10 and 2688. So an mma over k32 or k64 is two or four f16 ones, one after the other along k.

// code16 are the f16 bits of the codes of a narrow format.
type code16 [256]uint16

func codesOf(f *minifloat.Format, shift uint) *code16 {
	var t code16
	for c := range t {
		v := f.Decode(uint32(c) >> shift & (1<<f.Bits() - 1))
		t[c] = nan16
		if !math.IsNaN(v) {
			t[c] = uint16(minifloat.Float16.Encode(v, false))
		}
	}
	return &t
}

var (
	codesE4M3 = codesOf(minifloat.E4M3FN, 0)
	codesE5M2 = codesOf(minifloat.E5M2, 0)
	codesE2M1 = codesOf(minifloat.E2M1, 2) // kind::f8f6f4 has e2m1 in bits 5–2 of a byte
)

// nibbleScaled are the f16 bits of e2m1·ue4m3: index scale·16 + nibble.
var nibbleScaled = func() *[128 * 16]uint16 {
	var t [128 * 16]uint16
	for s := range 128 {
		scale := minifloat.E4M3FN.Decode(uint32(s))
		for n := range 16 {
			v := minifloat.E2M1.Decode(uint32(n)) * scale
			t[s*16+n] = nan16
			if !math.IsNaN(v) {
				t[s*16+n] = uint16(minifloat.Float16.Encode(v, false))
			}
		}
	}
	return &t
}()

// operandCodes is the format of an 8-bit operand of an mma.
func operandCodes(typ string) *code16 {
	switch typ {
	case "e4m3":
		return codesE4M3
	case "e5m2":
		return codesE5M2
	case "e2m1":
		return codesE2M1
	}
	return nil
}

// mmaNarrow returns the function of an mma on types a and b; nil if it knows none.
func mmaNarrow(shape, a, b string) mmaFunc {
	if shape != "m16n8k32" {
		return nil
	}
	if ia, ib := integerByte(a), integerByte(b); ia != nil && ib != nil {
		return func(r []row32, v []int32) { mmaInt8(r, v, ia, ib) }
	}
	ca, cb := operandCodes(a), operandCodes(b)
	if ca == nil || cb == nil {
		return nil
	}
	return func(r []row32, v []int32) { mma8(r, v, ca, cb) }
}

// halves are the registers of one f16 mma: d0…d3, a0…a3, b0, b1, c0…c3.
type halves [14]row32

var inPlace = []int32{10, 11, 12, 13, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13} // accumulates in c

// begin takes C, end puts it where D is.
func (h *halves) begin(r []row32, v []int32) {
	for i := range 4 {
		h[10+i] = r[v[10+i]]
	}
}

func (h *halves) end(r []row32, v []int32) {
	for i := range 4 {
		r[v[i]] = h[10+i]
	}
}

// mma8 is m16n8k32: the sixteen k of step s lie in registers a2s, a2s+1 and b_s, four to a lane; an f16 fragment wants
// those of k 2t, 2t+1 from lane t/2 of the quad and those of 2t+8, 2t+9 from lane 2 + t/2.
func mma8(r []row32, v []int32, ca, cb *code16) {
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

func spread8(low, high, from *row32, codes *code16) {
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
func mmaScaled4(r []row32, v []int32) {
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

func spread4(low, high, from *row32, s int, scales []uint32) {
	for lane := range low {
		g, t := lane>>2, uint(lane&3)
		codes := (*[16]uint16)(nibbleScaled[int(scales[g]>>(8*s)&0x7f)*16:])
		x, y := from[lane&^3+s&1*2]>>(8*t), from[lane&^3+s&1*2+1]>>(8*t)
		low[lane] = uint32(codes[x&15]) | uint32(codes[x>>4&15])<<16
		high[lane] = uint32(codes[y&15]) | uint32(codes[y>>4&15])<<16
	}
}

// ScaleSelector is the rule that badSelector finds broken.
const ScaleSelector Rule = "undefined scale selector"

// badSelector is the lane and the reason of a scale selector that scale_vec::4X does not define: byte 0, thread of A 0 or 1,
// of B 0 to 3, the same in all lanes; "" if all is well.
func badSelector(r []row32, v []int32) (lane int, why string) {
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

func integerByte(typ string) func(b uint32) int32 {
	switch typ {
	case "s8":
		return func(b uint32) int32 { return int32(int8(b)) }
	case "u8":
		return func(b uint32) int32 { return int32(uint8(b)) }
	}
	return nil
}

// mmaInt8 is m16n8k32 on integers: sums wrap.
func mmaInt8(r []row32, v []int32, wa, wb func(uint32) int32) {
	var a [16][32]int32
	var b [8][32]int32
	for lane := range 32 {
		for e := range 16 {
			row, k := fragA(4, lane, e)
			a[row][k] = wa(r[v[4+e/4]][lane] >> (8 * (e % 4)))
		}
		for e := range 8 {
			k, col := fragB(4, lane, e)
			b[col][k] = wb(r[v[8+e/4]][lane] >> (8 * (e % 4)))
		}
	}
	var out [4]row32
	for lane := range 32 {
		for e := range 4 {
			row, col := fragC(lane, e)
			sum := int32(r[v[10+e]][lane])
			for k, x := range a[row] {
				sum += x * b[col][k]
			}
			out[e][lane] = uint32(sum)
		}
	}
	for e := range out {
		r[v[e]] = out[e]
	}
}

// narrowConvert returns the function of a conversion to or from two 8-bit or 4-bit floats, or nil.
func narrowConvert(op string) func(a, b uint32) uint32 {
	switch op {
	case "cvt.u8.u32":
		return func(a, _ uint32) uint32 { return a & 0xff }
	case "cvt.rn.satfinite.e4m3x2.f32":
		return pairOfFloats(minifloat.E4M3FN, 0x7f)
	case "cvt.rn.satfinite.e5m2x2.f32":
		return pairOfFloats(minifloat.E5M2, 0x7f)
	case "cvt.rn.satfinite.e2m1x2.f32":
		return pairOfFloats(minifloat.E2M1, 7)
	case "cvt.rn.satfinite.e4m3x2.f16x2":
		return pairOfHalves(minifloat.E4M3FN, 0x7f)
	case "cvt.rn.satfinite.e5m2x2.f16x2":
		return pairOfHalves(minifloat.E5M2, 0x7f)
	case "cvt.rn.f16x2.e4m3x2":
		return func(a, _ uint32) uint32 { return uint32(codesE4M3[uint8(a)]) | uint32(codesE4M3[uint8(a>>8)])<<16 }
	case "cvt.rn.f16x2.e5m2x2":
		return func(a, _ uint32) uint32 { return uint32(codesE5M2[uint8(a)]) | uint32(codesE5M2[uint8(a>>8)])<<16 }
	case "cvt.rn.f16x2.e2m1x2":
		return func(a, _ uint32) uint32 {
			return uint32(codesE2M1[a<<2&0x3c]) | uint32(codesE2M1[a>>2&0x3c])<<16
		}
	}
	return nil
}

// saturating is an encoder to nearest even that clips to the greatest finite value; NaN has a code of its own, in e2m1,
// which has none, that of the greatest value (PTX ISA, cvt.satfinite).
func saturating(f *minifloat.Format, nan uint32) func(u uint32) uint32 {
	return func(u uint32) uint32 {
		if u&0x7fffffff > 0x7f800000 {
			return nan
		}
		return f.Encode(float64(f32(u)), true)
	}
}

func pairOfFloats(f *minifloat.Format, nan uint32) func(a, b uint32) uint32 {
	e := saturating(f, nan)
	n := uint(f.Bits())
	return func(a, b uint32) uint32 { return e(a)<<n | e(b) }
}

func pairOfHalves(f *minifloat.Format, nan uint32) func(a, b uint32) uint32 {
	e := saturating(f, nan)
	return func(a, _ uint32) uint32 {
		return e(math.Float32bits(halfToFloat(a>>16)))<<8 | e(math.Float32bits(halfToFloat(a&0xffff)))
	}
}
