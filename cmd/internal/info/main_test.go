//go:build linux && (amd64 || arm64)

package info

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/hal/machine"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// layer is a management layer that counts how often it was read.
type layer struct {
	snapshot nvml.Snapshot
	reads    *int
}

func (layer) Name() string { return "NVML" }
func (layer) Close() error { return nil }
func (l layer) Read(ctx context.Context) (nvml.Snapshot, error) {
	*l.reads++
	return l.snapshot, ctx.Err()
}

// spark is a DGX Spark whose GPU is played by the CPU device.
func spark(f flags, change func(*nvml.GPU)) (*tool, *bytes.Buffer) {
	g := nvml.GPU{Name: "NVIDIA GB10", Bus: "b", Major: 12, Minor: 1, ClockMHz: nvml.Known(2418), ClockMax: nvml.Known(3003), PowerWatts: nvml.Known(41.3), Celsius: nvml.Known(58), Utilisation: nvml.Known(93)}
	if change != nil {
		change(&g)
	}
	out := &bytes.Buffer{}
	root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 125829120 kB\nMemAvailable: 104857600 kB\n")},
		"sys/class/dmi/id/sys_vendor": {Data: []byte("NVIDIA\n")}, "sys/class/dmi/id/product_name": {Data: []byte("NVIDIA_DGX_Spark\n")}}
	return &tool{flags: f, out: out, open: func(context.Context, detect.Options) (hal.Device, string, error) {
		d, err := emu.Open(emu.Options{})
		return d, "", err
	}, prober: machine.Prober{Root: root,
		Driver: func() (*cuda.System, error) {
			return &cuda.System{CUDA: "13.0", GPUs: []cuda.GPU{{Name: "NVIDIA GB10", Bus: "b", Major: 12, Minor: 1, SMs: 48, Integrated: true}}}, nil
		},
		Management: func() (nvml.Source, error) {
			return layer{nvml.Snapshot{Driver: "580.95.05", GPUs: []nvml.GPU{g}}, new(int)}, nil
		}}}, out
}

func TestStatusOfASpark(t *testing.T) {
	tool, out := spark(flags{}, nil)
	require.NoError(t, tool.run(context.Background()))
	for _, want := range []string{"NVIDIA DGX Spark (DGX Spark), identified by /sys/class/dmi/id/product_name: NVIDIA_DGX_Spark; GPU: NVIDIA GB10",
		"580.95.05, CUDA 13.0, via NVML", "NVIDIA GB10, compute capability 12.1, 48 SMs: used by default",
		"memory 120.0 GiB, 20.0 GiB used, shared with the CPU (/proc/meminfo)", "clock 2418 of 3003 MHz, 41.3 W, 58 °C, 93 % busy\n", "nvfp4 is the fastest",
		"precision = fp16 (default)"} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "missing")
}

