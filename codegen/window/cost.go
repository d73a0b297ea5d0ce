package window

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/cost"
)

// work is what the launch of a schedule does, on average over its warps. Inputs are taken to be in L2, weights in DRAM.
func (s schedule) work(p *problem, m *cost.Machine) *cost.Work {
	threads, blocks := s.threads(p), s.blocks(p)
	warps := float64(blocks * threads / 32)
	rounds := func(n int) float64 { return float64(ceilDiv(n, 32)*32) / float64(threads) } // of a warp
	stage := rounds(s.inputRows(p) * s.inputColumns(p) * s.inputChannels(p) / s.stageWidth(p))
	finish := rounds(s.Rows * s.Columns * s.Channels / s.Finish)
	weights := rounds(ceilDiv(s.weights(p), 4))
	width, elements := float64(s.stageWidth(p)), float64(s.Finish)

	reads, fronts := s.span(p), s.fronts*s.span(p)
	if p.taps != nil {
		reads += p.kw
		fronts += p.kw * s.Vector
	}
	stores := width
	if !s.spread {
		stores = float64(stores * max(1, width/4))
	}
	sides := float64(p.sides())
	of := func(always, perStage, perFinish float64) float64 {
		return float64(warps * (always + float64(stage*perStage) + float64(finish*perFinish)))
	}
	read, written := s.bytes(p)
	w := &cost.Work{
		Blocks: blocks, Warps: threads / 32, Resident: m.Resident(threads, s.shared(p), s.registers(p)),
		Float:      of(float64(p.kh*p.kw*s.Pixels*s.Vector), 0, float64(s.Finish*p.epilogue())),
		Integer:    of(40, 20+float64(2*width), 30+elements),
		Memory:     of(float64(p.kh*reads+s.Pixels)+weights, 1+max(1, width/4), 1+sides+float64(elements/4)),
		Wavefronts: of(float64(p.kh*fronts+s.Pixels*s.Vector)+float64(4*weights), stores+4, elements+float64(4*sides)),
		L2Read:     float64(blocks) * read,
		L2Written:  float64(blocks) * written,
		DRAMBytes:  float64(4 * s.weights(p) * p.g * p.co / s.Channels),
		Loads:      stage + float64(finish*sides),
		Trips:      1, // of weights
		Barriers:   2,
	}
	w.Issued = w.Float + w.Integer + w.Memory + float64(warps*float64(20+4*p.kh))
	return w
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

// bytes is what a block reads and writes, in whole sectors of 32 bytes, on average over the blocks: those at edges have less inside.
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

// inside is how much of a tile lies within an extent, on average over tiles of a size that begin a step apart, the first of them lead before
// the extent does.
func inside(tiles, step, lead, size, extent int) float64 {
	sum := 0
	for i := range tiles {
		from := i*step - lead
		sum += max(0, min(from+size, extent)-max(from, 0))
	}
	return float64(sum) / float64(tiles)
}

// registers estimates what a thread needs.
func (s schedule) registers(p *problem) int {
	window := s.Pixels*s.Vector + p.kw*s.Vector + 2*s.Vector
	return 32 + max(window, batch*s.stageWidth(p), 4*s.Finish)
}
