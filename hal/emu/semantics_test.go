package emu

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// apply executes one instruction on one lane: the sources are register bits (predicates 0 or 1, an ArgImm the number).
func apply(t *testing.T, op string, src ...uint64) uint64 {
	t.Helper()
	d := ptx.Lookup(op)
	require.NotNil(t, d, op)
	k := ptx.NewModule("sm_121a").NewKernel("k", 32)
	var args []ptx.Operand
	var dst ptx.Reg
	type set struct {
		r ptx.Reg
		v uint64
	}
	var sets []set
	n := 0
	for _, a := range d.Args {
		switch a.Kind {
		case ptx.ArgImm:
			args = append(args, ptx.Imm(src[n]))
			n++
			continue
		case ptx.ArgDst:
			dst = k.Reg(ptx.ClassOf(a.Type))
			args = append(args, dst)
			continue
		}
		r := k.Reg(ptx.ClassOf(a.Type))
		args = append(args, r)
		sets = append(sets, set{r, src[n]})
		n++
	}
	require.Len(t, src, n, op)
	k.I(op, args...)
	p, err := decode(k)
	require.NoError(t, err)
	b := new(block).fit(&launch{prog: p, threads: 32, block: [3]int{32, 1, 1}, grid: [3]int{1, 1, 1}, blocks: 1})
	b.begin(0)
	w := &b.warps[0]
	base := func(c ptx.Class) int {
		switch c {
		case ptx.F32:
			return k.Regs[ptx.B32]
		case ptx.B16:
			return k.Regs[ptx.B32] + k.Regs[ptx.F32]
		case ptx.B8:
			return k.Regs[ptx.B32] + k.Regs[ptx.F32] + k.Regs[ptx.B16]
		case ptx.F64:
			return k.Regs[ptx.B64]
		}
		return 0
	}
	for _, s := range sets {
		switch i := base(s.r.Class) + s.r.ID; s.r.Class {
		case ptx.Pred:
			w.p[i] = -uint32(s.v)
		case ptx.B64, ptx.F64:
			w.q[i][5] = s.v
		default:
			w.r[i][5] = uint32(s.v)
		}
	}
	w.run(10)
	switch i := base(dst.Class) + dst.ID; dst.Class {
	case ptx.Pred:
		return uint64(w.p[i] >> 5 & 1)
	case ptx.B64, ptx.F64:
		return w.q[i][5]
	default:
		return uint64(w.r[i][5])
	}
}

// F, D and S are operands: an f32, an f64, a signed integer of 32 bits.
func F(v float64) uint64 { return uint64(math.Float32bits(float32(v))) }
func D(v float64) uint64 { return math.Float64bits(v) }
func S(v int32) uint64   { return uint64(uint32(v)) }
func H(v float64) uint64 { return uint64(minifloat.Float16.Encode(v, false)) }
func Q(v int64) uint64   { return uint64(v) }

var (
	inf  = math.Inf(1)
	nan  = math.NaN()
	nanF = uint64(0x7fffffff)
)

