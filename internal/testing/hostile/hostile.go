// Package hostile tries files that want to do harm on whatever reads them, for tests: files that are cut off, damaged, larger than they
// are said to be, nested without end, or no files at all.
package hostile

import (
	"runtime"
	"testing"
)

// Allocated returns the bytes of memory that f asks for in all, freed or not. Nothing else may run meanwhile.
func Allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Bounded fails the test if f asks for more memory than a constant and so many bytes for each of an input's.
func Bounded(t testing.TB, input, factor int, f func()) {
	t.Helper()
	const constant = 1 << 20
	if got, most := Allocated(f), int64(constant+factor*input); got > most {
		t.Fatalf("an input of %d bytes took %d bytes of memory, more than %d", input, got, most)
	}
}
