package calibrate

import "sync"

// spare are arrays to be used again. Large ones are cleared when they are made, and their pages are new to the system.
var spare sync.Pool

// scratch is an array of any contents.
func scratch(n int) []float32 {
	if p, ok := spare.Get().(*[]float32); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]float32, n)
}

// free gives back an array that scratch has made.
func free(a []float32) { spare.Put(&a) }
