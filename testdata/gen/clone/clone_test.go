package clone

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// fitted is a policy of the default options, and its file.
var fitted = sync.OnceValues(func() (*Policy, error) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return Fit(context.Background(), d, Options{Seed: 1})
})

func file(t *testing.T) *onnx.Model {
	t.Helper()
	p, err := fitted()
	require.NoError(t, err)
	m, err := p.ONNX("clone.onnx")
	require.NoError(t, err)
	return m
}

func device(t *testing.T) hal.Device {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// TestONNX_ComputesWhatTheLayersDo for observations that it was not fitted to.
func TestONNX_ComputesWhatTheLayersDo(t *testing.T) {
	fulltest.Long(t)
	p, err := fitted()
	require.NoError(t, err)
	g, err := onnx.Import(file(t), onnx.ImportOptions{})
	require.NoError(t, err)
	for _, x := range p.Seen[:200] {
		in := ir.NewArray(g.Inputs[0].Type)
		copy(in.F, x)
		out, err := ir.Evaluate(t.Context(), g, map[string]*ir.Array{"observation": in}, ir.EvalOptions{})
		require.NoError(t, err)
		want := p.net.command(features(x), x)
		require.InDelta(t, want.curvature, out["action"].F[0], 1e-6)
		require.InDelta(t, want.accel, out["action"].F[1], 1e-5)
	}
}

// TestFit_Drives: on draws that it was not fitted to, the policy fails as seldom as the controller that it imitates,
// give or take two loops.
func TestFit_Drives(t *testing.T) {
	r := &scenario.Runner{Device: device(t)}
	var list []scenario.Scenario
	for _, f := range scenario.Families {
		for k := range 6 {
			s, err := f.Draw(77, k)
			require.NoError(t, err)
			s, err = s.With("duration", 20)
			require.NoError(t, err)
			list = append(list, s)
		}
	}
	pid, err := scenario.BuiltIn("pid")
	require.NoError(t, err)
	var failed [2]int
	for k, a := range []scenario.Algorithm{pid, &scenario.Policy{Name: "clone", ONNX: file(t)}} {
		out, err := r.RunBatch(t.Context(), list, a, 1, 77)
		require.NoError(t, err)
		for i := range out.Metrics {
			if out.Failed(i) {
				t.Logf("%s fails in %s %d", []string{"pid", "clone"}[k], list[i].Name, i%6)
				failed[k]++
			}
		}
	}
	require.LessOrEqual(t, failed[1], failed[0]+2)
}

// TestDamage_HasItsShare: of the norm of one layer's weights; nothing else differs.
func TestDamage_HasItsShare(t *testing.T) {
	m := file(t)
	damaged, err := Damage(m, Layers[1], .05, 1)
	require.NoError(t, err)
	changes, others, err := dora.Diff(m, damaged)
	require.NoError(t, err)
	require.Empty(t, others)
	for _, c := range changes {
		if c.Name == Layers[1] {
			require.InEpsilon(t, .05, c.Relative, 1e-3)
		} else {
			require.Zero(t, c.Relative, c.Name)
		}
	}
	_, err = Damage(m, "hidden", .05, 1)
	require.ErrorContains(t, err, `clone.onnx: no layer "hidden" to damage; there are hidden.0.weight, `+
		"hidden.1.weight, head.weight")
}
