package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if k, v, _ := strings.Cut(p, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func TestFlagsStandAboveTheEnvironmentAboveDefaults(t *testing.T) {
	for _, c := range []struct {
		name                        string
		flags                       Flags
		env                         []string
		gpu, device, precision      string
		gpuFrom, deviceFrom, precFr string
		warnings                    []string
	}{
		{name: "nothing", gpu: "on", device: "auto", precision: "fp16", gpuFrom: "default", deviceFrom: "default", precFr: "default"},
		{name: "enabled", env: []string{"OPENPILOT_DGX_ENABLED=1"}, gpu: "on", device: "auto", precision: "fp16", gpuFrom: EnabledVariable, deviceFrom: "default", precFr: "default"},
		{name: "not enabled", env: []string{"OPENPILOT_DGX_ENABLED=0"}, gpu: "off", device: "emu", precision: "fp16", gpuFrom: EnabledVariable, deviceFrom: EnabledVariable, precFr: "default"},
		{name: "disabled", env: []string{"OPENPILOT_DISABLE_DGX=1"}, gpu: "off", device: "emu", precision: "fp16", gpuFrom: DisableVariable, deviceFrom: DisableVariable, precFr: "default"},
		{name: "not disabled", env: []string{"OPENPILOT_DISABLE_DGX=0"}, gpu: "on", device: "auto", precision: "fp16", gpuFrom: "default", deviceFrom: "default", precFr: "default"},
		{name: "both", env: []string{"OPENPILOT_DISABLE_DGX=1", "OPENPILOT_DGX_ENABLED=1"}, gpu: "off", device: "emu", precision: "fp16", gpuFrom: DisableVariable, deviceFrom: DisableVariable, precFr: "default", warnings: []string{"contradict"}},
		{name: "a flag above disabled", flags: Flags{Device: "cuda:1"}, env: []string{"OPENPILOT_DISABLE_DGX=1"}, gpu: "off", device: "cuda:1", precision: "fp16", gpuFrom: DisableVariable, deviceFrom: "--device", precFr: "default"},
		{name: "auto is no choice", flags: Flags{Device: "auto"}, env: []string{"SPARK_DEVICE=emu"}, gpu: "on", device: "emu", precision: "fp16", gpuFrom: "default", deviceFrom: DeviceVariable, precFr: "default"},
		{name: "device of the environment, disabled", env: []string{"SPARK_DEVICE=cuda", "OPENPILOT_DISABLE_DGX=1"}, gpu: "off", device: "emu", precision: "fp16", gpuFrom: DisableVariable, deviceFrom: DisableVariable, precFr: "default", warnings: []string{"SPARK_DEVICE=cuda is ignored"}},
		{name: "wrong device", env: []string{"SPARK_DEVICE=tpu"}, gpu: "on", device: "auto", precision: "fp16", gpuFrom: "default", deviceFrom: "default", precFr: "default", warnings: []string{"SPARK_DEVICE=tpu"}},
		{name: "wrong switch", env: []string{"OPENPILOT_DGX_ENABLED=maybe"}, gpu: "on", device: "auto", precision: "fp16", gpuFrom: "default", deviceFrom: "default", precFr: "default", warnings: []string{"OPENPILOT_DGX_ENABLED=maybe"}},
		{name: "precision", env: []string{"OPENPILOT_DGX_PRECISION= FP32 "}, gpu: "on", device: "auto", precision: "fp32", gpuFrom: "default", deviceFrom: "default", precFr: PrecisionVariable},
		{name: "precision by flag", flags: Flags{Precision: "fp16"}, env: []string{"OPENPILOT_DGX_PRECISION=fp32"}, gpu: "on", device: "auto", precision: "fp16", gpuFrom: "default", deviceFrom: "default", precFr: "--precision"},
		{name: "a flag hides a wrong environment", flags: Flags{Precision: "fp32"}, env: []string{"OPENPILOT_DGX_PRECISION=int4"}, gpu: "on", device: "auto", precision: "fp32", gpuFrom: "default", deviceFrom: "default", precFr: "--precision"},
		{name: "wrong precision", env: []string{"OPENPILOT_DGX_PRECISION=int4"}, gpu: "on", device: "auto", precision: "fp16", gpuFrom: "default", deviceFrom: "default", precFr: "default", warnings: []string{"int4 is not a precision"}},
		{name: "fp4", env: []string{"OPENPILOT_DGX_PRECISION=fp4"}, gpu: "on", device: "auto", precision: "nvfp4", gpuFrom: "default", deviceFrom: "default", precFr: "OPENPILOT_DGX_PRECISION", warnings: []string{"experimental"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Read(c.flags, environment(c.env...))
			require.NoError(t, err)
			require.Equal(t, []string{c.gpu, c.gpuFrom}, []string{s.GPU.Value, s.GPU.From})
			require.Equal(t, []string{c.device, c.deviceFrom}, []string{s.Device.Value, s.Device.From})
			require.Equal(t, []string{c.precision, c.precFr}, []string{s.Precision.Value, s.Precision.From})
			var warnings []string
			for _, x := range s.All() {
				warnings = append(warnings, x.Warnings...)
			}
			require.Len(t, warnings, len(c.warnings), "%v", warnings)
			for i, w := range c.warnings {
				require.Contains(t, warnings[i], w)
			}
			require.Len(t, s.All(), 4+len(hal.SwitchNames()))
		})
	}
}

func TestSwitches_FlagsStandAboveTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		name    string
		flags   map[string]bool
		env     []string
		off     hal.Switches
		from    string // of pdl
		warning string
	}{
		{name: "nothing", from: "default"},
		{name: "off", env: []string{"SPARK_PDL=off", "SPARK_CARVEOUT=0"}, off: hal.Switches{NoPDL: true, NoCarveout: true}, from: "SPARK_PDL"},
		{name: "on", env: []string{"SPARK_PDL=on", "SPARK_PREFETCH=1", "SPARK_HINTS=no"}, off: hal.Switches{NoHints: true}, from: "SPARK_PDL"},
		{name: "flag on", flags: map[string]bool{"pdl": true}, env: []string{"SPARK_PDL=off"}, from: "--pdl"},
		{name: "flag off", flags: map[string]bool{"pdl": false}, off: hal.Switches{NoPDL: true}, from: "--no-pdl"},
		{name: "wrong", env: []string{"SPARK_PDL=maybe"}, from: "default", warning: "SPARK_PDL=maybe is ignored: want 1 or 0, on or off"},
		{name: "wrong below a flag", flags: map[string]bool{"pdl": false}, env: []string{"SPARK_PDL=maybe"}, off: hal.Switches{NoPDL: true}, from: "--no-pdl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Read(Flags{Switches: c.flags}, environment(c.env...))
			require.NoError(t, err)
			off, err := s.Off()
			require.NoError(t, err)
			require.Equal(t, c.off, off)
			require.Equal(t, c.from, s.Switches[0].From)
			warnings := []string{}
			for _, x := range s.Switches {
				warnings = append(warnings, x.Warnings...)
			}
			require.Equal(t, strings.Fields(c.warning), strings.Fields(strings.Join(warnings, " ")))
		})
	}
	_, err := Read(Flags{Switches: map[string]bool{"overlap": true}}, environment())
	require.ErrorContains(t, err, `"overlap"`)
}

