package info

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/machine"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/console"
)

// status is the output of --json.
type status struct {
	Version  int              `json:"version"`
	Machine  *machine.Machine `json:"machine"`
	Device   device           `json:"device"`
	Settings []config.Setting `json:"settings"`
	Checks   []check          `json:"checks,omitempty"`
}

// device is the device that a program would run on.
type device struct {
	Name    string `json:"name,omitempty"`
	Backend string `json:"backend,omitempty"`
	Target  string `json:"target,omitempty"`
	Unified bool   `json:"unified"`
	Notice  string `json:"notice,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (s *status) failed() bool {
	return slices.ContainsFunc(s.Checks, func(c check) bool { return c.Status == failed })
}

func (s *status) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(label string, lines ...string) {
		for _, line := range lines {
			fmt.Fprintf(t, "%s\t%s\n", label, line)
			label = ""
		}
	}
	m := s.Machine
	row("machine", identity(m))
	row("platform", fmt.Sprintf("%s, %s, memory %s, %s available", m.Platform, console.Count(m.CPUs, "CPU"), memorySize(float64(m.MemoryTotal)), memorySize(float64(m.MemoryAvailable))))
	row("driver", driver(m))
	for i := range m.GPUs {
		row(fmt.Sprintf("GPU %d", m.GPUs[i].Index), gpu(&m.GPUs[i], i == m.Best)...)
	}
	if len(s.Checks) == 0 { // they say it, with remedies
		for _, x := range m.Missing {
			row("missing", x)
		}
	}
	row("device", s.Device.lines(m.Missing)...)
	var settings []string
	for _, x := range s.Settings {
		settings = append(settings, fmt.Sprintf("%s = %s (%s)", x.Name, x.Value, x.From))
		for _, warning := range x.Warnings {
			settings = append(settings, "warning: "+warning)
		}
	}
	row("settings", settings...)
	if err := t.Flush(); err != nil {
		return err
	}
	return printChecks(w, s.Checks)
}

// lines describe the device. What is missing for a better one stands elsewhere.
func (d *device) lines(missing []string) []string {
	text := "none: " + d.Error
	switch {
	case d.Error != "":
	case d.Unified:
		text = fmt.Sprintf("%s (%s): inputs and outputs are shared with the host", d.Name, d.Backend)
	default:
		text = fmt.Sprintf("%s (%s): inputs and outputs are copied", d.Name, d.Backend)
	}
	if d.Notice == "" || slices.ContainsFunc(missing, func(x string) bool { return strings.Contains(d.Notice, x) }) {
		return []string{text}
	}
	return []string{text, d.Notice}
}

func identity(m *machine.Machine) string {
	text := fmt.Sprintf("%s (%s)", m.Name(), m.Kind)
	if m.Kind == machine.Other {
		text = m.Name() + " (not a GB10 machine)"
	}
	if len(m.Evidence) > 0 {
		text += ", identified by " + strings.Join(m.Evidence, "; ")
	}
	return text
}

func driver(m *machine.Machine) string {
	if m.Driver == "" && m.CUDA == "" {
		return "none"
	}
	text := cmp.Or(m.Driver, "version unknown")
	if m.CUDA != "" {
		text += ", CUDA " + m.CUDA
	}
	if m.Management != "" {
		text += ", via " + m.Management
	}
	return text
}

// gpu describes a GPU, one line for each aspect.
func gpu(g *machine.GPU, best bool) []string {
	head := g.Name
	if g.Target != "" {
		head += fmt.Sprintf(", compute capability %d.%d", g.Major, g.Minor)
	}
	if g.SMs > 0 {
		head += ", " + console.Count(g.SMs, "SM")
	}
	if best {
		head += ": used by default"
	} else if g.Ordinal < 0 {
		head += ": hidden from programs by the driver"
	}
	memory := "memory " + memorySize(g.MemoryTotal.Value)
	if g.MemoryUsed.OK {
		memory += ", " + memorySize(g.MemoryUsed.Value) + " used"
	}
	if g.Unified {
		memory += ", shared with the CPU"
	}
	if g.MemorySource != "" {
		memory += " (" + g.MemorySource + ")"
	}
	clock := fmt.Sprintf("clock %s of %s MHz, %s W, %s °C, %s %% busy", g.ClockMHz.Format("%.0f"), g.ClockMax.Format("%.0f"), g.PowerWatts.Format("%.1f"), g.Celsius.Format("%.0f"), g.Utilisation.Format("%.0f"))
	if slow := throttling(&g.GPU); len(slow) > 0 {
		clock += ", throttled: " + strings.Join(slow, ", ")
	}
	return []string{head, memory, clock, fmt.Sprintf("tensor cores support %s; %s is the fastest", strings.Join(g.Precisions, ", "), g.Recommended)}
}

// throttling lists why a GPU's clock is low.
func throttling(g *nvml.GPU) []string {
	reasons := g.Throttle.Slowdowns()
	if g.Capped() {
		reasons = append(reasons, "clock capped, no reason reported: unplug the power supply for a minute")
	}
	return reasons
}

// memorySize formats bytes of memory; 0 is unknown.
func memorySize(v float64) string {
	if v == 0 {
		return "n/a"
	}
	if v < 1<<30 {
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", v/(1<<30))
}
