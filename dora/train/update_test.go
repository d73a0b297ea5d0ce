package train

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
)

// Names of what the device keeps, as checkpoints have them.
const (
	stateAdapter = "adapter"
	stateFirst   = "adamw.first"
	stateSecond  = "adamw.second"
	stateScale   = "loss.scale"
	stateGood    = "loss.good" // updates since the loss scale changed
)

// checkpointAt reads the checkpoint of an update.
func checkpointAt(t *testing.T, opt Options, update int) (position, dora.Snapshot) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(opt.Output, checkpointName(update), stateFile))
	require.NoError(t, err)
	p, s, err := decodeState(data)
	require.NoError(t, err)
	return p, s
}

// state is a vector that the device keeps.
func state(t *testing.T, s dora.Snapshot, name string) (out []float64) {
	t.Helper()
	require.Contains(t, s.Kept, name)
	for _, x := range runtime.View[float32](s.Kept[name]) {
		out = append(out, float64(x))
	}
	return out
}

// eachUpdate are options of a training of 24 samples in batches of 4, with a checkpoint after each update.
func eachUpdate(t *testing.T) Options {
	t.Helper()
	opt := lessonsOf(t, 24)
	opt.Val, opt.MicroBatch, opt.Clip, opt.CheckpointEvery, opt.Keep = 0, 4, 0, 1, 1000
	return opt
}

// TestUpdate_IsAdamW: Loshchilov and Hutter 2019, algorithm 2, in float64, from the moments before and after each update.
// The gradient is what the first moment says, and has the norm that was recorded. Learning rates are those of warm-up and
// decay.
func TestUpdate_IsAdamW(t *testing.T) {
	const beta1, beta2, epsilon, decay, most = 0.9, 0.999, 1e-8, 0.1, 2e-3
	rates := []float64{.25, .5, .75, 1, 1, .875, .75, .625, .5, .375, .25, .125}
	opt := eachUpdate(t)
	opt.Epochs, opt.Warmup, opt.Schedule, opt.Rate, opt.Decay = 2, 4, Linear, most, decay
	_, err := Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	records, err := readMetrics(opt.Output, 100)
	require.NoError(t, err)
	require.Len(t, records, len(rates))
	var adapter, first, second []float64
	for k, rate := range rates {
		rate *= most
		_, s := checkpointAt(t, opt, k+1)
		require.Equal(t, k+1, s.Updates)
		x, m, v := state(t, s, stateAdapter), state(t, s, stateFirst), state(t, s, stateSecond)
		if k == 0 {
			first, second = make([]float64, len(m)), make([]float64, len(v))
		}
		var norm, off, moved float64
		for i := range x {
			g := (m[i] - beta1*first[i]) / (1 - beta1)
			norm += g * g
			assert.InDelta(t, beta2*second[i]+(1-beta2)*g*g, v[i], 1e-9+1e-4*v[i], "second moment %d", i)
			if k == 0 {
				continue
			}
			mean, square := m[i]/(1-math.Pow(beta1, float64(k+1))), v[i]/(1-math.Pow(beta2, float64(k+1)))
			want := adapter[i] - rate*decay*adapter[i] - rate*mean/(math.Sqrt(square)+epsilon)
			off, moved = off+(x[i]-want)*(x[i]-want), moved+(want-adapter[i])*(want-adapter[i])
		}
		assert.InEpsilon(t, records[k].Norm, math.Sqrt(norm), 1e-4, "update %d", k+1)
		assert.InEpsilon(t, rate, records[k].Rate, 1e-9)
		assert.LessOrEqual(t, math.Sqrt(off), 1e-3*math.Sqrt(moved), "update %d, of the way that it moves", k+1)
		adapter, first, second = x, m, v
	}
}

// TestRun_KeepsTheBestOfRisingAndFallingLosses, not the last one that beats the base.
func TestRun_KeepsTheBestOfRisingAndFallingLosses(t *testing.T) {
	opt := eachUpdate(t)
	opt.Val, opt.Epochs, opt.EvaluateEvery, opt.Schedule, opt.Warmup, opt.Rate = 0.25, 4, 1, Constant, 0, 1.2e-2
	result, err := Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	records, err := readMetrics(opt.Output, 100)
	require.NoError(t, err)
	best, worse, fell := 0, false, false
	losses := []float64{}
	for _, r := range records {
		if r.Validation == nil {
			continue
		}
		loss := r.Validation.Loss
		if n := len(losses); n > 1 {
			fell = fell || worse && loss < losses[n-1]
			worse = worse || loss > losses[n-1]
		}
		if losses = append(losses, loss); best == 0 || loss < losses[best] {
			best = r.Update
		}
	}
	t.Log(losses)
	later := slices.ContainsFunc(losses[best+1:], func(loss float64) bool { return loss < losses[0] })
	require.True(t, worse && fell && later, "losses rise and fall, and others than the best beat the base")
	assert.Equal(t, best, result.BestUpdate)
	assert.Equal(t, losses[best], result.Best.Loss)
	assert.Equal(t, sum(t, opt, filepath.Join(checkpointName(best), adapterFile)), sum(t, opt, bestFile))
}

