package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cores runs a test with a number of cores.
func cores(t *testing.T, n int, f func(t *testing.T)) {
	was := runtime.GOMAXPROCS(n)
	defer runtime.GOMAXPROCS(was)
	f(t)
}

// TestFor_NestedLoopsOccupyOneWorkerACore: three loops, one inside the other, the outer one with fewer iterations than cores.
func TestFor_NestedLoopsOccupyOneWorkerACore(t *testing.T) {
	for _, n := range []int{1, 2, 8, 20} {
		cores(t, n, func(t *testing.T) {
			var running, most, sum atomic.Int64
			For(5, func(i int) {
				For(7, func(j int) {
					For(10, func(k int) {
						at := running.Add(1)
						for was := most.Load(); at > was && !most.CompareAndSwap(was, at); was = most.Load() {
						}
						runtime.Gosched()
						sum.Add(int64(i + j + k))
						running.Add(-1)
					})
				})
			})
			require.EqualValues(t, 7*10*10+5*10*21+5*7*45, sum.Load())
			// Of a caller that waited and goes on, the helper ends its iteration first.
			require.LessOrEqual(t, most.Load(), int64(n+n/2))
			require.Zero(t, shared.helpers)
		})
	}
}

// TestFor_IdleCoresJoinALoopThatHasBegun: the last iteration of the outer loop is long, and its inner loop is on all cores.
func TestFor_IdleCoresJoinALoopThatHasBegun(t *testing.T) {
	cores(t, 4, func(t *testing.T) {
		var meeting sync.WaitGroup
		meeting.Add(4)
		For(4, func(i int) {
			if i == 3 {
				For(4, func(int) { // returns once four are here at a time
					meeting.Done()
					meeting.Wait()
				})
			}
		})
	})
}

func TestForContext_BeginsNothingAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var begun atomic.Int64
	ForContext(ctx, 1000, func(int) {
		cancel()
		begun.Add(1)
	})
	require.LessOrEqual(t, begun.Load(), int64(runtime.GOMAXPROCS(0)))
}

func TestFor_PanicReachesTheCaller(t *testing.T) {
	cores(t, 2, func(t *testing.T) {
		var both sync.WaitGroup
		both.Add(2)
		require.PanicsWithValue(t, "no", func() {
			For(2, func(int) {
				both.Done()
				both.Wait()
				panic("no")
			})
		})
		For(3, func(int) {})
	})
}

func TestRanges_CoverTheSameOnAnyNumberOfCores(t *testing.T) {
	for _, n := range []int{0, 1, 5, 999, 1 << 20} {
		var want map[[2]int]bool
		for _, workers := range []int{1, 3} {
			cores(t, workers, func(t *testing.T) {
				var mu sync.Mutex
				got, sum := map[[2]int]bool{}, 0
				Ranges(n, 10, func(lo, hi int) {
					mu.Lock()
					defer mu.Unlock()
					got[[2]int{lo, hi}] = true
					sum += hi - lo
				})
				require.Equal(t, n, sum)
				if want == nil {
					want = got
				}
				require.Equal(t, want, got)
			})
		}
	}
}

// TestDrain_TakesBackWhatAHelperLeaves: steps that put work back, while inner loops make helpers come and go.
func TestDrain_TakesBackWhatAHelperLeaves(t *testing.T) {
	cores(t, 4, func(t *testing.T) {
		for range 200 {
			var mu sync.Mutex
			left, done := []int{3, 3, 3, 3, 3, 3}, 0
			Drain(6, func() bool {
				mu.Lock()
				if len(left) == 0 {
					mu.Unlock()
					return false
				}
				n := left[0]
				left = left[1:]
				mu.Unlock()
				For(3, func(int) { runtime.Gosched() })
				mu.Lock()
				defer mu.Unlock()
				if n > 0 {
					left = append(left, n-1)
				} else {
					done++
				}
				return true
			})
			require.Equal(t, 6, done)
		}
	})
}

// TestRecord_SpanIsTheLongestPath: by a clock that iterations move.
func TestRecord_SpanIsTheLongestPath(t *testing.T) {
	now := time.Duration(0)
	r := Record(func() time.Duration { return now }, func() {
		now += 5
		For(3, func(i int) {
			now += 2
			For(10, func(j int) { now += 1 })
			now += time.Duration(i)
		})
		For(1, func(int) { now += 7 })
	})
	require.EqualValues(t, 5+3*2+3*10+3+7, r.Work)
	require.EqualValues(t, 5+2+1+2+7, r.Span)
	require.EqualValues(t, 17+34/2, r.Forecast(2))
}
