package profile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// entry is a launch list over one arena buffer, one of constants and one input, in blocks: each launch reads and writes ranges of them.
func entryOf(launches ...runtime.Launch) (*runtime.Variant, []runtime.Launch) {
	return &runtime.Variant{Buffers: []runtime.Buffer{{Kind: runtime.ArenaBuffer, Bytes: 64 * blockBytes}, {Kind: runtime.ConstantBuffer, Bytes: 64 * blockBytes},
		{Kind: runtime.InputBuffer, Bytes: 64 * blockBytes}}}, launches
}

func blocks(buffer, from, n int) runtime.Access {
	return runtime.Access{Buffer: buffer, Offset: from * blockBytes, Bytes: n * blockBytes}
}

// machineKeeping is a machine whose L2 keeps so many bytes.
func machineKeeping(bytes int) *cost.Machine {
	m := cost.Of(&target.Target{L2Bytes: bytes})
	m.KeptShare = 1
	return m
}

// TestCache_FetchesOnce: everything that a run touches, and its constants again after other models. The host
// writes inputs before each run, so they are never cached.
func TestCache_FetchesOnce(t *testing.T) {
	const arena, constant, input = 0, 1, 2
	a := func(x ...runtime.Access) []runtime.Access { return x }
	v, list := entryOf(runtime.Launch{Reads: a(blocks(input, 0, 1), blocks(constant, 0, 1)), Writes: a(blocks(arena, 0, 2))},
		runtime.Launch{Reads: a(blocks(arena, 0, 2), blocks(constant, 1, 1)), Writes: a(blocks(arena, 2, 2))})
	warm, cold := misses(&followed{v: v, launches: list}, machineKeeping(7*blockBytes))
	require.Equal(t, []missing{{reads: 1}, {}}, warm)
	require.Equal(t, []float64{1, 1}, []float64{cold[0].constants, cold[1].constants})
	warm, _ = misses(&followed{v: v, launches: list}, machineKeeping(6*blockBytes))
	require.Positive(t, warm[0].constants, "a block too many")
}

// TestThereIsNoCliff: the part of constants that are fetched again grows evenly with their number, from what L2 keeps to 5/3 of it.
func TestThereIsNoCliff(t *testing.T) {
	for n, want := range map[float64]float64{0.5: 0, 1: 0, 1.1: 0.15, 1.2: 0.3, 1.5: 0.75, 1.7: 1, 4: 1} {
		v, list := entryOf(runtime.Launch{Reads: []runtime.Access{blocks(1, 0, int(1000*n))}})
		warm, cold := misses(&followed{v: v, launches: list}, machineKeeping(1000*blockBytes))
		require.InDelta(t, want, warm[0].constants, 1e-3, n)
		require.Equal(t, 1.0, cold[0].constants)
	}
	// Constants that two launches read are cached for the second one, after other models too.
	v, list := entryOf(runtime.Launch{Reads: []runtime.Access{blocks(1, 0, 4)}}, runtime.Launch{Reads: []runtime.Access{blocks(1, 2, 4)}})
	warm, cold := misses(&followed{v: v, launches: list}, machineKeeping(8*blockBytes))
	require.Equal(t, []missing{{}, {}}, warm)
	require.Equal(t, []missing{{constants: 1}, {constants: 0.5}}, cold)
}

// TestCache_SkipsImmediateReads: values that live for one launch each, in an arena four times as large as the cache. They are written back, since others
// take their place before they are written again; one that is read again long after is fetched.
func TestCache_SkipsImmediateReads(t *testing.T) {
	const size, part = 100, 4
	var list []runtime.Launch
	for i := range size {
		list = append(list, runtime.Launch{Reads: []runtime.Access{blocks(0, part*i, part)}, Writes: []runtime.Access{blocks(0, part*((i+1)%size), part)}})
	}
	list[size-1].Reads = append(list[size-1].Reads, blocks(0, part, part))
	v, list := entryOf(list...)
	warm, cold := misses(&followed{v: v, launches: list}, machineKeeping(size*blockBytes))
	require.Equal(t, warm, cold, "there are no constants")
	for i, m := range warm[:size-1] {
		require.Equal(t, missing{writes: 1}, m, i)
	}
	require.Equal(t, 0.5, warm[size-1].reads)
	// With room for 100 blocks: what was touched 123 blocks before is lost to 1.5 · 0.23.
	near := entryAt(t, size, 60, 25*part*blockBytes)
	require.Zero(t, near[60].reads, "24 launches behind")
	far := entryAt(t, size, 66, 25*part*blockBytes)
	require.InDelta(t, 1.5*0.23/2, far[66].reads, 1e-9, "30 launches and the rest of its own value behind; half of what it reads")
}

