package window

import "github.com/spark-compile/spark-compile/internal/target"

// The cost model estimates the time of a launch in microseconds:
//
//	max(issue, conversions, shared memory, L2, latency) + a share of each
//
// Terms are those of the busiest multiprocessor; issue takes 4 warp instructions a clock, or 0.4 of a warp that is alone;
// integer instructions and conversions half of that. Latency is, for each wave of blocks, its start, the trips to memory
// with eight loads of a thread under way, and barriers. The constants are round figures of published microbenchmarks.
const (
	startUS      = 0.3  // of a block: parameters, coordinates
	tripUS       = 0.45 // of a load, between what L2 and what DRAM takes
	barrierUS    = 0.03 // of three barriers
	loadsAtATime = 8
	l2BytesClk   = 64  // that a multiprocessor reads from L2 in a clock
	aloneIssue   = 0.4 // warp instructions a clock of a warp by itself
	others       = 0.1 // share of all terms that adds to the largest, since they do not overlap entirely
	alone        = 0.2 // the same for a block by itself, whose phases follow each other
	idle         = 1.2 // factor where multiprocessors have no block: the others have more to wait for than the model knows
)

// cost is an estimate's terms, in microseconds.
type cost struct {
	issue, convert, shared, l2, latency float64
	resident                            int  // blocks of a multiprocessor at a time
	idle                                bool // multiprocessors have no block
}

func (c cost) total() float64 {
	sum := c.issue + c.convert + c.shared + c.l2 + c.latency
	share := others
	if c.resident == 1 {
		share = alone
	}
	time := max(c.issue, c.convert, c.shared, c.l2, c.latency) + float64(share*sum)
	if c.idle {
		time *= idle
	}
	return time
}

// estimate predicts the time of a schedule. Products are rounded before they are added, so that every machine makes the
// same choice.
func (s schedule) estimate(p *problem, t *target.Target) cost {
	threads, blocks := s.threads(p), s.blocks(p)
	warps := float64(threads / 32)
	mine := ceilDiv(blocks, t.SMs)
	resident := max(1, min(mine, t.BlocksSM, t.WarpsSM*32/threads, t.SharedSM/(s.shared(p)+1024), t.RegistersSM/(threads*s.registers(p))))
	clk := t.ClockGHz * 1e3

	stage := s.inputRows(p) * s.inputColumns(p) * s.inputChannels(p) / s.stageWidth(p)
	stageRounds := ceilDiv(stage, threads)
	weights := ceilDiv(s.weights(p), 4*threads)
	finishRounds := ceilDiv(s.Rows*s.Columns*s.Channels/s.Finish, threads)

	integer := stageRounds*(24+5*s.stageWidth(p)/2) + finishRounds*(24+2*s.Finish)
	loads := s.span(p)
	if p.taps != nil {
		loads += p.kw
	}
	window := p.kh * (loads + p.kw*s.Pixels*s.Vector + 4)
	issued := float64(mine) * warps * float64(integer+window+finishRounds*s.Finish*p.epilogue()+4*weights)
	issue := issued / min(4, float64(float64(resident)*warps*aloneIssue)) / clk
	convert := float64(mine) * warps * float64(integer) / 2 / clk

	fronts := s.fronts * s.span(p)
	if p.taps != nil {
		fronts += p.kw * s.Vector
	}
	stores := s.stageWidth(p)
	if !s.spread {
		stores *= max(1, stores/4)
	}
	fronts = p.kh*fronts + s.Pixels*s.Vector + stageRounds*(stores+4) + finishRounds*s.Finish + 4*weights
	shared := float64(mine) * warps * float64(fronts) / clk

	bytes := s.bytes(p)
	l2 := max(float64(blocks)*bytes/(t.L2GBps*1e3), float64(mine)*bytes/l2BytesClk/clk)

	trips := max(1, float64(stageRounds+weights+finishRounds)/loadsAtATime)
	waves := float64(ceilDiv(mine, resident))
	latency := waves * (startUS + barrierUS + float64(trips*tripUS))

	return cost{issue, convert, shared, l2, latency, resident, blocks < t.SMs}
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
