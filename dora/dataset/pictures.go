package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// pictures are the warped frames of a segment in a file: decoded once, in their order, since a video has no index. A frame is what the model sees of the road and
// of the wide camera, or of the driver camera, and takes the place of its number among those that samples show.
type pictures struct {
	path   string      // of the file
	places map[int]int // in it, by moment
	size   int64       // of a frame
}

// unkept is that the cache cannot be written, as where the disk is full. It is no fault of a segment, which is not left out for it.
type unkept struct{ error }

func (u *unkept) Unwrap() error { return u.error }

// partial is part of the names of what is being written to a cache.
const partial = ".partial"

// abandoned is for how long nothing has been written to what a killed process left.
const abandoned = 24 * time.Hour

// sweep removes what killed processes left unfinished in a cache.
func sweep(cache string) error {
	paths, err := filepath.Glob(filepath.Join(cache, "*"+partial+"*"))
	for _, path := range paths {
		if st, gone := os.Stat(path); gone == nil && time.Since(st.ModTime()) > abandoned {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// decode writes the pictures of the wanted moments, which are in the order of the road camera's frames, and returns how many there are: fewer if the cameras' files end
// before their log. What is wrong with them is damage, unless there is nothing at all.
func (p *pictures) decode(ctx context.Context, s *route.Segment, t *timeline, c *contract, wanted []int) (count int, damage string, err error) {
	f, err := os.CreateTemp(filepath.Dir(p.path), filepath.Base(p.path)+partial+"*")
	if err != nil {
		return 0, "", &unkept{err}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	frames, err := openCameras(ctx, s, c.rule != "")
	if err != nil {
		return 0, "", err
	}
	defer frames.close()
	d := &decoder{frames: frames, t: t, contract: c, roads: map[int]frame{}, wides: map[int]frame{}}
	for _, k := range wanted {
		planes, err := d.picture(&t.Moments[k])
		if ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
		if errors.Is(err, camera.ErrKilled) { // what there is would be kept as all that the file has
			return 0, "", err
		}
		if err != nil {
			damage = fmt.Sprintf("%s: frame %d: %v", s.Name(), t.Moments[k].Road, err)
			break
		}
		if _, err := f.Write(planes); err != nil {
			return 0, "", &unkept{err}
		}
		count++
	}
	if count == 0 && damage != "" {
		return 0, "", errors.New(damage)
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil { // a cache may be shared
		return 0, "", &unkept{err}
	}
	if err := os.Rename(f.Name(), p.path); err != nil {
		return 0, "", &unkept{err}
	}
	return count, damage, nil
}

// decoder warps frames while it reads on.
type decoder struct {
	frames       cameras
	t            *timeline
	contract     *contract
	at           int // of the next frame
	roads, wides map[int]frame
}

// lag is by how many frames the cameras' files may differ.
const lag = 8

// pair is the pictures of road and wide camera at a moment, or twice the driver camera's.
func (d *decoder) pair(m *moment) (road, wide modeld.Picture, err error) {
	number := m.Wide
	if number < 0 {
		number = m.Road
	}
	for ; d.at <= max(m.Road, number); d.at++ {
		one, other := d.frames.next()
		if one.err != nil && other.err != nil {
			return road, wide, ended(one.err)
		}
		d.roads[d.at], d.wides[d.at] = one, other
		delete(d.roads, d.at-lag)
		delete(d.wides, d.at-lag)
	}
	first, known := d.roads[m.Road]
	second, too := d.wides[number]
	if !known || !too {
		return road, wide, fmt.Errorf("the wide camera's is number %d: the cameras' files do not fit", number)
	}
	if m.Wide < 0 {
		second = first
	}
	if err := cmp.Or(first.err, second.err); err != nil {
		return road, wide, ended(err)
	}
	return first.picture, second.picture, nil
}

// picture is what the model sees at a moment: road, then wide, or the driver.
func (d *decoder) picture(m *moment) ([]byte, error) {
	road, other, err := d.pair(m)
	if err != nil {
		return nil, err
	}
	look := d.contract.look
	if d.contract.rule != "" {
		matrix, err := d.t.driverMatrix(road, d.contract, m)
		planes := make([]byte, look.Bytes())
		if err == nil {
			look.Warp(planes, road, matrix)
		}
		return planes, err
	}
	c, err := d.t.calibration(road, other)
	if err != nil {
		return nil, err
	}
	c.RPY = m.RPY
	roadMatrix, wideMatrix, err := c.Warps(look.Width)
	if err != nil {
		return nil, err
	}
	size := look.Bytes()
	planes := make([]byte, 2*size)
	look.Warp(planes[:size], road, roadMatrix)
	look.Warp(planes[size:], other, wideMatrix)
	return planes, nil
}

// ended says that a camera has no more frames, or what is wrong with them.
func ended(err error) error {
	if err == io.EOF {
		return errors.New("the video ends before its log")
	}
	return err
}

// read returns what the model sees at a moment.
func (p *pictures) read(k int) ([]byte, error) {
	f, err := memory.OpenRegular(p.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, p.size)
	if _, err := f.ReadAt(data, int64(p.places[k])*p.size); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the file, and it is made again", p.path, err)
	}
	return data, nil
}

// readPair returns the planes of road and wide camera at a moment.
func (p *pictures) readPair(k int) (road, wide []byte, err error) {
	data, err := p.read(k)
	if err != nil {
		return nil, nil, err
	}
	return data[:p.size/2], data[p.size/2:], nil
}
