package scenario

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// policyFile is a file of a policy.
func policyFile(t *testing.T, write func(b *onnx.Builder)) *onnx.Model {
	t.Helper()
	b := onnx.NewBuilder("policy", 17)
	write(b)
	m, err := b.Model()
	require.NoError(t, err)
	data, err := m.Marshal()
	require.NoError(t, err)
	if m, err = onnx.Decode("policy.onnx", data); err != nil {
		t.Fatal(err)
	}
	return m
}

func weight(b *onnx.Builder, name string, of func(i int) float64, shape ...int) string {
	t := ir.T(ir.Float32, shape...)
	x := make([]float64, t.Numel())
	for i := range x {
		x[i] = of(i)
	}
	return b.Initializer(name, ir.FromFloats(t, x))
}

// straight is the feedforward controller with an integrator as ONNX, as far as that is linear: curvature is road1 less
// a share of the sum of offsets that it keeps, acceleration half of what is missing to cruise.
func straight(batch any) func(b *onnx.Builder) {
	return func(b *onnx.Builder) {
		k := len(Observations)
		b.Input("observation", ir.Float32, batch, k)
		b.Input("state_sum", ir.Float32, batch, 1)
		entry := func(column int, by map[string]float64) func(int) float64 {
			return func(i int) float64 {
				if i%2 != column {
					return 0
				}
				return by[Observations[i/2].Name]
			}
		}
		road, speed := entry(0, map[string]float64{"road1": 1}), entry(1, map[string]float64{"cruise": .5, "speed": -.5})
		w := weight(b, "w", func(i int) float64 { return road(i) + speed(i) }, k, 2)
		pick := weight(b, "pick", func(i int) float64 {
			if Observations[i].Name == "offset" {
				return Step
			}
			return 0
		}, k, 1)
		back := weight(b, "back", func(i int) float64 { return []float64{-1e-3, 0}[i] }, 1, 2)
		offset := b.Op("MatMul", []string{"observation", pick})
		b.Node("Add", []string{"state_sum", offset}, []string{"next_state_sum"})
		direct := b.Op("MatMul", []string{"observation", w})
		b.Node("Add", []string{direct, b.Op("MatMul", []string{"next_state_sum", back})}, []string{"action"})
		b.Output("action", ir.Float32, batch, 2)
		b.Output("next_state_sum", ir.Float32, batch, 1)
	}
}

// TestPolicy_DrivesAsACallback that computes the same in Go does: observations in their order, commands, states of each
// loop from zero on; whether the file leaves its batch open or computes one loop at a time.
func TestPolicy_DrivesAsACallback(t *testing.T) {
	fulltest.Long(t)
	for name, batch := range map[string]any{"open": "N", "one": 1, "controls": "N"} {
		r := &Runner{Device: device(t)}
		list := drawn(rand.New(rand.NewPCG(21, 22)), 9)
		if name == "controls" {
			r.Tier, list = Controls, asking(rand.New(rand.NewPCG(21, 22)), 9)
		}
		for i := range list {
			list[i].Values[paramRow("duration")] = 1.5
		}
		sums := map[int][]float64{}
		call := 0
		same := &Callback{Name: "go", Act: func(_ context.Context, step int, seen, commands [][]float32) error {
			if step == 0 {
				call++
				sums[call] = make([]float64, len(seen[0]))
			}
			at := func(name string, i int) float64 { return float64(seen[observed(name)][i]) }
			for i := range commands[0] {
				sums[call][i] += Step * at("offset", i)
				commands[0][i] = float32(at("road1", i) - 1e-3*sums[call][i])
				commands[1][i] = float32(.5 * (at("cruise", i) - at("speed", i)))
			}
			return nil
		}}
		want, err := r.RunBatch(t.Context(), list, same, 2, 9)
		require.NoError(t, err)
		p := &Policy{Name: name, ONNX: policyFile(t, straight(batch))}
		got, err := r.RunBatch(t.Context(), list, p, 2, 9)
		require.NoError(t, err)
		require.Equal(t, want.Steps, got.Steps)
		for i := range want.Metrics {
			for k, m := range r.Tier.Metrics() {
				x, y := want.Metrics[i][k], got.Metrics[i][k]
				require.InDelta(t, x, y, 2e-4*max(1, math.Abs(x)), "loop %d: %s", i, m.Name)
			}
		}
	}
}

// perceptron is a policy of two hidden layers with random weights, which drives badly but differently in each state.
func perceptron(b *onnx.Builder) {
	rng := rand.New(rand.NewPCG(1, 2))
	k := len(Observations)
	b.Input("observation", ir.Float32, "N", k)
	x := b.Op("Mul", []string{"observation", weight(b, "scale", func(i int) float64 {
		return []float64{.03, .04, .3, .5, 5, 50, 50, 50, 50, 50, .001, .04, 1, .04, 5}[i]
	}, k)})
	for i, n := range []int{48, 48} {
		in := []int{k, 48}[i]
		w := weight(b, fmt.Sprint("w", i), func(int) float64 { return rng.NormFloat64() / math.Sqrt(float64(in)) }, in, n)
		x = b.Op("Tanh", []string{b.Op("MatMul", []string{x, w})})
	}
	w := weight(b, "head", func(i int) float64 { return []float64{.01, 1}[i%2] * rng.NormFloat64() / 7 }, 48, 2)
	b.Node("MatMul", []string{x, w}, []string{"action"})
	b.Output("action", ir.Float32, "N", 2)
}

