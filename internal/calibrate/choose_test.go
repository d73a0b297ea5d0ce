package calibrate

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// calibrating are the precisions that calibrate.
func calibrating() []string {
	return slices.DeleteFunc(precision.Names(), func(name string) bool { return !precision.Calibrates(name) })
}

// made is a small model that the repository makes, as regions, with made inputs.
func made(t *testing.T, name, precision string, inputs int) (*ir.Graph, []map[string]*ir.Array) {
	t.Helper()
	return batched(t, name, precision, inputs, 0)
}

// batched is made for several samples at a time; 0: as the file.
func batched(t *testing.T, name, precision string, inputs, samples int) (*ir.Graph, []map[string]*ir.Array) {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{Batch: samples})
	require.NoError(t, err)
	names, err := passes.Pipeline(precision)
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Precision: precision}, g, names[:slices.Index(names, "assign-storage")], nil))
	return g, Generate(g, inputs)
}

// TestBudgetsAreMet searches at several budgets: each is met, a stricter one costs no less time by the prediction that the
// search goes by, and a second search finds the same.
func TestBudgetsAreMet(t *testing.T) {
	fulltest.Long(t)
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	quick := Technique{Bias: true} // the search is the same
	for _, name := range []string{"vision", "policy"} {
		for _, precision := range calibrating() {
			t.Run(name+", "+precision, func(t *testing.T) {
				if name == "vision" && precision != "fp8" && !fulltest.Runs(t.Name()) {
					t.Skip("many layers; policy has this ladder, vision in fp8 the layers: set SPARK_FULL=1")
				}
				g, in := made(t, name, precision, 2)
				last, lastText := 0.0, ""
				budgets := []float64{.9, .99, .999, .9999}
				if name != "policy" { // more layers, more time
					budgets = budgets[2:]
				}
				for _, budget := range budgets {
					c, err := New(g, precision, in, Reference{}, nil)
					require.NoError(t, err)
					choice, err := choose(t, c, g, in, precision, budget, quick)
					require.NoError(t, err)
					q, err := measured(t, g, choice.Plan, in)
					require.NoError(t, err)
					require.GreaterOrEqual(t, Least(q), budget)
					micros, text := predicted(choice, c.Sites(), sm121)
					t.Logf("%v: %.6f, %.3f µs, %s", budget, Least(q), micros, text)
					require.GreaterOrEqual(t, micros, last*.98, "a stricter budget is not faster: %s after %s", text, lastText)
					last, lastText = micros, text
				}
				if name != "policy" {
					return
				}
				c, err := New(g, precision, in, Reference{}, nil)
				require.NoError(t, err)
				again, err := choose(t, c, g, in, precision, .9999, quick)
				require.NoError(t, err)
				_, text := predicted(again, c.Sites(), sm121)
				require.Equal(t, lastText, text)

				_, err = choose(t, c, g, in, precision, 1-1e-13, quick)
				require.ErrorContains(t, err, "cannot be reached")
				require.ErrorContains(t, err, "the layers that hurt most alone")
			})
		}
	}
}

// pessimist is a trial that expects ten times as much error on other inputs.
type pessimist struct{ evaluator }

func (p pessimist) Measure(ctx context.Context, plan *passes.Quantisation, enough float64) ([]Quality, error) {
	q, err := p.evaluator.Measure(ctx, plan, enough)
	for i := range q {
		q[i].Expected = 1 - 10*(1-q[i].Cosine)
	}
	return q, err
}

// TestABudgetIsKeptOnOtherInputsToo as far as expected, except at fp16, beyond which a search has nothing.
func TestABudgetIsKeptOnOtherInputsToo(t *testing.T) {
	g, in := made(t, "policy", "fp8", 2)
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	for _, c := range []struct{ budget, least float64 }{{.99, .999}, {.9999997, .9999997}} {
		cal, err := New(g, precision.FP8, in, Reference{}, nil)
		require.NoError(t, err)
		choice, err := cal.Choose(t.Context(), pessimist{evaluator{t, g, in, sm121}}, Options{Precision: "fp8", MinCosine: c.budget, Smaller: true, Target: sm121, Technique: Technique{Bias: true}})
		require.NoError(t, err)
		q, err := measured(t, g, choice.Plan, in)
		require.NoError(t, err)
		require.GreaterOrEqual(t, Least(q), c.least)
		t.Logf("%v", Least(q))
	}
}

// predicted is the time of all layers, and how many have which format.
func predicted(c *Outcome, sites []passes.Site, t *target.Target) (us float64, text string) {
	count := map[string]int{}
	for i, l := range c.Layers {
		for _, f := range precision.Layers() {
			if f.Name == l.Precision {
				us += micros(f, &sites[i], t)
			}
		}
		count[l.Precision]++
	}
	return us, fmt.Sprint(count)
}

// tally is a trial in which so many layers in low precision meet any budget, and one more misses it by far.
type tally struct {
	evaluator
	meet  int
	tried *[]int // layers of each candidate
}

func (c tally) Measure(_ context.Context, plan *passes.Quantisation, _ float64) ([]Quality, error) {
	low := 0
	for _, l := range plan.Layers {
		if l.Weights != nil {
			low++
		}
	}
	*c.tried = append(*c.tried, low)
	cosine := 1 - 1e-9
	if low > c.meet {
		cosine = 0
	}
	return []Quality{{Name: "y", Cosine: cosine, Expected: cosine}}, nil
}

// TestTheFormatsOfTheFitAreTriedFirst: where they meet the budget, nothing else is measured; where they do not, others are.
func TestTheFormatsOfTheFitAreTriedFirst(t *testing.T) {
	g, in := made(t, "policy", "fp8", 2)
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	search := func(meet int) (tried []int, low int) {
		c, err := New(g, precision.FP8, in, Reference{}, nil)
		require.NoError(t, err)
		// A budget at which guesses begin with wide formats.
		choice, err := c.Choose(t.Context(), tally{evaluator{t, g, in, sm121}, meet, &tried}, Options{Precision: "fp8", MinCosine: .996, Smaller: true, Target: sm121, Technique: Technique{Bias: true}})
		require.NoError(t, err)
		for _, l := range choice.Layers {
			if l.Precision != precision.Half.Name {
				low++
			}
		}
		return tried, low
	}
	all, low := search(1 << 20)
	require.Len(t, all, 1)
	require.Equal(t, all[0], low)
	some, low := search(all[0] - 1)
	require.Greater(t, len(some), 1)
	require.Equal(t, all[0], some[0], "the same is tried first")
	require.Less(t, low, all[0])
	require.Positive(t, low)
}

func TestKeep_NamesNodesOfEveryTower(t *testing.T) {
	g, _ := made(t, "vision", precision.FP8, 1)
	const node = "/stages.3/blocks/blocks.0/token_mixer/qkv/MatMul"
	narrow, err := new(Calibration).kept([]string{"/narrow" + node}, passes.Sites(g))
	require.NoError(t, err)
	wide, err := new(Calibration).kept([]string{"/wide" + node}, passes.Sites(g))
	require.NoError(t, err)
	require.Equal(t, narrow, wide)
	require.Contains(t, wide, true)
}
