package emu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// TestProducts_InSequencesAreTheInterpreters runs random sequences of mma on a few operands, of which more are met than
// native code keeps: of ordinary numbers, subnormal ones, infinities and NaN.
func TestProducts_InSequencesAreTheInterpreters(t *testing.T) {
	for _, op := range []string{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"} {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(5, seed))
			const words, sums = 12, 3
			text := build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
				src, dst := k.Reg(ptx.B64), k.Reg(ptx.B64)
				k.I("mad.wide.u32", src, tidX(k), ptx.Imm(8*words), p[0])
				k.I("mad.wide.u32", dst, tidX(k), ptx.Imm(8*words), p[1])
				var as, bs [][]ptx.Reg
				for n := range 3 {
					var a []ptx.Reg
					for i := range 4 {
						a = append(a, input(k, ptx.B32, src, 8*((4*n+i)%words)))
					}
					as = append(as, a)
				}
				for n := range 11 {
					b := []ptx.Reg{input(k, ptx.B32, src, 8*n+4), input(k, ptx.B32, src, 8*(n+1)+4)}
					bs = append(bs, b)
				}
				c := k.RegVec(ptx.F32, 4*sums)
				for i, f := range c {
					k.I("mov.f32", f, ptx.FImm(float32(i)))
				}
				a := as[0]
				for range 60 {
					if r.IntN(3) == 0 {
						a = as[r.IntN(len(as))]
					}
					n := r.IntN(sums)
					acc := ptx.V(c[4*n : 4*n+4]...)
					k.I(op, acc, ptx.V(a...), ptx.V(bs[r.IntN(len(bs))]...), acc)
				}
				for i, f := range c {
					output(k, f, dst, 8*i)
				}
			})
			in := make([]uint64, 32*words)
			for i := range in {
				half := func() uint64 {
					special := []float64{math.Inf(1), math.NaN(), math.Ldexp(1, -20), 0}
					if seed%2 == 1 && r.IntN(400) == 0 {
						return H(special[r.IntN(len(special))])
					}
					return H(r.NormFloat64())
				}
				in[i] = half() | half()<<16 | half()<<32 | half()<<48
			}
			want, err := onEngine(Specification, text, 1, 32, 0, in, len(in))
			require.NoError(t, err)
			for _, e := range engines(t) {
				got, err := onEngine(e, text, 1, 32, 0, in, len(in))
				require.NoError(t, err)
				require.Equal(t, want, got, "%s, %s, seed %d", e, op, seed)
			}
		}
	}
}
