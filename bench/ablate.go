package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/runtime"
)

// Without is the device that is measured once more, opened without one mechanism of hal.SwitchNames.
type Without struct {
	Mechanism string
	Device    hal.Device
}

// Ablation is what a mechanism is worth to a program: times with it and without it.
type Ablation struct {
	Mechanism      string    `json:"mechanism"`
	Unused         string    `json:"unused,omitempty"` // why it was not measured
	LaunchToLaunch *Contrast `json:"launch_to_launch,omitempty"`
	Cold           *Contrast `json:"cold,omitempty"` // with the L2 cache flushed
}

// Contrast compares samples that were taken in turns.
type Contrast struct {
	OnMS  float64 `json:"on_ms"`   // median with the mechanism
	OffMS float64 `json:"off_ms"`  // median without it
	Ratio float64 `json:"ratio"`   // median of without over with, turn by turn
	P     float64 `json:"p_value"` // Mann–Whitney U, two-sided
}

// unused says why a program cannot gain by a mechanism on a device. It is empty where it can.
func unused(mechanism string, v *runtime.Variant, d hal.Device) string {
	launch := func(has func(l *runtime.Launch) bool) bool {
		e := v.Entry("run")
		return e != nil && slices.ContainsFunc(e.Launches, func(l runtime.Launch) bool { return has(&l) })
	}
	switch {
	case !hasClock(d):
		return "the CPU device has none"
	case slices.Contains(d.Info().Switches.Off(), mechanism):
		return "it is off"
	case mechanism == "pdl" && !launch(func(l *runtime.Launch) bool { return l.Dependent }):
		return "no launch is a dependent one"
	case mechanism == "prefetch" && !launch(func(l *runtime.Launch) bool { return l.Prefetch != nil }):
		return "no launch prefetches"
	case mechanism == "hints" && !launch(func(l *runtime.Launch) bool { return l.ReadOnce }):
		return "no launch reads weights as evict-first"
	}
	return ""
}

// ablate times the graph of a session and the same program on the device without a mechanism, in turns, so that both see the same clocks.
func ablate(ctx context.Context, p *runtime.Program, s *runtime.Session, d hal.Device, x Without, opt Options, w *watcher) (a *Ablation, err error) {
	a = &Ablation{Mechanism: x.Mechanism}
	if a.Unused = unused(x.Mechanism, s.Model().Variant, d); a.Unused != "" {
		return a, nil
	}
	other, err := Open(ctx, p, x.Device, opt.Target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	if err := other.Run(ctx); err != nil {
		return nil, err
	}
	on, err := timerOf(ctx, s, d, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, on.free()) }()
	off, err := timerOf(ctx, other, x.Device, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, off.free()) }()
	err = w.during(func() error {
		if a.LaunchToLaunch, err = inTurns(ctx, opt, on.launchToLaunch, off.launchToLaunch); err == nil && on.flush != nil {
			a.Cold, err = inTurns(ctx, opt, on.cold, off.cold)
		}
		return err
	})
	return a, err
}

// inTurns samples with and without, one after the other.
func inTurns(ctx context.Context, opt Options, on, off func(context.Context) (float64, error)) (*Contrast, error) {
	var times [2][]float64
	var ratios []float64
	for i := range opt.Warmup + opt.Runs {
		a, err := on(ctx)
		if err != nil {
			return nil, err
		}
		b, err := off(ctx)
		if err != nil {
			return nil, err
		}
		if i >= opt.Warmup {
			times[0], times[1], ratios = append(times[0], a), append(times[1], b), append(ratios, b/a)
		}
	}
	return &Contrast{OnMS: report.Summarise(times[0]).P50, OffMS: report.Summarise(times[1]).P50, Ratio: report.Summarise(ratios).P50,
		P: MannWhitney(times[0], times[1])}, nil
}

// String says what the mechanism is worth.
func (a *Ablation) String() string {
	if a.Unused != "" {
		return fmt.Sprintf("%s: not measured, %s", a.Mechanism, a.Unused)
	}
	out := fmt.Sprintf("%s: %s", a.Mechanism, a.LaunchToLaunch)
	if a.Cold != nil {
		out += fmt.Sprintf(", cold %s", a.Cold)
	}
	return out
}

func (c *Contrast) String() string {
	p := fmt.Sprintf("p = %.2g", c.P)
	if c.P < .001 {
		p = "p < 0.001"
	}
	return fmt.Sprintf("%.2f × without it (%s)", c.Ratio, p)
}
