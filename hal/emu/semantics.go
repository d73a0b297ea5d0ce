package emu

import (
	"math"
	"math/bits"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// semantics puts the meaning of an arithmetic, conversion or move instruction into in. The hot ones have loops of their
// own (lanes.go); the others are scalar functions applied to each lane.
func semantics(def *ptx.Def, in *inst) bool {
	op := def.Op
	typ := ""
	if len(def.Types) > 0 {
		typ = def.Types[0]
	}
	if f, ok := hotR[op]; ok {
		in.kind, in.fR = kindR, f
		return true
	}
	if f, ok := hotQ[op]; ok {
		in.kind, in.fQ = kindQ, f
		return true
	}
	switch def.Name {
	case "setp":
		return compare(def, in)
	case "selp":
		in.kind = kindSelR
		if isWide(typ) {
			in.kind = kindSelQ
		}
		return true
	case "mov":
		switch {
		case typ == "pred":
			in.kind, in.fP = kindP, func(a, _ uint32) uint32 { return a }
		case isWide(typ):
			in.kind, in.fQ = kindQ, func(d, a, _, _ *row64) { *d = *a }
		default:
			in.kind, in.fR = kindR, func(d, a, _, _ *row32) { *d = *a }
		}
		return true
	case "cvta":
		in.kind, in.fQ = kindQ, func(d, a, _, _ *row64) { *d = *a }
		return true
	case "cvt":
		return convert(def, in)
	case "and", "or", "xor", "not":
		if typ == "pred" {
			in.kind, in.fP = kindP, map[string]func(a, b uint32) uint32{
				"and": func(a, b uint32) uint32 { return a & b },
				"or":  func(a, b uint32) uint32 { return a | b },
				"xor": func(a, b uint32) uint32 { return a ^ b },
				"not": func(a, _ uint32) uint32 { return ^a },
			}[def.Name]
			return true
		}
	case "shl", "shr":
		if isWide(typ) {
			in.kind, in.fQQR = kindQQR, shift64(def.Name, typ)
			return true
		}
	case "lop3":
		in.kind = kindR // the function follows when the table is known
		return true
	}
	switch op {
	case "mul.wide.u32", "mul.wide.s32", "mad.wide.u32", "mad.wide.s32":
		in.kind, in.fQR = kindQR, wideOps[op]
		return true
	}
	if f := scalar32(def.Name, op, typ); f != nil {
		in.kind = kindR
		in.fR = func(d, a, b, c *row32) {
			for l := range d {
				d[l] = f(a[l], b[l], c[l])
			}
		}
		return true
	}
	if f := scalar64(def.Name, op, typ); f != nil {
		in.kind = kindQ
		in.fQ = func(d, a, b, c *row64) {
			for l := range d {
				d[l] = f(a[l], b[l], c[l])
			}
		}
		return true
	}
	return false
}

// extension reads the low bits of a register as a value of an integer type, as 64 bits with its sign.
type extension struct {
	shift uint
	zeros uint64 // the bits above an unsigned value
}

func extender(typ string) extension {
	e := extension{shift: 64 - 8*uint(sizeOf(typ))}
	if typ[0] != 's' && e.shift > 0 {
		e.zeros = ^uint64(0) << (64 - e.shift)
	}
	return e
}

func (e extension) of(v uint64) uint64 { return uint64(int64(v<<e.shift)>>e.shift) &^ e.zeros }

// rowMask has the bits that a 32-bit row keeps of a type: 16-bit registers have zeros above.
func rowMask(typ string) uint32 {
	if ptx.ClassOf(typ) == ptx.B16 {
		return 0xffff
	}
	return 1<<32 - 1
}

// integer is a binary operation on values extended to 64 bits, for every width; nil if name is none.
func integer(name, op, typ string) func(a, b uint64) uint64 {
	signed := typ[0] == 's'
	width := uint(sizeOf(typ)) * 8
	switch name {
	case "add":
		return func(a, b uint64) uint64 { return a + b }
	case "sub":
		return func(a, b uint64) uint64 { return a - b }
	case "mul":
		switch {
		case op == "mul.lo."+typ:
			return func(a, b uint64) uint64 { return a * b }
		case op == "mul.hi."+typ && width == 64:
			if signed {
				return mulHigh64
			}
			return func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }
		case op == "mul.hi."+typ:
			return func(a, b uint64) uint64 { return a * b >> width }
		case op == "mul.wide."+typ:
			return func(a, b uint64) uint64 { return a * b }
		}
	case "div":
		// By zero: all ones, as the instruction sequence of NVIDIA's compilers gives; the ISA leaves it open.
		if signed {
			return func(a, b uint64) uint64 {
				if b == 0 {
					return ^uint64(0)
				}
				return uint64(int64(a) / int64(b))
			}
		}
		return func(a, b uint64) uint64 {
			if b == 0 {
				return ^uint64(0)
			}
			return a / b
		}
	case "rem":
		if signed {
			return func(a, b uint64) uint64 {
				if b == 0 {
					return ^uint64(0)
				}
				return uint64(int64(a) % int64(b))
			}
		}
		return func(a, b uint64) uint64 {
			if b == 0 {
				return ^uint64(0)
			}
			return a % b
		}
	case "min", "max":
		less := func(a, b uint64) bool { return a < b }
		if signed {
			less = func(a, b uint64) bool { return int64(a) < int64(b) }
		}
		return func(a, b uint64) uint64 {
			if less(a, b) == (name == "min") {
				return a
			}
			return b
		}
	case "abs":
		return func(a, _ uint64) uint64 {
			if int64(a) < 0 {
				return -a
			}
			return a
		}
	case "neg":
		return func(a, _ uint64) uint64 { return -a }
	case "and":
		return func(a, b uint64) uint64 { return a & b }
	case "or":
		return func(a, b uint64) uint64 { return a | b }
	case "xor":
		return func(a, b uint64) uint64 { return a ^ b }
	case "not":
		return func(a, _ uint64) uint64 { return ^a }
	case "shl":
		return func(a, b uint64) uint64 { return a << min(b, 64) }
	case "shr":
		// Shifts past the width give 0, or the sign (PTX ISA, shr).
		if signed {
			return func(a, b uint64) uint64 { return uint64(int64(a) >> min(b, 63)) }
		}
		return func(a, b uint64) uint64 { return a >> min(b, 64) }
	}
	return nil
}

