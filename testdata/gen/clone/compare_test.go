package clone

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/bench/scenario/stats"
	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/dora/train"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// What comparisons are judged by: chosen on seed 501, used on others.
var primary = []string{"collision", "out_of_lane", "disengaged", "offset_mean", "offset_max"}

const tolerance = .01

// trial is the ground on which two policies are compared: draws of testdata/noisy.yaml, each scenario as often.
type trial struct {
	r       *scenario.Runner
	n       int
	seconds float64                                   // that loops last at most; 0: as the file says
	change  func(scenario.Scenario) scenario.Scenario // of every loop; nil: none
	only    string                                    // scenario; "": all
}

// loops are what a seed draws.
func (x *trial) loops(t *testing.T, seed uint64) (out []scenario.Scenario) {
	t.Helper()
	list, err := scenario.ReadFile("testdata/noisy.yaml")
	require.NoError(t, err)
	for i := range list {
		for k := range x.n {
			s, err := list[i].Draw(seed, k)
			require.NoError(t, err)
			if x.seconds > 0 {
				s, err = s.With("duration", min(x.seconds, s.Get("duration")))
				require.NoError(t, err)
			}
			if x.only == "" || x.only == s.Name {
				out = append(out, s)
			}
		}
	}
	return out
}

// drive is how a policy drives what a seed draws.
func (x *trial) drive(t *testing.T, m *onnx.Model, precision string, seed uint64) [][]float64 {
	t.Helper()
	loops := x.loops(t, seed)
	if x.change != nil {
		for i := range loops {
			loops[i] = x.change(loops[i])
		}
	}
	out, err := x.r.RunBatch(t.Context(), loops, &scenario.Policy{Name: m.Path, ONNX: m, Precision: precision}, 1, seed)
	require.NoError(t, err)
	return out.Metrics
}

func compared(t *testing.T, a, b [][]float64, tolerance float64, metrics ...string) *stats.Report {
	t.Helper()
	judged, err := scenario.Planner.Judged(metrics...)
	require.NoError(t, err)
	r, err := stats.Compare(judged, a, b, stats.Options{Tolerance: tolerance, Seed: 1})
	require.NoError(t, err)
	return r
}

// adapted is the policy with an adapter that was trained on the damaged one, with the undamaged one as its teacher, by
// the trainer that spark-dora train runs.
func adapted(t *testing.T, d hal.Device, damage float64) (damaged, mended *onnx.Model) {
	t.Helper()
	p, err := fitted()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, p.Write(dir, damage))
	path := filepath.Join(dir, "clone_damaged.onnx")
	alone, err := collectives.Join(t.Context(), collectives.Options{})
	require.NoError(t, err)
	result, err := train.Run(t.Context(), train.Options{
		Model: path, Teacher: filepath.Join(dir, "clone.onnx"), Data: filepath.Join(dir, "clone"),
		Output: filepath.Join(dir, "adapter"),
		Epochs: 8, BatchSize: 16, Rank: 8, Rate: 1e-2, Precision: "fp32", Val: .1, Clip: 1, Seed: 1, Device: d,
	}, alone)
	require.NoError(t, err)
	t.Logf("validation loss %.4g, with the adapter %.4g", result.Base.Loss, result.Best.Loss)
	damaged, err = onnx.Load(path)
	require.NoError(t, err)
	m, err := dora.Open(damaged, onnx.ImportOptions{})
	require.NoError(t, err)
	a, err := dora.Load(filepath.Join(dir, "adapter", "best.safetensors"), m)
	require.NoError(t, err)
	require.NoError(t, dora.Merge(m, a, filepath.Join(dir, "clone_adapted.onnx")))
	mended, err = onnx.Load(filepath.Join(dir, "clone_adapted.onnx"))
	require.NoError(t, err)
	return damaged, mended
}