// TestInstructions has a case at least of every row that computes.
func TestInstructions(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range []struct {
		op   string
		src  []uint64
		want uint64
	}{
		{"add.s32", []uint64{S(math.MaxInt32), 1}, S(math.MinInt32)},
		{"add.s64", []uint64{^uint64(0), 1}, 0},
		{"sub.u32", []uint64{1, 2}, S(-1)},
		{"mul.lo.s32", []uint64{S(-3), 5}, S(-15)},
		{"mul.wide.u32", []uint64{S(-2), 3}, 3 * 0xfffffffe},
		{"mad.lo.s32", []uint64{S(-3), 5, 1}, S(-14)},
		{"mad.wide.s32", []uint64{S(-3), 5, 100}, 85},
		{"mad.wide.u32", []uint64{S(-1), 4, 1}, 4*0xffffffff + 1},
		{"div.s32", []uint64{S(-7), 2}, S(-3)},
		{"div.s32", []uint64{S(math.MinInt32), S(-1)}, S(math.MinInt32)},
		{"div.u32", []uint64{7, 0}, S(-1)},
		{"div.s64", []uint64{Q(math.MinInt64), Q(-1)}, Q(math.MinInt64)},
		{"rem.s32", []uint64{S(-7), 2}, S(-1)},
		{"rem.u32", []uint64{S(-1), 10}, 5},
		{"rem.s64", []uint64{Q(-7), 0}, Q(-1)},
		{"abs.s32", []uint64{S(-5)}, 5},
		{"neg.s64", []uint64{5}, Q(-5)},
		{"min.s32", []uint64{S(-1), 1}, S(-1)},
		{"min.u32", []uint64{S(-1), 1}, 1},
		{"not.pred", []uint64{1}, 0},
		{"and.pred", []uint64{1, 0}, 0},
		{"or.pred", []uint64{1, 0}, 1},
		{"xor.pred", []uint64{1, 1}, 0},
		{"shl.b32", []uint64{1, 31}, 1 << 31},
		{"shl.b32", []uint64{1, 32}, 0},
		{"shl.b64", []uint64{1, 64}, 0},
		{"shr.s32", []uint64{S(-8), 1}, S(-4)},
		{"shr.s32", []uint64{S(-8), 200}, S(-1)},
		{"shr.u32", []uint64{S(-8), 40}, 0},
		{"shr.s64", []uint64{Q(-8), 99}, Q(-1)},
		{"shr.u64", []uint64{Q(-1), 63}, 1},
		{"lop3.b32", []uint64{0xf0, 0xcc, 0xaa, 0x96}, 0xf0 ^ 0xcc ^ 0xaa},
		{"lop3.b32", []uint64{0xf0, 0xcc, 0xaa, 0xe8}, 0xf0&0xcc | 0xcc&0xaa | 0xf0&0xaa},
		{"prmt.b32", []uint64{0x33221100, 0x77665544, 0x7531}, 0x77553311},
		{"prmt.b32", []uint64{0x00008000, 0x00000080, 0x00c9}, 0x0000ffff},
		{"bfe.u32", []uint64{0xabcd1234, 8, 8}, 0x12},
		{"bfe.u32", []uint64{0xabcd1234, 28, 8}, 0xa},
		{"bfe.u32", []uint64{0xabcd1234, 0, 32}, 0xabcd1234},
		{"bfe.s32", []uint64{0xf000, 12, 4}, S(-1)},
		{"bfe.s32", []uint64{0x7000, 12, 4}, 7},
		{"bfe.s32", []uint64{0x80000000, 28, 8}, S(-8)},
		{"bfe.s32", []uint64{0x80000000, 40, 8}, S(-1)},
		{"bfe.s32", []uint64{5, 0, 0}, 0},

		{"add.rn.f32", []uint64{F(1), F(0x1p-24)}, F(1)},
		{"add.rn.f32", []uint64{F(1 + 0x1p-23), F(0x1p-24)}, F(1 + 0x1p-22)},
		{"add.rn.f32", []uint64{F(inf), F(-inf)}, nanF},
		{"add.rn.f32", []uint64{1, 1}, 2}, // subnormal
		{"sub.rn.f32", []uint64{F(0), F(0)}, 0},
		{"mul.rn.f32", []uint64{F(0x1p-100), F(0x1p-49)}, 1},
		{"mul.rn.f32", []uint64{F(0), F(inf)}, nanF},
		{"mul.rn.f32", []uint64{0xffc12345, F(1)}, nanF},
		{"fma.rn.f32", []uint64{F(1 + 0x1p-12), F(1 + 0x1p-12), F(-1 - 0x1p-11)}, F(0x1p-24)}, // one rounding
		{"fma.rn.f64", []uint64{D(1 + 0x1p-30), D(1 - 0x1p-30), D(-1)}, D(-0x1p-60)},
		{"div.rn.f32", []uint64{F(1), F(3)}, 0x3eaaaaab},
		{"div.rn.f32", []uint64{F(1), F(math.Copysign(0, -1))}, F(-inf)},
		{"rcp.rn.f32", []uint64{F(3)}, 0x3eaaaaab},
		{"sqrt.rn.f32", []uint64{F(2)}, 0x3fb504f3},
		{"sqrt.rn.f32", []uint64{F(-1)}, nanF},
		{"sqrt.rn.f64", []uint64{D(2)}, D(math.Sqrt2)},
		{"abs.f32", []uint64{F(-1)}, F(1)},
		{"neg.f64", []uint64{D(1)}, D(-1)},
		{"copysign.f32", []uint64{F(-2), F(3)}, F(-3)},
		{"copysign.f64", []uint64{D(2), D(-3)}, D(3)},
		{"max.f32", []uint64{1 << 31, 0}, 0},
		{"max.f32", []uint64{F(-inf), F(nan)}, F(-inf)},
		{"max.f32", []uint64{0xffc12345, 0x7fc54321}, nanF}, // of two NaNs, quiet or signalling, neither
		{"max.f32", []uint64{0x7f800001, 0xffffffff}, nanF},
		{"min.NaN.f32", []uint64{F(nan), F(1)}, nanF},
		{"min.NaN.f32", []uint64{F(1), 0xffc12345}, nanF},
		{"min.NaN.f32", []uint64{0xffc12345, 0x7fc54321}, nanF},
		{"max.NaN.f32", []uint64{F(2), F(1)}, F(2)},
		{"max.NaN.f32", []uint64{0x7f800001, F(1)}, nanF},
		{"max.NaN.f32", []uint64{0xffc12345, 0x7fc54321}, nanF},
		{"sub.rn.f16x2", []uint64{H(3)<<16 | H(-65504), H(5)<<16 | H(65504)}, H(-2)<<16 | 0xfc00},
		{"mul.rn.f16x2", []uint64{H(3)<<16 | H(2), H(5)<<16 | H(65504)}, H(15)<<16 | 0x7c00},
		{"mul.rn.bf16x2", []uint64{0x4040<<16 | 0x0010, 0x40a0<<16 | 0x7b80}, 0x4170<<16 | 0x3b00}, // 3·5, and a subnormal number times 2^120

		{"ex2.approx.f32", []uint64{F(0.5)}, 0x3fb504f3},
		{"ex2.approx.f32", []uint64{F(-149)}, 1},
		{"ex2.approx.f32", []uint64{F(-inf)}, 0},
		{"ex2.approx.f32", []uint64{F(200)}, F(inf)},

		{"setp.lt.s32", []uint64{S(-1), 1}, 1},
		{"setp.lt.u32", []uint64{S(-1), 1}, 0},
		{"setp.eq.f32", []uint64{0, 1 << 31}, 1},
		{"setp.neu.f32", []uint64{F(nan), F(1)}, 1},
		{"setp.le.f64", []uint64{D(1), D(nan)}, 0},
		{"setp.nan.f64", []uint64{D(1), D(2)}, 0},
		{"selp.b32", []uint64{7, 9, 1}, 7},
		{"selp.f64", []uint64{D(7), D(9), 0}, D(9)},
		{"mov.pred", []uint64{1}, 1},
		{"mov.b16", []uint64{0xabcd}, 0xabcd},

		{"cvt.u32.u8", []uint64{0x1ff}, 0xff},
		{"cvt.s32.s8", []uint64{0x80}, S(-128)},
		{"cvt.s32.s16", []uint64{0xffff}, S(-1)},
		{"cvt.u32.u64", []uint64{1<<40 | 5}, 5},
		{"cvt.s64.s32", []uint64{S(-2)}, Q(-2)},
		{"cvt.u64.u32", []uint64{S(-2)}, 0xfffffffe},
		{"cvt.rn.f32.s32", []uint64{S(16777217)}, F(16777216)},
		{"cvt.rn.f32.s64", []uint64{Q(-1 << 62)}, F(-0x1p62)},
		{"cvt.rn.f32.u64", []uint64{Q(-1)}, F(0x1p64)},
		{"cvt.rn.f32.u64", []uint64{1<<63 | 1<<39 | 1}, F(0x1p63 + 0x1p40)}, // once, not by way of float64
		{"cvt.rn.f32.f64", []uint64{D(1 + 0x1p-24 + 0x1p-50)}, F(1 + 0x1p-23)},
		{"cvt.rn.f64.u64", []uint64{Q(-1)}, D(0x1p64)},
		{"cvt.f64.f32", []uint64{F(0.1)}, D(float64(float32(0.1)))},
		{"cvt.rzi.s32.f32", []uint64{F(-1.9)}, S(-1)},
		{"cvt.rzi.s32.f32", []uint64{F(3e9)}, S(math.MaxInt32)},
		{"cvt.rzi.s32.f32", []uint64{F(-3e9)}, S(math.MinInt32)},
		{"cvt.rzi.s32.f32", []uint64{F(nan)}, 0},
		{"cvt.rzi.s64.f32", []uint64{F(nan)}, 1 << 63},
		{"cvt.rzi.s32.f64", []uint64{D(nan)}, 1 << 31},
		{"cvt.rzi.u64.f64", []uint64{D(0x1p63)}, 1 << 63},
		{"cvt.rzi.s64.f64", []uint64{D(inf)}, math.MaxInt64},
		{"cvt.rni.f32.f32", []uint64{F(-0.5)}, 1 << 31},
		{"cvt.rmi.f32.f32", []uint64{F(-0.5)}, F(-1)},
		{"cvt.rpi.f32.f32", []uint64{F(0.5)}, F(1)},
		{"cvt.rzi.f64.f64", []uint64{D(-2.5)}, D(-2)},
		{"cvt.f32.f16", []uint64{0x7e00}, nanF},
		{"cvt.f32.f16", []uint64{0xfc00}, F(-inf)},
		{"cvt.rn.f16.f32", []uint64{F(65520)}, 0x7c00},
		{"cvt.rn.f16.f32", []uint64{F(65519)}, 0x7bff},
		{"cvt.rn.f16.f32", []uint64{F(nan)}, 0x7fff},
		{"cvt.rn.f16x2.f32", []uint64{F(1), F(2)}, 0x3c004000},
		{"cvt.rn.bf16.f32", []uint64{0x3f808000}, 0x3f80},
		{"cvt.rn.bf16.f32", []uint64{0x3f818000}, 0x3f82},
		{"cvt.rn.bf16.f32", []uint64{0x7f7fffff}, 0x7f80},
		{"cvt.rn.bf16.f32", []uint64{0xff800001}, 0x7fff},
		{"cvt.rn.bf16x2.f32", []uint64{F(1), F(2)}, 0x3f804000},

		{"add.u32", []uint64{S(-1), 2}, 1},
		{"sub.s32", []uint64{S(math.MinInt32), 1}, S(math.MaxInt32)},
		{"sub.s64", []uint64{Q(math.MinInt64), 1}, Q(math.MaxInt64)},
		{"mul.lo.s64", []uint64{Q(-3), 1 << 40}, Q(-3 << 40)},
		{"mad.lo.u32", []uint64{S(-1), 2, 5}, 3},
		{"mad.lo.s64", []uint64{Q(-3), 1 << 40, 7}, Q(-3<<40 + 7)},
		{"div.u64", []uint64{Q(-1), 2}, math.MaxInt64},
		{"rem.u64", []uint64{Q(-1), 10}, 5},
		{"abs.s64", []uint64{Q(math.MinInt64 + 1)}, math.MaxInt64},
		{"neg.s32", []uint64{S(math.MinInt32)}, S(math.MinInt32)},
		{"max.s32", []uint64{S(-1), 1}, 1},
		{"max.s64", []uint64{Q(-1), Q(-2)}, Q(-1)},
		{"min.s64", []uint64{Q(-1), 1}, Q(-1)},
		{"and.b32", []uint64{0xc, 0xa}, 8},
		{"and.b64", []uint64{0xc << 40, 0xa << 40}, 8 << 40},
		{"or.b32", []uint64{0xc, 0xa}, 0xe},
		{"or.b64", []uint64{0xc << 40, 0xa}, 0xc<<40 | 0xa},
		{"xor.b32", []uint64{0xc, 0xa}, 6},
		{"xor.b64", []uint64{0xc << 40, 0xa << 40}, 6 << 40},
		{"not.b32", []uint64{0xff}, 0xffffff00},
		{"not.b64", []uint64{0xff}, Q(^0xff)},
		{"neg.f32", []uint64{0xffc12345}, 0x7fc12345},
		{"abs.f64", []uint64{D(-1)}, D(1)},
		{"add.rn.f64", []uint64{D(1), D(0x1p-53)}, D(1)},
		{"sub.rn.f64", []uint64{D(inf), D(inf)}, 0x7ff8000000000000},
		{"mul.rn.f64", []uint64{D(3), D(0.1)}, D(0.30000000000000004)},
		{"div.rn.f64", []uint64{D(1), D(3)}, D(1.0 / 3)},
		{"setp.eq.s32", []uint64{S(-1), S(-1)}, 1},
		{"setp.eq.u32", []uint64{1, 2}, 0},
		{"setp.eq.s64", []uint64{1 << 32, 0}, 0},
		{"setp.eq.u64", []uint64{1 << 63, 1 << 63}, 1},
		{"setp.eq.f64", []uint64{0, 1 << 63}, 1},
		{"setp.ne.s32", []uint64{1, 1}, 0},
		{"setp.ne.u32", []uint64{1, S(-1)}, 1},
		{"setp.ne.s64", []uint64{1 << 32, 0}, 1},
		{"setp.lt.s64", []uint64{Q(-1), 1}, 1},
		{"setp.lt.u64", []uint64{Q(-1), 1}, 0},
		{"setp.lt.f32", []uint64{F(1), F(1)}, 0},
		{"setp.lt.f64", []uint64{D(nan), D(1)}, 0},
		{"setp.le.s32", []uint64{S(-1), S(-1)}, 1},
		{"setp.le.s64", []uint64{2, Q(-1)}, 0},
		{"setp.le.f32", []uint64{F(1), F(1)}, 1},
		{"setp.gt.s32", []uint64{1, S(-1)}, 1},
		{"setp.gt.u32", []uint64{1, S(-1)}, 0},
		{"setp.gt.f32", []uint64{F(2), F(1)}, 1},
		{"setp.gt.f64", []uint64{D(nan), D(1)}, 0},
		{"setp.ge.s32", []uint64{S(-1), S(-1)}, 1},
		{"setp.ge.u32", []uint64{1, S(-1)}, 0},
		{"setp.neu.f64", []uint64{D(nan), D(nan)}, 1},
		{"selp.b64", []uint64{7, 9 << 40, 0}, 9 << 40},
		{"selp.f32", []uint64{0xffc12345, F(9), 1}, 0xffc12345},
		{"mov.b32", []uint64{0xffc12345}, 0xffc12345},
		{"mov.u32", []uint64{S(-1)}, S(-1)},
		{"mov.f32", []uint64{0xffc12345}, 0xffc12345},
		{"mov.b64", []uint64{Q(-1)}, Q(-1)},
		{"mov.f64", []uint64{Q(-1)}, Q(-1)},
		{"cvta.to.global.u64", []uint64{1 << 40}, 1 << 40},
		{"cvt.u16.u32", []uint64{0x12345}, 0x2345},
		{"cvt.u32.u16", []uint64{0xffff}, 0xffff},
		{"cvt.rn.f64.s32", []uint64{S(-3)}, D(-3)},
		{"cvt.rn.f64.s64", []uint64{Q(1<<53 + 1)}, D(1 << 53)},
		{"cvt.rzi.u64.f32", []uint64{F(-1)}, 0},
		{"cvt.rzi.f32.f32", []uint64{F(-1.9)}, F(-1)},
		{"cvt.rni.f64.f64", []uint64{D(2.5)}, D(2)},
		{"cvt.rmi.f64.f64", []uint64{D(-2.5)}, D(-3)},
		{"cvt.rpi.f64.f64", []uint64{D(-0.5)}, 1 << 63},
		{"cvt.rn.satfinite.e4m3x2.f32", []uint64{F(-1), F(1000)}, 0xb87e},
		{"cvt.rn.satfinite.e2m1x2.f32", []uint64{F(-1), F(2.5)}, 0xa4},
		{"cvt.rn.satfinite.e4m3x2.f16x2", []uint64{H(-1)<<16 | H(1000)}, 0xb87e},
		{"cvt.rn.f16x2.e4m3x2", []uint64{0xb87f}, H(-1)<<16 | 0x7fff},

		{"mul.hi.u16", []uint64{0xffff, 0xfffe}, 0xfffd},
		{"mul.hi.s16", []uint64{0xffff, 0x7fff}, 0xffff},
		{"mul.hi.u32", []uint64{S(-1), S(-2)}, S(-3)},
		{"mul.hi.s32", []uint64{S(-1), S(math.MaxInt32)}, S(-1)},
		{"mul.hi.u64", []uint64{Q(-1), Q(-2)}, Q(-3)},
		{"mul.wide.s32", []uint64{S(-2), 3}, Q(-6)},
		{"mul.wide.u16", []uint64{0xffff, 0xffff}, 0xfffe0001},
		{"max.u32", []uint64{S(-1), 1}, S(-1)},
		{"shf.l.wrap.b32", []uint64{0x89abcdef, 0x01234567, 8}, 0x23456789},
		{"shf.l.wrap.b32", []uint64{0x89abcdef, 0x01234567, 32}, 0x01234567},
		{"bfi.b32", []uint64{0xabc, 0x11111111, 8, 12}, 0x111abc11},
		{"bfi.b32", []uint64{0xabc, 0x11111111, 24, 12}, 0xbc111111},
		{"bfi.b32", []uint64{0xabc, 0x11111111, 40, 12}, 0x11111111},
		{"min.f32", []uint64{1 << 31, 0}, 1 << 31},
		{"min.f32", []uint64{F(inf), F(nan)}, F(inf)},
		{"min.f32", []uint64{0xffc12345, 0x7fc54321}, nanF},
		{"min.f32", []uint64{0xffffffff, 0x7f800001}, nanF},
		{"min.f32", []uint64{F(nan), F(2)}, F(2)},
		{"fma.rm.f32", []uint64{F(1), F(1), F(-0x1p-30)}, F(1 - 0x1p-24)},
		{"fma.rm.f32", []uint64{F(-1), F(1), F(-0x1p-30)}, F(-1 - 0x1p-23)},
		{"fma.rm.f32", []uint64{F(1), F(1), F(-1)}, 1 << 31},
		{"fma.rm.f32", []uint64{F(0), F(1), F(0)}, 0},
		{"fma.rm.f32", []uint64{F(0x1p127), F(4), F(0)}, 0x7f7fffff},
		{"fma.rm.f32", []uint64{F(-0x1p-149), F(0x1p-149), F(0)}, 0x80000001},
		{"fma.rn.f16", []uint64{H(3), H(5), H(0.5)}, H(15.5)},
		{"fma.rn.f16", []uint64{H(1 + 0x1p-10), H(1 - 0x1p-10), H(-1)}, H(-0x1p-20)},
		{"fma.rn.f16", []uint64{H(0x1p-5 + 0x1p-15), H(0x1p-6 - 0x1p-16), H(1 + 0x1p-10)}, H(1 + 0x1p-10)}, // below the middle of two f16, in f32 on it
		{"fma.rn.bf16", []uint64{0x3f88, 0x3f88, 0x2180}, 0x3f91},                                          // (1 + 2^-4)² is the middle of two bf16, and 2^-60 is not seen in f64
		{"fma.rn.bf16", []uint64{0x3f81, 0x3f7f, 0xbf80}, 0x3b7e},                                          // (1 + 2^-7)·(1 - 2^-8) - 1 = 2^-8 - 2^-15
		{"fma.rn.bf16", []uint64{0x7f7f, 0xff7f, 0}, 0xff80},
		{"mul.rn.bf16", []uint64{0x4040, 0x40a0}, 0x4170},
		{"mul.rn.bf16", []uint64{0x3fc1, 0x3fc1}, 0x4012}, // 145.504 of the last place
		{"max.f16", []uint64{0x7e00, H(-2)}, H(-2)},
		{"max.f16", []uint64{0xfe12, 0x7c01}, 0x7fff},
		{"max.f16", []uint64{H(1), H(-2)}, H(1)},
		{"max.bf16", []uint64{0xbf80, 0x4040}, 0x4040},
		{"max.bf16", []uint64{0xffc1, 0x7f81}, 0x7fff},
		{"add.rn.f32x2", []uint64{F(1)<<32 | F(2), F(3)<<32 | F(5)}, F(4)<<32 | F(7)},
		{"sub.rn.f32x2", []uint64{F(1)<<32 | F(2), F(3)<<32 | F(7)}, F(-2)<<32 | F(-5)},
		{"mul.rn.f32x2", []uint64{F(1)<<32 | F(2), F(3)<<32 | F(5)}, F(3)<<32 | F(10)},
		{"fma.rn.f32x2", []uint64{F(1)<<32 | F(2), F(3)<<32 | F(5), F(-1)<<32 | F(inf)}, F(2)<<32 | F(inf)},
		{"fma.rn.f32x2", []uint64{F(1+0x1p-12)<<32 | F(1), F(1+0x1p-12)<<32 | F(1), F(-1-0x1p-11)<<32 | F(-1)}, F(0x1p-24)<<32 | F(0)}, // one rounding
		{"createpolicy.fractional.L2::evict_first.b64", []uint64{F(1)}, 0x12f0000000000000},
		{"cvt.sat.f32.f32", []uint64{F(nan)}, 0},
		{"cvt.sat.f32.f32", []uint64{1 << 31}, 0},
		{"cvt.sat.f32.f32", []uint64{F(1.5)}, F(1)},
		{"cvt.sat.f32.f32", []uint64{F(0.25)}, F(0.25)},
		{"cvt.rzi.s16.f32", []uint64{F(-1.9)}, 0xffff},
		{"cvt.rzi.s16.f32", []uint64{F(40000)}, 0x7fff},
		{"cvt.rzi.s16.f32", []uint64{F(nan)}, 0},
		{"cvt.u8.u32", []uint64{0x1234}, 0x34},
		{"cvt.f32.bf16", []uint64{0xc040}, F(-3)},
		{"cvt.rn.satfinite.e5m2x2.f32", []uint64{F(-1), F(1e6)}, 0xbc7b},
		{"cvt.rn.f16x2.e5m2x2", []uint64{0xbc7f}, H(-1)<<16 | 0x7fff},
		{"cvt.rn.f16x2.e2m1x2", []uint64{0xa4}, H(-1)<<16 | H(2)},
	} {
		tested[c.op] = true
		require.Equal(t, fmt.Sprintf("%#x", c.want), fmt.Sprintf("%#x", apply(t, c.op, c.src...)), "%s %#x", c.op, c.src)
	}
	for _, op := range ptx.Opcodes() {
		require.True(t, tested[op] || ptx.Lookup(op).Does != ptx.Compute, "no case of %s", op)
	}
}

