package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// libraryName is NVML's soname, which the driver installs.
const libraryName = "libnvidia-ml.so.1"

// Clock types and the temperature sensor of nvml.h.
const (
	clockSM   = 1
	clockMem  = 2
	sensorGPU = 0
)

// required are the functions no snapshot works without, each with its older name (NVML API reference).
var required = [][]string{
	{"nvmlInit_v2", "nvmlInit"}, {"nvmlShutdown"}, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, {"nvmlDeviceGetName"},
}

// optional are the functions whose figures are absent without them. nvmlDeviceGetPciInfo before v3 has another layout.
var optional = [][]string{
	{"nvmlSystemGetDriverVersion"}, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"},
	{"nvmlDeviceGetUUID"}, {"nvmlDeviceGetPciInfo_v3"}, {"nvmlDeviceGetCudaComputeCapability"},
	{"nvmlDeviceGetMemoryInfo"}, {"nvmlDeviceGetClockInfo"}, {"nvmlDeviceGetMaxClockInfo"}, {"nvmlDeviceGetPowerUsage"},
	{"nvmlDeviceGetEnforcedPowerLimit"}, {"nvmlDeviceGetTemperature"}, {"nvmlDeviceGetUtilizationRates"},
	{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
}

// result is nvmlReturn_t.
type result int32

const (
	success          result = 0
	functionNotFound result = 13
)

// meanings describe the results that a user can act on. nvmlErrorString does not name a remedy.
var meanings = map[result]string{
	1: "not initialised", 3: "not supported", 4: "no permission to access the driver", 9: "the NVIDIA driver is not loaded",
	functionNotFound: "not in this driver's library", 15: "the GPU has fallen off the bus",
	18: "library and kernel module are from different driver versions: reboot",
}

func (r result) String() string {
	if t, ok := meanings[r]; ok {
		return t
	}
	return fmt.Sprintf("error %d", int32(r))
}

// pciInfo is nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3.
type pciInfo struct {
	busLegacy                                [16]byte
	domain, bus, device, deviceID, subsystem uint32
	busID                                    [32]byte
}

// memory is nvmlMemory_t, in bytes.
type memory struct{ total, free, used uint64 }

// utilization is nvmlUtilization_t, in percent.
type utilization struct{ gpu, memory uint32 }

// library is NVML. It holds the entry points by their newest names.
type library struct{ entries map[string]uintptr }

func openLibrary() (Source, error) { return newLibrary(libraryName) }

// newLibrary opens the library at a path and initialises it.
func newLibrary(path string) (Source, error) {
	lib, err := dlopen.Open(path)
	if errors.Is(err, dlopen.ErrUnsupported) {
		return nil, err
	}
	if err != nil {
		if strings.Contains(err.Error(), "No such file") {
			return nil, fmt.Errorf("NVML: %s is not installed", path)
		}
		return nil, fmt.Errorf("NVML: open %s: %w", path, err)
	}
	l := &library{entries: map[string]uintptr{}}
	for _, names := range required {
		if !l.find(lib, names) {
			return nil, fmt.Errorf("NVML: %s has no %s: install a newer driver", path, names[0])
		}
	}
	for _, names := range optional {
		l.find(lib, names)
	}
	if r := l.call("nvmlInit_v2"); r != success {
		return nil, fmt.Errorf("nvmlInit: %v", r)
	}
	return l, nil
}

// find stores the first of the names that the library exports.
func (l *library) find(lib dlopen.Library, names []string) bool {
	for _, name := range names {
		if entry, err := lib.Symbol(name); err == nil {
			l.entries[names[0]] = entry
			return true
		}
	}
	return false
}

//go:uintptrescapes
func (l *library) call(name string, args ...uintptr) result {
	entry := l.entries[name]
	if entry == 0 {
		return functionNotFound
	}
	return result(int32(dlopen.Call(entry, args...)))
}

func (l *library) Name() string { return "NVML" }

func (l *library) Close() error {
	if r := l.call("nvmlShutdown"); r != success {
		return fmt.Errorf("nvmlShutdown: %v", r)
	}
	return nil
}

func (l *library) Read(ctx context.Context) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, err
	}
	var count, cuda uint32
	if r := l.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&count))); r != success {
		return Snapshot{}, fmt.Errorf("nvmlDeviceGetCount: %v", r)
	}
	s := Snapshot{GPUs: make([]GPU, 0, count)}
	var version [80]byte
	if l.call("nvmlSystemGetDriverVersion", uintptr(unsafe.Pointer(&version)), uintptr(len(version))) == success {
		s.Driver = cString(version[:])
	}
	if l.call("nvmlSystemGetCudaDriverVersion_v2", uintptr(unsafe.Pointer(&cuda))) == success {
		s.CUDA = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	}
	for i := range int(count) {
		d, r := l.handle(i)
		if r != success {
			return Snapshot{}, fmt.Errorf("nvmlDeviceGetHandleByIndex(%d): %v", i, r)
		}
		g, err := l.readDevice(i, d)
		if err != nil {
			return Snapshot{}, err
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s, nil
}

func (l *library) handle(index int) (d uintptr, r result) {
	r = l.call("nvmlDeviceGetHandleByIndex_v2", uintptr(index), uintptr(unsafe.Pointer(&d)))
	return d, r
}

// SM implements Clock.
func (l *library) SM(bus string) Figure {
	var count uint32 // 0 if the call fails
	l.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&count)))
	for i := range int(count) {
		d, r := l.handle(i)
		if r == success && (count == 1 || l.bus(d) == bus) {
			return l.figure("nvmlDeviceGetClockInfo", 1, d, clockSM)
		}
	}
	return Figure{}
}

