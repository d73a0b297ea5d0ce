package calibrate

import (
	"context"
	"runtime"
	"sync"
)

// spread calls f on ranges that cover n, on all cores, of at least 256 where n has as many.
func spread(n int, f func(lo, hi int)) {
	parts := max(1, min(runtime.GOMAXPROCS(0), (n+255)/256))
	each(parts, func(p int) { f(n*p/parts, n*(p+1)/parts) })
}

// each calls f for every index below n, on all cores.
func each(n int, f func(i int)) { until(context.Background(), n, f) }

// until is each, but calls f no more once a context has ended. The caller checks that before it uses what f has made.
func until(ctx context.Context, n int, f func(i int)) {
	if n == 1 {
		if ctx.Err() == nil {
			f(0)
		}
		return
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					f(i)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

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
