// Package target says what each compilation target can do and how fast it is: facts for schedules, the cost model, the PTX
// printer and the CPU device. A new target is a row of the table. Figures of GB10 are published measurements, those of the
// other devices come from data sheets; Hopper executes mma.sync on 8-bit floats as conversions and f16 mma, slower than f16.
package target

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Target is one GPU architecture as the code generator sees it.
type Target struct {
	Name            string // --target name, directory name and .target directive: sm_121
	Device          string // a device of this architecture: the one that the figures describe
	ISA             [2]int // PTX ISA version that introduced it (PTX ISA, release notes)
	SMs             int
	ClockGHz        float64
	SharedBlock     int     // bytes that a block can use with the opt-in attribute (CUDA programming guide, compute capabilities)
	SharedSM        int     // bytes of an SM
	RegistersSM     int     // 32-bit registers of an SM
	WarpsSM         int     // resident warps
	BlocksSM        int     // resident blocks
	F64PerClock     int     // f64 multiply-adds a clock of an SM (CUDA programming guide, arithmetic instructions)
	L2Bytes         int     // L2 cache
	MemoryGBps      float64 // DRAM bandwidth, measured where known
	L2ReadGBps      float64 // bandwidth of L2, estimates
	L2WriteGBps     float64
	TFLOPS          map[string]float64 // of the whole device by element type, dense, accumulated in f32: f32 by fma, e2m1 with block scales, others by mma.sync
	LaunchUS        float64            // cost of a graph node, µs
	DependentLaunch bool               // griddepcontrol (programmatic dependent launch)

	// SumBits is how many bits below a sum's largest term the mma of an element type keeps, where a device was seen to keep fewer than the 23 of
	// f32: contractions then add partial sums in f32. Of no target that is known: Hopper's 13 of 8-bit floats are those of wgmma, and its
	// mma.sync converts them to f16.
	SumBits map[string]int

	Measured map[string]Figure // constants of the cost model, by name, as one machine was measured (internal/cost); nil in the table
}

// Figure is what is known of one constant of a machine: its least, its middle and its greatest value, of published figures or of samples.
type Figure struct {
	Low    float64 `json:"low"`
	Middle float64 `json:"middle"`
	High   float64 `json:"high"`
}

// targets is the table, the default first.
var targets = []*Target{
	{Name: "sm_121", Device: "gb10", ISA: [2]int{8, 8}, SMs: 48, ClockGHz: 2.4, SharedBlock: 101376, SharedSM: 102400, RegistersSM: 65536, WarpsSM: 48, BlocksSM: 24, F64PerClock: 2,
		L2Bytes: 24 << 20, MemoryGBps: 218, L2ReadGBps: 1500, L2WriteGBps: 980, TFLOPS: map[string]float64{"f32": 29, "f16": 91, "bf16": 91, "e4m3": 188, "e2m1": 356}, LaunchUS: 0.58, DependentLaunch: true},
	{Name: "sm_90", Device: "h200", ISA: [2]int{8, 0}, SMs: 132, ClockGHz: 1.98, SharedBlock: 232448, SharedSM: 233472, RegistersSM: 65536, WarpsSM: 64, BlocksSM: 32, F64PerClock: 64,
		L2Bytes: 50 << 20, MemoryGBps: 4300, L2ReadGBps: 7000, L2WriteGBps: 4600, TFLOPS: map[string]float64{"f32": 67, "f16": 620, "bf16": 620, "e4m3": 500}, LaunchUS: 0.6, DependentLaunch: true},
	{Name: "sm_80", Device: "a100", ISA: [2]int{7, 0}, SMs: 108, ClockGHz: 1.41, SharedBlock: 166912, SharedSM: 167936, RegistersSM: 65536, WarpsSM: 64, BlocksSM: 32, F64PerClock: 32,
		L2Bytes: 40 << 20, MemoryGBps: 1555, L2ReadGBps: 4500, L2WriteGBps: 3000, TFLOPS: map[string]float64{"f32": 19.5, "f16": 312, "bf16": 312}, LaunchUS: 1.0},
}

// All lists the targets, the default first.
func All() []*Target { return slices.Clone(targets) }

// Default is the target where nobody names one.
func Default() *Target { return targets[0] }

// Oldest is the target of the oldest devices: all others run its PTX too.
func Oldest() *Target { return targets[len(targets)-1] }

// Names lists the targets' names, the default first.
func Names() []string { return names(func(t *Target) string { return t.Name }) }

// Devices lists the devices that the figures describe, in the order of Names.
func Devices() []string { return names(func(t *Target) string { return t.Device }) }

func names(of func(*Target) string) []string {
	var out []string
	for _, t := range targets {
		out = append(out, of(t))
	}
	return out
}

// Lookup returns the target of that name; the error lists the names.
func Lookup(name string) (*Target, error) {
	if i := slices.Index(Names(), name); i >= 0 {
		return targets[i], nil
	}
	return nil, fmt.Errorf("unknown target %q: use one of %s", name, strings.Join(Names(), ", "))
}

// OfDevice returns the target whose figures describe that device; the error lists the devices.
func OfDevice(name string) (*Target, error) {
	if i := slices.Index(Devices(), name); i >= 0 {
		return targets[i], nil
	}
	return nil, fmt.Errorf("no figures of device %q: use one of %s", name, strings.Join(Devices(), ", "))
}

// Multiplies reports whether the target has arithmetic on an element type. Tensor cores that multiply 8- or 4-bit floats come
// with conversions of them.
func (t *Target) Multiplies(dtype string) bool { return t.TFLOPS[dtype] > 0 }

// Parse splits an architecture's name: sm_121a is 121 and "a". The architecture need not be in the table.
func Parse(arch string) (capability int, suffix string, err error) {
	digits, ok := strings.CutPrefix(arch, "sm_")
	if n := len(digits); n > 0 && (digits[n-1] == 'a' || digits[n-1] == 'f') {
		digits, suffix = digits[:n-1], digits[n-1:]
	}
	if capability, err = strconv.Atoi(digits); !ok || err != nil || capability <= 0 {
		return 0, "", fmt.Errorf("unknown target %q: want sm_ and a number, as in %s", arch, targets[0].Name)
	}
	return capability, suffix, nil
}

// For returns the newest target whose code a device of that architecture runs; the default for "", a device that runs any.
func For(arch string) (*Target, error) {
	if arch == "" {
		return targets[0], nil
	}
	i, err := Newest(arch, Names())
	if err == nil && i < 0 {
		err = fmt.Errorf("%s is older than every target (%s): no code can be compiled for it", arch, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return targets[i], nil
}

// Newest returns the index of the newest architecture among names whose code a device of another runs, since PTX runs on
// every later one; -1 if there is none.
func Newest(arch string, names []string) (int, error) {
	have, _, err := Parse(arch)
	if err != nil {
		return -1, err
	}
	best, newest := -1, 0
	for i, name := range names {
		if n, _, err := Parse(name); err == nil && n <= have && n > newest {
			best, newest = i, n
		}
	}
	return best, nil
}
