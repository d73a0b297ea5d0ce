package calibrate

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// blockWidth is the smallest K at which 4-bit operands pay off. Three heads of smaller K, with 0.7 % of driver
// monitoring's weights, had 28 % of the squared error of nvfp4 on photographs (2026-11-22).
const blockWidth = 64

// blockChannels is K of a block-scaled mma. Activations pay off in 4 bits only if their channels are a multiple of
// it: else scales are read one by one. Without that rule driver monitoring is no faster (67.7 and 67.6 µs) and its
// relative L2 rises to 0.050 (2026-11-21).
const blockChannels = 64

// candidates lists the formats of a layer from the narrowest to Half, in order of increasing accuracy.
func (c *Calibration) candidates(opt Options, s *passes.Site) []precision.Layer {
	p, err := precision.Lookup(opt.Precision)
	if err != nil {
		return []precision.Layer{precision.Half}
	}
	return slices.DeleteFunc(slices.Clone(p.Candidates), func(f precision.Layer) bool {
		switch {
		case f.Weights.HiLo: // split decides where
			return true
		case s.Segmented():
			return !storable(s, f) || f.Weights.Blocks && s.K < blockWidth
		case f.Vectors && !coarse(p), f.Weights.Blocks && s.K < blockWidth:
			return true
		case f.Activations.Blocks:
			x := s.Node.Inputs[s.X].Type.Shape
			return !opt.Target.Multiplies(f.Activations.Name) || len(c.readers[s.Name()]) == 0 || x[len(x)-1]%blockChannels != 0
		}
		return false
	})
}

// worthwhile drops the candidates that cost as much as a more accurate one.
func worthwhile(candidates []precision.Layer, p prices) []precision.Layer {
	var out []precision.Layer
	for i, f := range candidates {
		if !slices.ContainsFunc(candidates[i+1:], func(g precision.Layer) bool { return p[g] <= p[f] }) {
			out = append(out, f)
		}
	}
	return out
}

// undecided is the part of the candidates that costs decide where every layer must be quantised: activations in
// blocks, or weights only.
func undecided(candidates []precision.Layer) []precision.Layer {
	if candidates[0].Activations.Blocks {
		return candidates[:2]
	}
	return candidates[:1]
}

// demotion moves a layer to its next cheaper candidate.
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
			limit = min(limit, saved/cost) // formats change one step at a time
			out = append(out, demotion{i, to, limit})
		}
	}
	slices.SortStableFunc(out, func(a, b demotion) int { return cmp.Compare(b.worth, a.worth) })
	return out
}

// path leads from the narrowest formats of some ladders to 16 bits, a demotion at a time in the order of their worth.
type path struct {
	*ranking
	start Assignment
	steps []demotion
}

// ranking is what a search knows of each layer.
type ranking struct {
	sites  []passes.Site
	alone  []map[precision.Layer]float64
	prices []prices
}

func (l *ranking) path(ladders [][]precision.Layer) *path {
	p := &path{l, Assignment{}, demotions(ladders, l.alone, l.prices)}
	for i := range l.sites {
		p.start[l.sites[i].Name()] = ladders[i][0]
	}
	return p
}

// after is the assignment after the first demotions.
func (p *path) after(count int) Assignment {
	a := maps.Clone(p.start)
	for _, d := range p.steps[:count] {
		a[p.sites[d.layer].Name()] = d.to
	}
	return a
}

// error is the sum of squared errors alone after the first demotions.
func (p *path) error(count int) float64 { return p.errorOf(p.after(count)) }

// errorOf is the sum of squared errors alone of an assignment.
func (l *ranking) errorOf(a Assignment) (sum float64) {
	for i := range l.sites {
		e := l.alone[i][a.of(l.sites[i].Name())]
		sum += float64(e * e)
	}
	return sum
}

// cost is what all layers cost after the first demotions.
func (p *path) cost(count int) (sum float64) {
	a := p.after(count)
	for i := range p.sites {
		sum += p.prices[i][a[p.sites[i].Name()]]
	}
	return sum
}

