//go:build cgo && linux && (amd64 || arm64)

package nvml

import (
	"context"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"
)

// TestLibrary_AgreesWithGoNVML compares our struct layouts with those that cgo takes from NVIDIA's header.
func TestLibrary_AgreesWithGoNVML(t *testing.T) {
	path := fakeLibrary(t)
	s, err := newLibrary(path)
	require.NoError(t, err)
	got, err := s.Read(context.Background())
	require.NoError(t, err)

	api := nvml.New(nvml.WithLibraryPath(path))
	require.Equal(t, nvml.SUCCESS, api.Init())
	defer api.Shutdown()
	d, r := api.DeviceGetHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, r)
	require.Equal(t, []GPU{readGoNVML(t, d)}, got.GPUs)
}

// readGoNVML reads every figure through go-nvml; each must succeed.
func readGoNVML(t *testing.T, d nvml.Device) (g GPU) {
	ok := func(r nvml.Return) { t.Helper(); require.Equal(t, nvml.SUCCESS, r) }
	whole := func(v uint32, r nvml.Return) Figure { ok(r); return Known(float64(v)) }
	var r nvml.Return
	g.Name, r = d.GetName()
	ok(r)
	g.UUID, r = d.GetUUID()
	ok(r)
	g.Major, g.Minor, r = d.GetCudaComputeCapability()
	ok(r)
	p, r := d.GetPciInfo()
	ok(r)
	for _, c := range p.BusId {
		if c != 0 {
			g.Bus += string(rune(c | 0x20)) // digits and punctuation already have the bit
		}
	}
	m, r := d.GetMemoryInfo()
	ok(r)
	g.MemoryTotal, g.MemoryUsed = Known(float64(m.Total)), Known(float64(m.Used))
	g.ClockMHz, g.ClockMax, g.MemoryMHz = whole(d.GetClockInfo(nvml.CLOCK_SM)), whole(d.GetMaxClockInfo(nvml.CLOCK_SM)), whole(d.GetClockInfo(nvml.CLOCK_MEM))
	g.PowerWatts, g.PowerLimit = whole(d.GetPowerUsage()), whole(d.GetEnforcedPowerLimit())
	g.PowerWatts.Value /= 1000
	g.PowerLimit.Value /= 1000
	g.Celsius = whole(d.GetTemperature(nvml.TEMPERATURE_GPU))
	u, r := d.GetUtilizationRates()
	ok(r)
	g.Utilisation = Known(float64(u.Gpu))
	reasons, r := d.GetCurrentClocksThrottleReasons()
	ok(r)
	g.Throttle = Reasons(reasons)
	return g
}
