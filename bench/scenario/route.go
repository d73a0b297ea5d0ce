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
	film := &Recording{Name: dir, Height: d.Height, Frames: d.Pictures, Damage: d.Damage}
	station := 0.0
	for i, f := range d.Frames {
		if i > 0 {
			was := d.Frames[i-1]
			station += float64((was.Speed + f.Speed) / 2 * (f.Seconds - was.Seconds))
		}
		film.Poses = append(film.Poses, Pose{Station: station, Calibration: f.Calibration})
	}
	if _, err := film.taken(); err != nil {
		return nil, nil, err
	}
	family, err := familyOf(dir, d)
	return family, film, err
}

// RoadOf is the scenario of OpenRoute, of a route whose pictures nobody sees: it needs no videos. Of a damaged log what comes
// before counts, and damage says where that is.
func RoadOf(ctx context.Context, dir string) (f *Family, damage []string, err error) {
	d, err := dataset.OpenMotion(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	f, err = familyOf(dir, d)
	return f, d.Damage, err
}

// familyOf is the scenario of a drive in a directory.
func familyOf(dir string, d *dataset.Drive) (*Family, error) {
	r := recordingOf(d.Frames)
	err := r.check()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	family, err := r.family(d.Name, "a recorded route")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return family, nil
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
	if param, has := f.instead(); param != "" {
		return f, fmt.Errorf("scenario %q has %s, and would run on the road of %s, which has %s: name scenarios without it, "+
			"or leave the route out", f.Name, param, route.Name, has)
	}
	return f, nil
}
