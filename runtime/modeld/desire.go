package modeld

// edges finds the rising edges of desires: a model is told once that a desire begins, and decides itself when it is fulfilled. Whether a
// pulse reaches the model when frames were missed differs between releases, and is the caller's.
type edges struct{ previous int }

// pulse returns the desire one-hot if it is another than the one before, else zeros. No desire, or one that openpilot does not
// have, is zeros too.
func (e *edges) pulse(desire int) (v [desires]float64) {
	if desire < 0 || desire >= desires {
		desire = DesireNone
	}
	if desire != e.previous && desire != DesireNone {
		v[desire] = 1
	}
	e.previous = desire
	return v
}
