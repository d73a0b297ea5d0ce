package window

import "github.com/spark-compile/spark-compile/internal/cost"

// estimate is the time of a schedule.
func (s schedule) estimate(p *problem, m *cost.Machine) float64 {
	us := m.Estimate(s.work(p, m)).US - m.LaunchUS
	if s.blocks(p) < m.SMs {
		us *= m.Idle
	}
	return us
}

// work describes a launch to the cost model.
func (s schedule) work(p *problem, m *cost.Machine) *cost.Work {
	threads, blocks := s.threads(p), s.blocks(p)
	warps := float64(blocks * threads / 32)
	stage := s.inputRows(p) * s.inputColumns(p) * s.inputChannels(p) / s.stageWidth(p)
	stageRounds := ceilDiv(stage, threads)
	weights := ceilDiv(s.weights(p), 4*threads)
	finishRounds := ceilDiv(s.Rows*s.Columns*s.Channels/s.Finish, threads)

	integer := stageRounds*(24+5*s.stageWidth(p)/2) + finishRounds*(24+2*s.Finish)
	loads, fronts := s.span(p), s.fronts*s.span(p)
	if p.taps != nil {
		loads += p.kw
		fronts += p.kw * s.Vector
	}
	window := p.kh * (loads + p.kw*s.Pixels*s.Vector + 4)
	stores := s.stageWidth(p)
	if !s.spread {
		stores *= max(1, stores/4)
	}
	fronts = p.kh*fronts + s.Pixels*s.Vector + stageRounds*(stores+4) + finishRounds*s.Finish + 4*weights
	return &cost.Work{
		Blocks: blocks, Warps: threads / 32, Resident: m.Resident(threads, s.shared(p), s.registers(p)),
		Issued:     warps * float64(integer+window+finishRounds*s.Finish*p.epilogue()+4*weights),
		Integer:    warps * float64(integer),
		Wavefronts: warps * float64(fronts),
		L2Bytes:    float64(blocks) * s.bytes(p),
		Trips:      max(1, float64(stageRounds+weights+finishRounds)/m.LoadsAtATime),
		Far:        4. / 9, // whether the inputs are in L2 is not known
		Barriers:   2.4,    // three of 24 clocks, where the model takes 30: fitted to keep the schedules that this family's own model chose, not measured
	}
}

// epilogue is about how many instructions the epilogue has for an element.
func (p *problem) epilogue() int {
	n := 0
	for _, m := range p.region.Region.Body.Nodes {
		switch m.Op.Name {
		case "Gelu", "Erf":
			n += 48
		case "Silu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Div", "Pow":
			n += 20
		case "BlockQuantize":
			n += 5
		default:
			n++
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
