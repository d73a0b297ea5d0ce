package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// packCodes lays the codes of a matrix of small integers out in a lane's registers, as a fragment says.
func packCodes(f Fragment, format *minifloat.Format, at func(row, col int) int) []uint32 {
	regs := f.values() / f.PerReg
	out := make([]uint32, 32*regs)
	for lane := range 32 {
		for v := range f.values() {
			r, c := f.At(lane, v)
			code := format.Encode(float64(at(r, c)), true)
			out[lane*regs+v/f.PerReg] |= code << (32 / f.PerReg * (v % f.PerReg))
		}
	}
	return out
}

// scalesA and scalesB say which row of A, or column of B, the four block scales in a lane's register belong to, for
// scale_vec::4X with selectors {0, 0}; -1: they are not read. Byte i of the register is that of k 16i…16i+15 ("Block
// scaling for mma.sync").
func scalesA(lane int) int {
	if lane%4 > 1 {
		return -1
	}
	return lane/4 + 8*(lane%4)
}

// scalesB is the column whose scales a lane holds.
func scalesB(lane int) int {
	if lane%4 != 0 {
		return -1
	}
	return lane / 4
}

// TestNarrowFragmentsAgreeWithTheEmulator is TestFragmentsAgreeWithTheEmulator for 8-bit and 4-bit operands; the latter
// have a scale for every 16 of K, which are powers of two here.
func TestNarrowFragmentsAgreeWithTheEmulator(t *testing.T) {
	for _, c := range []struct {
		op     string
		format *minifloat.Format
		a, b   Fragment
		most   int // of the integers
	}{
		{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", minifloat.E4M3FN, a16x32, B32x8, 12},
		{"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", minifloat.E2M1, a16x64, B64x8, 4},
	} {
		t.Run(c.format.Name, func(t *testing.T) {
			left := func(r, k int) int { return (r*7 + k*3 + k/5) % c.most }
			right := func(k, n int) int { return (k*5 + n*2 + k/7) % c.most }
			scaled := c.format == minifloat.E2M1
			scaleA, scaleB := func(row, block int) int { return 1 << ((row + block) % 3) }, func(col, block int) int { return 1 << ((col + 2*block) % 4) }
			a, b := packCodes(c.a, c.format, left), packCodes(c.b, c.format, right)
			var sa, sb []uint32
			for lane := range 32 {
				words := [2]uint32{0x70707070, 0x70707070} // where nothing is read: 256
				for i, row := range []int{scalesA(lane), scalesB(lane)} {
					scale := []func(int, int) int{scaleA, scaleB}[i]
					for block := 0; row >= 0 && block < 4; block++ {
						words[i] &^= 0xff << (8 * block)
						words[i] |= minifloat.E4M3FN.Encode(float64(scale(row, block)), true) << (8 * block)
					}
				}
				sa, sb = append(sa, words[0]), append(sb, words[1])
			}

			m := ptx.NewModule("sm_121a")
			k := m.NewKernel("k", 32)
			lane := k.Reg(ptx.B32)
			k.I("mov.u32", lane, ptx.Special("%tid.x"))
			names := []string{"a", "b", "sa", "sb", "c"}
			params := make([]ptx.Sym, len(names))
			for i, n := range names {
				params[i] = k.AddParam(n, "u64")
			}
			var regs [][]ptx.Reg
			for i, n := range []int{4, 2, 1, 1} {
				p := k.Reg(ptx.B64)
				k.I("ld.param.u64", p, ptx.At(params[i], 0))
				k.I("mad.wide.u32", p, lane, ptx.Imm(4*n), p)
				r := k.RegVec(ptx.B32, n)
				for j := range r {
					k.I("ld.global.b32", r[j], ptx.At(p, 4*j))
				}
				regs = append(regs, r)
			}
			acc := k.RegVec(ptx.F32, 4)
			for _, r := range acc {
				k.I("mov.f32", r, ptx.FImm(0))
			}
			args := []ptx.Operand{ptx.V(acc...), ptx.V(regs[0]...), ptx.V(regs[1]...), ptx.V(acc...)}
			if scaled {
				zero := ptx.Vec{ptx.Imm(0), ptx.Imm(0)}
				args = append(args, ptx.V(regs[2]...), zero, ptx.V(regs[3]...), zero)
			}
			k.I(c.op, args...)
			p := k.Reg(ptx.B64)
			k.I("ld.param.u64", p, ptx.At(params[4], 0))
			k.I("mad.wide.u32", p, lane, ptx.Imm(16), p)
			k.I("st.global.v4.f32", ptx.At(p, 0), ptx.V(acc...))
			k.I("ret")

			out := make([]float32, 128)
			require.NoError(t, emu.RunKernel(m.String(), "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, a, b, sa, sb, emu.Out{Data: out}))
			for l := range 32 {
				for v := range 4 {
					r, n := C16x8.At(l, v)
					want := 0
					for x := range c.a.Cols {
						term := left(r, x) * right(x, n)
						if scaled {
							term *= scaleA(r, x/16) * scaleB(n, x/16)
						}
						want += term
					}
					require.Equal(t, float32(want), out[l*4+v], "lane %d value %d: (%d,%d)", l, v, r, n)
				}
			}
		})
	}
}
