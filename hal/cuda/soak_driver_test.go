//go:build linux && (amd64 || arm64) && !nodriver && !bundle

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// rogue is a driver that does what it is asked to, mostly: it computes what kernels mix and coherence compute, in any
// order that a graph's edges allow, when the run ends; and by chance its calls fail, are slow, or lose the device. It
// knows every object that it has made, and keeps what was asked of it that no driver would stand.
type rogue struct {
	mu    sync.Mutex
	rng   *rand.Rand
	rate  float64 // of calls that fail
	slow  float64 // of runs that take a while
	never bool    // the next run never ends, until released

	patience int    // how many more times it may be asked whether a run has ended
	enough   func() // then

	unified        bool
	pages          bool // it shares the host's page tables: all of the host's memory is memory
	contexts, lost int
	current        map[int]bool // by thread
	next           uintptr
	objects        map[uintptr]*object
	injected       int
	faults         string // the last one
	calls          []string
	wrong          []string
}

// object is anything that the driver has made: memory, module, function, stream, graph, exec, event, link.
type object struct {
	kind   string
	bytes  []byte // of memory
	text   string // of a module
	name   string // of a function
	params int

	// Of a stream: what it records, and what runs on it.
	recording *recording
	tail      []uintptr
	running   *recording
	polls     int // until the run ends; -1: never
	after     map[string][]byte

	graph *recording // of a graph or exec
}

// recording is a captured graph. Node n has handle n+1.
type recording struct {
	nodes []recorded
}

type recorded struct {
	kernel string
	params []uint64
	src    uint64 // of a copy
	dst    uint64
	bytes  int
	after  []uintptr
	early  bool // its edge is programmatic
}

func newRogue(seed uint64) *rogue {
	r := &rogue{rng: rand.New(rand.NewPCG(seed, 14))}
	r.repaired()
	return r
}

// repaired is a device after all contexts on it are gone.
func (r *rogue) repaired() {
	r.lost, r.current, r.objects = 0, map[int]bool{}, map[uintptr]*object{}
}

func (r *rogue) misuse(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// Codes of CUresult.
const (
	invalidValue, noMemory, notReady, unknownError = 1, 2, 600, 999
)

// losing are what a device does not come back from; passing what one call alone meets.
var (
	losing  = []int{46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719}
	passing = []int{1, 2, 2, 2, 3, 200, 201, 209, 218, 222, 400, 500, 801, 802, 900, 901, 999}
)

// withoutContext are calls that need none, and work where the device is lost.
func withoutContext(name string) bool {
	return name == "cuInit" || name == "cuDriverGetVersion" || strings.HasPrefix(name, "cuDevice") && name != "cuDevicePrimaryCtxRetain"
}

func pointer(args []uintptr, i int) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&args[i]))
}

func put[T any](args []uintptr, i int, v T) { *(*T)(pointer(args, i)) = v }

// call is the driver's entry points.
func (r *rogue) call(name string, args []uintptr) (code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) == 60 {
		r.calls = r.calls[1:]
	}
	defer func() { r.calls = append(r.calls, fmt.Sprintf("%s%x = %d", name, args, code)) }()
	tid := syscall.Gettid()
	if r.contexts == 0 && !withoutContext(name) && name != "cuDevicePrimaryCtxRetain" {
		r.misuse("%s without a context of the device", name)
		return 201
	}
	if !withoutContext(name) && name != "cuCtxSetCurrent" && name != "cuDevicePrimaryCtxRetain" && !r.current[tid] {
		r.misuse("%s on a thread without a context", name)
	}
	destroys := freeing[name]
	if r.lost != 0 && !withoutContext(name) {
		if destroys {
			r.destroy(name, args[0])
		}
		return r.lost
	}
	fault := 0
	if r.rng.Float64() < r.rate {
		switch {
		case r.rng.IntN(6) == 0 && !withoutContext(name):
			fault = losing[r.rng.IntN(len(losing))]
			r.lost = fault
		case name != "cuCtxSetCurrent" && name != "cuDevicePrimaryCtxRelease":
			fault = passing[r.rng.IntN(len(passing))]
		}
	}
	if fault != 0 {
		r.injected++
		r.faults = fmt.Sprintf("%s fails %d", name, fault)
	}
	if r.rng.IntN(2000) == 0 {
		time.Sleep(time.Duration(r.rng.IntN(300)) * time.Microsecond)
	}
	switch {
	case destroys: // and tells what an earlier call met
		r.destroy(name, args[0])
		return fault
	case fault != 0 && (name == "cuStreamSynchronize" || name == "cuStreamQuery") && r.objects[args[0]] != nil:
		r.end(r.objects[args[0]], false)
		return fault
	case fault != 0 && name == "cuMemcpyDtoH":
		for i, b := 0, unsafe.Slice((*byte)(pointer(args, 0)), int(args[2])); i < len(b); i++ {
			b[i] = byte(r.rng.Uint32())
		}
		return fault
	case fault != 0 && name == "cuStreamEndCapture":
		r.objects[args[0]].recording = nil
		return fault
	case fault != 0:
		return fault
	}
	return r.serve(name, args, tid)
}

