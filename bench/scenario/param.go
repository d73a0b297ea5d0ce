package scenario

import (
	"fmt"
	"math"
)

// Param is a number that a scenario has: of the vehicle, the road, other cars, sensors or the driver.
type Param struct {
	Name      string
	Unit      string
	Default   float64
	Low, High float64 // what it may be
	Doc       string
}

// Cars is the number of other cars in a scenario. Car 0 is the leading car at the start; car 1 follows car 0 or
// drives in another lane.
const Cars = 2

// knots is how many points the speed profile of a car has.
const knots = 4

// asks is how many things one after the other a scenario asks for in tier controls: as many as openpilot's longest
// maneuver.
const asks = 6

// never is a time after the end of every scenario.
const never = 1e6

// Params lists what a scenario may say, in the order of the table that the step reads.
var Params = params()

func params() []Param {
	list := []Param{
		{"duration", "s", 30, 0.05, 600, "how long the scenario lasts, rounded to 50 ms"},

		{"mass", "kg", 1500, 300, 5000, "mass of the car with its driver"},
		{"wheelbase", "m", 2.7, 1.5, 6, "distance between the axles"},
		{"front_share", "", 0.44, 0.2, 0.8, "distance of the centre of gravity from the front axle, as a share of the wheelbase"},
		{"inertia", "kg m²", 2500, 200, 20000, "rotational inertia about the vertical axis"},
		{"stiffness_front", "N/rad", 110000, 20000, 400000, "cornering stiffness of the front tyres"},
		{"stiffness_rear", "N/rad", 130000, 20000, 400000, "cornering stiffness of the rear tyres"},
		{"steer_ratio", "", 15, 8, 25, "angle of the steering wheel for one of the road wheels"},
		{"steer_rate", "rad/s", 7, 0.1, 30, "highest rate of the steering wheel"},
		{"steer_delay", "s", 0.1, 0, 0.5, "from a steering command to its first effect, rounded to 10 ms"},
		{"steer_lag", "s", 0.1, 0, 2, "time constant of the steering"},
		{"accel_delay", "s", 0.15, 0, 0.5, "from an acceleration command to its first effect, rounded to 10 ms"},
		{"accel_lag", "s", 0.25, 0, 2, "time constant of engine and brakes"},
		{"accel_min", "m/s²", -3.5, -12, 0, "hardest braking that commands can ask for"},
		{"accel_max", "m/s²", 2, 0, 6, "hardest acceleration that commands can ask for"},
		{"dynamic", "", 1, 0, 1, "1: tyres slip (dynamic bicycle); 0: they do not (kinematic bicycle)"},
		{"width", "m", 1.85, 1, 3, "width of every car"},
		{"length", "m", 4.7, 2, 20, "length of every car"},

		{"speed", "m/s", 25, 0, 60, "at the start"},
		{"cruise", "m/s", 25, 0, 60, "speed that the driver has set"},
		{"offset", "m", 0, -4, 4, "distance from the centre of the lane at the start, left positive"},
		{"heading", "rad", 0, -0.5, 0.5, "angle to the road at the start, left positive"},

		{"lane_width", "m", 3.6, 2.2, 6, ""},
		{"curvature", "1/m", 0, -0.1, 0.1, "of the curve, left positive"},
		{"curve_start", "m", 100, 0, never, "where the curve begins"},
		{"curve_length", "m", never, 0, never, "length of the curve, its ramp out not included"},
		{"curve_ramp", "m", 60, 1, 1000, "length over which curvature grows and falls"},
		{"grade", "", 0, -0.3, 0.3, "slope of the road, uphill positive"},
		{"bank", "rad", 0, -0.2, 0.2, "roll of the road, positive where the left side is higher"},
		{"friction", "", 0.9, 0.05, 1.5, "coefficient of friction between tyres and road"},
		{"wind", "m/s²", 0, -4, 4, "lateral acceleration by a gust, left positive"},
		{"wind_start", "s", never, 0, never, "when the gust begins"},
		{"wind_length", "s", 1, 0.05, never, "how long it lasts"},
	}
	for i := range Cars {
		car := func(name, unit string, value, low, high float64, doc string) {
			list = append(list, Param{fmt.Sprintf("car%d_%s", i, name), unit, value, low, high, doc})
		}
		car("present", "", 0, 0, 1, "1: the car is there")
		car("gap", "m", []float64{40, 80}[i], -200, 500, "from the front of the own car to its rear at the start; negative: behind")
		car("lateral", "m", 0, -12, 12, "distance from the centre of the lane at the start, left positive")
		car("lateral_end", "m", 0, -12, 12, "the same after its change of lanes")
		car("change_start", "s", never, 0, never, "when its change of lanes begins")
		car("change_length", "s", 3, 0.1, 60, "how long that takes")
		for k := range knots {
			car(fmt.Sprintf("time%d", k), "s", float64(k)*never/10, 0, never, "time of a point of its speed profile; later than the point before")
			car(fmt.Sprintf("speed%d", k), "m/s", 25, 0, 60, "speed at that time; linear between points, constant outside")
		}
		car("idm", "", 0, 0, 1, "1: it follows what is in front of it (intelligent driver model), with its speed at time0 as desired speed")
		car("probability", "", 1, 0, 1, "with which it is seen")
		car("headway", "s", 1.5, 0.3, 5, "desired time gap, of the intelligent driver model")
		car("spacing", "m", 2, 0.1, 20, "gap at standstill")
		car("accel", "m/s²", 1.5, 0.1, 6, "highest acceleration")
		car("brake", "m/s²", 2, 0.1, 9, "comfortable braking")
	}
	list = append(list, []Param{
		{"noise_offset", "m", 0, 0, 2, "standard deviation of what is seen of the distance from the centre of the lane"},
		{"noise_heading", "rad", 0, 0, 0.2, "of the angle to the road"},
		{"noise_gap", "m", 0, 0, 20, "of the gap to the car in front"},
		{"noise_speed", "m/s", 0, 0, 5, "of the speed of the car in front"},
		{"calibration_yaw", "rad", 0, -0.1, 0.1, "error of the camera's mounting: added to the angle to the road"},
		{"latency", "s", 0, 0, 0.35, "from what is seen to when a controller has it, in steps of 50 ms"},
		{"drop", "", 0, 0, 1, "share of frames that are dropped: the controller has the last one again"},
		{"takeover_start", "s", never, 0, never, "when the driver takes over and steers to the centre of the lane"},
		{"takeover_length", "s", 1, 0.05, never, "how long the driver steers"},
	}...)
	for k := range asks {
		ask := func(name, unit string, value, low, high float64, doc string) {
			list = append(list, Param{"ask_" + name + digit(k), unit, value, low, high, doc})
		}
		ask("time", "s", never, 0, never, "tier controls: when it begins to ask for what follows, instead of the one before")
		ask("accel", "m/s²", 0, -12, 6, "tier controls: acceleration that is asked for")
		ask("curvature", "1/m", 0, -0.1, 0.1, "tier controls: curvature that is asked for, left positive")
	}
	return list
}

