package contraction

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
)

const wantForm = "want a form like 64x64x32 stages=3 warps=2x2 splitk=4"

// parseSchedule reads what Schedule.String prints.
func parseSchedule(text string) (s Schedule, err error) {
	s.WarpsK, s.SplitK, s.Parts = 1, 1, 1
	numbers := map[string][]*int{"": {&s.BM, &s.BN, &s.BK}, "stages": {&s.Stages}, "warps": {&s.WarpsM, &s.WarpsN, &s.WarpsK},
		"thread": {&s.ThreadM, &s.ThreadN}, "parts": {&s.Parts}, "splitk": {&s.SplitK}}
	for i, word := range strings.Fields(text) {
		name, value, named := strings.Cut(word, "=")
		if i == 0 && !named {
			name, value = "", word
		}
		for k, n := range strings.Split(value, "x") {
			if k >= len(numbers[name]) {
				return s, fmt.Errorf("%q: unknown; %s", word, wantForm)
			}
			if _, err := fmt.Sscan(n, numbers[name][k]); err != nil {
				return s, fmt.Errorf("%q: %w; %s", word, err, wantForm)
			}
		}
	}
	if s.String() != text { // a part is missing, given twice, or followed by something
		return s, errors.New(wantForm)
	}
	for _, n := range []int{s.BM, s.BN, s.BK, s.WarpsM, s.WarpsN, s.WarpsK, s.Parts} {
		if n < 1 || n > 1<<12 {
			return s, fmt.Errorf("%d is no size", n)
		}
	}
	return s, nil
}

// suits says why the kernel cannot have a schedule that was not enumerated.
func (s Schedule) suits(p *problem, pl *plan, t *target.Target) error {
	switch {
	case s.BM%s.WarpsM != 0 || s.BN%s.WarpsN != 0:
		return fmt.Errorf("%dx%d warps do not share a tile of %dx%d", s.WarpsM, s.WarpsN, s.BM, s.BN)
	case s.BK%pl.perUnit != 0 || p.num.tensor() != (s.ThreadM == 0):
		return fmt.Errorf("it does not go with operands of %v", p.num.a)
	case p.traits.schedules != nil:
	case s.BK*p.num.a.Bits()/8 < leastRow || !powersOfTwo(s.BM, s.BN, s.BK, s.WarpsM, s.WarpsN, s.WarpsK, max(1, s.ThreadM), max(1, s.ThreadN), s.parts()):
		return fmt.Errorf("tiles, warps and threads are powers of two, and a row of a tile has %d bytes or more", leastRow)
	}
	if err := s.valid(p, t); err != nil {
		return err
	}
	if s.idles(p) {
		return fmt.Errorf("%d stages, and a block has %d chunks", s.Stages, s.chunksPerSplit(p))
	}
	return pl.fits(s)
}

// leastRow is the shortest row of a tile of A in shared memory, in bytes: the swizzle's.
const leastRow = 32

func powersOfTwo(list ...int) bool {
	return !slices.ContainsFunc(list, func(n int) bool { return n&(n-1) != 0 })
}

// idles reports whether the last stage would never be filled.
func (s Schedule) idles(p *problem) bool { return s.Stages > max(3, s.chunksPerSplit(p)+1) }

// Parse implements kernel.Kernel.
func (k *tiled) Parse(text string) (kernel.Choice, error) {
	s, err := parseSchedule(text)
	if err == nil {
		err = s.suits(k.p, k.plan, k.ctx.Target)
	}
	if err != nil {
		return kernel.Choice{}, err
	}
	same := func(x Schedule) bool {
		x.Parts = x.parts()
		return x == s
	}
	if list := k.p.traits.schedules; list != nil && !slices.ContainsFunc(list(), same) {
		return kernel.Choice{}, errors.New("it is none of those that such a kernel can have")
	}
	c := kernel.Choice{Schedule: s, Work: s.work(k.p, k.plan, cost.Of(k.ctx.Target))}
	if c.Work.Blocks < k.ctx.Target.SMs {
		c.Reason = fmt.Sprintf("%d blocks: tuned", c.Work.Blocks)
	}
	return c, nil
}

