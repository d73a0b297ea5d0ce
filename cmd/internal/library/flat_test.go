package library

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime/modeld"
)

type inner struct {
	Y [2][3]float64
	P float64
}

type outer struct {
	FrameID uint32
	Ran     bool
	N       int
	Some    *inner
	None    *inner
	List    []inner
	Rows    [][]float64
	Empty   []float64
	Nil     []float64
	Named   map[string][]float64
}

func example() *outer {
	in := inner{Y: [2][3]float64{{1, 2, 3}, {4, 5, 6}}, P: 0.5}
	return &outer{FrameID: 1 << 31, Ran: true, N: -3, Some: &in, List: []inner{in, {P: math.NaN()}}, Rows: [][]float64{{7, 8}, {9, 10}}, Empty: []float64{},
		Named: map[string][]float64{"b_Out": {11}, "a": {12, 13}}}
}

func TestAStructAsAVectorAndALayout(t *testing.T) {
	var f flat
	require.NoError(t, f.fill(example()))
	require.JSONEq(t, `{
		"frame_id": {"@": [0, [], "i"]}, "ran": {"@": [1, [], "b"]}, "n": {"@": [2, [], "i"]},
		"some": {"y": {"@": [3, [2, 3], "f"]}, "p": {"@": [9, [], "f"]}}, "none": null,
		"list": [{"y": {"@": [10, [2, 3], "f"]}, "p": {"@": [16, [], "f"]}}, {"y": {"@": [17, [2, 3], "f"]}, "p": {"@": [23, [], "f"]}}],
		"rows": {"@": [24, [2, 2], "f"]}, "empty": {"@": [28, [0], "f"]}, "nil": null, "named": {"a": {"@": [28, [2], "f"]}, "b_Out": {"@": [30, [1], "f"]}}}`, f.layout)
	require.Len(t, f.values, 31)
	require.Equal(t, []float64{1 << 31, 1, -3, 1, 2, 3, 4, 5, 6, 0.5}, f.values[:10])
	require.True(t, math.IsNaN(f.values[23]))
	require.Equal(t, []float64{7, 8, 9, 10, 12, 13, 11}, f.values[24:])

	at, n, err := f.find("list.1.y")
	require.NoError(t, err)
	require.Equal(t, [2]int{17, 6}, [2]int{at, n})
	_, _, err = f.find("none.p")
	require.ErrorContains(t, err, `nothing of "none.p"; it has empty, frame_id, list.0.p`)
}

// TestTheLayoutChangesWithWhatIsThere and stays the same text otherwise.
func TestTheLayoutChangesWithWhatIsThere(t *testing.T) {
	for name, change := range map[string]func(x *outer){
		"what was nil":          func(x *outer) { x.None = &inner{} },
		"what was there":        func(x *outer) { x.Some = nil },
		"a longer list":         func(x *outer) { x.List = append(x.List, inner{}) },
		"other rows":            func(x *outer) { x.Rows = [][]float64{{7, 8, 9}, {10}} },
		"an empty list for nil": func(x *outer) { x.Nil = []float64{} },
		"another name":          func(x *outer) { x.Named = map[string][]float64{"b_Out": {11}, "c": {12, 13}} },
	} {
		t.Run(name, func(t *testing.T) {
			f := flat{}
			require.NoError(t, f.fill(example()))
			first := f.layout
			x := example()
			x.Some.P = 7
			require.NoError(t, f.fill(x))
			require.Equal(t, first, f.layout)
			change(x)
			require.NoError(t, f.fill(x))
			require.NotEqual(t, first, f.layout)
			fresh := flat{}
			require.NoError(t, fresh.fill(x))
			require.Equal(t, fresh.layout, f.layout)
		})
	}
}

func TestOutputsOfLoopsGoIntoAVector(t *testing.T) {
	for _, x := range []any{&modeld.Outputs{}, &modeld.MonitoringOutputs{Left: &modeld.Driver{}}, &modeld.Outputs{Plan: &modeld.Plan{Others: []modeld.Plan{{}}}, Leads: []modeld.Lead{{}}}} {
		var f flat
		require.NoError(t, f.fill(x))
		var tree map[string]any
		require.NoError(t, json.Unmarshal([]byte(f.layout), &tree))
		require.Contains(t, tree, "frame_id")
	}
	var f flat
	require.ErrorContains(t, f.fill(&struct{ C chan int }{}), "chan int does not go into a vector")
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{"FrameID": "frame_id", "PositionStd": "position_std", "Brake3": "brake3", "YStd": "y_std", "WheelOnRight": "wheel_on_right", "Y": "y", "RPYRate": "rpy_rate"} {
		require.Equal(t, want, snake(name))
	}
}
