package scenario

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

// madeDrive is a drive on a known road, for importers.
type madeDrive struct {
	curvature   func(way float64) float64 // 1/m, left positive
	grade, bank float64
	hz          float64
	rows        []madeRow
}

// madeRow is the car at a time: its way and speed along the road, its place east and north of the start and above it, and
// its heading, from north on to the left; climb is how much faster than its grade it seems to rise.
type madeRow struct{ time, way, speed, east, north, up, heading, climb float64 }

// made drives for some seconds, at a speed that changes.
func made(d madeDrive, seconds float64) *madeDrive {
	const fine = 200
	way, heading, east, north := 0.0, 0.3, 0.0, 0.0
	speed := func(t float64) float64 { return 20 + 3*math.Sin(t/5) }
	for i := range int(seconds * d.hz) {
		t := float64(i) / d.hz
		d.rows = append(d.rows, madeRow{t, way, speed(t), east, north, way * d.grade, heading, 0})
		for k := range fine { // to the next row
			step := speed(t+(float64(k)+0.5)/fine/d.hz) / fine / d.hz
			half := heading + d.curvature(way+step/4)*step/2
			east, north = east-math.Sin(half)*step, north+math.Cos(half)*step
			heading += d.curvature(way+step/2) * step
			way += step
		}
	}
	return &d
}

// madeDrives are a circle to the left and an S-curve, which begins to the left.
func madeDrives(hz float64) map[string]*madeDrive {
	circle := func(float64) float64 { return 0.002 }
	bends := func(way float64) float64 { return 0.004 * math.Sin(2*math.Pi*way/400) }
	return map[string]*madeDrive{
		"circle": made(madeDrive{curvature: circle, bank: 0.03, hz: hz}, 30),
		"S":      made(madeDrive{curvature: bends, grade: 0.02, hz: hz}, 30),
	}
}

// requireRoad compares a road with that of the drive: curvatures within a bound, and within ends in the first and last 5 m;
// grades and banks within 0.001, speeds within 0.02 m/s.
func (d *madeDrive) requireRoad(t *testing.T, r *Road, bound, ends float64) {
	t.Helper()
	require.NoError(t, r.check())
	last := d.rows[len(d.rows)-1]
	require.InDelta(t, last.way, r.Spacing*float64(len(r.Curvature)-1), 0.1)
	for k, x := range r.Curvature {
		way := float64(k) * r.Spacing
		within := bound
		if way < 5 || way > last.way-5 {
			within = ends
		}
		require.InDelta(t, d.curvature(way), x, within, "%v m", way)
		if r.Grade != nil {
			require.InDelta(t, d.grade, r.Grade[k], 0.001)
		}
		if r.Bank != nil {
			require.InDelta(t, d.bank, r.Bank[k], 0.001)
		}
	}
	for k, v := range r.Speed {
		require.InDelta(t, 20+3*math.Sin(float64(k)*r.Interval/5), v, 0.02)
	}
}

// csv writes a drive as the controls challenge does: to the right.
func (d *madeDrive) csv() string {
	var b strings.Builder
	b.WriteString("t,vEgo,aEgo,roll,targetLateralAcceleration,steerCommand\n")
	for _, r := range d.rows {
		fmt.Fprintf(&b, "%v,%v,0,%v,%v,\n", r.time, r.speed, d.bank, -r.speed*r.speed*d.curvature(r.way))
	}
	return b.String()
}

func TestImportCSV_FindsTheRoad(t *testing.T) {
	for name, d := range madeDrives(10) {
		path := filepath.Join(t.TempDir(), "00001.csv")
		require.NoError(t, os.WriteFile(path, []byte(d.csv()), 0o644))
		list, _, err := Load(t.Context(), path)
		require.NoError(t, err)
		require.Len(t, list, 1, name)
		require.Equal(t, "00001", list[0].Name)
		d.requireRoad(t, list[0].Road, 5e-6, 1.5e-4)
		s, err := list[0].Draw(1, 0)
		require.NoError(t, err)
		require.InDelta(t, 20, s.Get("speed"), 1e-9)
		require.InDelta(t, 29.9, s.Get("duration"), 1e-9)
	}
}

