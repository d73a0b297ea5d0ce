package simulated

import (
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
)

// l2 is what the second-level cache holds, in lines of a part of its size, in the order in which they were touched.
// Which part of a line has left hangs on the bytes that were touched since (cost.Machine.Left). A line that was never
// touched is there: a device begins warm.
type l2 struct {
	lineBytes int
	lines     map[place]*line
	order     []*line // by their last touch, the latest at the end
}

// place is a line's memory and its number in it.
type place struct {
	memory hal.Memory
	at     int
}

type line struct {
	bytes float64 // that take a place
	gone  float64 // part that left, or never came, whatever was touched since

	fetched struct { // by the prefetch that brought it, if it was not read since
		launch int // one more than its index; 0: none
		bytes  float64
	}
}

// traffic is what a launch adds to that of DRAM.
type traffic struct{ read, written, fetched float64 }

// leastLine keeps lines of a small cache large enough to be few.
const leastLine = 2 << 10

func newL2(on *cost.Machine) *l2 {
	return &l2{lineBytes: max(leastLine, on.L2Bytes/128), lines: map[place]*line{}}
}

// each calls f for the lines of a range, with the bytes of each that the range has.
func (c *l2) each(r hal.Range, f func(l *line, bytes float64)) {
	for at := r.Offset / c.lineBytes; at*c.lineBytes < r.Offset+r.Bytes; at++ {
		p := place{r.Memory, at}
		l := c.lines[p]
		if l == nil {
			l = &line{}
			c.lines[p] = l
		}
		f(l, float64(min((at+1)*c.lineBytes, r.Offset+r.Bytes)-max(at*c.lineBytes, r.Offset)))
	}
}

// touch makes a line the latest, with so many bytes, and returns the part of them that L2 did not hold.
func (c *l2) touch(l *line, bytes float64, on *cost.Machine) (missed float64) {
	missed = l.gone
	distance, i := 0.0, len(c.order)-1
	for ; i >= 0 && c.order[i] != l; i-- {
		distance += c.order[i].bytes
	}
	if i >= 0 {
		missed += float64((1 - l.gone) * on.Left(distance))
		copy(c.order[i:], c.order[i+1:])
		c.order[len(c.order)-1] = l
	} else {
		c.order = append(c.order, l)
	}
	l.bytes, l.gone = bytes, 0
	return missed
}

// trim forgets the order of lines that have left by far.
func (c *l2) trim(on *cost.Machine) {
	distance := 0.0
	for i := len(c.order) - 1; i >= 0; i-- {
		if distance += c.order[i].bytes; distance > 8*float64(on.L2Bytes) {
			for _, l := range c.order[:i] {
				l.gone = 1
			}
			c.order = append([]*line(nil), c.order[i:]...)
			return
		}
	}
}