// TestPolicy_HasTheSameBitsInAnyCompany: in each precision a loop depends neither on its place in a batch nor on
// the other loops, and the checks of the CPU device pass.
func TestPolicy_HasTheSameBitsInAnyCompany(t *testing.T) {
	fulltest.Long(t)
	m := policyFile(t, perceptron)
	list := drawn(rand.New(rand.NewPCG(3, 4)), 5)
	for i := range list {
		list[i].Values[paramRow("duration")] = 0.2
	}
	d := device(t)
	checked, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer checked.Close()
	var wide [][]float64
	for _, precision := range []string{"fp32", "fp16", "bf16"} {
		p := &Policy{Name: precision, ONNX: m, Precision: precision}
		want, err := (&Runner{Device: d}).RunBatch(t.Context(), list, p, 3, 5)
		require.NoError(t, err)
		more, err := (&Runner{Device: d}).RunBatch(t.Context(), list, p, 60, 5) // loops at other places of two batches
		require.NoError(t, err)
		for i, row := range want.Metrics {
			require.Equal(t, row, more.Metrics[i/3*60+i%3], "%s: loop %d", precision, i)
		}
		if precision != "bf16" {
			slow, err := (&Runner{Device: checked}).RunBatch(t.Context(), list, p, 3, 5)
			require.NoError(t, err)
			require.Equal(t, want.Metrics, slow.Metrics)
		}
		if wide == nil {
			wide = want.Metrics
		} else {
			require.NotEqual(t, wide, want.Metrics, "%s is another precision", precision)
		}
	}
}

// TestPolicy_IsTakenByPtxas, for every target, without spills.
func TestPolicy_IsTakenByPtxas(t *testing.T) {
	fulltest.Long(t)
	for _, precision := range []string{"fp32", "fp16"} {
		n, err := (&Policy{ONNX: policyFile(t, perceptron), Precision: precision}).load(policyLoops)
		require.NoError(t, err)
		assemble(t, &design{loops: policyLoops, float: ir.Float32, policy: n})
	}
}

// TestPolicy_ThatIsNotFiniteIsMarked as diverged.
func TestPolicy_ThatIsNotFiniteIsMarked(t *testing.T) {
	m := policyFile(t, func(b *onnx.Builder) {
		k := len(Observations)
		b.Input("observation", ir.Float32, "N", k)
		w := weight(b, "w", func(i int) float64 { return -float64(i % 2) }, k, 2)
		root := b.Op("Sqrt", []string{b.Op("MatMul", []string{"observation", w})}) // of a negative number
		b.Node("Identity", []string{root}, []string{"action"})
		b.Output("action", ir.Float32, "N", 2)
	})
	r := &Runner{Device: device(t)}
	out, err := r.RunBatch(t.Context(), []Scenario{Default("plain")}, &Policy{Name: "nan", ONNX: m}, 1, 1)
	require.NoError(t, err)
	require.Equal(t, 1.0, metric(t, out, 0, "diverged"))
}

// TestPolicy_OfAnotherContractIsRefused, by file, what is missing or too much, and what to give.
func TestPolicy_OfAnotherContractIsRefused(t *testing.T) {
	r := &Runner{Device: device(t)}
	k := len(Observations)
	file := func(input string, columns int, output string, extra ...string) *onnx.Model {
		return policyFile(t, func(b *onnx.Builder) {
			b.Input(input, ir.Float32, "N", columns)
			for _, x := range extra {
				b.Input(x, ir.Float32, "N", 3)
			}
			y := b.Op("MatMul", []string{input, weight(b, "w", func(int) float64 { return 0 }, columns, 2)})
			for _, x := range extra {
				y = b.Op("Add", []string{y, b.Op("MatMul", []string{x, weight(b, "w_"+x, func(int) float64 { return 0 }, 3, 2)})})
			}
			b.Node("Identity", []string{y}, []string{output})
			b.Output(output, ir.Float32, "N", 2)
		})
	}
	for want, p := range map[string]*Policy{
		`algorithm "none": there is no policy`: {Name: "none"},
		"policy.onnx: it is no policy of a simulated loop: input observation, output action missing; " +
			"nothing in a loop feeds input x; its inputs are x, its outputs y; give a file with input observation": {
			ONNX: file("x", k, "y")},
		"nothing in a loop feeds input weather; its inputs are": {ONNX: file("observation", k, "action", "weather")},
		"output next_state_h missing":                           {ONNX: file("observation", k, "action", "state_h")},
		fmt.Sprintf("observation is f32[256,12] for 256 loops, which must be f32[256,%d]", k): {
			ONNX: file("observation", 12, "action")},
		`precision "fp17"`: {Precision: "fp17", ONNX: file("observation", k, "action")},
	} {
		_, err := r.RunBatch(t.Context(), []Scenario{Default("plain")}, p, 1, 1)
		require.ErrorContains(t, err, want)
	}
}

// TestPolicy_NamesTheSameErrorEachTime where neither the observation nor the action is right.
func TestPolicy_NamesTheSameErrorEachTime(t *testing.T) {
	g := ir.NewGraph("policy")
	g.AddInput("observation", ir.T(ir.Float32, policyLoops, 3))
	for range 20 {
		require.ErrorContains(t, (&Policy{Name: "p", ONNX: &onnx.Model{}}).types(g, policyLoops), "observation is f32[256,3]")
	}
}
