package runtime

// FormatVersion is the version of program.json; a loader rejects every other.
const FormatVersion = 2

// Program is a compiled model as plain data, written by the compiler and read by the loader. It holds no device state.
type Program struct {
	Format    int       `json:"format"`
	Identity  string    `json:"identity,omitempty"` // SHA-256 of program.json with zeros in this place, so of all files; set by Files
	Model     string    `json:"model"`              // base name of the ONNX file
	Precision string    `json:"precision"`          // fp32, fp16 …; file: each tensor keeps the file's type
	Inputs    []Port    `json:"inputs"`
	Outputs   []Port    `json:"outputs"`
	States    []State   `json:"states,omitempty"`
	Variants  []Variant `json:"variants"`
	Adapters  *Adapters `json:"adapters,omitempty"` // nil: it takes none
	Loop      *Loop     `json:"loop,omitempty"`     // nil: it is a model alone

	Provenance Provenance        `json:"provenance,omitzero"`
	Digests    map[string]string `json:"digests,omitempty"` // SHA-256 of the other files by path; set by Files

	// Weights is one blob for all variants; constant buffers are ranges of it, equal contents stored once.
	Weights []byte `json:"-"`
}

// Port is an input or output of the model.
type Port struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"` // names of ir.DType: f16, f32, u8, i64 …
	Shape  []int   `json:"shape"`
	Slices []Slice `json:"slices,omitempty"` // named parts of the last dimension of a [1,N] output
}

// Slice is a named range of an output, from openpilot's output_slices. In a batch every sample has one.
type Slice struct {
	Name  string `json:"name"`
	Start int    `json:"start"` // in elements, of the first sample
	Stop  int    `json:"stop"`
	Every int    `json:"every,omitempty"` // elements of a sample; 0: there is one sample
}

// State says that an input stays on the device from run to run, in a buffer of kind state or variable that is named after
// the input. After a run the buffer holds the output's value, and the output is read from it.
type State struct {
	Input  string `json:"input"`
	Output string `json:"output,omitempty"` // empty: no entry computes a new value of it
	Delay  int    `json:"delay,omitempty"`  // how many runs later the input has the output's value; 0 and 1: in the next one
}

// Variant is the program for one target: its own buffers, launches and code.
type Variant struct {
	Target     string       `json:"target"`
	Buffers    []Buffer     `json:"buffers"`
	ArenaBytes int          `json:"arena_bytes"`
	LiveBytes  int          `json:"live_bytes"` // largest sum of live arena buffers along the launch list
	Entries    []Entry      `json:"entries"`
	Kernels    []KernelInfo `json:"kernels"`

	PTX   string `json:"-"` // <target>/kernels.ptx
	Cubin []byte `json:"-"` // <target>/kernels.cubin, if it was asked for
}

// BufferKind says where a buffer lives and who writes it.
type BufferKind string

// Kinds of buffers.
const (
	InputBuffer    BufferKind = "input"    // Name is the port's
	OutputBuffer   BufferKind = "output"   // Name is the port's
	ConstantBuffer BufferKind = "constant" // Offset into Weights
	StateBuffer    BufferKind = "state"    // the session's, kept between runs, initially zero
	VariableBuffer BufferKind = "variable" // as state, but initialised from Weights at Offset, and saved there
	ArenaBuffer    BufferKind = "arena"    // Offset into the session's arena; ranges are reused
)

// Buffer is a range of device memory. Names of states and variables are unique.
type Buffer struct {
	Name   string     `json:"name"`
	Kind   BufferKind `json:"kind"`
	Bytes  int        `json:"bytes"`
	Offset int        `json:"offset,omitempty"` // arena, constant and variable: a multiple of 256
}

// Entry is a named launch list over the variant's buffers. Entries run one at a time and share the arena, so each overwrites
// what another left there.
type Entry struct {
	Name     string   `json:"name"` // run, and others that the program defines
	Launches []Launch `json:"launches"`
	// Repeats, if not 0, says that the launches are as often the same ones, each time on the next slice of inputs, outputs and states: a
	// batch that runs in so many micro-batches.
	Repeats int `json:"repeats,omitempty"`
	// Fronts, if not 0, is how often the first layers run, each time on a smaller slice: a multiple of Repeats, or of 1.
	Fronts int `json:"fronts,omitempty"`
}

