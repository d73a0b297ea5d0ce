package emu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// profiled runs a kernel over two buffers of 60,000 bytes and returns its counts, by opcode.
func profiled(t *testing.T, blocks, threads int, body func(k *ptx.Kernel, p []ptx.Reg)) (*Counts, map[string]Site) {
	t.Helper()
	var got *Counts
	opts := Options{Profile: func(c *Counts) { got = c }}
	text := build("sm_80", threads, 2, body)
	require.NoError(t, RunKernelWith(opts, text, "k", [3]int{blocks, 1, 1}, [3]int{threads, 1, 1}, 16384, Const{make([]byte, 60000)}, make([]byte, 60000)))
	sites := map[string]Site{}
	for _, s := range got.Sites {
		sites[s.Instr.Def.Op] = s
	}
	return got, sites
}

func TestGlobalSectorsAndUniqueBytes(t *testing.T) {
	for _, c := range []struct {
		name          string
		stride        int
		sectors, used int64 // of a warp's load
		unique        int64 // sectors of the whole launch
	}{
		{"neighbours", 4, 4, 128, 8},
		{"every other word", 8, 8, 128, 16},
		{"a sector each", 32, 32, 128, 64},
		{"a word for all", 0, 1, 4, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, sites := profiled(t, 3, 64, func(k *ptx.Kernel, p []ptx.Reg) {
				a := k.Reg(ptx.B64)
				k.I("mad.wide.u32", a, tidX(k), ptx.Imm(c.stride), p[0])
				k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(a, 0))
			})
			s := sites["ld.global.u32"]
			require.Equal(t, int64(6), s.Warps)
			require.Equal(t, int64(192), s.Lanes)
			require.Equal(t, 6*c.sectors, s.Sectors)
			require.Equal(t, 6*c.used, s.SectorBytes)
			require.Len(t, got.Memories, 1)
			require.True(t, got.Memories[0].Constant)
			unique := int64(256) // the blocks read the same
			if c.stride == 0 {
				unique = 4
			}
			require.Equal(t, unique, got.Memories[0].ReadBytes)
			require.Equal(t, c.unique, got.Memories[0].ReadSectors)
		})
	}
}

// TestAFenceEmptiesTheFirstLevel: the second of two loads is served by the block's own cache, the third, after a
// fence, by L2.
func TestAFenceEmptiesTheFirstLevel(t *testing.T) {
	_, sites := profiled(t, 3, 32, func(k *ptx.Kernel, p []ptx.Reg) {
		a := k.Reg(ptx.B64)
		k.I("mad.wide.u32", a, tidX(k), ptx.Imm(4), p[0])
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(a, 0))
		k.I("ld.global.b32", k.Reg(ptx.B32), ptx.At(a, 0))
		k.I("fence.acq_rel.gpu")
		k.I("ld.global.f32", k.Reg(ptx.F32), ptx.At(a, 0))
	})
	for op, sectors := range map[string]int64{"ld.global.u32": 12, "ld.global.b32": 0, "ld.global.f32": 12} {
		require.Equal(t, sectors, sites[op].L2Sectors, op)
	}
}

// TestBytesAreOfTheirMemory reads the beginning of a memory that closely follows another.
func TestBytesAreOfTheirMemory(t *testing.T) {
	got, _ := profiled(t, 1, 32, func(k *ptx.Kernel, p []ptx.Reg) {
		k.I("ld.global.u32", k.Reg(ptx.B32), ptx.At(p[1], 0))
	})
	require.Len(t, got.Memories, 1)
	require.False(t, got.Memories[0].Constant, "the second one is not")
	require.Equal(t, int64(4), got.Memories[0].ReadBytes)
}

func TestBankConflicts(t *testing.T) {
	for _, c := range []struct {
		name                  string
		op                    string
		n, stride             int
		wavefronts, conflicts int64
	}{
		{"neighbours", "ld.shared.b32", 1, 4, 1, 0},
		{"one word", "ld.shared.b32", 1, 0, 1, 0},
		{"two words a bank", "ld.shared.b32", 1, 8, 2, 1},
		{"all in one bank", "ld.shared.b32", 1, 128, 32, 31},
		{"a word of padding a row", "ld.shared.b32", 1, 132, 1, 0},
		{"pairs go in halves", "ld.shared.v2.b32", 2, 8, 2, 0},
		{"quadruples go in quarters", "ld.shared.v4.b32", 4, 16, 4, 0},
		{"quadruples of rows of 128 bytes", "ld.shared.v4.b32", 4, 128, 32, 28},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, sites := profiled(t, 1, 32, func(k *ptx.Kernel, p []ptx.Reg) {
				var d ptx.Operand = k.Reg(ptx.B32)
				if c.n > 1 {
					d = ptx.V(k.RegVec(ptx.B32, c.n)...)
				}
				k.I(c.op, d, ptx.At(sharedAt(k, tidX(k), c.stride), 0))
			})
			require.Equal(t, c.wavefronts, sites[c.op].Wavefronts)
			require.Equal(t, c.conflicts, sites[c.op].Conflicts)
		})
	}
}

func TestLanesAndDivergence(t *testing.T) {
	_, sites := profiled(t, 2, 32, func(k *ptx.Kernel, p []ptx.Reg) {
		i, end := tidX(k), k.NewLabel("end")
		k.If(pred(k, "ge", i, 5), "bra", end)
		k.I("add.s32", k.Reg(ptx.B32), i, i)
		k.Place(end)
		k.If(pred(k, "lt", i, 0), "sub.s32", k.Reg(ptx.B32), i, i)
	})
	require.Equal(t, Site{Line: sites["bra"].Line, Instr: sites["bra"].Instr, Warps: 2, Lanes: 54, Divergent: 2}, sites["bra"])
	require.Equal(t, int64(10), sites["add.s32"].Lanes)
	require.Equal(t, int64(2), sites["sub.s32"].Warps, "an instruction whose guard holds for no lane is issued all the same")
	require.Zero(t, sites["sub.s32"].Lanes)
}
