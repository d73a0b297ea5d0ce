package cost

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
)

// TestOccupancy: figures of the CUDA occupancy calculator for compute capability 9.0 (64 warps, 64 K registers, 228 KB).
func TestOccupancy(t *testing.T) {
	h200, err := target.OfDevice("h200")
	require.NoError(t, err)
	for _, c := range []struct {
		threads, shared, regs int
		blocks, warps         int
		by                    string
	}{
		{256, 0, 32, 8, 64, "warps"},
		{256, 0, 64, 4, 32, "registers"},
		{128, 0, 255, 2, 8, "registers"},
		{32, 0, 16, 32, 32, "blocks"},
		{128, 48 << 10, 32, 4, 16, "shared memory"},
		{128, 0, 0, 16, 64, "warps"},
		{1024, 227 << 10, 32, 1, 32, "shared memory"},
	} {
		o := OccupancyOf(h200, c.threads, c.shared, c.regs)
		require.Equal(t, []any{c.blocks, c.warps, c.by}, []any{o.Blocks, o.Warps, o.LimitedBy}, "%+v", c)
	}
}

// TestAPipelinedBlockWaitsForItsFirstChunk: what follows its arithmetic and what it starts with add up, where phases of
// different blocks overlap but for a share.
func TestAPipelinedBlockWaitsForItsFirstChunk(t *testing.T) {
	m := Of(target.Default())
	w := Work{Blocks: m.SMs, Warps: 8, Resident: 1, Products: []Products{{"f16", 1e9}}, Chunks: 10, Ahead: 2, Far: 1}
	got := m.Estimate(&w)
	require.InEpsilon(t, 2e9/91e6, got.Tensor, 1e-9)
	require.InEpsilon(t, 0.3+0.7+10*0.03, got.Latency, 1e-9)
	require.InEpsilon(t, 1.1*(got.Tensor+got.Latency)+m.LaunchUS, got.US, 1e-9)

	w.Chunks, w.Ahead, w.Trips = 0, 0, 1
	got = m.Estimate(&w)
	require.InEpsilon(t, 0.3+0.7, got.Latency, 1e-9)
	require.InEpsilon(t, got.Tensor+0.2*(got.Tensor+got.Latency)+m.LaunchUS, got.US, 1e-9)
	w.Counted = true
	require.InEpsilon(t, got.Tensor+m.LaunchUS, m.Estimate(&w).US, 1e-9)
}

// TestWavesAreWhole: a pipelined launch of one block too many takes a wave more; otherwise only the busiest
// multiprocessor's share counts.
func TestWavesAreWhole(t *testing.T) {
	m := Of(target.Default())
	at := func(blocks, chunks int) Time {
		return m.Estimate(&Work{Blocks: blocks, Warps: 8, Resident: 2, Products: []Products{{"f16", 1e6 * float64(blocks)}}, Chunks: chunks, Ahead: 1})
	}
	require.InEpsilon(t, at(4*m.SMs, 1).Tensor, at(2*m.SMs+1, 1).Tensor, 1e-9)
	require.InEpsilon(t, at(3*m.SMs, 0).Tensor, at(2*m.SMs+1, 0).Tensor, 1e-9)
	require.Equal(t, 2, at(2*m.SMs+1, 0).Waves)
}
