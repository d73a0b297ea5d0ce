// Package hal is the interface to the hardware: one Device interface with two implementations, hal/cuda (the NVIDIA
// driver) and hal/emu (the same PTX, executed on the CPU).
package hal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Device is a place where kernels run.
type Device interface {
	Info() Info
	// Alloc returns zeroed memory, aligned to 256 bytes.
	Alloc(bytes int, kind MemoryKind) (Memory, error)
	// Load makes a module from the first image that the device accepts: exact cubin, family cubin, PTX.
	Load(ctx context.Context, image Image) (Module, error)
	// Capture turns a launch list into a graph that can be run many times. All memory it names must outlive it.
	Capture(ctx context.Context, ops []Op) (Graph, error)
	Close() error
}

// Info describes a device.
type Info struct {
	Name        string // NVIDIA GB10, cpu …
	Backend     string // cuda, emu
	Target      string // sm_121 …; empty for emu, which runs any
	Unified     bool   // host and device share memory: Memory.Bytes is never nil
	SharedBlock int    // bytes of shared memory a block may have
	HostWeights bool   // weights lie best in memory that the host sees, as was measured of this machine (spark-info --check)
	Memory      int    // bytes that the device has, those in use included; 0: as many as the host gives

	Switches Switches // mechanisms that it was opened without
}

// Mapper is a Device whose kernels may read memory of the host's where it lies.
type Mapper interface {
	// Map returns bytes of the host's as memory for kernels to read, until Free. The caller keeps them alive, and as
	// they are while a run reads them. ErrNoSuchMemory where the device does not see all of the host's memory: what
	// it needs is copied then.
	Map(b []byte) (Memory, error)
}

// MemoryKind says what memory is for.
type MemoryKind int

// Kinds of memory.
const (
	DeviceMemory  MemoryKind = iota // the host reaches it by Read and Write
	HostVisible                     // inputs and outputs: mapped for the host where memory is unified
	ScratchMemory                   // an arena: holds nothing between runs of a graph; emu reports reads before writes
	PinnedMemory                    // page-locked memory of the host's that the device reads and writes (cuMemHostAlloc); ErrNoSuchMemory where a device has none
	ManagedMemory                   // one address for both, pages move as the driver likes (cuMemAllocManaged); ErrNoSuchMemory where a device has none
)

// Memory is a block of device memory.
type Memory interface {
	Size() int
	Addr() uint64 // device address
	// Bytes is the host's view, or nil where there is none. It is coherent between runs, not during one.
	Bytes() []byte
	Read(dst []byte, offset int) error
	Write(src []byte, offset int) error
	Free() error
}

// Image is a module in every form that a package holds.
type Image struct {
	Name   string // for messages
	Target string
	PTX    string
	Cubin  []byte
}

// Module is loaded code.
type Module interface {
	Close() error
}

// Op is one node of a graph: a kernel launch, or a copy if Kernel is empty.
type Op struct {
	Module Module
	Kernel string
	Grid   [3]int
	Block  [3]int
	Shared int
	Params []uint64 // device addresses and scalars, in order
	Sizes  []int    // bytes of each parameter
	After  []int    // indices of earlier ops that must have ended; ops that no path of After joins may run at once
	// Dependent allows programmatic dependent launch where After is the previous op alone, a kernel.
	Dependent bool
	// Varies allows Graph.Update.
	Varies bool
	// Priority is 0, or down to -5 for a kernel whose blocks are placed before those of higher numbers: a hint.
	Priority int
	// Reads and Writes are the ranges that the op may touch; emu enforces them when checks are on.
	Reads, Writes []Range

	// Prefetch lists constants that the kernel may bring into a cache besides what it reads. It does not load them.
	Prefetch []Range

	Dst, Src  Memory // of a copy
	DstOffset int
	SrcOffset int
	Bytes     int
}

// Moves reports whether another op is the same launch with parameters and ranges of its own, as Updater wants it.
func (op *Op) Moves(to *Op) bool {
	return op.Kernel == to.Kernel && op.Module == to.Module && op.Grid == to.Grid && op.Block == to.Block && op.Shared == to.Shared &&
		len(op.Params) == len(to.Params) && slices.Equal(op.After, to.After)
}

// Range is a range of device memory. Constant marks weights, which may be read before griddepcontrol.wait.
type Range struct {
	Memory   Memory
	Offset   int
	Bytes    int
	Constant bool
}

// Graph is a captured launch list.
type Graph interface {
	// Run executes all ops and returns when they have ended. When ctx ends first, Run returns its error: a device
	// that cannot be stopped goes on, which the error says (ErrBusy), and the next Run waits for it.
	Run(ctx context.Context) error
	// Wait waits for the end of a run whose context has ended, or that of ctx (ErrBusy).
	Wait(ctx context.Context) error
	// Close frees the graph. It is ErrBusy, and frees nothing, while a run goes on whose context has ended.
	Close() error
}

// Stopper is a Graph of a device that can be stopped.
type Stopper interface {
	// Stop ends a run whose context has ended, and returns when nothing runs any more. What the run has written is
	// then not known.
	Stop()
}

// Updater is a Graph whose ops may be given other parameters between runs.
type Updater interface {
	// Update replaces op i, whose Varies was set, by one of the same kernel, grid, block, shared memory and place in
	// the graph: parameters and ranges are its own. It is ErrBusy while a run goes on whose context has ended. After
	// an error the op is what it was.
	Update(i int, op Op) error
}

// Timer is a Graph of a device that has a clock of its own.
type Timer interface {
	// RunTimed launches the graph Timing.Runs times in a row on a stream that is busy when the first launch arrives,
	// and returns the time from the start of the first run to the end of the last on the device. The host's launches
	// overlap with what the device does, so the time divided by the runs is the launch-to-launch time, without the
	// latency that a caller of Run sees. Where the host was too slow for that it measures again, so the graph may run
	// more often. Errors are those of Run.
	RunTimed(ctx context.Context, t Timing) (time.Duration, error)
}

// Timing says what Timer.RunTimed times. The zero value times one run.
type Timing struct {
	Runs   int   // launches of the graph between the two readings of the clock; 0: 1
	Before Graph // a graph of the same device that runs once, untimed, right before them, to flush a cache; nil: none
}

// Errors to test for with errors.Is.
var (
	ErrNoDriver     = errors.New("no driver")
	ErrDriverTooOld = errors.New("driver too old")
	ErrNoDevice     = errors.New("no device")
	ErrOutOfMemory  = errors.New("out of memory")
	ErrNoSuchMemory = errors.New("not supported by the device")
	ErrBadModule    = errors.New("module refused")
	ErrNoVariant    = errors.New("no variant for the device")
	ErrDeviceLost   = errors.New("device lost")   // nothing works on the device in this process any more
	ErrBusy         = errors.New("still running") // what a run uses cannot be freed or used before it ends
)

// Error is a failed call of the device's interface.
type Error struct {
	Call string // cuModuleLoadData …
	Code int
	Text string // the driver's name of the code
	Err  error  // one of the errors above, or nil
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

func (e *Error) Unwrap() error { return e.Err }