func mulHigh64(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	if int64(a) < 0 {
		hi -= b
	}
	if int64(b) < 0 {
		hi -= a
	}
	return hi
}

func isFloat(typ string) bool {
	switch typ {
	case "f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32", "":
		return true
	}
	return false
}

func scalar32(name, op, typ string) func(a, b, c uint32) uint32 {
	switch op {
	case "mul.wide.u16":
		return func(a, b, _ uint32) uint32 { return a * b }
	case "mul.wide.s16":
		return func(a, b, _ uint32) uint32 { return uint32(int32(int16(a)) * int32(int16(b))) }
	case "prmt.b32":
		return prmt
	case "bfe.u32":
		return bfeU
	case "bfe.s32":
		return bfeS
	case "popc.b32":
		return func(a, _, _ uint32) uint32 { return uint32(bits.OnesCount32(a)) }
	case "clz.b32":
		return func(a, _, _ uint32) uint32 { return uint32(bits.LeadingZeros32(a)) }
	case "div.rn.f32":
		return func(a, b, _ uint32) uint32 { return b32(f32(a) / f32(b)) }
	case "rcp.rn.f32":
		return func(a, _, _ uint32) uint32 { return b32(1 / f32(a)) }
	case "sqrt.rn.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(math.Sqrt(float64(f32(a))))) }
	case "abs.f32":
		return func(a, _, _ uint32) uint32 { return a &^ (1 << 31) }
	case "neg.f32":
		return func(a, _, _ uint32) uint32 { return a ^ 1<<31 }
	case "min.NaN.f32":
		return func(a, b, _ uint32) uint32 {
			if isNaN32(a) || isNaN32(b) {
				return nan32
			}
			return min32(a, b)
		}
	case "max.NaN.f32":
		return func(a, b, _ uint32) uint32 {
			if isNaN32(a) || isNaN32(b) {
				return nan32
			}
			return max32(a, b)
		}
	case "copysign.f32":
		return func(a, b, _ uint32) uint32 { return b&^(1<<31) | a&(1<<31) }
	case "ex2.approx.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(exp2(float64(f32(a))))) }
	case "lg2.approx.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(log2(float64(f32(a))))) }
	case "rcp.approx.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(1 / float64(f32(a)))) }
	case "rsqrt.approx.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(1 / math.Sqrt(float64(f32(a))))) }
	case "sqrt.approx.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(math.Sqrt(float64(f32(a))))) }
	case "tanh.approx.f32":
		return func(a, _, _ uint32) uint32 { return b32(float32(tanh(float64(f32(a))))) }
	}
	switch typ {
	case "f16":
		return half(name)
	case "f16x2":
		h := half(name)
		if h == nil {
			return nil
		}
		return func(a, b, c uint32) uint32 {
			return h(a&0xffff, b&0xffff, c&0xffff) | h(a>>16, b>>16, c>>16)<<16
		}
	}
	if isFloat(typ) || isWide(typ) {
		return nil
	}
	if op == "mad.lo."+typ {
		return func(a, b, c uint32) uint32 { return a*b + c }
	}
	f := integer(name, op, typ)
	if f == nil {
		return nil
	}
	x, mask := extender(typ), rowMask(typ)
	if name == "shl" || name == "shr" { // the amount is a u32
		return func(a, b, _ uint32) uint32 { return uint32(f(x.of(uint64(a)), uint64(b))) & mask }
	}
	return func(a, b, _ uint32) uint32 { return uint32(f(x.of(uint64(a)), x.of(uint64(b)))) & mask }
}

