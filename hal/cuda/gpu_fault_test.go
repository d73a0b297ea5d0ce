//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// What leaves a process without a GPU is tried in one of its own: this binary, with one test and this variable.
const childVariable = "SPARK_GPU_CHILD"

// inChild runs the test alone in a process, and returns what it printed after "child: ".
func inChild(t *testing.T) (told []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), childVariable+"=1")
	out, err := c.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "child: "); ok {
			told = append(told, text)
		}
	}
	require.NoError(t, err, "%s", out)
	return told
}

// spinningKernel never ends, unless the word it reads becomes 0.
func spinningKernel() *ptx.Module {
	m := ptx.NewModule("sm_80")
	k := m.NewKernel("spin", 32)
	at, x, p, again := k.Reg(ptx.B64), k.Reg(ptx.B32), k.Reg(ptx.Pred), k.NewLabel("again")
	k.I("ld.param.u64", at, ptx.At(k.AddParam("word", "u64"), 0))
	k.Place(again)
	k.I("ld.global.u32", x, ptx.At(at, 0))
	k.I("setp.ne.u32", p, x, ptx.Imm(1))
	k.If(p, "bra", again)
	k.I("ret")
	return m
}

// strayingKernel reads past the end of all memory.
func strayingKernel() *ptx.Module {
	m := ptx.NewModule("sm_80")
	k := m.NewKernel("stray", 32)
	at, x := k.Reg(ptx.B64), k.Reg(ptx.B32)
	k.I("ld.param.u64", at, ptx.At(k.AddParam("word", "u64"), 0))
	k.I("ld.global.u32", x, ptx.At(at, 0))
	k.I("st.global.u32", ptx.At(at, 0), x)
	k.I("ret")
	return m
}

// alone captures one launch of a module's only kernel with one parameter.
func alone(t *testing.T, d hal.Device, m *ptx.Module, name string, param uint64, reads ...hal.Range) hal.Graph {
	t.Helper()
	code, err := d.Load(t.Context(), hal.Image{Name: name, PTX: m.String()})
	require.NoError(t, err)
	g, err := d.Capture(t.Context(), []hal.Op{{Module: code, Kernel: name, Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Params: []uint64{param}, Sizes: []int{8}, Reads: reads}})
	require.NoError(t, err)
	return g
}

// deadline runs a kernel that never ends: the run ends with its context.
func deadline(t *testing.T, d hal.Device) (hal.Graph, error) {
	word, err := d.Alloc(256, hal.DeviceMemory)
	require.NoError(t, err)
	g := alone(t, d, spinningKernel(), "spin", word.Addr(), hal.Range{Memory: word, Bytes: 256})
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return g, g.Run(soon)
}

func TestGPUDeadline(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		openGPU(t)
		t.Log(inChild(t))
		return
	}
	d, err := Open(Options{})
	require.NoError(t, err)
	g, err := deadline(t, d)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, g.Close(), hal.ErrBusy)
	fmt.Println("child: a kernel that never ends was abandoned")
	os.Exit(0) // which the driver must allow
}

func TestASpinningKernelIsADeadlockOnTheCPUDevice(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	_, err = deadline(t, d)
	require.ErrorContains(t, err, "deadlock")
}

// TestGPUAfterAFault tells whether a process can open the GPU anew after an illegal access. The documentation of CUDA
// says no, and so do our messages; the log of this test says what the GPU did.
func TestGPUAfterAFault(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		openGPU(t)
		told := inChild(t)
		require.NotEmpty(t, told)
		t.Log(told)
		return
	}
	d, err := Open(Options{})
	require.NoError(t, err)
	g := alone(t, d, strayingKernel(), "stray", 1<<60)
	require.ErrorIs(t, g.Run(t.Context()), hal.ErrDeviceLost)
	_, err = d.Alloc(256, hal.DeviceMemory)
	require.ErrorIs(t, err, hal.ErrDeviceLost, "the fault stays")
	_ = d.Close()
	again, err := Open(Options{})
	if err == nil {
		var m hal.Memory
		if m, err = again.Alloc(256, hal.DeviceMemory); err == nil {
			err = m.Write([]byte{1}, 0)
		}
	}
	if err != nil {
		fmt.Println("child: the GPU does not come back in this process:", err)
	} else {
		fmt.Println("child: the GPU came back in this process")
	}
	os.Exit(0)
}
