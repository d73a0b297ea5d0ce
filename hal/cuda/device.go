package cuda

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/placement"
)

// Device is one GPU with its primary context.
type Device struct {
	*driver
	ordinal int32
	context uintptr
	info    hal.Info
	gpu     GPU
	shared  sharing
	cache   jitCache
	pages   struct { // whether it reads the host's own memory, tried once
		once sync.Once
		err  error
	}
	homes string

	delays struct { // the kernel that keeps a stream busy, loaded by the first timed run
		sync.Mutex
		module *module
		since  func(time.Time) time.Duration // how long the host took to enqueue: time.Since; 0 for a host that is never late
	}
}

// Open opens the driver and a device's primary context, and finds out how its memory is shared with the host.
func Open(opt Options) (*Device, error) {
	drv, count, err := start(opt)
	if err != nil {
		return nil, err
	}
	if opt.Ordinal < 0 || opt.Ordinal >= count {
		return nil, fmt.Errorf("%w: device %d of %d", hal.ErrNoDevice, opt.Ordinal, count)
	}
	d := &Device{driver: drv, cache: jitCache{dir: opt.Cache}, homes: opt.Homes}
	d.delays.since = time.Since
	if d.gpu, d.ordinal, err = drv.describe(opt.Ordinal); err != nil {
		return nil, err
	}
	if d.cache.dir != "" || d.homes != "" {
		if d.cache.driver, err = drv.build(opt.Library); err != nil {
			return nil, err
		}
	}
	if err := drv.call("cuDevicePrimaryCtxRetain", addr(&d.context), uintptr(d.ordinal)); err != nil {
		return nil, err
	}
	d.info = hal.Info{Name: d.gpu.Name, Backend: "cuda", Target: d.gpu.Target(), SharedBlock: d.gpu.SharedBlock, Memory: int(d.gpu.Memory),
		Switches: opt.Switches}
	if d.shared, err = d.probe(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("probing the memory of %s: %w", d.gpu.Name, err), d.Close())
	}
	d.info.Unified = d.shared.kind != copied
	if h, ok := d.Home(); ok {
		d.info.HostWeights = h.Host
	}
	return d, nil
}

// Home is where weights lie best on the device, if its memory is the host's and that was measured.
func (d *Device) Home() (h placement.Placement, ok bool) {
	if d.homes == "" || d.shared.kind == copied {
		return h, false
	}
	return placement.Load(d.homes, d.info.Name, d.cache.driver)
}

// KeepHome keeps where weights lie best on the device, for those that are opened from now on.
func (d *Device) KeepHome(h placement.Placement) error {
	if d.homes == "" {
		return nil
	}
	h.Device, h.Driver = d.info.Name, d.cache.driver
	return h.Write(d.homes)
}

// Info describes the device.
func (d *Device) Info() hal.Info { return d.info }

// do runs f on a thread that has the device's context current.
func (d *Device) do(f func() error) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := d.call("cuCtxSetCurrent", d.context); err != nil {
		return err
	}
	return f()
}

// Do runs f on a thread that has the device's context current: what other libraries of CUDA do then is of this device.
func (d *Device) Do(f func() error) error { return d.do(f) }

// Close releases the context. Close everything made from the device first.
func (d *Device) Close() error {
	if m := d.delays.module; m != nil {
		err := m.Close()
		switch lost := errors.Is(err, hal.ErrDeviceLost); {
		case lost && unbound(err): // the code is lost with the device
			err = nil
		case unbound(err): // nothing was freed: Close may be called again
			return err
		}
		d.delays.module = nil
		return errors.Join(err, d.call("cuDevicePrimaryCtxRelease", uintptr(d.ordinal)))
	}
	return d.call("cuDevicePrimaryCtxRelease", uintptr(d.ordinal))
}

// addr is the address of Go memory for a call of the driver. The memory is forced onto the heap, where nothing moves;
// callers keep it alive over the call.
func addr[T any](p *T) uintptr {
	if escape.enabled {
		escape.to = p
	}
	return uintptr(unsafe.Pointer(p))
}

// escape is never enabled, but the compiler cannot know that, so that addr's argument escapes.
var escape struct {
	enabled bool
	to      any
}

// memory is device memory, or page-locked host memory that the device sees.
type memory struct {
	device *Device
	ptr    uint64
	size   int
	host   []byte
	kind   sharingKind
}

// Alloc returns zeroed memory. Host-visible memory is of the kind that the probe found to be shared, if there is one.
func (d *Device) Alloc(bytes int, kind hal.MemoryKind) (hal.Memory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("allocation of %d bytes", bytes)
	}
	way := copied
	switch kind {
	case hal.HostVisible:
		way = d.shared.kind
	case hal.PinnedMemory:
		way = hostAllocated
	case hal.ManagedMemory:
		way = managed
	}
	if err := d.offers(way); err != nil {
		return nil, fmt.Errorf("%v memory: %w", way, err)
	}
	m := &memory{device: d, size: bytes}
	if err := d.do(func() error { return m.allocate(way) }); err != nil {
		return nil, errors.Join(err, m.Free())
	}
	return m, nil
}

// settle waits for the default stream, on which memset and copies from pageable host memory may still be under way when
// their call returns (CUDA Driver API, "API synchronization behavior"): graphs run on streams that do not wait for it.
func (d *Device) settle(err error) error {
	if err != nil {
		return err
	}
	const defaultStream = 0
	return d.call("cuStreamSynchronize", defaultStream)
}

func (m *memory) Size() int     { return m.size }
func (m *memory) Addr() uint64  { return m.ptr }
func (m *memory) Bytes() []byte { return m.host }

func (m *memory) Write(src []byte, offset int) error { return m.transfer(src, offset, true) }

func (m *memory) Read(dst []byte, offset int) error { return m.transfer(dst, offset, false) }

func (m *memory) transfer(b []byte, offset int, write bool) error {
	if offset < 0 || len(b) > m.size-offset {
		return fmt.Errorf("transfer of %d bytes at offset %d of %d", len(b), offset, m.size)
	}
	if len(b) == 0 {
		return nil
	}
	if m.host != nil {
		if write {
			copy(m.host[offset:], b)
		} else {
			copy(b, m.host[offset:])
		}
		return nil
	}
	at := uintptr(m.ptr) + uintptr(offset)
	defer goruntime.KeepAlive(b)
	return m.device.do(func() error {
		if write {
			return m.device.settle(m.device.call("cuMemcpyHtoD", at, addr(&b[0]), uintptr(len(b))))
		}
		return m.device.call("cuMemcpyDtoH", addr(&b[0]), at, uintptr(len(b)))
	})
}

func (m *memory) Free() error {
	if m.kind == pageable { // the driver knows nothing of it
		m.ptr, m.host = 0, nil
		return nil
	}
	return m.device.do(m.release)
}

// release is Free where the context is current already.
func (m *memory) release() error {
	if m.kind == hostAllocated && m.host != nil {
		p := addr(&m.host[0])
		m.ptr, m.host = 0, nil
		return m.device.call("cuMemFreeHost", p)
	}
	if m.ptr == 0 {
		return nil
	}
	p := uintptr(m.ptr)
	m.ptr, m.host = 0, nil
	return m.device.call("cuMemFree", p)
}
