package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Tier is how much of the world a batch simulates.
type Tier int

// Tiers. Models, and callbacks that look, are of the last one by themselves.
const (
	Planner  Tier = iota // a planner in abstract state: road, other cars, sensors
	Controls             // the vehicle alone: what it makes of the curvature and the acceleration that a scenario asks for
	Pictures             // the model in the loop: the planner's world, drawn as cameras see it
)

// String names the tier as reports do.
func (t Tier) String() string {
	switch t {
	case Controls:
		return "controls"
	case Pictures:
		return "model in the loop"
	}
	return "planner in abstract state"
}

// Short names the tier in a word.
func (t Tier) Short() string {
	first, _, _ := strings.Cut(t.String(), " ")
	return first
}

// TierNamed is the tier of a name or a short name.
func TierNamed(name string) (Tier, error) {
	for _, t := range []Tier{Planner, Controls, Pictures} {
		if name == t.String() || name == t.Short() {
			return t, nil
		}
	}
	return 0, fmt.Errorf("no tier %q: there are planner, controls and model", name)
}

// Families are those that are built in for the tier.
func (t Tier) Families() []Family {
	if t == Controls {
		return ControlFamilies
	}
	return slices.Concat(Families, ManeuverFamilies)
}

// Metrics are what a loop of the tier ends with; Result.Metrics has rows of them.
func (t Tier) Metrics() []Metric {
	if t == Controls {
		return controlMetrics
	}
	return Metrics
}

// uses reports whether a parameter does anything in the tier.
func (t Tier) uses(param string) bool {
	asks := strings.HasPrefix(param, "ask_")
	if t != Controls {
		return !asks
	}
	vehicle := paramIndex[param] <= paramIndex["dynamic"]
	return asks || vehicle || slices.Contains([]string{"speed", "grade", "bank", "friction", "wind", "wind_start", "wind_length"}, param)
}

// checkUse refuses a parameter that the tier does not read.
func (t Tier) checkUse(p *Param) error {
	if t.uses(p.Name) {
		return nil
	}
	other := Planner
	if t != Controls {
		other = Controls
	}
	return fmt.Errorf("%s does nothing in tier %s: leave it out, or run the file with --tier %s", p.Name, t.Short(), other.Short())
}

// check says which algorithms cannot run in the tier.
func (t Tier) check(a Algorithm) error {
	callback, _ := a.(*Callback)
	_, models := a.(*Models)
	switch {
	case t != Planner && t != Controls:
		return fmt.Errorf("there is no tier %d: want scenario.Planner or scenario.Controls", t)
	case t == Controls && (models || callback != nil && callback.Look != nil):
		return fmt.Errorf("algorithm %q sees pictures: tier %v has none, so controllers, policies and callbacks that act drive there",
			a.algorithm(), t)
	case t == Planner && a == Asked:
		return fmt.Errorf("algorithm %q commands what scenarios ask for in tier %v: run it in that one",
			a.algorithm(), Controls)
	}
	return nil
}

var controlMetrics = []Metric{
	{Name: "diverged", Failure: true, Doc: "a number was not finite"},
	{Name: "lateral_error", Unit: "m/s²", Doc: "root mean square: acceleration across less the one asked for"},
	{Name: "lateral_error_max", Unit: "m/s²"},
	{Name: "accel_error", Unit: "m/s²", Doc: "root mean square: acceleration less the one asked for"},
	{Name: "accel_error_max", Unit: "m/s²"},
	{Name: "speed_error", Unit: "m/s", Doc: "largest distance of the speed from what was asked for"},
	{Name: "speed_end", Unit: "m/s", Neutral: true},
	{Name: "lateral_accel_max", Unit: "m/s²"},
	{Name: "lateral_jerk", Unit: "m/s³", Doc: "root mean square, at 20 Hz"},
	{Name: "accel_max", Unit: "m/s²", Doc: "longitudinal"},
	{Name: "brake_max", Unit: "m/s²"},
	{Name: "jerk", Unit: "m/s³", Doc: "root mean square, longitudinal, at 20 Hz"},
	{Name: "oscillation", Unit: "m/s³", Doc: "mean change of the commanded lateral acceleration a second"},
	{Name: "duration", Unit: "s", Neutral: true, Doc: "how long it ran"},
}

// controlStates are what a loop of tier controls keeps in addition to its commands.
var controlStates = []string{
	"alive", "speed", "accel", "steer", "slip", "yaw_rate", "command", "lateral", "steps", "not_finite",
	"lateral_error_squared", "lateral_error_largest", "accel_error_squared", "accel_error_largest", "speed_error_largest",
	"lateral_largest", "lateral_jerk_squared", "accel_largest", "brake_largest", "jerk_squared", "command_changes",
}

