package info

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/hal/machine"
)

// moment is one line of --monitor --json.
type moment struct {
	Time            time.Time     `json:"time"`
	MemoryAvailable int64         `json:"memory_available"`
	GPUs            []machine.GPU `json:"gpus"`
}

// monitor prints a line per GPU at each interval until the context or the duration ends; a duration of 0 has no end.
func (t *tool) monitor(ctx context.Context, interval, duration time.Duration) (err error) {
	p, done, err := t.prober.Keep()
	if err != nil {
		return fmt.Errorf("nothing to monitor: %w", err)
	}
	defer done()
	if t.JSON != "" && t.JSON != "-" { // lines appear as they are measured, so the file is not written at once
		file, err := os.Create(t.JSON)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		t.out = file
	}
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
			return fmt.Errorf("nothing to monitor: no GPU: %s", strings.Join(m.Missing, "; "))
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
	if t.JSON != "" {
		return json.NewEncoder(t.out).Encode(moment{now, m.MemoryAvailable, m.GPUs})
	}
	if head {
		fmt.Fprintf(t.out, "%-8s  %3s  %6s  %9s  %8s  %6s  %22s  %s\n", "time", "GPU", "busy %", "clock MHz", "power W", "temp C", "memory used", "throttled")
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		memory := memorySize(g.MemoryUsed.Value) + " of " + memorySize(g.MemoryTotal.Value)
		_, err := fmt.Fprintf(t.out, "%-8s  %3d  %6s  %9s  %8s  %6s  %22s  %s\n", now.Format("15:04:05"), g.Index, g.Utilisation.Format("%.0f"),
			g.ClockMHz.Format("%.0f"), g.PowerWatts.Format("%.1f"), g.Celsius.Format("%.0f"), memory, strings.Join(throttling(&g.GPU), ", "))
		if err != nil {
			return err
		}
	}
	return nil
}
