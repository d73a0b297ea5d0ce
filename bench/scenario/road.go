package scenario

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/runtime"
)

// MaxKnots is how many knots a Road has at most, and how many samples what was recorded on it.
const MaxKnots = 1024

// maxRoadBytes is how much memory the roads of a batch may take.
const maxRoadBytes = 1 << 30

// Road is a road given by knots, and what was recorded on it. Values are linear between knots and constant before
// the first and after the last. Knots are evenly spaced, so that a kernel finds them by a product.
//
// The car's station is the distance along the road, its offset and heading are those to the road: on the road of a
// recorded drive, they are the distance along the record and the errors to it.
type Road struct {
	Spacing   float64   `json:"spacing"`         // m, between knots
	Curvature []float64 `json:"curvature"`       // 1/m, left positive: [knots]
	Grade     []float64 `json:"grade,omitempty"` // slope, uphill positive: [knots]; nil: level
	Bank      []float64 `json:"bank,omitempty"`  // rad, positive where the left side is higher: [knots]; nil: level

	// Speed, in m/s, is what the driver had, and becomes the speed that the driver has set. Without an Interval it is
	// that at the knots; with one in s, that at so many samples from the start on.
	Speed    []float64 `json:"speed,omitempty"`
	Interval float64   `json:"interval,omitempty"`

	// Lead is where on the road the rear of car 0 was at each sample of Speed, in m, and LeadSpeed its speed in m/s.
	// Nil: car 0 is as parameters say. A car that is not seen is at least 1000 m away.
	Lead      []float64 `json:"lead,omitempty"`
	LeadSpeed []float64 `json:"lead_speed,omitempty"`
}

// roadColumn is a number that a road has at each knot or sample.
type roadColumn struct {
	Param
	Recorded bool // of each sample, if the road has an Interval
	of       func(r *Road) *[]float64
}

// roadColumns are those of the table that a step reads.
var roadColumns = func() []roadColumn {
	like := func(name, as, doc string) Param {
		p := Params[paramIndex[as]]
		return Param{Name: name, Unit: p.Unit, Low: p.Low, High: p.High, Doc: doc}
	}
	return []roadColumn{
		{like("curvature", "curvature", "left positive"), false, func(r *Road) *[]float64 { return &r.Curvature }},
		{like("grade", "grade", "slope, uphill positive"), false, func(r *Road) *[]float64 { return &r.Grade }},
		{like("bank", "bank", "roll, positive where the left side is higher"), false,
			func(r *Road) *[]float64 { return &r.Bank }},
		{like("speed", "cruise", "what the driver had"), true, func(r *Road) *[]float64 { return &r.Speed }},
		{Param{Name: "lead", Unit: "m", Low: -1e5, High: 1e5, Doc: "where on the road the rear of car 0 was"}, true,
			func(r *Road) *[]float64 { return &r.Lead }},
		{like("lead_speed", "cruise", "speed of car 0"), true, func(r *Road) *[]float64 { return &r.LeadSpeed }},
	}
}()

// Places of roadColumns.
const (
	columnCurvature = iota
	columnGrade
	columnBank
	columnSpeed
	columnLead
	columnLeadSpeed
)

