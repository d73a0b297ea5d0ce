package replay

import "github.com/spark-compile/spark-compile/runtime/modeld"

// Cameras are those that record pictures of a size: of openpilot's device with cameras of that size, else those of a comma 3X whose pictures were
// scaled to this width; then known is false.
func Cameras(width, height int) (cameras modeld.Cameras, known bool) {
	var full modeld.Cameras
	for i, of := range [][2]string{{"tici", "ar0231"}, {"tici", "os04c10"}, {"neo", "unknown"}} {
		c, err := modeld.CamerasOf(of[0], of[1])
		if err == nil && c.Road.Width == width && c.Road.Height == height {
			return c, true
		}
		if i == 0 {
			full = c
		}
	}
	for _, c := range []*modeld.Intrinsics{&full.Road, &full.Wide, &full.Driver} {
		*c = modeld.Intrinsics{Focal: c.Focal * float64(width) / float64(c.Width), Width: width, Height: height}
	}
	return full, false
}
