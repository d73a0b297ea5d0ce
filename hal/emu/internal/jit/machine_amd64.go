//go:build linux

package jit

import "golang.org/x/sys/cpu"

// Detect returns the best level that processor and system support.
func Detect() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C || !x.HasBMI1:
		return None
	case !x.HasAVX512F || !x.HasAVX512DQ || !x.HasAVX512BW || !x.HasAVX512VL:
		return AVX2
	}
	return AVX512
}

// synchronise does nothing: amd64 fetches what was written.
func synchronise(_, _ uintptr) {}
