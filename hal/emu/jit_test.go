package emu

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu/internal/jit"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/ptxrand"
)

// engines are those of this machine that use native code.
func engines(t testing.TB) []Engine {
	switch jit.Detect() {
	case jit.AVX512:
		return []Engine{JIT, AVX2, Interpreter}
	case jit.AVX2, jit.NEON:
		return []Engine{JIT, Interpreter}
	}
	t.Skip("no native code on this machine")
	return nil
}

// instructionKernel loads operands of every class from memory by lane, executes op (under a guard, if there is one) and
// stores the results.
func instructionKernel(op string, guard string) (text string, skip bool) {
	def := ptx.Lookup(op)
	switch def.Kind {
	case ptx.KindInt, ptx.KindFloat, ptx.KindSpecial, ptx.KindConvert, ptx.KindMove:
	case ptx.KindMMA:
		if guard != "" {
			return "", true
		}
	case ptx.KindWarp:
		if guard != "" {
			return "", true
		}
	default:
		return "", true
	}
	return build("sm_121a", 0, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i := threadID(k)
		src, dst := k.Reg(ptx.B64), k.Reg(ptx.B64)
		k.I("mad.wide.u32", src, i, ptx.Imm(256), p[0])
		k.I("mad.wide.u32", dst, i, ptx.Imm(256), p[1])
		at := 0
		fresh := func(c ptx.Class) ptx.Reg {
			at += 8
			return input(k, c, src, at-8)
		}
		var operands []ptx.Operand
		var results []ptx.Reg
		for n, a := range def.Args {
			regs := func(count int) ptx.Operand {
				var v []ptx.Reg
				for range max(count, 1) {
					v = append(v, fresh(ptx.ClassOf(a.Type)))
				}
				if a.Kind == ptx.ArgDst || a.Kind == ptx.ArgPair {
					results = append(results, v...)
				}
				if count == 0 {
					return v[0]
				}
				return ptx.V(v...)
			}
			switch {
			case a.Kind == ptx.ArgImm:
				operands = append(operands, ptx.Imm(0x5a+n))
			case def.Kind == ptx.KindMMA && a.Type == "u16": // byte and thread that select scales
				operands = append(operands, ptx.Vec{ptx.Imm(0), ptx.Imm(1)})
			case a.Kind == ptx.ArgPair:
				d, q := fresh(ptx.B32), fresh(ptx.Pred)
				results = append(results, d, q)
				operands = append(operands, ptx.Pair{D: d, P: q})
			case def.Kind == ptx.KindWarp && n == len(def.Args)-1:
				operands = append(operands, ptx.Imm(-1))
			case def.Does == ptx.Shuffle && n == len(def.Args)-2:
				operands = append(operands, ptx.Imm(0x1f))
			default:
				operands = append(operands, regs(a.Count))
			}
		}
		switch guard {
		case "":
			k.I(op, operands...)
		case "some":
			k.If(fresh(ptx.Pred), op, operands...)
		case "none":
			q := k.Reg(ptx.Pred)
			k.I("setp.eq.s32", q, i, ptx.Imm(-1))
			k.If(q, op, operands...)
		}
		for n, r := range results {
			output(k, r, dst, 8*n)
		}
	}), false
}

// input loads 8 bytes of a thread's memory into a fresh register of a class.
func input(k *ptx.Kernel, c ptx.Class, base ptx.Reg, off int) ptx.Reg {
	r := k.Reg(c)
	switch c {
	case ptx.B64:
		k.I("ld.global.b64", r, ptx.At(base, off))
	case ptx.F64:
		k.I("ld.global.f64", r, ptx.At(base, off))
	case ptx.F32:
		k.I("ld.global.f32", r, ptx.At(base, off))
	case ptx.B32:
		k.I("ld.global.u32", r, ptx.At(base, off))
	case ptx.B16:
		k.I("ld.global.b16", r, ptx.At(base, off))
	case ptx.B8: // only conversions read and write it
		v := k.Reg(ptx.F32)
		k.I("ld.global.f32", v, ptx.At(base, off))
		k.I("cvt.rn.satfinite.e2m1x2.f32", r, v, v)
	case ptx.Pred:
		v := k.Reg(ptx.B32)
		k.I("ld.global.u32", v, ptx.At(base, off))
		k.I("and.b32", v, v, ptx.Imm(1))
		k.I("setp.eq.u32", r, v, ptx.Imm(1))
	}
	return r
}

