package scenario

import (
	"math"
	"sync"
)

// What the twin remembers: commands of each substep and what was seen in each step, in rings.
const (
	commandRows = 64
	seenRows    = 8
)

// twin is one loop in plain float64, written independently of the step, as one would write a fast simulator by
// hand. The step is tested against it, and compared with it for speed.
type twin struct {
	twinParams
	state    twinState
	commands [commandRows]command // of substep n of the run: n mod commandRows
	past     [seenRows]sight      // of step n: n mod seenRows
	held     sight
	errors   twinErrors // of tier controls
	sum      float64    // of the PID
	numbers  map[string]*float64
}

type command struct{ curvature, accel float64 }

// sight is what cameras see.
type sight struct {
	offset, heading, gap, leadSpeed, lead float64
	road                                  [4]float64
}

// twinState has a field for each of states and sums.
type twinState struct {
	alive, station, offset, heading, speed, accel, steer, slip, yawRate, command, lateral float64
	gap, carSpeed                                                                         [Cars]float64

	steps, collided, leftLane, notFinite, tookOver, offsetSquared, offsetLargest, lastOutside, leastTTC, leastHeadway float64
	lateralLargest, lateralJerkSquared, accelLargest, brakeLargest, jerkSquared, commandChanges                       float64
	speedErrorSquared                                                                                                 float64
}

type twinErrors struct{ lateralSquared, lateralLargest, accelSquared, accelLargest, speedLargest float64 }

// twinParams are a scenario's, and what of them is the same in every step.
type twinParams struct {
	duration, wheelbase, bank, grade, accelMin, accelMax, width, length, laneWidth, cruise float64
	dynamic                                                                                bool
	slipFactor, sideSlip, sideYaw, sideSteer, turnSlip, turnYaw, turnSteer                 float64 // of the bicycle
	steerShare, accelShare, steerMost, grip                                                float64
	steerLate, accelLate, seenLate                                                         int
	curvature, curveStart, curveRamp, curveLength                                          float64
	wind, windStart, windLength, takeoverStart, takeoverLength                             float64
	noiseOffset, noiseHeading, noiseGap, noiseSpeed, calibrationYaw, drop                  float64
	startSpeed                                                                             float64
	asks                                                                                   [asks]twinAsk
	cars                                                                                   [Cars]twinCar
	road                                                                                   *twinRoad // nil: one curve
}

type twinAsk struct{ time, accel, curvature float64 }

type twinCar struct {
	present, idm                                                bool
	lateral, lateralEnd, changeStart, changeLength, probability float64
	headway, spacing, accel, root, desired                      float64
	time, speed                                                 [knots]float64
}

