package scenario

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// TraceColumns are what a Trace of the tier holds of each step, in this order.
func (t Tier) TraceColumns() []Param {
	list := []Param{
		{Name: "time", Unit: "s", Doc: "since the start of the scenario"},
		{Name: "speed", Unit: "m/s"},
		{Name: "accel", Unit: "m/s²", Doc: "longitudinal"},
		{Name: "accel_command", Unit: "m/s²", Doc: "acceleration that the algorithm asked for, as the car limits it"},
		{Name: "lateral", Unit: "m/s²", Doc: "lateral acceleration"},
		{Name: "command", Unit: "1/m", Doc: "curvature that the algorithm asked for, as openpilot limits it"},
		{Name: "steer", Unit: "rad", Doc: "angle of the road wheels"},
		{Name: "yaw_rate", Unit: "rad/s"},
	}
	if t == Controls {
		return append(list,
			Param{Name: "ask_speed", Unit: "m/s", Doc: "that the scenario asks for from here on"},
			Param{Name: "ask_accel", Unit: "m/s²"},
			Param{Name: "ask_curvature", Unit: "1/m"})
	}
	list = slices.Insert(list, 1,
		Param{Name: "station", Unit: "m", Doc: "way along the road"},
		Param{Name: "offset", Unit: "m", Doc: "from the centre of the lane, left positive"},
		Param{Name: "heading", Unit: "rad", Doc: "angle to the road, left positive"})
	list = append(list, Param{Name: "road", Unit: "1/m", Doc: "curvature of the road here"})
	for i := range Cars {
		list = append(list,
			Param{Name: gapOf(i), Unit: "m", Doc: fmt.Sprintf("to car %d, NaN if it is not there; negative: behind", i)},
			Param{Name: speedOf(i), Unit: "m/s"},
			Param{Name: "lateral" + digit(i), Unit: "m",
				Doc: "of this car, from the centre of the lane, left positive"})
	}
	return list
}

// Trace is what a loop did: a row of the tier's columns at the start and after each step until the loop ended.
type Trace struct {
	Scenario Scenario
	Columns  []Param
	Rows     [][]float64
}

// Column is the place of a column; -1: there is none.
func (t *Trace) Column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Param) bool { return c.Name == name })
}

// Record runs each scenario once, as RunBatch does with the same bits, and keeps a trace of each: about 140 bytes a
// step of 50 ms.
func (r *Runner) Record(ctx context.Context, scenarios []Scenario, a Algorithm, seed uint64) (*Result, []Trace, error) {
	const most = 1 << 10
	if len(scenarios) > most {
		return nil, nil, fmt.Errorf("traces of %d loops; want %d at most", len(scenarios), most)
	}
	traces := make([]Trace, len(scenarios))
	over, list := make([]bool, len(scenarios)), r.Tier.TraceColumns()
	if _, ok := a.(*Models); ok {
		list = append(list,
			Param{Name: keptCurvature, Unit: "1/m", Doc: "that the models asked for, before openpilot's limits"},
			Param{Name: keptAccel, Unit: "m/s²"})
	}
	result, err := r.run(ctx, scenarios, a, 1, seed, func(b *batch) error {
		columns := map[string][]float32{}
		for _, name := range b.design.numbers() {
			values, err := b.state(name)
			if err != nil {
				return err
			}
			columns[name] = values
		}
		if b.models != nil {
			for _, name := range []string{keptCurvature, keptAccel} {
				values, err := b.state(name)
				if err != nil {
					return err
				}
				columns[name] = values
			}
		}
		commands, err := b.state("commands")
		if err != nil {
			return err
		}
		for i, s := range b.list {
			if over[b.first+i] {
				continue
			}
			over[b.first+i] = columns["alive"][i] == 0
			time := float64(float64(columns["steps"][i]) * Step)
			row := make([]float64, len(list))
			curvature, accel, speed := s.asks(time)
			for k, c := range list {
				switch {
				case s.absent(c.Name):
					row[k] = math.NaN()
				case c.Name == "time":
					row[k] = time
				case c.Name == "accel_command":
					row[k] = b.commanded(commands, i, int(columns["steps"][i]))
				case c.Name == "ask_speed":
					row[k] = speed
				case c.Name == "ask_accel":
					row[k] = accel
				case c.Name == "ask_curvature":
					row[k] = curvature
				case c.Name == "road":
					row[k] = s.road(float64(columns["station"][i]))
				case c.Name == keptCurvature:
					row[k] = -float64(columns[c.Name][i]) // openpilot's is to the right
				case columns[c.Name] != nil:
					row[k] = float64(columns[c.Name][i])
				default:
					row[k] = s.lateral(int(c.Name[len(c.Name)-1]-'0'), time)
				}
			}
			traces[b.first+i].Scenario, traces[b.first+i].Columns = s, list
			traces[b.first+i].Rows = append(traces[b.first+i].Rows, row)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return result, traces, nil
}

// commanded is the acceleration that a loop was asked for in the step before, from the table of commands.
func (b *batch) commanded(commands []float32, loop, steps int) float64 {
	if steps == 0 {
		return 0
	}
	slot := (steps - 1) % commandSteps
	return float64(commands[(slot*(Substeps+1)+Substeps)*b.size+loop])
}

// asks is what a scenario of tier controls asks for from a time on: curvature in 1/m, acceleration in m/s², and the
// speed in m/s that both lead to.
func (s Scenario) asks(time float64) (curvature, accel, speed float64) {
	speed = s.Get("speed")
	for k := range asks {
		if from := s.Get("ask_time" + digit(k)); time > from-dt/2 {
			next := s.Get("ask_accel" + digit(k))
			speed += float64(max(time-from, 0) * (next - accel))
			curvature, accel = s.Get("ask_curvature"+digit(k)), next
		}
	}
	return curvature, accel, max(speed, 0)
}

// road is the curvature of the road at a station, in 1/m.
func (s Scenario) road(station float64) float64 {
	if s.Road != nil {
		return s.Road.curvature(station)
	}
	share := func(from float64) float64 { return min(max((station-from)/s.Get("curve_ramp"), 0), 1) }
	start := s.Get("curve_start")
	end := start + s.Get("curve_ramp") + s.Get("curve_length")
	return float64(s.Get("curvature") * (share(start) - share(end)))
}

// absent reports whether a column is of a car that is not there.
func (s Scenario) absent(column string) bool {
	for i := range Cars {
		if slices.Contains([]string{gapOf(i), speedOf(i), "lateral" + digit(i)}, column) {
			return s.Get(car(i, "present")) < 0.5
		}
	}
	return false
}

// lateral is where across the lane a car is, in m.
func (s Scenario) lateral(i int, time float64) float64 {
	share := min(max((time-s.Get(car(i, "change_start")))/s.Get(car(i, "change_length")), 0), 1)
	from, to := s.Get(car(i, "lateral")), s.Get(car(i, "lateral_end"))
	return from + float64(float64(share*share)*float64(3-float64(2*share))*(to-from))
}
