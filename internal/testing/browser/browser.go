// Package browser opens pages in headless Chromium, reads and checks them, and takes pictures.
package browser

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Pictures is the environment variable that names the directory of pictures.
const Pictures = "SPARK_PICTURES"

//go:embed layout.js
var layout string

// Page is a page in Chromium.
type Page struct {
	t   testing.TB
	ctx context.Context
}

// Open opens a page in a window of so many pixels. Without a Chromium or Chrome on this machine the test is skipped.
func Open(t testing.TB, url string, width, height int64) Page {
	t.Helper()
	opt := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(int(width), int(height)))
	all, stop := chromedp.NewExecAllocator(t.Context(), opt...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(all)
	t.Cleanup(cancel)
	p := Page{t, ctx}
	_, err := chromedp.Run(ctx, chromedp.EmulateViewport(width, height)) // starts it
	require.NoError(t, err)
	Run(p, chromedp.Navigate(url))
	return p
}

func chromium(t testing.TB) string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("no Chromium on this machine: pages are not looked at (Debian has it in chromium; CHROMIUM names another)")
	return ""
}

// Run does something in the page.
func Run[T any](p Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	require.NoError(p.t, err)
	return v
}

// Value is an expression's, as JSON.
func Value[T any](p Page, expression string) T {
	p.t.Helper()
	return Run(p, chromedp.Evaluate[T](expression))
}

// Until waits until an expression is true.
func (p Page) Until(expression string) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !Value[bool](p, "!!("+expression+")"); time.Sleep(20 * time.Millisecond) {
		require.True(p.t, time.Now().Before(end), "this did not come true: %s", expression)
	}
}

// Check checks the layout of a page from 480 to 2,560 pixels, light and dark, and writes pictures to the directory that Pictures names.
func Check(t *testing.T, name, url string) {
	t.Run("looks", func(t *testing.T) { Open(t, url, 1280, 800).Check(name) })
}

// Check is Check of an open page.
func (p Page) Check(name string) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, width := range []int64{480, 1280, 2560} {
			Run(p, chromedp.EmulateViewport(width, 800))
			Run(p, chromedp.Sleep(100*time.Millisecond)) // what scripts draw anew
			for _, fault := range Value[[]string](p, layout) {
				p.t.Errorf("%s, %d px, %s: %s", name, width, scheme, fault)
			}
			if dir := os.Getenv(Pictures); dir != "" {
				file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				require.NoError(p.t, os.WriteFile(file, Run(p, chromedp.FullScreenshot(100)), 0o644))
			}
		}
	}
}

func (p Page) scheme(name string) {
	Run(p, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		return err
	}))
}

// whole is where the last figure, table or paragraph ends that ends within so many pixels.
const whole = `16 + Math.max(...[...document.querySelectorAll("figure, .scroll, .card, p")]
	.map(e => Math.ceil(e.getBoundingClientRect().bottom)).filter(bottom => bottom <= %d - 16))`

// Picture writes the top of the page, so many pixels wide and at most so many high, as a PNG of 256 colours.
func (p Page) Picture(path string, width, height int64) {
	p.t.Helper()
	p.scheme("light")
	Run(p, chromedp.EmulateViewport(width, height))
	Run(p, chromedp.Sleep(200*time.Millisecond)) // what scripts draw anew
	Run(p, chromedp.EmulateViewport(width, Value[int64](p, fmt.Sprintf(whole, height))))
	img, err := png.Decode(bytes.NewReader(Run(p, chromedp.CaptureScreenshot())))
	require.NoError(p.t, err)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	require.NoError(p.t, encoder.Encode(&out, paletted(img)))
	require.NoError(p.t, os.WriteFile(path, out.Bytes(), 0o644))
}

// distance is how much the colours of a palette differ at least, in one of red, green and blue.
const distance = 4

// paletted is a picture in the most frequent of its colours that differ.
func paletted(img image.Image) *image.Paletted {
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(img.At(x, y)).(color.RGBA) }
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	colours := slices.Collect(maps.Keys(count))
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range colours {
		if len(palette) < 256 && !slices.ContainsFunc(palette, func(x color.Color) bool { return near(x.(color.RGBA), c) }) {
			palette = append(palette, c)
		}
	}
	nearest := map[color.RGBA]uint8{}
	for _, c := range colours {
		nearest[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(b, palette)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	return out
}

func near(a, b color.RGBA) bool {
	alike := func(x, y uint8) bool { return max(x, y)-min(x, y) < distance }
	return alike(a.R, b.R) && alike(a.G, b.G) && alike(a.B, b.B)
}