func TestShuffles(t *testing.T) {
	for _, c := range []struct {
		mode    string
		b, c    int
		lane    int
		want    int
		inRange bool
	}{
		{"bfly", 1, 31, 6, 7, true},
		{"bfly", 16, 31, 3, 19, true},
		{"bfly", 4, 3, 1, 1, false},          // beyond the clamp
		{"bfly", 2, 31 | 24<<8, 9, 11, true}, // segments of 8: c is clamp | ~(width-1) << 8
		{"bfly", 8, 31 | 24<<8, 3, 3, false},
		{"bfly", 8, 31 | 24<<8, 11, 3, true},
		{"up", 3, 0, 7, 4, true},
		{"up", 3, 0, 2, 2, false},
		{"up", 3, 24 << 8, 10, 10, false}, // not out of its segment
		{"up", 2, 24 << 8, 10, 8, true},
		{"down", 5, 31, 20, 25, true},
		{"down", 5, 31, 28, 28, false},
		{"down", 3, 31 | 24<<8, 6, 6, false},
		{"idx", 9, 31, 30, 9, true},
		{"idx", 9, 31 | 24<<8, 30, 25, true}, // the second of lane 30's segment
		{"idx", 20, 7, 3, 3, false},
	} {
		text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i, v, q, in := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.Pred), k.Reg(ptx.B32)
			k.I("shfl.sync."+c.mode+".b32", ptx.Pair{D: v, P: q}, i, ptx.Imm(c.b), ptx.Imm(c.c), ptx.Imm(-1))
			k.I("selp.b32", in, ptx.Imm(1), ptx.Imm(0), q)
			k.I("st.global.b32", ptx.At(element(k, p[0], i), 0), v)
			k.I("st.global.b32", ptx.At(element(k, p[1], i), 0), in)
		})
		v, in := make([]uint32, 32), make([]uint32, 32)
		require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, Out{v}, Out{in}))
		require.Equal(t, c.want, int(v[c.lane]), "%+v", c)
		require.Equal(t, c.inRange, in[c.lane] == 1, "%+v", c)
	}
}

