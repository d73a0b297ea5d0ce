package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal"
)

// sharingKind is how memory that host and device share is allocated.
type sharingKind int

const (
	copied        sharingKind = iota // not shared: explicit copies
	hostAllocated                    // cuMemHostAlloc, mapped for the device
	managed                          // cuMemAllocManaged
	pageable                         // the host's own (Map)
)

func (k sharingKind) String() string {
	return [...]string{"copied", "host-allocated", "managed", "pageable"}[k]
}

// sharing is what the probe found, and why.
type sharing struct {
	kind sharingKind
	why  string
}

// Copies returns why inputs and outputs are copied between host and device; "" if they are not.
func (d *Device) Copies() string {
	if d.shared.kind != copied {
		return ""
	}
	return d.shared.why
}

const (
	hostAllocPortable  = 1 // CU_MEMHOSTALLOC_PORTABLE
	hostAllocDeviceMap = 2 // CU_MEMHOSTALLOC_DEVICEMAP
	memAttachGlobal    = 1 // CU_MEM_ATTACH_GLOBAL
)

// probe decides how memory is shared: by attributes first, then by trying, since attributes alone have been wrong: a
// write of each side, and kernels that read again what the host has rewritten. cuMemHostRegister is never used: GB10
// does not have it, and cuMemAlloc memory is not coherent for the CPU there.
func (d *Device) probe(ctx context.Context) (sharing, error) {
	if !d.gpu.Integrated && !d.gpu.HostPageTables {
		return sharing{copied, d.gpu.Name + " has its own memory"}, nil
	}
	tried := []error{}
	for _, kind := range []sharingKind{hostAllocated, managed} {
		err := d.offers(kind)
		if err == nil {
			err = d.coherent(kind)
		}
		if err == nil {
			err = d.rereads(ctx, kind, rereadBytes[:smallRereads], rereadsAtOpen)
		}
		if err == nil {
			return sharing{kind: kind}, nil
		}
		if errors.Is(err, hal.ErrDeviceLost) {
			return sharing{}, err
		}
		tried = append(tried, fmt.Errorf("%v memory: %w", kind, err))
	}
	return sharing{copied, fmt.Sprintf("%s shares its memory with the host, but %v; %v", d.gpu.Name, tried[0], tried[1])}, nil
}

// offers says why the device has no memory of a kind, or nil. Managed memory that the host may not touch while
// kernels run is of no use here.
func (d *Device) offers(kind sharingKind) error {
	if kind == hostAllocated && !d.gpu.CanMapHost || kind == pageable && !d.gpu.HostPageTables || kind == managed && !(d.gpu.Managed && d.gpu.ConcurrentManaged) {
		return hal.ErrNoSuchMemory
	}
	return nil
}

var errIncoherent = errors.New("host and device do not see each other's writes")

// coherent allocates memory of a kind, has the device write one half and the host the other, and reads all of it from
// both sides.
func (d *Device) coherent(kind sharingKind) error {
	const size, half, fromHost, fromDevice = 512, 256, 0xa5, 0x5a
	m := &memory{device: d, size: size}
	return d.do(func() (err error) {
		defer func() { err = errors.Join(err, m.release()) }()
		if err := m.allocate(kind); err != nil {
			return err
		}
		copy(m.host, bytes.Repeat([]byte{fromHost}, size))
		if err := d.settle(d.call("cuMemsetD8", uintptr(m.ptr)+half, fromDevice, half)); err != nil {
			return err
		}
		seen := make([]byte, size)
		if err := d.call("cuMemcpyDtoH", addr(&seen[0]), uintptr(m.ptr), size); err != nil {
			return err
		}
		want := append(bytes.Repeat([]byte{fromHost}, half), bytes.Repeat([]byte{fromDevice}, half)...)
		if !bytes.Equal(m.host, want) || !bytes.Equal(seen, want) {
			return errIncoherent
		}
		return nil
	})
}

// allocate allocates zeroed memory of a kind.
func (m *memory) allocate(kind sharingKind) error {
	switch kind {
	case hostAllocated:
		return m.allocHost()
	case managed:
		return m.allocManaged()
	case pageable:
		m.kind, m.host = pageable, make([]byte, m.size)
		m.ptr = uint64(addr(&m.host[0]))
		return nil
	}
	if err := m.device.call("cuMemAlloc", addr(&m.ptr), uintptr(m.size)); err != nil {
		return err
	}
	return m.device.settle(m.device.call("cuMemsetD8", uintptr(m.ptr), 0, uintptr(m.size)))
}

// allocHost allocates page-locked host memory that the device sees.
func (m *memory) allocHost() error {
	var p unsafe.Pointer
	if err := m.device.call("cuMemHostAlloc", addr(&p), uintptr(m.size), hostAllocPortable|hostAllocDeviceMap); err != nil {
		return err
	}
	m.kind, m.host = hostAllocated, unsafe.Slice((*byte)(p), m.size)
	clear(m.host)
	return m.device.call("cuMemHostGetDevicePointer", addr(&m.ptr), uintptr(p), 0)
}

// allocManaged allocates memory that has the same address on both sides.
func (m *memory) allocManaged() error {
	var p unsafe.Pointer
	if err := m.device.call("cuMemAllocManaged", addr(&p), uintptr(m.size), memAttachGlobal); err != nil {
		return err
	}
	m.kind, m.ptr, m.host = managed, uint64(uintptr(p)), unsafe.Slice((*byte)(p), m.size)
	clear(m.host)
	return nil
}
