package modeld

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

// lengths of the named parts, of models of today.
var lengths = map[string]int{
	"plan": 990, "lane_lines": 528, "lane_lines_prob": 8, "road_edges": 264, "lead": 144, "lead_prob": 3, "meta": 55, "pose": 12,
	"road_transform": 12, "wide_from_device_euler": 6, "desire_state": 8, "desire_pred": 32, "desired_curvature": 2, "action": 2,
	"hidden_state": 512,
}

// older are those of models that had other ones.
var older = map[string]int{"plan": 4955, "lead": 102, "meta": 48}

// pack makes a vector of parts, one after the other.
func pack(parts arrays) (v vector) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		v.slices = append(v.slices, runtime.Slice{Name: name, Start: len(v.values), Stop: len(v.values) + len(parts[name])})
		v.values = append(v.values, parts[name]...)
	}
	return v
}

// flat lists outputs as the twin names them.
func flat(out *Outputs) arrays {
	a := arrays{}
	add := func(name string, values ...float64) { a[name] = append(a[name], values...) }
	if p := out.Plan; p != nil {
		for _, h := range append([]Plan{*p}, p.Others...) {
			add("plan_weights", h.Probability)
			for i := range Points {
				for _, c := range [][3]float64{h.Position[i], h.Velocity[i], h.Acceleration[i], h.Orientation[i], h.OrientationRate[i]} {
					add("plan", c[:]...)
				}
				for _, c := range [][3]float64{h.PositionStd[i], h.VelocityStd[i], h.AccelerationStd[i], h.OrientationStd[i], h.OrientationRateStd[i]} {
					add("plan_stds", c[:]...)
				}
			}
		}
	}
	for name, lines := range map[string][]Line{"lane_lines": out.LaneLines, "road_edges": out.RoadEdges} {
		for _, l := range lines {
			for i := range Points {
				add(name, l.Y[i], l.Z[i])
				add(name+"_stds", l.YStd[i], l.ZStd[i])
			}
		}
	}
	for _, l := range out.LaneLines {
		add("lane_lines_prob", l.Probability)
	}
	for _, l := range out.Leads {
		add("lead_prob", l.Probability)
		add("lead_choice", float64(l.Hypothesis))
		add("lead_weights", l.HypothesisProbability)
		for i := range LeadPoints {
			add("lead", l.X[i], l.Y[i], l.V[i], l.A[i])
			add("lead_stds", l.XStd[i], l.YStd[i], l.VStd[i], l.AStd[i])
		}
	}
	if m := out.Meta; m != nil {
		add("engaged", m.Engaged)
		for name, p := range map[string][5]float64{
			"gas": m.GasDisengage, "brake": m.BrakeDisengage, "steer": m.SteerDisengage, "brake3": m.Brake3, "brake4": m.Brake4, "brake5": m.Brake5,
		} {
			add(name, p[:]...)
		}
		for name, p := range map[string][]float64{
			"gas_press": m.GasPress, "brake_press": m.BrakePress, "left_blinker": m.LeftBlinker, "right_blinker": m.RightBlinker,
		} {
			if p != nil {
				add(name, p...)
			}
		}
	}
	for name, p := range map[string]*Pose{"pose": out.Pose, "road_transform": out.RoadTransform} {
		if p != nil {
			add(name, slices.Concat(p.Translation[:], p.Rotation[:])...)
			add(name+"_stds", slices.Concat(p.TranslationStd[:], p.RotationStd[:])...)
		}
	}
	if e := out.WideFromDevice; e != nil {
		add("wide_from_device_euler", e.Angles[:]...)
		add("wide_from_device_euler_stds", e.Std[:]...)
	}
	if n := out.DesiredCurvature; n != nil {
		add("desired_curvature", n.Value)
		add("desired_curvature_stds", n.Std)
	}
	for name, p := range map[string][]float64{
		"desire_state": out.DesireState, "desire_pred": slices.Concat(out.DesirePrediction...), "action": out.Action, "hidden_state": out.HiddenState,
	} {
		if p != nil {
			add(name, p...)
		}
	}
	return a
}

// randomParts of an openpilot model: logits far beyond where exponents are clipped, of which many are equal.
func randomParts(r *rand.Rand, lengths map[string]int) arrays {
	parts := arrays{}
	for name, n := range lengths {
		for range n {
			parts[name] = append(parts[name], math.Round(r.NormFloat64()*24)/3)
		}
	}
	return parts
}

func TestOutputsAreTheTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 1))
	for _, command := range []string{"parse", "parse-older"} {
		in, got := arrays{}, arrays{}
		for i := range 12 {
			n := maps.Clone(lengths)
			for name, length := range older {
				if r.IntN(2) == 0 {
					n[name] = length
				}
			}
			if i > 8 { // a vision model or a policy alone
				for _, name := range []string{"plan", "action", "meta", "desired_curvature", "pose"}[:1+r.IntN(5)] {
					delete(n, name)
				}
			}
			parts := randomParts(r, n)
			switch i {
			case 0, 1: // ties
				n["plan"], n["lead"] = 4955, 102
				parts = randomParts(r, n)
				for h, weight := range []float64{2, 5, 2, 5, -900} {
					parts["plan"][991*(h+1)-1] = weight
				}
				copy(parts["lead"][48:], []float64{1, 2, 3})
				copy(parts["lead"][51+48:], []float64{1, 3, 2})
			case 2: // not numbers
				for _, part := range parts {
					part[r.IntN(len(part))] = math.NaN()
					part[r.IntN(len(part))] = math.Inf(1 - 2*r.IntN(2))
				}
			}
			for name, part := range parts {
				in[fmt.Sprintf("%d.%s", i, name)] = part
			}
			out, err := parseOutputs([]vector{pack(parts)}, generation.Named(map[string]string{"parse": "plan", "parse-older": "old"}[command]))
			require.NoError(t, err)
			for name, values := range flat(out) {
				got[fmt.Sprintf("%d.%s", i, name)] = values
			}
		}
		same(t, twin(t, command, in, 0), got)
	}
}

func TestLaterVectorsCountButHiddenStateIsVisions(t *testing.T) {
	vision := pack(arrays{"desire_state": make([]float64, 8), "hidden_state": {1, 2}, "pad": {0}})
	policy := pack(arrays{"desire_state": {9, 0, 0, 0, 0, 0, 0, 0}, "hidden_state": {3}, "pad": {1, 2}})
	out, err := parseOutputs([]vector{vision, policy}, generation.Named("plan"))
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2}, out.HiddenState)
	require.Greater(t, out.DesireState[0], .9)
	require.Equal(t, &Outputs{HiddenState: out.HiddenState, DesireState: out.DesireState}, out, "what the model lacks")
}

func TestFigures(t *testing.T) {
	p, older := parser{row: generation.Named("plan")}, parser{row: generation.Named("old")}
	require.InDeltaSlice(t, []float64{.090031, .244728, .665241}, softmax([]float64{1, 2, 3}), 5e-7)
	require.InDelta(t, 59874.1417, p.exp(12), 5e-5)
	require.InEpsilon(t, math.Exp(12), older.exp(12), 1e-15)
	require.InDelta(t, 1.670142e-5, p.sigmoid(-12), 5e-12)
	require.InEpsilon(t, math.Exp(-12), older.sigmoid(-12), 1e-5)

	x := make([]float64, 4955)
	for h, weight := range []float64{2, 1, 4, 0, 3} {
		x[991*h], x[991*h+990] = float64(h), weight
	}
	plan := p.plan(x)
	require.InDelta(t, .636409, plan.Probability, 5e-7)
	order := []float64{plan.Position[0][0]}
	for _, other := range plan.Others {
		order = append(order, other.Position[0][0])
	}
	require.Equal(t, []float64{2, 4, 0, 1, 3}, order)

	times, distances := TIndex(), XIndex()
	require.InDeltaSlice(t, []float64{0, .00976562, .0390625, 9.38476562, 10}, []float64{times[0], times[1], times[2], times[31], times[32]}, 1e-8)
	require.InDeltaSlice(t, []float64{0, .1875, .75, 180.1875, 192}, []float64{distances[0], distances[1], distances[2], distances[31], distances[32]}, 1e-8)
}

func TestOutputOfAnotherLengthIsNamed(t *testing.T) {
	want := map[string]string{
		"plan": "990 or 4955", "lane_lines": "528", "lane_lines_prob": "8", "road_edges": "264", "lead": "102 or 144", "lead_prob": "3",
		"meta": "48 or 55", "pose": "12", "road_transform": "12", "wide_from_device_euler": "6", "desire_state": "8", "desire_pred": "32",
		"desired_curvature": "2", "action": "2",
	}
	for name := range lengths {
		if name == "hidden_state" { // tests have small ones
			continue
		}
		_, err := parseOutputs([]vector{pack(arrays{name: {1}})}, generation.Named("plan"))
		require.EqualError(t, err, fmt.Sprintf("output slice %q has 1 values: a model of openpilot's has %s there", name, want[name]))
	}
	_, err := parseOutputs([]vector{{make([]float64, 4), []runtime.Slice{{Name: "pose", Start: 1, Stop: 13}}}}, generation.Named("plan"))
	require.EqualError(t, err, `output slice "pose" is 1 to 13 of a vector of 4 values: the model's output_slices do not fit its output`)
}
