package emu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// clocks stores the multiprocessor of each block, and the clocks at its begin and end.
const clocks = `.version 8.0
.target sm_80
.address_size 64
.visible .entry clocks(.param .u64 out)
{
    .reg .b32 %r<7>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mad.wide.u32 %rd1, %r1, 20, %rd1;
    mov.u32 %r2, %smid;
    mov.u32 %r3, %globaltimer_lo;
    mov.u32 %r4, %clock;
    mov.u32 %r5, %globaltimer_lo;
    mov.u32 %r6, %clock;
    st.global.u32 [%rd1], %r2;
    st.global.u32 [%rd1+4], %r3;
    st.global.u32 [%rd1+8], %r4;
    st.global.u32 [%rd1+12], %r5;
    st.global.u32 [%rd1+16], %r6;
    ret;
}
`

// TestClocks_MultiprocessorsCountByThemselves: two cycles a nanosecond of the shared clock, each multiprocessor from
// an origin of its own.
func TestClocks_MultiprocessorsCountByThemselves(t *testing.T) {
	const blocks = 40
	out := make([]uint32, 5*blocks)
	require.NoError(t, RunKernel(clocks, "clocks", [3]int{blocks, 1, 1}, [3]int{1, 1, 1}, 0, Out{out}))
	origins := map[uint32]uint32{} // by multiprocessor: its counter when the shared clock was 0
	for b := range blocks {
		sm, x := out[5*b], out[5*b+1:5*b+5]
		require.Less(t, sm, uint32(multiprocessors))
		require.GreaterOrEqual(t, int32(x[2]-x[0]), int32(0))
		require.GreaterOrEqual(t, int32(x[3]-x[1]), int32(0))
		origin := x[1] - cyclesPerNS*x[0]
		if _, ok := origins[sm]; !ok {
			origins[sm] = origin
		}
		const late = 2e8 // cycles, that another thread of the host may have had between the two clocks
		require.InDelta(t, 0, float64(int32(origin-origins[sm])), late)
	}
	require.Len(t, origins, multiprocessors)
	for a, x := range origins {
		for b, y := range origins {
			if a != b {
				require.Greater(t, max(int32(x-y), int32(y-x)), int32(4e8), "multiprocessors %d and %d", a, b)
			}
		}
	}
}

func TestClocks_OnlyMovReadsThem(t *testing.T) {
	for _, clock := range []string{"%globaltimer_lo", "%clock"} {
		err := RunKernel(`.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
    .reg .b32 %r<2>;
    add.s32 %r1, `+clock+`, 1;
    ret;
}
`, "k", [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0)
		require.ErrorContains(t, err, "can be moved to a register, and nothing else")
	}
}