// TestCompare_FindsDamageAndItsRepair: noise of 5 % of the norm of one layer is found worse in few loops, and the
// adapter that was trained on it better than it. The policy itself in fp16 is not found to differ by what matters;
// neither is the policy from itself.
func TestCompare_FindsDamageAndItsRepair(t *testing.T) {
	fulltest.Long(t)
	d := device(t)
	x := &trial{r: &scenario.Runner{Device: d}, n: 40, seconds: 12}
	m := file(t)
	damaged, mended := adapted(t, d, .05)
	base := x.drive(t, m, "", 601)
	off := x.drive(t, damaged, "", 601)
	for name, c := range map[string]struct {
		a, b [][]float64
		want []stats.Verdict
	}{
		"damaged": {base, off, []stats.Verdict{stats.Worse}},
		"adapted": {off, x.drive(t, mended, "", 601), []stats.Verdict{stats.Better}},
		"fp16":    {base, x.drive(t, m, "fp16", 601), []stats.Verdict{stats.NoDifference, stats.WithinTolerance}},
		"itself":  {base, base, []stats.Verdict{stats.NoDifference}},
	} {
		r := compared(t, c.a, c.b, tolerance, primary...)
		t.Logf("%s: %s", name, r.Line)
		require.Contains(t, c.want, r.Verdict, name)
	}
}

// TestCompare_FindsLatency: 100 ms more are found worse in curves.
func TestCompare_FindsLatency(t *testing.T) {
	x := &trial{r: &scenario.Runner{Device: device(t)}, n: 80, only: "noisy-curve"}
	prompt := x.drive(t, file(t), "", 602)
	x.change = func(s scenario.Scenario) scenario.Scenario {
		s, err := s.With("latency", s.Get("latency")+.1)
		require.NoError(t, err)
		return s
	}
	r := compared(t, prompt, x.drive(t, file(t), "", 602), tolerance, primary...)
	t.Log(r.Line)
	require.Equal(t, stats.Worse, r.Verdict)
}

// TestCompare_Repetitions is what docs/guide/policies.md reports: 20 disjoint seeds, 256 pairs each.
func TestCompare_Repetitions(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("long: SPARK_FULL=1 runs it")
	}
	const repetitions = 20
	d := device(t)
	x := &trial{r: &scenario.Runner{Device: d}, n: 64}
	m := file(t)
	damaged, mended := adapted(t, d, .05)
	weaker := map[float64]*onnx.Model{}
	for _, share := range []float64{.0025, .005, .01, .02} {
		var err error
		weaker[share], err = Damage(m, Layers[1], share, 1)
		require.NoError(t, err)
	}
	counts := map[string]map[stats.Verdict]int{}
	count := func(what string, r *stats.Report) {
		if counts[what] == nil {
			counts[what] = map[stats.Verdict]int{}
		}
		counts[what][r.Verdict]++
	}
	for k := range uint64(repetitions) {
		seed := 2000 + k
		base, half, off := x.drive(t, m, "", seed), x.drive(t, m, "fp16", seed), x.drive(t, damaged, "", seed)
		count("fp16", compared(t, base, half, tolerance, primary...))
		count("fp16, all metrics", compared(t, base, half, tolerance))
		count("fp16, all metrics, no tolerance", compared(t, base, half, 0))
		count("damaged 5 %", compared(t, base, off, tolerance, primary...))
		count("damaged 5 %, all metrics", compared(t, base, off, tolerance))
		count("adapted", compared(t, off, x.drive(t, mended, "", seed), tolerance, primary...))
		for share, w := range weaker {
			if k < 5 {
				count(fmt.Sprintf("damaged %g %%", 100*share), compared(t, base, x.drive(t, w, "", seed), tolerance, primary...))
			}
		}
		late := &trial{r: x.r, n: 128, only: "noisy-curve"}
		prompt := late.drive(t, m, "", seed)
		late.change = func(s scenario.Scenario) scenario.Scenario {
			s, err := s.With("latency", .1)
			require.NoError(t, err)
			return s
		}
		count("100 ms more", compared(t, prompt, late.drive(t, m, "", seed), tolerance, primary...))
	}
	for what, by := range counts {
		t.Logf("%s: %v", what, by)
	}
	same := counts["fp16"][stats.NoDifference] + counts["fp16"][stats.WithinTolerance]
	require.GreaterOrEqual(t, same, repetitions-1)
	require.Equal(t, repetitions, counts["damaged 5 %"][stats.Worse])
	require.Equal(t, repetitions, counts["adapted"][stats.Better])
	require.Equal(t, repetitions, counts["100 ms more"][stats.Worse])
}
