package scenario

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/dora/dataset"
)

// OpenRoute reads a recorded route: a directory with the segments of one, as devices, connect or comma2k19 lay them
// out. The road is the path of the car that recorded it, so that offset and heading are to that path; where it crept, the
// road goes on as before. The scenario has its road, speed and length. Pictures are decoded when a Runner takes the recording.
func OpenRoute(ctx context.Context, dir string) (*Family, *Recording, error) {
	d, err := dataset.OpenDrive(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	r, film := recordingOf(d.Frames), &Recording{Name: dir, Height: d.Height, Frames: d.Pictures}
	station := 0.0
	for i, f := range d.Frames {
		if i > 0 {
			was := d.Frames[i-1]
			station += float64((was.Speed + f.Speed) / 2 * (f.Seconds - was.Seconds))
		}
		film.Poses = append(film.Poses, Pose{Station: station, Calibration: f.Calibration})
	}
	if err := r.check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	if _, err := film.taken(); err != nil {
		return nil, nil, err
	}
	family, err := r.family(d.Name, "a recorded route")
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	return family, film, nil
}

// recordingOf is how the car moved at frames: the curvature of its road is its yaw rate over its speed.
func recordingOf(frames []dataset.DriveFrame) *recording {
	r := &recording{}
	for _, f := range frames {
		r.time, r.speed = append(r.time, f.Seconds), append(r.speed, f.Speed)
		r.curvature = append(r.curvature, f.Turn/f.Speed)
	}
	r.curvature = holdBelow(r.curvature, r.speed, crawl)
	return r
}

// On is a family on the road of a recorded route, from its begin on. Of the route it has what it does not set itself.
func (f Family) On(route *Family) (Family, error) {
	if f.Road != nil {
		return f, fmt.Errorf("scenario %q has a road of its own, and is to run on that of %s: leave one out", f.Name, route.Name)
	}
	f.Road = route.Road
	return f, f.checkRoad()
}
