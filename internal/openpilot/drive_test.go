package openpilot

import (
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/npy"
)

func TestPictures(t *testing.T) {
	road, wide := Cameras(1)
	start := time.Now()
	p := road.Draw(7)
	t.Logf("%d×%d in %s", road.Width, road.Height, time.Since(start))
	require.Equal(t, []int{1928, 1208, 2048, 2490368}, []int{p.Width, p.Height, p.Stride, p.UV})
	require.Equal(t, p, road.Draw(7), "the same every time")
	require.NotEqual(t, p.Data, road.Draw(8).Data, "frames differ")
	require.NotEqual(t, p.Data, wide.Draw(7).Data, "cameras differ")
	require.NotEqual(t, road.DrawDriver(1).Data, road.DrawDriver(2).Data)

	// The window of the leading car is where the camera's focal length puts it, and as wide.
	for _, c := range []Camera{road, wide} {
		p, s := c.Draw(25), SceneAt(25)
		x, y := c.VanishingPoint(At(25).RPY)
		car := s.Cars[0]
		scale := c.Focal / car.Distance
		row := p.Data[int(y+scale*(CameraHeight-1.1))*p.Stride:]
		for side, want := range map[float64]byte{-.6: Dark[0], .6: Dark[0], -.8: Red[0], .8: Red[0]} {
			require.Equal(t, want, row[int(x+scale*(car.Right+side))], side)
		}
	}
}

// The vanishing point is where the warp of this calibration looks for it: at the middle of openpilot's model
// frame.
func TestVanishingPoint(t *testing.T) {
	road, _ := Cameras(1)
	x, y := road.VanishingPoint([3]float64{0, .02, -.01})
	m := [9]float64{2.920338, .020602, 188.69759, .006637, 2.922581, 410.078533, .000011, .000022, .995891}
	at := func(row int) float64 { return m[3*row]*256 + m[3*row+1]*47.6 + m[3*row+2] }
	require.InDelta(t, at(0)/at(2), x, .1)
	require.InDelta(t, at(1)/at(2), y, .1)
}

func TestDesiresBeginAtEveryPlaceOfAGroup(t *testing.T) {
	places, kinds := map[int]bool{}, map[int]bool{}
	for i := 1; i < 200; i++ {
		if d := At(i).Desire; d != 0 && d != At(i-1).Desire {
			places[i%4], kinds[d] = true, true
		}
	}
	require.Len(t, places, 4)
	require.Len(t, kinds, 4)
}

func TestWriteDirectory(t *testing.T) {
	dir := t.TempDir()
	road, wide := Cameras(8)
	require.NoError(t, WriteDirectory(dir, NPZ, road, wide, 2))
	require.NoError(t, WriteDirectory(dir, PNG, road, wide, 2))
	require.ErrorContains(t, WriteDirectory(dir, "bmp", road, wide, 1), "bmp")
	arrays, err := npy.ReadZip(filepath.Join(dir, "000001.npz"))
	require.NoError(t, err)
	p := wide.Draw(1)
	require.Equal(t, []int{p.Height * 3 / 2, p.Width}, arrays["wide"].Shape)
	require.Equal(t, p.Data[p.UV+3*p.Stride:][:p.Width], arrays["wide"].Data[(p.Height+3)*p.Width:][:p.Width])
	f, err := os.Open(filepath.Join(dir, "000001_road.png"))
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	require.Equal(t, road.Width, img.Bounds().Dx())
	require.Equal(t, road.Draw(1).RGB().At(100, 90), img.At(100, 90))
}

// TestRoad_IsSeenFromAnOffset: the middle of the lane of a circle, by its closed form, from a car that is off
// centre and turned.
func TestRoad_IsSeenFromAnOffset(t *testing.T) {
	const k, offset, heading = .002, .7, .05
	s := Road{Lane: 3.5, Curvature: func(float64) float64 { return k }}.Scene(30, offset, heading)
	for _, z := range []float64{5, 20.25, 80} {
		sin, cos := math.Sincos(heading)
		require.InDelta(t, (offset+z*sin-k*z*z/2)/cos, s.Middle(z), 1e-9)
	}
	require.InDelta(t, (offset+700*math.Sin(heading)-k*600*600/2-k*600*100)/math.Cos(heading), s.Middle(700), 1e-6, "straight on")
	require.Equal(t, 30., s.Travelled)
}
