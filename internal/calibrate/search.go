package calibrate

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// blockWidth is the smallest K at which 4-bit operands pay off.
const blockWidth = 64

// blockChannels is K of a block-scaled mma. Activations pay off in 4 bits only if their channels are a multiple of it: else
// scales are read one by one, which costs more than the bytes saved (docs/measurements.md).
const blockChannels = 64

// ladder lists the formats of a layer from the narrowest to Half, each more accurate than those in front of it.
func (c *Calibration) ladder(opt Options, s *passes.Site) []precision.Layer {
	p, err := precision.Lookup(opt.Precision)
	if err != nil {
		return []precision.Layer{precision.Half}
	}
	return slices.DeleteFunc(slices.Clone(p.Ladder), func(f precision.Layer) bool {
		switch {
		case s.Segmented(): // it reads weights as they lie in memory, where elements may have gaps
			return f.Activations.Narrow() || f.Weights.Bits() != ir.DTypeOf(f.Weights.Format).Bits() || f.Weights.Blocks && s.K < blockWidth
		case f.Vectors, f.Weights.Blocks && s.K < blockWidth:
			return true
		case f.Activations.Blocks:
			x := s.Node.Inputs[s.X].Type.Shape
			return !opt.Target.Multiplies(f.Activations.Name) || len(c.readers[s.Name()]) == 0 || x[len(x)-1]%blockChannels != 0
		}
		return false
	})
}

// worthwhile drops the formats of a ladder that cost as much as a more accurate one.
func worthwhile(ladder []precision.Layer, p prices) []precision.Layer {
	var out []precision.Layer
	for i, f := range ladder {
		if !slices.ContainsFunc(ladder[i+1:], func(g precision.Layer) bool { return p[g] <= p[f] }) {
			out = append(out, f)
		}
	}
	return out
}

// undecided is the part of a ladder that prices decide on where every layer is to be quantised: activations in blocks, or weights
// alone.
func undecided(ladder []precision.Layer) []precision.Layer {
	if ladder[0].Activations.Blocks {
		return ladder[:2]
	}
	return ladder[:1]
}

// demotion takes a layer one step down its ladder.
type demotion struct {
	layer int
	to    precision.Layer
	worth float64 // squared error saved for what it costs
}

// demotions orders every step along the ladders by the error that it saves for the time that it costs.
func demotions(ladders [][]precision.Layer, alone []map[precision.Layer]float64, prices []prices) []demotion {
	var out []demotion
	for i := range ladders {
		limit := math.Inf(1)
		for k := 1; k < len(ladders[i]); k++ {
			from, to := ladders[i][k-1], ladders[i][k]
			saved := float64(alone[i][from]*alone[i][from]) - float64(alone[i][to]*alone[i][to])
			cost := max(prices[i][to]-prices[i][from], 1e-3)
			limit = min(limit, saved/cost) // a ladder is taken step by step
			out = append(out, demotion{i, to, limit})
		}
	}
	slices.SortStableFunc(out, func(a, b demotion) int { return cmp.Compare(b.worth, a.worth) })
	return out
}

// search looks for the fewest demotions, in order of their worth, that meet a budget. Every candidate is compiled and
// measured. The next candidate is guessed from the layers' errors alone: their squares are assumed to add up, times a factor
// that the measurements give.
type search struct {
	start  Assignment
	sites  []passes.Site
	steps  []demotion
	alone  []map[precision.Layer]float64
	prices []prices
	budget float64 // 1 − cosine

	miss     int     // demotions that were too few
	meet     int     // demotions that were enough, or all
	multiple float64 // of the sum of squared errors alone: 1 − cosine
}

const (
	tries = 10 // bounds the number of candidates

	// firstMultiple is what search.multiple is before there is a measurement. Over assignments of vision, driver monitoring and
	// policy in fp8 and nvfp4 it was 0.16 to 1.2 on the sets that budgets are judged on, and 0.57 in the middle.
	firstMultiple = 0.6 * usualMargin

	// usualMargin is 1 − cosine as expected on other inputs over that of the worst input so far, in the middle.
	usualMargin = 4

	// leastGain is the fraction of the layers' predicted time for which a last walk through the graph is made.
	leastGain = 0.02
)

