package emu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu/internal/jit"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/ptxrand"
)

const integerMMA = "mma.sync.aligned.m16n8k32.row.col."

const scaledMMA = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"

// TestNarrowRowsAreNative: no matrix product and no instruction on floats of 16 bits or fewer is the interpreter's,
// nor is what quantised files add. Of the rows that only other compilers' PTX has, those listed are the
// interpreter's.
func TestNarrowRowsAreNative(t *testing.T) {
	interpreted := map[string]bool{}
	for _, op := range []string{
		"mul.hi.u64", "fma.rm.f32", "fma.rn.f16", "fma.rn.bf16", "max.f16", "max.bf16", // rare
		integerMMA + "s32.s8.s8.s32", integerMMA + "s32.s8.u8.s32", integerMMA + "s32.u8.s8.s32", integerMMA + "satfinite.s32.s8.s8.s32",
		"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
		"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
		"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0",
	} {
		require.NotNil(t, ptx.Lookup(op), op)
		interpreted[op] = true
	}
	for _, op := range ptx.Opcodes() {
		def := ptx.Lookup(op)
		file := op == "cvt.rn.f32.s64" || def.Name == "bfe" || def.Name == "lop3"
		if def.Foreign && (def.Kind >= ptx.KindLoad && def.Kind != ptx.KindMMA && def.Kind != ptx.KindWarp) {
			continue // TestRandomKernelsFindWrongTranslations
		}
		if !def.Foreign && def.Kind != ptx.KindMMA && !file && !strings.Contains(op, "f16") && !strings.Contains(op, "e4m3") && !strings.Contains(op, "e5m2") && !strings.Contains(op, "e2m1") {
			continue
		}
		text, skip := instructionKernel(op, "")
		require.False(t, skip, op)
		for _, e := range engines(t) {
			d, err := Open(Options{Engine: e})
			require.NoError(t, err)
			m, err := d.Load(context.Background(), hal.Image{Name: "k", PTX: text})
			require.NoError(t, err)
			require.NotNil(t, d.engine.compile(m.(*module).programs["k"]), op)
			if interpreted[op] {
				require.NotEmpty(t, d.EngineStats().Left, "%s %s has a native form", e, op)
				continue
			}
			require.Empty(t, d.EngineStats().Left, "%s %s", e, op)
		}
	}
}

