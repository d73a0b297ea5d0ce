//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	goruntime "runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/spark-compile/spark-compile/hal"
)

// driver holds the addresses of the driver's entry points (CUDA Driver API, reference manual).
type driver struct {
	lib uintptr

	init, driverGetVersion, getErrorName                                            uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetAttribute, deviceTotalMem    uintptr
	primaryCtxRetain, primaryCtxRelease, ctxSetCurrent                              uintptr
	memAlloc, memFree, memHostAlloc, memHostGetDevicePointer, memFreeHost           uintptr
	memcpyHtoD, memcpyDtoH, memsetD8, memcpyDtoDAsync                               uintptr
	moduleLoadDataEx, moduleUnload, moduleGetFunction, funcSetAttribute             uintptr
	streamCreate, streamDestroy, streamSynchronize, streamBeginCapture              uintptr
	streamEndCapture, graphInstantiate, graphLaunch, graphExecDestroy, graphDestroy uintptr
	streamGetCaptureInfo, streamUpdateCaptureDependencies                           uintptr
	launchKernelEx                                                                  uintptr
	memAllocManaged                                                                 uintptr
	linkCreate, linkAddData, linkComplete, linkDestroy                              uintptr
	eventCreate, eventRecord, eventElapsedTime, eventDestroy                        uintptr
}

// symbols pairs each entry point with its exported name: the versioned names are what cuda.h's plain names mean since
// CUDA 12.
func (d *driver) symbols() []struct {
	to   *uintptr
	name string
} {
	return []struct {
		to   *uintptr
		name string
	}{
		{&d.init, "cuInit"}, {&d.driverGetVersion, "cuDriverGetVersion"}, {&d.getErrorName, "cuGetErrorName"},
		{&d.deviceGetCount, "cuDeviceGetCount"}, {&d.deviceGet, "cuDeviceGet"}, {&d.deviceGetName, "cuDeviceGetName"},
		{&d.deviceGetAttribute, "cuDeviceGetAttribute"}, {&d.deviceTotalMem, "cuDeviceTotalMem_v2"},
		{&d.primaryCtxRetain, "cuDevicePrimaryCtxRetain"}, {&d.primaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"}, {&d.ctxSetCurrent, "cuCtxSetCurrent"},
		{&d.memAlloc, "cuMemAlloc_v2"}, {&d.memFree, "cuMemFree_v2"}, {&d.memHostAlloc, "cuMemHostAlloc"},
		{&d.memHostGetDevicePointer, "cuMemHostGetDevicePointer_v2"}, {&d.memFreeHost, "cuMemFreeHost"},
		{&d.memcpyHtoD, "cuMemcpyHtoD_v2"}, {&d.memcpyDtoH, "cuMemcpyDtoH_v2"}, {&d.memsetD8, "cuMemsetD8_v2"}, {&d.memcpyDtoDAsync, "cuMemcpyDtoDAsync_v2"},
		{&d.moduleLoadDataEx, "cuModuleLoadDataEx"}, {&d.moduleUnload, "cuModuleUnload"}, {&d.moduleGetFunction, "cuModuleGetFunction"}, {&d.funcSetAttribute, "cuFuncSetAttribute"},
		{&d.streamCreate, "cuStreamCreate"}, {&d.streamDestroy, "cuStreamDestroy_v2"}, {&d.streamSynchronize, "cuStreamSynchronize"},
		{&d.streamBeginCapture, "cuStreamBeginCapture_v2"}, {&d.streamEndCapture, "cuStreamEndCapture"},
		{&d.graphInstantiate, "cuGraphInstantiateWithFlags"}, {&d.graphLaunch, "cuGraphLaunch"}, {&d.graphExecDestroy, "cuGraphExecDestroy"}, {&d.graphDestroy, "cuGraphDestroy"},
		{&d.streamGetCaptureInfo, "cuStreamGetCaptureInfo_v2"}, {&d.streamUpdateCaptureDependencies, "cuStreamUpdateCaptureDependencies"},
		{&d.launchKernelEx, "cuLaunchKernelEx"},
		{&d.memAllocManaged, "cuMemAllocManaged"},
		{&d.linkCreate, "cuLinkCreate_v2"}, {&d.linkAddData, "cuLinkAddData_v2"}, {&d.linkComplete, "cuLinkComplete"}, {&d.linkDestroy, "cuLinkDestroy"},
		{&d.eventCreate, "cuEventCreate"}, {&d.eventRecord, "cuEventRecord"},
		{&d.eventElapsedTime, "cuEventElapsedTime"}, {&d.eventDestroy, "cuEventDestroy_v2"},
	}
}

// openDriver opens the library and finds every entry point; a driver that lacks one is too old.
func openDriver(path string) (*driver, error) {
	goruntime.LockOSThread() // dlerror's text is the thread's
	defer goruntime.UnlockOSThread()
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be opened (%v)", hal.ErrNoDriver, path, err)
	}
	d := &driver{lib: lib}
	for _, s := range d.symbols() {
		if *s.to, err = purego.Dlsym(lib, s.name); err != nil {
			return nil, fmt.Errorf("%w: %s has no %s: a driver for CUDA 12 or newer is needed", hal.ErrDriverTooOld, path, s.name)
		}
	}
	return d, nil
}

// call calls an entry point and turns its result into an error that names it.
func (d *driver) call(name string, fn uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(fn, args...)
	return d.failure(name, int(int32(r)))
}

func (d *driver) failure(name string, code int) error {
	if code == 0 {
		return nil
	}
	return &hal.Error{Call: name, Code: code, Text: d.errorName(code), Err: meaning(code)}
}

func (d *driver) errorName(code int) string {
	var text *byte
	if r, _, _ := purego.SyscallN(d.getErrorName, uintptr(code), uintptr(unsafe.Pointer(&text))); int32(r) != 0 || text == nil {
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