// check says what of a road no step can run.
func (r *Road) check() error {
	knots, samples := len(r.Curvature), len(r.Speed)
	switch {
	case !(r.Spacing >= 1e-3) || r.Spacing > 1e4:
		return fmt.Errorf("spacing is %v m, want 0.001 to 10000", r.Spacing)
	case knots < 2 || knots > MaxKnots:
		return fmt.Errorf("the road has %d knots, want 2 to %d; spread them, or cut it", knots, MaxKnots)
	case r.Interval != 0 && (!(r.Interval >= 1e-3) || r.Interval > never):
		return fmt.Errorf("interval is %v s, want 0.001 or more", r.Interval)
	case r.Interval != 0 && (samples < 2 || samples > MaxKnots):
		return fmt.Errorf("there are %d speeds, want 2 to %d, one every interval; make that longer, or cut them", samples,
			MaxKnots)
	case r.Interval == 0 && r.Lead != nil:
		return fmt.Errorf("there is lead and no interval: say how many seconds are between its samples")
	case (r.Lead == nil) != (r.LeadSpeed == nil):
		return fmt.Errorf("there is one of lead and lead_speed: give both, or none")
	}
	for _, c := range roadColumns {
		list := *c.of(r)
		want := knots
		if c.Recorded && r.Interval != 0 {
			want = samples
		}
		if list != nil && len(list) != want {
			return fmt.Errorf("%s has %d values, want %d, as many as there are knots or samples", c.Name, len(list), want)
		}
		for i, x := range list {
			if err := c.check(x); err != nil {
				return fmt.Errorf("value %d: %w", i, err)
			}
		}
	}
	return nil
}

// checkRoad says what of a scenario's road no step can run.
func (s Scenario) checkRoad() error {
	if s.Road == nil {
		return nil
	}
	if err := s.Road.check(); err != nil {
		return fmt.Errorf("road: %w", err)
	}
	for _, name := range []string{"curvature", "grade", "bank"} {
		if x := s.Get(name); x != 0 {
			return fmt.Errorf("%s is %v and there is a road of knots, which has its own: leave one out", name, x)
		}
	}
	if s.Road.Lead != nil && s.Get("car0_idm") > 0 {
		return fmt.Errorf("car0_idm is %v and the road has a recorded lead: leave one out", s.Get("car0_idm"))
	}
	return nil
}

// start is where car 0 is at the start, and how fast.
type start struct{ gap, speed float64 } // m, m/s

func (s Scenario) car0() start {
	if s.Road != nil && s.Road.Lead != nil {
		return start{s.Road.Lead[0], s.Road.LeadSpeed[0]}
	}
	return start{s.Get("car0_gap"), s.Get("car0_speed0")}
}

// table writes the numbers of a road as a step reads them: [knots, len(roadColumns)].
func (r *Road) table(out []float32) {
	for k, c := range roadColumns {
		for i, x := range *c.of(r) {
			out[i*len(roadColumns)+k] = float32(x)
		}
	}
}

// interpolate is what a list has at a place that is counted in its knots.
func interpolate(list []float64, place float64) float64 {
	if len(list) == 0 {
		return 0
	}
	place = min(max(place, 0), float64(len(list)-1))
	i := min(int(place), len(list)-2)
	return list[i] + float64((place-float64(i))*(list[i+1]-list[i]))
}

// roadRows are the numbers of its road that a step reads in addition to a scenario's parameters; r is nil for a
// scenario without a road.
var roadRows = func() []roadRow {
	type row = roadRow
	list := []row{
		{"road_there", func(r *Road) float64 { return indicator(r != nil) }},
		{"record_there", func(r *Road) float64 { return indicator(r != nil && r.Speed != nil) }},
		{"record_timed", func(r *Road) float64 { return indicator(r != nil && r.Interval != 0) }},
		{"lead_there", func(r *Road) float64 { return indicator(r != nil && r.Lead != nil) }},
	}
	// A grid is that of the knots or that of the samples: their interval, in m or s, and how many follow the
	// first.
	grid := func(name string, of func(r *Road) (each float64, last int)) {
		some := func(r *Road) (float64, int) {
			if r == nil {
				return 1, 1
			}
			return of(r)
		}
		list = append(list,
			row{name + "_each", func(r *Road) float64 { each, _ := some(r); return each }},
			row{name + "_scale", func(r *Road) float64 { each, _ := some(r); return 1 / each }},
			row{name + "_last", func(r *Road) float64 { _, last := some(r); return float64(last) }})
	}
	grid("road", func(r *Road) (float64, int) { return r.Spacing, len(r.Curvature) - 1 })
	grid("record", func(r *Road) (float64, int) {
		if r.Interval == 0 {
			return r.Spacing, len(r.Curvature) - 1
		}
		return r.Interval, len(r.Speed) - 1
	})
	return list
}()

