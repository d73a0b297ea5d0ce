package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// values is the number of values a lane holds.
func (f Fragment) values() int { return f.Rows * f.Cols / 32 }

// Fragments of A, which kernels load with ldmatrix, so that no table places their values.
var (
	a16x16 = Fragment{Name: "A m16k16", Rows: 16, Cols: 16, PerReg: 2,
		LaneRow: []Mode{{8, 1}, {4, 0}}, LaneCol: []Mode{{8, 0}, {4, 2}},
		ValueRow: []Mode{{2, 0}, {2, 8}, {2, 0}}, ValueCol: []Mode{{2, 8}, {2, 0}, {2, 1}}}
	a16x32 = Fragment{Name: "A m16k32", Rows: 16, Cols: 32, PerReg: 4,
		LaneRow: []Mode{{8, 1}, {4, 0}}, LaneCol: []Mode{{8, 0}, {4, 4}},
		ValueRow: []Mode{{2, 0}, {2, 8}, {4, 0}}, ValueCol: []Mode{{2, 16}, {2, 0}, {4, 1}}}
	a16x64 = Fragment{Name: "A m16k64", Rows: 16, Cols: 64, PerReg: 8,
		LaneRow: []Mode{{8, 1}, {4, 0}}, LaneCol: []Mode{{8, 0}, {4, 8}},
		ValueRow: []Mode{{2, 0}, {2, 8}, {8, 0}}, ValueCol: []Mode{{2, 32}, {2, 0}, {8, 1}}}
)

// f16 of a small integer.
func f16(x int) uint16 {
	if x == 0 {
		return 0
	}
	e, m := 0, x
	for m >= 2 {
		m >>= 1
		e++
	}
	return uint16((e+15)<<10 | (x-1<<e)<<(10-e))
}

// pack lays a matrix of small integers out in a lane's registers, as a fragment says.
func pack(f Fragment, at func(row, col int) int) []uint32 {
	regs := f.values() / f.PerReg
	out := make([]uint32, 32*regs)
	for lane := 0; lane < 32; lane++ {
		for v := 0; v < f.values(); v++ {
			r, c := f.At(lane, v)
			out[lane*regs+v/2] |= uint32(f16(at(r, c))) << (16 * (v % 2))
		}
	}
	return out
}

// TestFragmentsAgreeWithTheEmulator multiplies two matrices with an mma whose registers are filled and read as this
// package says; the emulator's maps are written from the PTX ISA's figures.
func TestFragmentsAgreeWithTheEmulator(t *testing.T) {
	m := ptx.NewModule("sm_90")
	k := m.NewKernel("k", 32)
	var p [3]ptx.Reg
	lane := k.Reg(ptx.B32)
	var params [3]ptx.Sym
	for i := range params {
		params[i] = k.AddParam([]string{"a", "b", "c"}[i], "u64")
	}
	k.I("mov.u32", lane, ptx.Special("%tid.x"))
	for i, bytes := range []int{16, 8, 16} {
		p[i] = k.Reg(ptx.B64)
		k.I("ld.param.u64", p[i], ptx.At(params[i], 0))
		k.I("mad.wide.u32", p[i], lane, ptx.Imm(bytes), p[i])
	}
	a, b, c := k.RegVec(ptx.B32, 4), k.RegVec(ptx.B32, 2), k.RegVec(ptx.F32, 4)
	k.I("ld.global.v4.b32", ptx.V(a...), ptx.At(p[0], 0))
	k.I("ld.global.v2.b32", ptx.V(b...), ptx.At(p[1], 0))
	for _, r := range c {
		k.I("mov.f32", r, ptx.FImm(0))
	}
	k.I("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ptx.V(c...), ptx.V(a...), ptx.V(b...), ptx.V(c...))
	k.I("st.global.v4.f32", ptx.At(p[2], 0), ptx.V(c...))
	k.I("ret")

	left := func(r, k int) int { return (r*7 + k*3) % 11 }
	right := func(k, n int) int { return (k*5 + n*2) % 7 }
	out := make([]float32, 128)
	require.NoError(t, emu.RunKernel(m.String(), "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, pack(a16x16, left), pack(B16x8, right), emu.Out{Data: out}))
	for l := 0; l < 32; l++ {
		for v := 0; v < 4; v++ {
			r, n := C16x8.At(l, v)
			want := 0
			for k := 0; k < 16; k++ {
				want += left(r, k) * right(k, n)
			}
			require.Equal(t, float32(want), out[l*4+v], "lane %d value %d: (%d,%d)", l, v, r, n)
		}
	}
}

// TestFragmentsCoverTheirMatrix: every element has exactly one place.
func TestFragmentsCoverTheirMatrix(t *testing.T) {
	for _, f := range []Fragment{a16x16, B16x8, C16x8, a16x32, B32x8, a16x64, B64x8} {
		seen := map[[2]int]bool{}
		for lane := 0; lane < 32; lane++ {
			for v := 0; v < f.values(); v++ {
				r, c := f.At(lane, v)
				require.True(t, r < f.Rows && c < f.Cols && !seen[[2]int{r, c}], "%s lane %d value %d", f.Name, lane, v)
				seen[[2]int{r, c}] = true
			}
		}
		require.Len(t, seen, f.Rows*f.Cols)
	}
}

// TestSwizzleAvoidsBankConflicts: eight neighbouring rows of a chunk fall into eight groups of four banks, and no two
// chunks share a place.
func TestSwizzleAvoidsBankConflicts(t *testing.T) {
	for bytes := 32; bytes <= 512; bytes += 16 {
		s := NewSwizzle(bytes)
		places := map[int]bool{}
		for row := 0; row < 32; row++ {
			for c := 0; c < s.Chunks; c++ {
				b := s.Byte(row, c)
				require.False(t, places[b] || b >= 32*bytes, "%d-byte rows: (%d,%d)", bytes, row, c)
				places[b] = true
			}
		}
		for first := 0; first < 32; first += 8 {
			for c := 0; c < s.Chunks; c++ {
				banks := map[int]bool{}
				for r := 0; r < 8; r++ {
					banks[s.Byte(first+r, c)/16%8] = true
				}
				require.Len(t, banks, 8, "%d-byte rows, chunk %d", bytes, c)
			}
		}
	}
}
