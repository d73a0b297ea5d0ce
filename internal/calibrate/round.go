package calibrate

import (
	"context"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Technique selects how rounding errors are reduced; the zero value rounds to nearest. Of driver monitoring's NVFP4
// layers recovery lowers the error on pictures by 7 % and the search of block scales by 6 %, Feedback by 31 %
// (2026-11-22).
type Technique struct {
	Feedback  bool // round weights against the second moments of their inputs (GPTQ), then improve them one by one
	Recover   bool // first move weights so that they compensate errors of earlier layers
	Bias      bool // subtract the mean error of every channel
	BlockOnly bool // take scales of blocks from the greatest magnitude, without a search

	fault fault // nil but in tests
}

// grid is how the weights of one output channel may be rounded.
type grid struct {
	f       precision.Operand
	scale   float64   // of the channel
	blocks  []float64 // scales
	steps   []float64 // of every weight: block scale times channel scale
	inverse []float64 // of the steps
}

func (g *grid) round(w float64, k int) float64 {
	if g.f.HiLo {
		return float64(g.twice(w, k) * g.steps[k])
	}
	return float64(g.f.Saturated(w*g.inverse[k]) * g.steps[k])
}

// twice is the number in two terms that stands for a weight. That of an f16 is one too, so its sum is stored as such.
func (g *grid) twice(w float64, k int) float64 {
	return g.f.Value(minifloat.Float16.Saturated(w * g.inverse[k]))
}

// rounder quantises the weights of one site.
type rounder struct {
	site    *passes.Site
	f       precision.Operand
	tech    Technique
	w       []float64 // the exact ones
	fake    *ir.Array // the values that the quantised ones represent
	codes   []float64
	scales  []float64
	blocks  *ir.Array
	members [][]int // of each block of an output channel: its weights
	patches *patches
}

func newRounder(s *passes.Site, f precision.Operand, tech Technique) *rounder {
	w := s.Weights().Const
	r := &rounder{site: s, f: f, tech: tech, w: w.Floats(), fake: w.Array(), codes: make([]float64, w.Numel()),
		scales: make([]float64, s.Members*s.N), patches: patchesOf(s)}
	if f.Blocks {
		r.blocks, r.members = ir.NewArray(ir.Type{DType: ir.BlockScale, Shape: s.BlockShape()}), make([][]int, s.Blocks())
		for k := range s.K {
			b := s.Block(k)
			r.members[b] = append(r.members[b], k)
		}
	}
	return r
}

// fit rounds all weights; the caller checks whether the context has ended in between. exact and hat are what the anchor
// multiplies in the exact and the quantised graph; without exact, no errors of earlier layers are recovered. held says which
// inputs are held out.
func (r *rounder) fit(ctx context.Context, exact, hat []*ir.Tensor, held []bool) {
	if r.patches == nil {
		for m := range r.site.Members {
			r.round(ctx, rows{member: m, step: 1, count: r.site.N}, nil, 0, 1)
		}
		return
	}
	damping := -1 // one a layer: the first member's
	if r.patches.segments != nil {
		damping = vectorDamping
	}
	r.tech.Recover = r.tech.Recover && r.patches.segments == nil && exact != nil
	for m := range r.site.Members {
		for g := range r.patches.groups {
			fitted, tried := r.patches.measure(ctx, exact, hat, held, m, g, damping < 0)
			of := r.patches.channels(m, g)
			o := newObjective(fitted)
			if damping < 0 {
				damping = r.damping(ctx, of, o, tried)
			}
			if exact != nil {
				spoil(r.tech.fault, recovery, fitted.miss.a)
			}
			r.round(ctx, of, o, damping, r.starts(of.count))
			o.leave()
			tried.leave()
		}
	}
}

// rows are output channels that see the same inputs: every step-th from the first on.
type rows struct{ member, first, step, count int }

func (r rows) at(i int) int { return r.first + i*r.step }

// dampings are the fractions of the mean diagonal that are tried as an addition to the second moments. A few inputs
// tell little about directions in which they hardly vary; a rounding that relies on those does worse on other inputs
// than rounding to nearest. Recovery of earlier errors is a regression and uses one step more. Rounding the layers of
// vectors to nearest instead raises driver monitoring's relative L2 by 9 % in fp8 (9 fits, 2026-11-23).
var dampings = []float64{0.016, 0.08, 0.4, 2, 10, 50}

const (
	middleDamping = 2 // where trials start, and the choice where none are possible
	vectorDamping = 3 // of layers that multiply one vector an input: too few to try, or to recover errors by
	trialRows     = 32
)

// damping chooses by the error, on held-out inputs, of a rounding of some output channels fitted to the others: it moves
// away from the middle while the error falls.
func (r *rounder) damping(ctx context.Context, all rows, o *objective, tried *moments) int {
	if tried == nil || !r.tech.Feedback && !r.tech.Recover {
		return middleDamping
	}
	some := all
	some.step = max(1, all.count/trialRows)
	some.count = (all.count + some.step - 1) / some.step
	try := func(at int) float64 {
		if at < 0 || at >= len(dampings)-1 || ctx.Err() != nil {
			return math.Inf(1)
		}
		r.round(ctx, some, o, at, 1)
		return r.miss(ctx, some, tried)
	}
	best, least := middleDamping, try(middleDamping)
	for _, step := range []int{-1, 1} {
		for x := try(best + step); x < least; x = try(best + step) {
			best, least = best+step, x
		}
		if best != middleDamping {
			break
		}
	}
	return best
}

// load copies weights of output channels.
func (r *rounder) load(from []float64, of rows, lo, hi int) *matrix {
	w := newMatrix(hi-lo, r.site.K)
	for i := range w.rows {
		row := w.row(i)
		for k := range row {
			row[k] = float32(from[r.site.At(of.member, of.at(lo+i), k)])
		}
	}
	return w
}

// miss is the mean squared error by second moments, summed over output channels, less a constant that no weights change.
func (r *rounder) miss(ctx context.Context, of rows, m *moments) float64 {
	w, q := r.load(r.w, of, 0, of.count), r.load(r.fake.F, of, 0, of.count)
	u, he := newMatrix(w.rows, w.cols), newMatrix(w.rows, w.cols)
	e := q
	for i, x := range w.a {
		e.a[i] = x - q.a[i]
	}
	batches(ctx, w.cols, func(lo, hi int) {
		if m.miss != nil {
			addDots(u, lo, 1, w, 0, w.rows, m.miss, lo, hi, 0, w.cols)
		}
		addDots(he, lo, 1, e, 0, w.rows, m.h, lo, hi, 0, w.cols)
	})
	return float64(2*dot(e.a, u.a)) + dot(e.a, he.a)
}

// objective is what the roundings of one group minimise.
type objective struct {
	*moments
	order   []int   // of the inputs, by importance
	ordered *matrix // h in this order
	factors map[int]*factored
}

func newObjective(m *moments) *objective {
	order := m.h.descending()
	return &objective{m, order, m.h.permuted(order, m.pool), map[int]*factored{}}
}

// leave gives all matrices back.
func (o *objective) leave() {
	o.moments.leave()
	o.pool.giveMatrices(o.ordered)
	for _, f := range o.factors {
		f.leave(o.pool)
	}
}

// added is what a damping adds to the diagonal.
func (o *objective) added(damping int) float64 {
	return float64(dampings[damping] * o.h.meanDiagonal())
}

func (o *objective) factor(ctx context.Context, damping int) *factored {
	if o.factors[damping] == nil {
		o.factors[damping] = o.ordered.factor(ctx, o.added(damping), o.pool)
	}
	return o.factors[damping]
}

// Bounds of the scales of a channel from which feedback starts, of which the one with the least error is kept. That
// costs as many times as much, so layers that take long have one. Eight instead of one lower the error of NVFP4
// layers by 4 % (2026-11-22); six instead of 32 in fp8 raise that of outputs by 4 % (9 fits, 2026-11-23).
const (
	mostStarts  = 32
	blockStarts = 6       // of blocks, whose scales are searched besides
	startsWork  = 1 << 28 // multiply-adds
)

// starts is the number of scales of a channel that are tried: where in an octave its weights lie, or scales of its blocks.
func (r *rounder) starts(channels int) int {
	if !r.tech.Feedback {
		return 1
	}
	most, work := mostStarts, startsWork/4 // fewer scales hang on it than on one of blocks
	if r.blocks != nil {
		most, work = blockStarts, startsWork
	}
	return min(most, max(1, work/(channels*r.site.K*r.site.K)))
}

// round rounds the weights of some output channels, to nearest without an objective.
func (r *rounder) round(ctx context.Context, of rows, o *objective, damping, starts int) {
	weight := make([]float64, r.site.K) // importance of each input
	for k := range weight {
		weight[k] = 1
		if o != nil {
			weight[k] = o.h.at(k, k) + o.added(damping)
		}
	}
	var f, recovery *factored
	if o != nil && r.tech.Feedback && !r.f.HiLo { // to nearest is near enough
		f = o.factor(ctx, damping)
	}
	if o != nil && r.tech.Recover {
		recovery = o.factor(ctx, damping+1)
	}
	batches(ctx, of.count, func(lo, hi int) {
		w := r.load(r.w, of, lo, hi)
		if recovery != nil {
			recovery.recover(o, w)
		}
		grids, q := r.grids(w, weight, 1), (*matrix)(nil)
		if f == nil {
			q = nearest(w, grids)
		} else {
			t, least := r.tech.fault.triangle(f.t), []float64(nil)
			q, least = feedback(ctx, w, grids, o, t, o.added(damping))
			for j := 1; j < starts; j++ {
				others := r.grids(w, weight, 1/(1+float64(j)/float64(starts)))
				p, misses := feedback(ctx, w, others, o, t, o.added(damping))
				for i, miss := range misses {
					if miss < least[i] {
						grids[i], least[i] = others[i], miss
						copy(q.row(i), p.row(i))
					}
				}
			}
		}
		for i, g := range grids {
			n := of.at(lo + i)
			r.scales[of.member*r.site.N+n] = g.scale
			for b, s := range g.blocks {
				r.blocks.F[r.site.BlockAt(of.member, n, b)] = s
			}
			for k, x := range q.row(i) {
				at := r.site.At(of.member, n, k)
				r.codes[at] = 0
				switch {
				case g.steps[k] > 0 && r.f.HiLo:
					r.codes[at] = g.twice(float64(x), k)
				case g.steps[k] > 0:
					r.codes[at] = r.f.Saturated(float64(x) * g.inverse[k])
				}
				r.fake.F[at] = float64(r.codes[at] * g.steps[k])
			}
		}
	})
}

// recover moves weights so that they compensate the errors of their inputs: by the solution of H·Δ = E[x̂·(x−x̂)ᵀ]·w.
func (f *factored) recover(o *objective, w *matrix) {
	b, ordered := newMatrix(w.rows, w.cols), newMatrix(w.rows, w.cols)
	addDots(b, 0, 1, w, 0, w.rows, o.miss, 0, w.cols, 0, w.cols)
	for i := range w.rows {
		for j, k := range o.order {
			ordered.set(i, j, b.at(i, k))
		}
	}
	f.solve(ordered, 0, w.rows)
	for i := range w.rows {
		for j, k := range o.order {
			w.set(i, k, w.at(i, k)+ordered.at(i, j))
		}
	}
}

func nearest(w *matrix, grids []*grid) *matrix {
	q := newMatrix(w.rows, w.cols)
	for i, g := range grids {
		for k, x := range w.row(i) {
			q.set(i, k, g.round(float64(x), k))
		}
	}
	return q
}

// feedback rounds one weight after the other: each compensates what the earlier ones' errors did to the output (Frantar et
// al., GPTQ, arXiv 2210.17323, as nearest-plane rounding on the factor of the damped second moments). It also returns the
// error of every channel by these moments.
func feedback(ctx context.Context, w *matrix, grids []*grid, o *objective, t *matrix, added float64) (*matrix, []float64) {
	inverse := make([]float64, w.cols) // of the factor's diagonal
	for j := range inverse {
		inverse[j] = 1 / t.at(j, j)
	}
	q, e, carry := newMatrix(w.rows, w.cols), newMatrix(w.rows, w.cols), newMatrix(w.rows, w.cols)
	for p := 0; p < w.cols && ctx.Err() == nil; p += panel {
		end := min(p+panel, w.cols)
		addDots(carry, p, 1, e, 0, w.rows, t, p, end, 0, p)
		// Two rows at a time: a weight waits for the one before it, but not for the other row's.
		for i := 0; i < w.rows; i += 2 {
			two := [2]int{i, min(i+1, w.rows-1)}
			for j := p; j < end; j++ {
				k, row := o.order[j], t.row(j)[p:j]
				for _, i := range two[:min(2, w.rows-i)] {
					wrong := e.row(i)
					x := float64((carry.at(i, j) + dot(row, wrong[p:j])) * inverse[j])
					to := grids[i].round(w.at(i, k)+x, k)
					q.set(i, k, to)
					wrong[j] = float32(w.at(i, k) - to)
				}
			}
		}
	}
	slope := newMatrix(w.rows, w.cols)
	addDots(slope, 0, 1, e, 0, w.rows, o.ordered, 0, w.cols, 0, w.cols)
	for j := range inverse {
		inverse[j] = 1 / (o.ordered.at(j, j) + added)
	}
	for i, g := range grids {
		blas.Axpy(float32(added), e.row(i), slope.row(i))
		improve(w.row(i), q.row(i), slope.row(i), g, o, added, inverse)
	}
	misses := make([]float64, w.rows)
	for i := range misses {
		for j, k := range o.order {
			misses[i] += float64((w.at(i, k) - q.at(i, k)) * slope.at(i, j))
		}
	}
	return q, misses
}

// improve moves single weights to other points of their grid while that lowers eᵀ·H·e, whose slope is given in the
// objective's order; inverse are the inverses of H's diagonal.
func improve(w, q, slope []float32, g *grid, o *objective, added float64, inverse []float64) {
	near := math.Ldexp(1, -int(g.f.Mantissa+2)) // no neighbour is nearer than twice this fraction of a number
	for range 4 {
		moved := false
		for j, k := range o.order {
			s, was := float64(slope[j]), float64(q[k])
			by := float64(s * inverse[j])
			if math.Abs(by) < near*math.Abs(was) {
				continue
			}
			to := g.round(was+by, k)
			step := float64(float32(was - to)) // change of e
			if step == 0 {
				continue
			}
			d := o.ordered.at(j, j) + added
			if float64(2*step*s)+float64(step*step*d) >= -1e-7*d*float64(w[k]*w[k]) { // less is lost in rounding
				continue
			}
			q[k] = float32(to)
			blas.Axpy(float32(step), o.ordered.row(j), slope)
			slope[j] += float32(step * added)
			moved = true
		}
		if !moved {
			return
		}
	}
}

// grids chooses the scales of output channels, or takes those at which their greatest weights, or scales of blocks, just fit, smaller by
// a factor.
func (r *rounder) grids(w *matrix, weight []float64, by float64) []*grid {
	out := make([]*grid, w.rows)
	for i := range out {
		out[i] = r.gridOf(wide(w.row(i)), weight, by)
	}
	return out
}

// gridOf chooses the scales of one output channel.
func (r *rounder) gridOf(w, weight []float64, by float64) *grid {
	g := &grid{f: r.f, steps: make([]float64, len(w)), inverse: make([]float64, len(w))}
	if r.blocks == nil {
		top := float64(float32(greatest(w) / r.f.Max()))
		if g.scale = float64(float32(top * by)); by == 1 && !r.f.HiLo {
			g.scale = r.best(w, weight, top, channelScales(top), 1)
		}
		if g.scale == 0 {
			g.scale = 1
		}
		for k := range g.steps {
			g.steps[k] = g.scale
		}
	} else {
		r.blockGrid(g, w, weight, by)
	}
	for k, s := range g.steps {
		g.inverse[k] = 1 / s
	}
	return g
}

// blockGrid chooses the scales of one output channel's blocks.
func (r *rounder) blockGrid(g *grid, w, weight []float64, by float64) {
	// The channel's scale makes the greatest scale of a block the greatest number of its format.
	g.scale, g.blocks = float64(float32(greatest(w)/r.f.Max()/blockScale.Max()*1.25*by)), make([]float64, len(r.members))
	if g.scale == 0 {
		g.scale = 1
	}
	var some, weights [ir.BlockSize]float64
	for b, ks := range r.members {
		for i, k := range ks {
			some[i], weights[i] = w[k], weight[k]
		}
		part := some[:len(ks)]
		top := greatest(part) / r.f.Max()
		near := blockScale.Round(top/g.scale, true)
		if !r.tech.BlockOnly && near > 0 {
			near = r.best(part, weights[:len(ks)], near, nearCodes(near), g.scale)
		}
		near = r.tech.fault.of(blocks, near)
		g.blocks[b] = near
		for _, k := range ks {
			if g.steps[k] = near * g.scale; g.steps[k] == 0 { // a block of zeros
				g.steps[k] = 1e-30
			}
		}
	}
}

// channelScales are what is tried as the scale of a channel of weights without blocks: a floating-point grid looks the same
// an octave lower, so what matters is where in an octave the weights lie, and how much of them saturates.
func channelScales(top float64) (out []float64) {
	for j := range 13 {
		if s := float64(float32(top * eighth(j))); s != 0 {
			out = append(out, s)
		}
	}
	return out
}

// eighth is 2^(-j/8), j ≥ 0: the library's Exp2 is not the same on every machine.
func eighth(j int) float64 {
	octave := [8]float64{0x1p+00, 0x1.d5818dcfba487p-01, 0x1.ae89f995ad3aep-01, 0x1.8ace5422aa0dcp-01, 0x1.6a09e667f3bccp-01, 0x1.4bfdad5362a27p-01, 0x1.306fe0a31b715p-01, 0x1.172b83c7d517bp-01}
	return math.Ldexp(octave[j%8], -(j / 8))
}

// blockScale is the format of scales of blocks.
var blockScale = ir.BlockScale.Format()

// nearCodes are the scales of a block near the one at which its greatest weight just fits.
func nearCodes(scale float64) (out []float64) {
	code, top := int(blockScale.Encode(scale, true)), int(blockScale.Encode(blockScale.Max(), true))
	for c := max(1, code-6); c <= min(top, code+4); c++ {
		out = append(out, blockScale.Decode(uint32(c)))
	}
	return out
}

// best is the scale that, times a factor, rounds some weights with the least error; start where there is none to try.
func (r *rounder) best(w, weight []float64, start float64, scales []float64, factor float64) float64 {
	best, least := start, math.Inf(1)
	for _, s := range scales {
		if e := r.error(w, weight, s*factor, least); e < least {
			best, least = s, e
		}
	}
	return best
}

// error is the weighted squared error of rounding with a step, or some number from limit on if it is not less.
func (r *rounder) error(w, weight []float64, step, limit float64) float64 {
	f, inverse, sum := r.f.Format, 1/step, 0.0
	weight = weight[:len(w)]
	for k, x := range w {
		d := float64(f.Saturated(x*inverse)*step) - x
		if sum += float64(d * d * weight[k]); sum >= limit {
			break
		}
	}
	return sum
}

func greatest(w []float64) float64 {
	top := 0.0
	for _, x := range w {
		top = max(top, math.Abs(x))
	}
	return top
}

// tensor is what the rounded weights represent, as f32.
func (r *rounder) tensor() *ir.Tensor { return ir.FromFloats(r.site.Weights().Type, r.fake.F) }

// layer is the result in the form that the pass takes.
func (r *rounder) layer() passes.Layer {
	l := passes.Layer{Scales: slices.Clone(r.scales), Split: r.f.HiLo, Weights: ir.FromFloats(ir.Type{DType: codeType(r.f), Shape: slices.Clone(r.site.Weights().Type.Shape)}, r.codes)}
	if r.blocks != nil {
		l.Blocks = r.blocks.Tensor()
	}
	return l
}
