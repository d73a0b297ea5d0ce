//go:build linux && (amd64 || arm64) && !nodriver

package detect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/internal/testing/fakecuda"
)

// options has an environment of its own: pairs NAME=value.
func options(t *testing.T, name, library string, env ...string) Options {
	env = append(env, "SPARK_CACHE="+filepath.Join(t.TempDir(), "cache"))
	return Options{Name: name, Library: library, Lookup: func(key string) (string, bool) {
		for _, p := range env {
			if k, v, _ := strings.Cut(p, "="); k == key {
				return v, true
			}
		}
		return "", false
	}}
}

const missing = "libcuda-that-is-not-there.so"

func TestMachineWithoutDriverGetsTheCPUDevice(t *testing.T) {
	for _, name := range []string{"", config.Auto} {
		d, why, err := Open(context.Background(), options(t, name, missing))
		require.NoError(t, err)
		require.Equal(t, "emu", d.Info().Backend)
		require.Equal(t, "running on the CPU device (no driver: "+missing+" not found: install the NVIDIA driver)", why)
		require.NoError(t, d.Close())
	}
}

func TestDriverThatIsTooOld(t *testing.T) {
	d, why, err := Open(context.Background(), options(t, config.Auto, "libc.so.6"))
	require.NoError(t, err)
	require.Contains(t, why, "driver too old")
	require.NoError(t, d.Close())
	_, _, err = Open(context.Background(), options(t, config.CUDA, "libc.so.6"))
	require.ErrorIs(t, err, hal.ErrDriverTooOld)
}

func TestDeviceThatWasAskedForIsAnErrorIfItIsMissing(t *testing.T) {
	for _, name := range []string{"cuda", "cuda:0", "cuda:7"} {
		_, _, err := Open(context.Background(), options(t, name, missing))
		require.ErrorIs(t, err, hal.ErrNoDriver, name)
		require.ErrorContains(t, err, "device "+name)
	}
	_, _, err := Open(context.Background(), options(t, "tpu", missing))
	require.ErrorContains(t, err, "tpu")
	f := fakecuda.Build(t)
	f.Set("devices", 0)
	_, _, err = Open(context.Background(), options(t, "cuda", f.Path))
	require.ErrorIs(t, err, hal.ErrNoDevice)
	f.Set("devices", 2)
	_, _, err = Open(context.Background(), options(t, "cuda:2", f.Path))
	require.ErrorIs(t, err, hal.ErrNoDevice)
	d, _, err := Open(context.Background(), options(t, "cuda:1", f.Path))
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Zero(t, f.Held())
}

func TestTheEnvironmentTurnsTheGPUOff(t *testing.T) {
	f := fakecuda.Build(t)
	d, why, err := Open(context.Background(), options(t, config.Auto, f.Path, "OPENPILOT_DISABLE_DGX=1"))
	require.NoError(t, err)
	require.Equal(t, "emu", d.Info().Backend)
	require.Equal(t, "OPENPILOT_DISABLE_DGX: running on the CPU device", why)
	d, _, err = Open(context.Background(), options(t, config.CUDA, f.Path, "OPENPILOT_DISABLE_DGX=1"))
	require.NoError(t, err, "a name stands above the environment")
	require.Equal(t, "cuda", d.Info().Backend)
	require.NoError(t, d.Close())
	d, why, err = Open(context.Background(), options(t, config.Auto, f.Path, "OPENPILOT_DGX_ENABLED=perhaps", "SPARK_DEVICE=emu"))
	require.NoError(t, err)
	require.Equal(t, "emu", d.Info().Backend)
	require.Equal(t, "OPENPILOT_DGX_ENABLED=perhaps is ignored: want 1 or 0, on or off", why)
}

// TestSwitches_ReachEveryDevice: a flag stands above the environment, and a wrong value is told and ignored.
func TestSwitches_ReachEveryDevice(t *testing.T) {
	f := fakecuda.Build(t)
	env := []string{"SPARK_PDL=off", "SPARK_PREFETCH=0", "SPARK_HINTS=sometimes"}
	for _, name := range []string{config.Emu, config.CUDA} {
		opt := options(t, name, f.Path, env...)
		opt.Switches = map[string]bool{"prefetch": true, "carveout": false}
		d, why, err := Open(t.Context(), opt)
		require.NoError(t, err)
		require.Equal(t, hal.Switches{NoPDL: true, NoCarveout: true}, d.Info().Switches, name)
		require.Contains(t, why, "SPARK_HINTS=sometimes is ignored")
		require.NoError(t, d.Close())
	}
	opt := options(t, config.Emu, f.Path)
	opt.Switches = map[string]bool{"overlap": false}
	_, _, err := Open(t.Context(), opt)
	require.ErrorContains(t, err, `"overlap": want pdl, prefetch`)
}

func TestCopiesAreToldOnce(t *testing.T) {
	f := fakecuda.Build(t)
	d, why, err := Open(context.Background(), options(t, config.Auto, f.Path))
	require.NoError(t, err)
	require.Equal(t, "inputs and outputs are copied on each run: Fake GB10 has its own memory", why)
	require.NoError(t, d.Close())
	f.Reset(true)
	d, why, err = Open(context.Background(), options(t, config.Auto, f.Path))
	require.NoError(t, err)
	require.Empty(t, why)
	require.NoError(t, d.Close())
}

