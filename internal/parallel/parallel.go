// Package parallel runs loops on all cores. Loops may nest: all of them share one set of workers, at most one a core, so a
// loop inside another occupies the cores that the other leaves idle. Iterations are handed out one at a time, so that a
// slow core takes fewer.
package parallel

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// For calls f for every index below n, in any order.
func For(n int, f func(i int)) { ForContext(context.Background(), n, f) }

// ForContext is For, but calls f no more once a context has ended. The caller checks that before it uses what f has made.
func ForContext(ctx context.Context, n int, f func(i int)) {
	var next atomic.Int64
	run(n, func() bool {
		i := int(next.Add(1)) - 1
		if i >= n || ctx.Err() != nil {
			return false
		}
		f(i)
		return true
	})
}

// mostRanges bounds the ranges of a loop: enough for each of many cores to take several.
const mostRanges = 128

// Ranges calls f for ranges that cover [0, n), each of at least grain if n is. They don't depend on the number of cores.
func Ranges(n, grain int, f func(lo, hi int)) {
	if n <= 0 {
		return
	}
	parts := max(1, min(n/max(grain, 1), mostRanges))
	For(parts, func(p int) { f(n*p/parts, n*(p+1)/parts) })
}

// Drain calls step on as many goroutines as there are cores, but no more than workers, until it has returned false on all.
// The caller is one of them; those that haven't begun when it is done are not waited for.
func Drain(workers int, step func() bool) { run(workers, step) }

// loop is a loop in progress.
type loop struct {
	step    func() bool
	open    int           // workers that may still join
	helpers int           // workers that have joined, without the caller
	drained atomic.Bool   // nothing is left to begin
	waiting chan struct{} // closed by the last helper; nil while the caller works
	failure any           // what a helper has panicked with
}

// pool is the helpers of all loops.
type pool struct {
	mu      sync.Mutex
	helpers int         // goroutines; callers come on top, less those that wait
	excess  atomic.Bool // a caller that waited goes on, so a helper has to leave
	loops   []*loop     // in progress, outer ones first
}

var shared pool

// run calls step on the caller's goroutine and on helpers, workers in all at most.
func run(workers int, step func() bool) {
	if r := recorder.Load(); r != nil {
		r.loop(workers, step)
		return
	}
	if workers <= 1 || runtime.GOMAXPROCS(0) == 1 {
		for workers > 0 && step() {
		}
		return
	}
	l := &loop{step: step, open: workers - 1}
	shared.enter(l)
	defer shared.leave(l)
	for step() {
	}
	shared.leave(l)
	for step() { // a helper that had to leave may have put something back
	}
}

// enter lets helpers work on a loop.
func (p *pool) enter(l *loop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops = append(p.loops, l)
	for range min(l.open, runtime.GOMAXPROCS(0)-1-p.helpers) {
		p.helpers++
		go p.help()
	}
}

// leave waits for a loop's helpers, after the caller has found nothing more to begin. Meanwhile another helper may take the
// caller's core.
func (p *pool) leave(l *loop) {
	p.mu.Lock()
	l.drained.Store(true)
	p.loops = slices.DeleteFunc(p.loops, func(other *loop) bool { return other == l })
	if l.helpers > 0 {
		l.waiting = make(chan struct{})
		if p.next() != nil {
			go p.help()
		} else {
			p.helpers--
		}
		p.mu.Unlock()
		<-l.waiting
		p.mu.Lock()
		p.helpers++
		p.excess.Store(p.helpers >= runtime.GOMAXPROCS(0))
	}
	p.mu.Unlock()
	if l.failure != nil {
		panic(l.failure)
	}
}

// next is the outermost loop that has work for a helper.
func (p *pool) next() *loop {
	for _, l := range p.loops {
		if l.open > 0 && !l.drained.Load() {
			return l
		}
	}
	return nil
}

// help works on one loop after another while there are any.
func (p *pool) help() {
	p.mu.Lock()
	for l := p.next(); l != nil && !p.excess.Load(); l = p.next() {
		l.open--
		l.helpers++
		p.mu.Unlock()
		failure := l.work(&p.excess)
		p.mu.Lock()
		l.open++
		l.helpers--
		if failure != nil {
			l.failure = failure
		}
		if l.helpers == 0 && l.waiting != nil {
			close(l.waiting)
		}
	}
	p.helpers--
	p.excess.Store(p.helpers >= runtime.GOMAXPROCS(0))
	p.mu.Unlock()
}

// work calls step until nothing is left or the helper has to leave. It returns what step panics with.
func (l *loop) work(excess *atomic.Bool) (failure any) {
	defer func() {
		if failure = recover(); failure != nil {
			l.drained.Store(true)
		}
	}()
	for !l.drained.Load() && !excess.Load() {
		if !l.step() {
			l.drained.Store(true)
		}
	}
	return nil
}
