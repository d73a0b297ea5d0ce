package generation

import "github.com/spark-compile/spark-compile/runtime"

// Optics are those of a picture that models see, of a camera that is mounted straight: size, focal length and the
// row of the axis, in pixels. A model of smaller pictures sees the same in fewer pixels.
type Optics struct {
	Width, Height int
	Focal, Y      float64
	camera        float64 // focal length of a comma three's camera, whose pictures are cameraWidth wide
}

const cameraWidth, cameraHeight = 1928, 1208

// Pictures of driving models (medmodel and sbigmodel in openpilot's common/transformations/model.py) and of driver
// monitoring (dmonitoringmodel, with the fisheye camera's focal length).
var (
	RoadOptics   = Optics{512, 256, 910, 47.6, 2648}
	WideOptics   = Optics{512, 256, 455, (256 + 47.6) / 2, 567}
	DriverOptics = Optics{1440, 960, 567, 960/2 - (1208-960)/2, 567}
)

// OneSeat pictures: models see frames of this size, of which planes are taken.
const CropWidth, CropHeight = 320, 640

// VisionIPC is how openpilot's cameras lay out pictures: rows of multiples of 128 bytes, as many as a multiple of
// 32.
func VisionIPC(width, height int) runtime.FrameLayout {
	stride := (width + 127) &^ 127
	return runtime.FrameLayout{Width: width, Height: height, Stride: stride, UV: stride * ((height + 31) &^ 31)}
}

// Largest is the layout of a comma three's pictures.
func Largest() runtime.FrameLayout { return VisionIPC(cameraWidth, cameraHeight) }

// Sample returns what the inputs runtime.TransformsInput and runtime.CameraInput may hold: pictures of the largest
// size, of a comma three's cameras that are mounted straight. What is read of frames follows from both.
func Sample(l *runtime.Loop) (transforms []float32, camera []int32) {
	optics := []Optics{RoadOptics, WideOptics}
	if l.Kind == Monitoring {
		optics = []Optics{DriverOptics}
	}
	for i := range l.Frames {
		o := optics[i]
		zoom := float64(l.Largest.Width) / cameraWidth * float64(o.Width) / float64(l.Width) / (o.Focal / o.camera)
		left := float64(l.Largest.Width/2) - float64(zoom*float64(l.Width)/2)
		top := float64(l.Largest.Height/2) - float64(zoom*float64(o.Y/float64(o.Height)*float64(l.Height)))
		transforms = append(transforms, float32(zoom), 0, float32(left), 0, float32(zoom), float32(top), 0, 0, 1)
	}
	f := l.Largest
	return transforms, []int32{int32(f.Width), int32(f.Height), int32(f.Stride), int32(f.UV)}
}
