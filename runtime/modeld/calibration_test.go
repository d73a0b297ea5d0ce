package modeld

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
)

func cameras(t *testing.T, device, sensor string) Cameras {
	t.Helper()
	c, err := CamerasOf(device, sensor)
	require.NoError(t, err)
	return c
}

// within holds a matrix against figures of 6 decimals.
func within(t *testing.T, want, got [9]float32) {
	t.Helper()
	for i := range want {
		require.InDelta(t, want[i], got[i], 2e-6*math.Max(1, math.Abs(float64(want[i]))), "%d of %v", i, got)
	}
}

func TestWarpsOfAStraightAndATurnedDevice(t *testing.T) {
	c := cameras(t, "tizi", "ox03c10")
	for _, k := range []struct {
		rpy        [3]float64
		road, wide [9]float32
	}{
		{
			road: [9]float32{2.90989, 0, 219.068132, 0, 2.90989, 465.489231, 0, 0, 1},
			wide: [9]float32{1.246154, 0, 644.984615, 0, 1.246154, 414.833846, 0, 0, 1},
		},
		{
			rpy:  [3]float64{0, .02, -.01},
			road: [9]float32{2.920338, .020602, 188.69759, .006637, 2.922581, 410.078533, .000011, .000022, .995891},
		},
	} {
		road, wide, err := (&Calibration{RPY: k.rpy, Road: c.Road, WideCamera: c.Wide}).Warps(512)
		require.NoError(t, err)
		within(t, k.road, road)
		if k.wide[8] != 0 {
			within(t, k.wide, wide)
		}
	}
}

// A smaller frame sees the same: its pixel lies where, in the larger one, its multiple lies.
func TestWarpOfASmallerFrameSeesTheSame(t *testing.T) {
	k := cameras(t, "mici", "os04c10")
	c := &Calibration{RPY: [3]float64{.01, -.03, .02}, Road: k.Road, WideCamera: k.Wide}
	large, largeWide, err := c.Warps(512)
	require.NoError(t, err)
	small, smallWide, err := c.Warps(128)
	require.NoError(t, err)
	for i := range 9 {
		scale := float32(4)
		if i%3 == 2 {
			scale = 1
		}
		require.InEpsilon(t, scale*large[i], small[i], 1e-6)
		require.InEpsilon(t, scale*largeWide[i], smallWide[i], 1e-6)
	}
	whole, err := MonitoringWarp(k.Driver, 1440)
	require.NoError(t, err)
	half, err := MonitoringWarp(k.Driver, 720)
	require.NoError(t, err)
	require.Equal(t, [9]float32{2 * whole[0], 0, whole[2], 0, 2 * whole[4], whole[5], 0, 0, 1}, half)
}

// A roll turns the picture about its axis: the vanishing point stays where it is, and what was to the right of it
// goes down.
func TestRollTurnsRightIntoDown(t *testing.T) {
	k := cameras(t, "tici", "ar0231")
	road, _, err := (&Calibration{RPY: [3]float64{math.Pi / 2, 0, 0}, Road: k.Road, WideCamera: k.Wide}).Warps(512)
	require.NoError(t, err)
	place := func(x, y float64) (u, v float64) {
		return float64(road[0])*x + float64(road[1])*y + float64(road[2]), float64(road[3])*x + float64(road[4])*y + float64(road[5])
	}
	u, v := place(256, 47.6)
	require.InDelta(t, 964, u, 1e-3)
	require.InDelta(t, 604, v, 1e-3)
	u, v = place(256+91, 47.6) // a tenth to the right
	require.InDelta(t, 964, u, 1e-3)
	require.InDelta(t, 604+264.8, v, 1e-3)
}

