package codegen

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/runtime"
)

const kb = 1 << 10

// streamOf places constants contiguously from an offset of the blob on, each first read by the launch of its index.
func streamOf(offset int, bytes ...int) []weight {
	var out []weight
	end := 0
	for i, n := range bytes {
		end += alignUp(n)
		out = append(out, weight{at: &storage{bytes: n}, offset: offset, end: end, first: i})
		offset += alignUp(n)
	}
	return out
}

func TestARunEndsWhereTheBlobHasAGap(t *testing.T) {
	s := streamOf(512, 1000, 256, 5000) // in the stream at 0, 1024, 1280 up to 6400
	for _, c := range []struct {
		name          string
		from, bytes   int
		at, offset    int // constant, and within it
		stream, fetch int
	}{
		{"all, but what pads it", 0, 10000, 0, 0, 6400, 6280},
		{"a part of the first", 0, 700, 0, 0, 512, 512},
		{"from within, into the next", 512, 600, 0, 512, 512, 480},
		{"across constants", 512, 1000, 0, 512, 768, 768},
		{"the last", 1280, 1 << 20, 2, 0, 5120, 5000 &^ 15},
	} {
		r := run(s, c.from, c.bytes)
		require.Same(t, s[c.at].at, r.at.at, c.name)
		require.Equal(t, []int{c.offset, c.stream}, []int{r.at.offset, r.stream}, c.name)
		require.Equal(t, c.fetch&^15, r.bytes, c.name)
	}
	require.Zero(t, run(s, 6400, 100), "nothing is left")
	s[2].offset += 256
	require.Equal(t, 1280, run(s, 0, 10000).stream, "a gap")
	s[2].offset = 0
	require.Equal(t, 1280, run(s, 0, 10000).stream, "a constant at a lower offset, shared with another variant")
}

// planOf is a plan for launches of 10 µs each over a DRAM of 10 KB a µs.
func planOf(once bool, keeps int, bytes ...int) *prefetchPlanner {
	p := &prefetchPlanner{stream: streamOf(0, bytes...), once: once, keeps: keeps, perUS: 10 * kb, prefetchRate: 1}
	for range bytes {
		p.computes, p.limits = append(p.computes, 10), append(p.limits, 1<<30)
	}
	return p
}

func sizes(chosen []prefetch) (out []int) {
	for _, c := range chosen {
		out = append(out, c.stream/kb)
	}
	return out
}

// TestLaunchesAskForWhatComesMeanwhile: 100 KB a launch, less what it has to load itself.
func TestLaunchesAskForWhatComesMeanwhile(t *testing.T) {
	chosen, us := planOf(true, 1<<20, 20*kb, 100*kb, 100*kb, 100*kb).within(1 << 20)
	require.Equal(t, []int{80, 80, 80, 0}, sizes(chosen), "each loads 20 KB itself")
	require.InDelta(t, 40, us, 1e-9, "and all is there in time")

	// A launch that loads more than comes while it computes asks for nothing, and takes as long as its bytes.
	chosen, us = planOf(true, 1<<20, 300*kb, 100*kb, 0).within(1 << 20)
	require.Equal(t, []int{0, 0, 0}, sizes(chosen))
	require.InDelta(t, 30+10+10, us, 1e-9)

	p := planOf(true, 1<<20, 20*kb, 100*kb, 100*kb, 100*kb)
	p.backlog = 3
	chosen, us = p.within(1 << 20)
	require.Equal(t, []int{110, 100, 90, 0}, sizes(chosen), "30 KB more than comes while the first computes, 20 of them loaded before")
	require.InDelta(t, 40, us, 1e-9)

	p = planOf(true, 1<<20, 20*kb, 100*kb, 100*kb)
	p.prefetchRate = 0.5
	chosen, us = p.within(1 << 20)
	require.Equal(t, []int{40, 20, 0}, sizes(chosen), "half of what comes in the 8 µs that are left, then in the 4 after loads of 60 KB")
	require.InDelta(t, 30, us, 1e-9, "loads of 80 KB after them take 8 µs")

	p = planOf(true, 1<<20, 20*kb, 100*kb)
	p.limits[0] = 0
	chosen, _ = p.within(1 << 20)
	require.Equal(t, []int{0, 0}, sizes(chosen), "a copy asks for nothing")
}

