package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// Distribution is what a parameter is drawn from: one of its fields is given.
type Distribution struct {
	Uniform []float64 `json:"uniform,omitempty"` // lowest, highest
	Normal  []float64 `json:"normal,omitempty"`  // mean, standard deviation; cut to what the parameter may be
	Choice  []float64 `json:"choice,omitempty"`  // each as likely
}

// Family is a scenario of which some parameters are drawn anew for each seed.
type Family struct {
	Name   string                  `json:"name"`
	Doc    string                  `json:"doc,omitzero"`
	Values map[string]float64      `json:"set,omitempty"` // of parameters that do not have their default
	Vary   map[string]Distribution `json:"vary,omitempty"`
	Road   *Road                   `json:"road,omitempty"` // of knots; nil: one curve, by parameters
}

// Names reports whether a family sets or draws a parameter.
func (f *Family) Names(param string) bool {
	_, value := f.Values[param]
	_, drawn := f.Vary[param]
	return value || drawn
}

// Families are those that are built in.
var Families = func() []Family {
	uniform := func(low, high float64) Distribution { return Distribution{Uniform: []float64{low, high}} }
	lead := func(more map[string]float64) map[string]float64 {
		all := map[string]float64{"car0_present": 1}
		maps.Copy(all, more)
		return all
	}
	return []Family{
		{
			Name: "curve", Doc: "a curve that begins after 60 m", Values: map[string]float64{"curve_start": 60, "curve_length": 200},
			Vary: map[string]Distribution{"curvature": uniform(-0.004, 0.004), "speed": uniform(12, 27)},
		},
		{
			Name: "offset-recovery", Doc: "beside the centre of the lane, at an angle to it",
			Vary: map[string]Distribution{"offset": uniform(-0.8, 0.8), "heading": uniform(-0.02, 0.02), "speed": uniform(10, 35)},
		},
		{
			Name: "lead-braking", Doc: "the car in front brakes to a stop or nearly so", Values: lead(map[string]float64{"car0_time1": 6}),
			Vary: map[string]Distribution{"car0_gap": uniform(35, 60), "car0_time2": uniform(9, 16), "car0_speed2": uniform(0, 10)},
		},
		{
			Name: "stop-and-go", Doc: "the car in front stops and goes on", Values: lead(map[string]float64{
				"speed": 12, "cruise": 20, "car0_speed0": 12, "car0_time1": 8, "car0_speed1": 0, "car0_time2": 14, "car0_speed2": 0, "car0_speed3": 15,
			}),
			Vary: map[string]Distribution{"car0_gap": uniform(20, 35), "car0_time3": uniform(20, 28)},
		},
		{
			Name: "cut-in", Doc: "a slower car changes into the lane", Values: lead(map[string]float64{"car0_lateral": 3.6}),
			Vary: map[string]Distribution{
				"car0_gap": uniform(15, 40), "car0_change_start": uniform(0, 1.5), "car0_change_length": uniform(1.5, 3), "car0_speed0": uniform(20, 24),
			},
		},
		{
			Name: "cut-out", Doc: "the car in front changes lanes, and behind it another one is slow", Values: lead(map[string]float64{
				"car0_lateral_end": 3.6, "car1_present": 1,
			}),
			Vary: map[string]Distribution{
				"car0_change_start": uniform(1, 4), "car0_gap": uniform(30, 40), "car1_gap": uniform(100, 140), "car1_speed0": uniform(8, 15),
			},
		},
		{
			Name: "merge", Doc: "a car that follows the intelligent driver model comes into the lane in front, one into the lane behind",
			Values: lead(map[string]float64{"car0_lateral": 3.6, "car0_idm": 1, "car1_present": 1, "car1_idm": 1, "car1_lateral": 3.6}),
			Vary: map[string]Distribution{
				"car0_gap": uniform(20, 40), "car1_gap": uniform(-60, -30), "car0_change_start": uniform(1, 5), "car1_change_start": uniform(1, 5),
			},
		},
		{
			Name: "crosswind", Doc: "a gust from the side", Values: map[string]float64{"wind_start": 3},
			Vary: map[string]Distribution{"wind": uniform(-1.5, 1.5), "wind_length": uniform(0.5, 3), "speed": uniform(20, 35)},
		},
		{
			Name: "low-friction", Doc: "a curve on a wet or icy road", Values: map[string]float64{"curve_start": 60, "curve_length": 150},
			Vary: map[string]Distribution{"friction": uniform(0.15, 0.5), "curvature": uniform(-0.003, 0.003), "speed": uniform(12, 22)},
		},
		{
			Name: "latency", Doc: "a curve, seen late", Values: map[string]float64{"curve_start": 60, "curve_length": 200},
			Vary: map[string]Distribution{
				"latency": {Choice: []float64{0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35}}, "curvature": uniform(-0.005, 0.005), "offset": uniform(-0.3, 0.3),
			},
		},
		{
			Name: "sensor-dropout", Doc: "a curve, with frames that are lost and noise", Values: map[string]float64{
				"curve_start": 60, "curve_length": 200, "noise_offset": 0.05, "noise_heading": 0.003,
			},
			Vary: map[string]Distribution{"drop": uniform(0, 0.7), "curvature": uniform(-0.005, 0.005)},
		},
	}
}()

