//go:build amd64

package emu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/arm64"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// onARM64 runs tests of this package as an arm64 program; those named must be among them.
func onARM64(t *testing.T, bin, tests string, seed int, named ...string) {
	t.Helper()
	env := []string{"SPARK_FULL=", fmt.Sprintf("SPARK_SEED=%d", seed)}
	log := arm64.Command(t, env, "qemu-aarch64", bin, "-test.v", "-test.short", "-test.run", tests, "-test.skip", slow)
	for _, name := range named {
		require.Contains(t, log, "--- PASS: "+name+" ")
	}
}

// TestNEON_ComputesAsTheInterpreter runs a fixed part of this package's tests on arm64.
func TestNEON_ComputesAsTheInterpreter(t *testing.T) {
	const rows = "TestEveryInstructionIsTheInterpreters"
	bin := arm64.BuildTests(t)
	onARM64(t, bin, "^(TestRegressions|TestRandomKernels|TestLogicTables|TestShifts_ByConstants|TestCodeIsNeverWritableAndExecutable)$", 1,
		"TestRegressions", "TestRandomKernels", "TestLogicTables", "TestShifts_ByConstants", "TestCodeIsNeverWritableAndExecutable")
	ops := `^(add.s64|fma.rn.f32|min.f32|cvt.rn.f16x2.f32|setp.lt.f32|shfl.sync.up.b32|mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32)$`
	onARM64(t, bin, "^"+rows+"$/"+ops, 1, rows, rows+"/fma.rn.f32", rows+"/shfl.sync.up.b32")
}

// slow are tests of the interpreter, and one of what random kernels find, which amd64 shows.
const slow = "TestCountingBlocksAreOrderedAsTheyCount|TestBlocksThatWaitForEachOtherAreReported|TestAStoppedRunIsWhole|" +
	"TestRandomKernelsFindWrongTranslations"

// TestNEON_PassesTheTests runs this package's tests on arm64, and 2,000 random kernels.
func TestNEON_PassesTheTests(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("runs all tests under qemu: set SPARK_FULL=1")
	}
	bin := arm64.BuildTests(t)
	onARM64(t, bin, ".", 1, "TestEveryInstructionIsTheInterpreters", "TestNarrowRowsAreNative", "TestRandomKernels")
	for seed := range 200 {
		onARM64(t, bin, "^TestRandomKernels$", 1000*(seed+1), "TestRandomKernels")
	}
}
