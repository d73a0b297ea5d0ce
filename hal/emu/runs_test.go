package emu

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// sharedLoads fills 4 KB of shared memory and, in the threads whose entry of a second input is 0, loads vectors from
// addresses that are computed from a third: three vectors from each of two bases, which instructions that use the
// first vectors separate. Sums of what was loaded are the output.
func sharedLoads(words int) string {
	return build("sm_80", 32, 3, func(k *ptx.Kernel, p []ptx.Reg) {
		i, off, out, off2, sum := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
		fill := sharedAt(k, i, 128)
		for n := range 32 {
			v := k.Reg(ptx.B32)
			k.I("mad.lo.s32", v, i, ptx.Imm(977), ptx.Imm(int64(31*n)))
			k.I("st.shared.b32", ptx.At(fill, 4*n), v)
		}
		k.I("bar.sync", ptx.Imm(0))
		k.I("ld.global.b32", off, ptx.At(element(k, p[0], i), 0))
		k.I("ld.global.b32", out, ptx.At(element(k, p[1], i), 0))
		zero := k.Reg(ptx.B32)
		k.I("mov.u32", zero, ptx.Special("%ctaid.x"))
		k.I("mov.u32", sum, ptx.Imm(1))
		sits, end, big, odd := k.Reg(ptx.Pred), k.NewLabel("end"), k.Reg(ptx.Pred), k.Reg(ptx.B32)
		k.I("and.b32", odd, i, ptx.Imm(1))
		k.I("setp.eq.u32", big, odd, ptx.Imm(1))
		k.I("setp.ne.u32", sits, out, ptx.Imm(0))
		k.If(sits, "bra", end)
		k.I("mad.lo.s32", off2, off, ptx.Imm(1), zero)
		for n, at := range []ptx.Reg{sharedAt(k, off, 1), sharedAt(k, off2, 1)} {
			k.I("xor.b32", at, at, zero)
			for load := range 3 - n*2 {
				v := k.RegVec(ptx.B32, words)
				k.I(fmt.Sprintf("ld.shared.v%d.b32", words), ptx.V(v...), ptx.At(at, 1024+256*load))
				for _, r := range v {
					k.I("mad.lo.s32", sum, sum, ptx.Imm(1013), r)
				}
			}
			// What follows the run must see its rows and predicates, of the running lanes alone.
			k.I("setp.gt.s32", big, sum, ptx.Imm(0))
			k.I("selp.b32", sum, sum, at, big)
		}
		k.Place(end)
		k.I("selp.b32", off, off, i, big)
		k.I("add.u32", sum, sum, off)
		k.I("st.global.b32", ptx.At(element(k, p[2], i), 0), sum)
	})
}

// TestRuns_LoadWhatTheInterpreterDoes loads at addresses that lie together by fours and eights, or don't, in whole
// warps and in warps that lack lanes, whose addresses may be any.
func TestRuns_LoadWhatTheInterpreterDoes(t *testing.T) {
	patterns := map[string]func(lane int) int{
		"octets":               func(l int) int { return l % 8 },
		"octets but for one":   func(l int) int { return l%8 + l/27*(31-l)/4 },
		"alike in octets":      func(l int) int { return 5 * (l / 8) },
		"alike, one elsewhere": func(l int) int { return 5*(l/8) + l/31 },
	}
	for name, p := range quadPatterns {
		patterns[name] = p
	}
	running := map[string]func(lane int) bool{
		"all": func(int) bool { return true }, "odd": func(l int) bool { return l%2 == 1 },
		"first": func(l int) bool { return l < 20 }, "last": func(l int) bool { return l > 20 },
		"two": func(l int) bool { return l == 9 || l == 25 },
	}
	for _, words := range []int{2, 4} {
		text := sharedLoads(words)
		for name, pattern := range patterns {
			for which, runs := range running {
				for _, outside := range []string{"like others", "anywhere", "one that runs, too"} {
					offsets, sit := make([]uint32, 32), make([]uint32, 32)
					for l := range 32 {
						offsets[l] = uint32(4 * words * pattern(l))
						if !runs(l) {
							sit[l] = 1
						}
						if outside != "like others" && (!runs(l) || l == 25 && outside != "anywhere") {
							offsets[l] = uint32(l) * 0x9e3779b1 &^ 15
						}
					}
					run := func(e Engine) string {
						sums := make([]uint32, 32)
						err := RunKernelWith(Options{Engine: e, Workers: 1}, text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 4096,
							offsets, sit, sums)
						if err != nil {
							return err.Error()
						}
						return fmt.Sprint(sums)
					}
					want := run(Specification)
					for _, e := range engines(t) {
						require.Equal(t, want, run(e), "%s: v%d, %s, lanes %s, others %s", e, words, name, which, outside)
					}
				}
			}
		}
	}
}