// TestAnInterruptIsNoCheckThatFails: nothing is said of a machine that was not looked at.
func TestAnInterruptIsNoCheckThatFails(t *testing.T) {
	tool, out := spark(flags{Check: true}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	open := tool.open
	tool.open = func(ctx context.Context, opt detect.Options) (hal.Device, string, error) {
		cancel()
		return open(ctx, opt)
	}
	require.ErrorIs(t, tool.run(ctx), context.Canceled)
	require.Empty(t, out.String())
}

func TestStatusAsJSON(t *testing.T) {
	tool, out := spark(flags{JSON: "-", Check: true}, nil)
	t.Setenv("OPENPILOT_DGX_PRECISION", "int3")
	require.NoError(t, tool.run(context.Background()))
	var s status
	require.NoError(t, json.Unmarshal(out.Bytes(), &s), out.String())
	require.Equal(t, machine.DGXSpark, s.Machine.Kind)
	require.Equal(t, "emu", s.Device.Backend)
	require.Len(t, s.Settings, 4+len(hal.SwitchNames()))
	require.Contains(t, s.Settings[2].Warnings[0], "int3")
	require.NotEmpty(t, s.Checks)
}

func TestChecksOfAnOrderlySpark(t *testing.T) {
	tool, out := spark(flags{Check: true}, nil)
	require.NoError(t, tool.run(context.Background()))
	for _, name := range []string{"driver", "management", "device", "clocks", "PTX load on the CPU device", "kernel on the CPU device"} {
		require.Regexp(t, `passed +`+name, out.String())
	}
	require.Contains(t, out.String(), "1024 words correct")
}

func TestThrottledClocksFailTheCheck(t *testing.T) {
	for name, change := range map[string]func(*nvml.GPU){
		"thermal slowdown": func(g *nvml.GPU) { g.Throttle = 0x20 },
		"capped":           func(g *nvml.GPU) { g.ClockMHz = nvml.Known(611) },
	} {
		tool, out := spark(flags{Check: true}, change)
		require.ErrorIs(t, tool.run(context.Background()), errCheck, name)
		require.Regexp(t, `failed +clocks .*`+name, out.String())
	}
}

// broken is a device whose kernels do nothing.
type broken struct{ hal.Device }

func (broken) Close() error { return nil }
func (b broken) Info() hal.Info {
	return hal.Info{Name: "NVIDIA GB10", Backend: "cuda", Target: "sm_121"}
}
func (b broken) Capture(context.Context, []hal.Op) (hal.Graph, error) { return idle{}, nil }

type idle struct{}

func (idle) Run(context.Context) error  { return nil }
func (idle) Close() error               { return nil }
func (idle) Wait(context.Context) error { return nil }

func TestKernelThatComputesNothingFailsTheCheck(t *testing.T) {
	tool, out := spark(flags{Check: true}, nil)
	tool.open = func(context.Context, detect.Options) (hal.Device, string, error) {
		d, err := emu.Open(emu.Options{})
		return broken{d}, "", err
	}
	require.ErrorIs(t, tool.run(context.Background()), errCheck)
	require.Regexp(t, `failed +kernel on NVIDIA GB10 +word \d+ is \d+, not \d+ → `, out.String())
	require.Regexp(t, `passed +kernel on the CPU device`, out.String())
}

// TestAMissingDriverIsSaidOnce, in the status alone and with the checks.
func TestAMissingDriverIsSaidOnce(t *testing.T) {
	const library = "libcuda-that-is-not-there.so"
	said := library
	if !dlopen.Supported {
		said = dlopen.ErrUnsupported.Error()
	}
	for _, check := range []bool{false, true} {
		tool, out := spark(flags{Check: check}, nil)
		tool.prober.Driver = func() (*cuda.System, error) { return cuda.List(cuda.Options{Library: library}) }
		tool.prober.Management = func() (nvml.Source, error) { return nil, nvml.ErrUnavailable }
		tool.open = func(ctx context.Context, opt detect.Options) (hal.Device, string, error) {
			opt.Library, opt.Lookup = library, func(string) (string, bool) { return "", false }
			return detect.Open(ctx, opt)
		}
		require.NoError(t, tool.run(context.Background()))
		require.Equal(t, 1, strings.Count(out.String(), said), out.String())
		require.Contains(t, out.String(), "cpu (emu)")
	}
}

func TestMissingIsNotFailed(t *testing.T) {
	tool, out := spark(flags{Check: true}, nil)
	tool.prober.Driver = func() (*cuda.System, error) { return nil, hal.ErrNoDriver }
	tool.prober.Management = func() (nvml.Source, error) { return nil, nvml.ErrUnavailable }
	require.NoError(t, tool.run(context.Background()))
	if dlopen.Supported {
		require.Regexp(t, `missing +driver +no driver → install`, out.String())
	} else {
		require.Regexp(t, `missing +driver +no driver → the CPU device works without it`, out.String())
	}
	require.Regexp(t, `missing +management`, out.String())

	tool, out = spark(flags{Check: true}, nil)
	tool.prober.Driver = func() (*cuda.System, error) { return nil, hal.ErrDriverTooOld }
	require.ErrorIs(t, tool.run(context.Background()), errCheck)
	require.Regexp(t, `failed +driver +driver too old`, out.String())

	tool, out = spark(flags{Check: true}, nil)
	tool.open = func(context.Context, detect.Options) (hal.Device, string, error) {
		return nil, "", errors.New("device cuda: gone")
	}
	require.ErrorIs(t, tool.run(context.Background()), errCheck)
	require.Regexp(t, `failed +device +device cuda: gone`, out.String())
}

func TestMonitorEndsAfterItsDuration(t *testing.T) {
	tool, out := spark(flags{Monitor: true, Interval: new(.02), Duration: new(.2)}, func(g *nvml.GPU) { g.Throttle = 4 })
	begin := time.Now()
	require.NoError(t, tool.run(context.Background()))
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.GreaterOrEqual(t, len(lines), 3)
	require.Contains(t, lines[0], "power W")
	require.Contains(t, lines[1], "20.0 GiB of 120.0 GiB  power cap")

	tool, out = spark(flags{Monitor: true, JSON: "-", Duration: new(.05)}, nil)
	require.NoError(t, tool.run(context.Background()))
	var m moment
	require.NoError(t, json.Unmarshal(out.Bytes(), &m))
	require.Equal(t, nvml.Known(41.3), m.GPUs[0].PowerWatts)
}

func TestMonitorNeedsSomethingToShow(t *testing.T) {
	tool, _ := spark(flags{Monitor: true}, nil)
	tool.prober.Management = func() (nvml.Source, error) { return nil, nvml.ErrUnavailable }
	require.ErrorContains(t, tool.run(context.Background()), "nothing to monitor")
}

func TestArchitectureIsOneThatTheDeviceTakes(t *testing.T) {
	for sm, want := range map[string]string{"sm_121": "sm_121", "sm_120": "sm_90", "sm_90": "sm_90", "sm_89": "sm_80", "sm_80": "sm_80", "sm_75": "sm_80", "": "sm_121"} {
		require.Equal(t, want, architecture(named{sm: sm}), sm)
	}
}

type named struct {
	hal.Device
	sm string
}

func (n named) Info() hal.Info { return hal.Info{Target: n.sm} }
