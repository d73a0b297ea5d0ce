package cuda

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// symbols are the driver's exported names that are used (CUDA Driver API, reference manual): a versioned one is what
// cuda.h's plain name means since CUDA 12.
var symbols = strings.Fields(`
	cuInit cuDriverGetVersion cuGetErrorName
	cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuDeviceTotalMem_v2
	cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent
	cuMemAlloc_v2 cuMemFree_v2 cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemFreeHost cuMemAllocManaged
	cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemsetD8_v2 cuMemcpyDtoDAsync_v2
	cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction cuFuncSetAttribute
	cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete cuLinkDestroy
	cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery
	cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamGetCaptureInfo_v2 cuStreamUpdateCaptureDependencies
	cuGraphInstantiateWithFlags cuGraphUpload cuGraphLaunch cuGraphExecDestroy cuGraphDestroy cuLaunchKernelEx
	cuGraphExecKernelNodeSetParams_v2
	cuEventCreate cuEventRecord cuEventElapsedTime cuEventDestroy_v2`)

// newer are those that not every driver for CUDA 12 has; without them an older one serves, or what they are for is
// left out.
var newer = []string{"cuGraphGetEdges_v2", captureInfo3} // 12.3

// captureInfo3 is called by its full name: its arguments are not those of version 2.
const captureInfo3 = "cuStreamGetCaptureInfo_v3"

// plain is cuda.h's name of a symbol.
func plain(symbol string) string {
	return strings.TrimSuffix(strings.TrimSuffix(symbol, "_v2"), "WithFlags")
}

// driver holds the addresses of the entry points by cuda.h's names.
type driver struct {
	entries map[string]uintptr
	instead func(call string, args []uintptr) int // called in their place by tests
}

// openDriver opens the library and finds every entry point; a driver that lacks one is too old.
func openDriver(path string) (*driver, error) {
	lib, err := dlopen.OpenGlobal(path)
	if errors.Is(err, dlopen.ErrUnsupported) {
		return nil, fmt.Errorf("%w: %w", hal.ErrNoDriver, err)
	}
	if err != nil {
		if strings.Contains(err.Error(), "No such file") {
			return nil, fmt.Errorf("%w: %s not found", hal.ErrNoDriver, path)
		}
		return nil, fmt.Errorf("%w: %s cannot be opened (%v)", hal.ErrNoDriver, path, err)
	}
	d := &driver{entries: map[string]uintptr{}}
	for _, s := range symbols {
		if d.entries[plain(s)], err = lib.Symbol(s); err != nil {
			return nil, fmt.Errorf("%w: %s has no %s: a driver for CUDA 12 or newer is needed", hal.ErrDriverTooOld, path, s)
		}
	}
	for _, s := range newer {
		if entry, err := lib.Symbol(s); err == nil {
			d.entries[plain(s)] = entry
		}
	}
	return d, nil
}

// call calls an entry point and turns its result into an error that names it.
func (d *driver) call(name string, args ...uintptr) error {
	if d.instead != nil {
		return d.failure(name, d.instead(name, args))
	}
	fn := d.entries[name]
	if fn == 0 {
		return fmt.Errorf("%s is not among the driver's entry points in use", name)
	}
	return d.failure(name, int(int32(dlopen.Call(fn, args...))))
}

func (d *driver) failure(name string, code int) error {
	if code == 0 {
		return nil
	}
	return &hal.Error{Call: name, Code: code, Text: d.errorName(code), Err: meanings[code]}
}

func (d *driver) errorName(code int) string {
	if d.instead != nil {
		return "CUDA error"
	}
	var text *byte
	r := dlopen.Call(d.entries["cuGetErrorName"], uintptr(code), uintptr(unsafe.Pointer(&text)))
	if int32(r) != 0 || text == nil {
		return "CUDA error"
	}
	return goString(text)
}

// goString copies a C string of at most 64 KB.
func goString(p *byte) string {
	n := 0
	for n < 1<<16 && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
