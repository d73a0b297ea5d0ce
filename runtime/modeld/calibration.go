package modeld

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
)

// Cameras are the cameras of a device.
type Cameras struct{ Road, Wide, Driver Intrinsics }

// CamerasOf returns the cameras of a device by openpilot's names of it (deviceState.deviceType: tici, tizi, mici, neo) and of the
// road camera's sensor (roadCameraState.sensor: ar0231, ox03c10, os04c10, unknown). A neo has one road camera: Wide is it too.
func CamerasOf(device, sensor string) (Cameras, error) {
	// os04c10 pictures are binned: half of 2688 × 1520.
	fisheye, binned := Intrinsics{567, 1928, 1208}, Intrinsics{567 * .75, 1344, 760}
	full, small := Cameras{Intrinsics{2648, 1928, 1208}, fisheye, fisheye}, Cameras{Intrinsics{1522 * .75, 1344, 760}, binned, binned}
	switch device {
	case "neo":
		if sensor == "unknown" { // a neo never said
			road := Intrinsics{910, 1164, 874}
			return Cameras{road, road, Intrinsics{650, 816, 612}}, nil
		}
	case "tici", "tizi", "mici", "unknown": // logs from before devices said what they are come from tici
		switch {
		case sensor == "ar0231" || sensor == "ox03c10" || sensor == "unknown" && device == "tici":
			return full, nil
		case sensor == "os04c10" && device != "unknown":
			return small, nil
		}
	}
	return Cameras{}, fmt.Errorf("no cameras of a device %q with sensor %q are known: give the focal length and size of its cameras as Intrinsics", device, sensor)
}

// check reports what is wrong with a camera, which the error calls by name.
func (c Intrinsics) check(name string) error {
	if !(c.Focal > 0) || math.IsInf(c.Focal, 0) {
		return fmt.Errorf("%s.Focal is %v: want the focal length in pixels, as CamerasOf has it of openpilot's devices", name, c.Focal)
	}
	for _, side := range []struct {
		name   string
		pixels int
	}{{"Width", c.Width}, {"Height", c.Height}} {
		if side.pixels <= 0 {
			return fmt.Errorf("%s.%s is %d: want the size of the camera's pictures in pixels", name, side.name, side.pixels)
		}
	}
	return nil
}

// check reports what is wrong with a calibration.
func (c *Calibration) check() error {
	for i, angle := range [...]string{"roll", "pitch", "yaw"} {
		if math.IsNaN(c.RPY[i]) || math.IsInf(c.RPY[i], 0) {
			return fmt.Errorf("Calibration.RPY: %s is %v: want an angle in radians; while it is not known, Calibration is nil", angle, c.RPY[i])
		}
	}
	if err := c.Road.check("Calibration.Road"); err != nil {
		return err
	}
	return c.WideCamera.check("Calibration.WideCamera")
}

// matrix is of 3 × 3, by rows.
type matrix [3][3]float64

func (a matrix) times(b matrix) (c matrix) {
	for i := range 3 {
		for j := range 3 {
			for k := range 3 {
				c[i][j] += a[i][k] * b[k][j]
			}
		}
	}
	return c
}

// floats rounds to what the device computes with.
func (a matrix) floats() (f [9]float32) {
	for i := range f {
		f[i] = float32(a[i/3][i%3])
	}
	return f
}

// pinhole maps directions (x right, y down, z forward) to pixels.
func pinhole(focal, x, y float64) matrix { return matrix{{focal, 0, x}, {0, focal, y}, {0, 0, 1}} }

// rays maps pixels to directions: the inverse of pinhole.
func rays(focal, x, y float64) matrix {
	return matrix{{1 / focal, 0, -x / focal}, {0, 1 / focal, -y / focal}, {0, 0, 1}}
}

// camera maps directions to pixels of a camera's picture, in the middle of which is its axis.
func (c Intrinsics) camera() matrix {
	return pinhole(c.Focal, float64(c.Width)/2, float64(c.Height)/2)
}

