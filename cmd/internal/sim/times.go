package sim

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
)

// times are what a step takes of all loops that run at once: world, pictures and algorithm.
type times struct {
	Loops    int       `json:"loops"`
	Device   string    `json:"device"`            // that it was measured on
	Cold     float64   `json:"cold_us"`           // the first step
	Warm     *float64  `json:"warm_us"`           // mean of the others; nil: there are none
	Machine  string    `json:"predicted_device"`  // that the rest is predicted for, with what is known of its constants
	ColdThen predicted `json:"predicted_cold_us"` // with weights in memory
	WarmThen predicted `json:"predicted_warm_us"` // with weights where a run leaves them
}

type predicted = cost.Figure

// timesOf are those of a run that has ended, predicted for the default target.
func timesOf(ctx context.Context, device string, r *scenario.Result) (*times, error) {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	x := &times{Loops: r.Timing.Loops, Device: device, Cold: us(r.Timing.Cold)}
	if r.Timing.Warm > 0 {
		warm := us(r.Timing.Warm)
		x.Warm = &warm
	}
	on := target.Default()
	p, err := profile.Run(ctx, r.Program, &r.Program.Variants[0], "run", on)
	if err != nil {
		return nil, fmt.Errorf("--times: predicting a step for %s: %w", on.Device, err)
	}
	x.Machine, x.ColdThen, x.WarmThen = on.Device, p.ColdRange, p.Range
	return x, nil
}

// shown prints them; name is whose they are.
func (x *times) shown(w io.Writer, name string) error {
	if x == nil {
		return nil
	}
	warm := ""
	if x.Warm != nil {
		warm = fmt.Sprintf(", then %s", duration(*x.Warm))
	}
	_, err := fmt.Fprintf(w, "a step of %s of %s, measured on %s: %s cold%s\na step of %s of %s, predicted for %s: %s cold, then %s\n",
		console.Count(x.Loops, "loop"), name, x.Device, duration(x.Cold), warm,
		console.Count(x.Loops, "loop"), name, x.Machine, span(x.ColdThen), span(x.WarmThen))
	return err
}

// span is a prediction with its range.
func span(f predicted) string {
	return fmt.Sprintf("%s (%s to %s)", duration(f.Middle), duration(f.Low), duration(f.High))
}

// duration is a time in µs as text.
func duration(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.3g µs", us)
}