// TestDivision_ByConstantsIsExact divides numbers around multiples of a constant, and the greatest.
func TestDivision_ByConstantsIsExact(t *testing.T) {
	divisors := []uint32{0, 1, 2, 3, 7, 10, 14, 49, 641, 65535, 65537, 0x55555555, 1<<31 - 1, 1 << 31, math.MaxUint32 - 1,
		math.MaxUint32}
	for _, d := range divisors {
		text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i, a, quotient, rest := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
			k.I("ld.global.b32", a, ptx.At(element(k, p[0], i), 0))
			k.I("div.u32", quotient, a, ptx.Imm(int64(d)))
			k.I("rem.u32", rest, a, ptx.Imm(int64(d)))
			k.I("st.global.b32", ptx.At(element(k, p[1], i), 0), quotient)
			k.I("st.global.b32", ptx.At(element(k, p[1], i), 128), rest)
		})
		var in [32]uint32
		for l := range in {
			switch {
			case l < 6:
				in[l] = math.MaxUint32 - uint32(l)
			case l == 12:
				in[l] = d
			case l < 12 || d == 0:
				in[l] = uint32(l - 6)
			default: // around the greatest multiples, and some others
				most := math.MaxUint32 / d
				in[l] = max(most-uint32(l/3-4)*(most/5), 1)*d + uint32(l%3) - 1
			}
		}
		for _, e := range engines(t) {
			out := make([]uint32, 64)
			require.NoError(t, RunKernelWith(Options{Engine: e}, text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, in[:], out))
			for l, a := range in {
				quotient, rest := uint32(math.MaxUint32), uint32(math.MaxUint32)
				if d != 0 {
					quotient, rest = a/d, a%d
				}
				require.Equal(t, [2]uint32{quotient, rest}, [2]uint32{out[l], out[32+l]}, "%s: %d by %d", e, a, d)
			}
		}
	}
}

// TestShifts_ByConstants shifts by what is known when code is emitted, to the width and beyond.
func TestShifts_ByConstants(t *testing.T) {
	for _, by := range []uint32{0, 1, 7, 31, 32, 33, 64, 127, 128, 255, 256, 257, 1 << 31, math.MaxUint32} {
		text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i, a, d := tidX(k), k.Reg(ptx.B32), k.Reg(ptx.B32)
			k.I("ld.global.b32", a, ptx.At(element(k, p[0], i), 0))
			for n, op := range []string{"shl.b32", "shr.u32", "shr.s32"} {
				k.I(op, d, a, ptx.Imm(int64(by)))
				k.I("st.global.b32", ptx.At(element(k, p[1], i), 128*n), d)
			}
		})
		var in [32]uint32
		for l := range in {
			in[l] = 0x9e3779b9 * uint32(l)
		}
		for _, e := range engines(t) {
			out := make([]uint32, 96)
			require.NoError(t, RunKernelWith(Options{Engine: e}, text, "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, in[:], out))
			for l, a := range in {
				want := [3]uint32{a << by, a >> by, uint32(int32(a) >> by)}
				require.Equal(t, want, [3]uint32{out[l], out[32+l], out[64+l]}, "%s: %#x by %d", e, a, by)
			}
		}
	}
}
