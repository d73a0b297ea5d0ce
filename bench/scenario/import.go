package scenario

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/spark-compile/spark-compile/ir"
)

// recording is a drive, sample by sample, as importers read it.
type recording struct {
	time      []float64 // s, growing
	speed     []float64 // m/s
	curvature []float64 // 1/m, left positive; of no weight where the car stands
	grade     []float64 // uphill positive; nil: not known
	bank      []float64 // rad, positive where the left side is higher; nil: not known
	lead      []leadSample
}

// leadSample is the leading car at a sample.
type leadSample struct {
	there      bool
	gap, speed float64 // m, from the front of the own car; m/s
}

// Sizes of what importers make.
const (
	leastSpacing  = 2.0    // m, between knots
	leastInterval = 0.1    // s, between samples
	leastDrive    = 10.0   // m
	unseen        = 5000.0 // m: distance of a lead that is not there
)

// family is a drive as a scenario: its road, the driver's speed, and the leading car.
func (r *recording) family(name, doc string) (*Family, error) {
	n := len(r.time)
	if n < 2 {
		return nil, fmt.Errorf("it has %d samples; want 2 at least", n)
	}
	seconds := r.time[n-1] - r.time[0]
	longest := Params[paramIndex["duration"]].High
	if seconds > longest {
		return nil, fmt.Errorf("it lasts %.0f s, and a scenario %.0f s at most: cut it", seconds, longest)
	}
	way := make([]float64, n) // m
	for i := 1; i < n; i++ {
		way[i] = way[i-1] + float64((r.speed[i]+r.speed[i-1])/2*(r.time[i]-r.time[i-1]))
	}
	if !(way[n-1] >= leastDrive) {
		return nil, fmt.Errorf("the car goes %.1f m in it; want %v m at least", way[n-1], leastDrive)
	}
	road := &Road{}
	// A car that stands, or nearly, adds nothing to the road.
	moved := []int{0}
	for i := range way {
		if way[i]-way[moved[len(moved)-1]] >= 0.01 {
			moved = append(moved, i)
		}
	}
	places := picked(way, moved)
	knots := min(max(int(math.Ceil(way[n-1]/leastSpacing))+1, 2), MaxKnots)
	road.Spacing = places[len(places)-1] / float64(knots-1)
	for _, c := range []struct {
		column int
		from   []float64
	}{{columnCurvature, r.curvature}, {columnGrade, r.grade}, {columnBank, r.bank}} {
		if c.from != nil {
			row := roadColumns[c.column]
			*row.of(road) = cut(spread(places, picked(c.from, moved), road.Spacing, knots), row.Param)
		}
	}
	samples := min(max(int(seconds/leastInterval)+1, 2), MaxKnots)
	road.Interval = seconds / float64(samples-1)
	road.Speed = make([]float64, samples)
	for k := range road.Speed {
		road.Speed[k] = r.at(r.speed, r.time[0]+float64(float64(k)*road.Interval))
	}
	road.Speed = cut(road.Speed, roadColumns[columnSpeed].Param)
	r.addLead(road, way)
	return &Family{Name: name, Doc: doc, Road: road}, road.check()
}

// at is what a list of samples has at a time.
func (r *recording) at(list []float64, time float64) float64 {
	i, share := r.between(time)
	return list[i] + float64(share*(list[i+1]-list[i]))
}

// between is the sample before a time, and the share of the way to the next one.
func (r *recording) between(time float64) (i int, share float64) {
	i = min(max(sort.SearchFloat64s(r.time, time)-1, 0), len(r.time)-2)
	return i, min(max((time-r.time[i])/(r.time[i+1]-r.time[i]), 0), 1)
}

