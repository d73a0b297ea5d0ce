package dataset

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// momentOf is the place of the last moment up to the frame that many before another, whether its picture is kept or not: what a log has lost is as it was before. -1: the log
// begins later. Frames are counted as the camera's file has them, as modeld's histories do: one that the camera has dropped is in neither.
func (g *segment) momentOf(k, frames int) int {
	want := g.index.Timeline.Moments[k].Road - frames
	at := k
	for at >= 0 && g.index.Timeline.Moments[at].Road > want {
		at--
	}
	return at
}

// desire is the level at a moment; 0 before there is one.
func (g *segment) desire(at int) int {
	if at < 0 {
		return 0
	}
	return g.index.Timeline.Moments[at].Desire
}

// pulse is the desire that begins at the frame that many before moment k; 0: none.
func (g *segment) pulse(k, frames int) int {
	level := g.desire(g.momentOf(k, frames))
	if level == g.desire(g.momentOf(k, frames+1)) || level >= openpilot.Desires {
		return 0
	}
	return level
}

// desires is the history of pulses, one row for each frame, or one with the greatest of four; the last row ends now.
func (g *segment) desires(k, rows int, full bool) []float64 {
	out := make([]float64, rows*openpilot.Desires)
	group := openpilot.Group
	if full || rows == 1 {
		group = 1
	}
	for frames := range rows * group {
		if d := g.pulse(k, frames); d > 0 {
			out[(rows-1-frames/group)*openpilot.Desires+d] = 1
		}
	}
	return out
}

// curvatures is the history of what the model asked for before, up to the frame before this one.
func (g *segment) curvatures(k, rows int, full bool) []float64 {
	apart := every
	if full {
		apart = 1
	}
	out := make([]float64, rows)
	for row := range rows {
		if at := g.momentOf(k, 1+apart*(rows-1-row)); at >= 0 {
			out[row] = g.index.Timeline.Moments[at].Curvature
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
// the segment ends, or has a gap.
func (g *segment) truth(k int) []float32 {
	out := make([]float32, points*columns)
	for i := range out {
		out[i] = float32(math.NaN())
	}
	path := g.drive(k)
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

// A path is as long as a plan, in seconds, and ends where frames are further apart.
const longest, gap = 10.2, 0.3

// apart is the time from one moment to another, in s.
func apart(a, b *moment) float64 { return float64(float64(int64(b.SOF-a.SOF)) * 1e-9) }

// drive is the path from a moment on, over ten seconds at most, as far as it is known without a gap: that of measured poses, or the camera's own motion, integrated.
func (g *segment) drive(k int) (path []pose) {
	moments := g.index.Timeline.Moments
	if moments[k].Global != nil {
		return g.driven(k)
	}
	p := pose{attitude: [3][3]float64{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}
	for at := k; at < len(moments) && moments[at].Moves; at++ {
		m := &moments[at]
		if at > k {
			last := &moments[at-1]
			dt := apart(last, m)
			if dt <= 0 || dt > gap {
				return path
			}
			mean := func(a, b [3]float64) (c [3]float64) {
				for i := range c {
					c[i] = float64(0.5 * (a[i] + b[i]))
				}
				return c
			}
			turn, move := mean(last.Rot, m.Rot), mean(last.Trans, m.Trans)
			half := float64(0.5 * dt)
			middle := product(p.attitude, turned(turn, half))
			for i, v := range times(middle, move) {
				p.position[i] += float64(dt * v)
			}
			p.attitude = product(p.attitude, turned(turn, dt))
			p.seconds += dt
		}
		p.velocity, p.rotation = times(p.attitude, m.Trans), m.Rot
		path = append(path, p)
		if p.seconds > longest {
			break
		}
	}
	return path
}
