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

// earlier is the moment that many frames before, in this segment or those before it, whether its picture is kept or not.
func (p place) earlier(frames int) (place, bool) {
	want := int64(p.moment().FrameID) - int64(frames)
	for {
		for ; p.k >= 0; p.k-- {
			if id := int64(p.moment().FrameID); id <= want {
				return p, id == want
			}
		}
		if p.segment = p.previous; p.segment == nil {
			return p, false
		}
		p.k = len(p.index.Timeline.Moments) - 1
	}
}

// before is earlier, if the picture is kept.
func (p place) before(frames int) (place, bool) {
	at, ok := p.earlier(frames)
	if !ok {
		return at, false
	}
	_, kept := at.pictures.places[at.k]
	return at, kept
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
			if dt := apart(end, begin); begin.FrameID > end.FrameID && dt > 0 && dt <= gap {
				last.next, g.previous = g, last
			}
		}
		last = g
	}
}
