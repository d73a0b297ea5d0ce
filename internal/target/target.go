// Package target says what each compilation target can do and how fast it is: the facts that schedules, the cost model
// and the printer of PTX need. Figures for sm_121 are published measurements of GB10, for the others data sheets; sm_90 runs
// mma.sync on 8-bit floats as conversions and f16 mma, below f16's rate.
package target

import (
	"fmt"
	"strings"
)

// Target is one GPU architecture as the code generator sees it.
type Target struct {
	Name        string // --target name and directory name: sm_121
	PTX         string // .target directive
	Device      string // a device of this architecture, for cost figures
	Capability  int    // compute capability ×10
	SMs         int
	ClockGHz    float64
	SharedBlock int     // bytes a block can have with the opt-in attribute
	SharedSM    int     // bytes of an SM
	RegistersSM int     // 32-bit registers of an SM
	WarpsSM     int     // resident warps
	BlocksSM    int     // resident blocks
	F64PerClock int     // f64 multiply-adds a clock of an SM (CUDA programming guide, arithmetic instructions)
	L2Bytes     int     // L2 cache
	MemoryGBps  float64 // DRAM bandwidth, measured where known
	L2GBps      float64 // L2 bandwidth, estimate
	F16MMATFLOPS,
	F32FMATFLOPS,
	FP8MMATFLOPS,
	NVFP4MMATFLOPS float64 // dense rates with f32 accumulation, whole device
	LaunchUS        float64 // cost of a graph node, µs
	DependentLaunch bool    // griddepcontrol (programmatic dependent launch)
	FP8             bool    // mma.sync on e4m3 and e5m2, conversions from and to them
	NVFP4           bool    // block-scaled mma.sync on e2m1, conversions to it; wants the architecture-specific .target
}

var targets = []Target{
	{Name: "sm_121", PTX: "sm_121", Device: "gb10", Capability: 121, SMs: 48, ClockGHz: 2.4, SharedBlock: 101376, SharedSM: 102400, RegistersSM: 65536, WarpsSM: 48, BlocksSM: 24, F64PerClock: 2,
		L2Bytes: 24 << 20, MemoryGBps: 218, L2GBps: 1500, F16MMATFLOPS: 91, F32FMATFLOPS: 29, FP8MMATFLOPS: 188, NVFP4MMATFLOPS: 356, LaunchUS: 0.58, DependentLaunch: true, FP8: true, NVFP4: true},
	{Name: "sm_90", PTX: "sm_90", Device: "h200", Capability: 90, SMs: 132, ClockGHz: 1.98, SharedBlock: 232448, SharedSM: 233472, RegistersSM: 65536, WarpsSM: 64, BlocksSM: 32, F64PerClock: 64,
		L2Bytes: 50 << 20, MemoryGBps: 4300, L2GBps: 7000, F16MMATFLOPS: 620, F32FMATFLOPS: 67, FP8MMATFLOPS: 500, LaunchUS: 0.6, DependentLaunch: true, FP8: true},
	{Name: "sm_80", PTX: "sm_80", Device: "a100", Capability: 80, SMs: 108, ClockGHz: 1.41, SharedBlock: 166912, SharedSM: 167936, RegistersSM: 65536, WarpsSM: 64, BlocksSM: 32, F64PerClock: 32,
		L2Bytes: 40 << 20, MemoryGBps: 1555, L2GBps: 4500, F16MMATFLOPS: 312, F32FMATFLOPS: 19.5, LaunchUS: 1.0},
}

// Lookup returns the target of that name, or an error that lists what there is.
func Lookup(name string) (*Target, error) {
	for i := range targets {
		if targets[i].Name == name {
			return &targets[i], nil
		}
	}
	return nil, fmt.Errorf("unknown target %q (have %s)", name, strings.Join(Names(), ", "))
}

// Names lists the targets, default first.
func Names() []string {
	var out []string
	for _, t := range targets {
		out = append(out, t.Name)
	}
	return out
}
