package keeper

import (
	"context"
	"iter"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	drawing "github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// filmed is a drive in the middle of the lane of a road, a frame each metre, by cameras of a comma 3X.
func filmed(on drawing.Road, metres int) *scenario.Recording {
	road, wide := drawing.Cameras(1)
	r := &scenario.Recording{Name: "drawn"}
	c := modeld.Calibration{Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}
	for i := range metres {
		r.Poses = append(r.Poses, scenario.Pose{Station: float64(i), Calibration: c})
	}
	r.Frames = func(context.Context) iter.Seq2[modeld.Frame, error] {
		return func(yield func(modeld.Frame, error) bool) {
			for i := range metres {
				s := on.Scene(float64(i), 0, 0)
				one, other := road.See(s, [3]float64{}), wide.See(s, [3]float64{})
				if !yield(modeld.Frame{Road: modeld.Picture(one), Wide: modeld.Picture(other)}, nil) {
					return
				}
			}
		}
	}
	return r
}

// TestKeeper_ReturnsToTheMiddleOfARecording: from beside the middle of the lane, where no frame was recorded, the model
// comes back as it does by pictures that are drawn from where it is.
func TestKeeper_ReturnsToTheMiddleOfARecording(t *testing.T) {
	fulltest.Long(t)
	m, err := Fitted()
	require.NoError(t, err)
	file, err := m.ONNX()
	require.NoError(t, err)
	var list []scenario.Scenario
	for _, offset := range []float64{-.8, -.4, 0, .4, .8} {
		s := scenario.Default("bend")
		for name, x := range map[string]float64{"curvature": .002, "curve_start": 30, "curve_ramp": 40, "curve_length": 80,
			"speed": 20, "cruise": 20, "offset": offset, "duration": 10} {
			s, err = s.With(name, x)
			require.NoError(t, err)
		}
		list = append(list, s)
	}
	s := list[0]
	curvature := func(x float64) float64 { // as the parameters say
		share := func(from float64) float64 { return min(max((x-from)/s.Get("curve_ramp"), 0), 1) }
		end := s.Get("curve_start") + s.Get("curve_ramp") + s.Get("curve_length")
		return s.Get("curvature") * (share(s.Get("curve_start")) - share(end))
	}
	run := &scenario.Runner{Device: device(t)}
	models := &scenario.Models{Name: "keeper", ONNX: []*onnx.Model{file}}
	_, drawn, err := run.Record(t.Context(), list, models, 1)
	require.NoError(t, err)
	run.Recording = filmed(drawing.Road{Lane: s.Get("lane_width"), Curvature: curvature}, 220)
	out, seen, err := run.Record(t.Context(), list, models, 1)
	require.NoError(t, err)
	offset := seen[0].Column("offset")
	left := slices.IndexFunc(scenario.Metrics, func(m scenario.Metric) bool { return m.Name == "left_corridor" })
	for i, s := range list {
		a, b := drawn[i].Rows, seen[i].Rows
		require.Equal(t, len(a), len(b))
		require.Zero(t, out.Metrics[i][left])
		worst, sum := 0.0, 0.0
		for k := range a {
			e := math.Abs(a[k][offset] - b[k][offset])
			worst, sum = max(worst, e), sum+float64(e*e)
		}
		last := b[len(b)-1][offset]
		t.Logf("from %5.2f m: at the end %5.2f m, drawn %5.2f m; apart by %.3f m at most, %.3f m root mean square",
			s.Get("offset"), last, a[len(a)-1][offset], worst, math.Sqrt(sum/float64(len(a))))
		require.Less(t, math.Abs(last), .25)
		require.Less(t, worst, .19)
	}
}