// made registers an object under a new handle.
func (r *rogue) made(o *object) uintptr {
	r.next += 16
	r.objects[r.next] = o
	return r.next
}

// the returns the object of a kind with a handle.
func (r *rogue) the(kind string, h uintptr, name string) *object {
	o := r.objects[h]
	if o == nil || o.kind != kind {
		r.misuse("%s: %#x is no %s", name, h, kind)
		return nil
	}
	return o
}

// memory finds a range of memory.
func (r *rogue) memory(at uint64, n int, name string) []byte {
	for h, o := range r.objects {
		if o.kind == "memory" && uint64(h) <= at && at-uint64(h)+uint64(n) <= uint64(len(o.bytes)) {
			return o.bytes[at-uint64(h):][:n:n]
		}
	}
	if r.pages && at != 0 { // who frees it too early dies, too
		return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
	}
	r.misuse("%s: no memory of %d bytes at %#x", name, n, at)
	return nil
}

// used reports whether a run reads or writes memory that overlaps the range.
func (r *rogue) used(at uint64, n int) bool {
	for _, o := range r.objects {
		if o.kind != "stream" || o.running == nil {
			continue
		}
		for _, x := range o.running.nodes {
			for _, span := range x.spans() {
				if span[0] < at+uint64(n) && at < span[0]+span[1] {
					return true
				}
			}
		}
	}
	return false
}

// spans are the addresses and sizes of what a node touches, what it writes first.
func (x *recorded) spans() [][2]uint64 {
	switch x.kernel {
	case "":
		return [][2]uint64{{x.dst, uint64(x.bytes)}, {x.src, uint64(x.bytes)}}
	case "mix":
		n := 4 * x.params[3]
		return [][2]uint64{{x.params[0], n}, {x.params[1], n}, {x.params[2], n}}
	}
	n := 4 * x.params[2] // coherence
	return [][2]uint64{{x.params[1], n}, {x.params[0], n}}
}

func (r *rogue) allocate(n int) uintptr {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	for i := range b {
		b[i] = 0xcd
	}
	h := uintptr(unsafe.Pointer(&b[0]))
	r.objects[h] = &object{kind: "memory", bytes: b}
	return h
}

// destroy frees an object, which can be done once.
func (r *rogue) destroy(name string, h uintptr) {
	kind := map[string]string{"cuMemFree": "memory", "cuMemFreeHost": "memory", "cuModuleUnload": "module", "cuStreamDestroy": "stream", "cuGraphExecDestroy": "exec",
		"cuGraphDestroy": "graph", "cuEventDestroy": "event", "cuLinkDestroy": "link"}[name]
	o := r.the(kind, h, name)
	if o == nil {
		return
	}
	switch {
	case r.lost != 0:
	case kind == "memory" && r.used(uint64(h), len(o.bytes)):
		r.misuse("%s of memory that a run uses", name)
	case kind == "exec":
		for _, s := range r.objects {
			if s.kind == "stream" && s.running == o.graph {
				r.misuse("%s while it runs", name)
			}
		}
	case kind == "stream" && (o.running != nil || o.recording != nil):
		r.misuse("%s while it runs or records", name)
	}
	delete(r.objects, h)
	if kind == "memory" {
		if err := syscall.Munmap(o.bytes); err != nil { // who still uses it dies
			panic(err)
		}
	}
}