func TestReductionsCombineTheMembers(t *testing.T) {
	for op, want := range map[string]int32{"add.s32": -16, "max.s32": 15, "min.s32": -16, "max.u32": -1, "min.u32": 0} {
		text := build("sm_80", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
			i, v := tidX(k), k.Reg(ptx.B32)
			k.I("sub.s32", v, i, ptx.Imm(16))
			k.I("redux.sync."+op, v, v, ptx.Imm(-1))
			k.I("st.global.b32", ptx.At(element(k, p[0], i), 0), v)
		})
		out := make([]int32, 32)
		require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, Out{out}))
		for _, x := range out {
			require.Equal(t, want, x, op)
		}
	}
}

// TestAtomicsTakeTurns: the lanes' results are the values before their turns, in global memory and in shared.
func TestAtomicsTakeTurns(t *testing.T) {
	f := math.Float32frombits
	for op, next := range map[string]func(old, x uint32) uint32{
		"atom.global.add.f32": func(a, b uint32) uint32 { return math.Float32bits(f(a) + f(b)) },
		"atom.shared.add.u32": func(a, b uint32) uint32 { return a + b }, "atom.acq_rel.gpu.global.max.s32": func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) },
		"atom.acq_rel.gpu.global.max.u32": func(a, b uint32) uint32 { return max(a, b) }, "atom.acq_rel.gpu.global.min.s32": func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) },
		"atom.acq_rel.gpu.global.min.u32": func(a, b uint32) uint32 { return min(a, b) }, "atom.global.add.u32": func(a, b uint32) uint32 { return a + b }} {
		text := build("sm_80", 32, 3, func(k *ptx.Kernel, p []ptx.Reg) {
			i, v, old := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32)
			k.I("ld.global.b32", v, ptx.At(element(k, p[0], i), 0))
			if strings.Contains(op, "shared") {
				k.If(pred(k, "eq", i, 0), "st.shared.b32", ptx.At(ptx.Sym(ptx.SharedName), 0), v)
				barrier(k)
				k.I(op, old, ptx.At(ptx.Sym(ptx.SharedName), 0), v)
			} else {
				k.I(op, old, ptx.At(p[1], 0), v)
			}
			k.I("st.global.b32", ptx.At(element(k, p[2], i), 0), old)
		})
		in, word, out := make([]uint32, 32), []uint32{7}, make([]uint32, 32)
		for i := range in {
			in[i] = uint32(i*7%13) - 6
			if strings.HasSuffix(op, "f32") {
				in[i] = math.Float32bits(float32(i) / 3)
			}
		}
		require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 4, in, word, Out{out}))
		v := uint32(7)
		if strings.Contains(op, "shared") {
			v = in[0]
		}
		for i, x := range in {
			require.Equal(t, v, out[i], "%s, lane %d", op, i)
			v = next(v, x)
		}
		if !strings.Contains(op, "shared") {
			require.Equal(t, v, word[0], op)
		}
	}
}

