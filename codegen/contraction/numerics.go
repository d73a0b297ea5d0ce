package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// numerics says in which types the operands lie in shared memory and in which they are multiplied. Where these differ a
// warp converts on the way to its fragments. A conversion need not keep the order of K within a step, as long as it is
// the same for both operands: packed weights follow.
type numerics struct {
	a, b, mul ir.DType // mul Float32: no tensor cores
	round     float64  // a·round is rounded to e4m3 on the way; 0: it is not
	across    bool     // blocks of B's scales lie along N, not K
	terms     int      // 2: to a sum of two e4m3, each of which B is multiplied with
	termsB    int      // 2: so is B, whose tile holds the first terms, then the second ones
	partial   int      // so many products along K are added by tensor cores, and these sums in f32; 0: all of them
}

// tensor reports whether tensor cores multiply.
func (n *numerics) tensor() bool { return n.mul != ir.Float32 }

// direct reports whether tensor cores multiply operands as they lie in shared memory, and add all products.
func (n *numerics) direct() bool {
	return n.tensor() && n.a == n.mul && n.b == n.mul && n.round == 0 && n.partial == 0 && n.terms*n.termsB == 1
}

// blockScaled reports whether the mma reads scales of blocks of both operands.
func (n *numerics) blockScaled() bool { return n.mul.Bits() < 8 }

// scaled reports whether a panel of weights stores a scale for every 16 of K after its elements.
func (n *numerics) scaled() bool { return n.b == ir.Float4E2M1 }

// bitsB is the size of an element of B in its tile: packed codes have no gaps.
func (n *numerics) bitsB() int {
	if f := n.b.Format(); f != nil {
		return f.Bits()
	}
	return n.b.Bits()
}

// laneB is the number of bytes of packed B that a lane reads for a step.
func (n *numerics) laneB() int { return 16 * n.bitsB() / n.b.Bits() }

// termB is the size in bytes of one term of the elements of a tile of B, elementsB that of all.
func (n *numerics) termB(cols, k int) int     { return cols * k * n.bitsB() / 8 }
func (n *numerics) elementsB(cols, k int) int { return n.termsB * n.termB(cols, k) }

func bytesFor(d ir.DType, elements int) int { return elements * d.Bits() / 8 }

// Elements of K that one mma, one ldmatrix of A and one 16-byte load of B (of two n8 tiles) cover: 32 bytes each.
func (n *numerics) stepMul() int { return 256 / n.mul.Bits() }
func (n *numerics) stepA() int   { return 256 / n.a.Bits() }
func (n *numerics) stepB() int   { return 256 / n.b.Bits() }

// unit is how many elements of K hold a whole number of each of the three.
func (n *numerics) unit() int { return max(n.stepMul(), n.stepA(), n.stepB()) }

// tileA is the size in bytes of a tile of A.
func (n *numerics) tileA(rows, k int) int { return bytesFor(n.a, rows*k) }

// perUnit is the number of elements of A that one unit of its memory holds.
func (n *numerics) perUnit() int { return max(1, 8/n.a.Bits()) }

// scalesA is the size in bytes of the scales of a tile of A.
func (n *numerics) scalesA(rows, k int) int {
	if !n.blockScaled() {
		return 0
	}
	return rows * k / blockSize
}

// madeA is the size in bytes of a tile of A that blocks make, scales included.
func (n *numerics) madeA(rows, k int) int { return n.tileA(rows, k) + n.scalesA(rows, k) }

// tileB is the size in bytes of a tile of B, scales included.
func (n *numerics) tileB(cols, k int) int {
	size := n.elementsB(cols, k)
	if n.scaled() {
		size += cols * k / blockSize
	}
	return size
}

// String names the types for a kernel's name: f16, e4m3, f16_e2m1 (weights are converted), e4m3_of_f16 (activations
// are rounded when read), e4m3x2_of_f16 (to a sum of two), e4m3_by_x2 (weights are a sum of two).
func (n *numerics) String() string {
	if n.termsB == 2 {
		one := *n
		one.termsB = 1
		return one.String() + "_by_x2"
	}
	switch {
	case !n.tensor() || n.a == n.b && n.b == n.mul:
		return n.mul.String()
	case n.round != 0 && n.b == n.mul && n.terms == 2: // read in 16 bits
		return n.mul.String() + "x2_of_" + n.a.String()
	case n.round != 0 && n.b == n.mul:
		return n.mul.String() + "_of_" + n.a.String()
	}
	return n.a.String() + "_" + n.b.String()
}

// k is the position within the unit of the element of B that lane t of a quad holds in register r, place j, for mma
// number s of the unit (layout.B16x8 and B32x8 where nothing is converted).
func (n *numerics) k(s, t, r, j int) int {
	switch {
	case n.blockScaled():
		k, _ := layout.B64x8.At(t, 8*r+j)
		return 64*s + k
	case n.mul.Bits() == 8 && n.a != n.mul: // pairs of two f16 fragments, side by side
		return 32*s + 16*r + 2*t + j%2 + 8*(j/2)
	case n.mul.Bits() == 8:
		k, _ := layout.B32x8.At(t, 4*r+j)
		return 32*s + k
	case n.a.Bits() == 8: // the lower pair of an 8-bit fragment becomes register 0, the upper one register 1
		k, _ := layout.B32x8.At(t, 4*(s%2)+2*r+j)
		return 32*(s/2) + k
	}
	k, _ := layout.B16x8.At(t, 2*r+j)
	return 16*s + k
}

