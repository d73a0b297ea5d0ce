package scenario

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// Multipliers and key increments of Philox4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
const (
	philoxM0, philoxM1 = 0xD2511F53, 0xCD9E8D57
	philoxW0, philoxW1 = 0x9E3779B9, 0xBB67AE85
	philoxRounds       = 10
)

// philox is Philox4x32-10: four random words of a counter and a key.
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range philoxRounds {
		p0, p1 := uint64(c[0])*philoxM0, uint64(c[2])*philoxM1
		c = [4]uint32{uint32(p1>>32) ^ c[1] ^ k[0], uint32(p1), uint32(p0>>32) ^ c[3] ^ k[1], uint32(p0)}
		k[0] += philoxW0
		k[1] += philoxW1
	}
	return c
}

// uniform is the number in (0, 1) of a random word, from its upper 23 bits: f32 has it exactly.
func uniform(x uint32) float64 { return (float64(x>>9) + 0.5) / (1 << 23) }

// philox is the same for every loop. Words and keys are u64 whose upper halves are 0.
func (b *builder) philox(c [4]*ir.Value, k [2]*ir.Value) [4]*ir.Value {
	low := b.word(math.MaxUint32)
	half := func(x *ir.Value) (high, lower *ir.Value) {
		return b.add("BitAnd", nil, b.add("ShiftRight", nil, x, b.word(32)), low), b.add("BitAnd", nil, x, low)
	}
	for round := range philoxRounds {
		h0, l0 := half(b.add("Mul", nil, c[0], b.word(philoxM0)))
		h1, l1 := half(b.add("Mul", nil, c[2], b.word(philoxM1)))
		key := func(i int, w uint32) *ir.Value {
			return b.add("BitAnd", nil, b.add("Add", nil, k[i], b.word(uint64(w)*uint64(round))), low)
		}
		xor := func(x, y, z *ir.Value) *ir.Value { return b.add("BitXor", nil, b.add("BitXor", nil, x, y), z) }
		c = [4]*ir.Value{xor(h1, c[1], key(0, philoxW0)), l1, xor(h0, c[3], key(1, philoxW1)), l0}
	}
	return c
}

func (b *builder) word(x uint64) *ir.Value {
	return b.x.Constant(&ir.Tensor{Type: ir.T(ir.Uint64), Data: le(x)})
}

// uniform is that of a word of every loop.
func (b *builder) uniform(word *ir.Value) num {
	top := b.add("Cast", ir.Attrs{"to": b.float}, b.add("ShiftRight", nil, word, b.word(9)))
	return b.mul(b.sum(num{top}, b.c(0.5)), b.c(1.0/(1<<23)))
}

// normals are four independent standard normal numbers of every loop, of four words (Box and Muller 1958).
func (b *builder) normals(w [4]*ir.Value) (out [4]num) {
	for i := range 2 {
		radius := b.one("Sqrt", b.mul(b.c(-2), b.one("Log", b.uniform(w[2*i]))))
		angle := b.mul(b.c(2*math.Pi), b.uniform(w[2*i+1]))
		out[2*i], out[2*i+1] = b.mul(radius, b.one("Cos", angle)), b.mul(radius, b.one("Sin", angle))
	}
	return out
}