type roadRow struct {
	name string
	of   func(r *Road) float64
}

func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// knotsOf is how many rows the table of a batch has: as many as the longest road needs; 0: no scenario has knots.
func knotsOf(scenarios []Scenario) (knots int) {
	for _, s := range scenarios {
		if s.Road != nil {
			knots = max(knots, len(s.Road.Curvature), len(s.Road.Speed))
		}
	}
	return knots
}

// roadBytes is how much memory the table of a batch takes.
func (d *design) roadBytes() int64 {
	return 4 * int64(d.loops) * int64(d.knots) * int64(len(roadColumns))
}

// checkRoads says why roads of knots cannot be run.
func (d *design) checkRoads(list []Scenario) error {
	if d.knots == 0 {
		return nil
	}
	for _, s := range list {
		switch {
		case s.Road == nil:
		case d.tier == Controls:
			return fmt.Errorf("scenario %q has a road of knots: tier %v has no road, run it in tier %v", s.Name, d.tier, Planner)
		case d.view != nil && d.view.film == nil:
			return fmt.Errorf("scenario %q has a road of knots, which drawn pictures cannot show: run it in tier %v", s.Name,
				Planner)
		}
	}
	if need := d.roadBytes(); need > maxRoadBytes {
		return fmt.Errorf("roads of %d knots for %d loops at once take %d MiB, and %d are allowed: run fewer loops at once",
			d.knots, d.loops, need>>20, maxRoadBytes>>20)
	}
	return nil
}

// roads are the tables of a batch: [loops, knots, len(roadColumns)].
func (d *design) roads(list []Scenario) []byte {
	size := d.knots * len(roadColumns)
	out := make([]float32, len(list)*size)
	for i, s := range list {
		if s.Road != nil {
			s.Road.table(out[i*size : (i+1)*size])
		}
	}
	return runtime.Bytes(out)
}

// place is where in its table each loop is: the knot before, and the share of the way to the next one.
type place struct {
	knot  num
	share num
}

// placed is where on a grid of knots or samples a distance or a time is.
func (w *world) placed(at num, grid string) place {
	each, scale, last := w.p(grid+"_each"), w.p(grid+"_scale"), w.p(grid+"_last")
	at = w.where(w.less(w.c(0), at), at, w.all(0)) // also of a loop that diverged
	at = w.min(at, w.mul(last, each))
	knot := w.min(w.one("Floor", w.mul(at, scale)), w.sub(last, w.c(1)))
	return place{knot, w.mul(w.sub(at, w.mul(knot, each)), scale)} // in this order: at is rounded finer than its knot
}

// column is what a table has at a place.
func (w *world) column(at place, column int) num {
	before := w.entry(w.roads, at.knot, column)
	return w.lerp(before, w.entry(w.roads, at.knot, column+len(roadColumns)), at.share)
}

// alongRoad is the place of a station among the knots of the road.
func (w *world) alongRoad(station num) place { return w.placed(station, "road") }

// inRecord is the place among the samples of the record: by the station or by the time.
func (w *world) inRecord(station, time num) place {
	return w.placed(w.pick("record_timed", time, station), "record")
}

// pick is x where a scenario has what a row says is there, and y elsewhere.
func (w *world) pick(row string, x, y num) num { return w.where(w.less(w.c(0.5), w.p(row)), x, y) }

// surface is the road under the car.
type surface struct{ bank, side, climb num } // rad, and what gravity pulls aside and back, m/s²

