package scenario

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Times of the loop: a controller acts every Step, and physics is integrated Substeps times between.
const (
	Step     = 0.05 // s
	Substeps = 5
	dt       = Step / Substeps
)

// Limits of openpilot's commands (selfdrive/controls/lib/drive_helpers.py, clip_curvature), and gravity.
const (
	maxLateralJerk  = 5.0 // m/s³
	maxLateralAccel = 3.0 // m/s², with that of the road's bank in addition
	maxCurvature    = 0.2 // 1/m
	gravity         = 9.81
)

// Rings of what a loop remembers, a row each step: powers of two, by which f32 divides without rounding.
const (
	commandSteps = 16 // of commands: Substeps curvatures and an acceleration; covers 0.5 s of delay
	seenSteps    = 8  // of observations; covers 0.35 s of latency
)

// slot is the row in a ring of so many steps that the present one has, and before the row some steps earlier.
func (w *world) slot(steps int) num {
	n := w.state["steps"]
	return w.sub(n, w.mul(w.c(float64(steps)), w.one("Floor", w.mul(w.c(1/float64(steps)), n))))
}

func (w *world) before(slot, steps num, ring int) num {
	at := w.sub(slot, steps)
	return w.where(w.less(at, w.c(0)), w.sum(at, w.c(float64(ring))), at)
}

// Observations are what a controller is given of each loop, in this order.
var Observations = []Param{
	{Name: "time", Unit: "s", Doc: "since the start of the scenario"},
	{Name: "speed", Unit: "m/s"},
	{Name: "accel", Unit: "m/s²", Doc: "longitudinal"},
	{Name: "offset", Unit: "m", Doc: "from the centre of the lane, left positive"},
	{Name: "heading", Unit: "rad", Doc: "angle to the road, left positive"},
	{Name: "curvature", Unit: "1/m", Doc: "of the car's path"},
	{Name: "road0", Unit: "1/m", Doc: "curvature of the road here"},
	{Name: "road1", Unit: "1/m", Doc: "where the car is in 0.25 s"},
	{Name: "road2", Unit: "1/m", Doc: "where it is in 0.5 s"},
	{Name: "road3", Unit: "1/m", Doc: "where it is in 1 s"},
	{Name: "gap", Unit: "m", Doc: "to the car in front; 1000 without one"},
	{Name: "lead_speed", Unit: "m/s", Doc: "of the car in front; the own speed without one"},
	{Name: "lead", Doc: "1: a car in front is seen"},
	{Name: "cruise", Unit: "m/s", Doc: "speed that the driver has set"},
	{Name: "bank", Unit: "rad", Doc: "roll of the road"},
}

var previews = []float64{0, 0.25, 0.5, 1} // s, of road0 …

// states are what a loop keeps from step to step, a number each, besides its tables.
var states = []string{
	"alive", // 1 until the scenario is over, a collision, or numbers that are not finite
	"station", "offset", "heading", "speed", "accel", "steer", "slip", "yaw_rate",
	"command", // limited curvature
	"lateral", // acceleration in the step before
	"gap0", "gap1", "car_speed0", "car_speed1",
}

// longSums are states that grow by small terms over a whole loop. Each has a second number, of what f32 has rounded off
// so far, without which ten minutes of 10 ms at 59.3 m/s are 20 m too long.
var longSums = []string{
	"station", gapOf(0), gapOf(1), "speed", "offset_squared", "lateral_jerk_squared", "jerk_squared", "command_changes",
	speedErrors, "lateral_error_squared", "accel_error_squared",
}

// remainders are the second numbers of those names that are long sums.
func remainders(names []string) (out []string) {
	for _, name := range names {
		if slices.Contains(longSums, name) {
			out = append(out, remainderOf(name))
		}
	}
	return out
}

func remainderOf(name string) string { return name + "_remainder" }

// accumulate adds x to a long sum: x and the remainder are added, and what rounding loses of that is the new remainder
// (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B).
func (w *world) accumulate(name string, x num) {
	s, r := w.state[name], remainderOf(name)
	x = w.sum(x, w.state[r])
	total := w.sum(s, x)
	added := w.sub(total, s)
	w.state[name], w.state[r] = total, w.sum(w.sub(s, w.sub(total, added)), w.sub(x, added))
}