// TestRandomKernelsFindWrongTranslations has native code of other instructions than the interpreter executes, each as
// near to the right one as can be: one of the random kernels that use it shows it.
func TestRandomKernelsFindWrongTranslations(t *testing.T) {
	swap := func(i, j int) func(in *jit.Inst) {
		return func(in *jit.Inst) { in.Vec[i], in.Vec[j] = in.Vec[j], in.Vec[i] }
	}
	op := func(from, to string) func(in *jit.Inst) {
		return func(in *jit.Inst) { in.Def = ptx.Lookup(strings.Replace(in.Def.Op, from, to, 1)) }
	}
	sources := func(in *jit.Inst) { in.A, in.B = in.B, in.A }
	const eight = "mma.sync.aligned.m16n8k32.row.col.f32."
	for _, c := range []struct {
		op, fault string
		wrong     func(in *jit.Inst)
	}{
		{eight + "e4m3.e4m3.f32", "A as e5m2", op("e4m3.e4m3", "e5m2.e4m3")},
		{eight + "e4m3.e4m3.f32", "A's registers", swap(5, 6)},
		{eight + "e4m3.e4m3.f32", "B's registers", swap(8, 9)},
		{eight + "e5m2.e4m3.f32", "A as e4m3", op("e5m2.e4m3", "e4m3.e4m3")},
		{scaledMMA, "A's registers", swap(5, 6)},
		{scaledMMA, "B's registers", swap(8, 9)},
		{scaledMMA, "accumulator's registers", swap(10, 12)},
		{scaledMMA, "A's scales for B's", func(in *jit.Inst) { in.Vec[17] = in.Vec[14] }},
		{scaledMMA, "B's scales for A's", func(in *jit.Inst) { in.Vec[14] = in.Vec[17] }},
		{scaledMMA, "A's thread not selected", func(in *jit.Inst) { in.Vec[16] = in.Vec[15] }},
		{scaledMMA, "B's thread not selected", func(in *jit.Inst) { in.Vec[19] = in.Vec[18] }},
		{"cvt.rn.satfinite.e4m3x2.f32", "as e2m1", op("e4m3", "e2m1")},
		{"cvt.rn.satfinite.e4m3x2.f32", "order", sources},
		{"cvt.rn.satfinite.e2m1x2.f32", "order", sources},
		{"cvt.rn.f16x2.e4m3x2", "left as it is", op("cvt.rn.f16x2.e4m3x2", "cvt.u32.u16")},
		{"cvt.rn.satfinite.e4m3x2.f16x2", "left as it is", op("cvt.rn.satfinite.e4m3x2.f16x2", "cvt.u16.u32")},
		{"mul.rn.f16x2", "of f32", op("f16x2", "f32")},
		{"sub.rn.f16x2", "product", op("sub", "mul")},
		{"lop3.b32", "a bit of the table", func(in *jit.Inst) { in.Imm ^= 0x10 }},
		{"bfe.u32", "signed", op("u32", "s32")},
		{"bfe.s32", "unsigned", op("s32", "u32")},
		{"bfi.b32", "order", sources},
		{"bfi.b32", "a bit less", func(in *jit.Inst) { in.Imm-- }},
		{"shf.l.wrap.b32", "order", sources},
		{"mul.hi.u32", "signed", op("u32", "s32")},
		{"mul.hi.s32", "unsigned", op("s32", "u32")},
		{"mul.hi.u16", "signed", op("u16", "s16")},
		{"mul.hi.s16", "unsigned", op("s16", "u16")},
		{"mul.wide.u16", "upper half", op("wide", "hi")},
		{"mul.rn.bf16", "of f32", op("bf16", "f32")},
		{"add.rn.f32x2", "difference", op("add", "sub")},
		{"sub.rn.f32x2", "order", sources},
		{"mul.rn.f32x2", "sum", op("mul", "add")},
		{"fma.rn.f32x2", "order", func(in *jit.Inst) { in.B, in.C = in.C, in.B }},
		{"cvt.sat.f32.f32", "left as it is", op("cvt.sat.f32.f32", "mov.f32")},
		{"cvt.rzi.s16.f32", "32 bits", op("s16", "s32")},
		{"cvt.rn.satfinite.e5m2x2.f32", "order", sources},
		{"cvt.rn.satfinite.e5m2x2.f32", "as e4m3", op("e5m2", "e4m3")},
		{"cvt.rn.f16x2.e5m2x2", "as e4m3", op("e5m2", "e4m3")},
		{"cvt.rn.f16x2.e2m1x2", "as e4m3", op("e2m1", "e4m3")},
		{"shfl.sync.up.b32", "down", op("up", "down")},
		{"shfl.sync.down.b32", "up", op("down", "up")},
		{"shfl.sync.down.b32", "bfly", op("down", "bfly")},
		{"shfl.sync.idx.b32", "down", op("idx", "down")},
		{"redux.sync.add.s32", "max", op("add", "max")},
		{"redux.sync.max.s32", "min", op("max", "min")},
		{"redux.sync.max.s32", "unsigned", op("s32", "u32")},
		{"redux.sync.min.u32", "signed", op("u32", "s32")},
		{"atom.shared.add.u32", "the address for the data", func(in *jit.Inst) { in.B = in.A }},
		{"atom.shared.add.u32", "no result", func(in *jit.Inst) { in.D = in.B }},
		{"stmatrix.sync.aligned.m8n8.x1.shared.b16", "the addresses for the data", func(in *jit.Inst) { in.Vec[0] = in.A }},
		{"stmatrix.sync.aligned.m8n8.x4.shared.b16", "registers", swap(1, 2)},
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "A's registers", swap(5, 6)},
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "B's registers", swap(8, 9)},
		{"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32", "B as e4m3", func(in *jit.Inst) { in.Def = ptx.Lookup(eight + "e4m3.e4m3.f32") }},
		{"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e5m2.f32", "A as e4m3", func(in *jit.Inst) { in.Def = ptx.Lookup(eight + "e4m3.e5m2.f32") }},
	} {
		t.Run(c.op+", "+c.fault, func(t *testing.T) {
			for _, e := range engines(t) {
				if does := ptx.Lookup(c.op).Does; e == Interpreter && does != ptx.Compute && does != ptx.Multiply {
					continue // it uses native forms of what computes on registers alone
				}
				seen := 0
				for seed := uint64(0); ; seed++ {
					k := ptxrand.New(seed)
					if !strings.Contains(k.Text, c.op+" ") {
						continue
					}
					seen++
					require.LessOrEqual(t, seen, 100, "%s: no kernel shows it", e)
					if faulty(e, &k, func(in *jit.Inst) {
						if in.Def.Op == c.op {
							c.wrong(in)
						}
					}) != result(Specification, &k) {
						break
					}
				}
				t.Logf("%s: kernel number %d with the instruction shows it", e, seen)
			}
		})
	}
}

