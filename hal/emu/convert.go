package emu

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// convert is cvt (PTX ISA, cvt). The last two modifiers are the types.
func convert(def *ptx.Def, in *inst) bool {
	n := len(def.Mods)
	if n < 2 {
		return false
	}
	dst, src := def.Mods[n-2], def.Mods[n-1]
	round := ""
	if n == 3 {
		round = def.Mods[0]
	}
	switch def.Op {
	case "cvt.rn.bf16x2.f32":
		return setR(in, func(a, b uint32) uint32 { return floatToBF(a)<<16 | floatToBF(b) })
	case "cvt.rn.bf16.f32":
		return setR(in, func(a, _ uint32) uint32 { return floatToBF(a) })
	case "cvt.f32.bf16":
		return setR(in, func(a, _ uint32) uint32 { return a << 16 })
	}
	if f := narrowConvert(def.Op); f != nil {
		return setR(in, f)
	}
	if n > 3 || !known(dst) || !known(src) {
		return false
	}
	// Through a float64 or an int64: both are exact for every source type.
	var f func(uint64) uint64
	switch {
	case !isFloat(dst) && !isFloat(src):
		convertInt(dst, src, in)
		return true
	case isFloat(dst) && !isFloat(src) && round == "rn":
		f = intToFloat(dst, src)
	case !isFloat(dst) && roundTo(round) != nil:
		f = floatToInt(dst, src, roundTo(round))
	case isFloat(dst) && roundTo(round) != nil && dst == src:
		r := roundTo(round)
		f = func(v uint64) uint64 { return packFloat(dst, r(unpackFloat(src, v))) }
	case isFloat(dst) && isFloat(src) && (round == "rn" || round == ""):
		f = func(v uint64) uint64 { return packFloat(dst, unpackFloat(src, v)) }
	}
	if f == nil {
		return false
	}
	mask := rowMask(dst)
	trunc := func(v uint64) uint32 { return uint32(v) & mask }
	switch dw, sw := isWide(dst), isWide(src); {
	case dw && sw:
		in.kind, in.fQ = kindQ, func(d, a, _, _ *row64) {
			for l := range d {
				d[l] = f(a[l])
			}
		}
	case dw:
		in.kind, in.fQR = kindQR, func(d *row64, a, _ *row32, _ *row64) {
			for l := range d {
				d[l] = f(uint64(a[l]))
			}
		}
	case sw:
		in.kind, in.fRQ = kindRQ, func(d *row32, a *row64) {
			for l := range d {
				d[l] = trunc(f(a[l]))
			}
		}
	default:
		return setR(in, func(a, _ uint32) uint32 { return trunc(f(uint64(a))) })
	}
	return true
}

// convertInt extends the source's bits by its sign, or by zeros, and keeps those that the destination has.
func convertInt(dst, src string, in *inst) {
	x, mask := extender(src), rowMask(dst)
	switch dw, sw := isWide(dst), isWide(src); {
	case dw && sw:
		in.kind, in.fQ = kindQ, func(d, a, _, _ *row64) { *d = *a }
	case dw:
		in.kind, in.fQR = kindQR, func(d *row64, a, _ *row32, _ *row64) {
			for l := range d {
				d[l] = x.of(uint64(a[l]))
			}
		}
	case sw:
		in.kind, in.fRQ = kindRQ, func(d *row32, a *row64) {
			for l := range d {
				d[l] = uint32(a[l]) & mask
			}
		}
	default:
		in.kind, in.fR = kindR, func(d, a, _, _ *row32) {
			for l := range d {
				d[l] = uint32(x.of(uint64(a[l]))) & mask
			}
		}
	}
}

func setR(in *inst, f func(a, b uint32) uint32) bool {
	in.kind, in.fR = kindR, func(d, a, b, _ *row32) {
		for l := range d {
			d[l] = f(a[l], b[l])
		}
	}
	return true
}

func known(typ string) bool {
	switch typ {
	case "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "f32", "f64":
		return true
	}
	return false
}

func unpackFloat(typ string, v uint64) float64 {
	switch typ {
	case "f16":
		return float64(halfToFloat(uint32(v)))
	case "f32":
		return float64(f32(uint32(v)))
	}
	return f64(v)
}

func packFloat(typ string, v float64) uint64 {
	switch typ {
	case "f16":
		return uint64(floatToHalf(v))
	case "f32":
		return uint64(b32(float32(v)))
	}
	return b64(v)
}

// intToFloat rounds once, from the integer itself: 64-bit integers do not fit float64.
func intToFloat(dst, src string) func(uint64) uint64 {
	signed, x := src[0] == 's', extender(src)
	return func(v uint64) uint64 {
		v = x.of(v)
		if dst == "f32" {
			if signed {
				return uint64(b32(float32(int64(v))))
			}
			return uint64(b32(float32(v)))
		}
		// f64 and f16: an integer too wide for float64 overflows f16 in any case.
		if signed {
			return packFloat(dst, float64(int64(v)))
		}
		return packFloat(dst, float64(v))
	}
}

func roundTo(mod string) func(float64) float64 {
	switch mod {
	case "rni":
		return math.RoundToEven
	case "rzi":
		return math.Trunc
	case "rmi":
		return math.Floor
	case "rpi":
		return math.Ceil
	}
	return nil
}

// floatToInt saturates. NaN becomes 0, or 1 in the highest bit where a 64-bit type is involved (PTX ISA, cvt).
func floatToInt(dst, src string, round func(float64) float64) func(uint64) uint64 {
	width := uint(sizeOf(dst)) * 8
	signed := dst[0] == 's'
	lo, hi := 0.0, math.Ldexp(1, int(width)) // hi is the first value that does not fit
	least, most := uint64(0), ^uint64(0)>>(64-width)
	if signed {
		lo, hi = -math.Ldexp(1, int(width)-1), math.Ldexp(1, int(width)-1)
		least, most = uint64(int64(-1)<<(width-1)), uint64(1)<<(width-1)-1
	}
	nan := uint64(0)
	if src == "f64" || width == 64 {
		nan = 1 << (width - 1)
	}
	return func(v uint64) uint64 {
		x := round(unpackFloat(src, v))
		switch {
		case x != x:
			return nan
		case x < lo:
			return least
		case x >= hi:
			return most
		case signed:
			return uint64(int64(x))
		}
		return uint64(x)
	}
}
