package emu

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/hal"
	budget "github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Options of a device.
type Options struct {
	Check   bool // find races, undefined reads and what else Rule lists
	Workers int  // thread blocks at a time; 0: one a core
	// StepLimit bounds the instructions that a block may execute, a warp's instruction counting one; 0: 2^32.
	StepLimit int64
	// Profile, where set, is called after each launch with what it did. Counting slows a launch down a few times.
	Profile func(*Counts)
	// CountOnly says that counts are all that is wanted of a profiled run: instructions on which none hangs are
	// counted but not executed, and what launches write is of no use.
	CountOnly bool
	// Engine executes the kernels.
	Engine Engine
	// CutOff makes mma add as some tensor cores do: by opcode, how many bits of a sum's fraction below its largest
	// term survive (ptx.Def.CutOff). The interpreter then executes all kernels.
	CutOff map[string]int
	// Discrete gives the device memory of its own, as a GPU on a card has: the host reaches it by Read and Write alone.
	Discrete bool
	// Memory bounds the bytes that are allocated at a time; 0: the budget of the process alone (internal/memory).
	Memory int
	// Switches are mechanisms that Info says are off. None of them means anything to the CPU device.
	Switches hal.Switches
}

// Traffic is what was moved, in bytes, since the device was opened.
type Traffic struct {
	ToDevice, ToHost int64 // by Write and Read of memory
	OnDevice         int64 // by copies of graphs
}

// Device is a hal.Device that executes PTX on the CPU.
type Device struct {
	opts Options

	engine   engine
	mu       sync.Mutex
	memories []*memory
	next     uint64
	used     int      // bytes of memories
	idle     []*block // of launches that have ended

	toDevice, toHost, onDevice atomic.Int64
}

// Traffic returns the counts. What the host does to memory that it shares with the device is not counted.
func (d *Device) Traffic() Traffic {
	return Traffic{d.toDevice.Load(), d.toHost.Load(), d.onDevice.Load()}
}

var _ hal.Device = (*Device)(nil)

// Open returns a new device with an address space of its own.
func Open(opts Options) (*Device, error) {
	if opts.Workers < 0 || opts.StepLimit < 0 || opts.Memory < 0 {
		return nil, fmt.Errorf("emu: negative option: %+v", opts)
	}
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.StepLimit == 0 {
		opts.StepLimit = 1 << 32
	}
	for op, bits := range opts.CutOff {
		if d := ptx.Lookup(op); d == nil || d.CutOff(bits) == nil {
			return nil, fmt.Errorf("emu: sums of %s cannot be cut off to %d bits: want an mma of floats, and 1 to 30 bits", op, bits)
		}
	}
	if len(opts.CutOff) > 0 {
		if opts.Engine != Auto && opts.Engine != Specification {
			return nil, fmt.Errorf("emu: engine %s adds as the specification does, and nothing else: leave it out", opts.Engine)
		}
		opts.Engine = Specification
	}
	level, err := opts.Engine.level()
	if err != nil {
		return nil, err
	}
	steps := opts.Check || opts.Profile != nil || opts.Engine == Interpreter
	return &Device{opts: opts, next: firstAddress, engine: engine{level: level, steps: steps}}, nil
}

// CutOffs is Options.CutOff for a device that adds as a target's tensor cores were seen to (target.SumBits): bits by
// element type become bits by opcode. It is nil where all sums are those of f32.
func CutOffs(sumBits map[string]int) map[string]int {
	if len(sumBits) == 0 {
		return nil
	}
	cut := map[string]int{}
	for _, op := range ptx.Opcodes() {
		for dtype, bits := range sumBits {
			if strings.Contains(op, ".f32."+dtype+"."+dtype+".f32") && ptx.Lookup(op).CutOff(bits) != nil {
				cut[op] = bits
			}
		}
	}
	return cut
}

// Info describes the device. It has the shared memory that any target's blocks may have; a module's target bounds it
// further.
func (d *Device) Info() hal.Info {
	info := hal.Info{Name: "cpu", Backend: "emu", Unified: !d.opts.Discrete, Memory: d.opts.Memory, Switches: d.opts.Switches}
	for _, t := range target.All() {
		info.SharedBlock = max(info.SharedBlock, t.SharedBlock)
	}
	return info
}

// Alloc returns zeroed memory. With checks on, ScratchMemory counts as never written.
func (d *Device) Alloc(bytes int, kind hal.MemoryKind) (hal.Memory, error) {
	if text := d.reserve(bytes, kind); text != "" {
		return nil, &hal.Error{Call: "emu.Alloc", Text: text, Err: hal.ErrOutOfMemory}
	}
	m := &memory{dev: d, kind: kind, data: make([]byte, bytes)}
	if d.opts.Check && kind == hal.ScratchMemory {
		m.forget(0, bytes)
	}
	d.place(m)
	return m, nil
}

// place gives memory addresses.
func (d *Device) place(m *memory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.addr = d.next
	d.next += (uint64(len(m.data)) + memoryGap + memoryAlign - 1) &^ (memoryAlign - 1)
	d.memories = append(d.memories, m)
}

// reserve counts bytes as allocated, or says why there are not so many. Page-locked memory is the host's.
func (d *Device) reserve(bytes int, kind hal.MemoryKind) (why string) {
	if bytes < 0 || bytes > math.MaxInt/2 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind != hal.PinnedMemory && d.opts.Memory > 0 && bytes > d.opts.Memory-d.used {
		return fmt.Sprintf("%d bytes", bytes)
	}
	if err := budget.Default().Check(int64(d.used+bytes), "the CPU device"); err != nil {
		return err.Error()
	}
	if kind != hal.PinnedMemory {
		d.used += bytes
	}
	return ""
}

// Close releases nothing that the garbage collector would not; memory stays readable.
func (d *Device) Close() error { return nil }

// module is parsed PTX, its kernels decoded.
type module struct {
	name     string
	target   string
	programs map[string]*program
}

func (m *module) Close() error { return nil }

// Load parses and decodes the image's PTX.
func (d *Device) Load(ctx context.Context, image hal.Image) (hal.Module, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	refuse := func(err error) error {
		return &hal.Error{Call: "emu.Load", Text: fmt.Sprintf("%s: %v", image.Name, err), Err: hal.ErrBadModule}
	}
	if image.PTX == "" {
		return nil, refuse(fmt.Errorf("the image has no PTX"))
	}
	pm, err := ptx.Parse(image.PTX)
	if err != nil {
		return nil, refuse(err)
	}
	m := &module{name: image.Name, target: pm.Target, programs: map[string]*program{}}
	for _, k := range pm.Kernels {
		p, err := decode(k)
		if err != nil {
			return nil, refuse(err)
		}
		for i := range p.code {
			if bits := d.opts.CutOff[p.code[i].op()]; bits > 0 {
				p.code[i].fMMA = p.code[i].def.CutOff(bits)
			}
		}
		m.programs[k.Name] = p
	}
	return m, nil
}
