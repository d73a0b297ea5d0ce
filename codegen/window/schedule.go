package window

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// schedule is a tile and how a block computes it.
type schedule struct {
	Channels      int  // of the output
	Rows, Columns int  // output pixels
	Vector        int  // channels that a thread accumulates, for
	Pixels        int  // neighbouring pixels of a row
	Finish        int  // channels of one vector of the epilogue
	pitch         int  // distance of rows of the inputs in shared memory, bytes
	fronts        int  // clocks that shared memory takes to serve a warp's read of one column of inputs
	spread        bool // 16 bytes of padding follow each 128 of a row of the inputs
}

func (s schedule) String() string {
	return fmt.Sprintf("tile=%dx%dx%d thread=%dx%d", s.Rows, s.Columns, s.Channels, s.Pixels, s.Vector)
}

// maxUnrolled bounds the multiply-adds that are written out; beyond it rows of the window are a loop.
const maxUnrolled = 160

func (s schedule) unrolled(p *problem) bool {
	return p.kh == 1 || p.kh*p.kw*s.Vector*s.Pixels <= maxUnrolled
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// workers is the number of threads that accumulate.
func (s schedule) workers() int { return s.Channels / s.Vector * s.Rows * (s.Columns / s.Pixels) }

// threads is the number of threads of a block, whole warps.
func (s schedule) threads() int { return ceilDiv(s.workers(), 32) * 32 }

func (s schedule) blocks(p *problem) int {
	return p.g * p.n * ceilDiv(p.oh, s.Rows) * ceilDiv(p.ow, s.Columns) * (p.co / s.Channels)
}

// inputRows, inputColumns and inputChannels are what the tile reads.
func (s schedule) inputRows(p *problem) int     { return (s.Rows-1)*p.sh + (p.kh-1)*p.dh + 1 }
func (s schedule) inputColumns(p *problem) int  { return (s.Columns-1)*p.sw + (p.kw-1)*p.dw + 1 }
func (s schedule) inputChannels(p *problem) int { return s.Channels / p.multiplier }

// span is how many columns of the input a row of a thread's windows covers.
func (s schedule) span(p *problem) int { return (s.Pixels-1)*p.sw + (p.kw-1)*p.dw + 1 }

// stageWidth is how many channels of a pixel are read together: 16 bytes where the channels allow.
func (s schedule) stageWidth(p *problem) int {
	w := 16 * 8 / p.stored.Bits()
	for s.inputChannels(p)%w != 0 {
		w /= 2
	}
	return w
}

// inputVector is how many input channels a thread's Vector output channels have.
func (s schedule) inputVector(p *problem) int {
	if p.multiplier == 1 {
		return s.Vector
	}
	return 1
}

// Shared memory holds the inputs, [row][column][channel] with a pitch between rows, the weights, [tap][channel], and
// the bias; and the sums, [column][row][channel]; all in f32.

// pixel is the size of a pixel of the inputs in bytes.
func (s schedule) pixel(p *problem) int { return 4 * s.inputChannels(p) }

// packed is the schedule with the smallest pitch, assuming no bank conflicts.
func (s schedule) packed(p *problem) schedule {
	// A thread knows where its columns are if all threads begin at a multiple of 128 bytes.
	run, pixel := s.Pixels*p.sw*s.pixel(p), s.pixel(p)
	return s.tight(p, s.stageWidth(p) > 4 && (128%pixel == 0 || pixel%128 == 0) && (run%128 == 0 || s.Columns == s.Pixels))
}

func (s schedule) tight(p *problem, spread bool) schedule {
	s.spread = spread
	s.pitch, s.fronts = (s.inputAt(s.inputColumns(p)*s.pixel(p))+15)&^15, s.inputVector(p)
	return s
}

// placed pads the rows of a packed schedule by the smallest amount that minimises bank conflicts.
func (s schedule) placed(p *problem) schedule {
	best := s
	best.fronts = s.wavefronts(p)
	for c := s; best.fronts > s.fronts && c.pitch < s.pitch+112; {
		c.pitch += 16
		if c.fronts = c.wavefronts(p); c.fronts < best.fronts {
			best = c
		}
	}
	return best
}

// inputAt is where byte i of a row of the inputs lies.
func (s schedule) inputAt(i int) int {
	if s.spread {
		return i + i/128*16
	}
	return i
}

// wavefronts counts the wavefronts of a read: 128 bytes at a time, in the order of the lanes, and one more for each
// further word in the same bank.
func (s schedule) wavefronts(p *problem) int {
	const banks = 32
	words := s.inputVector(p)
	vectors := s.Channels / s.Vector
	n := 0
	for first := 0; first < 32; first += 32 / words {
		var held [banks][banks]int // words that a bank is asked for
		var count [banks]int
		most := 0
		for lane := first; lane < first+32/words; lane++ {
			v, row, column := lane%vectors, lane/vectors%s.Rows, lane/vectors/s.Rows
			at := row*p.sh*s.pitch + s.inputAt(column*s.Pixels*p.sw*s.pixel(p)+v*s.Vector/p.multiplier*4)
			for w := at / 4; w < at/4+words; w++ {
				b := w % banks
				if !slices.Contains(held[b][:count[b]], w) {
					held[b][count[b]] = w
					count[b]++
					most = max(most, count[b])
				}
			}
		}
		n += most
	}
	return n
}

// weights is the number of weights of a tile, its bias included.
func (s schedule) weights(p *problem) int {
	switch {
	case p.taps == nil:
		return 0
	case p.bias == nil:
		return p.kh * p.kw * s.Channels
	}
	return (p.kh*p.kw + 1) * s.Channels
}

func (s schedule) weightsAt(p *problem) int { return s.inputRows(p) * s.pitch }

func (s schedule) sumsAt(p *problem) int {
	return (s.weightsAt(p) + 4*s.weights(p) + 15) &^ 15
}

// shared is the size of a block's shared memory in bytes.
func (s schedule) shared(p *problem) int {
	sums := s.Rows * s.Columns * s.Channels * 4
	return s.sumsAt(p) + sums + sums/128*16
}

// maxThreads of a block: more would only wait for each other.
const maxThreads = 256

// candidates enumerates the schedules worth considering, in a fixed order.
func (p *problem) candidates() []schedule {
	var out []schedule
	for _, channels := range p.channelTiles() {
		for _, vector := range []int{4, 2, 1} {
			if channels%vector != 0 || p.multiplier%vector != 0 && p.multiplier > 1 {
				continue
			}
			for _, pixels := range sizes(p.ow, 16) {
				for _, rows := range sizes(p.oh, 32) {
					for _, runs := range sizes(ceilDiv(p.ow, pixels), 16) {
						s := schedule{Channels: channels, Rows: rows, Columns: runs * pixels, Vector: vector, Pixels: pixels, Finish: p.finishWidth(channels)}
						if s.workers() <= maxThreads {
							out = append(out, s.packed(p))
						}
					}
				}
			}
		}
	}
	return out
}

// sizes lists how many of n a tile may take: what divides n, and powers of two up to the first that holds all, at
// most most.
func sizes(n, most int) []int {
	var out []int
	for i := 1; i <= most && i < 2*n; i++ {
		if n%i == 0 || i&(i-1) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// channelTiles lists the numbers of channels that tiles may have: those that divide the channels into equal tiles.
func (p *problem) channelTiles() []int {
	var out []int
	unit := 1
	for p.co%(2*unit) == 0 && unit < p.widest() {
		unit *= 2
	}
	for c := min(p.co, 64); c > 0; c-- {
		if p.co%c == 0 && c%p.multiplier == 0 && (c%unit == 0 || p.blocks == nil && p.multiplier > 1) {
			out = append(out, c)
		}
	}
	return out
}

// widest is the number of output channels in 16 bytes, or in a block.
func (p *problem) widest() int {
	if p.blocks != nil {
		return ir.BlockSize
	}
	return 16 * 8 / max(8, p.output().Type.DType.Bits())
}

// finishWidth is how many channels of a tile the epilogue takes at a time.
func (p *problem) finishWidth(channels int) int {
	w := p.widest()
	for channels%w != 0 {
		w /= 2
	}
	return w
}