// TestStoreMatrix: what ldmatrix loads, stmatrix stores in the same rows.
func TestStoreMatrix(t *testing.T) {
	text := build("sm_90", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i, v, w := tidX(k), k.RegVec(ptx.B32, 4), k.RegVec(ptx.B32, 4)
		at := sharedAt(k, i, 16)
		k.I("ld.global.v4.b32", ptx.V(v...), ptx.At(element16(k, p[0], i), 0))
		k.I("st.shared.v4.b32", ptx.At(at, 0), ptx.V(v...))
		barrier(k)
		k.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(w...), ptx.At(at, 0))
		turned := k.Reg(ptx.B32) // lane l's row goes to the place of row 31 - l
		k.I("mul.lo.s32", turned, i, ptx.Imm(-16))
		k.I("add.s32", turned, turned, ptx.Imm(sharedBase+31*16+512))
		k.I("stmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.At(turned, 0), ptx.V(w...))
		barrier(k)
		k.I("ld.shared.v4.b32", ptx.V(v...), ptx.At(at, 512))
		k.I("st.global.v4.b32", ptx.At(element16(k, p[1], i), 0), ptx.V(v...))
	})
	in, out := make([]uint32, 128), make([]uint32, 128)
	for i := range in {
		in[i] = uint32(i * 2654435761)
	}
	require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 1024, in, Out{out}))
	for row := range 32 {
		require.Equal(t, in[4*row:4*row+4], out[4*(31-row):4*(31-row)+4], "row %d", row)
	}
}

