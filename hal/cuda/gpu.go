package cuda

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
)

// Options chooses driver and device.
type Options struct {
	Library string // "" for libcuda.so.1
	Ordinal int
	Cache   string // directory for what the driver compiles from PTX; "" for none
	Homes   string // directory of what was measured of devices (hal/placement); "" for none
	// Switches turns mechanisms off. Without the carve-out the driver chooses how much of an SM's L1 is shared
	// memory; by default it is all of it for every kernel.
	Switches hal.Switches

	instead func(call string, args []uintptr) int // what tests call in place of a library
}

// System describes the driver and its GPUs.
type System struct {
	CUDA string // newest CUDA version that the driver supports: 13.0
	GPUs []GPU
}

// GPU describes one GPU, as the driver reports it.
type GPU struct {
	Ordinal      int
	Name         string
	Bus          string // PCI address, as NVML writes it
	Major, Minor int    // compute capability
	SMs          int
	Memory       int64 // bytes; where memory is unified, the whole machine's
	SharedBlock  int   // bytes of shared memory a block may have
	L2Bytes      int
	ClockMHz     int

	// How it shares memory with the host.
	Integrated        bool // GPU and host have one memory
	CanMapHost        bool
	Managed           bool
	ConcurrentManaged bool // the host may touch managed memory while kernels run
	HostPageTables    bool // GPU and host share page tables (NVLink-C2C)
}

// Target is the compilation target of the GPU: sm_121.
func (g *GPU) Target() string { return fmt.Sprintf("sm_%d%d", g.Major, g.Minor) }

// Ranked orders the GPUs, best first: the newest architecture, then the most SMs, then the most memory, then the
// driver's order.
func (s *System) Ranked() []GPU {
	out := slices.Clone(s.GPUs)
	slices.SortStableFunc(out, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(b.Major, a.Major), cmp.Compare(b.Minor, a.Minor), cmp.Compare(b.SMs, a.SMs), cmp.Compare(b.Memory, a.Memory))
	})
	return out
}