// TestConversionsAreTheInterpreters converts every operand of 16 bits or fewer, and of f32 every sign, exponent and
// seven leading bits of the mantissa with what follows nothing, next to nothing, half, or next to half of the
// seventh's place.
func TestConversionsAreTheInterpreters(t *testing.T) {
	fulltest.Long(t)
	var floats []uint32
	for u := range uint32(1 << 16) {
		for _, rest := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			floats = append(floats, u<<16|rest)
		}
	}
	var words []uint32
	for u := range uint32(1 << 16) {
		words = append(words, u|(u*0x9e3779b1)&0xffff0000)
	}
	for _, c := range []struct {
		op string
		in []uint32
	}{
		{"cvt.rn.satfinite.e4m3x2.f32", floats}, {"cvt.rn.satfinite.e2m1x2.f32", floats}, {"cvt.rn.f16x2.e4m3x2", words}, {"cvt.rn.satfinite.e4m3x2.f16x2", words},
		{"cvt.rn.f16.f32", floats}, {"cvt.rn.bf16.f32", floats}, {"cvt.f32.f16", words},
	} {
		t.Run(c.op, func(t *testing.T) {
			text, _ := instructionKernel(c.op, "")
			const threads, slots = 128, 32
			two := len(ptx.Lookup(c.op).Args) == 3
			for begin := 0; begin < len(c.in); begin += 1 << 16 {
				in := make([]uint64, slots<<16)
				for i := range 1 << 16 { // after the destination's slot: each operand once in order, once reordered
					in[slots*i+1] = uint64(c.in[begin+i])
					if two {
						in[slots*i+2] = uint64(c.in[(begin+i*40503)%len(c.in)])
					}
				}
				want, err := onEngine(Specification, text, 1<<16/threads, threads, 0, in, len(in))
				require.NoError(t, err)
				for _, e := range engines(t) {
					got, err := onEngine(e, text, 1<<16/threads, threads, 0, in, len(in))
					require.NoError(t, err)
					for i := 0; i < len(want); i += slots {
						if want[i] != got[i] {
							t.Fatalf("%s of %#x: %#x, the interpreter's %#x", e, in[i+1:i+3], got[i], want[i])
						}
					}
				}
			}
		})
	}
}

// TestLogicTables runs lop3 with every table.
func TestLogicTables(t *testing.T) {
	text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		out := k.Reg(ptx.B64)
		k.I("mad.wide.u32", out, threadID(k), ptx.Imm(4*256), p[1])
		x := []ptx.Reg{input(k, ptx.B32, p[0], 0), input(k, ptx.B32, p[0], 8), input(k, ptx.B32, p[0], 16)}
		for lut := range 256 {
			d := k.Reg(ptx.B32)
			k.I("lop3.b32", d, x[0], x[1], x[2], ptx.Imm(lut))
			k.I("st.global.b32", ptx.At(out, 4*lut), d)
		}
	})
	in := []uint64{0xf0cc5512, 0xccaa3377, 0xaa0f9a5c}
	want, err := onEngine(Specification, text, 1, 32, 0, in, 32*128)
	require.NoError(t, err)
	for _, e := range engines(t) {
		got, err := onEngine(e, text, 1, 32, 0, in, 32*128)
		require.NoError(t, err)
		require.Equal(t, want, got, e)
	}
}

