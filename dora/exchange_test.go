package dora

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// stepOf compiles a step of the small policy and opens it, with checks.
func stepOf(t *testing.T, opt StepOptions) (*Model, *Trainer) {
	t.Helper()
	m := small(t, "policy")
	a, err := Init(m, InitOptions{Rank: 2, Seed: 3})
	require.NoError(t, err)
	s, err := NewStep(context.Background(), m, a, opt)
	require.NoError(t, err)
	return m, trainer(t, s, true)
}

// snapshot is all that a trainer keeps.
func snapshot(t *testing.T, tr *Trainer) Snapshot {
	t.Helper()
	s, err := tr.Snapshot()
	require.NoError(t, err)
	return s
}

// TestAnExchangedGradientIsTheStepsOwn: accumulate, fetched, applied: the same bits as one step, with and without micro-batches. What
// is applied is the gradient that is given.
func TestAnExchangedGradientIsTheStepsOwn(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	for in, micro := range map[string]int{"fp32": 1, "fp16": 2} {
		opt := StepOptions{Precision: in, MicroBatches: micro, ClipNorm: 1, WeightDecay: 0.01}
		m, whole := stepOf(t, opt)
		opt.Exchange = true
		_, separate := stepOf(t, opt)
		for k := range 3 {
			for b := range micro {
				feed(t, m, whole.Session(), micro*k+b)
				feed(t, m, separate.Session(), micro*k+b)
				loss, err := separate.Accumulate(ctx)
				require.NoError(t, err)
				if b < micro-1 {
					_, err = whole.Accumulate(ctx)
					require.NoError(t, err)
					continue
				}
				want, err := whole.Step(ctx, 1e-3)
				require.NoError(t, err)
				assert.Equal(t, want.Loss, loss)
				gradient, err := separate.Gradient()
				require.NoError(t, err)
				got, err := separate.Apply(ctx, 1e-3, gradient)
				require.NoError(t, err)
				got.Loss = want.Loss
				assert.Equal(t, want, got)
				assert.True(t, got.Applied && got.Norm > 0)
			}
		}
		a, b := snapshot(t, whole), snapshot(t, separate)
		for name, data := range a.Kept {
			assert.Equal(t, data, b.Kept[name], "%s of %s, %d micro-batches", name, in, micro)
		}
		gradient, err := separate.Gradient()
		require.NoError(t, err)
		assert.Equal(t, make([]float32, len(gradient)), gradient, "the sum is zero after an update")
		gradient[0], gradient[1] = 3, 4
		got, err := separate.Apply(ctx, 1e-3, gradient)
		require.NoError(t, err)
		assert.Equal(t, 5.0, got.Norm)
	}
}

// TestEvaluateChangesNothing: it gives the loss that a step would give, and no state differs afterwards.
func TestEvaluateChangesNothing(t *testing.T) {
	ctx := context.Background()
	m, tr := stepOf(t, StepOptions{Precision: "fp32", Evaluate: true})
	for k := range 2 {
		feed(t, m, tr.Session(), k)
		before := snapshot(t, tr)
		loss, err := tr.Evaluate(ctx)
		require.NoError(t, err)
		assert.Equal(t, before, snapshot(t, tr))
		step, err := tr.Step(ctx, 1e-2)
		require.NoError(t, err)
		assert.InEpsilon(t, step.Loss, loss, 1e-6)
		assert.NotEqual(t, before, snapshot(t, tr))
	}
}

// TestStepsAfterRestoreHaveTheBitsOfStepsAfterSnapshot: in fp16, whose loss scale is state too, and in a session of its own.
func TestStepsAfterRestoreHaveTheBitsOfStepsAfterSnapshot(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	opt := StepOptions{Precision: "fp16", MicroBatches: 2}
	m, one := stepOf(t, opt)
	_, other := stepOf(t, opt)
	steps := func(tr *Trainer, from, to int) {
		for k := from; k < to; k++ {
			feed(t, m, tr.Session(), 2*k)
			_, err := tr.Accumulate(ctx)
			require.NoError(t, err)
			feed(t, m, tr.Session(), 2*k+1)
			_, err = tr.Step(ctx, 1e-3)
			require.NoError(t, err)
		}
	}
	steps(one, 0, 2)
	half := snapshot(t, one)
	steps(one, 2, 4)
	require.NoError(t, other.Restore(half))
	steps(other, 2, 4)
	want := snapshot(t, one)
	assert.Equal(t, 4, want.Updates)
	assert.Equal(t, want, snapshot(t, other))
	assert.NotEqual(t, half, want)
}

// TestASnapshotOfAnotherStepIsRefused: and then nothing is written.
func TestASnapshotOfAnotherStepIsRefused(t *testing.T) {
	_, tr := stepOf(t, StepOptions{Precision: "fp32"})
	before := snapshot(t, tr)
	names := slices.Sorted(maps.Keys(before.Kept))
	for what, change := range map[string]func(kept map[string][]byte){
		"lacks":             func(kept map[string][]byte) { delete(kept, names[0]) },
		"has 4 bytes":       func(kept map[string][]byte) { kept[names[0]] = make([]byte, 4) },
		"states, this step": func(kept map[string][]byte) { kept["other"] = nil },
	} {
		s := Snapshot{Kept: map[string][]byte{}}
		for name, data := range before.Kept {
			s.Kept[name] = make([]byte, len(data))
		}
		change(s.Kept)
		assert.ErrorContains(t, tr.Restore(s), what)
		assert.Equal(t, before, snapshot(t, tr))
	}
}