func isNaN32(u uint32) bool { return u&0x7fffffff > 0x7f800000 }

// half is f16 arithmetic: in float64, where sums and products of f16 are exact, rounded once.
func half(name string) func(a, b, c uint32) uint32 {
	w := func(h uint32) float64 { return float64(halfToFloat(h)) }
	switch name {
	case "add":
		return func(a, b, _ uint32) uint32 { return floatToHalf(w(a) + w(b)) }
	case "sub":
		return func(a, b, _ uint32) uint32 { return floatToHalf(w(a) - w(b)) }
	case "mul":
		return func(a, b, _ uint32) uint32 { return floatToHalf(w(a) * w(b)) }
	case "fma":
		return func(a, b, c uint32) uint32 { return floatToHalf(oddSum(float64(w(a)*w(b)), w(c))) }
	}
	return nil
}

func scalar64(name, op, typ string) func(a, b, c uint64) uint64 {
	switch op {
	case "add.rn.f64":
		return func(a, b, _ uint64) uint64 { return b64(f64(a) + f64(b)) }
	case "sub.rn.f64":
		return func(a, b, _ uint64) uint64 { return b64(f64(a) - f64(b)) }
	case "mul.rn.f64":
		return func(a, b, _ uint64) uint64 { return b64(f64(a) * f64(b)) }
	case "fma.rn.f64":
		return func(a, b, c uint64) uint64 { return b64(math.FMA(f64(a), f64(b), f64(c))) }
	case "div.rn.f64":
		return func(a, b, _ uint64) uint64 { return b64(f64(a) / f64(b)) }
	case "rcp.rn.f64":
		return func(a, _, _ uint64) uint64 { return b64(1 / f64(a)) }
	case "sqrt.rn.f64":
		return func(a, _, _ uint64) uint64 { return b64(math.Sqrt(f64(a))) }
	case "abs.f64":
		return func(a, _, _ uint64) uint64 { return a &^ (1 << 63) }
	case "neg.f64":
		return func(a, _, _ uint64) uint64 { return a ^ 1<<63 }
	case "min.f64":
		return func(a, b, _ uint64) uint64 { return min64(a, b) }
	case "max.f64":
		return func(a, b, _ uint64) uint64 { return max64(a, b) }
	case "copysign.f64":
		return func(a, b, _ uint64) uint64 { return b&^(1<<63) | a&(1<<63) }
	}
	if !isWide(typ) || isFloat(typ) {
		return nil
	}
	if op == "mad.lo."+typ {
		return func(a, b, c uint64) uint64 { return a*b + c }
	}
	f := integer(name, op, typ)
	if f == nil {
		return nil
	}
	return func(a, b, _ uint64) uint64 { return f(a, b) }
}

