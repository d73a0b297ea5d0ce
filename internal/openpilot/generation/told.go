package generation

import "slices"

// Signal is what modeld knows of the car.
type Signal int

// Signals.
const (
	LeftHandDrive     Signal = iota // 1: traffic keeps right, else 0
	RightHandDrive                  // the opposite
	Speed                           // m/s
	ForwardSpeed                    // likewise, not below 0
	LateralDelay                    // of the actuator, s
	LongitudinalDelay               // likewise
)

// Term is a signal and what modeld adds to it.
type Term struct {
	Signal Signal
	Plus   float64
}

// Vector is an input of a few numbers.
type Vector struct {
	Name  string
	Terms []Term
}

// Car has the signals' values.
type Car struct {
	RightHandDrive                         bool
	Speed, LateralDelay, LongitudinalDelay float64
}

// Values are the numbers of the input.
func (v Vector) Values(c Car) []float64 {
	right := 0.
	if c.RightHandDrive {
		right = 1
	}
	signals := [...]float64{LeftHandDrive: 1 - right, RightHandDrive: right,
		Speed: c.Speed, ForwardSpeed: max(c.Speed, 0),
		LateralDelay: c.LateralDelay, LongitudinalDelay: c.LongitudinalDelay}
	out := make([]float64, len(v.Terms))
	for i, t := range v.Terms {
		out[i] = signals[t.Signal] + t.Plus
	}
	return out
}

// Vectors are what models of the generation are told: its own and, of inputs that it does not have, those of
// others.
func (r *Row) Vectors() []Vector {
	out := slices.Clone(r.Told)
	for _, other := range rows {
		for _, v := range other.Told {
			if !slices.ContainsFunc(out, func(w Vector) bool { return w.Name == v.Name }) {
				out = append(out, v)
			}
		}
	}
	return out
}

// Vector is the one of a name.
func (r *Row) Vector(name string) (v Vector, ok bool) {
	list := r.Vectors()
	if i := slices.IndexFunc(list, func(v Vector) bool { return v.Name == name }); i >= 0 {
		return list[i], true
	}
	return v, false
}

// Told is the vector of a name that a generation has.
func Told(name string) (Vector, bool) { return new(Row).Vector(name) }

// VectorInputs are the names of all generations' vectors.
func VectorInputs() (names []string) {
	for _, v := range new(Row).Vectors() {
		names = append(names, v.Name)
	}
	return names
}

// Commands says how modeld makes commands of what the model says (get_action_from_model in openpilot's modeld.py,
// and drive_helpers.py). A model with an action output has its commands from it.
type Commands struct {
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

// FramePeriod is the time from frame to frame, in seconds.
const FramePeriod = 0.05
