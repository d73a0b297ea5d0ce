package replay

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Rate is frames a second of openpilot's cameras.
const Rate = 20

// The cameras, as files and arrays call them.
const (
	road   = "road"
	wide   = "wide"
	driver = "driver"
)

// Directory is a directory of frames. It may be used by several goroutines.
type Directory struct {
	path   string
	frames []entry // by number
}

// entry is a frame's number and its files: a .npz, or a .png for each camera.
type entry struct {
	number uint32
	npz    string
	png    map[string]string
}

var (
	npzName = regexp.MustCompile(`^(\d+)\.npz$`)
	pngName = regexp.MustCompile(`^(\d+)_(` + road + `|` + wide + `|` + driver + `)\.png$`)
)

// Open lists the frames of a directory; it reads none of them yet. It refuses a directory without frames, with frames of both formats, with a
// number twice, with PNG files of which some frames lack one that others have, and .npz and .png files that are named otherwise. Other
// files are ignored.
func Open(path string) (*Directory, error) {
	files, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%w: give a directory of frames, NNNNNN.npz or NNNNNN_road.png and NNNNNN_wide.png", err)
	}
	frames := map[uint32]*entry{}
	first := map[string]string{} // a file of each format
	for _, f := range files {
		name := f.Name()
		kind := strings.ToLower(filepath.Ext(name))
		if kind != ".npz" && kind != ".png" || strings.HasPrefix(name, ".") {
			continue
		}
		if first[kind] == "" {
			first[kind] = name
		}
		m := npzName.FindStringSubmatch(name)
		if m == nil {
			m = pngName.FindStringSubmatch(name)
		}
		if m == nil {
			return nil, fmt.Errorf("%s: not named as a frame: want NNNNNN.npz, or NNNNNN_road.png, NNNNNN_wide.png and NNNNNN_driver.png; rename it or move it away",
				filepath.Join(path, name))
		}
		number, err := strconv.ParseUint(m[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: frames are counted in 32 bits, so to 4294967295", filepath.Join(path, name))
		}
		e := frames[uint32(number)]
		if e == nil {
			e = &entry{number: uint32(number), png: map[string]string{}}
			frames[e.number] = e
		}
		place, camera := &e.npz, ""
		if len(m) > 2 {
			camera = m[2]
			was := e.png[camera]
			place = &was
		}
		if *place != "" {
			return nil, fmt.Errorf("%s: frame %d is in %s too: remove one of them", filepath.Join(path, name), number, *place)
		}
		if *place = name; camera != "" {
			e.png[camera] = name
		}
	}
	if len(first) == 2 {
		return nil, fmt.Errorf("%s: frames of two formats, such as %s and %s: keep one format in a directory", path, first[".npz"], first[".png"])
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("%s: no frames in this directory: want NNNNNN.npz, or NNNNNN_road.png and NNNNNN_wide.png", path)
	}
	d := &Directory{path: path}
	for _, n := range slices.Sorted(maps.Keys(frames)) {
		d.frames = append(d.frames, *frames[n])
	}
	return d, d.sameCameras()
}

// sameCameras reports a frame that lacks a camera's PNG which another frame has.
func (d *Directory) sameCameras() error {
	for _, camera := range []string{road, wide, driver} {
		has := slices.IndexFunc(d.frames, func(e entry) bool { return e.png[camera] != "" })
		lacks := slices.IndexFunc(d.frames, func(e entry) bool { return e.npz == "" && e.png[camera] == "" })
		if has < 0 || lacks < 0 {
			continue
		}
		var other string // a file of the frame that there is
		for _, c := range []string{road, wide, driver} {
			if other = d.frames[lacks].png[c]; other != "" {
				break
			}
		}
		digits, _, _ := strings.Cut(other, "_")
		return fmt.Errorf("%s: it is missing, but there are %s and %s: add it, or remove the other pictures of frame %d to have it counted as missed",
			filepath.Join(d.path, digits+"_"+camera+".png"), other, d.frames[has].png[camera], d.frames[lacks].number)
	}
	return nil
}

// Len is the number of frames that there are.
func (d *Directory) Len() int { return len(d.frames) }

// Path is the directory.
func (d *Directory) Path() string { return d.path }

// Frame reads the i'th frame, from 0, of road and wide camera. Its ID is the frame's number, and Captured is 50 ms a number.
func (d *Directory) Frame(i int) (modeld.Frame, error) {
	e := d.frames[i]
	p, err := d.pictures(e, road, wide)
	if err != nil {
		return modeld.Frame{}, err
	}
	if p[0].Width != p[1].Width || p[0].Height != p[1].Height {
		return modeld.Frame{}, fmt.Errorf("%s: the road camera's picture is %d × %d, the wide camera's %d × %d: modeld takes pictures of one size, so scale one of them",
			d.file(e, wide), p[0].Width, p[0].Height, p[1].Width, p[1].Height)
	}
	return modeld.Frame{Road: p[0], Wide: p[1], ID: e.number, Captured: e.captured()}, nil
}

// DriverFrame reads the i'th frame, from 0, of the driver camera.
func (d *Directory) DriverFrame(i int) (modeld.DriverFrame, error) {
	e := d.frames[i]
	p, err := d.pictures(e, driver)
	if err != nil {
		return modeld.DriverFrame{}, err
	}
	return modeld.DriverFrame{Picture: p[0], ID: e.number, Captured: e.captured()}, nil
}

func (e entry) captured() time.Duration { return time.Duration(e.number) * time.Second / Rate }

// file is the path of a camera's file of a frame, there or not.
func (d *Directory) file(e entry, camera string) string {
	name := e.npz
	if name == "" {
		if name = e.png[camera]; name == "" {
			name = fmt.Sprintf("%06d_%s.png", e.number, camera)
		}
	}
	return filepath.Join(d.path, name)
}

// Frames yields the frames of road and wide camera in order, and ends after the first error. The next frame is
// read while the caller works on one; no others are in memory.
func (d *Directory) Frames() iter.Seq2[modeld.Frame, error] {
	return prefetched(len(d.frames), d.Frame)
}

// DriverFrames yields the frames of the driver camera likewise.
func (d *Directory) DriverFrames() iter.Seq2[modeld.DriverFrame, error] {
	return prefetched(len(d.frames), d.DriverFrame)
}

// prefetched yields n things; each is read while the caller works on the previous one.
func prefetched[T any](n int, read func(i int) (T, error)) iter.Seq2[T, error] {
	type result struct {
		value T
		err   error
	}
	return func(yield func(T, error) bool) {
		next := func(i int) chan result {
			c := make(chan result, 1) // whoever stops leaves a result there
			go func() {
				v, err := read(i)
				c <- result{v, err}
			}()
			return c
		}
		var c chan result
		for i := range n {
			if c == nil {
				c = next(i)
			}
			r := <-c
			if c = nil; r.err == nil && i+1 < n {
				c = next(i + 1)
			}
			if !yield(r.value, r.err) || r.err != nil {
				return
			}
		}
	}
}
