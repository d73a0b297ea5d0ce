package dataset

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/npy"
)

// global is where the camera was, how it was turned and how it moved, in ECEF: m and m/s. Attitude turns vectors on the camera's calibrated axes into ECEF.
type global struct {
	Position, Velocity [3]float64
	Attitude           [3][3]float64
}

// Facts of comma2k19 that its files do not say. Its EON was mounted in a RAV4 and a Civic on the right-hand roads of California; delays are what openpilot assumed
// of such cars: a steering actuator's of 0.1 s, and 0.2 s until it was learned; 0.15 s of the pedals.
const (
	lateralDelay2k19      = 0.3
	longitudinalDelay2k19 = 0.15
	framesOf2k19          = 1200 // of a segment
)

// posedTimeline is that of a segment of comma2k19: the poses of its frames, from an optimiser over GNSS, IMU and pictures, instead of what a log says. The calibration is
// the direction in which the car moved, on the camera's axes. (https://github.com/commaai/comma2k19, "Pose Format")
func posedTimeline(s *route.Segment) (*timeline, error) {
	p, err := readPoses(s.Files[route.GlobalPose])
	if err != nil {
		return nil, err
	}
	speeds, err := carSpeeds(s.Files[route.ProcessedLog])
	if err != nil {
		return nil, err
	}
	t := &timeline{Device: "neo", Sensor: "unknown", Events: map[string]int{}}
	rpy, known := p.mounting()
	if !known {
		return nil, fmt.Errorf("%s: the car did not drive straight ahead for %d s at %.0f m/s, so nothing says how its camera is mounted", s.Files[route.GlobalPose], mountingFrames/20, mountingSpeed)
	}
	calibrated := product(turned([3]float64{0, 0, rpy[2]}, 1), turned([3]float64{0, rpy[1], 0}, 1))
	for i, seconds := range p.times {
		m := moment{FrameID: uint32(s.Number*framesOf2k19 + i), Road: i, Wide: -1, SOF: uint64(math.Round(float64(seconds * 1e9))), Known: true, RPY: rpy}
		m.Delays = [2]float64{lateralDelay2k19, longitudinalDelay2k19}
		m.Speed = speeds.at(seconds, length(p.velocities[i]))
		if m.Speed > 1 {
			m.Curvature = p.rates(i)[2] / m.Speed
		}
		m.Global = &global{p.positions[i], p.velocities[i], product(p.attitudes[i], calibrated)}
		t.Moments = append(t.Moments, m)
	}
	return t, nil
}

// poses are those of all frames, on the camera's own axes: forward, right, down.
type poses struct {
	times                 []float64 // s
	positions, velocities [][3]float64
	attitudes             [][3][3]float64 // ECEF from the camera
}

// readPoses reads frame_times [N], frame_positions [N,3], frame_velocities [N,3] and frame_orientations [N,4], which are Hamilton quaternions w x y z.
func readPoses(dir string) (*poses, error) {
	p := &poses{}
	times, err := readColumns(filepath.Join(dir, "frame_times"), 1, 0)
	if err != nil {
		return nil, err
	}
	for i, x := range times {
		if p.times = append(p.times, x[0]); x[0] < 0 || i > 0 && x[0] <= times[i-1][0] {
			return nil, fmt.Errorf("%s: frame %d is at %v s, want times that rise from 0 on", filepath.Join(dir, "frame_times"), i, x[0])
		}
	}
	for _, k := range []struct {
		name string
		into *[][3]float64
	}{{"frame_positions", &p.positions}, {"frame_velocities", &p.velocities}} {
		rows, err := readColumns(filepath.Join(dir, k.name), 3, len(times))
		if err != nil {
			return nil, err
		}
		for _, x := range rows {
			*k.into = append(*k.into, [3]float64(x))
		}
	}
	path := filepath.Join(dir, "frame_orientations")
	quaternions, err := readColumns(path, 4, len(times))
	if err != nil {
		return nil, err
	}
	for i, q := range quaternions {
		if n := length(q); math.Abs(n-1) > 1e-3 {
			return nil, fmt.Errorf("%s: frame %d: a quaternion of length %.4g, want 1", path, i, n)
		}
		p.attitudes = append(p.attitudes, rotation([4]float64(q)))
	}
	return p, nil
}

