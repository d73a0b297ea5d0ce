package dataset

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
)

// cameras give their frames one after the other: of the road and the wide camera, or of the driver camera twice.
type cameras interface {
	next() (road, wide modeld.Picture, err error)
	close()
}

// openCameras opens a segment's cameras. A segment without a wide camera has the road camera's picture in both.
func openCameras(ctx context.Context, s *route.Segment, driver bool) (cameras, error) {
	first, second := eye(s, driver), s.Files[route.WideCamera]
	if driver {
		second = ""
	}
	if st, err := os.Stat(first); err != nil {
		return nil, err
	} else if st.IsDir() {
		d, err := replay.Open(first)
		return &stored{d: d, driver: driver}, err
	}
	v, err := camera.OpenVideo(ctx, first, camera.Options{})
	if err != nil {
		return nil, err
	}
	p := &videos{first: v}
	if second != "" {
		if p.second, err = camera.OpenVideo(ctx, second, camera.Options{}); err != nil {
			return nil, errors.Join(err, v.Close())
		}
	}
	return p, nil
}

// eye is the file of the camera whose frames are the moments; "": there is none.
func eye(s *route.Segment, driver bool) string {
	switch {
	case driver:
		return s.Files[route.DriverCamera]
	case s.Files[route.RoadCamera] != "":
		return s.Files[route.RoadCamera]
	}
	return s.Files[route.Video]
}

// stored are frames of a directory, as package replay reads them.
type stored struct {
	d      *replay.Directory
	driver bool
	i      int
}

func (s *stored) next() (road, wide modeld.Picture, err error) {
	if s.i == s.d.Len() {
		return road, wide, io.EOF
	}
	s.i++
	if s.driver {
		f, err := s.d.DriverFrame(s.i - 1)
		return f.Picture, f.Picture, err
	}
	f, err := s.d.Frame(s.i - 1)
	return f.Road, f.Wide, err
}

func (s *stored) close() {}

type videos struct{ first, second *camera.Video }

func (v *videos) next() (road, wide modeld.Picture, err error) {
	if road, err = v.first.Next(); err != nil || v.second == nil {
		return road, road, err
	}
	wide, err = v.second.Next()
	return road, wide, err
}

func (v *videos) close() {
	_ = v.first.Close()
	if v.second != nil {
		_ = v.second.Close()
	}
}
