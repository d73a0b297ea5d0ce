package scenario

import (
	"context"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestCheckpoint_GoesOnToTheSameBits: a batch that was stopped in its midst, of a controller, of a policy with states
// and of models with histories, ends as it would have.
func TestCheckpoint_GoesOnToTheSameBits(t *testing.T) {
	fulltest.Long(t)
	pid, err := BuiltIn("pid")
	require.NoError(t, err)
	d := device(t)
	for name, c := range map[string]struct {
		algorithm Algorithm
		seconds   float64
	}{
		"controller": {pid, 2},
		"policy":     {&Policy{Name: "policy", ONNX: policyFile(t, straight("N"))}, 2},
		"models":     {modelsOf(t, "supercombo"), 0.4},
	} {
		list := drawn(rand.New(rand.NewPCG(31, 32)), 5)
		for i := range list {
			list[i].Values[paramRow("duration")] = c.seconds
			list[i].Stream = stream("stopped", i)
		}
		want, err := (&Runner{Device: d, Batch: 2}).RunBatch(t.Context(), list, c.algorithm, 1, 3)
		require.NoError(t, err, name)

		ctx, stop := context.WithCancel(t.Context())
		var at *Checkpoint
		meter := console.New(func(e console.Event) {
			if e.Part > 0.55 { // the second of three batches is run to three quarters
				stop()
			}
		})
		meter.Expect(float64(len(list)))
		r := &Runner{Device: d, Batch: 2, Progress: meter, Stopped: func(c *Checkpoint) { at = c }}
		out, err := r.RunBatch(ctx, list, c.algorithm, 1, 3)
		require.ErrorIs(t, err, context.Canceled, name)
		require.Equal(t, want.Metrics[:2], out.Metrics, name)
		require.NotNil(t, at, name)
		require.Equal(t, []int{2, 2}, []int{at.First, at.Loops}, name)
		require.Greater(t, at.Step, 0, name)

		at.First = 0 // among those that are left
		rest := &Runner{Device: d, Batch: 2, Checkpoints: []Checkpoint{*at}}
		got, err := rest.RunBatch(t.Context(), list[2:], c.algorithm, 1, 3)
		require.NoError(t, err, name)
		assert.Equal(t, want.Metrics[2:], got.Metrics, name)

		if name != "controller" {
			continue
		}
		// What does not fit is told, and starts anew.
		short := maps.Clone(at.States)
		short["commands"] = short["commands"][4:]
		few := maps.Clone(at.States)
		few["alive"] = few["alive"][:4]
		lacks := maps.Clone(at.States)
		delete(lacks, "speed")
		for says, c := range map[string]Checkpoint{
			"it has ":                    {Loops: 2, Step: 3, States: lacks},
			"99 of 40 steps were run":    {Loops: 2, Step: 99, States: at.States},
			`state "commands" has `:      {Loops: 2, Step: 3, States: short},
			"want 4 of at least 2 loops": {Loops: 2, Step: 3, States: few},
		} {
			warned := ""
			rest.Checkpoints, rest.Warn = []Checkpoint{c}, func(text string) { warned += text }
			got, err := rest.RunBatch(t.Context(), list[2:], pid, 1, 3)
			require.NoError(t, err, says)
			assert.Equal(t, want.Metrics[2:], got.Metrics, says)
			assert.Contains(t, warned, "checkpoint of loops from 0 on: ")
			assert.Contains(t, warned, says)
		}
	}
}

// TestCheckpoint_FitsOtherSizes: the step of a controller is compiled for as many loops as run at once. A checkpoint of
// two loops of four, the last of six, fits a step of two; one of a step of two fits the step of three.
func TestCheckpoint_FitsOtherSizes(t *testing.T) {
	fulltest.Long(t)
	d := device(t)
	list := drawn(rand.New(rand.NewPCG(33, 34)), 6)
	for i := range list {
		list[i].Values[paramRow("duration")] = 2
		list[i].Stream = stream("resized", i)
	}
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	want, err := (&Runner{Device: d, Batch: 4}).RunBatch(t.Context(), list, c, 1, 3)
	require.NoError(t, err)
	stopped := func(list []Scenario, batch int, part float64) *Checkpoint {
		ctx, stop := context.WithCancel(t.Context())
		var at *Checkpoint
		meter := console.New(func(e console.Event) {
			if e.Part > part {
				stop()
			}
		})
		meter.Expect(float64(len(list)))
		r := &Runner{Device: d, Batch: batch, Progress: meter, Stopped: func(c *Checkpoint) { at = c }}
		_, err := r.RunBatch(ctx, list, c, 1, 3)
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, at)
		require.Greater(t, at.Step, 0)
		return at
	}
	ended := func(from, batch int, at Checkpoint) {
		r := &Runner{Device: d, Batch: batch, Checkpoints: []Checkpoint{at}}
		r.Warn = func(text string) { assert.Fail(t, text) }
		got, err := r.RunBatch(t.Context(), list[from:], c, 1, 3)
		require.NoError(t, err)
		assert.Equal(t, want.Metrics[from:], got.Metrics)
	}
	at := stopped(list, 4, 0.8)
	require.Equal(t, []int{4, 2}, []int{at.First, at.Loops})
	at.First = 0
	ended(4, 4, *at)

	at = stopped(list[4:], 2, 0.6)
	at.First = 3
	ended(1, 3, *at)
}
