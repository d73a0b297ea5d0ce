package drive

import (
	"image/png"
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

	// The window of the car ahead is where the camera's focal length puts it.
	for _, c := range []Camera{road, wide} {
		p, s := c.Draw(0), sceneAt(0)
		in := At(0)
		x := float64(c.Width)/2 + c.Focal*(-in.RPY[2]+(s.center(s.lead)+s.leadOffset)/s.lead)
		y := float64(c.Height)/2 + c.Focal*(-in.RPY[1]+(cameraHeight-1.1)/s.lead)
		require.Equal(t, dark[0], p.Data[int(y)*p.Stride+int(x)])
	}
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