func shift64(name, typ string) func(d, a *row64, b *row32) {
	f := integer(name, name+"."+typ, typ)
	return func(d, a *row64, b *row32) {
		for l := range d {
			d[l] = f(a[l], uint64(b[l]))
		}
	}
}

// prmt picks four of the eight bytes {b, a}; bit 3 of a selector replicates the byte's sign (PTX ISA, prmt).
func prmt(a, b, c uint32) uint32 {
	v := uint64(b)<<32 | uint64(a)
	var out uint32
	for i := uint(0); i < 4; i++ {
		s := c >> (4 * i)
		x := uint32(uint8(v >> (8 * (s & 7))))
		if s&8 != 0 {
			x = uint32(uint8(int8(x) >> 7))
		}
		out |= x << (8 * i)
	}
	return out
}

func bfeU(a, b, c uint32) uint32 {
	pos, n := b&0xff, c&0xff
	if pos > 31 || n == 0 {
		return 0
	}
	return a >> pos & uint32(uint64(1)<<min(n, 32)-1)
}

func bfeS(a, b, c uint32) uint32 {
	pos, n := b&0xff, c&0xff
	if n == 0 {
		return 0
	}
	sign := uint32(int32(a<<(31-min(pos+n-1, 31))) >> 31) // the field's last bit, everywhere
	if pos > 31 {
		return sign
	}
	mask := uint32(uint64(1)<<min(n, 32) - 1)
	if pos+n > 32 {
		mask = uint32(uint64(1)<<(32-pos) - 1)
	}
	return a>>pos&mask | sign&^mask
}

// lop3 looks every bit triple up in the table (PTX ISA, lop3).
func lop3(d, a, b, c *row32, lut uint8) {
	for l := range d {
		var out uint32
		for i := 0; i < 8; i++ {
			if lut>>i&1 == 0 {
				continue
			}
			x, y, z := a[l], b[l], c[l]
			if i&4 == 0 {
				x = ^x
			}
			if i&2 == 0 {
				y = ^y
			}
			if i&1 == 0 {
				z = ^z
			}
			out |= x & y & z
		}
		d[l] = out
	}
}

var wideOps = map[string]func(d *row64, a, b *row32, c *row64){
	"mul.wide.u32": func(d *row64, a, b *row32, _ *row64) {
		for l := range d {
			d[l] = uint64(a[l]) * uint64(b[l])
		}
	},
	"mul.wide.s32": func(d *row64, a, b *row32, _ *row64) {
		for l := range d {
			d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
		}
	},
	"mad.wide.u32": func(d *row64, a, b *row32, c *row64) {
		for l := range d {
			d[l] = uint64(a[l])*uint64(b[l]) + c[l]
		}
	},
	"mad.wide.s32": func(d *row64, a, b *row32, c *row64) {
		for l := range d {
			d[l] = uint64(int64(int32(a[l]))*int64(int32(b[l]))) + c[l]
		}
	},
}
