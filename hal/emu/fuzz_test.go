package emu

import (
	"strings"
	"testing"
)

// FuzzRun: whatever PTX a module holds, running its kernel ends with a result or an error that is not the emulator's
// own.
func FuzzRun(f *testing.F) {
	for _, c := range kernelCases {
		target := c.target
		if target == "" {
			target = "sm_80"
		}
		f.Add(build(target, 0, 2, c.body))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, check := range []bool{true, false} {
			err := RunKernelWith(Options{Check: check, StepLimit: 1 << 12, Workers: 1}, text, "k", [3]int{2, 1, 1}, [3]int{40, 1, 1}, 256,
				make([]byte, 4096), Out{make([]byte, 4096)})
			if err != nil && strings.Contains(err.Error(), "the emulator failed") {
				t.Fatalf("%v in\n%s", err, text)
			}
		}
	})
}