// decide chooses the numerics from the operands' types, for a target that has everything.
func (p *problem) decide() error {
	a, b, n := p.a.dtype, p.b.dtype, &p.num
	*n = numerics{a: ir.Float32, b: ir.Float32, mul: ir.Float32, round: p.a.src.round, terms: max(1, p.a.src.terms), termsB: 1}
	narrow := func(d ir.DType) bool { return d.Bits() <= 8 }
	same := func(d ir.DType) { n.a, n.b, n.mul = d, d, d }
	wide := func() error {
		if narrow(a) || narrow(b) && p.b.src.data == nil || n.round != 0 {
			return fmt.Errorf("no contraction kernel for %s times %s", a, b)
		}
		return nil
	}
	switch {
	case a == ir.Float4E2M1:
		if p.b.src.blocks == nil || !p.regularBlocks() || p.attn != nil {
			return fmt.Errorf("no contraction kernel for block-scaled %s times %s", a, b)
		}
		same(ir.Float4E2M1)
		return nil
	case p.attn != nil:
		if v, dy := p.attn.v.dtype, p.attn.dy; a == b && b == v && (dy == nil || dy.dtype == a) && isHalf(a) {
			same(a)
		} else if narrow(v) {
			return fmt.Errorf("Attention of %s", v)
		}
		if n.round != 0 {
			return fmt.Errorf("Attention that rounds its operands")
		}
		return wide()
	case n.terms == 2 && !exactFactor(n, a):
		return fmt.Errorf("two terms of %s times %v", a, n.round)
	case p.b.src.data == nil:
		if a == b && n.round == 0 && (isHalf(a) || a == ir.Float8E4M3FN) {
			same(a)
			return nil
		}
		return wide()
	case a == ir.Float8E4M3FN || isHalf(a) && n.round != 0:
		n.a = a
		switch {
		case p.b.src.blocks != nil:
			n.b, n.mul = ir.Float4E2M1, ir.Float16
		case narrow(b): // contained in e4m3
			n.b, n.mul = ir.Float8E4M3FN, ir.Float8E4M3FN
		case p.b.src.terms == 2:
			n.b, n.mul, n.termsB = ir.Float8E4M3FN, ir.Float8E4M3FN, 2
		case b == ir.Float16:
			n.b, n.mul = ir.Float16, ir.Float16
		default:
			return wide()
		}
	case isHalf(a) && (a == b || narrow(b)):
		same(a)
		switch {
		case !narrow(b):
		case p.b.src.blocks != nil:
			n.b = ir.Float4E2M1
		case b == ir.Float6E3M2:
			n.b = b
		default:
			n.b = ir.Float8E4M3FN
		}
	default:
		return wide()
	}
	if n.b == ir.Float4E2M1 && !p.regularBlocks() {
		if n.across = p.blocksAcross(); !n.across {
			n.b = n.mul // holds value·scale exactly
		}
	}
	return nil
}

// exactFactor reports whether f16 holds products with the factor of a rounding exactly, as long as they are normal.
func exactFactor(n *numerics, a ir.DType) bool {
	fraction, _ := math.Frexp(n.round)
	return a == ir.Float16 && fraction == .5 && n.round >= 0x1p-14 && n.round <= 0x1p15
}

// on adapts the numerics to a target; the error says what the target lacks.
func (n *numerics) on(t *target.Target) error {
	switch {
	case n.round != 0 && !t.Multiplies(ir.Float8E4M3FN.String()):
		return fmt.Errorf("%s has no conversion to e4m3", t.Name)
	case t.Multiplies(n.mul.String()) && n.mul == ir.BFloat16 && n.b.Bits() <= 8 && ptx.Lookup("mul.rn.bf16x2").Available(t.Name, ptx.Version{Major: t.ISA[0], Minor: t.ISA[1]}) != nil:
		n.b = n.mul // converted when it is packed
	case t.Multiplies(n.mul.String()):
	case n.blockScaled():
		return fmt.Errorf("%s does not multiply %v with block scales", t.Name, n.mul)
	default:
		n.mul = ir.Float16 // contains every 8-bit float
		if n.termsB == 2 { // and their sums
			n.b, n.termsB = ir.Float16, 1
		}
	}
	if t.SumBits[n.mul.String()] > 0 {
		n.partial = partialSum
	}
	return nil
}

// partialSum is after how many products along K sums move to f32, where tensor cores keep fewer bits (DeepSeek-V3
// Technical Report, 2024, section 3.5.2): errors grow with the number of instructions that add to one accumulator.
const partialSum = 128

func isHalf(d ir.DType) bool { return d == ir.Float16 || d == ir.BFloat16 }

// mmaOpcode is the instruction that multiplies.
func (n *numerics) mmaOpcode() string {
	switch n.mul {
	case ir.BFloat16:
		return "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
	case ir.Float8E4M3FN:
		return "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
	case ir.Float4E2M1:
		return "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
	}
	return "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
}
