package calibrate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestTheCosineIsTheWorstInputs, of an output and of a slice; of a slice of few elements it is pooled and says so.
func TestTheCosineIsTheWorstInputs(t *testing.T) {
	want := [][]float64{{100, 0, 0, 0, 0, 7}, {1, 0, 0, 0, 0, 7}}
	got := [][]float64{{100, 0, 0, 0, 0, 7}, {1, 1, 0, 0, 0, -7}} // the second input is wrong
	for name, c := range map[string]struct {
		slice  runtime.Slice
		cosine float64
		pooled bool
	}{
		"output":                   {runtime.Slice{Stop: 6}, -48. / 7.1414284 / 7.0710678, false},
		"slice":                    {runtime.Slice{Name: "s", Stop: 5}, 0.70710678, false},
		"slice of two elements":    {runtime.Slice{Name: "s", Start: 0, Stop: 2}, 10001 / (100.004999875 * 100.0099995), true},
		"output of three elements": {runtime.Slice{Start: 0, Stop: 3}, 10001 / (100.004999875 * 100.0099995), true},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := Measure(Slice{"y", c.slice}, got, want)
			require.NoError(t, err)
			require.InDelta(t, c.cosine, q.Cosine, 1e-7)
			require.Equal(t, c.pooled, q.Pooled)
		})
	}
}

// TestTheBudgetIsOfTheWorstSet, one slice at a time.
func TestTheBudgetIsOfTheWorstSet(t *testing.T) {
	set := func(name string, y, z float64) SetQuality {
		return SetQuality{Name: name, Inputs: 1, Slices: []Quality{{Name: "y", Cosine: y}, {Name: "z", Cosine: z}}}
	}
	require.Equal(t, []Quality{{Name: "y", Set: "validation", Cosine: .7, Expected: .7}, {Name: "z", Set: "perturbed", Cosine: .8, Expected: .8}},
		Worst([]SetQuality{set("calibration", .95, .95), set("perturbed", .9, .8), set("validation", .7, .99)}))
	require.Equal(t, "calibration", Worst([]SetQuality{set("calibration", .5, .5), set("perturbed", .9, .8)})[0].Set)
}

func TestInputsThatTwoSetsShare(t *testing.T) {
	one := func(x float64) map[string]*ir.Array {
		return map[string]*ir.Array{"x": {Type: ir.T(ir.Float32, 1), F: []float64{x}}, "n": {Type: ir.T(ir.Int64, 1), I: []int64{1}}}
	}
	require.Equal(t, 1, Same([]map[string]*ir.Array{one(1), one(2)}, []map[string]*ir.Array{one(2), one(3)}))
}

// TestASliceOfABatchIsThatOfItsSamples: elements of all samples count, and no others.
func TestASliceOfABatchIsThatOfItsSamples(t *testing.T) {
	s := Slice{Output: "y", Slice: runtime.Slice{Name: "a", Start: 1, Stop: 3, Every: 4}}
	q, err := Measure(s, [][]float64{{9, 1, 2, 9, 9, 3, 5, 9}}, [][]float64{{0, 1, 2, 0, 0, 3, 4, 0}})
	require.NoError(t, err)
	require.Equal(t, 4, q.Elements)
	require.InDelta(t, 1/math.Sqrt(30), q.RelL2, 1e-15)
}
