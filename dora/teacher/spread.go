package teacher

// Variation measures how far values vary over samples. The zero value has seen none.
type Variation struct {
	samples int
	of      map[string]*moments
}

// moments are those of one value's elements (Welford 1962).
type moments struct {
	mean []float64
	sum  float64 // of squared deviations, over all elements
}

// Add takes notice of a sample's values by name.
func (v *Variation) Add(values map[string][]float32) {
	if v.of == nil {
		v.of = map[string]*moments{}
	}
	v.samples++
	for name, x := range values {
		m := v.of[name]
		if m == nil {
			m = &moments{mean: make([]float64, len(x))}
			v.of[name] = m
		}
		for i, x := range x {
			d := float64(x) - m.mean[i]
			m.mean[i] += d / float64(v.samples)
			m.sum += float64(d * (float64(x) - m.mean[i]))
		}
	}
}

// Spreads are the mean squares by which an element differs from its mean over the samples, by name. Relative to it a mean squared error is
// the part of the variation that is not explained. One sample has spreads of 0.
func (v *Variation) Spreads() map[string]float64 {
	out := map[string]float64{}
	for name, m := range v.of {
		out[name] = m.sum / float64(v.samples*max(len(m.mean), 1))
	}
	return out
}

// Squares are the mean squares of an element over the samples, by name.
func (v *Variation) Squares() map[string]float64 {
	out := v.Spreads()
	for name, m := range v.of {
		for _, x := range m.mean {
			out[name] += float64(x*x) / float64(len(m.mean))
		}
	}
	return out
}

// Spreads are those of samples that are all there.
func Spreads(samples []map[string][]float32) map[string]float64 {
	var v Variation
	for _, values := range samples {
		v.Add(values)
	}
	return v.Spreads()
}
