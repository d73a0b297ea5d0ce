package emu

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// TestUndefinedSelectors: what scale_vec::4X leaves undefined is a violation.
func TestUndefinedSelectors(t *testing.T) {
	for _, c := range []struct {
		sel [4]int
		bad bool
	}{
		{[4]int{0, 0, 0, 0}, false}, {[4]int{0, 1, 0, 3}, false},
		{[4]int{1, 0, 0, 0}, true}, {[4]int{0, 2, 0, 0}, true}, {[4]int{0, 0, 2, 0}, true}, {[4]int{0, 0, 0, 4}, true},
	} {
		t.Run(fmt.Sprint(c.sel), func(t *testing.T) {
			m := ptx.NewModule("sm_121a")
			k := m.NewKernel("k", 32)
			zero := k.RegVec(ptx.B32, 8)
			for _, r := range zero {
				k.I("mov.b32", r, ptx.Imm(0))
			}
			acc := k.RegVec(ptx.F32, 4)
			for _, r := range acc {
				k.I("mov.f32", r, ptx.FImm(0))
			}
			k.I("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
				ptx.V(acc...), ptx.V(zero[:4]...), ptx.V(zero[4:6]...), ptx.V(acc...),
				ptx.V(zero[6]), ptx.Vec{ptx.Imm(c.sel[0]), ptx.Imm(c.sel[1])}, ptx.V(zero[7]), ptx.Vec{ptx.Imm(c.sel[2]), ptx.Imm(c.sel[3])})
			k.I("ret")
			err := RunKernel(m.String(), "k", [3]int{1, 1, 1}, [3]int{32, 1, 1}, 0)
			if !c.bad {
				require.NoError(t, err)
				return
			}
			var v *Violation
			require.True(t, errors.As(err, &v))
			require.Equal(t, ScaleSelector, v.Rule)
		})
	}
}
