package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspect_CountsLoadsBeforeTheWait(t *testing.T) {
	require.Equal(t, map[string]int{"a": 2, "c": 0}, earlyLoads(`.visible .entry a(.param .u64 p) { ld.param.u64 %rd0, [p]; ld.global.b32 %r0, [%rd0];
	cp.async.cg.shared.global [%r1], [%rd0], 16; griddepcontrol.wait; ld.global.b32 %r1, [%rd0]; }
.visible .entry b() { ld.global.b32 %r0, [%rd0]; ret; }
.visible .entry c() { griddepcontrol.wait; ld.global.b32 %r0, [%rd0]; }`))
	require.Equal(t, map[string]int{"a": 1, "b": -1}, acquired(`	.section	.text.a,"ax"
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 LDG.E R0, desc[UR6][R10.64] ;
        /*0020*/                   ACQBULK ;
        /*0030*/                   LDG.E.CONSTANT R2, desc[UR6][R10.64] ;
	.section	.text.b,"ax"
        /*0000*/                   LDG.E R0, desc[UR6][R10.64] ;`))
}
