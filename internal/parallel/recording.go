package parallel

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Recording measures how much of a program can run at the same time: its work, and its span, the time that it would take
// with a core for every iteration. Greedy scheduling on P cores takes at most span + (work−span)/P (Brent, The Parallel
// Evaluation of General Arithmetic Expressions, 1974), so span/work is the serial share of Amdahl's law.
//
// A recorded program runs its loops one iteration after another. One recording at a time, of one goroutine.
type Recording struct {
	Work, Span time.Duration
	Sites      map[string]*Site // by the function that runs the loop

	clock func() time.Duration // of CPU time
	last  time.Duration        // when the clock was last read
}

// Site is the loops of one place in the program.
type Site struct {
	Loops      int
	Work, Span time.Duration
}

var recorder atomic.Pointer[Recording]

// Record runs a function with a clock of CPU time.
func Record(clock func() time.Duration, f func()) *Recording {
	r := &Recording{Sites: map[string]*Site{}, clock: clock, last: clock()}
	recorder.Store(r)
	defer recorder.Store(nil)
	f()
	r.tick()
	return r
}

// tick adds the time since the last one.
func (r *Recording) tick() {
	now := r.clock()
	r.Work += now - r.last
	r.Span += now - r.last
	r.last = now
}

// loop runs the iterations of a loop. Its span is the longest iteration's, or all of them without a second worker.
func (r *Recording) loop(workers int, step func() bool) {
	r.tick()
	work, span, longest, more := r.Work, r.Span, time.Duration(0), workers > 0
	for more {
		more = step()
		r.tick()
		if workers > 1 {
			longest = max(longest, r.Span-span)
			r.Span = span
		}
	}
	r.Span += longest
	if workers > 1 {
		s := r.site()
		s.Loops++
		s.Work += r.Work - work
		s.Span += longest
	}
}

// site is that of the loop's caller outside this package.
func (r *Recording) site() *Site {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	name := ""
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if name = f.Function; !strings.Contains(name, "internal/parallel.") {
			break
		}
	}
	if r.Sites[name] == nil {
		r.Sites[name] = &Site{}
	}
	return r.Sites[name]
}

// Forecast bounds the time on a number of cores from above, if they are as fast together as one is alone.
func (r *Recording) Forecast(cores float64) time.Duration {
	return r.Span + time.Duration(float64(r.Work-r.Span)/cores)
}

// String lists the sites with the longest spans.
func (r *Recording) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "work %.2f s, span %.2f s (%.1f %%)\n", r.Work.Seconds(), r.Span.Seconds(), 100*r.Span.Seconds()/r.Work.Seconds())
	names := slices.SortedFunc(maps.Keys(r.Sites), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Sites[b].Span, r.Sites[a].Span), cmp.Compare(a, b))
	})
	for _, n := range names[:min(len(names), 30)] {
		s := r.Sites[n]
		fmt.Fprintf(&b, "%6d loops, work %6.2f s, span %6.2f s: %s\n", s.Loops, s.Work.Seconds(), s.Span.Seconds(), n)
	}
	return b.String()
}