// rotation from roll, pitch and yaw: Rz·Ry·Rx (openpilot's rot_from_euler).
func rotation(rpy [3]float64) matrix {
	sr, cr := math.Sincos(rpy[0])
	sp, cp := math.Sincos(rpy[1])
	sy, cy := math.Sincos(rpy[2])
	return matrix{{cy, -sy, 0}, {sy, cy, 0}, {0, 0, 1}}.
		times(matrix{{cp, 0, sp}, {0, 1, 0}, {-sp, 0, cp}}).
		times(matrix{{1, 0, 0}, {0, cr, -sr}, {0, sr, cr}})
}

// RoadOptics are those of the picture that a driving model has of the road camera, width pixels wide: focal length and axis, in pixels.
func RoadOptics(width int) (focal, x, y float64) { return scaled(generation.RoadOptics, width) }

// WideOptics are those of the picture that it has of the wide camera.
func WideOptics(width int) (focal, x, y float64) { return scaled(generation.WideOptics, width) }

func scaled(o generation.Optics, width int) (focal, x, y float64) {
	s := float64(width) / float64(o.Width)
	return float64(o.Focal * s), float64(float64(o.Width/2) * s), float64(o.Y * s)
}

// Warps returns the matrices that map pixels of a model's frame, width pixels wide, to those of the road and wide camera, by rows:
// K_cam·V·R·(K_model·V)⁻¹ (get_warp_matrix in openpilot's common/transformations/model.py), where V turns x forward, y right, z down
// into x right, y down, z forward. Those of chroma are half as large.
func (c *Calibration) Warps(width int) (road, wide [9]float32, err error) {
	if err := c.check(); err != nil {
		return road, wide, err
	}
	v, inverse := matrix{{0, 1, 0}, {0, 0, 1}, {1, 0, 0}}, matrix{{0, 0, 1}, {1, 0, 0}, {0, 1, 0}}
	turn := v.times(rotation(c.RPY)).times(inverse)
	road = c.Road.camera().times(turn).times(rays(RoadOptics(width))).floats()
	wide = c.WideCamera.camera().times(turn).times(rays(WideOptics(width))).floats()
	return road, wide, nil
}

// Projections returns the matrices that map a point to a pixel of the road and of the wide camera: K_cam·V·R, by
// rows. A point is x forward, y right and z down from the camera, in metres, on axes of the car (openpilot's
// calibrated frame), as those of Plan and Line are; a plan's points are as high as the camera, CameraHeight above
// the road. The product is divided by its third number, which is positive for points that the camera faces.
func (c *Calibration) Projections() (road, wide [3][3]float64, err error) {
	if err := c.check(); err != nil {
		return road, wide, err
	}
	turn := matrix{{0, 1, 0}, {0, 0, 1}, {1, 0, 0}}.times(rotation(c.RPY))
	return c.Road.camera().times(turn), c.WideCamera.camera().times(turn), nil
}

// CameraHeight is that of the camera above the road in metres, where no calibration says (HEIGHT_INIT in openpilot's calibrationd.py).
const CameraHeight = 1.22

// MonitoringWarp returns the matrix that maps pixels of a driver-monitoring model's frame, width pixels wide, to those of the driver
// camera, by rows: K_cam·K_dm⁻¹ (openpilot's dmonitoringmodeld.py).
func MonitoringWarp(camera Intrinsics, width int) ([9]float32, error) {
	if err := camera.check("Camera"); err != nil {
		return [9]float32{}, err
	}
	return camera.camera().times(rays(scaled(generation.DriverOptics, width))).floats(), nil
}

// MonitoringCrop returns the matrix of the 2021 network (openpilot's dmonitoring.cc), by rows: the driver's side of the picture, half
// as wide as the picture is high, scaled to frames of 320 × 640 pixels. Pixels' centres fall on pixels' centres, as libyuv scales. The
// driver of a car that keeps right sits in the right of the picture; the other one is mirrored.
func MonitoringCrop(p Picture, rightHandDrive bool) [9]float32 {
	across, down := float64(p.Height)/2/generation.CropWidth, float64(p.Height)/generation.CropHeight
	m := matrix{{across, 0, float64(p.Width-p.Height/2) + (across-1)/2}, {0, down, (down - 1) / 2}, {0, 0, 1}}
	if rightHandDrive {
		m[0] = [3]float64{-across, 0, float64(p.Height/2-1) - (across-1)/2}
	}
	return m.floats()
}
