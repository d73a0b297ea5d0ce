package dataset

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// desire is what was asked for last at the frame that many before; 0: nothing.
func (p place) desire(frames int) int {
	for p, ok := p.earlier(frames); ok; p, ok = p.earlier(1) {
		if d := p.moment().Desire; d >= 0 {
			return d
		}
	}
	return 0
}

// pulse is the desire that begins at the frame that many before; 0: none.
func (p place) pulse(frames int) int {
	level := p.desire(frames)
	if level == p.desire(frames+1) || level >= generation.Desires {
		return 0
	}
	return level
}

// desires is the history of pulses, one row for each frame, or one with the greatest of four; the last row ends now.
func (p place) desires(rows int, full bool) []float64 {
	out := make([]float64, rows*generation.Desires)
	group := generation.Group
	if full || rows == 1 {
		group = 1
	}
	for frames := range rows * group {
		if d := p.pulse(frames); d > 0 {
			out[(rows-1-frames/group)*generation.Desires+d] = 1
		}
	}
	return out
}

// curvatures is the history of what the model asked for before, up to the frame before this one.
func (p place) curvatures(rows int, full bool) []float64 {
	spacing := every
	if full {
		spacing = 1
	}
	out := make([]float64, rows)
	for row := range rows {
		if at, ok := p.earlier(1 + spacing*(rows-1-row)); ok {
			out[row] = at.moment().Curvature
		}
	}
	return out
}

// Columns of a plan.
const (
	columns   = modeld.PlanColumns
	position  = 0
	velocity  = 3
	accelerat = 6
	euler     = 9
	turning   = 12
)

// pose is a place and an attitude on the axes of the first one: x forward, y right, z down.
type pose struct {
	seconds            float64
	position           [3]float64
	attitude           [3][3]float64
	velocity, rotation [3]float64 // on the first axes, and about the own ones
}

// truth is the path that was driven from a moment on, as a plan [33, 15]. All vectors but the rates of turning are on the axes of the moment. NaN where
// the route ends, or has a gap.
func (p place) truth() []float32 {
	out := make([]float32, points*columns)
	for i := range out {
		out[i] = float32(math.NaN())
	}
	path := p.drive()
	if len(path) < 2 {
		return out
	}
	at := 0
	for i, t := range modeld.TIndex() {
		for at+2 < len(path) && path[at+1].seconds < t {
			at++
		}
		a, b := path[at], path[at+1]
		if t > b.seconds {
			break
		}
		part := (t - a.seconds) / (b.seconds - a.seconds)
		row := out[i*columns : (i+1)*columns]
		ea, eb := angles(a.attitude), angles(b.attitude)
		for n := range 3 {
			mix := func(x, y float64) float32 { return float32(x + float64(part*(y-x))) }
			row[position+n] = mix(a.position[n], b.position[n])
			row[velocity+n] = mix(a.velocity[n], b.velocity[n])
			row[accelerat+n] = float32((b.velocity[n] - a.velocity[n]) / (b.seconds - a.seconds))
			row[euler+n] = mix(ea[n], eb[n])
			row[turning+n] = mix(a.rotation[n], b.rotation[n])
		}
	}
	return out
}

// A path is as long as a plan, in seconds, and ends at a greater gap between frames.
const longest, gap = 10.2, 0.3

// interval is the time from one moment to another, in s.
func interval(a, b *moment) float64 { return float64(float64(int64(b.SOF-a.SOF)) * 1e-9) }

// drive is the path from a moment on, over ten seconds at most, as far as it is known without a gap: that of measured poses, or the camera's own motion, integrated.
func (p place) drive() (path []pose) {
	if p.moment().Global != nil {
		return p.driven()
	}
	at := pose{attitude: [3][3]float64{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}
	var last *moment
	for m := range p.onward() {
		if !m.Moves {
			break
		}
		if last != nil {
			dt := interval(last, m)
			if dt <= 0 || dt > gap {
				break
			}
			mean := func(a, b [3]float64) (c [3]float64) {
				for i := range c {
					c[i] = float64(0.5 * (a[i] + b[i]))
				}
				return c
			}
			turn, move := mean(last.Rot, m.Rot), mean(last.Trans, m.Trans)
			half := float64(0.5 * dt)
			middle := product(at.attitude, turned(turn, half))
			for i, v := range times(middle, move) {
				at.position[i] += float64(dt * v)
			}
			at.attitude = product(at.attitude, turned(turn, dt))
			at.seconds += dt
		}
		at.velocity, at.rotation, last = times(at.attitude, m.Trans), m.Rot, m
		if path = append(path, at); at.seconds > longest {
			break
		}
	}
	return path
}