// TestImportCSV_RightIsRight: the first line of a drive that the challenge publishes (00000.csv), which turns to the right,
// as its steering says, which counts to the left.
func TestImportCSV_RightIsRight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "00000.csv")
	text := "t,vEgo,aEgo,roll,targetLateralAcceleration,steerCommand\n"
	for k := range 20 {
		text += fmt.Sprintf("%.1f,33.77,-0.017,0.0375,1.004,-0.330\n", float64(k)/10)
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	f, err := importCSV(path)
	require.NoError(t, err)
	require.InDelta(t, -1.004/33.77/33.77, f.Road.Curvature[3], 1e-9)
	require.InDelta(t, 0.0375, f.Road.Bank[3], 1e-9, "the left side is higher")
}

func TestImportCSV_RefusesWhatIsNoDrive(t *testing.T) {
	text := madeDrives(10)["circle"].csv()
	lines := strings.SplitAfter(text, "\n")
	row := func(k int, row string) string {
		return strings.Join(lines[:k-1], "") + row + "\n" + strings.Join(lines[k:], "")
	}
	for want, text := range map[string]string{
		"there is no column vEgo: want t, vEgo, roll, targetLateralAcceleration": strings.Replace(text, "vEgo", "v", 1),
		`line 5: roll is "wet", want a number`:                                   row(5, "0.3,20,0,wet,0,"),
		`line 5: roll is "NaN", want a number`:                                   row(5, "0.3,20,0,NaN,0,"),
		"line 6: t is 0.1 behind 0.3: it must grow":                              row(6, "0.1,20,0,0,0,"),
		"it lasts 6000 s, and a scenario 600 s at most: cut it":                  row(301, "6000,20,0,0,0,"),
		"the car goes 2.0 m in it; want 10 m at least":                           strings.Join(lines[:3], ""),
		"its first line: EOF; want names of columns":                             "",
		"there is no row behind the names of columns":                            lines[0],
		"there are 1": "t,vEgo,roll,targetLateralAcceleration\n0,20,0,0\n",
	} {
		path := filepath.Join(t.TempDir(), "d.csv")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := importCSV(path)
		require.ErrorContains(t, err, path+": "+strings.Replace(want, "there are 1", "it has 1 samples; want 2", 1))
	}
}

// ecef turns directions east, north and up at a place of the earth into ECEF.
type ecef struct{ origin, east, north, up vector }

func newECEF(latitude, longitude float64) ecef {
	sin, cos := math.Sincos(latitude)
	east := vector{-math.Sin(longitude), math.Cos(longitude), 0}
	up := vector{cos * math.Cos(longitude), cos * math.Sin(longitude), sin}
	north := vector{-sin * math.Cos(longitude), -sin * math.Sin(longitude), cos}
	const a, e2 = 6378137.0, 6.69437999014e-3
	n := a / math.Sqrt(1-e2*sin*sin)
	return ecef{vector{n * up[0], n * up[1], n * (1 - e2) * up[2]}, east, north, up}
}

func (e ecef) turn(east, north, up float64) (v vector) {
	for i := range v {
		v[i] = east*e.east[i] + north*e.north[i] + up*e.up[i]
	}
	return v
}

