//go:build gorgonia && cgo && linux

package gorgonia

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/spark-compile/spark-compile/hal"
)

// ErrUnsupported means that a kernel needs what gorgonia.org/cu lacks and hal/cuda has.
var ErrUnsupported = errors.New("not supported by gorgonia.org/cu")

// sharedLimit is the shared memory of a block, in bytes, without opting in to more.
const sharedLimit = 48 << 10

// Device is a GPU with its own context.
type Device struct {
	context cu.CUContext
	info    hal.Info
}

// Open creates a context on a device.
func Open(ordinal int) (*Device, error) {
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return nil, failure("cuDeviceGet", err)
	}
	d := &Device{info: hal.Info{Backend: "gorgonia", SharedBlock: sharedLimit}}
	if d.info.Name, err = dev.Name(); err != nil {
		return nil, failure("cuDeviceGetName", err)
	}
	major, err := dev.Attribute(cu.ComputeCapabilityMajor)
	if err != nil {
		return nil, failure("cuDeviceGetAttribute", err)
	}
	minor, err := dev.Attribute(cu.ComputeCapabilityMinor)
	if err != nil {
		return nil, failure("cuDeviceGetAttribute", err)
	}
	d.info.Target = fmt.Sprintf("sm_%d%d", major, minor)
	// cuCtxCreate leaves the context current on this thread, whose goroutine may not be ours afterwards.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if d.context, err = dev.MakeContext(cu.SchedAuto); err != nil {
		return nil, failure("cuCtxCreate", err)
	}
	return d, nil
}

// failure adds the name of the call and the hal error that callers test for.
func failure(call string, err error) error {
	if err == nil {
		return nil
	}
	meaning := map[error]error{
		cu.OutOfMemory: hal.ErrOutOfMemory, cu.NoDevice: hal.ErrNoDevice, cu.InvalidDevice: hal.ErrNoDevice, cu.InvalidImage: hal.ErrBadModule,
		cu.InvalidPtx: hal.ErrBadModule, cu.NoBinaryForGpu: hal.ErrBadModule, cu.LaunchFailed: hal.ErrDeviceLost, cu.IllegalAddress: hal.ErrDeviceLost,
	}[err]
	if meaning != nil {
		return fmt.Errorf("%s: %v: %w", call, err, meaning)
	}
	return fmt.Errorf("%s: %w", call, err)
}

// do runs f on a thread with the context current.
func (d *Device) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return failure("cuCtxSetCurrent", err)
	}
	return f()
}

// Info describes the device.
func (d *Device) Info() hal.Info { return d.info }

// Close destroys the context. Everything created from the device must be closed first.
func (d *Device) Close() error { return failure("cuCtxDestroy", d.context.Destroy()) }

// memory is device memory, which the host accesses by copying.
type memory struct {
	device *Device
	ptr    cu.DevicePtr
	size   int
	freed  bool
}

// Alloc returns zeroed memory, the device's own.
func (d *Device) Alloc(bytes int, kind hal.MemoryKind) (hal.Memory, error) {
	switch {
	case bytes <= 0:
		return nil, fmt.Errorf("allocation of %d bytes", bytes)
	case kind == hal.PinnedMemory || kind == hal.ManagedMemory:
		return nil, fmt.Errorf("pinned or managed memory: %w by way of gorgonia.org/cu", hal.ErrNoSuchMemory)
	}
	m := &memory{device: d, size: bytes}
	err := d.do(func() (err error) {
		if m.ptr, err = cu.MemAlloc(int64(bytes)); err != nil {
			return failure("cuMemAlloc", err)
		}
		if err = cu.MemsetD8(m.ptr, 0, int64(bytes)); err == nil {
			err = cu.Synchronize()
		}
		if err != nil {
			return errors.Join(failure("cuMemsetD8", err), cu.MemFree(m.ptr))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *memory) Size() int     { return m.size }
func (m *memory) Addr() uint64  { return uint64(m.ptr) }
func (m *memory) Bytes() []byte { return nil }

func (m *memory) inside(n, offset int) error {
	if offset < 0 || n > m.size-offset {
		return fmt.Errorf("transfer of %d bytes at offset %d of %d", n, offset, m.size)
	}
	return nil
}

func (m *memory) Write(src []byte, offset int) error {
	if err := m.inside(len(src), offset); err != nil || len(src) == 0 {
		return err
	}
	return m.device.do(func() error {
		if err := cu.MemcpyHtoD(m.ptr+cu.DevicePtr(offset), unsafe.Pointer(&src[0]), int64(len(src))); err != nil {
			return failure("cuMemcpyHtoD", err)
		}
		return failure("cuCtxSynchronize", cu.Synchronize())
	})
}

func (m *memory) Read(dst []byte, offset int) error {
	if err := m.inside(len(dst), offset); err != nil || len(dst) == 0 {
		return err
	}
	return m.device.do(func() error {
		return failure("cuMemcpyDtoH", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), m.ptr+cu.DevicePtr(offset), int64(len(dst))))
	})
}

func (m *memory) Free() error {
	if m.freed {
		return nil
	}
	return m.device.do(func() error {
		m.freed = true
		return failure("cuMemFree", cu.MemFree(m.ptr))
	})
}

// module is loaded code.
type module struct {
	device *Device
	code   cu.Module

	mu        sync.Mutex
	functions map[string]cu.Function
}

// Load loads PTX. Cubins are not used: cu takes images as C strings, which end at the first zero byte.
func (d *Device) Load(ctx context.Context, image hal.Image) (hal.Module, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if image.PTX == "" {
		return nil, fmt.Errorf("%w: %s has no PTX, and cubins are %w", hal.ErrBadModule, image.Name, ErrUnsupported)
	}
	m := &module{device: d, functions: map[string]cu.Function{}}
	err := d.do(func() (err error) {
		m.code, err = cu.LoadData(image.PTX)
		return failure("cuModuleLoadData", err)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *module) function(name string) (cu.Function, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.functions[name]; ok {
		return f, nil
	}
	f, err := m.code.Function(name)
	if err != nil {
		return f, fmt.Errorf("kernel %s: %w", name, failure("cuModuleGetFunction", err))
	}
	m.functions[name] = f
	return f, nil
}

// Close unloads the code.
func (m *module) Close() error {
	return m.device.do(func() error { return failure("cuModuleUnload", m.code.Unload()) })
}
