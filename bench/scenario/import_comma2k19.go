package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/npy"
)

// poseDir is where a segment of comma2k19 has its poses.
const poseDir = string(route.GlobalPose)

// poseFiles are those of a segment's poses that are read, with the columns of each: frame times in s, positions in m and
// velocities in m/s in ECEF, and quaternions (w, x, y, z) that turn device axes, forward, right and down, into ECEF.
var poseFiles = []struct {
	name    string
	columns int
}{{"frame_times", 1}, {"frame_positions", 3}, {"frame_velocities", 3}, {"frame_orientations", 4}}

// importPoses makes a scenario of the poses of a segment of comma2k19. It is a road of knots with the recorded speed:
// curvature is that of the device's heading over 0.35 s, grade that of its velocity, bank the roll of the device, of which
// the mounting is a part. What processed_log has is not read. Errors name the file and what is wrong in it.
func importPoses(ctx context.Context, dir, name string) (*Family, error) {
	arrays := map[string][][]float64{}
	rows := 0
	for _, f := range poseFiles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, f.name)
		list, err := readPoses(path, f.columns)
		if err != nil {
			return nil, err
		}
		if rows == 0 {
			rows = len(list)
		}
		if len(list) != rows {
			return nil, fmt.Errorf("%s: it has %d rows, and %s has %d: each frame has one in both", path, len(list),
				poseFiles[0].name, rows)
		}
		arrays[f.name] = list
	}
	p := &poses{time: flat(arrays["frame_times"])}
	for i, place := range arrays["frame_positions"] {
		v, q := arrays["frame_velocities"][i], arrays["frame_orientations"][i]
		if err := p.add(vector(place), vector(v), [4]float64(q)); err != nil {
			return nil, fmt.Errorf("%s: frame %d: %w", dir, i, err)
		}
	}
	r := p.recording()
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	f, err := r.family(name, "a recorded segment of comma2k19")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}

// readPoses reads an array of [frames, columns], without an axis where there is one column, that has finite numbers.
func readPoses(path string, columns int) (rows [][]float64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	const most = 64 << 20 // bytes: 600 times as much as a segment has
	if info.Size() > most {
		return nil, fmt.Errorf("%s: it has %d MiB, and %d are allowed: it is no segment's", path, info.Size()>>20, most>>20)
	}
	a, err := npy.ReadFile(path)
	if err != nil {
		return nil, err
	}
	shape := a.Shape
	if columns == 1 && len(shape) == 1 {
		shape = append(slices.Clone(shape), 1)
	}
	if len(shape) != 2 || shape[1] != columns {
		return nil, fmt.Errorf("%s: it has shape %v, want [frames, %d]", path, a.Shape, columns)
	}
	if shape[0] > maxSamples {
		return nil, fmt.Errorf("%s: it has %d rows, and %d are allowed", path, shape[0], maxSamples)
	}
	x, err := a.Float64s()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range shape[0] {
		row := x[i*columns : (i+1)*columns]
		if !finite(row...) {
			return nil, fmt.Errorf("%s: row %d is %v, want finite numbers", path, i, row)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func flat(rows [][]float64) (out []float64) {
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}

// vector is a place or a direction.
type vector [3]float64

func (a vector) dot(b vector) float64 {
	return float64(a[0]*b[0]) + float64(a[1]*b[1]) + float64(a[2]*b[2])
}

func (a vector) cross(b vector) vector {
	return vector{
		float64(a[1]*b[2]) - float64(a[2]*b[1]),
		float64(a[2]*b[0]) - float64(a[0]*b[2]),
		float64(a[0]*b[1]) - float64(a[1]*b[0]),
	}
}

func (a vector) unit() vector {
	n := math.Sqrt(a.dot(a))
	return vector{a[0] / n, a[1] / n, a[2] / n}
}

// flattening is b²/a² of the WGS 84 ellipsoid.
const flattening = 1 - 6.69437999014e-3

// local are the directions up, east and north at a place in ECEF: up is the normal of the ellipsoid.
func local(place vector) (up, east, north vector) {
	up = vector{place[0], place[1], place[2] / flattening}.unit()
	east = vector{-place[1], place[0], 0}.unit()
	return up, east, up.cross(east)
}

// poses are what frames say of a drive.
type poses struct {
	time, speed, heading, grade, bank []float64 // heading: rad, left positive
}

// add takes a frame: its place and its velocity in ECEF, and the quaternion that turns device axes into ECEF.
func (p *poses) add(place, velocity vector, q [4]float64) error {
	norm := math.Sqrt(float64(q[0]*q[0]) + float64(q[1]*q[1]) + float64(q[2]*q[2]) + float64(q[3]*q[3]))
	const earth, around = 6.37e6, 0.03e6 // m: its radius, which differs by 11 km, and what cars may be above
	switch r := math.Sqrt(place.dot(place)); {
	case math.Abs(r-earth) > around:
		return fmt.Errorf("its position is %.0f km from the centre of the earth: want ECEF, in m", r/1e3)
	case math.Abs(norm-1) > 0.01:
		return fmt.Errorf("its quaternion has length %v, want 1", norm)
	}
	forward, right := axes(q)
	up, east, north := local(place)
	x, y := velocity.dot(east), velocity.dot(north)
	flat := math.Sqrt(float64(x*x) + float64(y*y))
	if flat > 5 && forward.dot(velocity) < 0.8*flat {
		return errors.New("the device looks away from where it drives: want quaternions (w, x, y, z) that turn device axes " +
			"into ECEF")
	}
	p.speed = append(p.speed, flat)
	p.heading = append(p.heading, -atan2(forward.dot(east), forward.dot(north)))
	p.grade = append(p.grade, velocity.dot(up)/flat)
	p.bank = append(p.bank, -asin(right.dot(up)))
	return nil
}

// axes are the directions forward and right of the device, of a quaternion (w, x, y, z) of length 1.
func axes(q [4]float64) (forward, right vector) {
	w, x, y, z := q[0], q[1], q[2], q[3]
	two := func(a, b, c, d float64) float64 { return float64(2 * (float64(a*b) + float64(c*d))) }
	forward = vector{1 - two(y, y, z, z), two(x, y, w, z), two(x, z, -w, y)}
	right = vector{two(x, y, -w, z), 1 - two(x, x, z, z), two(y, z, w, x)}
	return forward, right
}

// recording is the drive.
func (p *poses) recording() *recording {
	way := make([]float64, len(p.time))
	for i := 1; i < len(way); i++ {
		way[i] = way[i-1] + float64((p.speed[i]+p.speed[i-1])/2*(p.time[i]-p.time[i-1]))
	}
	return &recording{
		time: p.time, speed: p.speed, curvature: turned(unwrapped(p.heading), way, p.speed, 3),
		grade: holdBelow(p.grade, p.speed, crawl), bank: p.bank,
	}
}
