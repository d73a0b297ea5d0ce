package calibrate

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// interrupter evaluates regions, ends the context at one call and counts the later ones.
type interrupter struct {
	Reference
	cancel    context.CancelFunc
	at        int // call that ends the context; 0: none
	calls     int
	afterward int
}

func (e *interrupter) Evaluate(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, pool *BufferPool) ([][]*ir.Tensor, error) {
	if e.calls++; ctx.Err() != nil {
		e.afterward++
	}
	if e.calls == e.at {
		e.cancel()
	}
	return e.Reference.Evaluate(ctx, n, in, pool)
}

// TestAnInterruptedCalibrationEndsAtOnce ends the context at evaluations of regions all over a calibration: no other one follows.
func TestAnInterruptedCalibrationEndsAtOnce(t *testing.T) {
	g, in := made(t, "policy", precision.FP8, 2)
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	calibrated := func(at int) (*interrupter, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := &interrupter{cancel: cancel, at: at}
		c, err := New(g, precision.FP8, in, e, nil)
		require.NoError(t, err)
		_, err = c.Choose(ctx, evaluator{t, g, in, sm121}, Options{Precision: precision.FP8, MinCosine: .9, Target: sm121, Technique: Technique{Bias: true}})
		return e, err
	}
	whole, err := calibrated(0)
	require.NoError(t, err)
	require.Greater(t, whole.calls, 50)
	for at := 1; at <= whole.calls; at += 37 {
		e, err := calibrated(at)
		require.ErrorIs(t, err, context.Canceled, "at evaluation %d", at)
		require.Zero(t, e.afterward, "after evaluation %d", at)
	}
}

// TestRoundingEndsWithItsContext: no scale of a block is chosen after the context has ended.
func TestRoundingEndsWithItsContext(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(k, n int) float64 { return rng.NormFloat64() }
	g := layers(t, draw, draw)
	c, err := New(g, precision.FP8, []map[string]*ir.Array{rowsOf(func(i int) float64 { return rng.NormFloat64() })}, Reference{}, nil)
	require.NoError(t, err)
	site := c.Sites()[0]
	x := []*ir.Tensor{c.walk.lane(1).values[g.Inputs[0]][0]}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var count atomic.Int64
	tech := Technique{Feedback: true, Recover: true, fault: func(s stage, x float64) float64 {
		if s == blocks {
			count.Add(1)
		}
		return x
	}}
	block := layerNamed(t, "nvfp4 weights").Weights
	whole := newRounder(&site, block, tech)
	whole.fit(ctx, x, x, nil)
	require.Equal(t, int64(whole.starts(site.N)*site.N*site.Blocks()), count.Load())
	count.Store(0)
	cancel()
	newRounder(&site, block, tech).fit(ctx, x, x, nil)
	require.Zero(t, count.Load())
}

// TestMoments_WithoutExactInputsAreAsWithTheSame: inputs that are as the exact graph's have no errors to recover.
func TestMoments_WithoutExactInputsAreAsWithTheSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	draw := func(int, int) float64 { return rng.NormFloat64() }
	var in []map[string]*ir.Array
	for range 8 {
		in = append(in, rowsOf(func(int) float64 { return 1 + rng.NormFloat64() }))
	}
	g := layers(t, draw, draw)
	c, err := New(g, precision.FP8, in, Reference{}, nil)
	require.NoError(t, err)
	site, x := c.Sites()[0], c.walk.lane(c.walk.inputs).values[g.Inputs[0]]
	p := patchesOf(&site)
	fitted, tried := p.measure(t.Context(), nil, x, c.held, 0, 0, true)
	sameFitted, sameTried := p.measure(t.Context(), x, x, c.held, 0, 0, true)
	for i, want := range []*moments{sameFitted, sameTried} {
		got := []*moments{fitted, tried}[i]
		require.Equal(t, make([]float32, len(want.miss.a)), want.miss.a)
		require.Nil(t, got.miss)
		want.miss = nil
		require.Equal(t, want, got)
	}
}

// TestNothingIsHandedOutAfterTheContextHasEnded.
func TestNothingIsHandedOutAfterTheContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var after atomic.Int64
	parallel.ForContext(ctx, 1000, func(i int) {
		if i == 3 {
			cancel()
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			after.Add(1)
		}
	})
	require.LessOrEqual(t, after.Load(), int64(runtime.GOMAXPROCS(0)), "those that had begun, one a core")
	after.Store(0)
	parallel.ForContext(ctx, 1, func(int) { after.Add(1) })
	require.Zero(t, after.Load())
}