// begin begins a run: its results are computed from what is in memory now, and come to memory when it ends.
func (r *rogue) begin(s *object, g *recording) {
	s.running, s.after, s.polls = g, map[string][]byte{}, 0
	if r.rng.Float64() < r.slow {
		s.polls = 1 + r.rng.IntN(40)
	}
	if r.never {
		s.polls, r.never = -1, false
	}
	was := map[uint64][]byte{} // of all memory that the graph writes
	for _, x := range g.nodes {
		w := x.spans()[0]
		if m := r.memory(w[0], int(w[1]), "cuGraphLaunch"); m != nil && was[w[0]] == nil {
			was[w[0]] = bytes.Clone(m)
		}
	}
	done := make([]bool, len(g.nodes))
	for range g.nodes {
		var ready []int
		for i := range g.nodes {
			if !done[i] && !slices.ContainsFunc(g.nodes[i].after, func(j uintptr) bool { return !done[j-1] }) {
				ready = append(ready, i)
			}
		}
		i := ready[r.rng.IntN(len(ready))]
		done[i] = true
		r.execute(&g.nodes[i])
	}
	for at, old := range was {
		m := r.memory(at, len(old), "cuGraphLaunch")
		s.after[fmt.Sprint(at)] = bytes.Clone(m)
		copy(m, old)
	}
}

// execute is a node's kernel, or its copy.
func (r *rogue) execute(x *recorded) {
	var m [3][]byte
	for i, span := range x.spans() {
		if m[i] = r.memory(span[0], int(span[1]), "a kernel"); m[i] == nil {
			return
		}
	}
	switch x.kernel {
	case "":
		copy(m[0], m[1])
	case "mix":
		for i := 0; i < len(m[0]); i += 4 {
			a, b := binary.LittleEndian.Uint32(m[1][i:]), binary.LittleEndian.Uint32(m[2][i:])
			binary.LittleEndian.PutUint32(m[0][i:], 3*a+b+1)
		}
	default:
		for i := 0; i < len(m[0]); i += 4 {
			binary.LittleEndian.PutUint32(m[0][i:], binary.LittleEndian.Uint32(m[1][i:])+1)
		}
	}
}

// end ends a run, well or with garbage.
func (r *rogue) end(s *object, well bool) {
	if s.running == nil {
		return
	}
	for _, x := range s.running.nodes {
		w := x.spans()[0]
		m := r.memory(w[0], int(w[1]), "the end of a run")
		if m == nil {
			continue
		}
		if well {
			copy(m, s.after[fmt.Sprint(w[0])])
			continue
		}
		for i := range m {
			m[i] = byte(r.rng.Uint32())
		}
	}
	s.running = nil
}

// release ends runs that never end.
func (r *rogue) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.never = false
	for _, o := range r.objects {
		if o.kind == "stream" && o.polls < 0 {
			o.polls = 0
		}
	}
}

