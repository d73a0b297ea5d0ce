package compile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestVisionFeedsPolicyOnTheDevice chains the two as a driver does, on a device with memory of its own, and compares with a
// policy whose history the host keeps: the same bits, without its copies.
func TestVisionFeedsPolicyOnTheDevice(t *testing.T) {
	v, frames := generated(t, "vision", "fp16", "sm_121")
	p, turns := generated(t, "policy", "fp16", "sm_121")
	d, err := emu.Open(emu.Options{Discrete: true})
	require.NoError(t, err)
	open := func(p *runtime.Program, opt runtime.SessionOptions) *runtime.Session {
		s, err := runtime.OpenBound(t.Context(), p, d, runtime.ModelOptions{}, opt)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	vision := open(v.Program, runtime.SessionOptions{})
	hidden, err := vision.At("hidden_state")
	require.NoError(t, err)
	benefit := open(p.Program, runtime.SessionOptions{Feeds: map[string]runtime.Binding{"features_buffer": hidden}})
	alone := open(p.Program, runtime.SessionOptions{})
	at := slice(t, v.Program.Outputs[0], "hidden_state")
	host := 0 // bytes that the chained policy takes from the host
	for _, q := range turns.Inputs {
		if q.Name != "features_buffer" {
			host += q.Type.Bytes()
		}
	}
	history := alone.Input("features_buffer")
	for seed := range uint64(4) {
		for _, q := range frames.Inputs {
			require.NoError(t, vision.Set(q.Name, q.Draw(seed).Dense()))
		}
		for _, q := range turns.Inputs {
			if q.Name == "features_buffer" {
				continue
			}
			require.NoError(t, benefit.Set(q.Name, q.Draw(seed).Dense()))
			require.NoError(t, alone.Set(q.Name, q.Draw(seed).Dense()))
		}
		require.NoError(t, vision.Run(t.Context()))
		row := vision.Output("outputs")[2*at.Start : 2*at.Stop]
		copy(history, history[len(row):])
		copy(history[len(history)-len(row):], row)
		require.NoError(t, alone.Run(t.Context()))
		was := d.Traffic()
		require.NoError(t, benefit.Run(t.Context()))
		now := d.Traffic()
		require.Equal(t, alone.Output("outputs"), benefit.Output("outputs"), "frame %d", seed)
		require.EqualValues(t, host, now.ToDevice-was.ToDevice)
		require.EqualValues(t, len(benefit.Output("outputs")), now.ToHost-was.ToHost)
	}
	kept, err := benefit.State("features_buffer")
	require.NoError(t, err)
	require.Equal(t, history, kept)
	require.NotEqual(t, make([]byte, len(kept)), kept)
}

func slice(t *testing.T, q runtime.Port, name string) runtime.Slice {
	t.Helper()
	for _, s := range q.Slices {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no slice %s", name)
	return runtime.Slice{}
}