// world is the step of a batch as it is built: values of the parameters and of the states.
type world struct {
	*builder
	params *ir.Value
	state  map[string]num
	tables map[string]*ir.Value
	roads  *ir.Value       // of knots, [loops, knots, len(roadColumns)]; nil: no loop has one
	random [2][4]*ir.Value // words of this step
	acting [Substeps]acting
	view   *view // of cameras; nil: none look
	time   num   // s, since the start: a multiple of dt, of which no errors add up
}

// acting is what has an effect in a substep.
type acting struct{ curvature, accel num }

// clock is the time at a substep of the step that runs.
func (w *world) clock(substep int) num {
	at := w.sum(w.mul(w.state["steps"], w.c(Substeps)), w.c(float64(substep)))
	return w.mul(at, w.c(dt))
}

func (w *world) p(name string) num { return w.row(w.params, paramRow(name)) }

func car(i int, name string) string { return "car" + digit(i) + "_" + name }
func digit(i int) string            { return string('0' + byte(i)) }

// curve is the curvature at a station of a road with one curve: it grows and falls linearly (clothoids).
func (w *world) curve(station num) num {
	zero, one, slope := w.c(0), w.c(1), w.p("curve_slope")
	in := w.mul(w.sub(station, w.p("curve_start")), slope)
	out := w.mul(w.sub(station, w.p("curve_end")), slope)
	return w.mul(w.p("curvature"), w.sub(w.clip(in, zero, one), w.clip(out, zero, one)))
}

// lateralOf is where across the lane a car is.
func (w *world) lateralOf(i int, time num) num {
	return w.lerp(w.p(car(i, "lateral")), w.p(car(i, "lateral_end")), w.ramp(time, w.p(car(i, "change_start")), w.p(car(i, "change_length"))))
}

// scripted is the speed of a car by its profile.
func (w *world) scripted(i int, time num) num {
	v := w.p(car(i, "speed0"))
	for k := 1; k < knots; k++ {
		from := w.p(car(i, "time"+digit(k-1)))
		t := w.clip(time, from, w.p(car(i, "time"+digit(k))))
		v = w.sum(v, w.mul(w.p(car(i, "slope"+digit(k))), w.sub(t, from)))
	}
	return v
}

// inPath says whether something at lateral position y is in the way of what is at x.
func (w *world) inPath(x, y num) cond {
	return w.less(w.one("Abs", w.sub(x, y)), w.p("half_lane"))
}

const far = 1000.0 // m: of a gap where there is no car

// nearest is the gap to the nearest leading car in the ego car's path, and that car's speed.
func (w *world) nearest() (gap, speed num) {
	gap, speed = w.all(far), w.state["speed"]
	for i := range Cars {
		its := w.state[gapOf(i)]
		there := w.and(w.less(w.c(0.5), w.p(car(i, "present"))), w.less(w.mul(w.c(-1), w.p("length")), its))
		there = w.and(there, w.and(w.inPath(w.state["offset"], w.lateralOf(i, w.time)), w.less(its, gap)))
		gap, speed = w.where(there, its, gap), w.where(there, w.state[speedOf(i)], speed)
	}
	return gap, speed
}

func gapOf(i int) string   { return "gap" + digit(i) }
func speedOf(i int) string { return "car_speed" + digit(i) }