func newTwin(s Scenario) *twin {
	p, h := s.Get, 0.01
	m, l, j, cf, cr := p("mass"), p("wheelbase"), p("inertia"), p("stiffness_front"), p("stiffness_rear")
	a := p("front_share") * l
	b := l - a
	t := &twin{twinParams: twinParams{
		duration: p("duration"), wheelbase: l, bank: 9.81 * p("bank"), grade: 9.81 * p("grade"),
		accelMin: p("accel_min"), accelMax: p("accel_max"), width: p("width"), length: p("length"), laneWidth: p("lane_width"),
		cruise: p("cruise"), dynamic: p("dynamic") > 0.5,
		slipFactor: m * (cf*a - cr*b) / (l * l * cf * cr),
		sideSlip:   (cf + cr) / m, sideYaw: (cf*a - cr*b) / m, sideSteer: cf / m,
		turnSlip: (cf*a - cr*b) / j, turnYaw: (cf*a*a + cr*b*b) / j, turnSteer: cf * a / j,
		steerShare: 1 - math.Exp(-h/math.Max(p("steer_lag"), 1e-4)), accelShare: 1 - math.Exp(-h/math.Max(p("accel_lag"), 1e-4)),
		steerMost: p("steer_rate") / p("steer_ratio") * h, grip: 9.81 * p("friction"),
		steerLate: int(math.Round(p("steer_delay") / h)), accelLate: int(math.Round(p("accel_delay") / h)),
		seenLate:  int(math.Round(p("latency") / 0.05)),
		curvature: p("curvature"), curveStart: p("curve_start"), curveRamp: p("curve_ramp"), curveLength: p("curve_length"),
		wind: p("wind"), windStart: p("wind_start"), windLength: p("wind_length"),
		takeoverStart: p("takeover_start"), takeoverLength: p("takeover_length"),
		noiseOffset: p("noise_offset"), noiseHeading: p("noise_heading"), noiseGap: p("noise_gap"), noiseSpeed: p("noise_speed"),
		calibrationYaw: p("calibration_yaw"), drop: p("drop"),
	}}
	for i := range t.cars {
		q := func(name string) float64 { return p(car(i, name)) }
		c := &t.cars[i]
		*c = twinCar{
			present: q("present") > 0.5, idm: q("idm") > 0.5, lateral: q("lateral"), lateralEnd: q("lateral_end"),
			changeStart: q("change_start"), changeLength: q("change_length"), probability: q("probability"),
			headway: q("headway"), spacing: q("spacing"), accel: q("accel"), root: 2 * math.Sqrt(q("accel")*q("brake")),
			desired: math.Max(q("speed0"), 0.1),
		}
		for k := range knots {
			c.time[k], c.speed[k] = q("time"+digit(k)), q("speed"+digit(k))
		}
		t.state.carSpeed[i], t.state.gap[i] = q("speed0"), q("gap")
	}
	for k := range t.asks {
		t.asks[k] = twinAsk{p("ask_time" + digit(k)), p("ask_accel" + digit(k)), p("ask_curvature" + digit(k))}
	}
	if s.Road != nil {
		t.road = newTwinRoad(s.Road)
		if s.Road.Lead != nil {
			t.state.gap[0], t.state.carSpeed[0] = s.Road.Lead[0], s.Road.LeadSpeed[0]
		}
	}
	t.startSpeed = p("speed")
	u, e := &t.state, &t.errors
	u.alive, u.leastTTC, u.leastHeadway = 1, 100, 100
	u.offset, u.heading, u.speed = p("offset"), p("heading"), p("speed")
	t.numbers = map[string]*float64{
		"alive": &u.alive, "station": &u.station, "offset": &u.offset, "heading": &u.heading, "speed": &u.speed,
		"accel": &u.accel, "steer": &u.steer, "slip": &u.slip, "yaw_rate": &u.yawRate, "command": &u.command,
		"lateral": &u.lateral, "gap0": &u.gap[0], "gap1": &u.gap[1], "car_speed0": &u.carSpeed[0], "car_speed1": &u.carSpeed[1],
		"steps": &u.steps, "collided": &u.collided, "left_lane": &u.leftLane, "not_finite": &u.notFinite,
		"took_over": &u.tookOver, "offset_squared": &u.offsetSquared, "offset_largest": &u.offsetLargest,
		"last_outside": &u.lastOutside, "least_ttc": &u.leastTTC, "least_headway": &u.leastHeadway,
		"lateral_largest": &u.lateralLargest, "lateral_jerk_squared": &u.lateralJerkSquared,
		"accel_largest": &u.accelLargest, "brake_largest": &u.brakeLargest, "jerk_squared": &u.jerkSquared,
		"command_changes":       &u.commandChanges,
		"speed_error_squared":   &u.speedErrorSquared,
		"lateral_error_squared": &e.lateralSquared, "lateral_error_largest": &e.lateralLargest,
		"accel_error_squared": &e.accelSquared, "accel_error_largest": &e.accelLargest, "speed_error_largest": &e.speedLargest,
	}
	for _, name := range longSums {
		t.numbers[remainderOf(name)] = new(float64)
	}
	return t
}

// number is where a sight has what is seen under a name.
func (s *sight) number(name string) *float64 {
	return map[string]*float64{
		"offset": &s.offset, "heading": &s.heading, "gap": &s.gap, "lead_speed": &s.leadSpeed, "lead": &s.lead,
		"road0": &s.road[0], "road1": &s.road[1], "road2": &s.road[2], "road3": &s.road[3],
	}[name]
}

func clamp(x, low, high float64) float64 { return min(max(x, low), high) }

func (t *twin) roadAt(x float64) float64 {
	if t.road != nil {
		return through(t.road.distance, t.road.curvature, x)
	}
	at := x - t.curveStart
	switch {
	case at < 0:
		return 0
	case at < t.curveRamp:
		return t.curvature * at / t.curveRamp
	case at < t.curveRamp+t.curveLength:
		return t.curvature
	case at < t.curveRamp+t.curveLength+t.curveRamp:
		return t.curvature * (1 - (at-t.curveRamp-t.curveLength)/t.curveRamp)
	}
	return 0
}

func (c *twinCar) lateralAt(time float64) float64 {
	u := (time - c.changeStart) / c.changeLength
	switch {
	case u <= 0:
		return c.lateral
	case u >= 1:
		return c.lateralEnd
	}
	return c.lateral + (c.lateralEnd-c.lateral)*(3*u*u-2*u*u*u)
}

