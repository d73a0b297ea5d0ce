package train

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// Schedules of the learning rate.
const (
	Constant = "constant"
	Linear   = "linear" // to zero
	Cosine   = "cosine" // half a cosine, to zero
)

// Schedules are all of them.
func Schedules() []string { return []string{Constant, Linear, Cosine} }

// schedule is the learning rate of every update.
type schedule struct {
	kind    string
	rate    float64 // the greatest
	warmup  int     // updates over which it rises from zero
	updates int     // all of them
}

func (s schedule) check() error {
	switch {
	case !(s.rate > 0) || math.IsInf(s.rate, 0):
		return fmt.Errorf("--lr %v: want a number greater than 0", s.rate)
	case s.warmup < 0:
		return fmt.Errorf("--warmup %d: want 0 updates or more", s.warmup)
	case s.kind != Constant && s.kind != Linear && s.kind != Cosine:
		return fmt.Errorf("--schedule %q: want one of %s", s.kind, strings.Join(Schedules(), ", "))
	}
	return nil
}

// at is the rate of update k, from 0: it rises linearly over the warm-up, and falls from then to the end.
func (s schedule) at(k int) float64 {
	if k < s.warmup {
		return s.rate * float64(k+1) / float64(s.warmup)
	}
	part := float64(k-s.warmup) / float64(max(s.updates-s.warmup, 1))
	switch s.kind {
	case Linear:
		return s.rate * (1 - part)
	case Cosine:
		return s.rate * 0.5 * (1 + ir.Cos(float64(math.Pi*part)))
	}
	return s.rate
}