// observe is what the controller is given: late, noisy, and held where a frame is dropped. New rows are kept.
func (w *world) observe() map[string]num {
	noise, draw := w.normals(w.random[0]), w.random[1]
	gap, leadSpeed := w.nearest()
	probability := w.all(0)
	for i := range Cars { // of the car whose gap it is
		probability = w.where(w.not(w.less(w.one("Abs", w.sub(gap, w.state[gapOf(i)])), w.c(1e-6))), probability, w.p(car(i, "probability")))
	}
	lead := w.and(w.less(gap, w.c(far)), w.less(w.uniform(draw[0]), probability))
	dropped := w.and(w.less(w.uniform(draw[1]), w.p("drop")), w.less(w.c(Step/2), w.time)) // never the first
	v := w.state["speed"]
	now := map[string]num{
		"offset":     w.sum(w.state["offset"], w.mul(w.p("noise_offset"), noise[0])),
		"heading":    w.sum(w.state["heading"], w.p("calibration_yaw"), w.mul(w.p("noise_heading"), noise[1])),
		"gap":        w.where(lead, w.sum(gap, w.mul(w.p("noise_gap"), noise[2])), w.all(far)),
		"lead_speed": w.where(lead, w.max(w.sum(leadSpeed, w.mul(w.p("noise_speed"), noise[3])), w.c(0)), v),
		"lead":       w.where(lead, w.all(1), w.all(0)),
	}
	if w.view != nil {
		now["station"] = w.state["station"]
		for i := range Cars {
			now[car(i, "gap")], now[car(i, "side")] = w.state[gapOf(i)], w.lateralOf(i, w.time)
		}
	}
	for i, preview := range previews {
		now["road"+digit(i)] = w.road(w.sum(w.state["station"], w.mul(w.c(preview), v)))
	}
	// What cameras see is late; speeds, accelerations and the path's curvature are the car's own sensors'.
	out := map[string]num{
		"time": w.time, "speed": v, "accel": w.state["accel"], "cruise": w.cruise(w.state["station"], w.time),
		"bank":      w.surface(w.state["station"]).bank,
		"curvature": w.div(w.state["yaw_rate"], w.max(v, w.c(1))),
	}
	names := seen(w.view != nil)
	late := w.min(w.p("seen_late"), w.state["steps"]) // there is nothing from before the start
	slot := w.slot(seenSteps)
	row := w.mul(w.before(slot, late, seenSteps), w.c(float64(len(names))))
	fresh := w.less(late, w.c(0.5))
	var list []num
	for i, name := range names {
		picked := w.where(fresh, now[name], w.lookup(w.tables["seen"], w.sum(row, w.c(float64(i)))))
		out[name] = w.where(dropped, w.state[heldOf(name)], picked)
		w.state[heldOf(name)] = out[name]
		list = append(list, now[name])
	}
	w.tables["seen"] = w.write(w.tables["seen"], slot, list...)
	return out
}

// seen are the observations that are remembered, and what cameras see.
func seen(pictures bool) (names []string) {
	if pictures {
		names = append(names, sights...)
	}
	for _, o := range Observations {
		switch o.Name {
		case "time", "speed", "accel", "curvature", "cruise", "bank": // the car's own
		default:
			names = append(names, o.Name)
		}
	}
	return names
}

// held are the states that hold what the controller had last of what is seen.
func held(pictures bool) (names []string) {
	for _, name := range seen(pictures) {
		names = append(names, heldOf(name))
	}
	return names
}

func heldOf(name string) string { return "held_" + name }

// takeover is the driver's steering instead of the controller's, while that is so.
func (w *world) takeover(curvature num) num {
	s := w.state
	t := w.sub(w.time, w.p("takeover_start"))
	driving := w.and(w.not(w.less(t, w.c(0))), w.less(t, w.p("takeover_length")))
	v := w.max(s["speed"], w.c(5))
	own := w.sub(w.road(s["station"]), w.div(w.sum(w.mul(w.c(0.64), s["offset"]), w.mul(w.c(1.6), v, s["heading"])), w.mul(v, v)))
	return w.where(driving, own, curvature)
}

// issue limits commands as openpilot does, a substep at a time, and looks up those that have an effect now. The speed
// is that at the beginning of the step.
func (w *world) issue(curvature, accel num) {
	v := w.max(w.state["speed"], w.c(1))
	squared := w.mul(v, v)
	rate := w.div(w.c(maxLateralJerk*dt), squared)
	roll := w.surface(w.state["station"]).side
	low := w.max(w.div(w.sub(roll, w.c(maxLateralAccel)), squared), w.c(-maxCurvature))
	high := w.min(w.div(w.sum(roll, w.c(maxLateralAccel)), squared), w.c(maxCurvature))
	k := w.state["command"]
	var new []num // of each substep
	for range Substeps {
		k = w.clip(w.clip(curvature, w.sub(k, rate), w.sum(k, rate)), low, high)
		new = append(new, k)
	}
	w.state["command"] = k
	a := w.clip(accel, w.p("accel_min"), w.p("accel_max"))
	old, slot := w.tables["commands"], w.slot(commandSteps)
	w.tables["commands"] = w.write(old, slot, append(slices.Clone(new), a)...)
	// earlier is an element of the row that was written some steps before, or one of this step's.
	const width = Substeps + 1
	earlier := func(steps, column, now num) num {
		row := w.before(slot, steps, commandSteps)
		return w.where(w.less(steps, w.c(0.5)), now, w.lookup(old, w.sum(w.mul(row, w.c(width)), column)))
	}
	// A delay is whole steps and a rest of some substeps, by which an effect may reach into the step before.
	steps, rest := w.p("steer_steps"), w.p("steer_rest")
	accelNow := earlier(w.p("accel_steps"), w.c(Substeps), a)
	accelBefore := earlier(w.sum(w.p("accel_steps"), w.c(1)), w.c(Substeps), a)
	for i := range Substeps {
		at := w.c(float64(i))
		reaches := w.less(at, rest)
		column := w.sub(at, rest)
		now := new[i]
		for k := 1; k <= i; k++ {
			now = w.where(w.less(w.c(float64(k)-0.5), rest), new[i-k], now)
		}
		ago := w.where(reaches, w.sum(steps, w.c(1)), steps)
		column = w.where(reaches, w.sum(column, w.c(Substeps)), column)
		w.acting[i] = acting{earlier(ago, column, now), w.where(w.less(at, w.p("accel_rest")), accelBefore, accelNow)}
	}
}

