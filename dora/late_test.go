package dora

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/runtime"
)

// late is a device whose runs, where their context ends in them, are made when somebody waits for them.
type late struct {
	hal.Device
	begun func() // called as a run begins; nil: nothing
}

type lateGraph struct {
	hal.Graph
	d    *late
	left bool
}

func (d *late) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := d.Device.Capture(ctx, ops)
	return &lateGraph{Graph: g, d: d}, err
}

func (g *lateGraph) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.d.begun != nil {
		g.d.begun()
	}
	g.left = true
	return g.Wait(ctx)
}

func (g *lateGraph) Wait(ctx context.Context) error {
	if !g.left {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, hal.ErrBusy)
	}
	g.left = false
	return g.Graph.Run(ctx)
}

// ending is a context that ends in the next run on a device.
func (d *late) ending(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	d.begun = func() {
		cancel()
		d.begun = nil
	}
	return ctx
}

func newLate(t *testing.T) *late {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	return &late{Device: d}
}

// TestAnAdapterIsLoadedWhole: where the context ends while what runs need of an adapter is computed, that is computed of the adapter's slot all the same.
func TestAnAdapterIsLoadedWhole(t *testing.T) {
	m := small(t, "policy")
	r, err := Slots(t.Context(), m, SlotOptions{Count: 2}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, trained(t, m, InitOptions{Rank: 3}).Save(path))
	var want map[string][]float64
	for _, ends := range []bool{false, true} {
		d := newLate(t)
		s, err := runtime.Open(t.Context(), r.Program, d, runtime.ModelOptions{})
		require.NoError(t, err)
		ctx := t.Context()
		if ends {
			ctx = d.ending(t)
		}
		if err := s.LoadAdapter(ctx, 1, path); ends {
			require.ErrorIs(t, err, hal.ErrBusy)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, s.Wait(t.Context()))
		require.Equal(t, make([]byte, 4), s.Input(runtime.AdapterInput), "runs take the slot that they took before")
		require.NoError(t, s.UseAdapter(1))
		got := outputsOn(t, m, s)
		if !ends {
			want = got
		}
		require.Equal(t, want, got)
		require.NoError(t, s.Close())
	}
}

// TestAnUpdateWhoseContextEndsCounts: the device ends it, with the rate and the number that it was begun with, and the next one has the next number.
func TestAnUpdateWhoseContextEndsCounts(t *testing.T) {
	for _, exchange := range []bool{false, true} {
		m := small(t, "policy")
		a, err := Init(m, InitOptions{Rank: 2, Seed: 3})
		require.NoError(t, err)
		s, err := NewStep(t.Context(), m, a, StepOptions{Precision: "fp32", Exchange: exchange})
		require.NoError(t, err)
		var want Snapshot
		for _, ends := range []bool{false, true} {
			d := newLate(t)
			tr, err := s.Open(t.Context(), d)
			require.NoError(t, err)
			feed(t, m, tr.Session(), 0)
			step := func(ctx context.Context, rate float64) error {
				if !exchange {
					_, err := tr.Step(ctx, rate)
					return err
				}
				gradient := make([]float32, s.trained.size)
				gradient[0] = 3
				_, err := tr.Apply(ctx, rate, gradient)
				return err
			}
			if ends {
				require.ErrorIs(t, step(d.ending(t), 1e-2), hal.ErrBusy)
				_, err := tr.Snapshot()
				require.ErrorIs(t, err, hal.ErrBusy)
			} else {
				require.NoError(t, step(t.Context(), 1e-2))
			}
			require.NoError(t, step(t.Context(), 1e-3))
			got := snapshot(t, tr)
			if !ends {
				want = got
			}
			require.Equal(t, 2, got.Updates)
			require.Equal(t, want, got)
			require.NoError(t, tr.Close())
		}
	}
}