func (c *twinCar) speedAt(time float64) float64 {
	for k := range knots - 1 {
		if time <= c.time[k] {
			return c.speed[k]
		}
		if time < c.time[k+1] {
			return c.speed[k] + (c.speed[k+1]-c.speed[k])*(time-c.time[k])/(c.time[k+1]-c.time[k])
		}
	}
	return c.speed[knots-1]
}

func (t *twin) inWay(x, y float64) bool { return math.Abs(x-y) < t.laneWidth/2 }

// nearest is the leading car: its number (-1: there is none), gap and speed.
func (t *twin) nearest(time float64) (which int, gap, speed float64) {
	s := &t.state
	which, gap, speed = -1, 1000, s.speed
	for i := range t.cars {
		c, g := &t.cars[i], s.gap[i]
		if c.present && g > -t.length && g < gap && t.inWay(s.offset, c.lateralAt(time)) {
			which, gap, speed = i, g, s.carSpeed[i]
		}
	}
	return which, gap, speed
}

func (t *twin) observe(time float64, seed, number uint64) {
	s := &t.state
	step := int(math.Round(s.steps))
	words := func(stream uint32) [4]uint32 {
		return philox([4]uint32{uint32(step), stream, uint32(number), uint32(number >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	}
	n, u := words(0), words(1)
	var normal [4]float64
	for i := range 2 {
		r := math.Sqrt(-2 * math.Log(uniform(n[2*i])))
		sin, cos := math.Sincos(2 * math.Pi * uniform(n[2*i+1]))
		normal[2*i], normal[2*i+1] = r*cos, r*sin
	}
	v := s.speed
	now := &t.past[step%seenRows]
	*now = sight{
		offset: s.offset + t.noiseOffset*normal[0], heading: s.heading + t.calibrationYaw + t.noiseHeading*normal[1],
		gap: 1000, leadSpeed: v,
		road: [4]float64{t.roadAt(s.station), t.roadAt(s.station + v/4), t.roadAt(s.station + v/2), t.roadAt(s.station + v)},
	}
	if i, gap, speed := t.nearest(time); i >= 0 && uniform(u[0]) < t.cars[i].probability {
		now.gap, now.lead, now.leadSpeed = gap+t.noiseGap*normal[2], 1, math.Max(speed+t.noiseSpeed*normal[3], 0)
	}
	if step == 0 || uniform(u[1]) >= t.drop {
		t.held = t.past[(step-min(t.seenLate, step))%seenRows]
	}
}

func (t *twin) pid(time float64) (curvature, accel float64) {
	o, speed := &t.held, t.state.speed
	v := math.Max(speed, 5)
	t.sum = clamp(t.sum+0.05*o.offset, -40, 40)
	curvature = o.road[1] - (0.64*o.offset+0.05*t.sum+1.6*v*o.heading)/(v*v)
	accel = clamp(0.5*(t.cruiseAt(time)-speed), -2, 1.5)
	if o.lead > 0.5 {
		accel = math.Min(accel, 0.25*(o.gap-4-1.45*speed)+0.8*(o.leadSpeed-speed))
	}
	return curvature, accel
}

// ask is what a scenario asks for in tier controls.
func (t *twin) ask(time float64) (curvature, accel, speed float64) {
	speed = t.startSpeed
	for k, a := range t.asks {
		if time < a.time-0.005 {
			break
		}
		until := time
		if k+1 < len(t.asks) {
			until = math.Min(until, t.asks[k+1].time)
		}
		curvature, accel, speed = a.curvature, a.accel, speed+a.accel*math.Max(until-a.time, 0)
	}
	return curvature, accel, math.Max(speed, 0)
}

// stepControls runs the vehicle alone for 50 ms, by what is asked for.
func (t *twin) stepControls() {
	s := &t.state
	if s.alive == 0 {
		return
	}
	curvature, accel, _ := t.ask(s.steps * 0.05)
	accelWas, commandWas := s.accel, s.command
	first := t.issue(curvature, accel)
	for i := range Substeps {
		t.vehicle(first + i)
	}
	s.steps++
	lateral := s.speed * s.yawRate
	across, along := lateral-curvature*s.speed*s.speed, s.accel-accel
	_, _, speed := t.ask(s.steps * 0.05)
	e := &t.errors
	e.lateralSquared += across * across
	e.lateralLargest = math.Max(e.lateralLargest, math.Abs(across))
	e.accelSquared += along * along
	e.accelLargest = math.Max(e.accelLargest, math.Abs(along))
	e.speedLargest = math.Max(e.speedLargest, math.Abs(s.speed-speed))
	t.comfort(accelWas, commandWas)
	if s.steps*0.05 >= t.duration-0.025 {
		s.alive = 0
	}
}

// step runs the loop for 50 ms; a loop that is over stays as it is.
func (t *twin) step(seed, number uint64) {
	s := &t.state
	if s.alive == 0 {
		return
	}
	start := s.steps * 0.05
	t.observe(start, seed, number)
	curvature, accel := t.pid(start)
	if at := start - t.takeoverStart; at >= 0 && at < t.takeoverLength {
		v := math.Max(s.speed, 5)
		curvature = t.roadAt(s.station) - (0.64*s.offset+1.6*v*s.heading)/(v*v)
	}
	accelWas, commandWas := s.accel, s.command
	first := t.issue(curvature, accel)
	for i := range Substeps {
		t.substep(first + i)
	}
	t.measure(accelWas, commandWas)
}

// issue limits the commands of a step, and returns the number of its first substep.
func (t *twin) issue(curvature, accel float64) (first int) {
	s := &t.state
	v := math.Max(s.speed, 1)
	rate := 5 * 0.01 / (v * v)
	bank := t.bankAt(s.station)
	low, high := math.Max((bank-3)/(v*v), -0.2), math.Min((bank+3)/(v*v), 0.2)
	accel = clamp(accel, t.accelMin, t.accelMax)
	first = int(math.Round(s.steps)) * Substeps
	for i := range Substeps {
		s.command = clamp(clamp(curvature, s.command-rate, s.command+rate), low, high)
		t.commands[(first+i)%commandRows] = command{s.command, accel}
	}
	return first
}

func (t *twin) substep(n int) {
	s, time, h := &t.state, float64(n)*0.01, 0.01
	mean, road := t.vehicle(n), t.roadAt(s.station)
	narrow := 1 - s.offset*road
	sin, cos := math.Sincos(s.heading)
	middle := s.heading + h/2*(s.yawRate-road*(mean*cos-s.slip*sin)/narrow)
	sin, cos = math.Sincos(middle)
	forward := (mean*cos - s.slip*sin) / narrow
	s.heading += h * (s.yawRate - road*forward)
	s.offset += h * (mean*sin + s.slip*cos)
	s.station += h * forward
	var speeds [Cars]float64
	for i := range t.cars {
		c := &t.cars[i]
		if c.idm {
			speeds[i] = math.Max(s.carSpeed[i]+h*t.follow(i, time), 0)
		} else {
			speeds[i] = c.speedAt(time + h)
		}
	}
	for i := range t.cars {
		s.gap[i] += h * ((s.carSpeed[i]+speeds[i])/2 - forward)
		s.carSpeed[i] = speeds[i]
	}
	if t.road != nil && t.road.lead != nil {
		s.gap[0] = t.recorded(t.road.lead, time+h) - s.station
		s.carSpeed[0] = t.recorded(t.road.leadSpeed, time+h)
	}
}

// vehicle is what the car does by itself in a substep: its mean speed.
func (t *twin) vehicle(n int) float64 {
	s, time, h := &t.state, float64(n)*0.01, 0.01
	earlier := func(late int) command { return t.commands[(n-late+commandRows)%commandRows] }
	v, bank := s.speed, t.bankAt(s.station)
	u := math.Max(v, 0.1)
	k := earlier(t.steerLate).curvature
	wanted := k * t.wheelbase
	if t.dynamic { // openpilot's curvature factor and roll compensation
		stable := 1 - t.slipFactor*u*u
		wanted = (k - bank*t.slipFactor/stable) * t.wheelbase * stable
	}
	s.steer += clamp(t.steerShare*(wanted-s.steer), -t.steerMost, t.steerMost)
	push := -bank
	if at := time - t.windStart; at >= 0 && at < t.windLength {
		push += t.wind
	}
	if t.dynamic {
		// (I - h·A)·x' = x + h·(B·steer + push), by Cramer's rule.
		a11, a12, a21, a22 := -t.sideSlip/u, -t.sideYaw/u-u, -t.turnSlip/u, -t.turnYaw/u
		x, y := s.slip+h*(t.sideSteer*s.steer+push), s.yawRate+h*t.turnSteer*s.steer
		det := (1-h*a11)*(1-h*a22) - h*h*a12*a21
		slip, yaw := (x*(1-h*a22)+h*a12*y)/det, ((1-h*a11)*y+h*a21*x)/det
		tyres := (slip-s.slip)/h + u*yaw - push
		share := math.Min(1, t.grip/math.Max(math.Abs(tyres), 1e-3))
		yaw = s.yawRate + share*(yaw-s.yawRate)
		s.slip, s.yawRate = s.slip+h*(share*tyres-u*yaw+push), yaw
	} else {
		s.slip, s.yawRate = 0, clamp(v*s.steer/t.wheelbase, -t.grip/u, t.grip/u)
	}
	s.accel = clamp(s.accel+t.accelShare*(earlier(t.accelLate).accel-s.accel), -t.grip, t.grip)
	s.speed = math.Max(v+h*(s.accel-t.gradeAt(s.station)), 0)
	return (v + s.speed) / 2
}

// follow is the intelligent driver model of a car.
func (t *twin) follow(i int, time float64) float64 {
	s, c, v := &t.state, &t.cars[i], t.state.carSpeed[i]
	y, gap, speed := c.lateralAt(time), 1000.0, v
	if d := -s.gap[i] - 2*t.length; d > -t.length && d < gap && t.inWay(y, s.offset) {
		gap, speed = d, s.speed
	}
	for k := range t.cars {
		if d := s.gap[k] - s.gap[i] - t.length; k != i && t.cars[k].present && d > -t.length && d < gap && t.inWay(y, t.cars[k].lateralAt(time)) {
			gap, speed = d, s.carSpeed[k]
		}
	}
	wanted := c.spacing + math.Max(0, v*c.headway+v*(v-speed)/c.root)
	free, near := v/c.desired, wanted/math.Max(gap, 0.1)
	free *= free
	return math.Max(c.accel*(1-free*free-near*near), -9)
}

func (t *twin) measure(accelWas, commandWas float64) {
	s := &t.state
	s.steps++
	time := s.steps * 0.05
	mark := func(x *float64, is bool) {
		if is {
			*x = 1
		}
	}
	size := math.Abs(s.offset)
	which, gap, speed := t.nearest(time)
	ttc := math.Min(math.Max(gap, 0)/math.Max(s.speed-speed, 0.01), 100)
	for i := range t.cars {
		c, d := &t.cars[i], s.gap[i]
		mark(&s.collided, c.present && d < 0 && d > -2*t.length && math.Abs(s.offset-c.lateralAt(time)) < t.width)
	}
	mark(&s.leftLane, size > (t.laneWidth-t.width)/2)
	mark(&s.tookOver, size > t.laneWidth/2 || ttc < 0.8)
	mark(&s.notFinite, !(size < 20))
	s.offsetSquared += size * size
	s.offsetLargest = math.Max(s.offsetLargest, size)
	if size > 0.25 {
		s.lastOutside = time
	}
	s.leastTTC = math.Min(s.leastTTC, ttc)
	if which >= 0 {
		s.leastHeadway = math.Min(s.leastHeadway, math.Max(gap, 0)/math.Max(s.speed, 0.1))
	}
	if t.road != nil && t.road.speed != nil {
		e := s.speed - t.cruiseAt(time)
		s.speedErrorSquared += e * e
	}
	t.comfort(accelWas, commandWas)
	if time >= t.duration-0.025 || s.collided > 0 || s.notFinite > 0 {
		s.alive = 0
	}
}

func (t *twin) comfort(accelWas, commandWas float64) {
	s := &t.state
	lateral := s.speed * s.yawRate
	if s.steps > 1 {
		jerk := (lateral - s.lateral) / 0.05
		s.lateralJerkSquared += jerk * jerk
	}
	s.lateral = lateral
	s.lateralLargest = math.Max(s.lateralLargest, math.Abs(lateral))
	s.accelLargest = math.Max(s.accelLargest, s.accel)
	s.brakeLargest = math.Max(s.brakeLargest, -s.accel)
	jerk := (s.accel - accelWas) / 0.05
	s.jerkSquared += jerk * jerk
	s.commandChanges += math.Abs(s.command-commandWas) * s.speed * s.speed
}

// stepAll runs all twins for a step, on so many cores.
func stepAll(twins []*twin, cores int, step func(t *twin, number uint64)) {
	var done sync.WaitGroup
	for c := range cores {
		done.Go(func() {
			for i := c * len(twins) / cores; i < (c+1)*len(twins)/cores; i++ {
				twins[i].state.alive = 1
				step(twins[i], uint64(i))
			}
		})
	}
	done.Wait()
}
