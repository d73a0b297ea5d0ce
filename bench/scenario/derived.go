package scenario

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// derivation is a number that a step reads in addition to the parameters, from which it is computed once, in
// float64.
type derivation struct {
	name string
	of   func(p func(name string) float64) float64
}

var derived = func() []derivation {
	square := func(x float64) float64 { return x * x }
	axleDistance := func(p func(string) float64) float64 { return p("front_share") * p("wheelbase") }
	rear := func(p func(string) float64) float64 { return (1 - p("front_share")) * p("wheelbase") }
	moment := func(p func(string) float64) float64 {
		return float64(p("stiffness_front")*axleDistance(p)) - float64(p("stiffness_rear")*rear(p))
	}
	lag := func(name string) func(p func(string) float64) float64 { // how far a first-order system goes in a substep
		return func(p func(string) float64) float64 { return 1 - ir.Exp(-dt/max(p(name), 1e-4)) }
	}
	rounded := func(name string, unit float64) func(p func(string) float64) float64 {
		return func(p func(string) float64) float64 { return math.Round(p(name) / unit) }
	}
	// A delay is whole steps and, beyond them, less than Substeps substeps.
	whole := func(name string) func(p func(string) float64) float64 {
		return func(p func(string) float64) float64 { return math.Floor(rounded(name, dt)(p) / Substeps) }
	}
	rest := func(name string) func(p func(string) float64) float64 {
		return func(p func(string) float64) float64 { return math.Mod(rounded(name, dt)(p), Substeps) }
	}
	list := []derivation{
		{"slip_factor", func(p func(string) float64) float64 {
			return p("mass") * moment(p) / (square(p("wheelbase")) * p("stiffness_front") * p("stiffness_rear"))
		}},
		// The dynamic bicycle: accelerations across by slip, yaw and steering, and those of the yaw rate.
		{"side_slip", func(p func(string) float64) float64 { return (p("stiffness_front") + p("stiffness_rear")) / p("mass") }},
		{"side_yaw", func(p func(string) float64) float64 { return moment(p) / p("mass") }},
		{"side_steer", func(p func(string) float64) float64 { return p("stiffness_front") / p("mass") }},
		{"turn_slip", func(p func(string) float64) float64 { return moment(p) / p("inertia") }},
		{"turn_yaw", func(p func(string) float64) float64 {
			return (float64(p("stiffness_front")*square(axleDistance(p))) + float64(p("stiffness_rear")*square(rear(p)))) / p("inertia")
		}},
		{"turn_steer", func(p func(string) float64) float64 { return p("stiffness_front") * axleDistance(p) / p("inertia") }},
		{"grip", func(p func(string) float64) float64 { return gravity * p("friction") }},
		{"side_gravity", func(p func(string) float64) float64 { return gravity * p("bank") }},
		{"climb", func(p func(string) float64) float64 { return gravity * p("grade") }},
		{"steer_step", func(p func(string) float64) float64 { return dt * p("steer_rate") / p("steer_ratio") }},
		{"steer_share", lag("steer_lag")},
		{"accel_share", lag("accel_lag")},
		{"steer_steps", whole("steer_delay")},
		{"steer_rest", rest("steer_delay")},
		{"accel_steps", whole("accel_delay")},
		{"accel_rest", rest("accel_delay")},
		{"seen_late", rounded("latency", Step)},
		{"half_lane", func(p func(string) float64) float64 { return p("lane_width") / 2 }},
		{"curve_slope", func(p func(string) float64) float64 { return 1 / p("curve_ramp") }},
		{"curve_end", func(p func(string) float64) float64 { return p("curve_start") + p("curve_ramp") + p("curve_length") }},
	}
	for i := range Cars {
		list = append(list, derivation{car(i, "root"), func(p func(string) float64) float64 {
			return 1 / (2 * math.Sqrt(p(car(i, "accel"))*p(car(i, "brake"))))
		}})
		for k := 1; k < knots; k++ {
			of := func(p func(string) float64, what string) float64 {
				return p(car(i, what+digit(k))) - p(car(i, what+digit(k-1)))
			}
			list = append(list, derivation{car(i, "slope"+digit(k)), func(p func(string) float64) float64 { return of(p, "speed") / of(p, "time") }})
		}
	}
	return list
}()

// tableRows is how many rows the table of parameters has.
var tableRows = len(Params) + len(derived) + len(roadRows)

// table are the numbers of a scenario that a step reads.
func (s Scenario) table() []float64 {
	out := append([]float64{}, s.Values...)
	for _, d := range derived {
		out = append(out, d.of(s.Get))
	}
	for _, r := range roadRows {
		out = append(out, r.of(s.Road))
	}
	return out
}

// paramRow is the row of a parameter, or of what is derived from them, which must exist.
func paramRow(name string) int {
	if i, ok := paramIndex[name]; ok {
		return i
	}
	if i := slices.IndexFunc(derived, func(d derivation) bool { return d.name == name }); i >= 0 {
		return len(Params) + i
	}
	for i, r := range roadRows {
		if r.name == name {
			return len(Params) + len(derived) + i
		}
	}
	panic("scenario: no parameter " + name)
}