// quaternion is that of a matrix whose columns are these axes.
func quaternion(forward, right, down vector) [4]float64 {
	m := [3][3]float64{}
	for i := range 3 {
		m[i] = [3]float64{forward[i], right[i], down[i]}
	}
	// Of the squares of w, x, y and z, times 4, take the largest: it divides.
	squares := [4]float64{
		1 + m[0][0] + m[1][1] + m[2][2], 1 + m[0][0] - m[1][1] - m[2][2],
		1 - m[0][0] + m[1][1] - m[2][2], 1 - m[0][0] - m[1][1] + m[2][2],
	}
	best := 0
	for i := range squares {
		if squares[i] > squares[best] {
			best = i
		}
	}
	q := [4]float64{}
	s := math.Sqrt(squares[best]) // twice the component
	q[best] = s / 2
	anti := [3]float64{m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]} // 4·w·(x, y, z)
	sym := func(i, j int) float64 { return m[i][j] + m[j][i] }                  // 4·(i's)·(j's)
	for i := range 3 {
		switch {
		case best == 0:
			q[1+i] = anti[i] / s / 2
		case best != 1+i:
			q[1+i] = sym(i, best-1) / s / 2
		}
	}
	if best != 0 {
		q[0] = anti[best-1] / s / 2
	}
	return q
}

// comma2k19 writes a drive as a segment of comma2k19, at the 280 between San Jose and San Francisco.
func (d *madeDrive) comma2k19(t *testing.T, segment string) {
	earth := newECEF(0.6531, -2.1342)
	arrays := map[string][]float64{}
	add := func(name string, x ...float64) { arrays[name] = append(arrays[name], x...) }
	for _, r := range d.rows {
		add("frame_times", 46408+r.time)
		place := earth.turn(r.east, r.north, r.up)
		add("frame_positions", earth.origin[0]+place[0], earth.origin[1]+place[1], earth.origin[2]+place[2])
		tangent := earth.turn(-math.Sin(r.heading), math.Cos(r.heading), d.grade)
		rise := earth.turn(0, 0, r.climb)
		add("frame_velocities", tangent[0]*r.speed+rise[0], tangent[1]*r.speed+rise[1], tangent[2]*r.speed+rise[2])
		forward := tangent.unit()
		level := earth.turn(math.Cos(r.heading), math.Sin(r.heading), 0) // to the right
		down := forward.cross(level)
		sin, cos := math.Sincos(d.bank) // the left side is higher: the right one points down
		var right vector
		for i := range right {
			right[i] = cos*level[i] + sin*down[i]
		}
		q := quaternion(forward, right, forward.cross(right))
		add("frame_orientations", q[:]...)
	}
	dir := filepath.Join(segment, poseDir)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, f := range poseFiles {
		shape := []int{len(d.rows), f.columns}
		if f.columns == 1 {
			shape = shape[:1]
		}
		writePoses(t, filepath.Join(dir, f.name), arrays[f.name], shape...)
	}
}

func writePoses(t *testing.T, path string, x []float64, shape ...int) {
	var b bytes.Buffer
	require.NoError(t, npy.Write(&b, &npy.Array{DType: "f64", Shape: shape, Data: runtime.Bytes(x)}))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
}

func TestImportPoses_FindsTheRoad(t *testing.T) {
	dir := t.TempDir()
	drives := madeDrives(20)
	route := filepath.Join(dir, "Chunk_1", "b0c9d2329ad1606b|2018-08-02--08-34-47")
	drives["circle"].comma2k19(t, filepath.Join(route, "10"))
	drives["S"].comma2k19(t, filepath.Join(route, "9"))
	list, _, err := Load(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, list, 2)
	for i, name := range []string{"S", "circle"} {
		require.Equal(t, filepath.Base(route)+[]string{"/9", "/10"}[i], list[i].Name)
		drives[name].requireRoad(t, list[i].Road, 5e-6, 1.5e-4)
	}
	alone, _, err := Load(t.Context(), filepath.Join(route, "9"))
	require.NoError(t, err)
	require.Equal(t, list[:1], alone)
}

