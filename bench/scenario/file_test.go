package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
)

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestReadFile(t *testing.T) {
	list, err := ReadFile(written(t, `
scenarios:
  - family: curve
    name: sharp
    set: {friction: 0.6, speed: 12}
    vary:
      curvature: {uniform: [0.004, 0.008]}
      offset: {normal: [0, 0.2]}
      wheelbase: {choice: [2.6, 2.9]}
    sweep: {latency: [0, 0.1], steer_lag: [0.2, 0.3]}
  - set: {duration: 5}
`))
	require.NoError(t, err)
	var names []string
	for _, f := range list {
		names = append(names, f.Name)
	}
	require.Equal(t, []string{
		"sharp/latency=0/steer_lag=0.2", "sharp/latency=0/steer_lag=0.3", "sharp/latency=0.1/steer_lag=0.2", "sharp/latency=0.1/steer_lag=0.3",
		"plain",
	}, names)
	seen := map[float64]bool{}
	var offsets float64
	for k := range 400 {
		s, err := list[3].Draw(5, k)
		require.NoError(t, err)
		require.Equal(t, []float64{0.6, 12, 12, 0.1, 0.3, 60}, []float64{
			s.Get("friction"), s.Get("speed"), s.Get("cruise"), s.Get("latency"), s.Get("steer_lag"), s.Get("curve_start"),
		})
		require.GreaterOrEqual(t, s.Get("curvature"), 0.004)
		require.LessOrEqual(t, s.Get("curvature"), 0.008)
		seen[s.Get("wheelbase")] = true
		offsets += s.Get("offset") * s.Get("offset") / 400
		again, err := list[3].Draw(5, k)
		require.NoError(t, err)
		require.Equal(t, s, again)
	}
	require.Equal(t, map[float64]bool{2.6: true, 2.9: true}, seen)
	require.InEpsilon(t, 0.04, offsets, 0.2)
	a, err := list[3].Draw(5, 0)
	require.NoError(t, err)
	b, err := list[3].Draw(6, 0)
	require.NoError(t, err)
	require.NotEqual(t, a.Values, b.Values)
}

func TestFamilies_CanBeDrawn(t *testing.T) {
	for i := range Families {
		for k := range 50 {
			_, err := Families[i].Draw(uint64(i), k)
			require.NoError(t, err)
		}
	}
}