// output stores a register.
func output(k *ptx.Kernel, r ptx.Reg, base ptx.Reg, off int) {
	switch r.Class {
	case ptx.B64:
		k.I("st.global.b64", ptx.At(base, off), r)
	case ptx.F64:
		k.I("st.global.f64", ptx.At(base, off), r)
	case ptx.F32:
		k.I("st.global.f32", ptx.At(base, off), r)
	case ptx.B32:
		k.I("st.global.b32", ptx.At(base, off), r)
	case ptx.B16:
		k.I("st.global.b16", ptx.At(base, off), r)
	case ptx.B8:
		v := k.Reg(ptx.B32)
		k.I("cvt.u32.u8", v, r)
		k.I("st.global.b32", ptx.At(base, off), v)
	case ptx.Pred:
		v := k.Reg(ptx.B32)
		k.I("selp.b32", v, ptx.Imm(7), ptx.Imm(9), r)
		k.I("st.global.b32", ptx.At(base, off), v)
	}
}

// onEngine runs a kernel of 8-byte words in, words out.
func onEngine(e Engine, text string, grid, block, shared int, in []uint64, words int) ([]uint64, error) {
	out := make([]uint64, words)
	err := RunKernelWith(Options{Engine: e, Workers: 1, StepLimit: 1 << 24}, text, "k", [3]int{grid, 1, 1}, [3]int{block, 1, 1}, shared, in, out)
	return out, err
}

// TestEveryInstructionIsTheInterpreters holds each instruction of the table, on many operands, with and without a
// guard, for whole warps and for warps that lack lanes, against the interpreter.
func TestEveryInstructionIsTheInterpreters(t *testing.T) {
	const blocks = 8
	for _, op := range ptx.Opcodes() {
		t.Run(op, func(t *testing.T) {
			for _, guard := range []string{"", "some", "none"} {
				text, skip := instructionKernel(op, guard)
				if skip {
					continue
				}
				for _, threads := range []int{64, 45} {
					if threads == 45 && strings.Contains(op, ".sync") {
						continue
					}
					r := rand.New(rand.NewPCG(1, uint64(threads)))
					in := make([]uint64, blocks*64*32)
					for i := range in {
						if i/(32*64)%2 == 0 {
							in[i] = ptxrand.Bits(r)
						} else { // two ordinary halves, or an ordinary f32
							in[i] = H(r.NormFloat64())<<16 | H(r.NormFloat64())
						}
					}
					want, err := onEngine(Specification, text, blocks, threads, 0, in, len(in))
					require.NoError(t, err)
					for _, e := range engines(t) {
						got, err := onEngine(e, text, blocks, threads, 0, in, len(in))
						require.NoError(t, err)
						for i := range want {
							if want[i] != got[i] {
								t.Fatalf("%s, guard %q, %d threads: thread %d, word %d: %#x, the interpreter's %#x; operands %#x", e, guard, threads,
									i/32, i%32, got[i], want[i], in[i/32*32:i/32*32+8])
							}
						}
					}
				}
			}
		})
	}
}

// TestCodeIsNeverWritableAndExecutable looks at this process's mappings while native code is loaded.
func TestCodeIsNeverWritableAndExecutable(t *testing.T) {
	engines(t)
	ctx := context.Background()
	d, err := Open(Options{Engine: JIT})
	require.NoError(t, err)
	m, err := d.Load(ctx, hal.Image{Name: "k", PTX: loopLike()})
	require.NoError(t, err)
	code := d.engine.compile(m.(*module).programs["k"])
	require.NotNil(t, code)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	executable := 0
	for _, line := range strings.Split(string(maps), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.Contains(f[1], "x") {
			continue
		}
		require.NotContains(t, f[1], "w", line)
		if len(f) < 6 {
			executable++
		}
	}
	require.Positive(t, executable, "the code is mapped")
	require.Empty(t, code.Left)
	runtime.KeepAlive(m)
}