func TestImportPoses_RefusesWhatIsNoSegment(t *testing.T) {
	drive := made(madeDrive{curvature: func(float64) float64 { return 0 }, hz: 20}, 2)
	const n = 40
	for want, damage := range map[string]func(dir string){
		"frame_velocities: no such file": func(dir string) { os.Remove(filepath.Join(dir, "frame_velocities")) },
		"frame_positions: it has 3 rows, and frame_times has 40": func(dir string) {
			writePoses(t, filepath.Join(dir, "frame_positions"), make([]float64, 9), 3, 3)
		},
		"frame_orientations: it has shape [40 3], want [frames, 4]": func(dir string) {
			writePoses(t, filepath.Join(dir, "frame_orientations"), make([]float64, 3*n), n, 3)
		},
		"frame_times: row 1 is [NaN], want finite numbers": func(dir string) {
			x := make([]float64, n)
			x[1] = math.NaN()
			writePoses(t, filepath.Join(dir, "frame_times"), x, n)
		},
		"global_pose: sample 1: its time is 0 s behind 0 s: times must grow": func(dir string) {
			writePoses(t, filepath.Join(dir, "frame_times"), make([]float64, n), n)
		},
		"global_pose: frame 0: its position is 0 km from the centre of the earth: want ECEF, in m": func(dir string) {
			writePoses(t, filepath.Join(dir, "frame_positions"), make([]float64, 3*n), n, 3)
		},
		"frame 0: its quaternion has length 0, want 1": func(dir string) {
			writePoses(t, filepath.Join(dir, "frame_orientations"), make([]float64, 4*n), n, 4)
		},
		"away from where it drives: want quaternions (w, x, y, z)": func(dir string) {
			x := make([]float64, 4*n)
			for i := range n {
				x[4*i+1] = 1
			}
			writePoses(t, filepath.Join(dir, "frame_orientations"), x, n, 4)
		},
		"frame_times: ": func(dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "frame_times"), []byte("no array"), 0o644))
		},
	} {
		segment := filepath.Join(t.TempDir(), "route", "0")
		drive.comma2k19(t, segment)
		damage(filepath.Join(segment, poseDir))
		_, _, err := Load(t.Context(), segment)
		require.ErrorContains(t, err, want)
	}
	huge := filepath.Join(t.TempDir(), "route", "0", poseDir)
	require.NoError(t, os.MkdirAll(huge, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(huge, "frame_times"), nil, 0o644))
	require.NoError(t, os.Truncate(filepath.Join(huge, "frame_times"), 1<<40))
	_, _, err := Load(t.Context(), filepath.Dir(huge))
	require.ErrorContains(t, err, "frame_times: it has 1048576 MiB, and 64 are allowed: it is no segment's")
}

// TestImportedDrive_IsDriven: the controller follows an imported S-curve within its lane, near the recorded speed.
func TestImportedDrive_IsDriven(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	path := filepath.Join(t.TempDir(), "s.csv")
	require.NoError(t, os.WriteFile(path, []byte(madeDrives(10)["S"].csv()), 0o644))
	list, _, err := Load(t.Context(), path)
	require.NoError(t, err)
	s, err := list[0].Draw(1, 0)
	require.NoError(t, err)
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	r, err := (&Runner{Device: d}).RunBatch(t.Context(), []Scenario{s}, c, 1, 1)
	require.NoError(t, err)
	require.False(t, r.Failed(0))
	require.Less(t, metric(t, r, 0, "offset_max"), 0.4)
	require.Less(t, metric(t, r, 0, "speed_error"), 1.0)
	list[0].Values = map[string]float64{"speed": 25} // the default, which the record would change
	replay, err := Planner.ReplayOf(&list[0], 1, 0, "pid")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "replay.yaml")
	require.NoError(t, os.WriteFile(file, replay.Format("a drive"), 0o644))
	back, err := ReadReplay(file)
	require.NoError(t, err)
	require.Equal(t, replay, back)
}

func TestAngles_AreThoseOfMath(t *testing.T) {
	for k := range 64 {
		y, x := math.Sincos(float64(k) * math.Pi / 32)
		require.InDelta(t, 0, math.Remainder(math.Atan2(y, x)-atan2(y, x), 2*math.Pi), 1e-12)
		require.InDelta(t, math.Asin(y), asin(y), 1e-7)
	}
}
