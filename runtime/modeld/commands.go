package modeld

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
)

// rule is how a generation makes commands of a plan.
type rule generation.Commands

// commands makes commands of outputs. The last ones are kept, for smoothing.
type commands struct {
	rule                    rule
	curvature, acceleration float64
}

// Speeds in m/s.
const (
	LeastSteering = .3  // above which a curvature is commanded; a slower car keeps the one before
	LeastSpeed    = 1   // by which a rate of turning is divided at least
	standing      = .05 // in a plan
	stopping      = .3
)

// next sets a frame's commands. Of a model without plan or action they stay as they were.
func (c *commands) next(out *Outputs, in Inputs) {
	v := max(in.VEgo, 0)
	curvature, acceleration := c.curvature, c.acceleration
	var stands bool // the plan's speed is nearly 0, and a second later too
	switch r := c.rule; {
	case out.Action != nil:
		curvature, acceleration = out.Action[0]/square(max(v, LeastSpeed)), out.Action[1]
	case out.Plan != nil:
		acceleration, stands = r.accelerate(out.Plan, in.LongitudinalDelay+r.Longitudinal)
		curvature = r.steer(out.Plan, v, in.LateralDelay+r.Lateral)
	}
	if c.rule.Curvature && out.DesiredCurvature != nil && out.Action == nil {
		curvature = out.DesiredCurvature.Value
	}
	out.ShouldStop = stands
	if c.rule.Slow || out.Action != nil {
		out.ShouldStop = (out.Plan != nil || out.Action != nil) && v < stopping && acceleration < .1
	}
	out.AccelerationCommand = smooth(&c.acceleration, acceleration, c.rule.LongitudinalTau)
	out.CurvatureCommand = c.curvature
	if v > LeastSteering {
		out.CurvatureCommand = smooth(&c.curvature, curvature, c.rule.LateralTau)
	}
}

// accelerate returns the acceleration that reaches the plan's speed at the time t, in m/s², and whether the plan is to stand.
func (r rule) accelerate(plan *Plan, t float64) (a float64, stands bool) {
	var speed [Points]float64
	for i := range speed {
		speed[i] = plan.Velocity[i][0]
	}
	now, then := speed[0], at(speed, max(t, r.Stable))
	if t < r.Stable {
		then = now + t/r.Stable*(then-now)
	}
	return 2*(then-now)/t - plan.Acceleration[0][0], then < standing && at(speed, t+1) < standing
}

// steer returns the curvature that reaches the plan's heading at the time t, in 1/m.
func (r rule) steer(plan *Plan, v, t float64) float64 {
	var yaw [Points]float64
	for i := range yaw {
		yaw[i] = plan.Orientation[i][2]
	}
	then := at(yaw, max(t, r.Stable))
	if t < r.Stable {
		then *= t / r.Stable
	}
	v = max(v, LeastSpeed)
	return 2*then/(v*t) - plan.OrientationRate[0][2]/v
}

// at returns what a path has at the time t, in seconds: a line between its points, before and after them its ends.
func at(path [Points]float64, t float64) float64 {
	times := TIndex()
	if t <= times[0] {
		return path[0]
	} else if t >= times[Points-1] {
		return path[Points-1]
	}
	i := 0
	for i < Points-2 && times[i+1] <= t {
		i++
	}
	return path[i] + (path[i+1]-path[i])/(times[i+1]-times[i])*(t-times[i])
}

// smooth is a filter of the first order, a step of a frame long. A value that is not finite is returned, but not remembered.
func smooth(last *float64, value, tau float64) float64 {
	if tau > 0 {
		alpha := Share(tau)
		value = alpha*value + (1-alpha)**last
	}
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		*last = value
	}
	return value
}

// Share is how much of a new value a filter of the first order with a time constant, in seconds, takes in a frame.
func Share(tau float64) float64 { return -math.Expm1(-generation.FramePeriod / tau) }

func square(x float64) float64 { return x * x }
