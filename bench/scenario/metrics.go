package scenario

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/bench/scenario/stats"
)

// Metric is a number that a scenario ends with.
type Metric struct {
	Name    string
	Unit    string
	Failure bool // 1: it failed; else a cost, or a measure that is no cost
	Higher  bool // more is better
	Neutral bool // neither more nor less is better
	Named   bool // compared only where it is asked for by name
	Doc     string
}

// Metrics lists them, in the order of Result.Metrics.
var Metrics = []Metric{
	{Name: "collision", Failure: true, Doc: "the car touched another one"},
	{Name: "out_of_lane", Failure: true, Doc: "a side of the car was beyond the lane"},
	{Name: "diverged", Failure: true, Doc: "a number was not finite, or the car 20 m beside its lane"},
	{Name: "disengaged", Failure: true, Doc: "a driver would have taken over: half the car beyond the lane, or 0.8 s or less to a collision"},
	{Name: "offset_mean", Unit: "m", Doc: "root mean square distance from the centre of the lane"},
	{Name: "offset_max", Unit: "m", Doc: "largest distance from the centre of the lane"},
	{Name: "settled", Unit: "s", Doc: "when the car was last more than 0.25 m beside the centre of the lane"},
	{Name: "time_to_collision", Unit: "s", Higher: true,
		Doc: "least gap to the car in front over the speed towards it, at most 100; 100 without one"},
	{Name: "headway", Unit: "s", Higher: true, Doc: "least gap to the car in front over the own speed, at most 100; 100 without one"},
	{Name: "gap_end", Unit: "m", Neutral: true, Doc: "to the car in front at the end; 1000 without one"},
	{Name: "car0_gap_end", Unit: "m", Neutral: true, Doc: "to car 0 at the end, present or not; negative: behind"},
	{Name: "progress", Unit: "m", Higher: true, Doc: "way along the road"},
	{Name: "speed_error", Unit: "m/s", Named: true,
		Doc: "root mean square: speed less the recorded one; 0 on a road without a record"},
	{Name: "lateral_accel_max", Unit: "m/s²"},
	{Name: "lateral_jerk", Unit: "m/s³", Doc: "root mean square, at 20 Hz"},
	{Name: "accel_max", Unit: "m/s²", Doc: "longitudinal"},
	{Name: "brake_max", Unit: "m/s²"},
	{Name: "jerk", Unit: "m/s³", Doc: "root mean square, longitudinal, at 20 Hz"},
	{Name: "oscillation", Unit: "m/s³", Doc: "mean change of the commanded lateral acceleration a second"},
	{Name: leftCorridor, Neutral: true,
		Doc: "it left the corridor in which recorded pictures are reprojected, and ended; no failure"},
	{Name: "duration", Unit: "s", Neutral: true, Doc: "how long it ran"},
}

// Judged are the tier's metrics as package stats compares them, of which those of the given names are judged; without
// names all are that are neither neutral nor Named.
func (t Tier) Judged(names ...string) ([]stats.Metric, error) {
	list := t.Metrics()
	for _, name := range names {
		i := slices.IndexFunc(list, func(m Metric) bool { return m.Name == name })
		if i < 0 {
			var all []string
			for _, m := range list {
				all = append(all, m.Name)
			}
			return nil, fmt.Errorf("no metric %q; %s", name, hint(name, all))
		}
		if list[i].Neutral {
			return nil, fmt.Errorf("metric %q is neutral: neither more nor less is better", name)
		}
	}
	var out []stats.Metric
	for _, m := range list {
		kind := stats.Cost
		switch {
		case m.Neutral || len(names) == 0 && m.Named || len(names) > 0 && !slices.Contains(names, m.Name):
			kind = stats.Neutral
		case m.Failure:
			kind = stats.Failure
		case m.Higher:
			kind = stats.Gain
		}
		out = append(out, stats.Metric{Name: m.Name, Unit: m.Unit, Kind: kind})
	}
	return out, nil
}

// leftCorridor is kept only of loops that see a recording.
const leftCorridor = "left_corridor"

// sums are what metrics are made of: kept from step to step as states are.
var sums = []string{
	"steps", "collided", "left_lane", "not_finite", "took_over", "offset_squared", "offset_largest", "last_outside", "least_ttc", "least_headway",
	"lateral_largest", "lateral_jerk_squared", "accel_largest", "brake_largest", "jerk_squared", "command_changes",
}

