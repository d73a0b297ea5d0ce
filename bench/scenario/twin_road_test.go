package scenario

import "sort"

// twinRoad is a road of knots, found by their distances.
type twinRoad struct {
	distance, curvature, grade, bank []float64
	samples, speed, lead, leadSpeed  []float64
	timed                            bool // samples are at times, not at distances
}

func newTwinRoad(r *Road) *twinRoad {
	grid := func(n int, each float64) (x []float64) {
		for i := range n {
			x = append(x, float64(i)*each)
		}
		return x
	}
	t := &twinRoad{curvature: r.Curvature, grade: r.Grade, bank: r.Bank, speed: r.Speed, lead: r.Lead, leadSpeed: r.LeadSpeed}
	t.distance = grid(len(r.Curvature), r.Spacing)
	t.samples, t.timed = t.distance, r.Interval != 0
	if t.timed {
		t.samples = grid(len(r.Speed), r.Interval)
	}
	return t
}

// through is a line through points (x, y) at a place.
func through(x, y []float64, at float64) float64 {
	if y == nil {
		return 0
	}
	i := sort.SearchFloat64s(x, at)
	switch {
	case i == 0:
		return y[0]
	case i == len(x):
		return y[i-1]
	}
	share := (at - x[i-1]) / (x[i] - x[i-1])
	return (1-share)*y[i-1] + share*y[i]
}

// bankAt and gradeAt are what gravity pulls aside and back, in m/s².
func (t *twin) bankAt(station float64) float64 {
	if t.road != nil {
		return 9.81 * through(t.road.distance, t.road.bank, station)
	}
	return t.bank
}

func (t *twin) gradeAt(station float64) float64 {
	if t.road != nil {
		return 9.81 * through(t.road.distance, t.road.grade, station)
	}
	return t.grade
}

// recorded is what a list of samples has now.
func (t *twin) recorded(list []float64, time float64) float64 {
	if t.road.timed {
		return through(t.road.samples, list, time)
	}
	return through(t.road.samples, list, t.state.station)
}

func (t *twin) cruiseAt(time float64) float64 {
	if t.road != nil && t.road.speed != nil {
		return t.recorded(t.road.speed, time)
	}
	return t.cruise
}