// TestEnginesFindTheSameViolations: what native code cannot do, it leaves to the interpreter, message and all.
func TestEnginesFindTheSameViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(k *ptx.Kernel, p []ptx.Reg)
	}{
		{"a load past the end", func(k *ptx.Kernel, p []ptx.Reg) {
			k.I("ld.global.f32", k.Reg(ptx.F32), ptx.At(element(k, p[0], threadID(k)), 4000))
		}},
		{"a misaligned load", func(k *ptx.Kernel, p []ptx.Reg) {
			v := k.RegVec(ptx.F32, 4)
			k.I("ld.global.v4.f32", ptx.V(v...), ptx.At(element(k, p[0], threadID(k)), 0))
		}},
		{"a misaligned vector among smaller ones", func(k *ptx.Kernel, p []ptx.Reg) {
			warp, odd, sum := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
			k.I("shr.u32", warp, threadID(k), ptx.Imm(5)) // the second one's vectors of four words are misaligned
			k.I("and.b32", odd, threadID(k), ptx.Imm(1))
			k.I("mov.u32", sum, ptx.Imm(1))
			base, other := sharedAt(k, warp, 8), sharedAt(k, odd, 8)
			add := func(words, offset int) {
				v := k.RegVec(ptx.B32, words)
				k.I(fmt.Sprintf("ld.shared.v%d.b32", words), ptx.V(v...), ptx.At(base, offset))
				for _, r := range v {
					k.I("mad.lo.s32", sum, sum, ptx.Imm(3), r)
				}
			}
			add(4, 256)
			base = other
			add(2, 512)
			add(2, 520)
		}},
		{"a store past shared memory", func(k *ptx.Kernel, p []ptx.Reg) {
			k.I("st.shared.b32", ptx.At(threadID(k), 1020), threadID(k))
		}},
		{"a matrix outside shared memory", func(k *ptx.Kernel, p []ptx.Reg) {
			k.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(k.RegVec(ptx.B32, 4)...), ptx.At(threadID(k), 0))
		}},
		{"a barrier that half a warp reaches", func(k *ptx.Kernel, p []ptx.Reg) {
			q := k.Reg(ptx.Pred)
			k.I("setp.lt.u32", q, threadID(k), ptx.Imm(16))
			k.If(q, "bar.sync", ptx.Imm(0))
		}},
		{"an endless loop", func(k *ptx.Kernel, p []ptx.Reg) {
			top := k.NewLabel("top")
			i := threadID(k)
			k.Place(top)
			k.I("add.u32", i, i, ptx.Imm(1))
			k.I("bra", top)
		}},
	} {
		text := build("sm_80", 64, 2, c.body)
		in := make([]uint64, 512)
		_, want := onEngine(Specification, text, 1, 64, 1024, in, 16)
		require.Error(t, want, c.name)
		for _, e := range engines(t) {
			_, got := onEngine(e, text, 1, 64, 1024, in, 16)
			var v, w *Violation
			require.ErrorAs(t, want, &w, c.name)
			require.ErrorAs(t, got, &v, c.name)
			require.Equal(t, w.Rule, v.Rule, c.name)
			if w.Rule != StepLimit {
				require.Equal(t, want.Error(), got.Error(), c.name)
			}
		}
	}
}

// TestDependentInstructionsOnFewRegisters runs random instructions, each of which reads what the last ones have written and writes
// over it: in whole and in guarded lanes, with loads and stores between, of numbers that are often infinite or NaN.
func TestDependentInstructionsOnFewRegisters(t *testing.T) { dependentInstructions(t, 60, 3, 40, 5) }

// TestDependentInstructionsOnManyRegisters does so with more registers than the processor has, and seldom with a guard.
func TestDependentInstructionsOnManyRegisters(t *testing.T) {
	dependentInstructions(t, 20, 24, 400, 100)
}

