package runtime

import "fmt"

// Loop says that a program is a whole step over camera frames, which a host package runs again and again. Kind,
// Rule and Missed are names that the host package gave and reads.
type Loop struct {
	Kind   string   `json:"kind"`
	Frames []string `json:"frames"` // inputs with pictures
	// Largest is the largest picture that the frames hold.
	Largest FrameLayout `json:"largest"`
	// Height and Width are those of the picture that the model sees, in luma pixels.
	Height   int    `json:"height"`
	Width    int    `json:"width"`
	Sampling string `json:"sampling"`         // Nearest or Linear
	Rule     string `json:"rule"`             // by which the host package steps it and reads outputs
	Missed   string `json:"missed,omitempty"` // what a step does after missed frames
}

// Inputs that every loop has besides its frames.
const (
	TransformsInput = "transforms" // f32 [frames, 3, 3]: pixels of the model's picture to pixels of the frames
	CameraInput     = "camera"     // i32 [4]: width, height, stride and offset of chroma of all frames
)

// Samplings of camera pictures.
const (
	Nearest = "nearest"
	Linear  = "linear"
)

// SkipEntry is the entry that a step may run instead of run after missed frames.
const SkipEntry = "skip"

// FrameLayout says how a frame lies in memory: rows of luma, then rows of interleaved chroma of half the size.
type FrameLayout struct {
	Width  int `json:"width"` // in pixels, even, as is Height
	Height int `json:"height"`
	Stride int `json:"stride"` // bytes from row to row
	UV     int `json:"uv"`     // offset of the chroma rows
}

// Bytes is what the picture takes, from its first byte to the end of its last row of chroma.
func (p FrameLayout) Bytes() int { return p.UV + p.Stride*p.Height/2 }

// Validate reports sizes that no picture has.
func (p FrameLayout) Validate() error {
	const most = 1 << 14
	switch {
	case p.Width < 2 || p.Height < 2 || p.Width%2 != 0 || p.Height%2 != 0 || p.Width > most || p.Height > most:
		return fmt.Errorf("%d × %d pixels: want even sizes from 2 to %d", p.Width, p.Height, most)
	case p.Stride < p.Width || p.Stride > 2*most:
		return fmt.Errorf("rows of %d pixels are %d bytes apart: want at least as many, and %d at most", p.Width, p.Stride, 2*most)
	case p.UV < p.Stride*p.Height || p.UV > 2*p.Stride*p.Height+1<<20:
		return fmt.Errorf("chroma begins at byte %d: want at least %d, behind %d rows of %d bytes",
			p.UV, p.Stride*p.Height, p.Height, p.Stride)
	}
	return nil
}