// unfinite is a set in which features of some samples are no numbers, so that an update with one of them is refused.
func unfinite(set dataset.Set, is func(i int) bool) dataset.Set {
	return altered{set.(drawn), func(i int, s *dataset.Sample) {
		if is(i) {
			x := s.Inputs["features_buffer"]
			binary.LittleEndian.PutUint16(x[len(x)-2:], 0x7fc0) // in f16 and in f32
		}
	}}
}

// TestRun_ARefusedUpdateLeavesMoments and adapter as they were, and does not count in the correction of their bias.
func TestRun_ARefusedUpdateLeavesMoments(t *testing.T) {
	fulltest.Long(t)
	opt := eachUpdate(t)
	opt.Epochs, opt.Warmup = 1, 0
	order := dataset.Shuffle(opt.Seed, 0, 24)
	opt.Set = unfinite(opt.Set, func(i int) bool { return i == order[9] || i == order[12] }) // of updates 3 and 4
	_, err := Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	_, before := checkpointAt(t, opt, 2)
	for k, refused := range []int{0, 0, 1, 2, 0, 0} {
		p, s := checkpointAt(t, opt, k+1)
		applied := []int{1, 2, 2, 2, 3, 4}[k]
		assert.Equal(t, []int{k + 1, applied, refused}, []int{p.Update, p.Applied, p.Refused}, "update %d", k+1)
		assert.Equal(t, []int{applied, refused}, []int{s.Updates, s.Refused})
		if refused == 0 {
			continue
		}
		for _, name := range []string{stateAdapter, stateFirst, stateSecond} {
			assert.Equal(t, state(t, before, name), state(t, s, name), "%s after update %d", name, k+1)
		}
	}
	_, s := checkpointAt(t, opt, 4)
	_, next := checkpointAt(t, opt, 5)
	m, v := state(t, next, stateFirst), state(t, next, stateSecond)
	var off, moved float64
	rate := schedule{Cosine, opt.Rate, 0, 6}.at(4)
	for i, x := range state(t, s, stateAdapter) { // the third that is applied
		move := rate * m[i] / (1 - math.Pow(.9, 3)) / (math.Sqrt(v[i]/(1-math.Pow(.999, 3))) + 1e-8)
		y := state(t, next, stateAdapter)[i]
		off, moved = off+(x-move-y)*(x-move-y), moved+move*move
	}
	assert.LessOrEqual(t, math.Sqrt(off), 1e-3*math.Sqrt(moved))
}

// TestResume_RemembersRefusedUpdates: twenty in a row are too many, whether training stopped between them or not.
func TestResume_RemembersRefusedUpdates(t *testing.T) {
	fulltest.Long(t)
	opt := eachUpdate(t)
	opt.Epochs, opt.Warmup = 10, 0
	opt.Set = unfinite(opt.Set, func(int) bool { return true })
	ctx, stop := context.WithCancel(t.Context())
	updates := 0
	opt.Show = func(p Progress) {
		if updates = p.Update; updates == 12 {
			stop()
		}
	}
	_, err := Run(ctx, opt, alone(t))
	require.ErrorIs(t, err, ErrInterrupted)
	p, s := checkpointAt(t, opt, 12)
	assert.Equal(t, []int{0, 12, 0, 12}, []int{p.Applied, p.Refused, s.Updates, s.Refused})
	opt.Resume = true
	_, err = Run(t.Context(), opt, alone(t))
	assert.ErrorContains(t, err, "20 updates in a row had a gradient that is not finite")
	assert.Equal(t, 19, updates)
}

// TestRun_LossScaleOfFP16 halves with each refused update, and doubles after 2000 without one: a checkpoint says that
// 1998 have been made.
func TestRun_LossScaleOfFP16(t *testing.T) {
	fulltest.Long(t)
	opt := eachUpdate(t)
	opt.Precision, opt.Epochs, opt.Warmup = "fp16", 4, 0
	ctx, stop := context.WithCancel(t.Context())
	at := 0
	opt.Show = func(p Progress) {
		if at = p.Update; !p.Skipped {
			stop()
		}
	}
	_, err := Run(ctx, opt, alone(t))
	require.ErrorIs(t, err, ErrInterrupted)
	require.Greater(t, at, 1, "the first scale is too large for this model")
	p, s := checkpointAt(t, opt, at)
	require.Equal(t, []float64{1}, state(t, s, stateGood))
	scale := state(t, s, stateScale)[0]
	assert.Equal(t, 65536*math.Pow(.5, float64(at-1)), scale)
	s.Kept[stateGood] = runtime.Bytes([]float32{1998})
	scale /= 16 // far from what is too large
	s.Kept[stateScale] = runtime.Bytes([]float32{float32(scale)})
	data, err := encodeState(p, s)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(opt.Output, checkpointName(at), stateFile), data, 0o644))
	opt.Resume, opt.Show = true, nil
	_, err = Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	for k, want := range [][]float64{{1999, scale}, {0, 2 * scale}, {1, 2 * scale}} {
		_, s := checkpointAt(t, opt, at+1+k)
		require.Equal(t, 2+k, s.Updates)
		got := []float64{state(t, s, stateGood)[0], state(t, s, stateScale)[0]}
		assert.Equal(t, want, got, "update %d", at+1+k)
	}
}