// Candidates implements kernel.Kernel: many more than Choose estimates.
func (k *tiled) Candidates(c kernel.Choice) (plans []kernel.Candidate, err error) {
	p, pl, t, own := k.p, k.plan, k.ctx.Target, c.Schedule.(Schedule)
	var usual []Schedule
	for _, s := range candidates(p) {
		if s.valid(p, t) == nil && pl.fits(s) == nil {
			usual = append(usual, s)
		}
	}
	longest, m := longestK(p, usual), cost.Of(t)
	add := func(s Schedule) {
		if s.suits(p, pl, t) == nil && s.chunks(p)*s.BK <= longest {
			plans = append(plans, kernel.Candidate{At: s.coordinates(), US: m.Estimate(s.work(p, pl, m)).US})
		}
	}
	if p.traits.schedules == nil {
		p.enumerate(add, append(usual, own))
	} else {
		seen := map[Schedule]bool{}
		for _, s := range usual {
			if !seen[s] {
				seen[s] = true
				add(s)
			}
		}
	}
	plans = kernel.Within(plans, own.coordinates())
	for i := range plans {
		plans[i].Schedule = at(plans[i].At).String()
	}
	return plans, nil
}

// coordinates of a schedule in the tuner's space, the least decisive last.
func (s Schedule) coordinates() []int {
	m, n := s.warpM(), s.warpN()
	if s.ThreadM > 0 {
		m, n = s.ThreadM, s.ThreadN
	}
	return []int{s.BM, s.BN, m, n, s.BK, s.WarpsK, s.SplitK, s.Stages, min(s.ThreadM, 1), s.parts()}
}

// at is the schedule with coordinates.
func at(c []int) Schedule {
	s := Schedule{BM: c[0], BN: c[1], BK: c[4], WarpsK: c[5], SplitK: c[6], Stages: c[7], Parts: c[9]}
	if c[8] > 0 {
		s.ThreadM, s.ThreadN, s.WarpsM, s.WarpsN = c[2], c[3], c[0]/c[2]*(c[1]/c[3])/32, 1
	} else {
		s.WarpsM, s.WarpsN = c[0]/c[2], c[1]/c[3]
	}
	return s
}

// enumerate calls f with each schedule of the space once: those of a list, then all others.
func (p *problem) enumerate(f func(s Schedule), first []Schedule) {
	seen := map[Schedule]bool{}
	once := func(s Schedule) {
		if !seen[s] {
			seen[s] = true
			f(s)
		}
	}
	slices.SortFunc(first, func(a, b Schedule) int { return cmp.Or(slices.Compare(a.coordinates(), b.coordinates())) })
	for _, s := range first {
		once(s)
	}
	threads := 0
	warp, rows := []int{16, 32, 64}, []int{32, 64, 128, 256, 512}
	if !p.num.tensor() {
		threads, warp, rows = 1, []int{4, 8}, []int{32, 64, 128}
	}
	splits := []int{1, 2, 3, 4, 6, 8, 12, 16}
	if p.k >= veryLongK {
		splits = append(splits, 24, 32, 48)
	}
	sizes := []int{16, 32, 64, 128, 256}
	for _, bm := range sizes {
		for _, bn := range sizes {
			for _, wm := range warp {
				for _, wn := range warp {
					if bm%wm != 0 || bn%wn != 0 || threads > 0 && bm/wm*(bn/wn)%32 != 0 {
						continue
					}
					for _, row := range rows {
						for _, wk := range []int{1, 2, 4, 8} {
							for _, split := range splits {
								for stages := 2; stages <= 6; stages++ {
									for parts := 1; parts <= max(1, wm/16) && (parts == 1 || threads == 0 && split == 1); parts *= 2 {
										once(at([]int{bm, bn, wm, wn, row * 8 / p.num.a.Bits(), wk, split, stages, threads, parts}))
									}
								}
							}
						}
					}
				}
			}
		}
	}
}
