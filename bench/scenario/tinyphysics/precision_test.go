package tinyphysics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestRollout_CostsAsMuchInLowPrecision holds the mean total cost of 1,000 drives with the network in fp16, and in fp8 with
// every layer quantised, to the 95 % bootstrap interval of the mean in fp32 (10,000 resamples). The 1,000 are four published
// drives with 250 draws of uniform numbers each; fp8 is calibrated on the other four.
func TestRollout_CostsAsMuchInLowPrecision(t *testing.T) {
	if !fulltest.All() {
		t.Skip("SPARK_FULL=1 runs 1,000 drives in three precisions: too long for a part")
	}
	m, drives, _ := golden(t)
	const batch = 64
	seen := recorded(t, m, drives.redrawn([]int{0, 1, 2, 3}, 16, 1), batch)
	judged := drives.redrawn([]int{4, 5, 6, 7}, 250, 2)
	cost := func(precision string) []float64 {
		v := open(t, m, Options{Batch: batch, Precision: precision, Calibrate: []string{seen}})
		got, err := v.Rollout(t.Context(), judged)
		require.NoError(t, err)
		return got.TotalCost
	}
	want := cost("fp32")
	low, high := interval(want)
	t.Logf("mean total cost of %d drives: fp32 %.2f, 95 %% within %.2f and %.2f", len(want), average(want), low, high)
	for _, precision := range []string{"fp16", "fp8"} {
		got := cost(precision)
		paired := slices.Clone(got)
		for i := range paired {
			paired[i] -= want[i]
		}
		from, to := interval(paired)
		t.Logf("%s %.2f; beside fp32 with the same numbers, drive by drive, 95 %% within %+.2f and %+.2f", precision,
			average(got), from, to)
		require.True(t, low <= average(got) && average(got) <= high, "%s: %v is not within %v and %v", precision, average(got),
			low, high)
	}
}

// redrawn are some of the drives up to the row where costs end, each with so many draws of uniform numbers.
func (d Drives) redrawn(which []int, draws int, seed uint64) (out Drives) {
	rng := rand.New(rand.NewPCG(seed, 39))
	for range draws {
		for _, i := range which {
			uniform := make([]float64, CostEnd)
			for k := range uniform {
				uniform[k] = rng.Float64()
			}
			out.Roll, out.V, out.A = append(out.Roll, d.Roll[i][:CostEnd]), append(out.V, d.V[i][:CostEnd]), append(out.A, d.A[i][:CostEnd])
			out.Target, out.SteerLog = append(out.Target, d.Target[i][:CostEnd]), append(out.SteerLog, d.SteerLog[i][:CostEnd])
			out.Uniform = append(out.Uniform, uniform)
		}
	}
	return out
}

// recorded is a directory of what the network sees in fp32 in eight rows of drives.
func recorded(t testing.TB, m *onnx.Model, d Drives, batch int) string {
	t.Helper()
	got, err := open(t, m, Options{Batch: batch}).Rollout(t.Context(), d)
	require.NoError(t, err)
	var rows []int
	for i := range 8 {
		rows = append(rows, ControlStart+i*(len(d.Target[0])-ControlStart)/8)
	}
	dir := t.TempDir()
	require.NoError(t, d.Record(got, batch, rows, dir))
	return dir
}

// TestCompile_CalibratesTheNetworkAlone: the network of a step has fewer bytes in fp8, and the loop around it is as it was.
func TestCompile_CalibratesTheNetworkAlone(t *testing.T) {
	fulltest.Long(t)
	m, batch := smallNetwork(t), 4
	d := drawn(4, batch, 130)
	dir := recorded(t, m, d, batch)
	of := func(precision string) (*runtime.Program, *Result) {
		opt := Options{Batch: batch, Precision: precision, Calibrate: []string{dir}}
		r, err := Compile(t.Context(), m, opt)
		require.NoError(t, err)
		got, err := open(t, m, opt).Rollout(t.Context(), d)
		require.NoError(t, err)
		return r.Program, got
	}
	full, exact := of("fp32")
	small, rounded := of("fp8")
	require.Less(t, len(small.Weights), len(full.Weights)*3/4)
	require.Contains(t, small.Variants[0].PTX, "e4m3")
	require.NotContains(t, full.Variants[0].PTX, "e4m3")
	for i := range d.Target {
		require.Equal(t, exact.Steer[i][:window], rounded.Steer[i][:window], "logged commands")
		require.NotEqual(t, exact.Token[i], rounded.Token[i], "the network's rounding changes some draw")
		require.InEpsilon(t, exact.TotalCost[i], rounded.TotalCost[i], 0.5)
	}
	network, err := onnx.Import(m, onnx.ImportOptions{Batch: 1})
	require.NoError(t, err)
	w := &twin{t: t, network: network}
	one := t.TempDir()
	require.NoError(t, d.Record(exact, 1, []int{100, 129}, one))
	sets, _, err := calibrate.Load([]string{one}, network)
	require.NoError(t, err)
	for i, row := range []int{100, 129} {
		require.Equal(t, exact.Token[0][row], w.draw(sets[i], d.Uniform[0][row]), "what was recorded draws the same token")
	}
	_, err = Compile(t.Context(), m, Options{Precision: "fp8"})
	require.ErrorContains(t, err, "small.onnx: precision fp8 is calibrated on what the network sees: give drives that Record wrote")
	err = d.Record(exact, batch, []int{5}, dir)
	require.ErrorContains(t, err, "row 5 of drives of 130 rows")
	require.ErrorContains(t, d.Record(exact, 5, nil, dir), "a batch of 5 of 4 drives")
	exact.Lataccel[2][40] = math.NaN()
	require.ErrorContains(t, d.Record(exact, batch, []int{50}, dir), "drive 2 diverged by row 40")
}

// interval holds 95 % of the means of resampled numbers.
func interval(x []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, 10_000)
	for i := range means {
		drawn := make([]float64, len(x))
		for k := range drawn {
			drawn[k] = x[rng.IntN(len(x))]
		}
		means[i] = average(drawn)
	}
	slices.Sort(means)
	return means[len(means)/40], means[len(means)-1-len(means)/40]
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// BenchmarkStep is one row of a batch of drives through comma's network; steps/s are rows of drives. ONNX Runtime does
// 1,589 at batch 1 and 1,960 at 16 on one core.
func BenchmarkStep(b *testing.B) {
	m, drives, _ := golden(b)
	for _, precision := range []string{"fp32", "fp16"} {
		for _, batch := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/batch=%d", precision, batch), func(b *testing.B) {
				v := open(b, m, Options{Batch: batch, Precision: precision})
				row, r := 0, newResult(len(drives.Target), len(drives.Target[0]))
				for b.Loop() {
					if err := v.step(b.Context(), &drives, r, 0, row); err != nil {
						b.Fatal(err)
					}
					row = (row + 1) % len(drives.Target[0])
				}
				b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "steps/s")
			})
		}
	}
}
