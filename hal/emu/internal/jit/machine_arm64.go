//go:build linux

package jit

// Detect returns NEON, which every processor of arm64 has.
func Detect() Level { return NEON }

// synchronise makes written code visible to instruction fetches (Arm ARM, B2.4.4): it cleans the data cache and
// invalidates the instruction cache, line by line.
//
//go:noescape
func synchronise(start, size uintptr)