// surface is that of the road at a station, which counts where there are knots.
func (w *world) surface(station num) surface {
	plain := surface{w.p("bank"), w.p("side_gravity"), w.p("climb")}
	if w.roads == nil {
		return plain
	}
	at := w.alongRoad(station)
	bank, grade := w.column(at, columnBank), w.column(at, columnGrade)
	return surface{
		w.pick("road_there", bank, plain.bank), w.pick("road_there", w.mul(w.c(gravity), bank), plain.side),
		w.pick("road_there", w.mul(w.c(gravity), grade), plain.climb),
	}
}

// road is the curvature of the road at a station: that of its knots, or one curve.
func (w *world) road(station num) num {
	if w.roads == nil {
		return w.curve(station)
	}
	return w.pick("road_there", w.column(w.alongRoad(station), columnCurvature), w.curve(station))
}

// cruise is the speed that the driver has set, or had.
func (w *world) cruise(station, time num) num {
	if w.roads == nil {
		return w.p("cruise")
	}
	return w.pick("record_there", w.column(w.inRecord(station, time), columnSpeed), w.p("cruise"))
}

// recordedLead gives car 0 the gap and the speed that it had at a time; the own car is at its station then.
func (w *world) recordedLead(station, time, gap, speed num) (num, num) {
	if w.roads == nil {
		return gap, speed
	}
	at := w.inRecord(station, time)
	before := w.entry(w.roads, at.knot, columnLead)
	rise := w.sub(w.entry(w.roads, at.knot, columnLead+len(roadColumns)), before)
	its := w.sum(w.sub(before, station), w.mul(at.share, rise)) // near places first: their difference is exact
	gap = w.pick("lead_there", its, gap)
	return gap, w.pick("lead_there", w.column(at, columnLeadSpeed), speed)
}

// measureRecord adds to the error of the speed; time is that after the step.
func (w *world) measureRecord() {
	if w.roads == nil {
		return
	}
	s := w.state
	e := w.pick("record_there", w.sub(s["speed"], w.cruise(s["station"], w.time)), w.all(0))
	w.accumulate(speedErrors, w.mul(e, e))
}

// speedErrors is the sum of squared differences between the speed and the recorded one, over steps that have
// roads.
const speedErrors = "speed_error_squared"

// curvature is that of the road of a scenario at a station, in 1/m.
func (r *Road) curvature(station float64) float64 { return interpolate(r.Curvature, station/r.Spacing) }

// spread makes knots at even distances of samples that lie at others, which must grow: each is the mean of the line
// through the samples, weighted by its nearness (a triangle over the spacing to both sides), so that no curve between
// knots is lost. The line begins and ends with the first and the last sample.
func spread(x, y []float64, spacing float64, knots int) []float64 {
	out := make([]float64, knots)
	var weights = make([]float64, knots)
	// Over a part of the line in which neither samples nor knots lie, the product of two lines is integrated exactly by
	// Simpson's rule.
	i := 0
	from := x[0]
	for from < x[len(x)-1] {
		for i < len(x)-2 && x[i+1] <= from {
			i++
		}
		cell := math.Floor((from - x[0]) / spacing)
		to := min(x[i+1], x[0]+float64((cell+1)*spacing))
		if !(to > from) { // the end of the cell, rounded
			cell++
			to = min(x[i+1], x[0]+float64((cell+1)*spacing))
		}
		line := func(at float64) float64 { return y[i] + float64((at-x[i])/(x[i+1]-x[i])*(y[i+1]-y[i])) }
		left := int(cell)
		for _, s := range []struct{ at, weight float64 }{{from, 1}, {float64((from + to) / 2), 4}, {to, 1}} {
			share := min(max((s.at-x[0])/spacing-cell, 0), 1)
			w, value := s.weight*(to-from)/6, line(s.at)
			for k, part := range []float64{1 - share, share} {
				if left+k < knots {
					out[left+k] += float64(w * part * value)
					weights[left+k] += float64(w * part)
				}
			}
		}
		from = to
	}
	for k := range out {
		if weights[k] > 0 {
			out[k] /= weights[k]
		} else if k > 0 {
			out[k] = out[k-1]
		}
	}
	return out
}
