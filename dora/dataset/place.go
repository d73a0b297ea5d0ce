package dataset

import (
	"fmt"
	"iter"
)

// place is where a moment is: a segment, and the moment's number in it.
type place struct {
	*segment
	k int
}

func (p place) moment() *moment { return &p.index.Timeline.Moments[p.k] }

// key names a frame on every machine.
func (p place) key() string { return fmt.Sprintf("%s/%d", p.name, p.moment().FrameID) }

// earlier is the last moment up to the frame that many before, in this segment or those before it, whether its picture is kept or not: what a log has lost is as it was before.
// Frames are counted as the camera's files have them, as modeld's histories do: one that the camera has dropped is in neither. False: the route begins later.
func (p place) earlier(frames int) (place, bool) {
	at, _, ok := p.back(frames)
	return at, ok
}

// back is earlier, and says by how many frames it is earlier still.
func (p place) back(frames int) (at place, more int, ok bool) {
	want := p.moment().Road - frames
	for {
		for ; p.k >= 0; p.k-- {
			if more := want - p.moment().Road; more >= 0 {
				return p, more, true
			}
		}
		if p.segment = p.previous; p.segment == nil {
			return p, 0, false
		}
		p.k = len(p.index.Timeline.Moments) - 1
		want += p.moment().Road + 1
	}
}

// before is the moment that many frames before, if its picture is kept.
func (p place) before(frames int) (place, bool) {
	at, more, ok := p.back(frames)
	if !ok || more > 0 {
		return at, false
	}
	_, kept := at.pictures.places[at.k]
	return at, kept
}

// near is before, or up to three frames more: segments whose number of frames is no multiple of four keep others than those that follow do.
func (p place) near(frames int) (at place, ok bool) {
	for more := 0; more < every && !ok; more++ {
		at, ok = p.before(frames + more)
	}
	return at, ok
}

// onward are the moments from here on, into the segments that follow.
func (p place) onward() iter.Seq[*moment] {
	return func(yield func(*moment) bool) {
		for ; p.segment != nil; p = (place{p.next, 0}) {
			for ; p.k < len(p.index.Timeline.Moments); p.k++ {
				if !yield(p.moment()) {
					return
				}
			}
		}
	}
}

// link joins segments of a route, in the order of routes and numbers, where one begins when the one before it ends. Others begin as modeld does when it starts.
func link(segments []*segment) {
	var last *segment
	for _, g := range segments {
		if g == nil {
			continue
		}
		if last != nil && last.route == g.route && last.number+1 == g.number {
			a, b := last.index.Timeline.Moments, g.index.Timeline.Moments
			end, begin := &a[len(a)-1], &b[0]
			if dt := interval(end, begin); begin.FrameID > end.FrameID && dt > 0 && dt <= gap {
				last.next, g.previous = g, last
			}
		}
		last = g
	}
}
