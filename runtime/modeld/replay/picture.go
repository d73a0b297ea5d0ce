package replay

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io/fs"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// largestSide of a picture, in pixels; modeld takes no larger ones.
const largestSide = 1 << 15

// largestArray is more bytes than a camera's picture has, with the header of its array.
const largestArray = 256 << 20

// pictures reads a frame's pictures of some cameras.
func (d *Directory) pictures(e entry, cameras ...string) ([]modeld.Picture, error) {
	out := make([]modeld.Picture, len(cameras))
	if e.npz != "" {
		path := d.file(e, "")
		arrays, err := npy.ReadNamed(path, largestArray, cameras...)
		if err != nil {
			return nil, fmt.Errorf("%w: write the frame again", err)
		}
		for i, camera := range cameras {
			if out[i], err = fromArray(arrays[camera]); err != nil {
				return nil, fmt.Errorf("%s: array %q: %w", path, camera, missing(err, camera))
			}
		}
		return out, nil
	}
	errs := make([]error, len(cameras))
	var wg sync.WaitGroup
	for i, camera := range cameras {
		wg.Go(func() {
			var err error
			if out[i], err = fromPNG(d.file(e, camera)); err != nil {
				errs[i] = fmt.Errorf("%s: %w", d.file(e, camera), missing(err, camera))
			}
		})
	}
	wg.Wait()
	for _, err := range errs { // the first one says enough
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// missing adds what to do where a camera's picture is not there.
func missing(err error, camera string) error {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case camera == wide:
		return errors.New("there is none: a car with one camera has its road picture under this name too")
	case camera == driver:
		return errors.New("there is none: this is no recording of the driver camera")
	}
	return errors.New("there is none: this is no recording of the road camera")
}

// fromArray makes a picture of [height·3/2, width].
func fromArray(a *npy.Array) (modeld.Picture, error) {
	if a == nil {
		return modeld.Picture{}, fs.ErrNotExist
	}
	const want = "want uint8 [height·3/2, width], NV12: the rows of luma, then those of interleaved U and V"
	if a.DType != "u8" || len(a.Shape) != 2 {
		return modeld.Picture{}, fmt.Errorf("%s %v: %s", a.DType, a.Shape, want)
	}
	rows, width := a.Shape[0], a.Shape[1]
	if rows%3 != 0 {
		return modeld.Picture{}, fmt.Errorf("%d rows are no luma with half as many rows of chroma: %s", rows, want)
	}
	p := modeld.Picture{Data: a.Data, Width: width, Height: rows / 3 * 2}
	return p, even(p.Width, p.Height)
}

// even reports sizes that NV12 cannot have.
func even(width, height int) error {
	if width <= 0 || height <= 0 || width > largestSide || height > largestSide || width%2 != 0 || height%2 != 0 {
		return fmt.Errorf("a picture of %d × %d pixels: NV12 has an even width and height, from 2 to %d; crop it", width, height, largestSide)
	}
	return nil
}

// decoded is what a pixel takes in bytes: at most 8 as the file has it, 4 in RGBA, and NV12.
const decoded = 14

// fromPNG reads a picture in colour or grey.
func fromPNG(path string) (modeld.Picture, error) {
	f, err := memory.OpenRegular(path)
	if err != nil {
		return modeld.Picture{}, bare(err)
	}
	defer f.Close()
	config, err := png.DecodeConfig(f)
	if err != nil {
		return modeld.Picture{}, damaged(err)
	}
	if err := even(config.Width, config.Height); err != nil { // before memory is asked for
		return modeld.Picture{}, err
	}
	if err := memory.Default().Check(decoded*int64(config.Width)*int64(config.Height), "decoding it"); err != nil {
		return modeld.Picture{}, err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return modeld.Picture{}, bare(err)
	}
	img, err := png.Decode(f)
	if err != nil {
		return modeld.Picture{}, damaged(err)
	}
	rgb, ok := img.(*image.RGBA)
	if !ok {
		if o, can := img.(interface{ Opaque() bool }); can && !o.Opaque() {
			return modeld.Picture{}, errors.New("some pixels are transparent: a camera's picture has none; write it without alpha")
		}
		rgb = image.NewRGBA(image.Rect(0, 0, config.Width, config.Height))
		draw.Draw(rgb, rgb.Rect, img, img.Bounds().Min, draw.Src)
	}
	return nv12(rgb), nil
}

// bare is an error of the system without the path, which is named already.
func bare(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

func damaged(err error) error {
	return fmt.Errorf("not a whole PNG file: %s: write the picture again", strings.TrimPrefix(err.Error(), "png: "))
}

// nv12 converts a picture as the package's doc comment says.
func nv12(img *image.RGBA) modeld.Picture {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	data := make([]byte, w*h, w*h*3/2)
	us, vs := make([]int, w/2), make([]int, w/2) // sums over a pair of rows
	for y := range h {
		row := img.Pix[y*img.Stride:][:4*w]
		for x := range w {
			luma, u, v := color.RGBToYCbCr(row[4*x], row[4*x+1], row[4*x+2])
			data[y*w+x] = luma
			us[x/2] += int(u)
			vs[x/2] += int(v)
		}
		if y%2 == 0 {
			continue
		}
		for i := range us {
			data = append(data, byte((us[i]+2)/4), byte((vs[i]+2)/4))
		}
		clear(us)
		clear(vs)
	}
	return modeld.Picture{Data: data, Width: w, Height: h}
}