func TestWarpsOfDriverMonitoring(t *testing.T) {
	for sensor, want := range map[string][9]float32{
		"ar0231":  {1, 0, 244, 0, 1, 248, 0, 0, 1},
		"os04c10": {.75, 0, 132, 0, .75, 113, 0, 0, 1},
	} {
		got, err := MonitoringWarp(cameras(t, "tici", sensor).Driver, 1440)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	// An EON's driver camera, of which the network of 2021 sees 306 of 816 columns.
	p := Picture{Width: 816, Height: 612}
	left, right := MonitoringCrop(p, false), MonitoringCrop(p, true)
	x := func(m [9]float32, x float32) float32 { return m[0]*x + m[2] }
	require.InDelta(t, 510-.5, x(left, -.5), 1e-3, "left edge of the first pixel")
	require.InDelta(t, 816-.5, x(left, 319.5), 1e-3)
	require.InDelta(t, 306-.5, x(right, -.5), 1e-3)
	require.InDelta(t, -.5, x(right, 319.5), 1e-3)
	for _, m := range [][9]float32{left, right} {
		require.InDelta(t, -.5, m[4]*-.5+m[5], 1e-3)
		require.InDelta(t, 612-.5, m[4]*639.5+m[5], 1e-3)
		require.Equal(t, [3]float32{0, 0, 1}, [3]float32(m[6:]))
	}
}

func TestCamerasOfDevices(t *testing.T) {
	for _, k := range []struct {
		device, sensor string
		road, wide     Intrinsics
	}{
		{"tici", "ar0231", Intrinsics{2648, 1928, 1208}, Intrinsics{567, 1928, 1208}},
		{"tici", "unknown", Intrinsics{2648, 1928, 1208}, Intrinsics{567, 1928, 1208}},
		{"unknown", "ox03c10", Intrinsics{2648, 1928, 1208}, Intrinsics{567, 1928, 1208}},
		{"mici", "os04c10", Intrinsics{1141.5, 1344, 760}, Intrinsics{425.25, 1344, 760}},
		{"neo", "unknown", Intrinsics{910, 1164, 874}, Intrinsics{910, 1164, 874}},
	} {
		c := cameras(t, k.device, k.sensor)
		require.Equal(t, k.road, c.Road, k)
		require.Equal(t, k.wide, c.Wide, k)
	}
	for _, k := range [][2]string{{"tizi", "unknown"}, {"neo", "ar0231"}, {"unknown", "unknown"}, {"unknown", "os04c10"}, {"pc", "ar0231"}} {
		_, err := CamerasOf(k[0], k[1])
		require.ErrorContains(t, err, "give the focal length and size of its cameras as Intrinsics", k)
	}
}

func TestCalibrationThatCannotBeIsNamed(t *testing.T) {
	for want, spoil := range map[string]func(c *Calibration){
		"Calibration.RPY: pitch is NaN: want an angle in radians; while it is not known, Calibration is nil": func(c *Calibration) { c.RPY[1] = math.NaN() },
		"Calibration.RPY: yaw is -Inf: want an angle in radians; while it is not known, Calibration is nil":  func(c *Calibration) { c.RPY[2] = math.Inf(-1) },
		"Calibration.Road.Focal is 0: want the focal length in pixels, as CamerasOf has it of openpilot's devices": func(c *Calibration) {
			c.Road.Focal = 0
		},
		"Calibration.WideCamera.Focal is NaN: want the focal length in pixels, as CamerasOf has it of openpilot's devices": func(c *Calibration) {
			c.WideCamera.Focal = math.NaN()
		},
		"Calibration.WideCamera.Focal is +Inf: want the focal length in pixels, as CamerasOf has it of openpilot's devices": func(c *Calibration) {
			c.WideCamera.Focal = math.Inf(1)
		},
		"Calibration.Road.Height is 0: want the size of the camera's pictures in pixels":       func(c *Calibration) { c.Road.Height = 0 },
		"Calibration.WideCamera.Width is -2: want the size of the camera's pictures in pixels": func(c *Calibration) { c.WideCamera.Width = -2 },
	} {
		c := &Calibration{Road: Intrinsics{910, 1164, 874}, WideCamera: Intrinsics{910, 1164, 874}}
		spoil(c)
		_, _, err := c.Warps(512)
		require.EqualError(t, err, want)
	}
	_, err := MonitoringWarp(Intrinsics{}, 1440)
	require.ErrorContains(t, err, "Camera.Focal is 0")
}

// TestProjections: the vanishing point is where the warp finds the middle of the model's frame, and a point of the
// road is where a straight pinhole camera has it.
func TestProjections(t *testing.T) {
	cameras, err := CamerasOf("tici", "ar0231")
	require.NoError(t, err)
	pixel := func(m [3][3]float64, p [3]float64) (x, y float64) {
		var v [3]float64
		for i := range 3 {
			for k := range 3 {
				v[i] += m[i][k] * p[k]
			}
		}
		return v[0] / v[2], v[1] / v[2]
	}
	c := Calibration{RPY: [3]float64{.03, .02, -.01}, Road: cameras.Road, WideCamera: cameras.Wide}
	road, wide, err := c.Projections()
	require.NoError(t, err)
	roadWarp, wideWarp, err := c.Warps(generation.RoadOptics.Width)
	require.NoError(t, err)
	for _, w := range []struct {
		projection [3][3]float64
		warp       [9]float32
		middle     [3]float64
	}{{road, roadWarp, [3]float64{256, generation.RoadOptics.Y, 1}}, {wide, wideWarp, [3]float64{256, generation.WideOptics.Y, 1}}} {
		var m [3][3]float64
		for i, v := range w.warp {
			m[i/3][i%3] = float64(v)
		}
		wantX, wantY := pixel(m, w.middle)
		x, y := pixel(w.projection, [3]float64{100, 0, 0})
		require.InDelta(t, wantX, x, .01)
		require.InDelta(t, wantY, y, .01)
	}
	c.RPY = [3]float64{}
	road, wide, err = c.Projections()
	require.NoError(t, err)
	x, y := pixel(road, [3]float64{30, 1, CameraHeight})
	require.InDelta(t, 964+2648./30, x, 1e-9)
	require.InDelta(t, 604+2648*1.22/30, y, 1e-9)
	x, y = pixel(wide, [3]float64{30, -1, CameraHeight})
	require.InDelta(t, 964-567./30, x, 1e-9)
	require.InDelta(t, 604+567*1.22/30, y, 1e-9)
	c.RPY[1] = math.NaN()
	_, _, err = c.Projections()
	require.ErrorContains(t, err, "pitch is NaN")
}