func (c *Calibration) search(ctx context.Context, trial Trial, opt Options, sites []passes.Site, ladders [][]precision.Layer, alone []map[precision.Layer]float64, prices []prices) (*Fitted, error) {
	s := &search{start: Assignment{}, sites: sites, steps: demotions(ladders, alone, prices), alone: alone, prices: prices, budget: 1 - opt.MinCosine, multiple: firstMultiple}
	for i := range sites {
		s.start[sites[i].Name()] = ladders[i][0]
	}
	if opt.MinCosine <= 0 { // whatever it is will do
		f, _, err := c.made(ctx, s.start, opt.Technique)
		return f, err
	}
	s.miss, s.meet = -1, len(s.steps)
	var found *Fitted
	last := false // the last walk was made
	for try := 0; try < tries && s.meet-s.miss > 1; try++ {
		at := s.fewest(s.multiple)
		if middle := (s.miss + s.meet + 1) / 2; try%3 == 2 && c.assemble(s.demoted(middle)) != nil { // errors alone may mislead
			at = middle
		}
		f, exact := c.assemble(s.demoted(at)), false
		if f == nil && found != nil {
			if at = s.bold(); last || !s.pays(at) {
				break
			}
			last, f = true, c.assemble(s.demoted(at))
		}
		if f == nil {
			var err error
			if f, exact, err = c.made(ctx, s.demoted(at), opt.Technique); err != nil {
				return nil, err
			}
		}
		enough := opt.MinCosine
		if exact { // what is learnt from it decides where the next walk goes
			enough = 0
		}
		c.progress.Begin(0, "compiling with %d of %d steps to wider formats", at, len(s.steps))
		q, err := trial.Measure(ctx, f.Plan, enough)
		if err != nil {
			return nil, err
		}
		if leastExpected(q) >= opt.MinCosine {
			s.meet, found = at, f
		} else {
			s.miss = at
		}
		measured := 1 - leastExpected(q)
		if Least(q) < enough { // it was stopped at one input, of which nothing is expected
			measured = usualMargin * (1 - Least(q))
		}
		s.learn(at, measured, exact)
	}
	if found != nil {
		return found, nil
	}
	f := c.assemble(s.demoted(len(s.steps))) // every layer in 16 bits needs no fit
	q, err := trial.Measure(ctx, f.Plan, 0)
	if err == nil && Least(q) < opt.MinCosine {
		err = unreachable(opt, q, sites, alone)
	}
	return f, err
}

// demoted is the assignment after the first demotions.
func (s *search) demoted(count int) Assignment {
	a := maps.Clone(s.start)
	for _, d := range s.steps[:count] {
		a[s.sites[d.layer].Name()] = d.to
	}
	return a
}

// error is the sum of squared errors alone after the first demotions.
func (s *search) error(count int) float64 {
	sum := 0.0
	a := s.demoted(count)
	for i := range s.sites {
		e := s.alone[i][a[s.sites[i].Name()]]
		sum += float64(e * e)
	}
	return sum
}

// cost is what all layers cost after the first demotions.
func (s *search) cost(count int) (sum float64) {
	a := s.demoted(count)
	for i := range s.sites {
		sum += s.prices[i][a[s.sites[i].Name()]]
	}
	return sum
}

// pays reports whether fewer demotions than are known to be enough are worth a walk through the graph.
func (s *search) pays(at int) bool { return s.cost(at) < (1-leastGain)*s.cost(s.meet) }

// learn updates the factor from 1 − cosine as measured after some demotions. A candidate that has no fit of its own is worse
// than one that has, and perhaps was not measured to the end, so it says less.
func (s *search) learn(count int, measured float64, exact bool) {
	e := s.error(count)
	if e <= 0 || measured <= 0 {
		return
	}
	was := s.multiple
	if s.multiple = measured / e; !exact {
		s.multiple = min(max(s.multiple, was/1.5), was*1.5)
	}
}

// bold is the number of demotions to try in a last walk: as if errors alone counted half as much as was measured.
func (s *search) bold() int { return s.fewest(s.multiple / 2) }

// fewest is the least number of demotions, of those between, that should be enough.
func (s *search) fewest(multiple float64) int {
	at := s.miss + 1
	for at < s.meet-1 && multiple*s.error(at) > margin*s.budget {
		at++
	}
	return min(at, s.meet-1)
}

// margin is the fraction of the budget that a guess may use.
const margin = 0.95

// leastExpected is what a search compares with its budget. Where all demotions are made, Least is: nothing is left to give.
func leastExpected(q []Quality) float64 {
	x := Least(q)
	for _, s := range q {
		if s.Expected != 0 {
			x = min(x, s.Expected)
		}
	}
	return x
}

// Least is the lowest cosine.
func Least(q []Quality) float64 {
	x := 1.0
	for _, s := range q {
		x = min(x, s.Cosine)
	}
	return x
}