// measure updates the sums after a step; before are the states before it.
func (w *world) measure(before map[string]num) {
	s, one, zero := w.state, w.c(1), w.c(0)
	is := func(c cond) num { return w.where(c, w.all(1), w.all(0)) }
	most := func(name string, x num) { s[name] = w.max(s[name], x) }
	size := w.one("Abs", s["offset"])
	half := w.mul(w.c(0.5), w.p("lane_width"))
	gap, speed := w.nearest()
	closing := w.sub(s["speed"], speed)
	ttc := w.min(w.div(w.max(gap, zero), w.max(closing, w.c(1e-2))), w.c(100))
	headway := w.min(w.div(w.max(gap, zero), w.max(s["speed"], w.c(0.1))), w.c(100))
	headway = w.where(w.less(gap, w.c(far)), headway, w.all(100))
	collided := zero
	for i := range Cars {
		its := s[gapOf(i)]
		touch := w.and(w.less(w.c(0.5), w.p(car(i, "present"))),
			w.and(w.less(its, zero), w.less(w.mul(w.c(-2), w.p("length")), its)))
		separation := w.one("Abs", w.sub(s["offset"], w.lateralOf(i, w.time)))
		collided = w.max(collided, is(w.and(touch, w.less(separation, w.p("width")))))
	}
	s["steps"] = w.sum(s["steps"], one)
	w.time = w.clock(0)
	most("collided", collided)
	most("left_lane", is(w.less(w.sub(half, w.mul(w.c(0.5), w.p("width"))), size)))
	most("took_over", is(w.or(w.less(half, size), w.less(ttc, w.c(0.8)))))
	finite := w.less(size, w.c(20))
	for _, name := range []string{"heading", "speed", "station", "slip", "yaw_rate", "steer", "accel", "command"} {
		finite = w.and(finite, w.finite(s[name]))
	}
	most("not_finite", is(w.not(finite)))
	w.accumulate("offset_squared", w.mul(s["offset"], s["offset"]))
	most("offset_largest", size)
	s["last_outside"] = w.where(w.less(w.c(0.25), size), w.time, s["last_outside"])
	s["least_ttc"] = w.min(s["least_ttc"], ttc)
	s["least_headway"] = w.min(s["least_headway"], headway)
	w.measureRecord()
	w.comfort(before, w.mul(s["speed"], s["yaw_rate"]))
	over := w.not(w.less(w.time, w.sub(w.p("duration"), w.c(Step/2))))
	ends := w.max(s["collided"], s["not_finite"])
	if w.filmed() {
		f := w.view.film
		most(leftCorridor, is(w.outside(w.shotFrom(f, s["station"], s["offset"], s["heading"]))))
		ends = w.max(ends, s[leftCorridor])
		over = w.or(over, w.not(w.less(s["station"], w.c(f.poses[0][len(f.poses[0])-1]))))
	}
	s["alive"] = w.where(w.or(over, w.less(w.c(0.5), ends)), w.all(0), w.all(1))
}

// comfort updates the sums of accelerations, of which lateral is the one across, and their changes.
func (w *world) comfort(before map[string]num, lateral num) {
	s := w.state
	most := func(name string, x num) { s[name] = w.max(s[name], x) }
	first := w.less(before["steps"], w.c(0.5))
	jerk := w.where(first, w.all(0), w.div(w.sub(lateral, s["lateral"]), w.c(Step)))
	s["lateral"] = lateral
	most("lateral_largest", w.one("Abs", lateral))
	w.accumulate("lateral_jerk_squared", w.mul(jerk, jerk))
	most("accel_largest", s["accel"])
	most("brake_largest", w.mul(w.c(-1), s["accel"]))
	along := w.div(w.sub(s["accel"], before["accel"]), w.c(Step))
	w.accumulate("jerk_squared", w.mul(along, along))
	change := w.one("Abs", w.sub(s["command"], before["command"]))
	w.accumulate("command_changes", w.mul(change, s["speed"], s["speed"]))
}

// results are the metrics, from the states after a step.
func (w *world) results() (out []num) {
	s := w.state
	steps := w.max(s["steps"], w.c(1))
	root := func(name string) num { return w.one("Sqrt", w.div(s[name], steps)) }
	gap, _ := w.nearest()
	by := map[string]num{
		"collision": s["collided"], "out_of_lane": s["left_lane"], "diverged": s["not_finite"], "disengaged": s["took_over"],
		"offset_mean": root("offset_squared"), "offset_max": s["offset_largest"], "settled": s["last_outside"],
		"time_to_collision": s["least_ttc"], "headway": s["least_headway"], "gap_end": gap, "car0_gap_end": s[gapOf(0)], "progress": s["station"],
		"lateral_accel_max": s["lateral_largest"], "lateral_jerk": root("lateral_jerk_squared"), "accel_max": s["accel_largest"],
		"brake_max": s["brake_largest"], "jerk": root("jerk_squared"), "duration": w.mul(s["steps"], w.c(Step)),
		"oscillation": w.div(s["command_changes"], w.mul(steps, w.c(Step))),
	}
	none := w.sub(s["steps"], s["steps"]) // 0, but not a constant, which would split the kernel in two
	by[leftCorridor], by["speed_error"] = none, none
	if w.filmed() {
		by[leftCorridor] = s[leftCorridor]
	}
	if w.roads != nil {
		by["speed_error"] = root(speedErrors)
	}
	for _, m := range Metrics {
		out = append(out, by[m.Name])
	}
	return out
}
