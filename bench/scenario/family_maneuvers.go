package scenario

import (
	"maps"
	"strings"
)

const mph = 0.44704 // m/s

// settle is how long a maneuver waits before it asks for anything.
const settle = 1.0 // s

// ControlFamilies are openpilot's longitudinal maneuvers (tools/longitudinal_maneuvers), of vehicles whose delay and lag
// are drawn, and steps of curvature like them: of tier controls.
var ControlFamilies = func() []Family {
	// maneuver asks for accelerations, or curvatures, for a number of seconds each, and nothing after.
	maneuver := func(name, doc, what string, speed float64, asked ...[2]float64) Family {
		f := Family{Name: name, Doc: doc, Values: map[string]float64{"speed": speed}, Vary: map[string]Distribution{
			"accel_delay": {Uniform: []float64{0.05, 0.4}}, "accel_lag": {Uniform: []float64{0.1, 0.6}},
			"steer_delay": {Uniform: []float64{0.05, 0.3}}, "steer_lag": {Uniform: []float64{0.05, 0.3}},
		}}
		at := settle
		for k, a := range asked {
			f.Values["ask_time"+digit(k)], f.Values["ask_"+what+digit(k)] = at, a[0]
			at += a[1]
		}
		if len(asked) < asks {
			f.Values["ask_time"+digit(len(asked))] = at
		}
		f.Values["duration"] = at + 2
		if strings.Contains(name, "4") { // the default car neither brakes nor accelerates as hard
			f.Values["accel_min"], f.Values["accel_max"] = -4, 4
		}
		return f
	}
	creep := [][2]float64{{1, 3}, {-1, 3}, {1, 3}, {-1, 3}, {1, 3}, {-1, 3}}
	return []Family{
		maneuver("come-to-stop", "0.5 m/s² of braking from 5 m/s, for 12 s", "accel", 5, [2]float64{-0.5, 12}),
		maneuver("start-from-stop", "1.5 m/s² from standstill, for 5 s", "accel", 0, [2]float64{1.5, 5}),
		maneuver("creep", "1 m/s² and -1 m/s² in turn from standstill, 3 s each", "accel", 0, creep...),
		maneuver("brake-1", "1 m/s² of braking from 20 mph, for 3 s", "accel", 20*mph, [2]float64{-1, 3}),
		maneuver("brake-4", "4 m/s² of braking from 20 mph, for 3 s", "accel", 20*mph, [2]float64{-4, 3}),
		maneuver("gas-1", "1 m/s² from 20 mph, for 3 s", "accel", 20*mph, [2]float64{1, 3}),
		maneuver("gas-4", "4 m/s² from 20 mph, for 3 s", "accel", 20*mph, [2]float64{4, 3}),
		maneuver("steer", "a curvature of 1 m/s² across at 20 m/s to the left, then to the right, 2 s each", "curvature", 20,
			[2]float64{0.0025, 2}, [2]float64{-0.0025, 2}),
	}
}()

// ManeuverFamilies are the situations of openpilot's test of its longitudinal planner
// (selfdrive/test/longitudinal_maneuvers), as far as four points of speed describe them, of vehicles whose delay and lag are
// drawn: of tier planner.
var ManeuverFamilies = func() []Family {
	maneuver := func(name, doc string, values map[string]float64, vary map[string]Distribution) Family {
		f := Family{Name: name, Doc: doc, Values: values, Vary: map[string]Distribution{
			"accel_delay": {Uniform: []float64{0.05, 0.4}}, "accel_lag": {Uniform: []float64{0.1, 0.6}},
		}}
		maps.Copy(f.Vary, vary)
		for name := range vary {
			delete(f.Values, name)
		}
		return f
	}
	// lead is a leading car with points of its speed: m/s, s.
	lead := func(speed, gap, cruise, duration float64, points ...[2]float64) map[string]float64 {
		values := map[string]float64{
			"speed": speed, "cruise": cruise, "duration": duration, "car0_present": 1, "car0_gap": gap,
			"car0_speed0": points[0][0],
		}
		for k, p := range points {
			values["car0_speed"+digit(k)], values["car0_time"+digit(k)] = p[0], p[1]
		}
		return values
	}
	decelerations := Distribution{Choice: []float64{15 + 20./1, 15 + 20./2, 15 + 20./3, 15 + 20./5}}
	return []Family{
		maneuver("approach-slower", "cruising at 60 mph, 100 m behind a car at 40 mph",
			lead(60*mph, 100, 60*mph, 30, [2]float64{40 * mph, 0}), nil),
		maneuver("approach-stopped", "cruising at 40 mph, 150 m behind a car that stands",
			lead(40*mph, 150, 40*mph, 30, [2]float64{0, 0}), nil),
		maneuver("pull-up", "from standstill, 100 m behind a car that stands", lead(0, 100, 15, 30, [2]float64{0, 0}), nil),
		maneuver("lead-decelerates", "following at 20 m/s; after 15 s the car in front brakes to a stop by 1, 2, 3 or 5 m/s²",
			lead(20, 35, 20, 50, [2]float64{20, 0}, [2]float64{20, 15}, [2]float64{0, 35}),
			map[string]Distribution{"car0_time2": decelerations}),
		maneuver("lead-waves", "following at 30 m/s a car that brakes and accelerates by 0.5 m/s²",
			lead(30, 49, 35, 25, [2]float64{30, 6}, [2]float64{29, 8}, [2]float64{31, 12}, [2]float64{29, 16}), nil),
		maneuver("lead-stops", "following at 10 m/s a car that stops by 1 m/s² and goes on by 1 m/s²",
			lead(10, 20, 15, 50, [2]float64{10, 10}, [2]float64{0, 20}, [2]float64{0, 30}, [2]float64{10, 40}), nil),
		maneuver("green-light", "standing 4 m behind a car that goes off by 1.5 m/s² after 10 s",
			lead(0, 4, 25, 30, [2]float64{0, 10}, [2]float64{45, 40}), nil),
		maneuver("lead-falls-back", "accelerating from 10 m/s, 10 m behind a car that slows from 20 m/s to 10 or to 0 in 10 s",
			lead(10, 10, 20, 30, [2]float64{20, 1}, [2]float64{10, 11}),
			map[string]Distribution{"car0_speed1": {Choice: []float64{10, 0}}}),
		maneuver("lead-appears", "following at 20 m/s a car that is seen in part of the frames",
			lead(20, 60, 20, 30, [2]float64{20, 0}, [2]float64{20, 5}, [2]float64{8, 15}),
			map[string]Distribution{"car0_probability": {Uniform: []float64{0.6, 1}}}),
		maneuver("hill", "cruising at 20 mph, up or down a slope of 10 %",
			map[string]float64{"speed": 20 * mph, "duration": 25},
			map[string]Distribution{"grade": {Choice: []float64{-0.1, 0.1}}}),
	}
}()
