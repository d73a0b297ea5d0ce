package window

import (
	"fmt"
	"iter"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// fusedWindows is two windows of which the second slides over what the first computes. A block has a tile of the
// second's outputs, and computes all of the first's that these need, so neighbouring blocks compute some of them
// twice. It rounds them as they are stored, keeps them in shared memory and stores those that are its own.
type fusedWindows struct {
	first, second *problem
	kept          bool // the first's outputs are stored
}

func analyseFused(n *ir.Node) (*fusedWindows, error) {
	parts := n.Parts()
	if len(parts) != 2 {
		return nil, fmt.Errorf("%s fuses %d regions, not two", n.Name, len(parts))
	}
	c := &fusedWindows{kept: len(n.Outputs) > len(parts[1].Outputs)}
	var err error
	if c.first, err = analyse(parts[0]); err != nil {
		return nil, err
	}
	if c.second, err = analyse(parts[1]); err != nil {
		return nil, err
	}
	p, q := c.first, c.second
	v := q.anchor.Inputs[0]
	for v.Def != nil {
		if v.Def.Op.Name != "Cast" {
			return nil, fmt.Errorf("%s between the windows", v.Def.Op.Name)
		}
		v = v.Def.Inputs[0]
	}
	if p.blocks != nil || p.n != q.n || p.oh != q.h || p.ow != q.w || p.co != q.c {
		return nil, fmt.Errorf("the second window does not slide over the first's image")
	}
	// A tile owns the first's outputs at the places of its own, times the stride: together tiles own all, and each
	// computes what it owns.
	if c.kept && (q.oh*q.sh < q.h || q.ow*q.sw < q.w || q.ph+q.sh-1 > (q.kh-1)*q.dh || q.pw+q.sw-1 > (q.kw-1)*q.dw) {
		return nil, fmt.Errorf("the second window does not read all of the first's output")
	}
	return c, nil
}

// fusedSchedule is the schedule of fused windows: the second's tile, and how the first's outputs under it are
// computed. Shared memory holds the second's inputs and weights, followed by the first's inputs and weights, which
// the second's sums overwrite.
type fusedSchedule struct {
	second, first schedule
	above, left   int // rows and columns of the second's inputs before the first that is computed: padding, where a tile has the image
}

func (s fusedSchedule) String() string { return fmt.Sprintf("%s, then %s", s.first, s.second) }

// tile is the schedule of the first window for a tile of the second.
func (c *fusedWindows) tile(second schedule) fusedSchedule {
	q := c.second
	s := fusedSchedule{second: second.tight(q, false)}
	s.first = schedule{Channels: second.inputChannels(q), Rows: second.inputRows(q), Columns: second.inputColumns(q)}
	if second.Rows >= q.oh {
		s.above, s.first.Rows = q.ph, min(s.first.Rows-q.ph, q.h)
	}
	if second.Columns >= q.ow {
		s.left, s.first.Columns = q.pw, min(s.first.Columns-q.pw, q.w)
	}
	return s
}

// candidates enumerates the schedules for a tile of the second: runs of the first that fill its rows.
func (c *fusedWindows) candidates(second schedule) (list []fusedSchedule) {
	s, p := c.tile(second), c.first
	if s.first.Rows <= 0 || s.first.Columns <= 0 || s.first.Channels%p.multiplier != 0 {
		return nil
	}
	f := &s.first
	for f.Vector = 4; f.Channels%f.Vector != 0 || p.multiplier > 1 && p.multiplier%f.Vector != 0; {
		f.Vector /= 2
	}
	f.Finish = f.Vector
	for f.Pixels = 1; f.Pixels <= 16; f.Pixels++ {
		if f.Columns%f.Pixels == 0 && f.workers() <= maxTurns*second.threads() {
			t := s
			t.first = f.packed(p)
			list = append(list, t)
		}
	}
	return list
}

// all are the candidates for all tiles.
func (c *fusedWindows) all() iter.Seq[fusedSchedule] {
	return func(yield func(fusedSchedule) bool) {
		for _, second := range c.second.candidates() {
			for _, s := range c.candidates(second) {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// placed pads the rows of a schedule in shared memory.
func (c *fusedWindows) placed(s fusedSchedule) fusedSchedule {
	s.first, s.second = s.first.placed(c.first), s.second.placed(c.second)
	return s
}

// maxTurns bounds the runs of the first that a thread computes, which are written out.
const maxTurns = 4

// firstAt is where the first's inputs begin in shared memory.
func (c *fusedWindows) firstAt(s fusedSchedule) int { return s.second.sumsAt(c.second) }

func (c *fusedWindows) shared(s fusedSchedule) int {
	return max(s.second.shared(c.second), c.firstAt(s)+s.first.sumsAt(c.first))
}

func (c *fusedWindows) what() string {
	q := c.second
	what := fmt.Sprintf("%s_%s %dx%dx%dx%d", c.first.stem(), q.stem(), q.n, q.oh, q.ow, q.co)
	if q.g > 1 {
		what += fmt.Sprintf(" members=%d", q.g)
	}
	return what
}

func (c *fusedWindows) noSuch() string {
	return "no such tiles: want a form like tile=10x14x32 thread=7x4, then tile=4x8x32 thread=2x4, of both windows"
}

func (c *fusedWindows) fewBlocks() string { return c.second.fewBlocks() }

// work is what the launch of a schedule does.
func (c *fusedWindows) work(s fusedSchedule, m *cost.Machine) *cost.Work {
	p, q := c.first, c.second
	w := perWarp{threads: s.second.threads(), integer: 60}
	runs := w.rounds(s.first.workers())
	w.stage(s.first, p)
	w.window(s.first, p, runs)
	w.weights(s.first, p)
	w.handOver(s.first, p, runs, c.kept)
	fill := w.rounds(s.second.weightsAt(q) / 16)
	w.memory += fill
	w.wavefronts += float64(4 * fill)
	w.window(s.second, q, 1)
	w.weights(s.second, q)
	w.finish(s.second, q)
	out := w.work(m, s.second.blocks(q), c.shared(s), max(s.first.registers(p), s.second.registers(q)))
	// Tiles at edges have less inside, which is left out here.
	read := bytesOf(min(s.first.inputRows(p), p.h)*min(s.first.inputColumns(p), p.w), s.first.inputChannels(p), p.stored.Bits())
	_, written := s.second.bytes(q)
	if c.kept {
		written += bytesOf(min(s.second.Rows*q.sh, q.h)*min(s.second.Columns*q.sw, q.w), s.first.Channels, p.region.Outputs[0].Type.DType.Bits())
	}
	read += float64(4 * (s.first.weights(p) + s.second.weights(q)))
	out.L2Read, out.L2Written = float64(float64(out.Blocks)*read), float64(float64(out.Blocks)*written)
	out.DRAMBytes = s.first.weightBytes(p) + s.second.weightBytes(q)
	out.Barriers = 3
	return out
}

// handOver adds the epilogue of the first's runs.
func (w *perWarp) handOver(s schedule, p *problem, runs float64, kept bool) {
	vectors, sides := float64(runs*float64(s.Pixels)), float64(p.sides())
	w.float += float64(vectors * float64(s.Vector*p.epilogue()))
	w.integer += float64(vectors * (6 + float64(s.Vector)))
	w.memory += float64(vectors * (1 + sides))
	w.wavefronts += float64(vectors * float64(float64(s.Vector)*(1+sides)))
	w.loads += float64(vectors * sides)
	if kept {
		w.integer += float64(8 * vectors)
		w.memory += vectors
		w.wavefronts += float64(2 * vectors)
	}
}
