// Package nvml reads the state of a machine's GPUs from NVIDIA's management layer: identity, memory, clocks, power,
// temperature and utilisation. It has two sources: the management library (opened at run time, without cgo) and the
// output of nvidia-smi.
//
//	library.go   NVML
//	smi.go       nvidia-smi
//
// A figure that a GPU does not report is absent, never zero: GB10 shares its memory with the CPU, and NVML returns
// NOT_SUPPORTED for its size.
package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// Source is a way to query the management layer.
type Source interface {
	// Name is NVML or nvidia-smi.
	Name() string
	// Read queries the current state of all GPUs.
	Read(ctx context.Context) (Snapshot, error)
	Close() error
}

// Clock is a Source that reads one clock within microseconds, as often as every run of a measurement.
type Clock interface {
	// SM is the clock of the multiprocessors, in MHz, of the GPU at a PCI address; of the only GPU, whatever the
	// address.
	SM(bus string) Figure
}

// Snapshot is the state of all GPUs at one moment.
type Snapshot struct {
	Driver string `json:"driver"`         // 580.95.05
	CUDA   string `json:"cuda,omitempty"` // newest CUDA version that the driver supports: 13.0
	GPUs   []GPU  `json:"gpus"`
}

// GPU is one GPU.
type GPU struct {
	Index       int     `json:"index"`
	Name        string  `json:"name"`
	UUID        string  `json:"uuid"`
	Bus         string  `json:"bus"`   // PCI: 0000000f:01:00.0
	Major       int     `json:"major"` // compute capability; 0 unknown
	Minor       int     `json:"minor"`
	MemoryTotal Figure  `json:"memory_total"` // bytes
	MemoryUsed  Figure  `json:"memory_used"`  // bytes
	ClockMHz    Figure  `json:"clock_mhz"`    // of the SMs
	ClockMax    Figure  `json:"clock_max_mhz"`
	MemoryMHz   Figure  `json:"memory_mhz"`
	PowerWatts  Figure  `json:"power_watts"`
	PowerLimit  Figure  `json:"power_limit_watts"`
	Celsius     Figure  `json:"celsius"`
	Utilisation Figure  `json:"utilisation_percent"`
	Throttle    Reasons `json:"throttle"`
}

// Figure is a number that may be absent.
type Figure struct {
	Value float64
	OK    bool
}

// Known returns a present figure.
func Known(v float64) Figure { return Figure{v, true} }

// MarshalJSON encodes the number, or null if it is absent.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.OK {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (f *Figure) UnmarshalJSON(b []byte) error {
	*f = Figure{}
	if string(b) == "null" {
		return nil
	}
	f.OK = true
	return json.Unmarshal(b, &f.Value)
}

// Format formats the figure with a verb for floats, or as n/a if it is absent.
func (f Figure) Format(verb string) string {
	if !f.OK {
		return "n/a"
	}
	return fmt.Sprintf(verb, f.Value)
}

// Reasons are NVML's bits for why clocks are below their maximum (nvmlClocksThrottleReasons*).
type Reasons uint64

// slowdowns are the reasons that point to a problem with power or cooling, unlike idle clocks and clocks set by the
// user.
var slowdowns = []struct {
	bit  Reasons
	name string
}{
	{0x04, "power cap"}, {0x08, "hardware slowdown"}, {0x20, "thermal slowdown"}, {0x40, "hardware thermal slowdown"}, {0x80, "power brake"},
}

// Slowdowns names the reasons that slow a busy GPU down.
func (r Reasons) Slowdowns() []string {
	out := []string{}
	for _, s := range slowdowns {
		if r&s.bit != 0 {
			out = append(out, s.name)
		}
	}
	return out
}

// MarshalJSON encodes the slowdowns by name.
func (r Reasons) MarshalJSON() ([]byte, error) { return json.Marshal(r.Slowdowns()) }

// UnmarshalJSON decodes names of slowdowns; bits without a name are lost.
func (r *Reasons) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return err
	}
	*r = 0
	for _, s := range slowdowns {
		if slices.Contains(names, s.name) {
			*r |= s.bit
		}
	}
	return nil
}

// Capped reports whether a busy GPU runs below half its maximum clock, which can happen without a reported reason: a
// known fault of GB10's power delivery holds its clocks at 500–850 MHz.
func (g *GPU) Capped() bool {
	return g.Utilisation.OK && g.Utilisation.Value >= 50 && g.ClockMHz.OK && g.ClockMax.OK && g.ClockMHz.Value > 0 && g.ClockMHz.Value < g.ClockMax.Value/2
}

// Options configures the sources.
type Options struct {
	SMI     string        // path of nvidia-smi; "" searches the PATH
	Timeout time.Duration // of one call of nvidia-smi; 0 means ten seconds, since without persistence mode it wakes the GPU first
}

// ErrUnavailable means that neither source is available.
var ErrUnavailable = errors.New("no management layer")

// Open opens the library, or finds nvidia-smi if that fails. The error gives the reason for each.
func Open(opt Options) (Source, error) {
	lib, first := openLibrary()
	if first == nil {
		return lib, nil
	}
	smi, second := openSMI(opt)
	if second == nil {
		return smi, nil
	}
	if errors.Is(first, dlopen.ErrUnsupported) {
		return nil, fmt.Errorf("%w: %v", ErrUnavailable, second)
	}
	return nil, fmt.Errorf("%w: %v; %v", ErrUnavailable, first, second)
}
