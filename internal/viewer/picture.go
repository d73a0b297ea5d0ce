package viewer

import (
	"bytes"
	"image"
	"image/jpeg"
	"sync"

	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Cameras, as the page calls them.
const (
	roadCamera = "road"
	wideCamera = "wide"
)

// camera is a picture that becomes a JPEG when the first browser asks for it.
type camera struct {
	picture modeld.Picture
	once    sync.Once
	text    []byte
	err     error
}

func (c *camera) jpeg() ([]byte, error) {
	c.once.Do(func() {
		var b bytes.Buffer
		c.err = jpeg.Encode(&b, smaller(c.picture), &jpeg.Options{Quality: 85})
		c.text = b.Bytes()
	})
	return c.text, c.err
}

// widest is about how wide pictures are shown.
const widest = 1000

// smaller is a picture divided by the whole number that makes it at most as wide as is shown: means of squares of pixels. Its colours are the full
// range's, as JPEG's are.
func smaller(p modeld.Picture) *image.YCbCr {
	by := (p.Width + widest - 1) / widest
	stride, uv := p.Stride, p.UV
	if stride == 0 {
		stride = p.Width
	}
	if uv == 0 {
		uv = stride * p.Height
	}
	img := image.NewYCbCr(image.Rect(0, 0, p.Width/by, p.Height/by), image.YCbCrSubsampleRatio420)
	mean := func(plane []byte, x, y, width, height, step int) byte {
		sum, count := 0, 0
		for j := y * by; j < min(y*by+by, height); j++ {
			for i := x * by; i < min(x*by+by, width); i++ {
				sum += int(plane[j*stride+i*step])
				count++
			}
		}
		return byte((sum + count/2) / count)
	}
	for y := range p.Height / by {
		for x := range p.Width / by {
			img.Y[y*img.YStride+x] = mean(p.Data, x, y, p.Width, p.Height, 1)
		}
	}
	w, h := p.Width/2, p.Height/2
	for y := range (p.Height/by + 1) / 2 {
		for x := range (p.Width/by + 1) / 2 {
			img.Cb[y*img.CStride+x] = mean(p.Data[uv:], x, y, w, h, 2)
			img.Cr[y*img.CStride+x] = mean(p.Data[uv+1:], x, y, w, h, 2)
		}
	}
	return img
}