// dependentInstructions checks random kernels of so many registers of two classes and so many instructions, one of guarded of them
// with a guard, against the specification.
func dependentInstructions(t *testing.T, seeds uint64, registers, instructions, guarded int) {
	floats := map[string]int{"add.rn.f32": 2, "sub.rn.f32": 2, "mul.rn.f32": 2, "fma.rn.f32": 3, "max.f32": 2, "min.NaN.f32": 2, "sqrt.rn.f32": 1,
		"ex2.approx.f32": 1, "neg.f32": 1, "abs.f32": 1, "mov.f32": 1}
	ints := map[string]int{"add.u32": 2, "sub.u32": 2, "xor.b32": 2, "mad.lo.u32": 3, "div.u32": 2, "rem.u32": 2, "not.b32": 1, "mov.u32": 1}
	const threads = 64
	words := registers + 5
	for seed := range seeds {
		r := rand.New(rand.NewPCG(11, seed))
		text := build("sm_80", 0, 2, func(k *ptx.Kernel, p []ptx.Reg) {
			i := threadID(k)
			src, dst := k.Reg(ptx.B64), k.Reg(ptx.B64)
			k.I("mad.wide.u32", src, i, ptx.Imm(int64(8*words)), p[0])
			k.I("mad.wide.u32", dst, i, ptx.Imm(int64(8*words)), p[1])
			regs := map[ptx.Class][]ptx.Reg{}
			for n := range registers {
				regs[ptx.F32] = append(regs[ptx.F32], input(k, ptx.F32, src, 8*n))
				regs[ptx.B32] = append(regs[ptx.B32], input(k, ptx.B32, src, 8*n+4))
			}
			guard := input(k, ptx.Pred, src, 4)
			var bases []ptx.Reg // of lanes that are neighbours, alike by fours, and neither
			for _, f := range []func(at, i ptx.Reg){
				func(at, i ptx.Reg) { k.I("mov.b32", at, i) },
				func(at, i ptx.Reg) { k.I("shr.u32", at, i, ptx.Imm(2)) },
				func(at, i ptx.Reg) { k.I("mul.lo.s32", at, i, ptx.Imm(5)); k.I("and.b32", at, at, ptx.Imm(63)) },
			} {
				at := k.Reg(ptx.B32)
				f(at, tidX(k))
				bases = append(bases, sharedAt(k, at, 16))
			}
			for n := range 4 {
				k.I("st.shared.f32", ptx.At(bases[0], 4*n), regs[ptx.F32][n%3])
			}
			k.I("bar.sync", ptx.Imm(0))
			for range instructions {
				class, ops := ptx.F32, floats
				if r.IntN(2) == 0 {
					class, ops = ptx.B32, ints
				}
				any := func() ptx.Reg { return regs[class][r.IntN(registers)] }
				switch r.IntN(12) {
				case 2:
					to, words := ptx.Vec{}, 2+2*r.IntN(1+min(1, registers/4))
					for _, n := range r.Perm(registers)[:words] {
						to = append(to, regs[class][n])
					}
					op := fmt.Sprintf("ld.shared.v%d.%s", words, map[ptx.Class]string{ptx.F32: "f32", ptx.B32: "b32"}[class])
					at := bases[r.IntN(len(bases))]
					if r.IntN(2) == 0 {
						moved := k.Reg(ptx.B32)
						k.I("add.s32", moved, at, ptx.Imm(int64(16*r.IntN(4))))
						at = moved
					}
					k.I(op, to, ptx.At(at, 4*words*r.IntN(4)))
					continue
				case 0:
					k.I(map[ptx.Class]string{ptx.F32: "ld.global.f32", ptx.B32: "ld.global.u32"}[class], any(), ptx.At(src, 8*r.IntN(words)))
					continue
				case 1:
					output(k, any(), dst, 8*r.IntN(words))
					continue
				}
				names := slices.Sorted(maps.Keys(ops))
				op := names[r.IntN(len(names))]
				operands := []ptx.Operand{any()}
				for range ops[op] {
					operands = append(operands, any())
				}
				if r.IntN(guarded) == 0 {
					k.If(guard, op, operands...)
				} else {
					k.I(op, operands...)
				}
			}
			for n := range registers {
				output(k, regs[ptx.F32][n], dst, 8*n)
				output(k, regs[ptx.B32][n], dst, 8*n+4)
			}
		})
		in := make([]uint64, threads*words)
		for i := range in {
			special := []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, -1}
			in[i] = F(r.NormFloat64()) | F(r.NormFloat64())<<32
			if r.IntN(3) == 0 {
				in[i] = F(special[r.IntN(len(special))]) | uint64(r.Uint32())<<32
			}
		}
		for _, count := range []int{threads, 45} {
			want, err := onEngine(Specification, text, 1, count, 2048, in, len(in))
			require.NoError(t, err)
			for _, e := range engines(t) {
				got, err := onEngine(e, text, 1, count, 2048, in, len(in))
				require.NoError(t, err)
				require.Equal(t, want, got, "%s, seed %d, %d threads:\n%s", e, seed, count, text)
			}
		}
	}
}