// serve is a call that succeeds, unless it is one that no driver would serve.
func (r *rogue) serve(name string, args []uintptr, tid int) int {
	stream := func(i int) *object { return r.the("stream", args[i], name) }
	switch name {
	case "cuInit":
	case "cuDriverGetVersion":
		put(args, 0, int32(13000))
	case "cuDeviceGetCount":
		put(args, 0, int32(1))
	case "cuDeviceGet":
		put(args, 0, int32(0))
	case "cuDeviceGetName":
		copy(unsafe.Slice((*byte)(pointer(args, 0)), int(args[1])), "Rogue GB10\x00")
	case "cuDeviceTotalMem":
		put(args, 0, uint64(1<<37))
	case "cuDeviceGetAttribute":
		values := map[uintptr]int32{attributeComputeMajor: 12, attributeComputeMinor: 1, attributeSharedBlockOptin: 101376, attributeSMs: 48, attributeCanMapHost: 1,
			attributeManaged: 1, attributeConcurrentManaged: 1, attributeL2Bytes: 24 << 20}
		if r.unified {
			values[attributeIntegrated] = 1
		}
		if r.pages {
			values[attributeHostPageTables] = 1
		}
		put(args, 0, values[args[1]])
	case "cuDevicePrimaryCtxRetain":
		r.contexts++
		put(args, 0, uintptr(0x77))
	case "cuDevicePrimaryCtxRelease":
		r.releaseContext()
	case "cuCtxSetCurrent":
		r.current[tid] = true

	case "cuMemAlloc":
		put(args, 0, uint64(r.allocate(int(args[1]))))
	case "cuMemHostAlloc", "cuMemAllocManaged":
		put(args, 0, r.allocate(int(args[1])))
	case "cuMemHostGetDevicePointer":
		put(args, 0, uint64(args[1]))
	case "cuMemcpyHtoD", "cuMemsetD8":
		n := int(args[2])
		if r.used(uint64(args[0]), n) {
			r.misuse("%s to memory that a run uses", name)
		}
		m := r.memory(uint64(args[0]), n, name)
		if m == nil {
			return invalidValue
		}
		if name == "cuMemsetD8" {
			copy(m, bytes.Repeat([]byte{byte(args[1])}, n))
		} else {
			copy(m, unsafe.Slice((*byte)(pointer(args, 1)), n))
		}
	case "cuMemcpyDtoH":
		if r.used(uint64(args[1]), int(args[2])) {
			r.misuse("%s of memory that a run uses", name)
		}
		copy(unsafe.Slice((*byte)(pointer(args, 0)), int(args[2])), r.memory(uint64(args[1]), int(args[2]), name))

	case "cuModuleLoadDataEx":
		put(args, 0, r.made(&object{kind: "module", text: goString((*byte)(pointer(args, 1)))}))
	case "cuModuleGetFunction":
		m, symbol := r.the("module", args[1], name), goString((*byte)(pointer(args, 2)))
		if m == nil || !strings.Contains(m.text, ".entry "+symbol+"(") {
			r.misuse("%s: no kernel %s", name, symbol)
			return 500
		}
		put(args, 0, r.made(&object{kind: "function", name: symbol, params: map[string]int{"mix": 4, "coherence": 3}[symbol]}))
	case "cuFuncSetAttribute":
		r.the("function", args[0], name)

	case "cuStreamCreate":
		put(args, 0, r.made(&object{kind: "stream"}))
	case "cuStreamSynchronize":
		if args[0] == 0 {
			return 0
		}
		if s := stream(0); s != nil {
			if s.polls < 0 {
				r.misuse("%s waits for ever", name)
			}
			r.end(s, true)
		}
	case "cuStreamQuery":
		s := stream(0)
		switch {
		case s == nil:
			return invalidValue
		case s.running == nil:
		case s.polls != 0:
			if s.polls--; s.polls < 0 {
				s.polls = -1
			}
			if r.patience--; r.patience == 0 && r.enough != nil {
				r.enough()
			}
			return notReady
		default:
			r.end(s, true)
		}
	case "cuStreamBeginCapture":
		s := stream(0)
		if s == nil || s.recording != nil || s.running != nil {
			r.misuse("%s of a stream that records or runs", name)
			return invalidValue
		}
		s.recording, s.tail = &recording{}, nil
	case "cuStreamEndCapture":
		s := stream(0)
		if s == nil || s.recording == nil {
			r.misuse("%s of a stream that records nothing", name)
			return invalidValue
		}
		put(args, 1, r.made(&object{kind: "graph", graph: s.recording}))
		s.recording = nil
	case "cuStreamGetCaptureInfo":
		s := stream(0)
		put(args, 1, int32(1))
		put(args, 4, unsafe.Pointer(unsafe.SliceData(s.tail)))
		put(args, 5, uint64(len(s.tail)))
	case "cuStreamUpdateCaptureDependencies":
		stream(0).tail = slices.Clone(unsafe.Slice((*uintptr)(pointer(args, 1)), int(args[2])))
	case "cuLaunchKernelEx":
		cfg, f := (*launchConfig)(pointer(args, 0)), r.the("function", args[1], name)
		s := r.the("stream", cfg.stream, name)
		if f != nil && s != nil && f.name == "delay" && s.recording == nil {
			return 0
		}
		if f == nil || s == nil || s.recording == nil {
			r.misuse("%s outside of a capture", name)
			return invalidValue
		}
		x := recorded{kernel: f.name}
		for _, p := range unsafe.Slice((*unsafe.Pointer)(pointer(args, 2)), f.params) {
			x.params = append(x.params, *(*uint64)(p))
		}
		for _, a := range unsafe.Slice(*(**launchAttribute)(unsafe.Pointer(&cfg.attributes)), int(cfg.count)) {
			x.early = x.early || a.id == attributeProgrammaticSerialization
		}
		s.record(x)
	case "cuMemcpyDtoDAsync":
		if s := stream(3); s != nil && s.recording != nil {
			s.record(recorded{dst: uint64(args[0]), src: uint64(args[1]), bytes: int(args[2])})
		}
	case "cuGraphGetEdges":
		g, n, capacity := r.the("graph", args[0], name), 0, int(*(*uint64)(pointer(args, 4)))
		from, to := unsafe.Slice((*uintptr)(pointer(args, 1)), capacity), unsafe.Slice((*uintptr)(pointer(args, 2)), capacity)
		data := unsafe.Slice((*edgeData)(pointer(args, 3)), capacity)
		for i, x := range g.graph.nodes {
			for _, j := range x.after {
				if n == capacity {
					break
				}
				from[n], to[n], data[n] = j, uintptr(i+1), edgeData{}
				if x.early {
					data[n].kind = programmaticEdge
				}
				n++
			}
		}
		put(args, 4, uint64(n))
	case "cuGraphInstantiate":
		put(args, 0, r.made(&object{kind: "exec", graph: &recording{slices.Clone(r.the("graph", args[1], name).graph.nodes)}}))
	case "cuGraphExecKernelNodeSetParams":
		return r.update(args, name)
	case "cuGraphUpload":
		r.the("exec", args[0], name)
	case "cuGraphLaunch":
		g, s := r.the("exec", args[0], name), stream(1)
		if g == nil || s == nil || s.running != nil {
			r.misuse("%s over a run that goes on", name)
			return invalidValue
		}
		r.begin(s, g.graph)
	case "cuEventCreate":
		put(args, 0, r.made(&object{kind: "event"}))
	case "cuEventRecord":
		r.the("event", args[0], name)
	case "cuEventElapsedTime":
		put(args, 0, float32(1))
	default:
		r.misuse("%s is unknown", name)
		return unknownError
	}
	return 0
}

