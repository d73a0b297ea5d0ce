package train

import (
	"fmt"
	"math"
)

// watch finds out when training diverges: the loss, smoothed over about window updates, is factor times the least that it has been.
type watch struct {
	Smooth float64 `json:"smooth"`
	Least  float64 `json:"least"`
	Seen   int     `json:"seen"`
}

const window = 20

// see takes the loss of an update and says what is wrong, if anything is. A factor of 0 finds nothing wrong.
func (w *watch) see(loss, factor float64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return nil // the step left the update out, and counts these itself
	}
	w.Seen++
	// Of the first updates it is their mean.
	w.Smooth += (loss - w.Smooth) / float64(min(w.Seen, window))
	if w.Seen < window {
		return nil
	}
	if w.Seen == window || w.Smooth < w.Least {
		w.Least = w.Smooth
	}
	// Losses may be negative: a factor of what it would be with the least at zero says nothing there.
	if factor > 0 && w.Least > 0 && w.Smooth > factor*w.Least {
		return fmt.Errorf("training diverges: the loss, smoothed over %d updates, is %.4g and was %.4g: take a smaller --lr, a longer --warmup or --clip", window, w.Smooth, w.Least)
	}
	return nil
}
