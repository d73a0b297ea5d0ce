package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/target"
)

// Schedule is how a contraction is cut into blocks, warps and stages.
type Schedule struct {
	BM, BN, BK             int // tile of a block; BK in elements of K
	WarpsM, WarpsN, WarpsK int // warps along each; WarpsK of them share the tile and split every chunk of K, or the terms of B
	ThreadM, ThreadN       int // fp32: elements a thread computes; 0 for tensor cores
	Stages                 int // chunks of K in shared memory, one of them being computed on
	SplitK                 int // blocks that share a tile
	Parts                  int // of each warp's rows, whose sums go through shared memory one after the other; 0: 1
}

// String is the readable form: 64x64x32 stages=3 warps=2x2 splitk=4.
func (s Schedule) String() string {
	t := fmt.Sprintf("%dx%dx%d stages=%d warps=%dx%d", s.BM, s.BN, s.BK, s.Stages, s.WarpsM, s.WarpsN)
	if s.WarpsK > 1 {
		t += fmt.Sprintf("x%d", s.WarpsK)
	}
	if s.ThreadM > 0 {
		t += fmt.Sprintf(" thread=%dx%d", s.ThreadM, s.ThreadN)
	}
	if s.SplitK > 1 {
		t += fmt.Sprintf(" splitk=%d", s.SplitK)
	}
	if s.parts() > 1 {
		t += fmt.Sprintf(" parts=%d", s.Parts)
	}
	return t
}

// warpsTerm is how many of WarpsK take a term of B each: where a chunk is too short to be split among all of them.
func (s Schedule) warpsTerm(n *numerics) int {
	if n.termsB == 2 && s.WarpsK%2 == 0 && s.BK%(n.unit()*s.WarpsK) != 0 {
		return 2
	}
	return 1
}

// warpK and warpTerms are the elements of a chunk, and the terms of B, that a warp multiplies.
func (s Schedule) warpK(n *numerics) int     { return s.BK / (s.WarpsK / s.warpsTerm(n)) }
func (s Schedule) warpTerms(n *numerics) int { return n.termsB / s.warpsTerm(n) }

func (s Schedule) threads() int { return 32 * s.WarpsM * s.WarpsN * s.WarpsK }

// warp tile of the tensor-core path.
func (s Schedule) warpM() int { return s.BM / s.WarpsM }
func (s Schedule) warpN() int { return s.BN / s.WarpsN }

func (s Schedule) tilesM(p *problem) int { return p.shape(s).tilesM }
func (s Schedule) stageA(p *problem) int { return p.shape(s).stage }

func (s Schedule) tilesN(p *problem) int { return ceilDiv(p.n, s.BN) }
func (s Schedule) chunks(p *problem) int { return ceilDiv(p.k, s.BK) }

// chunksPerSplit is the number of chunks that all but the last block of a tile take.
func (s Schedule) chunksPerSplit(p *problem) int { return ceilDiv(s.chunks(p), s.SplitK) }

func (s Schedule) tiles(p *problem) int  { return s.tilesM(p) * s.tilesN(p) * p.batches() }
func (s Schedule) blocks(p *problem) int { return s.tiles(p) * s.SplitK }

func (s Schedule) stageBytes(p *problem) int {
	bytes := s.stageA(p) + p.num.tileB(s.BN, s.BK)
	if p.scalesA != nil {
		bytes += p.num.scalesA(s.BM, s.BK)
	}
	return bytes
}

// stagingRow is the row length, in floats, of the accumulator tile in shared memory: padded by 32 bytes so that the
// rows of a fragment fall into different banks.
func (s Schedule) stagingRow() int { return s.BN + 8 }

// stagingRows are the rows of a part.
func (s Schedule) stagingRows() int { return s.BM / s.parts() }

func (s Schedule) parts() int { return max(1, s.Parts) }

func (s Schedule) stagingBytes() int { return s.WarpsK * s.stagingRows() * s.stagingRow() * 4 }

func (s Schedule) shared(p *problem) int {
	return max(s.Stages*s.stageBytes(p)+p.shape(s).afterStages, s.stagingBytes()) + s.addedBytes(p) + 16 // 16: the split-K ticket
}

// registers estimates what a thread needs, from what ptxas takes for such kernels: accumulators, fragments of A of
// two steps and of B of one, what a copy needs, addresses.
func (s Schedule) registers(p *problem) int {
	if p.producer != nil {
		return p.producer.registers(s, s.mainRegisters(p))
	}
	return s.mainRegisters(p)
}

