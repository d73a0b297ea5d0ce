package calibrate

import (
	"runtime"
	"sync"
)

// spread calls f on ranges that cover n, on all cores; ranges of fewer than 256 are not split.
func spread(n int, f func(lo, hi int)) {
	parts := min(runtime.GOMAXPROCS(0), (n+255)/256)
	if parts <= 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for p := range parts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(n*p/parts, n*(p+1)/parts)
		}()
	}
	wg.Wait()
}

// each calls f for every index below n, on all cores.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				f(i)
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
