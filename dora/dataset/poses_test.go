package dataset

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// drivenOn is where the car is on the plane of the drive: integrated in steps of a hundredth of a frame, which no code that reads poses does.
type drivenOn struct{ x, y, heading, speed, curvature float64 }

func driveOn(from, frames int) (path []drivenOn) {
	p := drivenOn{}
	const parts = 100
	for f := range frames {
		p.speed, p.curvature = openpilot.Motion(from + f)
		path = append(path, p)
		for k := range parts {
			v, c := motion(from, f, (float64(k)+.5)/parts/openpilot.Rate)
			step := v / parts / openpilot.Rate
			p.x, p.y = p.x+step*math.Cos(p.heading+c*step/2), p.y+step*math.Sin(p.heading+c*step/2)
			p.heading += c * step
		}
	}
	return path
}

// The Earth's axes, on those of the drive's plane, and where the drive begins, m.
var (
	earth = func() [3][3]float64 {
		a, b := math.Sincos(1.1)
		c, d := math.Sincos(-2.3)
		return product([3][3]float64{{b, -a, 0}, {a, b, 0}, {0, 0, 1}}, [3][3]float64{{1, 0, 0}, {0, d, -c}, {0, c, d}})
	}()
	origin = [3]float64{-2.7e6, -4.3e6, 3.85e6}
	mount  = [3]float64{0, 0.03, -0.02}
)

// writePoses writes a drive as comma2k19 has it, with frames in a directory instead of a video, and returns the segment's directory.
func writePoses(t *testing.T, dir string, from, frames int) string {
	t.Helper()
	path := driveOn(from, frames)
	segment := filepath.Join(dir, "Chunk_1", "b0c9d2329ad1606b|2018-08-02--08-34-47", "3")
	for _, d := range []string{"global_pose", "processed_log/CAN/speed", "fcamera"} {
		require.NoError(t, os.MkdirAll(filepath.Join(segment, d), 0o755))
	}
	sine := func(a float64) (float64, float64) { return math.Sincos(a) }
	sp, cp := sine(mount[1])
	sy, cy := sine(mount[2])
	mounted := product([3][3]float64{{cy, -sy, 0}, {sy, cy, 0}, {0, 0, 1}}, [3][3]float64{{cp, 0, sp}, {0, 1, 0}, {-sp, 0, cp}}) // the camera's axes from the car's
	var times, positions, velocities, orientations, at, said []float64
	for i, p := range path {
		s, c := math.Sincos(p.heading)
		car := product(earth, [3][3]float64{{c, -s, 0}, {s, c, 0}, {0, 0, 1}})
		times = append(times, 46_408.5+float64(i)/openpilot.Rate)
		for k := range 3 {
			positions = append(positions, origin[k]+earth[k][0]*p.x+earth[k][1]*p.y)
			velocities = append(velocities, car[k][0]*p.speed)
		}
		q := quaternionOf(product(car, transposed(mounted)))
		if i%3 == 1 { // the same rotation
			q = [4]float64{-q[0], -q[1], -q[2], -q[3]}
		}
		orientations = append(orientations, q[:]...)
		at, said = append(at, 46_408.5+float64(i)/openpilot.Rate-.01), append(said, p.speed+.25)
		picture := openpilot.Camera{Focal: 910 * 96. / 1164, Width: 96, Height: 72}.Draw(from + i).Array()
		require.NoError(t, npy.WriteZip(filepath.Join(segment, "fcamera", fmt.Sprintf("%06d.npz", i)), map[string]*npy.Array{"road": picture, "wide": picture}))
	}
	write := func(name string, x []float64, shape ...int) { writeArray(t, filepath.Join(segment, name), x, shape...) }
	write("global_pose/frame_times", times, frames)
	write("global_pose/frame_positions", positions, frames, 3)
	write("global_pose/frame_velocities", velocities, frames, 3)
	write("global_pose/frame_orientations", orientations, frames, 4)
	write("processed_log/CAN/speed/t", at, frames)
	write("processed_log/CAN/speed/value", said, frames, 1)
	return segment
}

