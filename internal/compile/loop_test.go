package compile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestTheStepOfModeldKeepsItsHistories: vision and policy as one program, steps with a missed frame among them, against the composed graph in
// float64 whose states are kept by hand. The sixth step is the first to see what a state with a delay of four has kept of one that was no zero.
func TestTheStepOfModeldKeepsItsHistories(t *testing.T) {
	fulltest.Long(t)
	var models []*onnx.Model
	for _, name := range []string{"policy", "vision"} {
		m, err := driving.Made(name, driving.Small)
		require.NoError(t, err)
		file, err := onnx.Decode(name+".onnx", m.ONNX)
		require.NoError(t, err)
		models = append(models, file)
	}
	layout := runtime.FrameLayout{Width: 96, Height: 64, Stride: 128, UV: 128 * 64}
	loop := openpilot.Options{Largest: layout}
	step, err := openpilot.Compose(models, loop)
	require.NoError(t, err)
	r, err := Loop(t.Context(), models, loop, Options{Precision: "fp32", F32Outputs: true, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	require.Equal(t, "vision.onnx + policy.onnx", r.Program.Model)
	require.True(t, slices.ContainsFunc(r.Program.Variants[0].Entry("run").Launches, func(l runtime.Launch) bool { return strings.Contains(l.Note, "batch=2") }),
		"a launch serves both towers, which read spans of the same pictures")
	for _, opt := range []emu.Options{{}, {Discrete: true}} {
		t.Run(fmt.Sprintf("discrete %v", opt.Discrete), func(t *testing.T) {
			d, err := emu.Open(opt)
			require.NoError(t, err)
			s, err := runtime.Open(t.Context(), r.Program, d, runtime.ModelOptions{})
			require.NoError(t, err)
			defer s.Close()
			rng := rand.New(rand.NewPCG(3, 4))
			past := map[string][]*ir.Array{} // new values of states, by state, newest last
			for i := range 8 {
				g, entry := step.Run, "run"
				if i == 3 {
					g, entry = step.Skip, runtime.SkipEntry
				}
				in := map[string]*ir.Array{}
				for _, v := range g.Inputs {
					in[v.Name] = stepInput(rng, g, v, past)
					if !strings.HasPrefix(v.Name, "state_") {
						require.NoError(t, s.Set(v.Name, in[v.Name].Tensor().Dense()))
					}
				}
				want, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
				require.NoError(t, err)
				before := d.Traffic()
				require.NoError(t, s.RunEntry(t.Context(), entry))
				got, err := s.Float64s()
				require.NoError(t, err)
				for name, a := range want {
					m, err := runtime.Compare(got[name], a.Floats(), 0, 0)
					require.NoError(t, err)
					require.Less(t, m.RelL2, 1e-4, "step %d: %s", i, name)
					if name == "next_state_frames" {
						require.Equal(t, a.Floats(), got[name], "step %d: the warp is exact", i)
					}
					if state, ok := strings.CutPrefix(name, "next_"); ok {
						past[state] = append(past[state], a)
					}
				}
				if opt.Discrete && entry == "run" {
					require.Zero(t, d.Traffic().OnDevice-before.OnDevice-copied(r, entry), "step %d: what is copied on the device is in the launch list", i)
				}
			}
			whole, err := s.State("state_frames")
			require.NoError(t, err)
			require.Len(t, whole, 4*2*6*64*128)
			require.NoError(t, s.SetState("state_frames", make([]byte, len(whole))))
			require.ErrorContains(t, s.SetState("state_frames", make([]byte, 5)), `state "state_frames" has 98304 bytes, and 393216 of all 4 runs to come, got 5`)
			_, err = s.At("next_state_frames")
			require.ErrorContains(t, err, "whose place changes from run to run")
		})
	}
}

// copied are the bytes that copies of an entry move.
func copied(r *Result, entry string) (n int64) {
	for _, l := range r.Program.Variants[0].Entry(entry).Launches {
		if l.Copy != nil {
			n += int64(l.Copy.Bytes)
		}
	}
	return n
}

// stepInput is what a step is given: a state as it was kept, else random numbers.
func stepInput(rng *rand.Rand, g *ir.Graph, v *ir.Value, past map[string][]*ir.Array) *ir.Array {
	a := ir.NewArray(v.Type)
	if strings.HasPrefix(v.Name, "state_") {
		delay := max(1, v.Delay)
		if have := past[v.Name]; len(have) >= delay {
			return have[len(have)-delay]
		}
		return a
	}
	for i := range a.I {
		a.I[i] = rng.Int64N(256)
	}
	for i := range a.F {
		a.F[i] = float64(rng.IntN(2))
	}
	switch v.Name {
	case runtime.TransformsInput:
		copy(a.F, []float64{.4, .0125, -1, .01, .5, -3, 1. / 1024, 1. / 512, 1, .375, 0, .25, 0, .5, 0, 0, 0, 1})
	case runtime.CameraInput:
		copy(a.I, []int64{96, 64, 128, 128 * 64})
	}
	return a
}
