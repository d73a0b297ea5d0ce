package emu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// quadPatterns are offsets by lane, in units of an access, of 64 units.
var quadPatterns = map[string]func(lane int) int{
	"neighbours":           func(l int) int { return l },
	"quads reversed":       func(l int) int { return 28 - l/4*4 + l%4 },
	"quads overlap":        func(l int) int { return l/4*2 + l%4 },
	"alike in quads":       func(l int) int { return 3 * (l / 4) },
	"all alike":            func(int) int { return 5 },
	"reversed":             func(l int) int { return 31 - l },
	"pairs":                func(l int) int { return l/2*3 + l%2 },
	"last lane elsewhere":  func(l int) int { return l + l/31*7 },
	"lane 17 elsewhere":    func(l int) int { return l + l/17%2*20 },
	"alike but for one":    func(l int) int { return l/4 + l/29*30 },
	"neighbours, last two": func(l int) int { return l + 32 },
}

// vectorAccess loads offsets by thread and then vectors from these offsets in memory, or stores vectors there. All of
// what was loaded, and memory as it is then, is the output.
func vectorAccess(space string, words int, load bool) string {
	return build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i, off := tidX(k), k.Reg(ptx.B32)
		k.I("ld.global.b32", off, ptx.At(element(k, p[0], i), 0))
		address := func(index ptx.Reg, scale int) ptx.Reg {
			if space == "global" {
				at := k.Reg(ptx.B64)
				k.I("mad.wide.u32", at, index, ptx.Imm(int64(scale)), p[0])
				return at
			}
			return sharedAt(k, index, scale)
		}
		own, v := address(i, 32), k.RegVec(ptx.B32, 8)
		for n, r := range v {
			k.I("mad.lo.s32", r, i, ptx.Imm(8), ptx.Imm(int64(1000+n)))
			k.I("st."+space+".b32", ptx.At(own, 4*n+128), r)
		}
		k.I("bar.sync", ptx.Imm(0))
		at := address(off, 1)
		if load {
			k.I(fmt.Sprintf("ld.%s.v%d.b32", space, words), ptx.V(v[:words]...), ptx.At(at, 128))
		} else {
			k.I(fmt.Sprintf("st.%s.v%d.b32", space, words), ptx.At(at, 128), ptx.V(v[:words]...))
		}
		k.I("bar.sync", ptx.Imm(0))
		out := k.Reg(ptx.B64)
		k.I("mad.wide.u32", out, i, ptx.Imm(64), p[1])
		for n := range 8 {
			k.I("st.global.b32", ptx.At(out, 4*n), v[n])
			r := k.Reg(ptx.B32)
			k.I("ld."+space+".b32", r, ptx.At(own, 4*n+128))
			k.I("st.global.b32", ptx.At(out, 32+4*n), r)
		}
	})
}

// TestVectorAccess_MatchesTheInterpreter loads and stores two and four words a lane at addresses that lie together by
// fours, or don't.
func TestVectorAccess_MatchesTheInterpreter(t *testing.T) {
	for _, space := range []string{"shared", "global"} {
		for _, words := range []int{2, 4} {
			for _, load := range []bool{true, false} {
				text := vectorAccess(space, words, load)
				for name, pattern := range quadPatterns {
					t.Run(fmt.Sprintf("%s/v%d/load=%v/%s", space, words, load, name), func(t *testing.T) {
						in := make([]uint32, 32+32*8+64)
						for l := range 32 {
							in[l] = uint32(4 * words * pattern(l))
						}
						run := func(e Engine) []uint32 {
							mem, out := append([]uint32{}, in...), make([]uint32, 32*16)
							opts := Options{Engine: e, Workers: 1}
							require.NoError(t, RunKernelWith(opts, text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 1536, mem, out))
							return append(out, mem...)
						}
						want := run(Specification)
						for _, e := range engines(t) {
							require.Equal(t, want, run(e), e)
						}
					})
				}
			}
		}
	}
}

