package modeld

import "github.com/spark-compile/spark-compile/internal/openpilot/generation"

// drops counts missed frames as openpilot's modeld does.
type drops struct {
	last     uint32 // identifier of the last frame, at first 0
	frames   int    // seen, to warmUp
	filtered float64
}

// Constants of the filter of missed frames.
const (
	dropTime    = 10 // the filter's time constant, s
	mostDropped = 10 // at once, of which the filter learns
	warmUp      = 10 // frames of which it does not learn
)

// next returns how many frames were missed before the frame of that identifier, and the ratio of missed frames, filtered over 10 s.
// Identifiers wrap around; after a frame that is no later than the one before, none was missed. The first frame counts as if frame 0
// came before it: unless it is frame 0 or 1, frames were missed, so openpilot does not run the model on it.
func (d *drops) next(id uint32) (missed int, ratio float64) {
	if gap := id - d.last - 1; id != d.last && (d.frames == 0 || gap < 1<<31) {
		missed = int(gap)
	}
	d.last = id
	const k = generation.FramePeriod / (dropTime + generation.FramePeriod)
	d.filtered += k * (float64(min(missed, mostDropped)) - d.filtered)
	if d.frames < warmUp {
		d.frames++
		d.filtered = 0
	}
	return missed, d.filtered / (1 + d.filtered)
}