// entryAt is a chain of launches as above of which one also reads what launch 35 wrote.
func entryAt(t *testing.T, size, at, keeps int) []missing {
	t.Helper()
	const part = 4
	var list []runtime.Launch
	for i := range size {
		list = append(list, runtime.Launch{Reads: []runtime.Access{blocks(0, part*i, part)}, Writes: []runtime.Access{blocks(0, part*((i+1)%size), part)}})
	}
	list[at].Reads = append(list[at].Reads, blocks(0, 36*part, part))
	v, list := entryOf(list...)
	warm, _ := misses(&followed{v: v, launches: list}, machineKeeping(keeps))
	return warm
}

// TestPrefetchedConstantsAreThere: launch 0 asks for what launches 1 and 2 read, of which each waits for its part; nobody waits for what was there
// before. What is read once leaves first: then 7 blocks of room serve 12.
func TestPrefetchedConstantsAreThere(t *testing.T) {
	asks := blocks(1, 0, 4)
	list := []runtime.Launch{{Prefetch: &asks}, {Reads: []runtime.Access{blocks(1, 0, 1)}}, {Reads: []runtime.Access{blocks(1, 1, 3)}}}
	v, list := entryOf(list...)
	warm, cold := misses(&followed{v: v, launches: list}, machineKeeping(8*blockBytes))
	require.Equal(t, []missing{{}, {}, {}}, warm)
	require.Equal(t, []missing{{fetches: 4 * blockBytes}, {awaits: fetch{1, blockBytes}, prefetched: blockBytes},
		{awaits: fetch{1, 4 * blockBytes}, prefetched: 3 * blockBytes}}, cold)
	dropped := (&Launch{Work: &cost.Work{}}).served(cold[2])
	require.Equal(t, 3.0*blockBytes, dropped.Prefetched, "a device that drops prefetches loads these")

	stream := func(once bool, on *cost.Machine) []missing {
		var list []runtime.Launch
		for i := range 6 {
			l := runtime.Launch{Reads: []runtime.Access{blocks(1, 2*i, 2)}, ReadOnce: once}
			if i < 4 { // a prefetch distance of 4 blocks
				prefetch := blocks(1, 2*i+4, 2)
				l.Prefetch = &prefetch
			}
			list = append(list, l)
		}
		v, list := entryOf(list...)
		warm, _ := misses(&followed{v: v, launches: list}, on)
		return warm
	}
	on, deaf := machineKeeping(7*blockBytes), machineKeeping(7*blockBytes)
	deaf.EvictFirst = 0
	for i, m := range stream(true, on) {
		require.Equal(t, float64(1-min(1, i/2)), m.constants, "launch %d finds what was asked for", i)
	}
	require.Positive(t, stream(false, on)[4].constants, "kept lines push out what is asked for")
	require.Equal(t, stream(false, on), stream(true, deaf), "where the hint is not obeyed it changes nothing")
}