// fewest is the least number of demotions, of those between, or one less than meet, after which errors alone times a multiple should be within a budget.
func (p *path) fewest(multiple, budget float64, miss, meet int) int {
	at := miss + 1
	for at < meet-1 && multiple*p.error(at) > margin*budget {
		at++
	}
	return max(min(at, meet-1), 0)
}

// search looks for the fewest demotions, in order of their worth, that meet a budget. It walks through the graph once, with
// fewer demotions than will do, and makes candidates of what it found there (reuse.go). Each of them is compiled and measured. The
// next one is guessed from the layers' errors alone: their squares are assumed to add up, times a factor that the measurements give.
type search struct {
	*Calibration
	trial Trial
	opt   Options

	budget   float64 // 1 − cosine
	multiple float64 // of the sum of squared errors alone: 1 − cosine
	tries    int     // left
	learnt   bool    // multiple is of a measurement
	best     *Fitted // the cheapest one that meets the budget; nil: none yet
	cost     float64 // of it
}

const (
	tries = 10 // bounds the number of candidates

	// usualMultiple is what search.multiple is before there is a measurement: over assignments of vision, driver monitoring and
	// policy in fp8 and nvfp4 it was 0.5 to 11 where the budget was just met, and 4 in the middle.
	usualMultiple = 4

	// firstMultiple decides on the assignment of the first walk. What it finds serves all assignments of wider formats, and no others.
	firstMultiple = 0.15 * usualMultiple

	// usualMargin is 1 − cosine as expected on other inputs over that of the worst input so far, in the middle.
	usualMargin = 4

	// mostMisses bounds the candidates of the first fit that miss, and ownFit is 1 − cosine of such a candidate over that of one that has a
	// fit of its own: 1.6 in vision, less in the others.
	mostMisses, ownFit = 2, 1.5

	// leastGain is the fraction of the layers' predicted time for which another walk is made, and leastStep that for which
	// another candidate is tried.
	leastGain, leastStep = 0.02, 0.005
)

func (c *Calibration) search(ctx context.Context, trial Trial, opt Options, sites []passes.Site, ladders [][]precision.Layer, alone []map[precision.Layer]float64, prices []prices) (*Fitted, error) {
	l := &ranking{sites, alone, prices}
	whole := l.path(ladders)
	if opt.MinCosine <= 0 { // whatever it is will do
		return c.made(ctx, whole.after(0), opt.Technique)
	}
	all := len(whole.steps)
	s := &search{Calibration: c, trial: trial, opt: opt, budget: 1 - opt.MinCosine, multiple: usualMultiple, tries: tries, cost: whole.cost(all)}
	if all > 0 {
		if err := s.walks(ctx, whole, ladders); err != nil {
			return nil, err
		}
	}
	if s.best != nil {
		return s.best, nil
	}
	f := c.assemble(whole.after(all)) // every layer in 16 bits needs no fit
	q, err := trial.Measure(ctx, f.Plan, 0)
	if err == nil && Least(q) < opt.MinCosine {
		err = unreachable(opt, q, sites, alone)
	}
	return f, err
}

// walks makes a first fit and tries candidates that are made of it. If better ones are likely, of a fit of their own, it makes that and
// tries again.
func (s *search) walks(ctx context.Context, whole *path, ladders [][]precision.Layer) error {
	all := len(whole.steps)
	if err := s.begin(ctx, whole, whole.fewest(firstMultiple, s.budget, -1, all), s.opt.Technique); err != nil {
		return err
	}
	p := whole.path(s.seen(whole.sites, ladders))
	if err := s.asFitted(ctx, p); err != nil {
		return err
	}
	if err := s.along(ctx, p, mostMisses); err != nil {
		return err
	}
	likely := func(p *path, multiple float64) int { return p.fewest(multiple, s.budget, -1, len(p.steps)) }
	to := likely(whole, s.multiple)
	if whole.cost(to) < (1-leastGain)*min(s.cost, p.cost(likely(p, s.multiple))) { // in formats that the first fit has not seen
		if _, err := s.made(ctx, whole.after(to), s.opt.Technique); err != nil {
			return err
		}
	} else {
		s.multiple /= ownFit
		if to = likely(p, s.multiple); p.cost(to) > (1-leastGain)*s.cost {
			return nil
		}
		if err := s.again(ctx, p.after(to)); err != nil {
			return err
		}
	}
	return s.along(ctx, whole.path(s.seen(whole.sites, ladders)), tries)
}

