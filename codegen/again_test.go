package codegen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestAddAgain_RunsAnEntryTimes: states carry over from one time to the next, copies included, and hazards order
// them. All checks of the CPU device are on.
func TestAddAgain_RunsAnEntryTimes(t *testing.T) {
	const times, n = 3, 75
	weights := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{repeating(t, 1)}, target.Default(), families.New(nil), weights)
	require.NoError(t, err)
	p := &runtime.Program{
		Format: runtime.FormatVersion, Model: "again", Variants: []runtime.Variant{r.Variant}, Weights: weights.Bytes(),
		States: []runtime.State{{Input: "count", Output: "next_count"}, {Input: "last", Output: "next_last"}},
	}
	for _, name := range []string{"x", "count", "last"} {
		p.Inputs = append(p.Inputs, runtime.Port{Name: name, DType: "f32", Shape: []int{n}})
	}
	for _, name := range []string{"y", "late", "next_count", "next_last"} {
		p.Outputs = append(p.Outputs, runtime.Port{Name: name, DType: "f32", Shape: []int{n}})
	}
	v := &p.Variants[0]
	require.NoError(t, v.AddAgain(p, "thrice", "run", times))
	require.Len(t, v.Entry("thrice").Launches, times*len(v.Entry("run").Launches))
	require.NoError(t, p.Validate())
	device, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer device.Close()
	var got [2][]float32
	for i := range got {
		s, err := runtime.Open(t.Context(), p, device, runtime.ModelOptions{})
		require.NoError(t, err)
		defer s.Close()
		x := runtime.View[float32](s.Input("x"))
		for k := range x {
			x[k] = float32(k)
		}
		if i == 0 {
			for range times {
				require.NoError(t, s.Run(t.Context()))
			}
		} else {
			require.NoError(t, s.RunEntry(t.Context(), "thrice"))
		}
		for _, name := range []string{"y", "late", "next_count", "next_last"} {
			got[i] = append(got[i], runtime.View[float32](s.Output(name))...)
		}
	}
	require.Equal(t, got[0], got[1])
	require.Equal(t, float32(times*(n-1)), got[0][2*n+n-1], "the count")

	require.EqualError(t, v.AddAgain(p, "run", "thrice", 2), `there is an entry "run" already`)
	require.EqualError(t, v.AddAgain(p, "more", "step", 2), `there is no entry "step" to run again as "more"`)
	require.EqualError(t, v.AddAgain(p, "more", "run", 0), `entry "more" is to run entry "run" 0 times, want once at least`)
	p.States[1].Delay = 4
	require.EqualError(t, v.AddAgain(p, "more", "run", 2), `entry "more" cannot run entry "run" 2 times: state "last" comes back 4 runs later`)
}
