package compile

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
)

// The heap may grow between collections by heapPercent of what is in use, and by leastGrowth bytes. Most of it is
// activations, which a collection need not scan: many collections cost little, and garbage would double the
// memory. But a small heap would be collected a hundred times a second to no use: a larger one before or after it
// sets the peak.
const (
	heapPercent = 40
	leastGrowth = 128 << 20
)

// ballast is memory that is never touched, so it has no pages. The runtime returns to the system what is free
// beyond a tenth of the heap, and the system clears it again, page by page, when it is needed. The heap of a fit
// shrinks and grows with each layer, by less than a tenth of itself and the ballast.
var ballast []byte

const (
	ballastBytes = 2 << 30
	leftBytes    = 6 << 30 // of addresses, for the rest
)

// steadyHeap sets how the heap grows. There is no ballast where addresses are few: a limit (ulimit -v), or a system that promises no more
// memory than it has.
func steadyHeap() {
	if promised(ballastBytes + leftBytes) {
		ballast = make([]byte, ballastBytes)
	}
	limitGrowth()
}

// promised reports whether the system would give so many bytes.
func promised(bytes int) bool {
	pages, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	return err == nil && syscall.Munmap(pages) == nil
}

// limitGrowth sets how much the heap may grow until the next collection, and again after each collection.
func limitGrowth() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	all := max(live[0].Value.Uint64(), uint64(len(ballast))+1)
	debug.SetGCPercent(percent(all, uint64(len(ballast))))
	runtime.SetFinalizer(new([64]byte), func(*[64]byte) { limitGrowth() })
}

// percent is by how much a heap may grow of which a part is ballast.
func percent(live, ballast uint64) int {
	return int(min(max((live-ballast)*heapPercent/100, leastGrowth)*100/live, 1000))
}