// asFitted tries the assignment that the first fit was made for, if it is where a path starts: nothing on the path is cheaper. Most
// networks miss the budget there, by far, which their first inputs show, and what they are on the path says little of that.
func (s *search) asFitted(ctx context.Context, p *path) error {
	a := p.after(0)
	if len(p.steps) == 0 || len(s.found.fits) != 1 || s.found.fits[0].differs(s.store(a).formats) > 0 {
		return nil
	}
	f := s.assemble(a)
	if f == nil {
		return nil
	}
	s.progress.Begin(0, "compiling the formats of the fit")
	measured, err := s.measure(ctx, f)
	if err != nil || measured > s.budget {
		return err
	}
	s.best, s.cost = f, p.cost(0)
	if e := p.error(0); e > 0 && measured > 0 {
		s.learn(measured / e)
	}
	return nil
}

// again fits once more for an assignment, unless a file has that.
func (s *search) again(ctx context.Context, a Assignment) error {
	formats := s.store(a).formats
	for _, f := range s.found.saved {
		if f.differs(formats) == 0 {
			s.found.fits = append(s.found.fits, f)
			return nil
		}
	}
	_, err := s.refit(ctx, a, s.opt.Technique)
	return err
}

// along tries candidates on a path all of whose assignments can be assembled, as long as one may be cheaper than what was best and
// no more than some have missed the budget.
func (s *search) along(ctx context.Context, p *path, misses int) error {
	miss, meet := -1, 0
	for meet < len(p.steps) && p.cost(meet) < (1-leastStep)*s.cost {
		meet++
	}
	for try := 0; s.tries > 0 && misses > 0 && meet-miss > 1 && p.cost(miss+1) < (1-leastStep)*s.cost; try++ {
		s.tries--
		at := p.fewest(s.multiple, s.budget, miss, meet)
		if try%3 == 2 { // errors alone may mislead
			at = (miss + meet + 1) / 2
		}
		s.progress.Begin(0, "compiling with %d of %s to wider formats", at, console.Count(len(p.steps), "step"))
		f := s.assemble(p.after(at))
		if f == nil { // another reader of the activations stays in a format that no fit has seen
			miss = at
			continue
		}
		measured, err := s.measure(ctx, f)
		if err != nil {
			return err
		}
		if measured <= s.budget {
			meet, s.best, s.cost = at, f, p.cost(at)
		} else {
			miss = at
			misses--
		}
		if e := p.error(at); e > 0 && measured > 0 {
			s.learn(measured / e)
		}
	}
	return nil
}

// measure is 1 − cosine of a candidate: what is expected of other inputs, as far as it was run.
func (s *search) measure(ctx context.Context, f *Fitted) (float64, error) {
	q, err := s.trial.Measure(ctx, f.Plan, s.opt.MinCosine)
	if err != nil {
		return 0, err
	}
	if one := 1 - Least(q); one > s.budget { // it was stopped there, perhaps
		return max(usualMargin*one, 1-LeastExpected(q)), nil
	}
	return 1 - LeastExpected(q), nil
}

// learn updates the factor by one that was measured. Candidates scatter about what is expected, so that all but the first change it
// little.
func (s *search) learn(multiple float64) {
	if s.learnt {
		multiple = min(max(multiple, s.multiple/1.5), s.multiple*1.5)
	}
	s.multiple, s.learnt = multiple, true
}

// margin is the fraction of the budget that a guess may use.
const margin = 0.95

// LeastExpected is what a search compares with its budget. Where all demotions are made, Least is: nothing is left to give.
func LeastExpected(q []Quality) float64 {
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