// TestBitFields runs bfe with every position and length up to 63, and some beyond a byte.
func TestBitFields(t *testing.T) {
	for _, op := range []string{"bfe.u32", "bfe.s32"} {
		text, _ := instructionKernel(op, "")
		r := rand.New(rand.NewPCG(1, 1))
		in := make([]uint64, 32*64*64)
		for i := range 64 * 64 {
			in[32*i+1], in[32*i+2], in[32*i+3] = r.Uint64(), uint64(i/64+256*r.IntN(2)), uint64(i%64+256*r.IntN(2))
		}
		want, err := onEngine(Specification, text, 64, 64, 0, in, len(in))
		require.NoError(t, err)
		for _, e := range engines(t) {
			got, err := onEngine(e, text, 64, 64, 0, in, len(in))
			require.NoError(t, err)
			for i := 0; i < len(want); i += 32 {
				require.Equal(t, want[i], got[i], "%s %s of %#x", e, op, in[i+1:i+4])
			}
		}
	}
}

// TestScaleSelectors runs scaled products with selectors from registers: what scale_vec::4X defines gives the
// interpreter's result, anything else its violation.
func TestScaleSelectors(t *testing.T) {
	text := build("sm_121a", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		src, out := k.Reg(ptx.B64), k.Reg(ptx.B64)
		k.I("mad.wide.u32", src, threadID(k), ptx.Imm(256), p[0])
		k.I("mad.wide.u32", out, threadID(k), ptx.Imm(32), p[1])
		at := 0
		rows := func(c ptx.Class, n int) ptx.Vec {
			var v []ptx.Reg
			for range n {
				v = append(v, input(k, c, src, 8*at))
				at++
			}
			return ptx.V(v...)
		}
		d := k.RegVec(ptx.F32, 4)
		k.I(scaledMMA, ptx.V(d...), rows(ptx.B32, 4), rows(ptx.B32, 2), rows(ptx.F32, 4),
			rows(ptx.B32, 1), rows(ptx.B16, 2), rows(ptx.B32, 1), rows(ptx.B16, 2))
		for i, r := range d {
			output(k, r, out, 8*i)
		}
	})
	const byteA, threadA, byteB, threadB = 11, 12, 14, 15
	undefined := 0
	for n := range 3 * 5 * 2 * 2 {
		sel := map[int]int{byteA: n / 15 % 2, threadA: n % 3, byteB: n / 30, threadB: n / 3 % 5}
		for _, odd := range []int{0, byteA, threadA, byteB, threadB} { // whose last lane has another
			r := rand.New(rand.NewPCG(uint64(n), 1))
			in := make([]uint64, 32*32)
			for i := range in {
				in[i] = r.Uint64()
			}
			for lane := range 32 {
				for i := range 4 {
					in[32*lane+6+i] = uint64(math.Float32bits(float32(r.NormFloat64())))
				}
				for slot, v := range sel {
					in[32*lane+slot] = uint64(v)
				}
			}
			if odd > 0 {
				in[32*31+odd] ^= 1
			}
			want, wantErr := onEngine(Specification, text, 1, 32, 0, in, 128)
			if wantErr != nil {
				undefined++
			}
			for _, e := range engines(t) {
				got, err := onEngine(e, text, 1, 32, 0, in, 128)
				require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), "%s %v, odd %d", e, sel, odd)
				require.Equal(t, want, got, "%s %v, odd %d", e, sel, odd)
			}
		}
	}
	require.Equal(t, 3*5*2*2*5-2*4, undefined)
}