// paramSteps are the numbers of which values of a parameter are multiples: 1 of a flag, which is 0 or 1.
var paramSteps = func() map[string]float64 {
	steps := map[string]float64{"dynamic": 1, "latency": Step}
	for i := range Cars {
		steps[car(i, "present")], steps[car(i, "idm")] = 1, 1
	}
	return steps
}()

var paramNames = func() (names []string) {
	for _, p := range Params {
		names = append(names, p.Name)
	}
	return names
}()

var paramIndex = func() map[string]int {
	index := map[string]int{}
	for i, p := range Params {
		index[p.Name] = i
	}
	return index
}()

// Scenario is a row of Params: what a loop runs.
type Scenario struct {
	Name   string
	Values []float64 // one for each of Params
	Road   *Road     // given by knots; nil: that of the parameters, with one curve
	Stream uint64    // number of its first loop, which with the seed decides its noise; 0: by its place in a batch
}

// Default is the scenario in which every parameter has its default: an empty straight road.
func Default(name string) Scenario {
	s := Scenario{Name: name}
	for _, p := range Params {
		s.Values = append(s.Values, p.Default)
	}
	return s
}

// With returns the scenario with one parameter set. An unknown name, or a value that the parameter cannot have, is an
// error.
func (s Scenario) With(name string, value float64) (Scenario, error) {
	i, ok := paramIndex[name]
	if !ok {
		return s, fmt.Errorf("scenario %q: no parameter %q; %s", s.Name, name, hint(name, paramNames))
	}
	if err := Params[i].check(value); err != nil {
		return s, fmt.Errorf("scenario %q: %w", s.Name, err)
	}
	s.Values = append([]float64{}, s.Values...)
	s.Values[i] = value
	return s, nil
}

// Get is the value of a parameter, which must exist.
func (s Scenario) Get(name string) float64 { return s.Values[paramIndex[name]] }

func (p *Param) check(value float64) error {
	if math.IsNaN(value) || value < p.Low || value > p.High {
		return fmt.Errorf("%s is %v, want %v to %v %s", p.Name, value, p.Low, p.High, p.Unit)
	}
	step, ok := paramSteps[p.Name]
	switch {
	case !ok || math.Abs(value-float64(math.Round(value/step)*step)) <= 1e-9:
		return nil
	case step == 1:
		return fmt.Errorf("%s is %v, want 0 or 1", p.Name, value)
	}
	return fmt.Errorf("%s is %v, want a multiple of %v %s", p.Name, value, step, p.Unit)
}

// multiples are all values of a parameter that has a step; nil of others.
func (p *Param) multiples() (list []float64) {
	step, ok := paramSteps[p.Name]
	for k := 0.0; ok && k <= math.Round(p.High/step); k++ {
		list = append(list, math.Round(k*step*1e6)/1e6)
	}
	return list
}

// check says what of a scenario no step can run.
func (s Scenario) check() error {
	if len(s.Values) != len(Params) {
		return fmt.Errorf("scenario %q has %d values, want one for each of %d parameters", s.Name, len(s.Values), len(Params))
	}
	for i := range Params {
		if err := Params[i].check(s.Values[i]); err != nil {
			return fmt.Errorf("scenario %q: %w", s.Name, err)
		}
	}
	if err := s.checkRoad(); err != nil {
		return fmt.Errorf("scenario %q: %w", s.Name, err)
	}
	for car := range Cars {
		for k := 1; k < knots; k++ {
			before, at := fmt.Sprintf("car%d_time%d", car, k-1), fmt.Sprintf("car%d_time%d", car, k)
			if s.Get(at) <= s.Get(before) {
				return fmt.Errorf("scenario %q: %s is %v and %s is %v: points of a speed profile must follow each other", s.Name, before, s.Get(before), at, s.Get(at))
			}
		}
	}
	return nil
}

// edits is the least number of letters to insert, delete or replace (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
