package camera

import (
	"image"
	"image/color"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPlanesBecomeThePicture: each pixel has the luma of its plane, and the colour of its square.
func TestPlanesBecomeThePicture(t *testing.T) {
	planes := make([]byte, Driving(4, 4, false).Bytes())
	for i := range planes {
		planes[i] = 128
	}
	planes[4*1+3] = 250 // luma at rows 1, columns 0 of squares: (3, 2)
	planes[4*2] = 10    // row 0, column 1
	planes[4*5+1] = 255 // V of the square at the top right
	img := Image(planes, 4, 4)
	assert.Equal(t, color.RGBA{250, 250, 250, 255}, img.RGBAAt(2, 3))
	assert.Equal(t, color.RGBA{10, 10, 10, 255}, img.RGBAAt(1, 0))
	assert.Equal(t, color.RGBA{128, 128, 128, 255}, img.RGBAAt(0, 0))
	assert.Greater(t, img.RGBAAt(3, 0).R, byte(250))
	assert.Less(t, img.RGBAAt(3, 0).G, byte(60))
}

// TestPathsLieWhereTheModelSeesThem: a straight path is in the middle and rises towards the horizon, one to the
// right is on the right, and points that the camera does not face are not drawn.
func TestPathsLieWhereTheModelSeesThem(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 512, 256))
	red := color.RGBA{255, 0, 0, 255}
	Line(img, []Point{{-5, 0, 1.22}, {0, 0, 1.22}, {6, 0, 1.22}, {10, 0, 1.22}, {100, 0, 1.22}}, red)
	assert.Equal(t, red, img.RGBAAt(256, 159)) // 47.6 + 910·1.22/10
	assert.Equal(t, red, img.RGBAAt(256, 59))  // at 100 m
	assert.Equal(t, color.RGBA{}, img.RGBAAt(256, 40))
	assert.Equal(t, color.RGBA{}, img.RGBAAt(256, 250))
	small := image.NewRGBA(image.Rect(0, 0, 128, 64))
	Line(small, []Point{{20, 2, 1.22}, {20.01, 2, 1.22}}, red)
	assert.Equal(t, red, small.RGBAAt(87, 26)) // a quarter of 256 + 91 and of 47.6 + 55.5
}

func TestSheetsHaveAllPictures(t *testing.T) {
	var list []*image.RGBA
	for i := range 5 {
		img := image.NewRGBA(image.Rect(0, 0, 8, 4))
		for k := range img.Pix {
			img.Pix[k] = byte(50 * (i + 1))
		}
		list = append(list, img)
	}
	s := Sheet(list, 3)
	assert.Equal(t, image.Pt(3*12+4, 2*8+4), s.Bounds().Size())
	assert.Equal(t, byte(50), s.RGBAAt(4, 4).R)
	assert.Equal(t, byte(150), s.RGBAAt(4+24, 4).R)
	assert.Equal(t, byte(250), s.RGBAAt(4+12, 4+8).R)
	assert.Equal(t, byte(255), s.RGBAAt(4+24, 4+8).R, "there is no sixth")
}
