package replay

import (
	"archive/zip"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// recorded writes a drive and removes its second frame.
func recorded(t *testing.T, format openpilot.Format) (dir string, road, wide openpilot.Camera) {
	t.Helper()
	dir = t.TempDir()
	road, wide = openpilot.Cameras(8)
	require.NoError(t, openpilot.WriteDirectory(dir, format, road, wide, 4))
	files, err := filepath.Glob(filepath.Join(dir, "000001*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.NoError(t, os.Remove(f))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644))
	return dir, road, wide
}

func TestFramesAreThoseThatTheCamerasDrew(t *testing.T) {
	dir, road, wide := recorded(t, openpilot.NPZ)
	d, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, 3, d.Len())
	want := []int{0, 2, 3}
	i := 0
	for f, err := range d.Frames() {
		require.NoError(t, err)
		require.EqualValues(t, want[i], f.ID)
		require.Equal(t, time.Duration(want[i])*50*time.Millisecond, f.Captured)
		same(t, road.Draw(want[i]), f.Road, 0)
		same(t, wide.Draw(want[i]), f.Wide, 0)
		i++
	}
	require.Equal(t, 3, i)
	for range d.Frames() { // who stops is not waited for
		break
	}
	_, err = d.DriverFrame(0)
	require.ErrorContains(t, err, `000000.npz: array "driver": there is none`)
}

// TestPNGIsTheSameUpToRounding: through RGB and back, luma and chroma are off by what two roundings can do, but where RGB does not have the colour.
func TestPNGIsTheSameUpToRounding(t *testing.T) {
	dir, road, wide := recorded(t, openpilot.PNG)
	d, err := Open(dir)
	require.NoError(t, err)
	for i, number := range []int{0, 2, 3} {
		f, err := d.Frame(i)
		require.NoError(t, err)
		require.EqualValues(t, number, f.ID)
		same(t, road.Draw(number), f.Road, 1)
		same(t, wide.Draw(number), f.Wide, 1)
	}
}

// same holds a picture against a drawn one, which is padded.
func same(t *testing.T, want openpilot.Picture, got modeld.Picture, tolerance int) {
	t.Helper()
	compared := 0
	require.Equal(t, []int{want.Width, want.Height}, []int{got.Width, got.Height})
	require.Zero(t, got.Stride)
	require.Len(t, got.Data, got.Width*got.Height*3/2)
	for y := range want.Height * 3 / 2 {
		row, luma := want.Data[y%want.Height*want.Stride:], y
		if y >= want.Height {
			luma = 2 * (y - want.Height)
			row = want.Data[want.UV+(y-want.Height)*want.Stride:]
		}
		for x := range want.Width {
			if tolerance > 0 && !hasRGB(want, x&^1, luma) {
				continue
			}
			compared++
			difference := int(row[x]) - int(got.Data[y*got.Width+x])
			require.LessOrEqual(t, max(difference, -difference), tolerance, "row %d, byte %d", y, x)
		}
	}
	require.Greater(t, compared, want.Width*want.Height*3/2*9/10)
}

// hasRGB reports whether RGB has the colours of the four pixels around one.
func hasRGB(p openpilot.Picture, x, y int) bool {
	uv := p.Data[p.UV+y/2*p.Stride+x:]
	u, v := float64(uv[0])-128, float64(uv[1])-128
	for k := range 4 {
		luma := float64(p.Data[(y&^1+k/2)*p.Stride+x+k%2])
		for _, c := range []float64{luma + 1.402*v, luma - .344136*u - .714136*v, luma + 1.772*u} {
			if c < 0 || c > 255 {
				return false
			}
		}
	}
	return true
}

// TestColoursAreJFIFs: against the standard's real numbers (JFIF 1.02, page 3), of every picture of four pixels of a draw.
func TestColoursAreJFIFs(t *testing.T) {
	const side = 64
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for i := range img.Pix {
		img.Pix[i] = byte(i * i % 251)
		if i%4 == 3 {
			img.Pix[i] = 255
		}
	}
	p := nv12(img)
	var most float64
	for y := 0; y < side; y += 2 {
		for x := 0; x < side; x += 2 {
			var u, v float64
			for k := range 4 {
				c := img.RGBAAt(x+k%2, y+k/2)
				r, g, b := float64(c.R), float64(c.G), float64(c.B)
				luma := .299*r + .587*g + .114*b
				most = max(most, math.Abs(luma-float64(p.Data[(y+k/2)*side+x+k%2])))
				u += (128 - .168736*r - .331264*g + .5*b) / 4
				v += (128 + .5*r - .418688*g - .081312*b) / 4
			}
			at := side*side + y/2*side + x
			require.InDelta(t, u, float64(p.Data[at]), 1.01, "U")
			require.InDelta(t, v, float64(p.Data[at+1]), 1.01, "V")
		}
	}
	require.Less(t, most, .51, "Y is rounded to the nearest")
	for name, c := range map[color.RGBA][3]byte{{255, 0, 0, 255}: {76, 85, 255}, {0, 255, 0, 255}: {150, 44, 21}, {0, 0, 255, 255}: {29, 255, 107}, {255, 255, 255, 255}: {255, 128, 128}, {0, 0, 0, 255}: {0, 128, 128}} {
		flat := image.NewRGBA(image.Rect(0, 0, 2, 2))
		for i := range 4 {
			flat.SetRGBA(i%2, i/2, name)
		}
		require.Equal(t, []byte{c[0], c[0], c[0], c[0], c[1], c[2]}, nv12(flat).Data, name)
	}
}

// TestPNGsOfOtherKinds: grey, palette, 16 bits and opaque alpha are the same picture.
func TestPNGsOfOtherKinds(t *testing.T) {
	rect := image.Rect(0, 0, 4, 2)
	kinds := map[string]interface {
		image.Image
		Set(x, y int, c color.Color)
	}{"rgb": image.NewRGBA(rect), "grey": image.NewGray(rect), "16 bits": image.NewRGBA64(rect), "alpha": image.NewNRGBA(rect),
		"palette": image.NewPaletted(rect, color.Palette{color.Gray{0}, color.Gray{30}, color.Gray{60}, color.Gray{90}, color.Gray{120}, color.Gray{150}})}
	for name, img := range kinds {
		for i := range 8 {
			img.Set(i%4, i/4, color.Gray{byte(30 * (i % 6))})
		}
		path := filepath.Join(t.TempDir(), "000007_driver.png")
		write(t, path, img)
		d, err := Open(filepath.Dir(path))
		require.NoError(t, err)
		f, err := d.DriverFrame(0)
		require.NoError(t, err, name)
		require.EqualValues(t, 7, f.ID)
		require.Equal(t, modeld.Picture{Data: []byte{0, 30, 60, 90, 120, 150, 0, 30, 128, 128, 128, 128}, Width: 4, Height: 2}, f.Picture, name)
	}
}

func write(t *testing.T, path string, img image.Image) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, png.Encode(f, img))
	require.NoError(t, f.Close())
}

