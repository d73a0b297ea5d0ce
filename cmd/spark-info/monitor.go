package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/machine"
	"github.com/spark-compile/spark-compile/hal/nvml"
)

// held keeps a source open between surveys.
type held struct{ nvml.Source }

func (held) Close() error { return nil }

// moment is a line of --monitor --json.
type moment struct {
	Time            time.Time     `json:"time"`
	MemoryAvailable int64         `json:"memory_available"`
	GPUs            []machine.GPU `json:"gpus"`
}

// monitor prints a line a GPU and interval until the context or the duration ends; no duration is for ever.
func (t *tool) monitor(ctx context.Context, interval, duration time.Duration) error {
	p := t.prober
	if p.Management == nil {
		p.Management = func() (nvml.Source, error) { return nvml.Open(nvml.Options{}) }
	}
	source, err := p.Management()
	if err != nil {
		return fmt.Errorf("nothing to monitor: %w", err)
	}
	defer source.Close()
	p.Management = func() (nvml.Source, error) { return held{source}, nil }
	if p.Driver == nil {
		p.Driver = func() (*cuda.System, error) { return cuda.List(cuda.Options{}) }
	}
	sys, failure := p.Driver()
	p.Driver = func() (*cuda.System, error) { return sys, failure }

	if duration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, duration)
		defer stop()
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for first := true; ; first = false {
		m := p.Survey(ctx)
		if ctx.Err() != nil && !first {
			return nil
		}
		if len(m.GPUs) == 0 {
			return errors.Join(errors.New("nothing to monitor: no GPU"), errors.New(fmt.Sprint(m.Missing)))
		}
		if err := t.show(m, first); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (t *tool) show(m *machine.Machine, head bool) error {
	now := time.Now()
	if t.JSON {
		return json.NewEncoder(t.out).Encode(moment{now, m.MemoryAvailable, m.GPUs})
	}
	if head {
		fmt.Fprintf(t.out, "%-8s  %3s  %6s  %9s  %8s  %6s  %22s  %s\n", "time", "GPU", "busy %", "clock MHz", "power W", "temp C", "memory used", "throttled")
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		memory := figureSize(g.MemoryUsed) + " of " + figureSize(g.MemoryTotal)
		slow := throttling(&g.GPU)
		if slow != "" {
			slow = slow[len(", throttled: "):]
		}
		_, err := fmt.Fprintf(t.out, "%-8s  %3d  %6s  %9s  %8s  %6s  %22s  %s\n", now.Format("15:04:05"), g.Index, g.Utilisation.Format("%.0f"),
			g.ClockMHz.Format("%.0f"), g.PowerWatts.Format("%.1f"), g.Celsius.Format("%.0f"), memory, slow)
		if err != nil {
			return err
		}
	}
	return nil
}
