package jit

import "math"

// element is a format of matrix elements, of which a 32-bit word holds several.
type element struct {
	name    string
	perWord int
	shrink  int // unpack gives the values times 2^-shrink
}

// The formats that mma multiplies. nibble is e2m1 packed two to a byte.
var (
	f16    = element{"f16", 2, 0}
	bf16   = element{"bf16", 2, 0}
	e4m3   = element{"e4m3", 4, 8}
	e5m2   = element{"e5m2", 4, 0}
	nibble = element{"nibble", 8, 0}
	tf32   = element{"tf32", 1, 0}
	inByte = element{"inByte", 4, 0} // e2m1 in bits 2 to 5 of a byte
)

// all32 is the operand of a vector of one number.
func (e *emitter) all32(v uint32) mem { return e.vector32(func(int) uint32 { return v }) }

func (e *emitter) all64(v uint64) mem { return e.vector64(func(int) uint64 { return v }) }

// unpack converts the first n elements of the words in register s, which it preserves, to f32: element i into dst(i),
// and then calls done(i). The elements come in no particular order. Registers t to t+2 are clobbered; NaNs are not
// canonical.
func (e *emitter) unpack(f element, s, n, t int, dst func(i int) int, done func(i int)) {
	if e.arm != nil && (f == nibble || f == inByte) {
		e.unpackNEON(f, s, n, t, dst, done)
		return
	}
	switch f {
	case f16, bf16:
		for i := range n {
			e.halves(dst(i), s, i == 1, f == bf16)
			done(i)
		}
	case nibble:
		for i := range n {
			e.nibble(dst(i), s, 4*i, t)
			done(i)
		}
	case inByte:
		for i := range n {
			e.nibble(dst(i), s, 8*i+2, t)
			done(i)
		}
	case tf32:
		e.v(vpand, dst(0), s, e.all32(0xffffe000))
		done(0)
	default: // two pairs of f16: of the even elements and of the odd ones
		for odd := range min(n, 2) {
			if odd == 1 {
				e.v(vpand, t, s, e.all32(0xff00ff00))
			} else {
				e.shiftI(vpsllwI, 6, t, s, 8)
			}
			if f == e4m3 {
				e.upperToHalf(t, t+1)
			}
			for i := odd; i < n; i += 2 {
				e.halves(dst(i), t, i > 1, false)
				done(i)
			}
		}
	}
}

// upperToHalf turns 16-bit words, whose upper byte is an e4m3 and whose lower byte is 0, into f16, 2^-8 times as
// large; t is clobbered. With e5m2 in the upper byte such a word is f16 already.
func (e *emitter) upperToHalf(v, t int) {
	// Shifted down by a bit, exponent and mantissa are in f16's places, with another bias. All ones are NaN: adding 1
	// carries into the highest bit of f16's exponent, the only one not set, and so makes it all ones.
	e.shiftI(vpsrawI, 4, v, v, 1)
	e.v(vpand, t, v, e.all32(0x3f803f80))
	e.v(vpaddw, t, t, e.all32(0x00800080))
	if e.wide {
		e.vi(vpternlogd, v, t, e.all32(0xbfffbfff), 0xe4) // the mask's bits of v, the others of t
		return
	}
	e.v(vpand, t, t, e.all32(0x40004000))
	e.v(vpand, v, v, e.all32(0xbf80bf80))
	e.v(vpor, v, v, t)
}

// nibble converts the e2m1 at a bit of the words in s to f32 by looking it up.
func (e *emitter) nibble(d, s, bit, t int) {
	table := e.vector32(func(i int) uint32 {
		v := [8]float32{0, .5, 1, 1.5, 2, 3, 4, 6}[i%8]
		return math.Float32bits(v) | uint32(i)>>3<<31
	})
	idx := s
	if bit > 0 {
		idx = d
		e.shiftI(vpsrldI, 2, d, s, byte(bit))
	}
	if e.wide { // sixteen entries
		e.v(vpermps, d, idx, table)
		return
	}
	e.shiftI(vpslldI, 6, t, s, byte(28-bit))
	e.v(vpand, t, t, e.all32(1<<31))
	e.v(vpermps, d, idx, table)
	e.v(vpor, d, d, t)
}

// scaleValue turns words, whose low 7 bits are a ue4m3, into f32, 2^-8 times as large.
func (e *emitter) scaleValue(v, t int) {
	e.v(vpand, v, v, e.all32(0x7f))
	e.shiftI(vpslldI, 6, v, v, 7)
	e.v(vpaddd, t, v, e.all32(0x80))
	e.v(vpand, t, t, e.all32(0x4000))
	e.v(vpor, v, v, t)
	e.promoteLow(v, v)
}

// halves converts the low or the high 16 bits of the lanes of s to f32 in d.
func (e *emitter) halves(d, s int, high, bf bool) {
	switch {
	case bf && high:
		e.v(vpand, d, s, e.all32(0xffff0000))
	case bf:
		e.shiftI(vpslldI, 6, d, s, 16)
	case e.arm != nil:
		e.arm.halves(pairOf(d), pairOf(s), high)
	case high:
		e.shiftI(vpsrldI, 2, d, s, 16)
		e.promoteLow(d, d)
	default:
		if !e.wide {
			e.shiftI(vpslldI, 6, d, s, 16)
			e.shiftI(vpsrldI, 2, d, d, 16)
			s = d
		}
		e.promoteLow(d, s)
	}
}

// promoteLow is f16 to f32 of lanes whose upper halves are zero, or (AVX-512) anything.
func (e *emitter) promoteLow(d, s int) {
	if e.arm != nil {
		e.arm.halves(pairOf(d), pairOf(s), false)
		return
	}
	if e.wide {
		e.x.evex(vpmovdw, w512, s, 0, d, mod{}, 0)
	} else {
		e.v(vpackusdw, d, s, s)
		e.vi(vpermq, d, 0, d, 8)
	}
	e.v(vcvtph2ps, d, 0, d)
}
