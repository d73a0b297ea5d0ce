package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadFile_RoadOfKnots(t *testing.T) {
	path := written(t, `
scenarios:
  - name: inline
    road: {distance: [0, 100, 160, 240], curvature: [0, 0, 0.003, 0.003], speed: [20, 20, 15, 15]}
    vary: {friction: {uniform: [0.5, 0.9]}}
  - name: beside
    road: bends.csv
    sweep: {latency: [0, 0.1]}
  - name: recorded
    road: {spacing: 50, curvature: [0, 0.001], interval: 0.5, speed: [12, 13, 14], lead: [40, 46, 52], lead_speed: [12, 12, 12]}
`)
	bends := filepath.Join(filepath.Dir(path), "bends.csv")
	require.NoError(t, os.WriteFile(bends, []byte("distance, curvature,bank\n0,0,0\n30,0.002,0.01\n100,0,0\n"), 0o644))
	list, err := ReadFile(path)
	require.NoError(t, err)
	inline := list[0].Road
	require.InDelta(t, 20, inline.Spacing, 1e-9, "all knots are multiples of it")
	require.Len(t, inline.Curvature, 13)
	for k, want := range []float64{0, 0, 0, 0, 0, 0, 0.001, 0.002, 0.003, 0.003, 0.003, 0.003, 0.003} {
		require.InDelta(t, want, inline.Curvature[k], 1e-9, k)
	}
	s, err := list[0].Draw(1, 0)
	require.NoError(t, err)
	require.Equal(t, []float64{20, 20, 30}, []float64{s.Get("speed"), s.Get("car0_speed0"), s.Get("duration")})
	require.Len(t, list, 4)
	require.Equal(t, "beside/latency=0.1", list[2].Name)
	require.InDelta(t, 10, list[2].Road.Spacing, 1e-9)
	require.InDelta(t, 0.01, list[2].Road.Bank[3], 1e-9)
	require.Nil(t, list[2].Road.Grade)
	recorded, err := list[3].Draw(1, 0)
	require.NoError(t, err)
	require.Equal(t, []float64{12, 1, 1}, []float64{recorded.Get("speed"), recorded.Get("duration"), recorded.Get("car0_present")})

	replay, err := Planner.ReplayOf(&list[3], 1, 0, "pid")
	require.NoError(t, err)
	again, err := ReadReplay(written(t, string(replay.Format(""))))
	require.NoError(t, err, "a replay does not set what its road has instead")
	require.Equal(t, replay, again)
}

// TestRoad_SpreadsKnots that no even spacing has: the turn of the road stays, and curves between knots are not lost.
func TestRoad_SpreadsKnots(t *testing.T) {
	r := &Road{Curvature: []float64{0, 0, 0.02, 0, 0}}
	require.NoError(t, r.place([]float64{0, 1000.0003, 1000.7, 1001.37, 20000.123}))
	require.NoError(t, r.check())
	require.Len(t, r.Curvature, MaxKnots)
	turn := 0.0
	for _, x := range r.Curvature {
		turn += x * r.Spacing
	}
	require.InDelta(t, 0.02*(1001.37-1000.0003)/2, turn, 1e-9)
}

