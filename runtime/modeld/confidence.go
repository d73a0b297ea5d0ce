package modeld

// metas remembers what openpilot does of meta from frame to frame (fill_model_msg.py). All is 0 before the first.
type metas struct {
	brake5    [5]float64    // of the next 2 s, the last frame's last
	brake3    [2]float64    // likewise
	disengage [5][5]float64 // that the driver takes over in each 2 s of the next 10; a row each 2 s, the last one newest
}

// next takes a frame's meta, and returns whether hard braking is predicted and how much confidence the plan deserves.
func (h *metas) next(frameID uint32, m *Meta) (hardBrake bool, c Confidence) {
	h.brake5 = [5]float64(append(h.brake5[1:], m.Brake5[0]))
	h.brake3 = [2]float64(append(h.brake3[1:], m.Brake3[0]))
	hardBrake = true
	for i, least := range [...]float64{.05, .05, .15, .15, .15} {
		hardBrake = hardBrake && h.brake5[i] > least
	}
	for _, p := range h.brake3 {
		hardBrake = hardBrake && p > .7
	}

	if frameID%40 == 0 { // each 2 s
		h.disengage = [5][5]float64(append(h.disengage[1:], disengagements(m)))
	}
	// What is predicted now of the next 2 s, what was 2 s ago of the 2 s then after them, and so on.
	var score float64
	for i := range h.disengage {
		score += h.disengage[i][4-i] / 5
	}
	switch {
	case score < .01165:
		return hardBrake, Green
	case score < .06157:
		return hardBrake, Yellow
	}
	return hardBrake, Red // also of NaN
}

// disengagements are the probabilities that the driver takes over in each 2 s, if he did not before. Where it is certain that he did, that
// is 0/0.
func disengagements(m *Meta) (p [5]float64) {
	var before float64 // that he took over until then
	for i := range p {
		until := 1 - (1-m.BrakeDisengage[i])*(1-m.GasDisengage[i])*(1-m.SteerDisengage[i])
		p[i] = (until - before) / (1 - before)
		before = until
	}
	return p
}
