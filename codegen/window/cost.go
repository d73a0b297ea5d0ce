package window

import "github.com/spark-compile/spark-compile/internal/cost"

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
	w := &cost.Work{
		Blocks: blocks, Warps: threads / 32, Resident: m.Resident(threads, s.shared(p), s.registers(p)),
		Float:      of(float64(p.kh*p.kw*s.Pixels*s.Vector), 0, float64(s.Finish*p.epilogue())),
		Integer:    of(40, 20+float64(2*width), 30+elements),
		Memory:     of(float64(p.kh*reads+s.Pixels)+weights, 1+max(1, width/4), 1+sides+float64(elements/4)),
		Wavefronts: of(float64(p.kh*fronts+s.Pixels*s.Vector)+float64(4*weights), stores+4, elements+float64(4*sides)),
		L2Bytes:    float64(blocks) * s.bytes(p),
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

// bytes is what a block reads and writes, in whole sectors of 32 bytes.
func (s schedule) bytes(p *problem) float64 {
	sectors := func(channels, bits int) int { return ceilDiv(channels*bits, 256) * 32 }
	rows, columns := min(s.inputRows(p), p.h), min(s.inputColumns(p), p.w)
	n := rows * columns * sectors(s.inputChannels(p), p.stored.Bits())
	n += s.Rows * s.Columns * sectors(s.Channels, p.region.Outputs[0].Type.DType.Bits())
	return float64(n + 4*s.weights(p))
}

// registers estimates what a thread needs.
func (s schedule) registers(p *problem) int {
	window := s.Pixels*s.Vector + p.kw*s.Vector + 2*s.Vector
	return 32 + max(window, batch*s.stageWidth(p), 4*s.Finish)
}
