package tinyphysics

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// published is the directory with comma's network and drives through it by ONNX Runtime (its README says how they were
// made).
const published = "../../../../shared/peers/controls"

// golden are drives through the published network and what they did.
func golden(t testing.TB) (*onnx.Model, Drives, *Result) {
	t.Helper()
	path := filepath.Join(published, "golden_1.npz")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing: comma's network is not part of this project", path)
	}
	m, err := onnx.Load(filepath.Join(published, "tinyphysics.onnx"))
	require.NoError(t, err)
	arrays, err := npy.ReadZip(path)
	require.NoError(t, err)
	flat := func(name string) []float64 {
		x, err := arrays[name].Float64s()
		require.NoError(t, err)
		return x
	}
	rows := func(name string) [][]float64 {
		return slices.Collect(slices.Chunk(flat(name), arrays[name].Shape[1]))
	}
	d := Drives{rows("roll"), rows("v"), rows("a"), rows("target"), rows("steer_log"), rows("uniform")}
	r := &Result{Steer: rows("steer"), Lataccel: rows("lataccel"), LataccelCost: flat("lataccel_cost"),
		JerkCost: flat("jerk_cost"), TotalCost: flat("total_cost")}
	for _, drive := range rows("token") {
		tokens := make([]int64, len(drive))
		for i, x := range drive {
			tokens[i] = int64(x)
		}
		r.Token = append(r.Token, tokens)
	}
	return m, d, r
}

// open compiles a network and loads it on a CPU device.
func open(t testing.TB, m *onnx.Model, opt Options) *Vehicle {
	t.Helper()
	r, err := Compile(t.Context(), m, opt)
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	v, err := Open(t.Context(), r.Program, d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// first are the first rows of the first drives.
func (d Drives) first(n, rows int) Drives {
	s := func(x [][]float64) (cut [][]float64) {
		for _, drive := range x[:n] {
			cut = append(cut, drive[:rows])
		}
		return cut
	}
	return Drives{s(d.Roll), s(d.V), s(d.A), s(d.Target), s(d.SteerLog), s(d.Uniform)}
}

// TestRollout_FollowsThePublishedDrives compares drives with those of ONNX Runtime. All tokens are equal: of 4,320 draws
// in 8 whole drives, 3 have a uniform number within 1e-5 of a cumulative probability, none within 1e-6. Trajectories and
// costs are equal to 1e-4. make test runs the first rows of two drives, before costs are final.
func TestRollout_FollowsThePublishedDrives(t *testing.T) {
	m, drives, want := golden(t)
	whole := fulltest.Runs(t.Name())
	if !whole {
		drives = drives.first(2, 130)
	}
	n, rows := len(drives.Target), len(drives.Target[0])
	v := open(t, m, Options{Batch: n})
	got, err := v.Rollout(t.Context(), drives)
	require.NoError(t, err)
	for i := range n {
		if first := differs(got.Token[i], want.Token[i][:rows]); first >= 0 {
			t.Errorf("drive %d: token %d in row %d, want %d", i, got.Token[i][first], first, want.Token[i][first])
			continue
		}
		for row := range rows {
			at := fmt.Sprintf("drive %d, row %d", i, row)
			require.InDelta(t, want.Steer[i][row], got.Steer[i][row], 1e-4, at)
			require.InDelta(t, want.Lataccel[i][row], got.Lataccel[i][row], 1e-4, at)
		}
		if !whole {
			continue
		}
		for _, cost := range [][2]float64{{want.LataccelCost[i], got.LataccelCost[i]}, {want.JerkCost[i], got.JerkCost[i]},
			{want.TotalCost[i], got.TotalCost[i]}} {
			require.InDelta(t, cost[0], cost[1], 1e-4*math.Max(1, cost[0]))
		}
	}
}

// differs is the first place where tokens differ, or -1.
func differs(a, b []int64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