func (s Schedule) mainRegisters(p *problem) int {
	if n := &p.num; n.tensor() {
		a, b := s.warpM()/16, s.warpN()/16
		sums := a * b * 8
		if n.partial > 0 {
			sums = 2*sums + 4
		}
		copies := ceilDiv(n.tileA(s.BM, s.BK)/16, s.threads())
		r := sums + s.fragmentRegisters(n) + 2*copies + 22
		switch {
		case p.conv != nil: // taps outside of the image
			r += 3 * copies
		case p.m%s.BM != 0 || p.k%s.BK != 0:
			r += 2*copies + 4
		}
		return r
	}
	return s.ThreadM*s.ThreadN + 4*s.ThreadM + 2*s.ThreadN + 3*ceilDiv(s.BM*s.BK/4, s.threads()) + 40
}

// fragmentRegisters are those of mainRegisters that hold what tensor cores multiply.
func (s Schedule) fragmentRegisters(n *numerics) int {
	a, b := s.warpM()/16, s.warpN()/16
	r := 8*a + 4*b + 12*b*(s.warpTerms(n)-1)
	if n.blockScaled() {
		r += a + 2*b
	}
	if n.a != n.mul || n.b != n.mul || n.round != 0 { // what is read for a unit, before it is converted
		r += 4*(a*(n.unit()/n.stepA()-1)+b*(n.unit()/n.stepB()-1)) + 4*b + 16 + 4*a*(n.terms-1)
	}
	return r
}

// refusal is why a schedule cannot be, in numbers: to choose one, thousands are refused, and the last reason is read.
type refusal struct {
	format  string
	numbers [3]int
	count   int
}

func refuse(format string, numbers ...int) error {
	r := refusal{format: format, count: len(numbers)}
	copy(r.numbers[:], numbers)
	return r
}

func (r refusal) Error() string {
	var args []any
	for _, n := range r.numbers[:r.count] {
		args = append(args, n)
	}
	return fmt.Sprintf(r.format, args...)
}

// valid says why a schedule cannot compute the problem on the target.
func (s Schedule) valid(p *problem, t *target.Target) error {
	threads := s.threads()
	switch {
	case threads < 32 || threads > 512:
		return refuse("%d threads", threads)
	case s.Stages < 2:
		return refuse("%d stages", s.Stages)
	case s.SplitK < 1 || s.SplitK > 1 && (s.SplitK-1)*s.chunksPerSplit(p) >= s.chunks(p):
		return refuse("split-K %d leaves a block without any of %d chunks", s.SplitK, s.chunks(p))
	case p.sums != nil && s.BM%p.sums.part != 0:
		return refuse("tile of %d rows, sums of %d", s.BM, p.sums.part)
	case s.parts() > 1 && (!p.num.tensor() || s.SplitK > 1 || p.sums != nil || p.producer != nil || s.warpM()%(16*s.Parts) != 0):
		return refuse("sums in %d parts", s.Parts)
	case s.parts() > 1 && 2*s.stagingBytes() <= s.Stages*s.stageBytes(p):
		return refuse("sums in %d parts, and all fit in the stages in half as many", s.Parts)
	case s.BN%8 != 0:
		return refuse("tile of %d columns is not a multiple of 8", s.BN)
	}
	if p.producer != nil {
		if _, err := p.producer.shape(s); err != nil {
			return err
		}
	}
	if err := s.divides(p); err != nil {
		return err
	}
	if bytes := s.shared(p); bytes > t.SharedBlock {
		return refuse("%d bytes of shared memory, a block has %d", bytes, t.SharedBlock)
	}
	if n := s.registers(p); n > 240 || n*threads > t.RegistersSM {
		return refuse("about %d registers a thread", n)
	}
	return nil
}

// divides reports why warps or threads cannot share a tile evenly.
func (s Schedule) divides(p *problem) error {
	if p.num.tensor() {
		switch {
		case s.warpM()%16 != 0 || s.warpN()%16 != 0:
			return refuse("warp tile %dx%d is not a multiple of 16x16", s.warpM(), s.warpN())
		case s.BK%(p.num.unit()*s.WarpsK/s.warpsTerm(&p.num)) != 0:
			return refuse("chunk of %d does not give %d warps a k%d step each", s.BK, s.WarpsK, p.num.unit())
		}
		return nil
	}
	switch {
	case s.ThreadM*s.ThreadN == 0 || s.ThreadN%4 != 0:
		return refuse("thread tile %dx%d", s.ThreadM, s.ThreadN)
	case s.BM/s.ThreadM*(s.BN/s.ThreadN)*s.WarpsK != s.threads():
		return refuse("thread tile %dx%d does not cover %dx%d", s.ThreadM, s.ThreadN, s.BM, s.BN)
	case s.BM/s.ThreadM%8 != 0:
		return refuse("%d thread rows are not a multiple of the swizzle's 8", s.BM/s.ThreadM)
	case s.BK%(4*s.WarpsK) != 0:
		return refuse("chunk of %d does not give %d groups 4 steps each", s.BK, s.WarpsK)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