// Launch is one node of the graph. Launches may run in the order of the list; a device must only obey After, and may run
// launches at once that no path of After connects.
type Launch struct {
	Kernel string   `json:"kernel"` // empty for a copy
	Copy   *Copy    `json:"copy,omitempty"`
	Grid   [3]int   `json:"grid"`
	Block  [3]int   `json:"block"`
	Shared int      `json:"shared,omitempty"` // dynamic shared memory, bytes
	Params []Param  `json:"params"`
	Reads  []Access `json:"reads"`  // ranges read, constants included
	Writes []Access `json:"writes"` // ranges written
	// Prefetch is a range of constants that later launches read and that the kernel fetches into the L2 cache;
	// nil: none. It begins in its buffer and runs on through the following ones in the weights blob. The kernel
	// does not load it. The number of bytes is the last scalar parameter of 4 bytes that has its value; the kernel
	// prefetches nothing where that parameter is 0.
	Prefetch *Access `json:"prefetch,omitempty"`
	// ReadOnce says that the kernel reads its packed weights as data that may leave the L2 cache first.
	ReadOnce bool  `json:"read_once,omitempty"`
	After    []int `json:"after"` // earlier launches that must end first: hazards on buffers and on reused arena ranges
	// Dependent marks a kernel that may start before its predecessor in the list ends, if After names no other launch
	// (programmatic dependent launch): it executes griddepcontrol.wait before it touches anything but constants.
	Dependent bool   `json:"dependent,omitempty"`
	Priority  int    `json:"priority,omitempty"` // 0, or down to -5: its blocks are placed before those of higher numbers
	Note      string `json:"note,omitempty"`     // what it computes, for a reader
}

// prefetchSize is the index of the parameter that says how many bytes the kernel prefetches; -1 if it prefetches nothing.
func (l *Launch) prefetchSize() int {
	if l.Prefetch == nil {
		return -1
	}
	for i := len(l.Params) - 1; i >= 0; i-- {
		if p := l.Params[i]; p.Buffer < 0 && p.Bytes == 4 && p.Value == uint64(l.Prefetch.Bytes) {
			return i
		}
	}
	return -1
}

// Copy moves bytes between two buffers of equal length.
type Copy struct {
	Src   Access `json:"src"`
	Dst   Access `json:"dst"`
	Bytes int    `json:"bytes"`
}

// Param is a kernel parameter in order: a pointer into a buffer, or a scalar.
type Param struct {
	Buffer int    `json:"buffer"` // index, or -1 for a scalar
	Offset int    `json:"offset,omitempty"`
	Value  uint64 `json:"value,omitempty"` // scalar bits
	Bytes  int    `json:"bytes"`           // 8 for a pointer
}

// Access is a range of a buffer.
type Access struct {
	Buffer int `json:"buffer"`
	Offset int `json:"offset,omitempty"`
	Bytes  int `json:"bytes"`
}

// KernelInfo describes a kernel of the variant, for reports.
type KernelInfo struct {
	Name     string `json:"name"`
	Family   string `json:"family"`   // contraction, loop, window
	Regs     int    `json:"regs"`     // from ptxas; 0 unknown, and in the file, whose bytes depend on no other tool
	Spills   int    `json:"spills"`   // likewise, bytes
	Launches int    `json:"launches"` // nodes of the graph that run it
	Shared   int    `json:"smem"`
	MACs     int64  `json:"macs,omitempty"`
	Schedule string `json:"schedule,omitempty"` // readable: 64x64x32 stages=3 warps=2x2 splitk=4
	Reason   string `json:"reason,omitempty"`   // why the schedule breaks a rule of thumb (fewer blocks than multiprocessors …)
}

// Memory is what a session of a variant takes of a device, in bytes: weights, arena, inputs, outputs and what is kept.
func (p *Program) Memory(v *Variant) int {
	bytes := len(p.Weights) + v.ArenaBytes
	for _, b := range v.Buffers {
		if b.Kind != ConstantBuffer && b.Kind != ArenaBuffer {
			bytes += b.Bytes
		}
		if s := p.state(b.Name); s != nil && s.Delay > 1 { // one place more than the delay: its new value's buffer is another
			bytes += (s.Delay - 1) * b.Bytes
		}
	}
	return bytes
}
