package dataset

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// numbers is a set of samples that are called by their number; lengths are the numbers'.
type numbers struct {
	lengths []int
	delay   func(i int) time.Duration
	fail    int // sample that cannot be read, from 1
	most    atomic.Int32
	under   atomic.Int32
}

func (r *numbers) Len() (n int) {
	for _, l := range r.lengths {
		n += l
	}
	return n
}

func (r *numbers) Route(i int) string {
	for k, l := range r.lengths {
		if i < l {
			return fmt.Sprint("route", k)
		}
		i -= l
	}
	return "none"
}

func (r *numbers) Sample(_ context.Context, i int) (*Sample, error) {
	n := r.under.Add(1)
	defer r.under.Add(-1)
	for m := r.most.Load(); n > m && !r.most.CompareAndSwap(m, n); m = r.most.Load() {
	}
	if r.delay != nil {
		time.Sleep(r.delay(i))
	}
	if i == r.fail-1 {
		return nil, errors.New("cut off")
	}
	return &Sample{Key: fmt.Sprint(i)}, nil
}

func (r *numbers) Fingerprint() string { return "" }
func (r *numbers) Close() error        { return nil }

// TestShuffleAndShardAreTheSameEverywhere: the order of an epoch is one and the same permutation, and ranks take disjoint parts of each batch, so that
// a batch of all is the one that a single rank would take.
func TestShuffleAndShardAreTheSameEverywhere(t *testing.T) {
	assert.Equal(t, []int{6, 3, 1, 9, 7, 4, 8, 2, 0, 5}, Shuffle(1, 0, 10), "recorded: checkpoints depend on it")
	assert.NotEqual(t, Shuffle(1, 0, 10), Shuffle(1, 1, 10))
	assert.NotEqual(t, Shuffle(1, 0, 10), Shuffle(2, 0, 10))
	order := Shuffle(7, 3, 50)
	all := slices.Clone(order)
	slices.Sort(all)
	for i, x := range all {
		require.Equal(t, i, x)
	}
	one := Shard(order, 12, 0, 1)
	assert.Equal(t, order[:48], one)
	for _, ranks := range []int{2, 3, 4} {
		batch := 12 / ranks
		var parts [][]int
		for rank := range ranks {
			parts = append(parts, Shard(order, batch, rank, ranks))
		}
		var joined []int
		for k := 0; k < len(parts[0]); k += batch {
			for _, p := range parts {
				joined = append(joined, p[k:k+batch]...)
			}
		}
		assert.Equal(t, one, joined, ranks)
	}
	assert.Empty(t, Shard(order[:5], 3, 0, 2))
}

// TestSplitKeepsWholeRoutes: no route is in both parts, the share is of numbers, and every sample is in one of them.
func TestSplitKeepsWholeRoutes(t *testing.T) {
	set := &numbers{lengths: []int{5, 1, 7, 3, 4, 6, 2, 8, 9, 5}}
	for _, c := range []struct {
		share float64
		held  int
	}{{0.1, 1}, {0.01, 1}, {0.3, 3}, {0.99, 9}} {
		training, held, err := Split(set, c.share, 3)
		require.NoError(t, err)
		assert.Equal(t, set.Len(), training.Len()+held.Len())
		of := map[string]bool{}
		for i := range held.Len() {
			of[held.Route(i)] = true
		}
		assert.Len(t, of, c.held)
		seen := map[string]bool{}
		for _, s := range []Set{training, held} {
			for i := range s.Len() {
				if s == training {
					assert.False(t, of[s.Route(i)])
				}
				x, err := s.Sample(context.Background(), i)
				require.NoError(t, err)
				assert.False(t, seen[x.Key])
				seen[x.Key] = true
			}
		}
	}
	a, _, err := Split(set, 0.5, 1)
	require.NoError(t, err)
	b, _, err := Split(set, 0.5, 2)
	require.NoError(t, err)
	assert.NotEqual(t, a.(*part).samples, b.(*part).samples)
}

// TestASingleRouteIsSplitAtItsEnd, unless nothing would be left of it.
func TestASingleRouteIsSplitAtItsEnd(t *testing.T) {
	training, held, err := Split(&numbers{lengths: []int{10}}, 0.25, 1)
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, training.(*part).samples)
	assert.Equal(t, []int{7, 8, 9}, held.(*part).samples)
	_, _, err = Split(&numbers{lengths: []int{1}}, 0.1, 1)
	assert.ErrorContains(t, err, "1 samples cannot be split")
}

// TestSamplesComeInTheirOrder whatever the number of workers, whose number and lead are bounded.
func TestSamplesComeInTheirOrder(t *testing.T) {
	order := Shuffle(1, 0, 60)
	for _, workers := range []int{1, 2, 7} {
		set := &numbers{lengths: []int{60}, delay: func(i int) time.Duration { return time.Duration(i%5) * time.Millisecond }}
		var got []int
		for s, err := range Load(context.Background(), set, order, workers, 4) {
			require.NoError(t, err)
			var i int
			_, err := fmt.Sscan(s.Key, &i)
			require.NoError(t, err)
			got = append(got, i)
		}
		assert.Equal(t, order, got)
		assert.LessOrEqual(t, int(set.most.Load()), workers)
	}
}

// TestLoadEnds after an error that names the sample, where its caller breaks off, and with its context; no
// goroutine is left.
func TestLoadEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	order := []int{0, 1, 2, 3, 4, 5, 6, 7}
	set := &numbers{lengths: []int{2, 6}, fail: 4}
	var last error
	n := 0
	for _, err := range Load(context.Background(), set, order, 3, 2) {
		n, last = n+1, err
	}
	assert.Equal(t, 4, n)
	assert.EqualError(t, last, "sample 3 of route route1: cut off")
	for range Load(context.Background(), &numbers{lengths: []int{8}}, order, 3, 2) {
		break
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slow := &numbers{lengths: []int{8}, delay: func(int) time.Duration { return 5 * time.Millisecond }}
	for _, err := range Load(ctx, slow, order, 1, 2) {
		cancel()
		last = err
	}
	assert.ErrorIs(t, last, context.Canceled)
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// TestNobodyReadsASetAfterTheEndOfLoad: it may be closed then.
func TestNobodyReadsASetAfterTheEndOfLoad(t *testing.T) {
	order := []int{0, 1, 2, 3, 4, 5, 6, 7}
	slow := func(i int) time.Duration { return time.Duration(i) * 20 * time.Millisecond }
	for name, set := range map[string]*numbers{"broken off": {lengths: []int{8}, delay: slow}, "an error": {lengths: []int{8}, delay: slow, fail: 1}} {
		for range Load(context.Background(), set, order, 3, 8) {
			break
		}
		assert.Zero(t, set.under.Load(), name)
	}
}
