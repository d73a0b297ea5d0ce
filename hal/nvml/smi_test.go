package nvml

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program writes a shell script that stands in for nvidia-smi.
func program(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

// fixture is a script that prints a file of testdata.
func fixture(t *testing.T, name, then string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	require.NoError(t, err)
	return program(t, fmt.Sprintf("cat '%s'\n%s", path, then))
}

func read(t *testing.T, path string) (Snapshot, error) {
	t.Helper()
	s, err := openSMI(Options{SMI: path, Timeout: 5 * time.Second})
	require.NoError(t, err)
	return s.Read(context.Background())
}

func TestGB10HasNoMemoryFigures(t *testing.T) {
	s, err := read(t, fixture(t, "gb10.csv", ""))
	require.NoError(t, err)
	require.Equal(t, "580.95.05", s.Driver)
	require.Equal(t, []GPU{{Name: "NVIDIA GB10", UUID: "GPU-3f1a77c2-0000-4000-8000-0000000000b1", Bus: "0000000f:01:00.0", Major: 12, Minor: 1,
		ClockMHz: Known(2418), ClockMax: Known(3003), PowerWatts: Known(41.27), Celsius: Known(58), Utilisation: Known(93)}}, s.GPUs)
	require.False(t, s.GPUs[0].Capped())
	raw, err := json.Marshal(s.GPUs[0])
	require.NoError(t, err)
	require.Contains(t, string(raw), `"memory_total":null`)
	require.Contains(t, string(raw), `"throttle":[]`)
	require.Equal(t, "n/a", s.GPUs[0].MemoryTotal.Format("%.0f"))
}

func TestServersHaveEverything(t *testing.T) {
	s, err := read(t, fixture(t, "h200.csv", ""))
	require.NoError(t, err)
	require.Len(t, s.GPUs, 2)
	g := s.GPUs[0]
	require.Equal(t, Known(143771<<20), g.MemoryTotal)
	require.Equal(t, Known(700), g.PowerLimit)
	require.Equal(t, []string{"power cap"}, g.Throttle.Slowdowns())
	require.Equal(t, 1, s.GPUs[1].Index)
	require.Equal(t, Known(0), s.GPUs[1].MemoryUsed, "nothing used is a figure")
	require.Empty(t, s.GPUs[1].Throttle.Slowdowns(), "an idle GPU is not slowed down")
}

func TestLaptopIsNotCappedWhileIdle(t *testing.T) {
	s, err := read(t, fixture(t, "laptop.csv", ""))
	require.NoError(t, err)
	require.Equal(t, [2]int{8, 9}, [2]int{s.GPUs[0].Major, s.GPUs[0].Minor})
	require.False(t, s.GPUs[0].Capped())
	busy := s.GPUs[0]
	busy.Utilisation = Known(99)
	require.True(t, busy.Capped(), "210 of 3105 MHz under load")
}

func TestNoDevicesAreNoError(t *testing.T) {
	s, err := read(t, fixture(t, "none.csv", ""))
	require.NoError(t, err)
	require.Empty(t, s.GPUs)
}

func TestSMI_RefusesOtherOutput(t *testing.T) {
	_, err := read(t, fixture(t, "garbage.csv", ""))
	require.ErrorContains(t, err, "did not print its table")
	_, err = read(t, fixture(t, "garbage.csv", "exit 9"))
	require.ErrorContains(t, err, "exit status 9")
	for _, out := range []string{"x, NVIDIA GB10", "-1, NVIDIA GB10"} {
		_, err = parseSMI([]string{"index", "name"}, out)
		require.ErrorContains(t, err, "not the index")
	}
}

func TestHangingProgramIsKilled(t *testing.T) {
	s, err := openSMI(Options{SMI: program(t, "sleep 60"), Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	begin := time.Now()
	_, err = s.Read(context.Background())
	require.ErrorContains(t, err, "did not answer within 200ms")
	require.Less(t, time.Since(begin), 20*time.Second)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	_, err = s.Read(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestColumnsThatAnOldVersionLacksAreLeftOut(t *testing.T) {
	path := program(t, `case "$1" in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;;
*clocks_throttle*) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2;; esac
echo "0, Tesla K80, GPU-1, 00000000:04:00.0, 470.1, 11441, 2, 324, 875, 324, 26.0, 149.0, 30, 0"`)
	s, err := read(t, path)
	require.NoError(t, err)
	require.Equal(t, "Tesla K80", s.GPUs[0].Name)
	require.Zero(t, s.GPUs[0].Major)
	require.Equal(t, Known(26), s.GPUs[0].PowerWatts)
}

func TestMissingSourcesAreNamed(t *testing.T) {
	_, err := openSMI(Options{SMI: filepath.Join(t.TempDir(), "nothing")})
	require.ErrorContains(t, err, "nvidia-smi is not installed")
}

func TestFiguresSurviveJSON(t *testing.T) {
	for _, f := range []Figure{{}, Known(0), Known(2.5)} {
		raw, err := json.Marshal(f)
		require.NoError(t, err)
		back := Known(9)
		require.NoError(t, json.Unmarshal(raw, &back))
		require.Equal(t, f, back)
	}
}

func TestReasonsSurviveJSON(t *testing.T) {
	raw, err := json.Marshal(Reasons(0x44))
	require.NoError(t, err)
	require.JSONEq(t, `["power cap", "hardware thermal slowdown"]`, string(raw))
	var back Reasons
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, Reasons(0x44), back)
}

// TestOpen_NamesWhatIsMissing: without the library nvidia-smi serves; without either the error names both.
func TestOpen_NamesWhatIsMissing(t *testing.T) {
	if s, err := openLibrary(); err == nil {
		s.Close()
		t.Skip("this machine has NVML")
	}
	_, err := Open(Options{SMI: "nvidia-smi-that-is-not-there"})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "nvidia-smi is not installed")
	require.NotContains(t, err.Error(), "cgo")
	s, err := Open(Options{SMI: fixture(t, "gb10.csv", "")})
	require.NoError(t, err)
	require.Equal(t, "nvidia-smi", s.Name())
}