func TestWrongFlagsAreErrors(t *testing.T) {
	for _, f := range []Flags{{Device: "tpu"}, {Device: "cuda:"}, {Device: "cuda:-1"}, {Device: "cuda:99999"}, {Precision: "int4"}, {Precision: "bf17"}} {
		_, err := Read(f, environment())
		require.Error(t, err, "%+v", f)
		require.Contains(t, err.Error(), "--")
	}
}

func TestCacheCanBeMovedAndTurnedOff(t *testing.T) {
	s, err := Read(Flags{}, environment("SPARK_CACHE=/tmp/c"))
	require.NoError(t, err)
	require.Equal(t, "/tmp/c/jit", s.CacheDir("jit"))
	s, err = Read(Flags{}, environment("SPARK_CACHE=off"))
	require.NoError(t, err)
	require.Empty(t, s.CacheDir("jit"))
	t.Setenv("XDG_CACHE_HOME", "/x")
	s, err = Read(Flags{}, environment())
	require.NoError(t, err)
	require.Equal(t, "/x/spark-compile/jit", s.CacheDir("jit"))
}

func TestOrdinals(t *testing.T) {
	for name, want := range map[string]int{"auto": -1, "cuda": -1, "emu": -1, "cuda:0": 0, "cuda:3": 3} {
		got, err := Ordinal(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