// TestCache_EvictionFreesSpace: of 8 blocks of room 4 are kept from run to run, 2 hold a value, and some are prefetched and leave when they are read. 3 lie there
// with all the others at once, so what is kept is lost in part, although no more than 6 blocks are there when it is read again.
func TestCache_EvictionFreesSpace(t *testing.T) {
	a := func(x ...runtime.Access) []runtime.Access { return x }
	list := func(distance int) []runtime.Launch {
		asks := blocks(1, 8, distance)
		return []runtime.Launch{{Reads: a(blocks(0, 0, 2)), Prefetch: &asks}, {Reads: a(blocks(1, 8, distance)), ReadOnce: true}, {Reads: a(blocks(1, 0, 4))}}
	}
	for distance, kept := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		v, launches := entryOf(list(distance)...)
		warm, _ := misses(&followed{v: v, launches: launches}, machineKeeping(8*blockBytes))
		require.Equal(t, kept, warm[2].constants == 0, "%d blocks ahead: %v", distance, warm[2])
	}
}

// TestPartOfAnInput: bytes of frames that a launch passes over take no room; what has room is there for the next one that reads them.
func TestPartOfAnInput(t *testing.T) {
	a := func(x ...runtime.Access) []runtime.Access { return x }
	v, launches := entryOf(runtime.Launch{Reads: a(blocks(1, 0, 4))}, runtime.Launch{Reads: a(blocks(2, 0, 40))}, runtime.Launch{Reads: a(blocks(1, 0, 4))})
	warm := func(part float64) []missing {
		warm, _ := misses(&followed{v: v, launches: launches, read: [][]float64{{1}, {part}, {1}}}, machineKeeping(8*blockBytes))
		return warm
	}
	require.Equal(t, []missing{{}, {reads: 1}, {}}, warm(.1))
	require.Equal(t, []missing{{}, {reads: 1}, {constants: 1}}, warm(1))
}

// TestBlocksOfConstantsMayBeCoarse: what is lost and waited for is the same by blocks of 256 bytes and by larger ones, which no two constants share, and
// which begin anew where a constant does.
func TestBlocksOfConstantsMayBeCoarse(t *testing.T) {
	v := &runtime.Variant{Buffers: []runtime.Buffer{{Kind: runtime.ArenaBuffer, Bytes: 4 * blockBytes}}}
	at := 0
	for _, bytes := range []int{256, 4 * blockBytes, 768, 512, 6*blockBytes + 256} {
		v.Buffers = append(v.Buffers, runtime.Buffer{Kind: runtime.ConstantBuffer, Offset: at, Bytes: bytes})
		at += bytes
	}
	read := func(buffers ...int) (l runtime.Launch) {
		for _, b := range buffers {
			l.Reads = append(l.Reads, runtime.Access{Buffer: b, Bytes: v.Buffers[b].Bytes})
		}
		return l
	}
	asks := runtime.Access{Buffer: 1, Bytes: v.Buffers[5].Offset + coarseBytes}
	launches := []runtime.Launch{{Prefetch: &asks}, read(1, 2), read(0, 3), read(4), read(5)}
	launches[1].ReadOnce = true
	for _, capacity := range []int{5, 9, 12, 20} {
		fine, few := &followed{v: v, launches: launches}, &followed{v: v, launches: launches}
		few.coarse()
		require.Len(t, few.cuts, 1+8+1+1+13+1)
		warm, cold := misses(fine, machineKeeping(capacity*blockBytes))
		hot, late := misses(few, machineKeeping(capacity*blockBytes))
		for i := range launches {
			for _, c := range [][2]missing{{warm[i], hot[i]}, {cold[i], late[i]}} {
				require.InDelta(t, c[0].constants, c[1].constants, 0.15, "room %d, launch %d", capacity, i)
				require.InDelta(t, c[0].fetches, c[1].fetches, coarseBytes, "room %d, launch %d", capacity, i)
				require.InDelta(t, c[0].awaits.bytes, c[1].awaits.bytes, coarseBytes, "room %d, launch %d", capacity, i)
			}
		}
	}
}

