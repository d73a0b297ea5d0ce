//go:build cgo && linux && !nonvml

package nvml

import (
	"context"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is NVML.
type library struct{ api nvml.Interface }

func openLibrary() (Source, error) { return newLibrary(nvml.New()) }

// newLibrary initialises NVML. If that fails, nothing else may be called: without the library go-nvml's other functions
// end the process.
func newLibrary(api nvml.Interface) (Source, error) {
	if r := api.Init(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("nvmlInit: %s", reason(r))
	}
	return &library{api}, nil
}

// reason describes a result. NVML's own text is not used because it is unavailable if the library is missing.
func reason(r nvml.Return) string {
	texts := map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not installed", nvml.ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
		nvml.ERROR_NO_PERMISSION: "no permission to access the driver", nvml.ERROR_LIB_RM_VERSION_MISMATCH: "library and kernel module are from different driver versions: reboot",
		nvml.ERROR_GPU_IS_LOST: "the GPU has fallen off the bus", nvml.ERROR_NOT_SUPPORTED: "not supported", nvml.ERROR_UNINITIALIZED: "not initialised",
	}
	if t, ok := texts[r]; ok {
		return t
	}
	return fmt.Sprintf("error %d", int(r))
}

func (l *library) Name() string { return "NVML" }

func (l *library) Close() error {
	if r := l.api.Shutdown(); r != nvml.SUCCESS {
		return fmt.Errorf("nvmlShutdown: %s", reason(r))
	}
	return nil
}

func (l *library) Read(ctx context.Context) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, err
	}
	count, r := l.api.DeviceGetCount()
	if r != nvml.SUCCESS {
		return Snapshot{}, fmt.Errorf("nvmlDeviceGetCount: %s", reason(r))
	}
	s := Snapshot{GPUs: make([]GPU, 0, count)}
	if v, r := l.api.SystemGetDriverVersion(); r == nvml.SUCCESS {
		s.Driver = v
	}
	if v, r := l.api.SystemGetCudaDriverVersion(); r == nvml.SUCCESS {
		s.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	for i := range count {
		d, r := l.api.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			return Snapshot{}, fmt.Errorf("nvmlDeviceGetHandleByIndex(%d): %s", i, reason(r))
		}
		g, err := readDevice(i, d)
		if err != nil {
			return Snapshot{}, err
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s, nil
}

// SM implements Clock.
func (l *library) SM(bus string) Figure {
	count, _ := l.api.DeviceGetCount() // 0 if it fails
	for i := range count {
		d, r := l.api.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			continue
		}
		if count > 1 {
			if v, r := d.GetPciInfo(); r != nvml.SUCCESS || busString(v.BusId[:]) != bus {
				continue
			}
		}
		return whole(d.GetClockInfo(nvml.CLOCK_SM))
	}
	return Figure{}
}

// readDevice queries every figure; one that fails is absent. Only a GPU that does not report its name is an error.
func readDevice(index int, d nvml.Device) (GPU, error) {
	g := GPU{Index: index}
	var r nvml.Return
	if g.Name, r = d.GetName(); r != nvml.SUCCESS {
		return g, fmt.Errorf("GPU %d: nvmlDeviceGetName: %s", index, reason(r))
	}
	if v, r := d.GetUUID(); r == nvml.SUCCESS {
		g.UUID = v
	}
	if v, r := d.GetPciInfo(); r == nvml.SUCCESS {
		g.Bus = busString(v.BusId[:])
	}
	if major, minor, r := d.GetCudaComputeCapability(); r == nvml.SUCCESS {
		g.Major, g.Minor = major, minor
	}
	// With unified memory some drivers return zero bytes instead of NOT_SUPPORTED.
	if v, r := d.GetMemoryInfo(); r == nvml.SUCCESS && v.Total > 0 {
		g.MemoryTotal, g.MemoryUsed = Known(float64(v.Total)), Known(float64(v.Used))
	}
	g.ClockMHz = whole(d.GetClockInfo(nvml.CLOCK_SM))
	g.ClockMax = whole(d.GetMaxClockInfo(nvml.CLOCK_SM))
	g.MemoryMHz = whole(d.GetClockInfo(nvml.CLOCK_MEM))
	g.PowerWatts = thousandth(d.GetPowerUsage())
	g.PowerLimit = thousandth(d.GetEnforcedPowerLimit())
	g.Celsius = whole(d.GetTemperature(nvml.TEMPERATURE_GPU))
	if v, r := d.GetUtilizationRates(); r == nvml.SUCCESS {
		g.Utilisation = Known(float64(v.Gpu))
	}
	if v, r := d.GetCurrentClocksThrottleReasons(); r == nvml.SUCCESS {
		g.Throttle = Reasons(v)
	}
	return g, nil
}

func whole(v uint32, r nvml.Return) Figure { return scaled(v, r, 1) }

// thousandth converts milliwatts to watts.
func thousandth(v uint32, r nvml.Return) Figure { return scaled(v, r, 1000) }

func scaled(v uint32, r nvml.Return, unit float64) Figure {
	if r != nvml.SUCCESS {
		return Figure{}
	}
	return Known(float64(v) / unit)
}

// busString converts a PCI address from a C string.
func busString(c []int8) string {
	var b strings.Builder
	for _, x := range c {
		if x == 0 {
			break
		}
		b.WriteByte(byte(x))
	}
	return strings.ToLower(b.String())
}
