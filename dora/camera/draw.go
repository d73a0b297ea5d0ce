package camera

import (
	"image"
	"image/color"
	"image/draw"
	"math"

	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Image is what planes of a model's picture show, in colour: U and V are those of the full range, as package replay has them.
func Image(planes []byte, width, height int) *image.RGBA {
	w, h := width/2, height/2
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			// The planes are (0,0), (1,0), (0,1), (1,1) by row and column.
			at := y/2*w + x/2
			r, g, b := color.YCbCrToRGB(planes[(y%2+2*(x%2))*w*h+at], planes[4*w*h+at], planes[5*w*h+at])
			img.SetRGBA(x, y, color.RGBA{r, g, b, 255})
		}
	}
	return img
}

// Point is a place in metres: x forward, y right, z down from the camera, on the car's axes.
type Point struct{ X, Y, Z float64 }

// pixel is where a model's picture of a width shows a point; false for points less than 1 m forward of the camera.
func (p Point) pixel(width int) (x, y float64, ok bool) {
	if p.X < 1 {
		return 0, 0, false
	}
	focal, cx, cy := modeld.RoadOptics(width)
	return cx + float64(focal*p.Y)/p.X, cy + float64(focal*p.Z)/p.X, true
}

// Line draws a path on a model's picture.
func Line(img *image.RGBA, path []Point, c color.RGBA) {
	width := img.Bounds().Dx()
	var lastX, lastY float64
	drawn := false
	for _, p := range path {
		x, y, ok := p.pixel(width)
		if ok && drawn {
			segment(img, lastX, lastY, x, y, c)
		}
		lastX, lastY, drawn = x, y, ok
	}
}

// segment colours the pixels from one point to another. Those far outside are cut off.
func segment(img *image.RGBA, x0, y0, x1, y1 float64, c color.RGBA) {
	const far = 1 << 12
	for _, v := range []float64{x0, y0, x1, y1} {
		if math.IsNaN(v) || math.Abs(v) > far {
			return
		}
	}
	n := int(max(math.Abs(x1-x0), math.Abs(y1-y0))) + 1
	for i := range n + 1 {
		part := float64(i) / float64(n)
		x, y := int(math.Round(x0+float64(part*(x1-x0)))), int(math.Round(y0+float64(part*(y1-y0))))
		for _, d := range []image.Point{{}, {X: 1}, {X: -1}, {Y: 1}, {Y: -1}} { // lines of one pixel are hard to see
			img.SetRGBA(x+d.X, y+d.Y, c)
		}
	}
}

// Sheet lays pictures of one size out in rows, with a margin.
func Sheet(pictures []*image.RGBA, columns int) *image.RGBA {
	const margin = 4
	size := pictures[0].Bounds().Size().Add(image.Pt(margin, margin))
	columns = min(columns, len(pictures))
	rows := (len(pictures) + columns - 1) / columns
	sheet := image.NewRGBA(image.Rect(0, 0, columns*size.X+margin, rows*size.Y+margin))
	draw.Draw(sheet, sheet.Bounds(), image.White, image.Point{}, draw.Src)
	for i, p := range pictures {
		at := image.Pt(margin+i%columns*size.X, margin+i/columns*size.Y)
		draw.Draw(sheet, p.Bounds().Add(at), p, image.Point{}, draw.Src)
	}
	return sheet
}
