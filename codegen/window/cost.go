package window

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/cost"
)

// perWarp is what a warp does, on average over the warps of a launch.
type perWarp struct {
	threads                            int // of a block
	float, integer, memory, wavefronts float64
	issued                             float64 // not float, integer or memory
	loads                              float64 // of a thread
}

// rounds is how often a warp does what a block does n times, a thread at a time.
func (w *perWarp) rounds(n int) float64 { return float64(ceilDiv(n, 32)*32) / float64(w.threads) }

// window adds sliding over runs of the tile, so many a thread.
func (w *perWarp) window(s schedule, p *problem, runs float64) {
	reads, fronts := s.span(p), s.fronts*s.span(p)
	if p.taps != nil {
		reads += p.kw
		fronts += p.kw * s.Vector
	}
	w.float += float64(runs * float64(p.kh*p.kw*s.Pixels*s.Vector))
	w.memory += float64(runs * float64(p.kh*reads+s.Pixels))
	w.wavefronts += float64(runs * float64(p.kh*fronts+s.Pixels*s.Vector))
	w.issued += float64(runs * float64(20+4*p.kh))
}

// weights adds bringing these into shared memory.
func (w *perWarp) weights(s schedule, p *problem) {
	n := w.rounds(ceilDiv(s.weights(p), 4))
	w.memory += n
	w.wavefronts += float64(4 * n)
}

// stage adds bringing inputs into shared memory.
func (w *perWarp) stage(s schedule, p *problem) {
	n, width := w.rounds(s.inputRows(p)*s.inputColumns(p)*s.inputChannels(p)/s.stageWidth(p)), float64(s.stageWidth(p))
	stores := width
	if !s.spread {
		stores = float64(stores * max(1, width/4))
	}
	w.integer += float64(n * (20 + float64(2*width)))
	w.memory += float64(n * (1 + max(1, width/4)))
	w.wavefronts += float64(n * (stores + 4))
	w.loads += n
}

// finish adds the epilogue of sums that lie in shared memory.
func (w *perWarp) finish(s schedule, p *problem) {
	n := w.rounds(s.Rows * s.Columns * s.Channels / s.Finish)
	elements, sides := float64(s.Finish), float64(p.sides())
	w.float += float64(n * float64(s.Finish*p.epilogue()))
	w.integer += float64(n * (30 + elements))
	w.memory += float64(n * (1 + sides + float64(elements/4)))
	w.wavefronts += float64(n * (elements + float64(4*sides)))
	w.loads += float64(n * sides)
}

// work is what all warps of a launch of so many blocks do.
func (w *perWarp) work(m *cost.Machine, blocks, shared, registers int) *cost.Work {
	warps := float64(blocks * w.threads / 32)
	out := &cost.Work{
		Blocks: blocks, Warps: w.threads / 32, Resident: m.Resident(w.threads, shared, registers),
		Float: float64(warps * w.float), Integer: float64(warps * w.integer), Memory: float64(warps * w.memory), Wavefronts: float64(warps * w.wavefronts),
		Loads: w.loads,
		Trips: 1, // of weights
	}
	out.Issued = out.Float + out.Integer + out.Memory + float64(warps*w.issued)
	return out
}

// work is what the launch of a schedule does. Inputs are taken to be in L2, weights in DRAM.
func (s schedule) work(p *problem, m *cost.Machine) *cost.Work {
	w := perWarp{threads: s.threads(), integer: 40}
	w.window(s, p, 1)
	w.weights(s, p)
	w.stage(s, p)
	w.finish(s, p)
	out := w.work(m, s.blocks(p), s.shared(p), s.registers(p))
	read, written := s.bytes(p)
	out.L2Read, out.L2Written = float64(float64(out.Blocks)*read), float64(float64(out.Blocks)*written)
	out.DRAMBytes = s.weightBytes(p)
	out.Barriers = 2
	return out
}

// sides is the number of activations that the epilogue reads.
func (p *problem) sides() int {
	n := -1 // the anchor's own
	for _, v := range p.region.Inputs {
		if !v.IsConst() {
			n++
		}
	}
	return n
}

// epilogue is about how many instructions the epilogue has for an element.
func (p *problem) epilogue() int {
	n := 1 // the anchor's sum is rounded or moved
	for _, m := range p.region.Region.Body.Nodes {
		if m != p.anchor {
			n += m.Op.Cost
		}
	}
	return n
}

// bytes is what a block reads and writes, in whole sectors of 32 bytes, on average over the blocks: those at edges
// have less inside.
func (s schedule) bytes(p *problem) (read, written float64) {
	pixels := func(rows, columns float64, channels, bits int) float64 {
		if s.Channels == p.co { // pixels lie side by side
			return float64(rows * math.Ceil(columns*float64(channels*bits)/256) * 32)
		}
		return float64(rows * columns * float64(ceilDiv(channels*bits, 256)*32))
	}
	rows := inside(ceilDiv(p.oh, s.Rows), s.Rows*p.sh, p.ph, s.inputRows(p), p.h)
	columns := inside(ceilDiv(p.ow, s.Columns), s.Columns*p.sw, p.pw, s.inputColumns(p), p.w)
	read = pixels(rows, columns, s.inputChannels(p), p.stored.Bits()) + float64(4*s.weights(p))
	rows, columns = inside(ceilDiv(p.oh, s.Rows), s.Rows, 0, s.Rows, p.oh), inside(ceilDiv(p.ow, s.Columns), s.Columns, 0, s.Columns, p.ow)
	return read, pixels(rows, columns, s.Channels, p.region.Outputs[0].Type.DType.Bits())
}

// inside is how much of a tile lies within an extent, averaged over tiles of a size with a step between them, the
// first of which begins lead before the extent.
func inside(tiles, step, lead, size, extent int) float64 {
	sum := 0
	for i := range tiles {
		from := i*step - lead
		sum += max(0, min(from+size, extent)-max(from, 0))
	}
	return float64(sum) / float64(tiles)
}

// bytesOf is how many bytes so many channels of some pixels take, in whole sectors of 32 bytes.
func bytesOf(pixels, channels, bits int) float64 {
	return float64(pixels * ceilDiv(channels*bits, 256) * 32)
}

// weightBytes is what a launch reads of constants.
func (s schedule) weightBytes(p *problem) float64 {
	return float64(4 * s.weights(p) * p.g * p.co / s.Channels)
}

// registers estimates what a thread needs.
func (s schedule) registers(p *problem) int {
	window := s.Pixels*s.Vector + p.kw*s.Vector + 2*s.Vector
	return 32 + max(window, batch*s.stageWidth(p), 4*s.Finish)
}