// addLead places the leading car along the road, if there ever is one. Between samples of one car it moves evenly;
// from one car to another, or to none, it jumps.
func (r *recording) addLead(road *Road, way []float64) {
	ever := false
	for _, l := range r.lead {
		ever = ever || l.there
	}
	if !ever {
		return
	}
	for k := range road.Speed {
		i, share := r.between(r.time[0] + float64(float64(k)*road.Interval))
		a, b := r.lead[i], r.lead[i+1]
		place := func(i int) float64 { return way[i] + r.lead[i].gap }
		const jump = 5.0 // m, beyond what the car's speed explains
		passed := place(i+1) - place(i) - float64(a.speed*(r.time[i+1]-r.time[i]))
		at, speed, there := place(i)+float64(share*(place(i+1)-place(i))), a.speed+float64(share*(b.speed-a.speed)), true
		if !a.there || !b.there || math.Abs(passed) > jump {
			if share > 0.5 {
				i++
			}
			at, speed, there = place(i), r.lead[i].speed, r.lead[i].there
		}
		if !there {
			at, speed = way[i]+unseen, road.Speed[k]
		}
		road.Lead, road.LeadSpeed = append(road.Lead, at), append(road.LeadSpeed, speed)
	}
	road.Lead = cut(road.Lead, roadColumns[columnLead].Param)
	road.LeadSpeed = cut(road.LeadSpeed, roadColumns[columnLeadSpeed].Param)
}

// cut limits a list to what a column may have.
func cut(list []float64, p Param) []float64 {
	for i, x := range list {
		list[i] = min(max(x, p.Low), p.High)
	}
	return list
}

func picked(list []float64, places []int) (out []float64) {
	for _, i := range places {
		out = append(out, list[i])
	}
	return out
}

// check says which sample is no number, or out of time.
func (r *recording) check() error {
	for i, t := range r.time {
		if i > 0 && !(t > r.time[i-1]) {
			return fmt.Errorf("sample %d: its time is %v s behind %v s: times must grow", i, t, r.time[i-1])
		}
	}
	for _, c := range []struct {
		name string
		list []float64
	}{{"time", r.time}, {"speed", r.speed}, {"curvature", r.curvature}, {"grade", r.grade}, {"bank", r.bank}} {
		if c.list != nil && len(c.list) != len(r.time) {
			return fmt.Errorf("there are %d samples of time and %d of %s", len(r.time), len(c.list), c.name)
		}
		for i, x := range c.list {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("sample %d: %s is %v", i, c.name, x)
			}
		}
	}
	if len(r.time) > maxSamples {
		return errors.New("it has more samples than ten minutes at 1 kHz; cut it")
	}
	return nil
}

const maxSamples = 600_000

// crawl is the speed in m/s up to which yaw rates and climbs say nothing of a road: they are noise over almost no way.
const crawl = 1.0

// holdBelow gives a list, at samples that are not faster than a speed, the value of the last sample before that is; 0: none.
func holdBelow(list, speed []float64, slowest float64) []float64 {
	last := 0.0
	for i, v := range speed {
		if v > slowest {
			last = list[i]
		}
		list[i] = last
	}
	return list
}

// turned makes curvatures of headings in rad, left positive and without jumps, and ways in m: over some samples to both
// sides, since headings are noisy, as far as the car does not crawl.
func turned(heading, way, speed []float64, sides int) []float64 {
	out, last := make([]float64, len(way)), 0.0
	for i := range out {
		a, b := i, i
		for a > max(i-sides, 0) && speed[a-1] > crawl {
			a--
		}
		for b < min(i+sides, len(way)-1) && speed[b+1] > crawl {
			b++
		}
		if d := way[b] - way[a]; d > 0.1 && speed[i] > crawl {
			last = (heading[b] - heading[a]) / d
		}
		out[i] = last
	}
	return out
}

// atan2 is math.Atan2, the same on every machine.
func atan2(y, x float64) float64 {
	switch {
	case x > 0:
		return ir.Atan(y / x)
	case x < 0:
		return ir.Atan(y/x) + math.Copysign(math.Pi, y)
	}
	return math.Copysign(math.Pi/2, y)
}

// asin is math.Asin, the same on every machine; numbers beyond 1 are taken for 1.
func asin(x float64) float64 {
	x = min(max(x, -1), 1)
	return atan2(x, math.Sqrt(1-float64(x*x)))
}

// unwrapped removes jumps by whole turns from angles.
func unwrapped(angles []float64) []float64 {
	for i := 1; i < len(angles); i++ {
		angles[i] -= float64(2 * math.Pi * math.Round((angles[i]-angles[i-1])/(2*math.Pi)))
	}
	return angles
}