// update gives a kernel's node of an exec other parameters. A graph that it was made of must be there to name the node.
func (r *rogue) update(args []uintptr, name string) int {
	g, n := r.the("exec", args[0], name), (*kernelNode)(pointer(args, 2))
	f := r.the("function", n.function, name)
	if g == nil || f == nil {
		return invalidValue
	}
	alive := false
	for _, o := range r.objects {
		alive = alive || o.kind == "graph" && len(o.graph.nodes) == len(g.graph.nodes)
		if o.kind == "stream" && o.running == g.graph {
			r.misuse("%s of a graph that runs", name)
		}
	}
	i := int(args[1]) - 1
	if !alive || i < 0 || i >= len(g.graph.nodes) || g.graph.nodes[i].kernel != f.name || n.grid != [3]uint32{3, 1, 1} || n.block != [3]uint32{32, 1, 1} || n.context != 0 {
		r.misuse("%s: node %d is no launch of %s (%+v)", name, i, f.name, *n)
		return invalidValue
	}
	x := &g.graph.nodes[i]
	x.params = nil
	for _, p := range unsafe.Slice(*(**unsafe.Pointer)(unsafe.Pointer(&n.params)), f.params) {
		x.params = append(x.params, *(*uint64)(p))
	}
	return 0
}

func (s *object) record(x recorded) {
	x.after = s.tail
	s.recording.nodes = append(s.recording.nodes, x)
	s.tail = []uintptr{uintptr(len(s.recording.nodes))}
}

// releaseContext gives a context back. With the last one the device is as new; what it had must have been freed,
// unless it was lost: then a context cannot be made current any more, and all goes with it.
func (r *rogue) releaseContext() {
	if r.contexts--; r.contexts > 0 {
		return
	}
	for h, o := range r.objects {
		if o.kind == "function" || r.lost != 0 { // functions are their modules'
			continue
		}
		r.misuse("a %s leaked (%#x, %d bytes, %s)", o.kind, h, len(o.bytes), o.text[:min(len(o.text), 40)])
	}
	r.repaired()
}