// TestStoreMatrixOfOne: eight lanes give the rows' addresses, those of the others do not count.
func TestStoreMatrixOfOne(t *testing.T) {
	text := build("sm_90", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		i, at, wild := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("mul.lo.s32", wild, i, ptx.Imm(1000001))
		k.I("mad.lo.s32", at, i, ptx.Imm(-16), ptx.Imm(sharedBase+7*16))
		k.I("selp.b32", at, at, wild, pred(k, "lt", i, 8))
		k.I("stmatrix.sync.aligned.m8n8.x1.shared.b16", ptx.At(at, 0), ptx.V(i))
		barrier(k)
		k.I("st.global.b32", ptx.At(element(k, p[0], i), 0), loadShared(k, sharedAt(k, i, 4), 0))
	})
	out := make([]uint32, 32)
	require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 128, Out{out}))
	for l := range uint32(32) {
		require.Equal(t, 4*(7-l/4)+l%4, out[l], "word %d", l)
	}
}

// element16 is p + 16·i.
func element16(k *ptx.Kernel, p, i ptx.Reg) ptx.Reg {
	r := k.Reg(ptx.B64)
	k.I("mad.wide.u32", r, i, ptx.Imm(16), p)
	return r
}

// TestLoadMatrix: lane l receives of matrix i the elements (l/4; 2(l%4), +1), or with .trans (2(l%4), +1; l/4).
func TestLoadMatrix(t *testing.T) {
	for _, trans := range []bool{false, true} {
		text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i := tidX(k)
			at := sharedAt(k, i, 16)
			src, v := k.Reg(ptx.B64), k.RegVec(ptx.B32, 4)
			k.I("mad.wide.u32", src, i, ptx.Imm(16), p[0])
			k.I("ld.global.v4.b32", ptx.V(v...), ptx.At(src, 0))
			k.I("st.shared.v4.b32", ptx.At(at, 0), ptx.V(v...))
			barrier(k)
			op := "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
			if trans {
				op = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
			}
			k.I(op, ptx.V(v...), ptx.At(at, 0))
			k.I("mad.wide.u32", src, i, ptx.Imm(16), p[1])
			k.I("st.global.v4.b32", ptx.At(src, 0), ptx.V(v...))
		})
		in, out := make([]uint16, 256), make([]uint16, 256)
		for i := range in {
			in[i] = uint16(i) // matrix i/64, row i/8%8, column i%8
		}
		require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 512, Const{in}, Out{out}))
		for lane := range 32 {
			for m := range 4 {
				for h := range 2 {
					row, col := lane/4, lane%4*2+h
					if trans {
						row, col = lane%4*2+h, lane/4
					}
					require.Equal(t, uint16(64*m+8*row+col), out[lane*8+2*m+h], "lane %d, matrix %d, half %d", lane, m, h)
				}
			}
		}
	}
}