func TestReplay_RefusesOtherFiles(t *testing.T) {
	array := func(dtype string, shape ...int) *npy.Array {
		n := map[string]int{"u8": 1, "f32": 4}[dtype]
		for _, d := range shape {
			n *= d
		}
		return &npy.Array{DType: dtype, Shape: shape, Data: make([]byte, n)}
	}
	npz := func(name string, arrays map[string]*npy.Array) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { require.NoError(t, npy.WriteZip(filepath.Join(dir, name), arrays)) }
	}
	pictures := func(names ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, n := range names {
				write(t, filepath.Join(dir, n), image.NewGray(image.Rect(0, 0, 4, 2)))
			}
		}
	}
	good := array("u8", 3, 4)
	for name, c := range map[string]struct {
		write func(t *testing.T, dir string)
		says  []string
	}{
		"nothing":    {func(*testing.T, string) {}, []string{"no frames", "NNNNNN.npz"}},
		"other name": {npz("frame7.npz", nil), []string{"frame7.npz: not named as a frame", "rename"}},
		"more than memory": {func(t *testing.T, dir string) {
			f, err := os.Create(filepath.Join(dir, "000001.npz"))
			require.NoError(t, err)
			z := zip.NewWriter(f)
			for _, name := range []string{"road.npy", "wide.npy"} {
				w, err := z.CreateRaw(&zip.FileHeader{Name: name, CompressedSize64: 4, UncompressedSize64: 16 << 30})
				require.NoError(t, err)
				_, err = w.Write(make([]byte, 4))
				require.NoError(t, err)
			}
			require.NoError(t, errors.Join(z.Close(), f.Close()))
		}, []string{"000001.npz: road.npy: 17179869184 bytes, more than 268435456"}},
		"other camera":      {pictures("000001_left.png"), []string{"000001_left.png: not named as a frame"}},
		"twice":             {pictures("000001_road.png", "1_road.png"), []string{"1_road.png: frame 1 is in 000001_road.png too"}},
		"large number":      {npz("4294967296.npz", nil), []string{"4294967296.npz", "32 bits"}},
		"two formats":       {func(t *testing.T, dir string) { npz("000001.npz", nil)(t, dir); pictures("000002_road.png")(t, dir) }, []string{"000001.npz and 000002_road.png", "one format"}},
		"a picture missing": {pictures("000001_road.png", "000001_wide.png", "000002_road.png"), []string{"000002_wide.png: it is missing", "000001_wide.png", "counted as missed"}},
		"no wide pictures":  {pictures("000001_road.png"), []string{"000001_wide.png: there is none", "one camera"}},
		"no road pictures":  {pictures("000001_wide.png"), []string{"000001_road.png: there is none"}},
		"no wide":           {npz("000001.npz", map[string]*npy.Array{"road": good}), []string{`000001.npz: array "wide": there is none`, "one camera"}},
		"numbers":           {npz("000001.npz", map[string]*npy.Array{"road": array("f32", 3, 4), "wide": good}), []string{`000001.npz: array "road": f32 [3 4]`, "want uint8"}},
		"three dimensions":  {npz("000001.npz", map[string]*npy.Array{"road": good, "wide": array("u8", 2, 4, 3)}), []string{`array "wide": u8 [2 4 3]`, "want uint8"}},
		"no chroma":         {npz("000001.npz", map[string]*npy.Array{"road": array("u8", 4, 4), "wide": good}), []string{"4 rows", "NV12"}},
		"odd width":         {npz("000001.npz", map[string]*npy.Array{"road": array("u8", 3, 5), "wide": good}), []string{"5 × 2 pixels", "even", "crop"}},
		"empty":             {npz("000001.npz", map[string]*npy.Array{"road": array("u8", 0, 4), "wide": good}), []string{"4 × 0 pixels", "even"}},
		"two sizes":         {npz("000001.npz", map[string]*npy.Array{"road": good, "wide": array("u8", 6, 4)}), []string{"4 × 2, the wide camera's 4 × 4", "scale"}},
		"odd picture": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "1_road.png"), image.NewGray(image.Rect(0, 0, 4, 3)))
			pictures("1_wide.png")(t, dir)
		}, []string{"1_road.png: a picture of 4 × 3 pixels"}},
		"transparent": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "1_road.png"), image.NewNRGBA(image.Rect(0, 0, 4, 2)))
			pictures("1_wide.png")(t, dir)
		}, []string{"1_road.png: some pixels are transparent"}},
		"a damaged picture": {func(t *testing.T, dir string) {
			pictures("1_road.png", "1_wide.png")(t, dir)
			cut(t, filepath.Join(dir, "1_wide.png"))
		}, []string{"1_wide.png: not a whole PNG file", "again"}},
		"a text": {func(t *testing.T, dir string) {
			pictures("1_wide.png")(t, dir)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "1_road.png"), []byte("hello"), 0o644))
		}, []string{"1_road.png: not a whole PNG file"}},
		"a short zip": {func(t *testing.T, dir string) {
			npz("1.npz", map[string]*npy.Array{"road": good, "wide": good})(t, dir)
			cut(t, filepath.Join(dir, "1.npz"))
		}, []string{"1.npz: not a .npz file", "again"}},
		"a damaged zip": {func(t *testing.T, dir string) { flipped(t, filepath.Join(dir, "1.npz"), good) }, []string{"1.npz: road.npy", "checksum", "again"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.write(t, dir)
			err := first(dir)
			require.Error(t, err)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
	require.ErrorContains(t, first(filepath.Join(t.TempDir(), "nowhere")), "nowhere: no such file")
}

// first opens a directory and reads its frames.
func first(dir string) error {
	d, err := Open(dir)
	if err != nil {
		return err
	}
	for _, err := range d.Frames() {
		if err != nil {
			return err
		}
	}
	return nil
}

// cut removes the end of a file.
func cut(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw[:len(raw)*2/3], 0o644))
}

