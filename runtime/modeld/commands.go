package modeld

import (
	"math"

	"github.com/spark-compile/spark-compile/runtime"
)

// CommandRule is how a release makes commands of what the model says (get_action_from_model in openpilot's modeld.py, and
// drive_helpers.py).
type CommandRule struct {
	// Seconds from now, besides the actuator's delay, of which the plan is read.
	Lateral, Longitudinal float64
	// Time constants of the smoothing, in seconds; 0: not smoothed.
	LateralTau, LongitudinalTau float64
	// Curvature says that desired_curvature is taken, of models that have it, not the plan's.
	Curvature bool
	// Stable is the time before which the plan is not read, but taken as straight; 0: it is read at any time.
	Stable float64
	// Slow says that a car stops that is slow and does not accelerate, not one whose plan is to stand.
	Slow bool
}

// RuleOf is the command rule of a program's Loop.Rule. That of 0.9.x is unknown and assumed to be that of the next
// release.
func RuleOf(rule string) CommandRule {
	return map[string]CommandRule{runtime.RuleOld: rule0100, runtime.RuleCurvature: rule0100, runtime.RulePlan: rule0103,
		runtime.RuleAction: rule2026}[rule]
}

// Rules of openpilot's releases. A model with an action output has its commands from it, by each of them.
var (
	// rule0100 is that of 0.9.9 and 0.10.0, with a desired_curvature. They smooth nothing, so that only the frame's own time adds to the
	// delays: that follows from how later releases add them up.
	rule0100 = CommandRule{Lateral: framePeriod, Longitudinal: framePeriod, Curvature: true}
	// rule0103 is that of 0.10.3, which smooths: the time that takes is added to the delays.
	rule0103 = CommandRule{Lateral: .1 + framePeriod, Longitudinal: .3 + framePeriod, LateralTau: .1, LongitudinalTau: .3}
	// rule2026 is that of mid 2026; a model runs half a frame later.
	rule2026 = CommandRule{Lateral: 1.5 * framePeriod, Longitudinal: .3 + 1.5*framePeriod, LongitudinalTau: .3, Stable: .3, Slow: true}
)

// commands makes commands of outputs. The last ones are kept, for smoothing.
type commands struct {
	rule                    CommandRule
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
func (r CommandRule) accelerate(plan *Plan, t float64) (a float64, stands bool) {
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
func (r CommandRule) steer(plan *Plan, v, t float64) float64 {
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
func Share(tau float64) float64 { return -math.Expm1(-framePeriod / tau) }

func square(x float64) float64 { return x * x }
