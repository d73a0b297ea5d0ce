//go:build linux && (amd64 || arm64)

package nvml

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// fakeLibrary builds testdata/fakenvml.c with macros; it skips the test where gcc is missing.
func fakeLibrary(t *testing.T, macros ...string) string {
	t.Helper()
	if !dlopen.Supported {
		t.Skip(dlopen.ErrUnsupported)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is missing: the fake library cannot be built")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml-fake.so")
	args := []string{"-shared", "-fPIC", "-w", "-o", path}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	out, err := exec.Command(gcc, append(args, filepath.Join("testdata", "fakenvml.c"))...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func snapshot(t *testing.T, macros ...string) (Snapshot, error) {
	t.Helper()
	s, err := newLibrary(fakeLibrary(t, macros...))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	return s.Read(context.Background())
}

func full() GPU {
	return GPU{Name: "NVIDIA GB10", UUID: "GPU-1", Bus: "0000000f:01:00.0", Major: 12, Minor: 1, MemoryTotal: Known(1000), MemoryUsed: Known(400),
		ClockMHz: Known(2401), ClockMax: Known(3004), MemoryMHz: Known(2402), PowerWatts: Known(41.27), PowerLimit: Known(140),
		Celsius: Known(58), Utilisation: Known(93), Throttle: 0x44}
}

func TestLibrary_ReadsEveryFigure(t *testing.T) {
	got, err := snapshot(t)
	require.NoError(t, err)
	require.Equal(t, Snapshot{Driver: "580.95.05", CUDA: "13.0", GPUs: []GPU{full()}}, got)
}

func TestLibrary_FallsBackToOldNames(t *testing.T) {
	want := full()
	want.Bus = "" // the layout before v3 is not read
	got, err := snapshot(t, "OLD")
	require.NoError(t, err)
	require.Equal(t, Snapshot{Driver: "580.95.05", CUDA: "13.0", GPUs: []GPU{want}}, got)
}

func TestLibrary_UnifiedMemoryIsAbsent(t *testing.T) {
	for _, macros := range [][]string{{"MEMORY=0"}, {"FAIL=3", `FAILS="nvmlDeviceGetMemoryInfo"`}} {
		got, err := snapshot(t, macros...)
		require.NoError(t, err)
		want := full()
		want.MemoryTotal, want.MemoryUsed = Figure{}, Figure{}
		require.Equal(t, []GPU{want}, got.GPUs)
	}
}

func TestLibrary_MissingOptionalSymbolIsAbsent(t *testing.T) {
	want := full()
	want.PowerWatts = Figure{}
	got, err := snapshot(t, "NO_POWER")
	require.NoError(t, err)
	require.Equal(t, []GPU{want}, got.GPUs)
}

func TestLibrary_RefusedFiguresAreAbsent(t *testing.T) {
	for _, code := range []int{1, 3, 4, 13, 15, 999} {
		got, err := snapshot(t, "FAIL_ALL", fmt.Sprintf("FAIL=%d", code))
		require.NoError(t, err)
		require.Equal(t, Snapshot{GPUs: []GPU{{Name: "NVIDIA GB10"}}}, got, "code %d", code)
	}
}

func TestLibrary_NamesRequiredCallsThatFail(t *testing.T) {
	for _, call := range []string{"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"} {
		_, err := snapshot(t, "OLD", "FAIL=15", fmt.Sprintf("FAILS=%q", call))
		require.ErrorContains(t, err, call)
		require.ErrorContains(t, err, "fallen off the bus")
	}
	for _, code := range []int{1, 2, 4, 9, 12, 15, 18, 20, 23, 25, 27, 999} {
		_, err := newLibrary(fakeLibrary(t, "OLD", fmt.Sprintf("FAIL=%d", code), `FAILS="nvmlInit"`))
		require.ErrorContains(t, err, "nvmlInit: "+result(code).String())
	}
	_, err := newLibrary(fakeLibrary(t, "OLD", "FAIL=18", `FAILS="nvmlInit"`))
	require.ErrorContains(t, err, "nvmlInit: library and kernel module are from different driver versions: reboot")
}

func TestLibrary_NamesMissingSymbolAndFile(t *testing.T) {
	_, err := newLibrary(fakeLibrary(t, "NO_NAME"))
	require.ErrorContains(t, err, "has no nvmlDeviceGetName: install a newer driver")
	_, err = newLibrary(filepath.Join(t.TempDir(), "none.so"))
	require.ErrorContains(t, err, "none.so is not installed")
}

func TestLibrary_ReadsClockOfOnlyGPU(t *testing.T) {
	s, err := newLibrary(fakeLibrary(t))
	require.NoError(t, err)
	require.Equal(t, Known(2401), s.(Clock).SM("whatever"))
}