// flipped writes a .npz whose arrays are stored, not deflated, and of which a byte has changed since.
func flipped(t *testing.T, path string, a *npy.Array) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	z := zip.NewWriter(f)
	for _, name := range []string{"road.npy", "wide.npy"} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		require.NoError(t, err)
		require.NoError(t, npy.Write(w, a))
	}
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	at := strings.Index(string(raw), "}") // the header of the array ends in spaces and a line feed
	raw[at+strings.Index(string(raw[at:]), "\n")+1] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o644))
}

func TestCamerasBySize(t *testing.T) {
	for size, focal := range map[[2]int]float64{{1928, 1208}: 2648, {1344, 760}: 1141.5, {1164, 874}: 910} {
		c, known := Cameras(size[0], size[1])
		require.True(t, known)
		require.Equal(t, modeld.Intrinsics{Focal: focal, Width: size[0], Height: size[1]}, c.Road)
	}
	c, known := Cameras(482, 302)
	require.False(t, known)
	require.Equal(t, modeld.Cameras{Road: modeld.Intrinsics{Focal: 662, Width: 482, Height: 302},
		Wide: modeld.Intrinsics{Focal: 141.75, Width: 482, Height: 302}, Driver: modeld.Intrinsics{Focal: 141.75, Width: 482, Height: 302}}, c)
}

// BenchmarkFrames reads frames of a comma 3X's size, which come every 50 ms.
func BenchmarkFrames(b *testing.B) {
	road, wide := openpilot.Cameras(1)
	for _, format := range []openpilot.Format{openpilot.NPZ, openpilot.PNG} {
		b.Run(string(format), func(b *testing.B) {
			dir := b.TempDir()
			require.NoError(b, openpilot.WriteDirectory(dir, format, road, wide, 2))
			d, err := Open(dir)
			require.NoError(b, err)
			for b.Loop() {
				_, err := d.Frame(1)
				require.NoError(b, err)
			}
		})
	}
}