// move integrates the own car and the others over a step.
func (w *world) move() {
	s, one, h := w.state, w.c(1), w.c(dt)
	for substep := range Substeps {
		mean := w.vehicle(substep, w.surface(s["station"]))
		// Along and across the road, with the heading in the middle of the substep.
		road := w.road(s["station"])
		narrow := w.sub(one, w.mul(s["offset"], road))
		along := func(heading num) num {
			return w.div(w.sub(w.mul(mean, w.one("Cos", heading)), w.mul(s["slip"], w.one("Sin", heading))), narrow)
		}
		heading := s["heading"]
		middle := w.sum(heading, w.mul(w.c(dt/2), w.sub(s["yaw_rate"], w.mul(road, along(heading)))))
		speed := along(middle)
		s["heading"] = w.sum(heading, w.mul(h, w.sub(s["yaw_rate"], w.mul(road, speed))))
		across := w.sum(w.mul(mean, w.one("Sin", middle)), w.mul(s["slip"], w.one("Cos", middle)))
		s["offset"] = w.sum(s["offset"], w.mul(h, across))
		w.accumulate("station", w.mul(h, speed))
		w.moveCars(speed)
		w.time = w.clock(substep + 1)
	}
}

// vehicle integrates what the own car does by itself over a substep: steering, slip, yaw rate and speed, of which it
// returns the mean.
func (w *world) vehicle(substep int, here surface) (mean num) {
	s := w.state
	one, zero := w.c(1), w.c(0)
	l, slipFactor, grip := w.p("wheelbase"), w.p("slip_factor"), w.p("grip")
	slips := w.less(w.c(0.5), w.p("dynamic"))
	steerStep := w.p("steer_step")
	h := w.c(dt)
	v := s["speed"]
	u := w.max(v, w.c(0.1))
	// Steering: the angle that openpilot's vehicle model gives for the curvature
	// (VehicleModel.get_steer_from_curvature).
	stability := w.sub(one, w.mul(slipFactor, u, u))
	k := w.acting[substep].curvature
	roll := w.div(w.mul(here.side, slipFactor), stability)
	wanted := w.where(slips, w.mul(w.sub(k, roll), l, stability), w.mul(k, l))
	turn := w.mul(w.p("steer_share"), w.sub(wanted, s["steer"]))
	steer := w.sum(s["steer"], w.clip(turn, w.mul(w.c(-1), steerStep), steerStep))
	s["steer"] = steer
	// Dynamic bicycle, linear tyres (Rajamani, Vehicle Dynamics and Control, eq. 2.31), implicit in slip and yaw
	// rate.
	t := w.sub(w.time, w.p("wind_start"))
	gust := w.and(w.not(w.less(t, zero)), w.less(t, w.p("wind_length")))
	push := w.sub(w.where(gust, w.p("wind"), w.all(0)), here.side)
	per := w.div(w.c(-1), u)
	a11, a12 := w.mul(w.p("side_slip"), per), w.sub(w.mul(w.p("side_yaw"), per), u)
	a21, a22 := w.mul(w.p("turn_slip"), per), w.mul(w.p("turn_yaw"), per)
	slip, yaw := s["slip"], s["yaw_rate"]
	r1 := w.sum(slip, w.mul(h, w.sum(w.mul(w.p("side_steer"), steer), push)))
	r2 := w.sum(yaw, w.mul(h, w.mul(w.p("turn_steer"), steer)))
	m11, m12 := w.sub(one, w.mul(h, a11)), w.mul(w.c(-dt), a12)
	m21, m22 := w.mul(w.c(-dt), a21), w.sub(one, w.mul(h, a22))
	det := w.sub(w.mul(m11, m22), w.mul(m12, m21))
	slipFree := w.div(w.sub(w.mul(r1, m22), w.mul(m12, r2)), det)
	yawFree := w.div(w.sub(w.mul(m11, r2), w.mul(m21, r1)), det)
	// What the tyres give is cut to the grip, yaw in the same share.
	tyres := w.sub(w.sum(w.div(w.sub(slipFree, slip), h), w.mul(u, yawFree)), push)
	share := w.min(one, w.div(grip, w.max(w.one("Abs", tyres), w.c(1e-3))))
	yawGrip := w.sum(yaw, w.mul(share, w.sub(yawFree, yaw)))
	slipGrip := w.sum(slip, w.mul(h, w.sum(w.sub(w.mul(share, tyres), w.mul(u, yawGrip)), push)))
	limit := w.div(grip, u)
	yawPlain := w.clip(w.div(w.mul(v, steer), l), w.mul(w.c(-1), limit), limit)
	yawNew := w.where(slips, yawGrip, yawPlain)
	s["slip"], s["yaw_rate"] = w.where(slips, slipGrip, w.all(0)), yawNew
	// Longitudinal.
	a := w.acting[substep].accel
	a = w.sum(s["accel"], w.mul(w.p("accel_share"), w.sub(a, s["accel"])))
	a = w.clip(a, w.mul(w.c(-1), grip), grip)
	s["accel"] = a
	w.accumulate("speed", w.mul(h, w.sub(a, here.climb)))
	stands := w.less(s["speed"], zero)
	for _, name := range []string{"speed", remainderOf("speed")} {
		s[name] = w.where(stands, w.all(0), s[name])
	}
	return w.mul(w.c(0.5), w.sum(v, s["speed"]))
}