func TestReadFile_RefusesWhatItDoesNotKnow(t *testing.T) {
	one := func(text string) string { return "scenarios:\n  - " + text + "\n" }
	for text, want := range map[string]string{
		"":                                          "it is empty; want scenarios: and a list",
		"scenarios: []":                             "line 1: want scenarios: and a list with one at least",
		"scenario: []":                              `line 1: the file has no field "scenario"; the nearest is "scenarios"`,
		"- a":                                       "line 1: the file is no mapping of names to values",
		one("famly: curve"):                         `line 2: a scenario has no field "famly"; the nearest is "family"`,
		one("family: curves"):                       `line 2: no family "curves"; the nearest is "curve"`,
		one("family: xyz"):                          `line 2: no family "xyz"; spark-sim list shows the 21 that there are`,
		one("stuff: 1"):                             `line 2: a scenario has no field "stuff"; there are name, family, set, vary, sweep, road`,
		one("vary:\n      speed: {even: 1}"):        `line 3: speed has no field "even"; there are uniform, normal, choice`,
		one("road:\n      {spacng: 1}"):             `line 3: road has no field "spacng"; the nearest is "spacing"`,
		one("set: {latency: 0.03}"):                 "line 2: latency is 0.03, want a multiple of 0.05 s",
		one("set: {car0_present: 0.5}"):             "line 2: car0_present is 0.5, want 0 or 1",
		one("set: {dynamic: 0.3}"):                  "line 2: dynamic is 0.3, want 0 or 1",
		one("sweep: {car1_idm: [0, 0.4]}"):          "line 2: car1_idm is 0.4, want 0 or 1",
		one("vary: {latency: {choice: [0.01]}}"):    "line 2: latency is 0.01, want a multiple of 0.05 s",
		one("vary: {latency: {uniform: [0, 0.3]}}"): "line 2: latency: it has values [0 0.05 0.1 0.15 0.2 0.25 0.3 0.35] alone: want choice",
		one("vary: {dynamic: {normal: [0, 1]}}"):    "line 2: dynamic: it has values [0 1] alone: want choice",
		one("set: {ask_accel0: 1}"):                 "line 2: ask_accel0 does nothing in tier planner: leave it out, or run the file with --tier controls",
		one("set:\n      car0_time0: 3\n      car0_time1: 2"):                     "line 4: car0_time0 can be 3 where car0_time1 is 2: points of a speed profile must follow each other",
		one("{set: {car1_time1: 1}, vary: {car1_time2: {uniform: [4, 300001]}}}"): "line 2: car1_time2 can be 300001 where car1_time3 is 300000",
		one("set: {sped: 3}"):                                  `line 2: set has no field "sped"; the nearest is "speed"`,
		one("set: {speed: x}"):                                 `line 2: speed is "x", want a number`,
		one("set: {speed: 99}"):                                "line 2: speed is 99, want 0 to 60 m/s",
		one("set: {speed: 1, speed: 2}"):                       "line 2: speed is there twice",
		one("set: {speed: .nan}"):                              `line 2: speed is ".nan", want a number`,
		one("vary: {speed: {uniform: [9, 3]}}"):                "line 2: speed: uniform is upside down: 9 is above 3",
		one("vary: {speed: {uniform: [9]}}"):                   "line 2: speed: uniform has 1 numbers, want the lowest and the highest",
		one("vary: {speed: {normal: [9, -1]}}"):                "line 2: speed: the standard deviation is -1",
		one("vary: {speed: {choice: []}}"):                     "line 2: speed: there is no choice",
		one("vary: {speed: {}}"):                               "line 2: speed: want one of uniform, normal and choice",
		one("vary: {speed: {uniform: [1, 2], choice: [3]}}"):   "line 2: speed: want one of uniform, normal and choice",
		one("{set: {speed: 3}, vary: {speed: {choice: [3]}}}"): "line 2: speed is under set and under vary; want one",
		one("sweep: {speed: []}"):                              "line 2: speed is swept over 0 values of 1 scenarios",
		one("sweep: {speed: [1, 1]}"):                          `line 2: "plain/speed=1" is the name of the scenario at line 2 too; give it another name`,
		one("name: [a]"):                                       "line 2: name is no name of 1 to 200 bytes",
		strings.Repeat("#", 1<<20+1):                           "it has 1048577 bytes, and 1048576 are allowed; split it",
		one("set: {speed: 3}\n---\na: b"):                      "there is something behind the first document; want one",
	} {
		_, err := ReadFile(written(t, text))
		if assert.Error(t, err, want) {
			assert.ErrorContains(t, err, "s.yaml: "+want)
		}
	}
}

// TestReadFile_NamesTheSameErrorEachTime of those that a file has.
func TestReadFile_NamesTheSameErrorEachTime(t *testing.T) {
	for text, want := range map[string]string{
		"road: {spacing: x, interval: y, curvature: [0, 0]}":           `spacing is "x"`,
		"vary: {speed: {uniform: [x], normal: [y], choice: [z]}}":      `speed is "x"`,
		"vary: {speed: {choice: [z], normal: [y]}}":                    `speed is "y"`,
		"{set: {speed: x, bank: y}, vary: {grade: {uniform: [1, 0]}}}": `bank is "y"`,
	} {
		for range 40 {
			_, err := ReadFile(written(t, "scenarios:\n  - "+text+"\n"))
			require.ErrorContains(t, err, want)
		}
	}
	for range 40 {
		_, err := vehicleOf(&route.CarParams{Mass: 1, Wheelbase: 99, SteerRatio: 1000})
		require.ErrorContains(t, err, "mass is 1")
	}
}

// TestLoad_TakesAFamilyBeforeADirectory that is called like it.
func TestLoad_TakesAFamilyBeforeADirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("curve", 0o755))
	list, _, err := Load(t.Context(), "curve")
	require.NoError(t, err)
	require.Equal(t, "curve", list[0].Name)
	_, _, err = Load(t.Context(), "./curve")
	require.ErrorContains(t, err, "curve")
}