// TestMoveMatrix: lane l, which has the elements (l/4; 2(l%4), +1), receives (2(l%4), +1; l/4).
func TestMoveMatrix(t *testing.T) {
	text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i, at, v := tidX(k), k.Reg(ptx.B64), k.Reg(ptx.B32)
		k.I("mad.wide.u32", at, i, ptx.Imm(4), p[0])
		k.I("ld.global.b32", v, ptx.At(at, 0))
		k.I("movmatrix.sync.aligned.m8n8.trans.b16", v, v)
		k.I("mad.wide.u32", at, i, ptx.Imm(4), p[1])
		k.I("st.global.b32", ptx.At(at, 0), v)
	})
	in, out := make([]uint16, 64), make([]uint16, 64)
	for i := range in {
		in[i] = uint16(i) // row i/8, column i%8
	}
	require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, Const{in}, Out{out}))
	for i, x := range out {
		require.Equal(t, uint16(i%8*8+i/8), x, "row %d, column %d", i/8, i%8)
	}
}

func TestAsyncCopyFillsWithZeros(t *testing.T) {
	text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i, src, n := tidX(k), k.Reg(ptx.B64), k.Reg(ptx.B32)
		at := sharedAt(k, i, 16)
		k.I("mad.wide.u32", src, i, ptx.Imm(16), p[0])
		k.I("min.u32", n, i, ptx.Imm(16))
		k.I("cp.async.ca.shared.global", ptx.At(at, 0), ptx.At(src, 0), ptx.Imm(16), n)
		k.I("cp.async.wait_all")
		v := ptx.V(k.RegVec(ptx.B32, 4)...)
		k.I("ld.shared.v4.b32", v, ptx.At(at, 0))
		k.I("mad.wide.u32", src, i, ptx.Imm(16), p[1])
		k.I("st.global.v4.b32", ptx.At(src, 0), v)
	})
	in, out := make([]byte, 512), make([]byte, 512)
	for i := range in {
		in[i] = byte(i%251) + 1
	}
	require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 512, Const{in}, Out{out}))
	for i := range out {
		want := in[i]
		if i%16 >= i/16 {
			want = 0
		}
		require.Equal(t, want, out[i], "byte %d", i)
	}
}

