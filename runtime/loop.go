package runtime

import "fmt"

// Loop says that a program is the whole step of openpilot's modeld, or of its driver monitoring, with camera frames as inputs. Package
// runtime/modeld runs it.
type Loop struct {
	Kind   string   `json:"kind"`   // Driving or Monitoring
	Frames []string `json:"frames"` // inputs with pictures: of the road and the wide camera, or of the driver camera
	// Largest is the largest picture that the frames hold.
	Largest NV12 `json:"largest"`
	// Height and Width are those of the picture that the model sees, in luma pixels.
	Height   int    `json:"height"`
	Width    int    `json:"width"`
	Sampling string `json:"sampling"`         // Nearest or Linear
	Rule     string `json:"rule"`             // of modeld at the time of the models: Rule…
	Missed   string `json:"missed,omitempty"` // what a step does after missed frames: Missed…; of Driving
}

// Sample returns what the inputs TransformsInput and CameraInput may hold: pictures of the largest size, of a
// comma three's cameras that are mounted straight (focal lengths as in openpilot's common/transformations, in 1928
// pixels). What is read of frames follows from both.
func (l *Loop) Sample() (transforms []float32, camera []int32) {
	focal, y, width := []float64{910. / 2648, 455. / 567}, []float64{47.6 / 256, 151.8 / 256}, 512.
	if l.Kind == Monitoring {
		focal, y, width = []float64{1}, []float64{356. / 960}, 1440
	}
	for i := range l.Frames {
		zoom := float64(l.Largest.Width) / 1928 * width / float64(l.Width) / focal[i]
		left, top := float64(l.Largest.Width/2)-float64(zoom*float64(l.Width)/2), float64(l.Largest.Height/2)-float64(zoom*float64(y[i]*float64(l.Height)))
		transforms = append(transforms, float32(zoom), 0, float32(left), 0, float32(zoom), float32(top), 0, 0, 1)
	}
	return transforms, []int32{int32(l.Largest.Width), int32(l.Largest.Height), int32(l.Largest.Stride), int32(l.Largest.UV)}
}

// Inputs that every loop has besides its frames.
const (
	TransformsInput = "transforms" // f32 [frames, 3, 3]: pixels of the model's picture to pixels of the frames
	CameraInput     = "camera"     // i32 [4]: width, height, stride and offset of chroma of all frames
)

// Kinds of loops.
const (
	Driving    = "driving"
	Monitoring = "monitoring"
)

// Samplings of camera pictures.
const (
	Nearest = "nearest"
	Linear  = "linear"
)

// Rules of how outputs are parsed and made into commands.
const (
	RuleOld       = "old"       // 0.9.x, vision and policy in one file: nothing clipped, desire_state as it is
	RuleCurvature = "curvature" // the policy's desired_curvature is the command
	RulePlan      = "plan"      // commands follow from the plan
	RuleAction    = "action"    // likewise, or are the model's action

	RuleLuma = "luma" // driver monitoring of luma alone
	RuleSeat = "seat" // of 2021: six planes of one seat, probabilities and positive deviations inside the model
)

// What a step does after missed frames.
const (
	MissedSkips        = "skips"         // it moves pictures on and runs no model: entry SkipEntry
	MissedMovesDesires = "moves desires" // likewise, and desires
	MissedRuns         = "runs"          // what it always does
)

// SkipEntry is the entry that a step runs instead of run after missed frames.
const SkipEntry = "skip"

// NV12 says how a picture lies in memory: rows of luma, then rows of interleaved U and V of half the size.
type NV12 struct {
	Width  int `json:"width"` // in pixels, even, as is Height
	Height int `json:"height"`
	Stride int `json:"stride"` // bytes from row to row
	UV     int `json:"uv"`     // offset of the chroma rows
}

// VisionIPC is how openpilot's cameras lay out pictures: rows of multiples of 128 bytes, as many as a multiple of 32.
func VisionIPC(width, height int) NV12 {
	stride := (width + 127) &^ 127
	return NV12{Width: width, Height: height, Stride: stride, UV: stride * ((height + 31) &^ 31)}
}

// Bytes is what the picture takes, from its first byte to the end of its last row of chroma.
func (p NV12) Bytes() int { return p.UV + p.Stride*p.Height/2 }

// Validate reports sizes that no picture has.
func (p NV12) Validate() error {
	const most = 1 << 14
	switch {
	case p.Width < 2 || p.Height < 2 || p.Width%2 != 0 || p.Height%2 != 0 || p.Width > most || p.Height > most:
		return fmt.Errorf("%d × %d pixels: want even sizes from 2 to %d", p.Width, p.Height, most)
	case p.Stride < p.Width || p.Stride > 2*most:
		return fmt.Errorf("rows of %d pixels are %d bytes apart: want at least as many, and %d at most", p.Width, p.Stride, 2*most)
	case p.UV < p.Stride*p.Height || p.UV > 2*p.Stride*p.Height+1<<20:
		return fmt.Errorf("chroma begins at byte %d: want at least %d, behind %d rows of %d bytes", p.UV, p.Stride*p.Height, p.Height, p.Stride)
	}
	return nil
}
