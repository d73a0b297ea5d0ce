package generation_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestOf_RecognisesEachGeneration by what its files have.
func TestOf_RecognisesEachGeneration(t *testing.T) {
	for _, c := range []struct {
		name  string
		model generation.Model
	}{
		{"old", generation.Model{Inputs: []string{"input_imgs", "desire", "features_buffer"},
			Slices: []string{"plan", "desired_curvature"}, OneFile: true}},
		{"old", generation.Model{Inputs: []string{"img"}, Slices: []string{"action"}, FullRate: true}},
		{"curvature", generation.Model{Inputs: []string{"input_imgs", "desire", "features_buffer"},
			Slices: []string{"plan", "desired_curvature"}}},
		{"plan", generation.Model{Inputs: []string{"img", "desire_pulse"}, Slices: []string{"plan", "hidden_state"}}},
		{"action", generation.Model{Inputs: []string{"warped", "desire"},
			Slices: []string{"plan", "action"}, OneFile: true}},
		{"action", generation.Model{Inputs: []string{"img", "action_t"}, OneFile: true}},
		{"plan", generation.Model{}},
	} {
		require.Equal(t, c.name, generation.Of(c.model).Name, "%v", c.model)
	}
}

// TestRows_AreWhole: what every row must say, whatever its generation.
func TestRows_AreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, r := range generation.All() {
		t.Run(r.Name, func(t *testing.T) {
			require.False(t, names[r.Name], "twice")
			names[r.Name] = true
			require.Equal(t, r.Name, generation.Named(r.Name).Name)
			require.NotEmpty(t, r.Releases)
			if r.Kind == generation.Monitoring {
				require.NotNil(t, r.Face)
				require.Contains(t, []string{runtime.Nearest, runtime.Linear}, r.Face.Sampling)
				require.Equal(t, r.Face.Planes == 0, r.Face.Phases == nil)
				return
			}
			require.Equal(t, generation.Driving, r.Kind)
			require.NotEmpty(t, r.Marks)
			require.NotEmpty(t, r.Desires)
			require.Contains(t, []string{generation.MissedSkips, generation.MissedMovesDesires}, r.Missed)
			require.Positive(t, r.Commands.Lateral)
			for _, p := range r.Pictures {
				require.Equal(t, p.Sampling, generation.Sampling(p.Road), "of one name all generations sample alike")
				require.Equal(t, p.Sampling, generation.Sampling(p.Wide))
			}
			for _, name := range []string{generation.Plan, "lead", "meta", "lane_lines", generation.HiddenState} {
				require.True(t, slices.ContainsFunc(r.Slices, func(s generation.Slice) bool { return s.Name == name }), name)
			}
		})
	}
	require.Nil(t, generation.Named("unheard of"))
}

// TestForms_HaveTheLengthsOfMetadata: of output_slices that openpilot published.
func TestForms_HaveTheLengthsOfMetadata(t *testing.T) {
	for name, want := range map[string][]int{
		"plan": {990, 4955}, "lead": {102, 144}, "meta": {48, 55}, "lane_lines": {528}, "lane_lines_prob": {8},
		"road_edges": {264}, "lead_prob": {3},
		"pose": {12}, "road_transform": {12}, "wide_from_device_euler": {6}, "desire_state": {8},
		"desire_pred": {32}, "desired_curvature": {2},
		"action": {2}, "face_descs_lhd": nil,
	} {
		var got []int
		for _, f := range generation.Forms(generation.Driving, name) {
			got = append(got, f.Len())
		}
		require.Equal(t, want, got, name)
	}
	require.Equal(t, 12, generation.Forms(generation.Monitoring, "face_descs_lhd")[0].Len())
	require.Equal(t, []int{596, 39}, generation.SeatTotals())
	for _, length := range []int{48, 55} {
		m := generation.MetaOf(length)
		require.Equal(t, length, m.Len)
		for _, s := range []generation.Series{m.GasPress, m.BrakePress, m.Left, m.Right} {
			require.Less(t, s.From+max(0, s.Len-1)*s.Stride, length)
		}
	}
}

// TestVectors_AreWhatModeldTells: by hand, from modeld of each release.
func TestVectors_AreWhatModeldTells(t *testing.T) {
	car := generation.Car{RightHandDrive: true, Speed: -.5, LateralDelay: .25, LongitudinalDelay: .5}
	for name, want := range map[string][]float64{"old": {-.5, .45}, "curvature": {0, .25}} {
		v, ok := generation.Named(name).Vector("lateral_control_params")
		require.True(t, ok)
		require.Equal(t, want, v.Values(car), name)
	}
	v, _ := generation.Named("action").Vector("action_t")
	require.InDeltaSlice(t, []float64{.325, .575}, v.Values(car), 1e-15)
	v, _ = generation.Named("plan").Vector("traffic_convention")
	require.Equal(t, []float64{0, 1}, v.Values(car))
	_, ok := generation.Named("plan").Vector("unheard of")
	require.False(t, ok)
	require.Equal(t, []string{"traffic_convention", "lateral_control_params", "action_t"}, generation.VectorInputs())
}

// TestSample_LooksAtTheMiddle of the picture, where a camera that is mounted straight has its axis.
func TestSample_LooksAtTheMiddle(t *testing.T) {
	l := &runtime.Loop{Kind: generation.Driving, Frames: []string{"frame", "big_frame"},
		Largest: generation.Largest(), Width: 512, Height: 256}
	transforms, camera := generation.Sample(l)
	require.Equal(t, []int32{1928, 1208, 2048, 2048 * 1216}, camera)
	for i, y := range []float32{47.6, 151.8} {
		m := transforms[9*i:]
		require.InDelta(t, 964, m[0]*256+m[2], 1e-3)
		require.InDelta(t, 604, m[4]*y+m[5], 1e-3)
	}
	require.InDelta(t, 2648./910, transforms[0], 1e-6)
}