// TestDivergentLanesReconverge: nested branches and a loop with a trip count a lane; a shuffle of all lanes at the end.
func TestDivergentLanesReconverge(t *testing.T) {
	text := build("sm_80", 64, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		i, sum, n := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("mov.u32", sum, ptx.Imm(0))
		k.I("mov.u32", n, ptx.Imm(0))
		loop, odd, join, end := k.NewLabel("loop"), k.NewLabel("odd"), k.NewLabel("join"), k.NewLabel("end")
		q, bit := k.Reg(ptx.Pred), k.Reg(ptx.B32)
		k.Place(loop)
		k.I("setp.ge.s32", q, n, i)
		k.If(q, "bra", end)
		k.I("and.b32", bit, n, ptx.Imm(1))
		k.I("setp.eq.s32", q, bit, ptx.Imm(1))
		k.If(q, "bra", odd)
		k.I("add.s32", sum, sum, n)
		k.I("bra", join)
		k.Place(odd)
		k.I("sub.s32", sum, sum, n)
		k.Place(join)
		k.I("add.s32", n, n, ptx.Imm(1))
		k.I("bra", loop)
		k.Place(end)
		other := k.Reg(ptx.B32)
		k.I("shfl.sync.bfly.b32", ptx.Pair{D: other, P: q}, sum, ptx.Imm(1), ptx.Imm(31), ptx.Imm(-1))
		k.I("st.global.b32", ptx.At(element(k, p[0], i), 0), other)
	})
	out := make([]int32, 64)
	require.NoError(t, RunKernel(text, "k", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, Out{out}))
	for i := range out {
		want := int32(0)
		for n := range int32(i ^ 1) {
			if n%2 == 0 {
				want += n
			} else {
				want -= n
			}
		}
		require.Equal(t, want, out[i], "thread %d", i)
	}
}

// TestBlocksMayWaitForEachOther: block 0 waits for a flag that the last block raises, with one worker.
func TestBlocksMayWaitForEachOther(t *testing.T) {
	text := build("sm_90", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		b, v := ctaX(k), k.Reg(ptx.B32)
		last, spin := k.NewLabel("last"), k.NewLabel("spin")
		k.If(pred(k, "eq", b, 3), "bra", last)
		k.Place(spin)
		k.I("ld.acquire.gpu.global.u32", v, ptx.At(p[0], 0))
		k.If(pred(k, "eq", v, 0), "bra", spin)
		k.I("st.global.u32", ptx.At(element(k, p[1], b), 0), v)
		k.I("ret")
		k.Place(last)
		k.I("st.release.gpu.global.u32", ptx.At(p[0], 0), ptx.Imm(5))
	})
	flag, out := make([]uint32, 1), make([]uint32, 4)
	require.NoError(t, RunKernelWith(Options{Workers: 1}, text, "k", [3]int{4, 1, 1}, [3]int{1, 1, 1}, 0, flag, out))
	require.Equal(t, []uint32{5, 5, 5, 0}, out)
}