func writeArray(t *testing.T, path string, x []float64, shape ...int) {
	t.Helper()
	data := ir.FromFloats(ir.T(ir.Float64, shape...), x).Dense()
	require.NoError(t, npy.WriteFile(path, &npy.Array{DType: "f64", Shape: shape, Data: data}))
}

// quaternionOf is that of a rotation, w x y z: half of the antisymmetric part by w, wherever w is the greatest by far, else by the greatest of the diagonal.
func quaternionOf(r [3][3]float64) [4]float64 {
	square := [4]float64{1 + r[0][0] + r[1][1] + r[2][2], 1 + r[0][0] - r[1][1] - r[2][2], 1 - r[0][0] + r[1][1] - r[2][2], 1 - r[0][0] - r[1][1] + r[2][2]} // 4 of each one's square
	k := slices.Index(square[:], slices.Max(square[:]))
	by := 2 * math.Sqrt(square[k]) // 4 of that one
	a, b, c := r[2][1]-r[1][2], r[0][2]-r[2][0], r[1][0]-r[0][1]
	d, e, f := r[1][0]+r[0][1], r[0][2]+r[2][0], r[2][1]+r[1][2]
	q := [][4]float64{{square[0], a, b, c}, {a, square[1], d, e}, {b, d, square[2], f}, {c, e, f, square[3]}}[k]
	for i := range q {
		q[i] /= by
	}
	return q
}

// TestPosesSayWhereTheCarWent, and how the camera is mounted: the path of a plan is the drive's to the millimetre, on the axes of the car, whatever those of the Earth.
func TestPosesSayWhereTheCarWent(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	const from, frames = 1000, 20 * 13
	writePoses(t, dir, from, frames)
	for _, spec := range []string{"comma2k19:" + dir, dir} {
		set, err := Open(ctx, spec, Options{Inputs: takes(t, "vision"), Warn: func(text string) { t.Error(text) }})
		require.NoError(t, err)
		defer set.Close()
		require.Equal(t, frames/4-1, set.Len())
		assert.Equal(t, "b0c9d2329ad1606b|2018-08-02--08-34-47", set.Route(0))
		g := set.(*routes).segments[0]
		path := driveOn(from, frames)
		for _, i := range []int{0, 11, set.Len() - 1} {
			s, err := set.Sample(ctx, i)
			require.NoError(t, err)
			frame := 4 + 4*i
			assert.Equal(t, fmt.Sprintf("%s/%d", g.name, 3*1200+frame), s.Key)
			m := g.index.Timeline.Moments[frame]
			for k := range 3 {
				assert.InDelta(t, mount[k], m.RPY[k], 1e-7)
			}
			assert.Equal(t, path[frame].speed+.25, m.Speed, "the car's own word, of 10 ms before")
			assert.InDelta(t, path[frame].curvature, m.Curvature, 3e-5)
			assert.Equal(t, [2]float64{lateralDelay2k19, longitudinalDelay2k19}, m.Delays)
			a, s0, c0 := path[frame], math.Sin(path[frame].heading), math.Cos(path[frame].heading)
			for row, seconds := range modeld.TIndex() {
				at := float64(frame) + seconds*openpilot.Rate
				got := s.Truth["plan"][15*row : 15*row+15]
				if at > frames-1 {
					assert.True(t, math.IsNaN(float64(got[0])), "what comes after the segment is not known")
					continue
				}
				b := between(path, at)
				x, y := b.x-a.x, b.y-a.y
				sh, ch := math.Sincos(b.heading - a.heading)
				want := []float64{x*c0 + y*s0, y*c0 - x*s0, 0, b.speed * ch, b.speed * sh, 0}
				for k, w := range want {
					assert.InDelta(t, w, got[k], 2e-3, "column %d after %v s", k, seconds)
				}
				for k, w := range []float64{0, 0, b.heading - a.heading, 0, 0, b.speed * b.curvature} {
					assert.InDelta(t, w, got[9+k], 5e-4, "column %d after %v s", 9+k, seconds)
				}
			}
			for name, bytes := range s.Inputs {
				assert.NotEqual(t, make([]byte, len(bytes)), bytes, name)
			}
		}
	}
}