// TestAPlannedStepReadsPartOfItsFrames, if its works say so: less comes from DRAM, and constants stay that all of the frames would push out.
func TestAPlannedStepReadsPartOfItsFrames(t *testing.T) {
	on, err := target.OfDevice("gb10")
	require.NoError(t, err)
	a := func(x ...runtime.Access) []runtime.Access { return x }
	frames, weights := 1000, 900 // of some 1150 that are kept
	v, launches := entryOf(runtime.Launch{Reads: a(blocks(2, 0, frames)), Grid: [3]int{48, 1, 1}, Block: [3]int{128, 1, 1}},
		runtime.Launch{Reads: a(blocks(1, 0, weights)), Grid: [3]int{48, 1, 1}, Block: [3]int{128, 1, 1}})
	v.Buffers[1].Bytes, v.Buffers[2].Bytes = weights*blockBytes, frames*blockBytes
	of := func(part float64) (warm, cold float64) {
		w := &cost.Work{Blocks: 48, Warps: 4, Resident: 1, Loads: 1, Sparse: float64(part * float64(frames*blockBytes))}
		return PlannedLoop(v, &runtime.Entry{Launches: launches}, []*cost.Work{w, nil}, nil, on)
	}
	us := func(n int) float64 { return float64(n*blockBytes) / (on.MemoryGBps * 1e3) }
	warm, cold := of(0)
	_, all := of(1)
	require.Equal(t, all, cold, "0: all of them")
	require.Greater(t, warm, us(frames+weights/2))
	warm, cold = of(.1)
	require.InEpsilon(t, us(weights), cold-warm, 0.3, "weights stay")
	require.InDelta(t, us(frames*9/10), all-cold, 1)
}

// TestStatesWithADelayLieWhereTheyWereWritten so many runs ago: of more than L2 keeps, memory serves all.
func TestStatesWithADelayLieWhereTheyWereWritten(t *testing.T) {
	v, launches := entryOf(runtime.Launch{Reads: []runtime.Access{{Buffer: 3, Bytes: blockBytes}}, Writes: []runtime.Access{{Buffer: 4, Bytes: blockBytes}}})
	for _, name := range []string{"state_x", "next_state_x"} {
		v.Buffers = append(v.Buffers, runtime.Buffer{Name: name, Kind: runtime.StateBuffer, Bytes: blockBytes})
	}
	for delay, want := range map[int]float64{1: 0, 2: 0, 3: 0, 4: 0, 12: 1} {
		f := &followed{v: v, launches: launches, states: []runtime.State{{Input: "state_x", Output: "next_state_x", Delay: delay}}}
		warm, _ := misses(f, machineKeeping(5*blockBytes))
		require.Equal(t, want, warm[0].reads, "%d runs ago", delay)
		require.Equal(t, want, warm[0].writes)
	}
}

// TestConstantsAreFetchedEarlyByBlocksThatFit next to those of the preceding launch.
func TestConstantsAreFetchedEarlyByBlocksThatFit(t *testing.T) {
	on, err := target.OfDevice("gb10")
	require.NoError(t, err)
	launch := func(blocks, threads, shared int) *Launch {
		return &Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Shared: shared}
	}
	// A multiprocessor has 100 KB of shared memory and 48 warps; a block takes 1 KB more than it asks for.
	for _, c := range []struct {
		preceding, back *Launch
		want            int
	}{
		{launch(48, 128, 30<<10), launch(96, 128, 30<<10), 2 * 48 * 30 << 10},  // 31 of 100 KB are taken: two blocks of 31 find room
		{launch(48, 128, 30<<10), launch(50, 128, 30<<10), 50 * 30 << 10},      // there are no more
		{launch(96, 128, 30<<10), launch(96, 128, 30<<10), 48 * 30 << 10},      // two of the preceding launch
		{launch(960, 128, 30<<10), launch(96, 128, 30<<10), 0},                 // three of the preceding launch, and more that wait
		{launch(48, 1024, 0), launch(96, 1024, 0), 0},                          // 32 of 48 warps are taken
		{launch(48, 512, 0), launch(96, 512, 0), 2 * 48 * 512 * registerBytes}, // 16 are
		{launch(48*30, 32, 0), launch(48, 32, 0), 0},                           // all 24 blocks are
	} {
		require.Equal(t, float64(c.want), c.back.earlyBytes(c.preceding, on), "%v %v", c.preceding.Grid, c.back.Block)
	}
}
