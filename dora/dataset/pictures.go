package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
)

// look is how a model sees: the size of its pictures, and the sampling.
type look struct {
	Width, Height int
	Linear        bool
}

// pictures are the warped frames of a segment, of the road and the wide camera, in a file: decoded once, in their order, since a video
// has no index. A frame is two pictures of camera.PlaneBytes, and takes the place of its number among those that samples show.
type pictures struct {
	path   string      // of the file
	places map[int]int // in it, by moment
	size   int64       // of a frame
}

// pair gives the frames of both cameras one after the other.
type pair interface {
	next() (road, wide modeld.Picture, err error)
	close()
}

// openPair opens a segment's cameras. A segment without a wide camera has the road camera's picture in both.
func openPair(ctx context.Context, s *route.Segment) (pair, error) {
	road := s.Files[route.RoadCamera]
	if road == "" {
		road = s.Files[route.Video]
	}
	if st, err := os.Stat(road); err != nil {
		return nil, err
	} else if st.IsDir() {
		d, err := replay.Open(road)
		return &stored{d: d}, err
	}
	v, err := camera.OpenVideo(ctx, road, camera.Options{})
	if err != nil {
		return nil, err
	}
	p := &videos{road: v}
	if wide := s.Files[route.WideCamera]; wide != "" {
		if p.wide, err = camera.OpenVideo(ctx, wide, camera.Options{}); err != nil {
			return nil, errors.Join(err, v.Close())
		}
	}
	return p, nil
}

// stored are frames of a directory, as package replay reads them.
type stored struct {
	d *replay.Directory
	i int
}

func (s *stored) next() (road, wide modeld.Picture, err error) {
	if s.i == s.d.Len() {
		return road, wide, io.EOF
	}
	f, err := s.d.Frame(s.i)
	s.i++
	return f.Road, f.Wide, err
}

func (s *stored) close() {}

type videos struct{ road, wide *camera.Video }

func (v *videos) next() (road, wide modeld.Picture, err error) {
	if road, err = v.road.Next(); err != nil || v.wide == nil {
		return road, road, err
	}
	wide, err = v.wide.Next()
	return road, wide, err
}

func (v *videos) close() {
	_ = v.road.Close()
	if v.wide != nil {
		_ = v.wide.Close()
	}
}

// decode writes the pictures of the wanted moments, which are in the order of the road camera's frames, and returns how many there are: fewer if the cameras' files end
// before their log. What is wrong with them is damage, unless there is nothing at all.
func (p *pictures) decode(ctx context.Context, s *route.Segment, t *timeline, l look, wanted []int) (count int, damage string, err error) {
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return 0, "", err
	}
	f, err := os.CreateTemp(filepath.Dir(p.path), filepath.Base(p.path)+".partial*")
	if err != nil {
		return 0, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	frames, err := openPair(ctx, s)
	if err != nil {
		return 0, "", err
	}
	defer frames.close()
	d := &decoder{frames: frames, t: t, look: l, roads: map[int]modeld.Picture{}, wides: map[int]modeld.Picture{}}
	for _, k := range wanted {
		planes, err := d.picture(&t.Moments[k])
		if ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
		if err != nil {
			damage = fmt.Sprintf("%s: frame %d: %v", s.Name(), t.Moments[k].Road, err)
			break
		}
		if _, err := f.Write(planes); err != nil {
			return 0, "", err
		}
		count++
	}
	if count == 0 && damage != "" {
		return 0, "", errors.New(damage)
	}
	return count, damage, errors.Join(f.Close(), os.Rename(f.Name(), p.path))
}

// decoder warps frames while it reads on.
type decoder struct {
	frames       pair
	t            *timeline
	look         look
	at           int // of the next frame
	roads, wides map[int]modeld.Picture
}

// lag is how many frames the cameras' files may be apart.
const lag = 8

// picture is what the model sees at a moment: road, then wide.
func (d *decoder) picture(m *moment) ([]byte, error) {
	wide := m.Wide
	if wide < 0 {
		wide = m.Road
	}
	for ; d.at <= max(m.Road, wide); d.at++ {
		road, other, err := d.frames.next()
		if err == io.EOF {
			return nil, errors.New("the video ends before its log")
		}
		if err != nil {
			return nil, err
		}
		d.roads[d.at], d.wides[d.at] = road, other
		delete(d.roads, d.at-lag)
		delete(d.wides, d.at-lag)
	}
	road, known := d.roads[m.Road]
	other, too := d.wides[wide]
	if !known || !too {
		return nil, fmt.Errorf("the wide camera's is number %d: the cameras' files do not fit", wide)
	}
	if m.Wide < 0 {
		other = road
	}
	c, err := d.t.cameras(road, other)
	if err != nil {
		return nil, err
	}
	c.RPY = m.RPY
	roadMatrix, wideMatrix, err := c.Warps(d.look.Width)
	if err != nil {
		return nil, err
	}
	size := camera.PlaneBytes(d.look.Width, d.look.Height)
	planes := make([]byte, 2*size)
	camera.Warp(planes[:size], road, roadMatrix, d.look.Width, d.look.Height, d.look.Linear)
	camera.Warp(planes[size:], other, wideMatrix, d.look.Width, d.look.Height, d.look.Linear)
	return planes, nil
}

// read returns the planes of road and wide camera at a moment.
func (p *pictures) read(k int) (road, wide []byte, err error) {
	f, err := os.Open(p.path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data := make([]byte, p.size)
	if _, err := f.ReadAt(data, int64(p.places[k])*p.size); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: remove the file, and it is made again", p.path, err)
	}
	return data[:p.size/2], data[p.size/2:], nil
}

// identity tells a file's contents from others' without reading all of a video: its size, and its first and last bytes.
func identity(path string) (string, error) {
	h := sha256.New()
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if st.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			one, err := identity(filepath.Join(path, e.Name()))
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, e.Name(), one)
		}
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const part = 1 << 16
	fmt.Fprintln(h, st.Size())
	for _, from := range []int64{0, max(0, st.Size()-part)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, from, part)); err != nil && !errors.Is(err, fs.ErrClosed) {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
