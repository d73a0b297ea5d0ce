package cuda

import (
	"errors"
	"fmt"
	goruntime "runtime"

	"github.com/spark-compile/spark-compile/hal"
)

// Device attributes (CUdevice_attribute).
const (
	attributeClockKHz          = 13
	attributeSMs               = 16
	attributeIntegrated        = 18
	attributeCanMapHost        = 19
	attributePCIBus            = 33
	attributePCIDevice         = 34
	attributeL2Bytes           = 38
	attributePCIDomain         = 50
	attributeComputeMajor      = 75
	attributeComputeMinor      = 76
	attributeManaged           = 83
	attributeConcurrentManaged = 89
	attributeSharedBlockOptin  = 97
	attributeHostPageTables    = 100
)

// List describes driver and GPUs without making a context on any.
func List(opt Options) (*System, error) {
	drv, count, err := start(opt)
	if err != nil {
		return nil, err
	}
	var version int32
	if err := drv.call("cuDriverGetVersion", addr(&version)); err != nil {
		return nil, err
	}
	s := &System{CUDA: fmt.Sprintf("%d.%d", version/1000, version%1000/10), GPUs: []GPU{}}
	for i := range count {
		g, _, err := drv.describe(i)
		if err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s, nil
}

// defaultLibrary is what Options.Library is by default.
const defaultLibrary = "libcuda.so.1"

// start opens and initialises the driver and counts its devices.
func start(opt Options) (*driver, int, error) {
	if opt.Library == "" {
		opt.Library = defaultLibrary
	}
	drv, err := &driver{instead: opt.instead, entries: map[string]uintptr{"cuGraphGetEdges": 1}}, error(nil)
	if opt.instead == nil {
		drv, err = openDriver(opt.Library)
	}
	if err != nil {
		return nil, 0, err
	}
	if err := drv.call("cuInit", 0); err != nil {
		return nil, 0, err
	}
	var count int32
	if err := drv.call("cuDeviceGetCount", addr(&count)); err != nil {
		return nil, 0, err
	}
	return drv, int(count), nil
}

// required is the number of attributes without which a GPU cannot be used: those of its compute capability.
const required = 2

// unknown are attributes of a GPU whose driver does not say, other than 0.
var unknown = map[uintptr]int32{attributeSMs: 1, attributeSharedBlockOptin: 48 << 10}

// describe asks for everything that can be read of a device without a context.
func (d *driver) describe(ordinal int) (GPU, int32, error) {
	g := GPU{Ordinal: ordinal}
	var handle int32
	if err := d.call("cuDeviceGet", addr(&handle), uintptr(ordinal)); err != nil {
		return g, 0, err
	}
	name := make([]byte, 256)
	if err := d.call("cuDeviceGetName", addr(&name[0]), uintptr(len(name)), uintptr(handle)); err != nil {
		return g, 0, err
	}
	g.Name = goString(&name[0])
	var total uint64
	if err := d.call("cuDeviceTotalMem", addr(&total), uintptr(handle)); err != nil {
		return g, 0, err
	}
	g.Memory = int64(total)
	var values [14]int32
	for i, id := range []uintptr{attributeComputeMajor, attributeComputeMinor, attributeSMs, attributeSharedBlockOptin, attributeL2Bytes, attributeClockKHz,
		attributeIntegrated, attributeCanMapHost, attributeManaged, attributeConcurrentManaged, attributeHostPageTables,
		attributePCIDomain, attributePCIBus, attributePCIDevice} {
		err := d.call("cuDeviceGetAttribute", addr(&values[i]), id, uintptr(handle))
		if err == nil {
			continue
		}
		if failed := (*hal.Error)(nil); errors.As(err, &failed) && failed.Err == nil && i >= required {
			values[i] = unknown[id] // a driver that does not know an attribute has not what it tells of
			continue
		}
		return g, 0, fmt.Errorf("attribute %d: %w", id, err)
	}
	goruntime.KeepAlive(&values)
	v := func(i int) int { return int(values[i]) }
	g.Major, g.Minor, g.SMs, g.SharedBlock, g.L2Bytes, g.ClockMHz = v(0), v(1), v(2), v(3), v(4), v(5)/1000
	g.Integrated, g.CanMapHost, g.Managed, g.ConcurrentManaged, g.HostPageTables = v(6) != 0, v(7) != 0, v(8) != 0, v(9) != 0, v(10) != 0
	g.Bus = fmt.Sprintf("%08x:%02x:%02x.0", v(11), v(12), v(13))
	return g, handle, nil
}
