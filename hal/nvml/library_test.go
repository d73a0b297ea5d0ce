//go:build cgo && linux && !nonvml

package nvml

import (
	"context"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/require"
)

// gpu is a device of the mock; with bare, everything but the name is refused.
func gpu(bare nvml.Return) *mock.Device {
	ret := func() nvml.Return { return bare }
	return &mock.Device{
		GetNameFunc:                         func() (string, nvml.Return) { return "NVIDIA GB10", nvml.SUCCESS },
		GetUUIDFunc:                         func() (string, nvml.Return) { return "GPU-1", ret() },
		GetPciInfoFunc:                      func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{BusId: [32]int8{'0', 'F', ':', '1'}}, ret() },
		GetCudaComputeCapabilityFunc:        func() (int, int, nvml.Return) { return 12, 1, ret() },
		GetMemoryInfoFunc:                   func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED },
		GetClockInfoFunc:                    func(nvml.ClockType) (uint32, nvml.Return) { return 2400, ret() },
		GetMaxClockInfoFunc:                 func(nvml.ClockType) (uint32, nvml.Return) { return 3003, ret() },
		GetPowerUsageFunc:                   func() (uint32, nvml.Return) { return 41270, ret() },
		GetEnforcedPowerLimitFunc:           func() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED },
		GetTemperatureFunc:                  func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 58, ret() },
		GetUtilizationRatesFunc:             func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 93}, ret() },
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return 0x44, ret() },
	}
}

func machine(d *mock.Device) *mock.Interface {
	ok := nvml.SUCCESS
	return &mock.Interface{
		InitFunc: func() nvml.Return { return ok }, ShutdownFunc: func() nvml.Return { return ok },
		DeviceGetCountFunc:             func() (int, nvml.Return) { return 1, ok },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "580.95.05", ok },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 13000, ok },
		DeviceGetHandleByIndexFunc:     func(int) (nvml.Device, nvml.Return) { return d, ok },
	}
}

func TestLibraryReadsGB10(t *testing.T) {
	s, err := newLibrary(machine(gpu(nvml.SUCCESS)))
	require.NoError(t, err)
	got, err := s.Read(context.Background())
	require.NoError(t, err)
	require.Equal(t, Snapshot{Driver: "580.95.05", CUDA: "13.0", GPUs: []GPU{{Name: "NVIDIA GB10", UUID: "GPU-1", Bus: "0f:1", Major: 12, Minor: 1,
		ClockMHz: Known(2400), ClockMax: Known(3003), MemoryMHz: Known(2400), PowerWatts: Known(41.27), Celsius: Known(58), Utilisation: Known(93), Throttle: 0x44}}}, got)
	require.Equal(t, []string{"power cap", "hardware thermal slowdown"}, got.GPUs[0].Throttle.Slowdowns())
	require.NoError(t, s.Close())
}

// TestMemoryOfZeroBytesIsAbsent holds the third way in which drivers answer for unified memory.
func TestMemoryOfZeroBytesIsAbsent(t *testing.T) {
	d := gpu(nvml.SUCCESS)
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS }
	g, err := readDevice(0, d)
	require.NoError(t, err)
	require.False(t, g.MemoryTotal.OK)
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 8, Used: 1}, nvml.SUCCESS }
	g, err = readDevice(0, d)
	require.NoError(t, err)
	require.Equal(t, Known(8), g.MemoryTotal)
}

// TestEveryRefusalIsAnAbsentFigure fails all optional calls with each of NVML's codes.
func TestEveryRefusalIsAnAbsentFigure(t *testing.T) {
	for code := nvml.ERROR_UNINITIALIZED; code <= nvml.ERROR_INVALID_STATE; code++ {
		g, err := readDevice(3, gpu(code))
		require.NoError(t, err)
		require.Equal(t, GPU{Index: 3, Name: "NVIDIA GB10"}, g, "code %d", code)
	}
}

// TestNeededCallsThatFailAreErrors fails in turn what nothing can be said without.
func TestNeededCallsThatFailAreErrors(t *testing.T) {
	for code := nvml.ERROR_UNINITIALIZED; code <= nvml.ERROR_INVALID_STATE; code++ {
		for name, breakIt := range map[string]func(*mock.Interface, *mock.Device){
			"nvmlDeviceGetCount": func(m *mock.Interface, _ *mock.Device) {
				m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, code }
			},
			"nvmlDeviceGetHandleByIndex": func(m *mock.Interface, _ *mock.Device) {
				m.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, code }
			},
			"nvmlDeviceGetName": func(_ *mock.Interface, d *mock.Device) {
				d.GetNameFunc = func() (string, nvml.Return) { return "", code }
			},
		} {
			d := gpu(nvml.SUCCESS)
			m := machine(d)
			breakIt(m, d)
			s, err := newLibrary(m)
			require.NoError(t, err)
			_, err = s.Read(context.Background())
			require.ErrorContains(t, err, name)
		}
	}
}

// TestNothingIsCalledAfterInitFails is what keeps go-nvml from ending the process: the mock panics on any other call.
func TestNothingIsCalledAfterInitFails(t *testing.T) {
	for code := nvml.ERROR_UNINITIALIZED; code <= nvml.ERROR_INVALID_STATE; code++ {
		_, err := newLibrary(&mock.Interface{InitFunc: func() nvml.Return { return code }})
		require.ErrorContains(t, err, "nvmlInit")
	}
	_, err := newLibrary(&mock.Interface{InitFunc: func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }})
	require.ErrorContains(t, err, "not installed")
}