// TestNoMoreIsAskedForThanL2Keeps: prefetched bytes that wait for their reader stay within the window. Where reading
// retains a line, prefetched lines survive only as long as later reads and prefetches fit.
func TestNoMoreIsAskedForThanL2Keeps(t *testing.T) {
	bytes := []int{0, 0, 0, 100 * kb, 100 * kb, 100 * kb, 100 * kb, 100 * kb}
	chosen, us := planOf(true, 200*kb, bytes...).within(200 * kb)
	require.Equal(t, []int{100, 100, 0, 100, 100, 100, 0, 0}, sizes(chosen))
	require.InDelta(t, 80, us, 1e-9)
	chosen, _ = planOf(true, 200*kb, bytes...).within(150 * kb)
	require.Equal(t, []int{100, 50, 0, 100, 100, 100, 50, 0}, sizes(chosen))

	// If reading retains lines: prefetches while the second hundred waits would evict it, since the first is read, and
	// so retained, after it.
	chosen, _ = planOf(false, 200*kb, bytes...).within(200 * kb)
	require.Equal(t, []int{100, 100, 0, 0, 100, 100, 100, 0}, sizes(chosen))
}

// TestPrefetch_ReadsWeightsAfterThePrefix: a prefix of one launch runs three times before each of two repetitions of
// the rest, which reads its own weights. The value that joins the prefix's slices is live from the first launch on.
func TestPrefetch_ReadsWeightsAfterThePrefix(t *testing.T) {
	of := func(i int, kind runtime.BufferKind, prefix int) *storage {
		return &storage{index: i, kind: kind, bytes: 1 << 20, prefixStride: prefix}
	}
	first, second, slice, join := of(0, runtime.ConstantBuffer, 0), of(1, runtime.ConstantBuffer, 0), of(2, runtime.ArenaBuffer, 0), of(3, runtime.ArenaBuffer, 300)
	reads := func(s ...*storage) (spans []span) {
		for _, s := range s {
			spans = append(spans, span{place{s, 0}, 300})
		}
		return spans
	}
	l := &list{repeats: 2, prefixLaunches: 2, prefixRepeats: 3, pending: []launch{{reads: reads(first), writes: reads(slice)}, {reads: reads(slice), writes: reads(join)}, {reads: reads(join, second)}}}
	require.Equal(t, life{0, 2}, livesOf(l.pending)[join])
	require.Equal(t, life{0, 1}, livesOf(l.pending)[slice])
	l.repeat()
	require.Len(t, l.pending, 14)
	require.Len(t, l.once(), 7)
	for i, want := range []int{0, 300, 600} {
		require.Equal(t, want, l.pending[7+2*i+1].writes[0].offset)
	}
	v := &runtime.Variant{Buffers: make([]runtime.Buffer, 4)}
	s := l.stream(v, livesOf(l.once()))
	require.Equal(t, []int{0, 6}, []int{s[0].first, s[1].first})
	require.Same(t, second, s[1].at)
}

// TestPrefetch_SlicesFitOneInstruction: a GPU cuts the size of a larger bulk prefetch. Slices cover the range all the
// same.
func TestPrefetch_SlicesFitOneInstruction(t *testing.T) {
	for _, blocks := range []int{1, 2, 7, 48, 1000} {
		l := &launch{spec: &kernel.Spec{Grid: [3]int{blocks, 1, 1}}}
		for _, bytes := range []int{bulkBytes, minPrefetch, 1 << 20, l.prefetchLimit() - 1, l.prefetchLimit()} {
			bytes = min(bytes, l.prefetchLimit())
			slice := sliceBytes(bytes, blocks)
			require.LessOrEqual(t, slice, ptx.MaxBulkPrefetch, "%d bytes by %d blocks", bytes, blocks)
			require.GreaterOrEqual(t, slice*blocks, bytes)
			require.Zero(t, slice%lineBytes)
		}
	}
	p := planOf(true, 64<<20, 0, 8<<20, 8<<20)
	p.computes[0], p.perUS = 1000, 1<<20
	p.limits[0] = 3 << 20
	chosen, _ := p.within(16 << 20)
	require.Equal(t, 3<<20, chosen[0].bytes, "no more than its blocks can ask for")
	require.Zero(t, (&launch{}).prefetchLimit(), "a copy")
}