func TestNextDeviceIsTakenWhereOneRefuses(t *testing.T) {
	f := fakecuda.Build(t)
	faults := []error{hal.ErrOutOfMemory, hal.ErrBadModule, hal.ErrNoVariant, hal.ErrDeviceLost}
	for _, fault := range faults {
		t.Run(fault.Error(), func(t *testing.T) {
			f.Reset(true)
			f.Set("devices", 2)
			var tried []string
			try := func(d hal.Device) error {
				tried = append(tried, d.Info().Backend)
				if d.Info().Backend == "cuda" {
					return fmt.Errorf("loading: %w", fault)
				}
				return nil
			}
			d, notices, err := Use(context.Background(), options(t, config.Auto, f.Path), try)
			require.NoError(t, err)
			require.Equal(t, []string{"cuda", "cuda", "emu"}, tried)
			require.Equal(t, "emu", d.Info().Backend)
			require.Len(t, notices, 2)
			require.Contains(t, notices[0], "not using cuda:0 (Fake GB10) (loading: "+fault.Error())
			require.Contains(t, notices[0], "; trying cuda:1 (Fake GB10)")
			require.Contains(t, notices[1], "; trying the CPU device")
			require.Zero(t, f.Held())
			_, _, err = Use(context.Background(), options(t, config.CUDA, f.Path), try)
			require.ErrorIs(t, err, fault, "asked for by name")
			require.ErrorContains(t, err, "device cuda:0")
			require.Zero(t, f.Held())
		})
	}
}

func TestFaultsOfTheCallerAreNoReasonForAnotherDevice(t *testing.T) {
	f := fakecuda.Build(t)
	wrong := errors.New("no input q")
	n := 0
	_, _, err := Use(context.Background(), options(t, config.Auto, f.Path), func(hal.Device) error { n++; return wrong })
	require.ErrorIs(t, err, wrong)
	require.Equal(t, 1, n)
	require.Zero(t, f.Held())
}

func TestDeviceThatCannotBeOpenedMakesWay(t *testing.T) {
	f := fakecuda.Build(t)
	for _, c := range []struct {
		code int
		want string
	}{{2, "out of memory"}, {46, "Xid"}, {802, "install the NVIDIA driver"}, {803, "newer NVIDIA driver"}, {101, "visible"}} {
		f.Reset(true)
		f.Fail("cuDevicePrimaryCtxRetain", 0, c.code)
		d, why, err := Open(context.Background(), options(t, config.Auto, f.Path))
		require.NoError(t, err)
		require.Equal(t, "emu", d.Info().Backend)
		if c.code != 2 {
			require.Contains(t, why, c.want)
		}
		require.Contains(t, why, "cuDevicePrimaryCtxRetain")
		require.Zero(t, f.Held())
	}
}

func TestAMadeUpErrorStaysAsItIs(t *testing.T) {
	err := errors.New("x")
	require.Equal(t, err, Explain(err))
	lost := Explain(hal.ErrDeviceLost)
	require.ErrorIs(t, lost, hal.ErrDeviceLost)
	require.EqualError(t, Explain(fmt.Errorf("run 3: %w", lost)), "run 3: "+lost.Error(), "a remedy is given once")
}

func TestAnOpenDeviceIsUsedAndLeftOpen(t *testing.T) {
	f := fakecuda.Build(t)
	own, _, err := Open(context.Background(), options(t, "cuda", f.Path))
	require.NoError(t, err)
	opt := options(t, "", missing)
	opt.Device, opt.Called = own, "WithDevice"
	d, notices, err := Use(context.Background(), opt, func(hal.Device) error { return nil })
	require.NoError(t, err)
	require.Equal(t, own, d)
	require.Len(t, notices, 1, "inputs are copied")

	_, _, err = Use(context.Background(), opt, func(hal.Device) error { return fmt.Errorf("loading: %w", hal.ErrOutOfMemory) })
	require.ErrorIs(t, err, hal.ErrOutOfMemory, "no other device is tried")
	require.ErrorContains(t, err, "free memory on the device")
	opt.Name = "emu"
	_, _, err = Use(context.Background(), opt, func(hal.Device) error { return nil })
	require.EqualError(t, err, "the model goes to a device that is open already (Fake GB10), so neither WithDevice nor checks can be chosen")
	opt.Name, opt.Check = "", true
	_, _, err = Use(context.Background(), opt, func(hal.Device) error { return nil })
	require.ErrorContains(t, err, "checks")
	require.NoError(t, own.Close(), "nobody else has")
	require.Zero(t, f.Held())
}

func TestAWrongNameIsCalledAsItsOptionIs(t *testing.T) {
	opt := options(t, "tpu", missing)
	for called, want := range map[string]string{"": "Options.Name tpu: want auto, cuda, cuda:N or emu", "WithDevice": "WithDevice tpu: want auto, cuda, cuda:N or emu", "--device": "--device tpu: want auto, cuda, cuda:N or emu"} {
		opt.Called = called
		_, _, err := Open(context.Background(), opt)
		require.EqualError(t, err, want)
	}
}
