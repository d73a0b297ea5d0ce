package gputest

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// values draws inputs, the same for a case on every machine and at any time.
type values struct{ *rand.Rand }

func valuesFor(name string) values {
	h := fnv.New64a()
	h.Write([]byte(name))
	return values{rand.New(rand.NewPCG(h.Sum64(), 20))}
}

// corners of each size: where rounding, saturation and signs go wrong.
var (
	corners16 = []uint64{0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x03ff, 0x0400}
	corners32 = []uint64{0, 1, 2, 31, 32, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff}
	corners64 = []uint64{0, 1, 2, 63, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 32, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, ^uint64(1), ^uint64(0)}
	// float corners also hold the ends of the integer types, ties and neighbours of ties.
	cornersFloat = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1.5, 2.5, -2.5, 0.49999997, 1 + 0x1p-11, 1 + 0x1p-24, 0x1p-126, 0x1p-149, -0x1p-149, 0x1p-14,
		0x1p-24, 0x1p-25, 65504, 65519, 65520, 0x1p31, -0x1p31, 0x1p31 - 128, 0x1p32, 0x1p63, -0x1p63, 0x1p64, math.MaxFloat32, math.Inf(1), math.Inf(-1), math.NaN()}
)

// draw is one register of a PTX type, as its bits: a corner, any bits, or for floats a number of moderate size.
func (v values) draw(typ string) uint64 {
	kind := v.IntN(3)
	switch typ {
	case "pred":
		return v.Uint64N(2)
	case "u8", "s8", "b8", "u16", "s16", "b16": // a register of 16 bits carries 8-bit types
		if kind == 0 {
			return corners16[v.IntN(len(corners16))]
		}
		return uint64(uint16(v.Uint64()))
	case "f16", "bf16":
		switch kind {
		case 0:
			return narrow(typ, cornersFloat[v.IntN(len(cornersFloat))])
		case 1:
			return narrow(typ, v.moderate(4))
		}
		return uint64(uint16(v.Uint64()))
	case "e4m3x2", "e5m2x2":
		return uint64(uint16(v.Uint64()))
	case "e2m1x2":
		return uint64(uint8(v.Uint64()))
	case "f16x2":
		return v.draw("f16")<<16 | v.draw("f16")
	case "bf16x2":
		return v.draw("bf16")<<16 | v.draw("bf16")
	case "f32x2":
		return v.draw("f32")<<32 | v.draw("f32")
	case "f32":
		switch kind {
		case 0:
			return uint64(math.Float32bits(float32(cornersFloat[v.IntN(len(cornersFloat))])))
		case 1:
			return uint64(math.Float32bits(float32(v.moderate(32))))
		}
		return uint64(uint32(v.Uint64()))
	case "f64":
		switch kind {
		case 0:
			return math.Float64bits(cornersFloat[v.IntN(len(cornersFloat))])
		case 1:
			return math.Float64bits(v.moderate(62))
		}
		return v.Uint64()
	case "u64", "s64", "b64":
		if kind == 0 {
			return corners64[v.IntN(len(corners64))]
		}
		return v.Uint64() >> v.IntN(64)
	}
	if kind == 0 {
		return corners32[v.IntN(len(corners32))]
	}
	return uint64(uint32(v.Uint64()) >> v.IntN(32))
}

// moderate is in (-2^most, 2^most), with every power of two from 2^-8 up equally likely. It is exact, so that every machine
// draws the same.
func (v values) moderate(most int) float64 {
	return math.Ldexp(2*v.Float64()-1, v.IntN(most+9)-8)
}

func narrow(typ string, x float64) uint64 {
	if typ == "bf16" {
		return uint64(minifloat.BFloat16.Encode(x, false))
	}
	return uint64(minifloat.Float16.Encode(x, false))
}

// bytes draws n bytes.
func (v values) bytes(n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, v.Uint64())
	}
	return slices.Clip(b[:n])
}

// pack lays numbers of a size side by side.
func pack(size int, numbers []uint64) []byte {
	b := make([]byte, 0, size*len(numbers))
	for _, n := range numbers {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], n)
		b = append(b, word[:size]...)
	}
	return b
}

// unpack is pack's inverse.
func unpack(size int, b []byte) []uint64 {
	out := make([]uint64, len(b)/size)
	for i := range out {
		var word [8]byte
		copy(word[:], b[i*size:(i+1)*size])
		out[i] = binary.LittleEndian.Uint64(word[:])
	}
	return out
}