// readDevice queries every figure; one that fails is absent. Only a GPU that does not report its name is an error.
func (l *library) readDevice(index int, d uintptr) (GPU, error) {
	var name, uuid [96]byte
	if r := l.call("nvmlDeviceGetName", d, uintptr(unsafe.Pointer(&name)), uintptr(len(name))); r != success {
		return GPU{}, fmt.Errorf("GPU %d: nvmlDeviceGetName: %v", index, r)
	}
	g := GPU{Index: index, Name: cString(name[:]), Bus: l.bus(d)}
	if l.call("nvmlDeviceGetUUID", d, uintptr(unsafe.Pointer(&uuid)), uintptr(len(uuid))) == success {
		g.UUID = cString(uuid[:])
	}
	var major, minor int32
	if l.call("nvmlDeviceGetCudaComputeCapability", d, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))) == success {
		g.Major, g.Minor = int(major), int(minor)
	}
	// With unified memory some drivers return zero bytes instead of NOT_SUPPORTED.
	var m memory
	if l.call("nvmlDeviceGetMemoryInfo", d, uintptr(unsafe.Pointer(&m))) == success && m.total > 0 {
		g.MemoryTotal, g.MemoryUsed = Known(float64(m.total)), Known(float64(m.used))
	}
	g.ClockMHz = l.figure("nvmlDeviceGetClockInfo", 1, d, clockSM)
	g.ClockMax = l.figure("nvmlDeviceGetMaxClockInfo", 1, d, clockSM)
	g.MemoryMHz = l.figure("nvmlDeviceGetClockInfo", 1, d, clockMem)
	g.PowerWatts = l.figure("nvmlDeviceGetPowerUsage", 1000, d)
	g.PowerLimit = l.figure("nvmlDeviceGetEnforcedPowerLimit", 1000, d)
	g.Celsius = l.figure("nvmlDeviceGetTemperature", 1, d, sensorGPU)
	var u utilization
	if l.call("nvmlDeviceGetUtilizationRates", d, uintptr(unsafe.Pointer(&u))) == success {
		g.Utilisation = Known(float64(u.gpu))
	}
	var reasons uint64
	if l.call("nvmlDeviceGetCurrentClocksEventReasons", d, uintptr(unsafe.Pointer(&reasons))) == success {
		g.Throttle = Reasons(reasons)
	}
	return g, nil
}

// figure calls a function that returns an unsigned number through its last argument, in units of 1/unit.
func (l *library) figure(name string, unit float64, args ...uintptr) Figure {
	v := new(uint32)
	var r result
	if len(args) == 1 {
		r = l.call(name, args[0], uintptr(unsafe.Pointer(v)))
	} else {
		r = l.call(name, args[0], args[1], uintptr(unsafe.Pointer(v)))
	}
	if r != success {
		return Figure{}
	}
	return Known(float64(*v) / unit)
}

// bus is a GPU's PCI address, or "" if NVML does not report it.
func (l *library) bus(d uintptr) string {
	var p pciInfo
	if l.call("nvmlDeviceGetPciInfo_v3", d, uintptr(unsafe.Pointer(&p))) != success {
		return ""
	}
	return strings.ToLower(cString(p.busID[:]))
}

// cString is the text up to the first zero byte.
func cString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}