// readColumns reads an array of so many columns and rows as comma2k19 stores them, .npy without the suffix. No rows: as many as there are.
func readColumns(path string, columns, rows int) ([][]float64, error) {
	a, err := npy.ReadFile(path)
	if err != nil {
		return nil, err
	}
	x, err := a.Float64s()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	n := 0
	if len(a.Shape) > 0 {
		n = a.Shape[0]
	}
	if n == 0 || len(x) != n*columns || rows > 0 && n != rows {
		want := "frames"
		if rows > 0 {
			want = fmt.Sprint(rows)
		}
		return nil, fmt.Errorf("%s: an array %v, want [%s,%d]", path, a.Shape, want, columns)
	}
	if i := slices.IndexFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); i >= 0 {
		return nil, fmt.Errorf("%s: row %d has a %v", path, i/columns, x[i])
	}
	return slices.Collect(slices.Chunk(x, columns)), nil
}

// Frames that the mounting is seen in: fast ones on a straight road, as openpilot's calibrationd takes them, and five seconds of them.
const (
	mountingSpeed  = 15 * 0.44704        // m/s in 15 mph
	mountingTurn   = 2 * (math.Pi / 180) // rad/s
	mountingFrames = 100
)

// mounting is how the camera is turned from the direction in which the car moves: no roll, pitch and yaw in rad. It is not known of a car that stands or turns.
func (p *poses) mounting() (rpy [3]float64, known bool) {
	n := 0
	for i, r := range p.attitudes {
		v := times(transposed(r), p.velocities[i])
		if length(v) < mountingSpeed || v[0] <= 0 || math.Abs(p.rates(i)[2]) > mountingTurn {
			continue
		}
		level := math.Sqrt(float64(v[0]*v[0]) + float64(v[1]*v[1]))
		rpy[1] += angle(-v[2], level)
		rpy[2] += angle(v[1], v[0])
		n++
	}
	if n < mountingFrames {
		return [3]float64{}, false
	}
	return [3]float64{0, rpy[1] / float64(n), rpy[2] / float64(n)}, true
}

// rates are those of turning about the camera's axes, rad/s, from the frame before to the one after.
func (p *poses) rates(i int) [3]float64 {
	a, b := max(i-1, 0), min(i+1, len(p.times)-1)
	if a == b {
		return [3]float64{}
	}
	return rates(p.attitudes[a], p.attitudes[b], p.times[b]-p.times[a])
}

// speeds are those that the car said, at times in s.
type speeds struct{ times, values []float64 }

// carSpeeds reads the car's speed, if it was logged; the poses' serves without it.
func carSpeeds(log string) (s speeds, err error) {
	if log == "" {
		return s, nil
	}
	dir := filepath.Join(log, "CAN", "speed")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	times, err := readColumns(filepath.Join(dir, "t"), 1, 0)
	if err != nil {
		return s, err
	}
	values, err := readColumns(filepath.Join(dir, "value"), 1, len(times))
	if err != nil {
		return s, err
	}
	for i := range times {
		s.times, s.values = append(s.times, times[i][0]), append(s.values, values[i][0])
	}
	return s, nil
}

// at is the last speed up to a time, or another if there is none.
func (s speeds) at(seconds, other float64) float64 {
	n, exact := slices.BinarySearch(s.times, seconds)
	if exact {
		n++
	}
	if n == 0 {
		return other
	}
	return s.values[n-1]
}

// driven are the poses from a moment on, over ten seconds at most, as far as there is no gap.
func (p place) driven() (path []pose) {
	var moments []*moment
	for m := range p.onward() {
		if n := len(moments); m.Global == nil || n > 0 && (interval(moments[n-1], m) <= 0 || interval(moments[n-1], m) > gap) {
			break
		}
		if moments = append(moments, m); interval(moments[0], m) > longest {
			break
		}
	}
	from := moments[0].Global
	back := transposed(from.Attitude)
	for i, m := range moments {
		at := pose{seconds: interval(moments[0], m), attitude: product(back, m.Global.Attitude), velocity: times(back, m.Global.Velocity)}
		var way [3]float64
		for k := range way {
			way[k] = m.Global.Position[k] - from.Position[k]
		}
		at.position = times(back, way)
		if a, b := moments[max(i-1, 0)], moments[min(i+1, len(moments)-1)]; a != b {
			at.rotation = rates(a.Global.Attitude, b.Global.Attitude, interval(a, b))
		}
		path = append(path, at)
	}
	return path
}