// ask is what a scenario asks for at a time: curvature, acceleration, and the speed that both lead to.
func (w *world) ask(time num) (curvature, accel, speed num) {
	curvature, accel, speed = w.all(0), w.all(0), w.p("speed")
	for k := range asks {
		from, next := w.p("ask_time"+digit(k)), w.p("ask_accel"+digit(k))
		since := w.less(w.c(-dt/2), w.sub(time, from)) // not before
		speed = w.sum(speed, w.mul(w.max(w.sub(time, from), w.c(0)), w.sub(next, accel)))
		curvature, accel = w.where(since, w.p("ask_curvature"+digit(k)), curvature), w.where(since, next, accel)
	}
	return curvature, accel, w.max(speed, w.c(0))
}

// asked is what a controller is given in tier controls: what is asked for stands where the road does, and its speed
// where the driver's does.
func (w *world) asked() map[string]num {
	curvature, accel, speed := w.ask(w.time)
	v, zero := w.state["speed"], w.all(0)
	see := map[string]num{
		"time": w.time, "speed": v, "accel": w.state["accel"], "offset": zero, "heading": zero, "bank": w.p("bank"),
		"curvature": w.div(w.state["yaw_rate"], w.max(v, w.c(1))), "gap": w.all(far), "lead_speed": v, "lead": zero,
		"cruise": speed, "ask_accel": accel, "road0": curvature,
	}
	for i, preview := range previews[1:] {
		see["road"+digit(i+1)], _, _ = w.ask(w.sum(w.time, w.c(preview)))
	}
	return see
}

// respond integrates the vehicle over a step.
func (w *world) respond() {
	for substep := range Substeps {
		w.vehicle(substep, w.surface(num{}))
		w.time = w.clock(substep + 1)
	}
}

// track updates the sums of tier controls after a step; before are the states before it.
func (w *world) track(before map[string]num) {
	s, one := w.state, w.c(1)
	most := func(name string, x num) { s[name] = w.max(s[name], x) }
	squares := func(name string, x num) {
		w.accumulate(name+"_squared", w.mul(x, x))
		most(name+"_largest", w.one("Abs", x))
	}
	curvature, accel, _ := w.ask(w.clock(0)) // over the step
	s["steps"] = w.sum(s["steps"], one)
	w.time = w.clock(0)
	_, _, speed := w.ask(w.time)
	finite := w.finite(s["speed"])
	for _, name := range []string{"slip", "yaw_rate", "steer", "accel", "command"} {
		finite = w.and(finite, w.finite(s[name]))
	}
	most("not_finite", w.where(finite, w.all(0), w.all(1)))
	lateral := w.mul(s["speed"], s["yaw_rate"])
	squares("lateral_error", w.sub(lateral, w.mul(curvature, s["speed"], s["speed"])))
	squares("accel_error", w.sub(s["accel"], accel))
	most("speed_error_largest", w.one("Abs", w.sub(s["speed"], speed)))
	w.comfort(before, lateral)
	over := w.not(w.less(w.time, w.sub(w.p("duration"), w.c(Step/2))))
	s["alive"] = w.where(w.or(over, w.less(w.c(0.5), s["not_finite"])), w.all(0), w.all(1))
}

// tracked are the metrics of tier controls, from the states after a step.
func (w *world) tracked() (out []num) {
	s := w.state
	steps := w.max(s["steps"], w.c(1))
	root := func(name string) num { return w.one("Sqrt", w.div(s[name], steps)) }
	by := map[string]num{
		"diverged":      s["not_finite"],
		"lateral_error": root("lateral_error_squared"), "lateral_error_max": s["lateral_error_largest"],
		"accel_error": root("accel_error_squared"), "accel_error_max": s["accel_error_largest"],
		"speed_error": s["speed_error_largest"], "speed_end": s["speed"],
		"lateral_accel_max": s["lateral_largest"], "lateral_jerk": root("lateral_jerk_squared"),
		"accel_max": s["accel_largest"], "brake_max": s["brake_largest"], "jerk": root("jerk_squared"), "duration": w.mul(s["steps"], w.c(Step)),
		"oscillation": w.div(s["command_changes"], w.mul(steps, w.c(Step))),
	}
	for _, m := range controlMetrics {
		out = append(out, by[m.Name])
	}
	return out
}
