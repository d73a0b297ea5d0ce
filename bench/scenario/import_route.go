package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/ir"
)

// radarToCamera is the distance from the camera forward to the radar, from which leads are measured: m (openpilot,
// selfdrive/controls/radard.py, RADAR_TO_CAMERA).
const radarToCamera = 1.52

// timed is something at a time of the log, in s.
type timed[T any] struct {
	time float64
	it   T
}

// routeLog is what is read of a log.
type routeLog struct {
	poses  []timed[route.LivePose]
	radar  []timed[leadSample]
	model  []timed[leadSample]
	params *route.CarParams
	damage error // where it stops being readable; nil: nowhere
}

// importLog makes a scenario of the rlog or qlog of a segment of openpilot. It is a road of knots with the recorded speed:
// curvature is the yaw rate of livePose over its speed, grade that of its velocity, bank the roll of the device, of which
// the mounting is a part. Car 0 is radarState's nearest lead or, in a log without radarState, modelV2's; carParams gives
// the vehicle. Of a log whose end is damaged, what comes before counts. Errors say what it lacks.
func importLog(ctx context.Context, path, name string) (f *Family, damage, err error) {
	l, err := readLog(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	if f, err = l.family(name); err != nil && l.damage != nil {
		err = fmt.Errorf("%w; %w", err, l.damage)
	}
	return f, l.damage, err
}

// family is the scenario of a log.
func (l *routeLog) family(name string) (*Family, error) {
	if len(l.poses) == 0 {
		return nil, errors.New("it has no valid livePose, which says how the car moved: want logs of openpilot of 2024 or later, " +
			"of a calibrated device; the road of a route with cameraOdometry is --route DIR")
	}
	r, err := l.recording()
	if err != nil {
		return nil, err
	}
	f, err := r.family(name, "a recorded segment of openpilot")
	if err != nil {
		return nil, err
	}
	f.Values, err = vehicleOf(l.params)
	return f, err
}

// readLog reads a log once.
func readLog(ctx context.Context, path string) (*routeLog, error) {
	in, err := route.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	l := &routeLog{}
	var e route.Event
	for ctx.Err() == nil {
		switch err := in.Next(&e); {
		case errors.Is(err, io.EOF):
			return l, nil
		case errors.As(err, new(*route.Damage)):
			l.damage = err
			return l, nil
		case err != nil:
			return nil, err
		}
		if err := l.add(&e); err != nil {
			return nil, err
		}
		if len(l.poses) > maxSamples || len(l.radar) > maxSamples || len(l.model) > maxSamples {
			return nil, fmt.Errorf("it has more than %d poses or leads: it is no segment's", maxSamples)
		}
	}
	return nil, ctx.Err()
}

// add takes what an event says; one that is damaged says nothing.
func (l *routeLog) add(e *route.Event) error {
	time := float64(e.Time) / 1e9
	switch e.Kind {
	case route.KindLivePose:
		var p route.LivePose
		if e.Decode(&p) != nil || !p.OrientationNED.Valid || !p.VelocityDevice.Valid || !p.AngularVelocityDevice.Valid {
			return nil
		}
		for _, x := range []route.XYZ{p.OrientationNED, p.VelocityDevice, p.AngularVelocityDevice} {
			if !finite(float64(x.X), float64(x.Y), float64(x.Z)) {
				return fmt.Errorf("livePose at %.3f s is valid, and has %v, %v, %v: want finite numbers", time, x.X, x.Y, x.Z)
			}
		}
		l.poses = append(l.poses, timed[route.LivePose]{time, p})
	case route.KindRadarState:
		var r route.RadarState
		if e.Decode(&r) == nil {
			lead := leadSample{r.LeadOne.Status, float64(r.LeadOne.DRel), float64(r.LeadOne.VLead)}
			l.radar = append(l.radar, timed[leadSample]{time, lead})
		}
	case route.KindModelV2:
		var m route.ModelV2
		if e.Decode(&m) == nil && len(m.Leads) > 0 && len(m.Leads[0].X) > 0 && len(m.Leads[0].V) > 0 {
			it := &m.Leads[0]
			lead := leadSample{it.Prob > 0.5, float64(it.X[0]) - radarToCamera, float64(it.V[0])}
			l.model = append(l.model, timed[leadSample]{time, lead})
		}
	case route.KindCarParams:
		var p route.CarParams
		if e.Decode(&p) == nil && l.params == nil {
			l.params = &p
		}
	}
	return nil
}

// recording is the drive of a log. Its events are in the order in which they were written, so they are sorted.
func (l *routeLog) recording() (*recording, error) {
	slices.SortStableFunc(l.poses, func(a, b timed[route.LivePose]) int { return cmp.Compare(a.time, b.time) })
	leads := l.radar
	if len(leads) == 0 {
		leads = l.model
	}
	slices.SortStableFunc(leads, func(a, b timed[leadSample]) int { return cmp.Compare(a.time, b.time) })
	r := &recording{}
	for i, p := range l.poses {
		if i > 0 && p.time == l.poses[i-1].time {
			continue
		}
		down, right := downOf(&p.it)
		v := vector{float64(p.it.VelocityDevice.X), float64(p.it.VelocityDevice.Y), float64(p.it.VelocityDevice.Z)}
		rate := vector{
			float64(p.it.AngularVelocityDevice.X), float64(p.it.AngularVelocityDevice.Y), float64(p.it.AngularVelocityDevice.Z),
		}
		sinking := v.dot(down)
		speed := math.Sqrt(max(v.dot(v)-float64(sinking*sinking), 0))
		turn := -rate.dot(down) // about the vertical, which points down: to the right
		r.time, r.speed = append(r.time, p.time), append(r.speed, speed)
		r.curvature, r.grade = append(r.curvature, turn/speed), append(r.grade, -sinking/speed)
		r.bank = append(r.bank, right)
		if leads != nil {
			r.lead = append(r.lead, leadAt(leads, p.time))
		}
	}
	r.curvature, r.grade = holdBelow(r.curvature, r.speed, crawl), holdBelow(r.grade, r.speed, crawl)
	return r, r.check()
}

// leadAt is the last lead before a time, if it is not older than 0.5 s and a car to keep away from.
func leadAt(leads []timed[leadSample], time float64) leadSample {
	i := sort.Search(len(leads), func(i int) bool { return leads[i].time > time }) - 1
	if i < 0 || time-leads[i].time > 0.5 || !finite(leads[i].it.gap, leads[i].it.speed) || leads[i].it.gap < 0 {
		return leadSample{}
	}
	return leads[i].it
}

// downOf is the vertical in the axes of the device, forward, right and down, and how far its right side is down, in rad.
// Angles are roll, pitch and yaw, turned in the opposite order (openpilot, common/transformations).
func downOf(p *route.LivePose) (down vector, right float64) {
	roll, pitch := float64(p.OrientationNED.X), float64(p.OrientationNED.Y)
	down = vector{-ir.Sin(pitch), float64(ir.Sin(roll) * ir.Cos(pitch)), float64(ir.Cos(roll) * ir.Cos(pitch))}
	return down, asin(down[1])
}

// vehicleOf are the parameters of a car; what it does not say is left out.
func vehicleOf(p *route.CarParams) (map[string]float64, error) {
	values := map[string]float64{}
	if p == nil {
		return values, nil
	}
	for _, c := range []struct {
		param string
		value float32
	}{
		{"mass", p.Mass}, {"wheelbase", p.Wheelbase}, {"steer_ratio", p.SteerRatio},
		{"steer_delay", p.SteerActuatorDelay}, {"accel_delay", p.LongitudinalActuatorDelay},
	} {
		if c.value == 0 {
			continue
		}
		if err := Params[paramIndex[c.param]].check(float64(c.value)); err != nil {
			return nil, fmt.Errorf("carParams of %q: %w", p.CarFingerprint, err)
		}
		values[c.param] = float64(c.value)
	}
	return values, nil
}