// FamilyOf is the built-in family of a name, of tier planner.
func FamilyOf(name string) (*Family, error) { return Planner.FamilyOf(name) }

// FamilyOf is the tier's built-in family of a name.
func (t Tier) FamilyOf(name string) (*Family, error) {
	var names []string
	for _, f := range t.Families() {
		if f.Name == name {
			return &f, nil
		}
		names = append(names, f.Name)
	}
	for _, other := range []Tier{Planner, Controls} {
		if slices.ContainsFunc(other.Families(), func(f Family) bool { return f.Name == name }) {
			return nil, fmt.Errorf("family %q is of tier %v, and this one is %v: run it in its own", name, other, t)
		}
	}
	return nil, fmt.Errorf("no family %q; %s", name, hint(name, names))
}

// Draw is loop k of a seed: what is drawn depends on the seed, the family's name and k alone, and so does its noise in a
// run. Where neither Values nor Vary says otherwise, points of a car's speed profile have the speed of
// the point before, the first one that of the own car, and so has the speed that the driver set; on a road with a
// record, that begins with the recorded speed, and the scenario ends with the record.
func (f *Family) Draw(seed uint64, k int) (Scenario, error) {
	s := Default(f.Name)
	if err := f.check(); err != nil {
		return s, err
	}
	s.Stream, s.Road = stream(f.Name, k), f.Road
	f.record(&s)
	for i, p := range Params {
		if d, ok := f.Vary[p.Name]; ok {
			w := philox([4]uint32{uint32(i), uint32(k), uint32(uint64(k) >> 32), uint32(s.Stream >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
			s.Values[i] = d.draw(w, &p)
		} else if x, ok := f.Values[p.Name]; ok {
			s.Values[i] = x
		} else if c, point, ok := profilePoint(p.Name); ok && point > 0 {
			s.Values[i] = s.Values[paramRow(car(c, "speed"+digit(point-1)))]
		} else if ok {
			s.Values[i] = s.Get("speed")
		}
	}
	if !f.Names("cruise") {
		s.Values[paramRow("cruise")] = s.Get("speed")
	}
	return s, s.check()
}

// check says what of a family cannot be drawn.
func (f *Family) check() error {
	if f.Road != nil {
		if err := f.Road.check(); err != nil {
			return fmt.Errorf("family %q: road: %w", f.Name, err)
		}
	}
	if err := f.checkRoad(); err != nil {
		return err
	}
	for name := range f.Values {
		if _, ok := paramIndex[name]; !ok {
			return fmt.Errorf("family %q: no parameter %q; %s", f.Name, name, hint(name, paramNames))
		}
	}
	for name, d := range f.Vary {
		i, ok := paramIndex[name]
		if !ok {
			return fmt.Errorf("family %q: no parameter %q; %s", f.Name, name, hint(name, paramNames))
		}
		if err := d.check(&Params[i]); err != nil {
			return fmt.Errorf("family %q: %w", f.Name, err)
		}
	}
	return nil
}

// checkProfiles finds a point of a car's speed profile that may not come after the previous one. Points drawn from
// a normal distribution are checked when they are drawn.
func (f *Family) checkProfiles() (param string, err error) {
	for c := range Cars {
		for k := 1; k < knots; k++ {
			before, at := car(c, "time"+digit(k-1)), car(c, "time"+digit(k))
			_, last := f.span(before)
			first, _ := f.span(at)
			if first > last || f.Vary[before].Normal != nil || f.Vary[at].Normal != nil {
				continue
			}
			if param = at; !f.Names(at) {
				param = before
			}
			return param, fmt.Errorf("%s can be %v where %s is %v: points of a speed profile must follow each other",
				before, last, at, first)
		}
	}
	return "", nil
}

// span are the least and the largest value that a parameter can have.
func (f *Family) span(param string) (least, most float64) {
	values := slices.Concat(f.Vary[param].Uniform, f.Vary[param].Choice)
	if x, ok := f.Values[param]; ok {
		values = append(values, x)
	}
	if len(values) == 0 {
		values = append(values, Params[paramIndex[param]].Default)
	}
	return slices.Min(values), slices.Max(values)
}

// profilePoint says whether a parameter is a speed of a car's profile.
func profilePoint(name string) (c, point int, ok bool) {
	_, err := fmt.Sscanf(name, "car%d_speed%d", &c, &point)
	return c, point, err == nil
}

func (d *Distribution) draw(w [4]uint32, p *Param) float64 {
	u := uniform(w[0])
	switch {
	case d.Uniform != nil:
		return d.Uniform[0] + float64(u*(d.Uniform[1]-d.Uniform[0]))
	case d.Normal != nil:
		z := math.Sqrt(-2*ir.Log(u)) * ir.Cos(float64(2*math.Pi*uniform(w[1])))
		return min(max(d.Normal[0]+float64(z*d.Normal[1]), p.Low), p.High)
	}
	return d.Choice[int(u*float64(len(d.Choice)))]
}

// check says what of a distribution cannot be drawn from.
func (d *Distribution) check(p *Param) error {
	given := 0
	for _, list := range [][]float64{d.Uniform, d.Normal, d.Choice} {
		if list != nil {
			given++
		}
	}
	switch {
	case given != 1:
		return fmt.Errorf("%s: want one of uniform, normal and choice", p.Name)
	case d.Uniform != nil && len(d.Uniform) != 2:
		return fmt.Errorf("%s: uniform has %d numbers, want the lowest and the highest", p.Name, len(d.Uniform))
	case d.Uniform != nil && !(d.Uniform[0] <= d.Uniform[1]):
		return fmt.Errorf("%s: uniform is upside down: %v is above %v", p.Name, d.Uniform[0], d.Uniform[1])
	case d.Normal != nil && len(d.Normal) != 2:
		return fmt.Errorf("%s: normal has %d numbers, want mean and standard deviation", p.Name, len(d.Normal))
	case d.Normal != nil && !(d.Normal[1] >= 0):
		return fmt.Errorf("%s: the standard deviation is %v", p.Name, d.Normal[1])
	case p.multiples() != nil && d.Choice == nil:
		return fmt.Errorf("%s: it has values %v alone: want choice", p.Name, p.multiples())
	case d.Choice != nil && len(d.Choice) == 0:
		return fmt.Errorf("%s: there is no choice", p.Name)
	}
	for _, x := range slices.Concat(d.Uniform, d.Choice) {
		if err := p.check(x); err != nil {
			return err
		}
	}
	if d.Normal != nil {
		return p.check(d.Normal[0])
	}
	return nil
}

// hint says which name was meant instead of an unknown one, or where none is near, which there are.
func hint(name string, names []string) string {
	best, least := "", math.MaxInt
	for _, n := range names {
		if d := edits(strings.ToLower(name), n); d < least {
			best, least = n, d
		}
	}
	switch {
	case least <= max(len(name)/3, 1) || len(name) > 2 && strings.HasPrefix(best, name):
		return fmt.Sprintf("the nearest is %q", best)
	case len(names) <= 12:
		return "there are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("spark-sim list shows the %d that there are", len(names))
}