func TestReadFile_RefusesRoads(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("0, ", MaxKnots+1), ", ")
	recorded := "{spacing: 1, curvature: [0, 0], interval: 1, speed: [9, 9], lead: [40, 50], lead_speed: [9, 9]}\n    "
	for road, want := range map[string]string{
		"{distance: [0, 5, 3], curvature: [0, 0, 0]}":                     "road: knot 2: distance is 3 behind 5: distances must grow",
		"{distance: [0, 5, 5], curvature: [0, 0, 0]}":                     "road: knot 2: distance is 5 behind 5: distances must grow",
		"{distance: [2, 5], curvature: [0, 0]}":                           "road: distance begins with 2, want 0: cars start there",
		"{distance: [0, .nan], curvature: [0, 0]}":                        `road: distance is ".nan", want a number`,
		"{distance: [0, 9], curvature: [0, .inf]}":                        `road: curvature is ".inf", want a number`,
		"{distance: [0, 9], curvature: [0, 0.2]}":                         "road: knot 1: curvature is 0.2, want -0.1 to 0.1 1/m",
		"{distance: [0, 9], curvature: [0, 0, 0]}":                        "road: curvature has 3 values, want one for each of 2 distances",
		"{distance: [0, 9], curvature: [0, 0], bank: [0]}":                "road: bank has 1 values, want one for each of 2 distances",
		"{distance: [0, 9]}":                                              "road: the road has 0 knots, want 2 to 1024; spread them, or cut it",
		"{curvature: [0, 0]}":                                             "road: want one of distance, a list, and spacing, a number",
		"{spacing: 1, distance: [0, 1], curvature: [0, 0]}":               "road: want one of distance, a list, and spacing, a number",
		"{spacing: 1e-40, curvature: [0, 0]}":                             "road: spacing is 1e-40 m, want 0.001 to 10000",
		"{spacing: -1, curvature: [0, 0]}":                                "road: spacing is -1 m, want 0.001 to 10000",
		"{spacing: 1, curvature: [" + many + "]}":                         "road: the road has 1025 knots, want 2 to 1024; spread them, or cut it",
		"{spacing: 1, curvatur: [0, 0]}":                                  `line 2: road has no field "curvatur"; the nearest is "curvature"`,
		"{spacing: 1, curvature: [0, 0], lead: [1, 1]}":                   "road: there is lead and no interval: say how many seconds are between its samples",
		"{spacing: 1, curvature: [0, 0], interval: 1}":                    "road: there are 0 speeds, want 2 to 1024, one every interval",
		"{spacing: 1, curvature: [0, 0], interval: 1, speed: [0, 99]}":    "road: value 1: speed is 99, want 0 to 60 m/s",
		"{spacing: 1, curvature: [0, 0]}\n    set: {bank: 0.1}":           `line 2: bank is a parameter of "plain", and its road of knots has its own: leave one out`,
		"{spacing: 1, curvature: [0, 0]}\n    family: curve":              `line 2: curvature is a parameter of "curve", and its road of knots has its own: leave one out`,
		"{spacing: 1, curvature: [0, 0]}\n    set: {curve_start: 9}":      "line 2: curve_start is a parameter of \"plain\", and its road of knots has its own",
		"{spacing: 1, curvature: [0, 0]}\n    sweep: {curvature: [0.01]}": "line 2: curvature is a parameter of \"plain/curvature=0.01\", and its road of knots has its own",
		recorded + "set: {cruise: 9}":                                     "line 2: cruise is a parameter of \"plain\", and its road of knots has recorded speeds: leave one out",
		recorded + "vary: {cruise: {uniform: [9, 10]}}":                   "cruise is a parameter of \"plain\", and its road of knots has recorded speeds: leave one out",
		recorded + "sweep: {cruise: [9, 10]}":                             "cruise is a parameter of \"plain/cruise=9\", and its road of knots has recorded speeds: leave one out",
		recorded + "family: stop-and-go":                                  "cruise is a parameter of \"stop-and-go\", and its road of knots has recorded speeds: leave one out",
		recorded + "set: {car0_gap: 9}":                                   "car0_gap is a parameter of \"plain\", and its road of knots has a recorded lead: leave one out",
		recorded + "vary: {car0_speed2: {choice: [9]}}":                   "car0_speed2 is a parameter of \"plain\", and its road of knots has a recorded lead: leave one out",
		`""`:          "road: it names no file; want a .csv file, or distance: and curvature:",
		"missing.csv": "missing.csv: no such file",
		"[1]":         "road is no mapping of names to values",
	} {
		_, err := ReadFile(written(t, "scenarios:\n  - road: "+road+"\n"))
		if assert.Error(t, err, road) {
			assert.ErrorContains(t, err, "s.yaml: line 2: ")
			assert.ErrorContains(t, err, want)
		}
	}
	rows := "distance,curvature\n"
	for k := range MaxKnots + 1 {
		rows += fmt.Sprintf("%d,0\n", k)
	}
	for text, want := range map[string]string{
		"distance,curvature\n0,0\n5,0\n4,0\n":               "line 4: distance is 4 behind 5: it must grow",
		"distance,curvature\n0,0\n5,0.3\n":                  "knot 1: curvature is 0.3, want -0.1 to 0.1 1/m",
		"distance,curvature\n1,0\n5,0\n":                    "distance begins with 1, want 0: cars start there",
		"distance,curvature\n0,0\n5,NaN\n":                  `line 3: curvature is "NaN", want a number`,
		"distance,curvature\n0,0\n5\n":                      "line 3: wrong number of fields",
		"distance,curvature\n\n0,0\n\n0,0\n":                "line 5: distance is 0 behind 0: it must grow",
		"\ufeffdistance,curvature\n":                        "there is no row behind the names of columns",
		"distance,curvature,bnk\n0,0,0\n":                   `line 1: there is no column "bnk"; the nearest is "bank"`,
		"distance,curvature,curvature\n0,0,0\n":             "line 1: column curvature is there twice",
		"distance,bank\n0,0\n":                              "there is no column curvature: want distance, curvature",
		"distance,curvature\n0,0\n":                         "the road has 1 knots, want 2 to 1024; spread them, or cut it",
		rows:                                                "line 1026: there are more than 1024 rows; spread them, or cut the file",
		"distance,curvature\n" + strings.Repeat("#", 1<<20): "it has 1048595 bytes, and 1048576 are allowed; split it",
	} {
		path := filepath.Join(t.TempDir(), "r.csv")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := ReadRoad(path)
		assert.ErrorContains(t, err, path+": "+want)
	}
}