// moveCars integrates the other cars over a substep; speed is that of the own one along the road.
func (w *world) moveCars(speed num) {
	s := w.state
	after := w.sum(w.time, w.c(dt))
	var next [Cars]num // speeds
	for i := range Cars {
		follows := w.less(w.c(0.5), w.p(car(i, "idm")))
		follow := w.max(w.sum(s[speedOf(i)], w.mul(w.c(dt), w.idm(i))), w.c(0))
		next[i] = w.where(follows, follow, w.scripted(i, after))
	}
	for i, v := range next {
		mean := w.mul(w.c(0.5), w.sum(s[speedOf(i)], v))
		w.accumulate(gapOf(i), w.mul(w.c(dt), w.sub(mean, speed)))
		s[speedOf(i)] = v
	}
	gap, v := gapOf(0), speedOf(0)
	s[gap], s[v] = w.recordedLead(s["station"], after, s[gap], s[v])
}

// idm is the acceleration of a car that follows the nearest leading one: Treiber, Hennecke, Helbing, "Congested
// traffic states in empirical observations and microscopic simulations" (2000), eqs. 2 and 3.
func (w *world) idm(i int) num {
	s, length := w.state, w.p("length")
	v, mine := s[speedOf(i)], s[gapOf(i)]
	y := w.lateralOf(i, w.time)
	gap, speed := w.all(far), v
	consider := func(present, its, itsSpeed, lateral num) {
		there := w.and(w.less(w.c(0.5), present), w.and(w.inPath(y, lateral), w.and(w.less(w.mul(w.c(-1), length), its), w.less(its, gap))))
		gap, speed = w.where(there, its, gap), w.where(there, itsSpeed, speed)
	}
	// Its front is a length from its rear; the ego car's rear is a length from its front.
	consider(w.all(1), w.sub(w.mul(w.c(-2), length), mine), s["speed"], s["offset"])
	for k := range Cars {
		if k != i {
			its := w.sub(w.sub(s[gapOf(k)], mine), length)
			consider(w.p(car(k, "present")), its, s[speedOf(k)], w.lateralOf(k, w.time))
		}
	}
	most := w.p(car(i, "accel"))
	wanted := w.sum(w.mul(v, w.p(car(i, "headway"))), w.mul(v, w.sub(v, speed), w.p(car(i, "root"))))
	wanted = w.sum(w.p(car(i, "spacing")), w.max(wanted, w.c(0)))
	near := w.div(wanted, w.max(gap, w.c(0.1)))
	share := w.div(v, w.max(w.p(car(i, "speed0")), w.c(0.1)))
	share = w.mul(share, share)
	a := w.mul(most, w.sub(w.sub(w.c(1), w.mul(share, share)), w.mul(near, near)))
	return w.max(a, w.c(-9))
}