// between is the drive between two of its frames.
func between(path []drivenOn, at float64) drivenOn {
	n := min(int(at), len(path)-2)
	p, a, b := at-float64(n), path[n], path[n+1]
	mix := func(x, y float64) float64 { return x + p*(y-x) }
	return drivenOn{mix(a.x, b.x), mix(a.y, b.y), mix(a.heading, b.heading), mix(a.speed, b.speed), mix(a.curvature, b.curvature)}
}

// TestPosesThatAreDamaged leave their segment out, by the name of the file.
func TestPosesThatAreDamaged(t *testing.T) {
	ctx, whole := context.Background(), t.TempDir()
	const frames = 120
	segment := writePoses(t, whole, 0, frames)
	rise := make([]float64, frames)
	for i := range rise {
		rise[i] = 1 + float64(i)/20
	}
	for name, k := range map[string]struct {
		spec   string
		damage func(t *testing.T, pose string)
		want   string
	}{
		"no positions":     {"", func(t *testing.T, p string) { require.NoError(t, os.Remove(p+"/frame_positions")) }, "frame_positions"},
		"fewer velocities": {"", func(t *testing.T, p string) { writeArray(t, p+"/frame_velocities", make([]float64, 30), 10, 3) }, "frame_velocities: an array [10 3], want [120,3]"},
		"no array":         {"", func(t *testing.T, p string) { require.NoError(t, os.WriteFile(p+"/frame_times", []byte("x"), 0o644)) }, "frame_times"},
		"no frames":        {"", func(t *testing.T, p string) { writeArray(t, p+"/frame_times", nil, 0) }, "frame_times: an array [0], want [frames,1]"},
		"times that fall":  {"", func(t *testing.T, p string) { writeArray(t, p+"/frame_times", append(rise[:119:119], 2), frames) }, "frame_times: frame 119 is at 2 s"},
		"not a number": {"", func(t *testing.T, p string) {
			writeArray(t, p+"/frame_times", append(rise[:119:119], math.NaN()), frames)
		}, "frame_times: row 119 has a NaN"},
		"no rotation": {"", func(t *testing.T, p string) {
			writeArray(t, p+"/frame_orientations", make([]float64, 4*frames), frames, 4)
		}, "frame_orientations: frame 0: a quaternion of length 0, want 1"},
		"a parked car": {"", func(t *testing.T, p string) {
			writeArray(t, p+"/frame_velocities", make([]float64, 3*frames), frames, 3)
		}, "nothing says how its camera is mounted"},
		"no poses": {"comma2k19:", func(t *testing.T, p string) {
			require.NoError(t, os.Rename(p, p+"s"))
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(p), "rlog"), []byte("a log"), 0o644))
		}, "it has no global_pose"},
		"no video": {"comma2k19:", func(t *testing.T, p string) { require.NoError(t, os.RemoveAll(p+"/../fcamera")) }, "it has no video of the camera (video.hevc)"},
		"speeds":   {"", func(t *testing.T, p string) { writeArray(t, p+"/../processed_log/CAN/speed/value", rise[:7], 7) }, "value: an array [7], want [120,1]"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
			rel, err := filepath.Rel(whole, segment)
			require.NoError(t, err)
			k.damage(t, filepath.Join(dir, rel, "global_pose"))
			var warned []string
			_, err = Open(ctx, k.spec+dir, Options{Inputs: takes(t, "vision"), Warn: func(text string) { warned = append(warned, text) }})
			require.ErrorContains(t, err, k.want)
			require.Len(t, warned, 1)
			assert.Contains(t, warned[0], "2018-08-02--08-34-47--3 is left out: ")
		})
	}
}