// TestRun_ReportsTheLoadThatIsOutOfBounds computes with what several loads from one base give, of which the last
// does not fit, or is not aligned: native code gives up before the first, and the interpreter finds the one.
func TestRun_ReportsTheLoadThatIsOutOfBounds(t *testing.T) {
	for _, last := range []int{2048 - 512, 2048 - 496, 8, -1040} {
		text := build("sm_80", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
			i := tidX(k)
			at, sum := sharedAt(k, i, 16), k.Reg(ptx.F32)
			k.I("mov.f32", sum, ptx.FImm(0))
			for _, off := range []int{0, 256, 1024, last} {
				v := k.RegVec(ptx.F32, 4)
				k.I("ld.shared.v4.f32", ptx.V(v...), ptx.At(at, off))
				for _, r := range v {
					k.I("add.rn.f32", sum, sum, r)
				}
			}
			k.I("st.global.f32", ptx.At(element(k, p[0], i), 0), sum)
		})
		run := func(e Engine) string {
			err := RunKernelWith(Options{Engine: e}, text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 2048, make([]float32, 32))
			return fmt.Sprint(err)
		}
		want := run(Specification)
		require.Equal(t, last == 2048-512, want == "<nil>", want)
		for _, e := range engines(t) {
			require.Equal(t, want, run(e), e)
		}
	}
}

// TestAsyncCopies_MatchTheInterpreter copies 16 bytes a lane from and to addresses that lie together by fours, or
// don't, in one group of two that is waited for while the other is not. A size that is no constant may be 0.
func TestAsyncCopies_MatchTheInterpreter(t *testing.T) {
	text := build("sm_80", 32, 3, func(k *ptx.Kernel, p []ptx.Reg) {
		i, from, to, size, v := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.RegVec(ptx.B32, 16)
		for n, r := range []ptx.Reg{from, to, size} {
			k.I("ld.global.b32", r, ptx.At(element(k, p[0], i), 128*n))
		}
		src, dst, own, out := k.Reg(ptx.B64), sharedAt(k, to, 1), sharedAt(k, i, 64), k.Reg(ptx.B64)
		k.I("mad.wide.u32", src, from, ptx.Imm(1), p[1])
		k.I("cp.async.cg.shared.global", ptx.At(dst, 0), ptx.At(src, 0), ptx.Imm(16), ptx.Imm(16))
		k.I("cp.async.cg.shared.global", ptx.At(dst, 1024), ptx.At(src, 16), ptx.Imm(16), size)
		k.I("cp.async.commit_group")
		k.I("cp.async.cg.shared.global", ptx.At(dst, 512), ptx.At(src, 0), ptx.Imm(16), ptx.Imm(16))
		k.I("cp.async.commit_group")
		for n, r := range v {
			if n%4 == 0 {
				k.I("cp.async.wait_group", ptx.Imm(int64(1-n/4%2)))
				k.I("bar.sync", ptx.Imm(0))
			}
			k.I("ld.shared.b32", r, ptx.At(own, 4*n))
		}
		k.I("mad.wide.u32", out, i, ptx.Imm(64), p[2])
		for n, r := range v {
			k.I("st.global.b32", ptx.At(out, 4*n), r)
		}
	})
	for from, source := range quadPatterns {
		for to, destination := range quadPatterns {
			for _, size := range []func(l int) int{func(int) int { return 16 }, func(l int) int { return l / 5 % 2 * 16 },
				func(int) int { return 0 }} {
				in, data := make([]uint32, 96), make([]uint32, 1024)
				for l := range 32 {
					in[l], in[32+l], in[64+l] = uint32(16*source(l)), uint32(16*destination(l)%512), uint32(size(l))
				}
				for n := range data {
					data[n] = uint32(n * 1013)
				}
				run := func(e Engine) []uint32 {
					out := make([]uint32, 32*16)
					// The first block finds the memory that the second one copies in native code.
					require.NoError(t, RunKernelWith(Options{Engine: e, Workers: 1}, text, "k", [3]int{2, 1, 1}, [3]int{32, 1, 1},
						2048, in, data, out))
					return out
				}
				want := run(Interpreter)
				for _, e := range engines(t) {
					require.Equal(t, want, run(e), "%s: from %s to %s", e, from, to)
				}
			}
		}
	}
}
