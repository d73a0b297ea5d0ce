package driving

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

func imported(t *testing.T, name string, d ir.DType) (*Model, *ir.Graph) {
	t.Helper()
	m, err := MakeIn(name, Tiny, d)
	require.NoError(t, err)
	g, err := onnx.Import(decode(t, m), onnx.ImportOptions{})
	require.NoError(t, err)
	return m, g
}

// Shapes and slices as the metadata of openpilot's releases has them, where they do not depend on the size.
func TestContracts(t *testing.T) {
	const f = 32 // features of tiny models
	for name, want := range map[string]struct {
		inputs map[string][]int
		size   int
		slices map[string][2]int
	}{
		"vision010": {map[string][]int{"input_imgs": {1, 12, 32, 64}, "big_input_imgs": {1, 12, 32, 64}}, 1536 - 512 + f,
			map[string][2]int{"lead": {917, 1019}, "lead_prob": {1019, 1022}, "hidden_state": {1022, 1022 + f}, "pad": {1022 + f, 1024 + f}}},
		"policy010": {map[string][]int{"desire": {1, 25, 8}, "traffic_convention": {1, 2}, "lateral_control_params": {1, 2},
			"prev_desired_curv": {1, 25, 1}, "features_buffer": {1, 25, f}}, 4968,
			map[string][2]int{"plan": {0, 4955}, "desire_state": {4955, 4963}, "desired_curvature": {4963, 4965}, "pad": {4965, 4968}}},
		"supercombo097": {map[string][]int{"input_imgs": {1, 12, 32, 64}, "big_input_imgs": {1, 12, 32, 64}, "desire": {1, 25, 8},
			"traffic_convention": {1, 2}, "lateral_control_params": {1, 2}, "prev_desired_curv": {1, 25, 1}, "features_buffer": {1, 24, f}},
			6500 - 512 + f, map[string][2]int{"lane_lines": {4955, 5483}, "meta": {5868, 5923}, "desired_curvature": {5985, 5987},
				"hidden_state": {5987, 5987 + f}}},
		"supercombo096": {map[string][]int{"desire": {1, 100, 8}, "prev_desired_curv": {1, 100, 1}, "features_buffer": {1, 99, f}},
			6500 - 512 + f, map[string][2]int{"plan": {0, 4955}}},
		"driving_supercombo": {map[string][]int{"img": {1, 12, 32, 64}, "big_img": {1, 12, 32, 64}, "desire_pulse": {1, 25, 8},
			"traffic_convention": {1, 2}, "action_t": {1, 2}, "features_buffer": {1, 24, f}}, 1064 + f + 1002,
			map[string][2]int{"lead": {917, 1061}, "hidden_state": {1064, 1064 + f}, "plan": {1064 + f, 2054 + f},
				"action": {2062 + f, 2064 + f}}},
		"supercombo_history": {map[string][]int{"warped": {2, 6, 32, 64}, "desire": {8}, "state_img_q": {5, 6, 32, 64},
			"state_desire_q": {100, 1, 8}, "state_feat_q": {96, 1, f}, "state_prev_feat": {1, f}}, 1064 + f + 1002,
			map[string][2]int{"action": {2062 + f, 2064 + f}}},
		"dmonitoring_luma": {map[string][]int{"input_img": {1, 96 * 64}, "calib": {1, 3}}, 551, map[string][2]int{"face_descs_lhd": {0, 12},
			"face_prob_rhd": {31, 32}, "using_phone_prob_rhd": {37, 38}, "wheel_on_right": {38, 39}, "features": {39, 551}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, g := imported(t, name, ir.Float16)
			shapes := map[string][]int{}
			for _, in := range m.Inputs {
				shapes[in.Name] = in.Type.Shape
			}
			for in, shape := range want.inputs {
				require.Equal(t, shape, shapes[in], in)
			}
			require.Equal(t, "outputs", g.Outputs[0].Name)
			slices, err := decode(t, m).OutputSlices(want.size)
			require.NoError(t, err)
			require.Equal(t, want.size, slices[len(slices)-1].End)
			end := 0
			for _, s := range slices {
				require.Equal(t, end, s.Start, s.Name)
				end = s.End
				if w, ok := want.slices[s.Name]; ok {
					require.Equal(t, w, [2]int{s.Start, s.End}, s.Name)
					delete(want.slices, s.Name)
				}
			}
			require.Empty(t, want.slices)

			_, a := evaluate(t, m, g, 1)
			_, b := evaluate(t, m, g, 2)
			x, y := a["outputs"].Floats(), b["outputs"].Floats()
			require.Len(t, x, want.size)
			deviation, correlation := compare(x, y)
			require.Greater(t, deviation, .2)
			require.Less(t, deviation, 5.)
			require.Less(t, correlation, .9)
		})
	}
}

// TestQueuesInTheGraph: each queue drops its oldest and takes the newest at its end.
func TestQueuesInTheGraph(t *testing.T) {
	m, g := imported(t, "supercombo_history", ir.Float32)
	in, out := evaluate(t, m, g, 1)
	numbers := func(name string) []float64 { return in[name].Array().Floats() }
	plane := 6 * 32 * 64
	for queue, newest := range map[string][]float64{"img_q": numbers("warped")[:plane], "big_img_q": numbers("warped")[plane:],
		"desire_q": numbers("desire"), "feat_q": numbers("state_prev_feat")} {
		want := append(numbers("state_" + queue)[len(newest):], newest...)
		require.Equal(t, want, out["next_state_"+queue].Floats(), queue)
	}
	require.Equal(t, out["outputs"].Floats()[1064:1064+32], out["next_state_prev_feat"].Floats())
}

// TestCurvatureFedBackStays in a range over 200 steps in which nothing else changes.
func TestCurvatureFedBackStays(t *testing.T) {
	m, g := imported(t, "policy010", ir.Float32)
	in := map[string]*ir.Array{}
	for _, i := range m.Inputs {
		in[i.Name] = i.Draw(1).Array()
	}
	history := make([]float64, 25)
	for range 200 {
		in["prev_desired_curv"] = ir.FromFloats(ir.T(ir.Float32, 1, 25, 1), history).Array()
		out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		curvature := out["outputs"].Floats()[4963]
		require.Less(t, curvature*curvature, 25.)
		history = append(history[1:], curvature)
	}
}

// TestTinyModelsAreTiny: loops of 200 runs of a vision model and a policy take seconds.
func TestTinyModelsAreTiny(t *testing.T) {
	var macs int64
	for _, name := range []string{"vision", "policy"} {
		m, g := imported(t, name, ir.Float16)
		macs += m.MACs
		start := time.Now()
		evaluate(t, m, g, 1)
		t.Logf("%s: %d multiply-adds, %s", name, m.MACs, time.Since(start))
	}
	require.Less(t, macs, int64(8e6))
}
