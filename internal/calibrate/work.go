package calibrate

import "github.com/spark-compile/spark-compile/internal/console"

// Work is how long the parts of a calibration take, in units of package progress.
type Work struct {
	Prices float64
	Alone  float64 // of all layers, in one format
	Fit    float64 // one walk through the graph
}

// Work is how long the parts of this calibration take.
func (c *Calibration) Work() (w Work) {
	for _, s := range c.walk.steps {
		w.Fit += c.fitting(s)
		if s.site != nil {
			w.Prices += float64(2 * console.CostCompile * float64(s.site.Members*s.site.N*s.site.K))
		}
	}
	macs := 0.0
	for i := len(c.walk.steps) - 1; i >= 0; i-- {
		s := c.walk.steps[i]
		macs += float64(s.node.MACs())
		if s.site != nil {
			w.Alone += float64(macs * console.CostForward)
		}
	}
	w.Alone += float64(2 * macs * console.CostForward)
	return w
}

// fitting is how long a region takes in a fit.
func (c *Calibration) fitting(s *step) float64 {
	w := float64(2 * float64(c.walk.inputs) * float64(s.node.MACs()) * console.CostForward)
	if s.site != nil {
		k := float64(s.site.K)
		w += float64(float64(s.site.Members*s.site.N) * k * k * console.CostRound)
		w += float64(k * k * k * console.CostMoment)
	}
	return w + 1
}
