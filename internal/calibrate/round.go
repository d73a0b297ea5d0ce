package calibrate

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Technique switches what is done about rounding errors; the zero value rounds to nearest.
type Technique struct {
	Feedback  bool // weights are rounded against the second moments of their inputs (GPTQ), then improved one by one
	Recover   bool // weights are first moved to make up for errors of earlier layers
	Bias      bool // the mean error of every channel is subtracted
	BlockOnly bool // of e2m1: block scales by the greatest magnitude, not by a search
}

// grid is how the weights of one output channel may be rounded.
type grid struct {
	f     *minifloat.Format
	steps []float64 // of every weight: block scale times channel scale
}

func (g *grid) round(w float64, k int) float64 {
	return g.f.Round(w/g.steps[k], true) * g.steps[k]
}

// rounder quantises the weights of one site.
type rounder struct {
	site    *passes.Site
	f       *minifloat.Format
	tech    Technique
	w       []float64 // the exact ones
	fake    *ir.Array // what the quantised ones stand for
	codes   []float64
	scales  []float64
	blocks  *ir.Array
	patches *patches
}

func newRounder(s *passes.Site, d ir.DType, tech Technique) *rounder {
	w := s.Weights().Const
	r := &rounder{site: s, f: minifloat.E4M3FN, tech: tech, w: w.Floats(), fake: w.Array(), codes: make([]float64, w.Numel()),
		scales: make([]float64, s.Members*s.N), patches: patchesOf(s)}
	if d == ir.Float4E2M1 {
		r.f = minifloat.E2M1
		r.blocks = ir.NewArray(ir.Type{DType: ir.Float8E4M3FN, Shape: s.BlockShape()})
	}
	return r
}

// fit rounds all weights. exact and hat are what the anchor multiplies in the exact and the quantised graph.
func (r *rounder) fit(exact, hat []*ir.Array) {
	if r.patches == nil {
		for m := range r.site.Members {
			r.group(m, 0, 1, r.site.N, nil, 0)
		}
		return
	}
	rows := r.site.N / r.patches.groups
	for m := range r.site.Members {
		for g := range r.patches.groups {
			damping := r.damping(exact, hat, m, g, rows)
			r.group(m, g*rows, 1, rows, r.patches.measure(exact, hat, m, g), damping)
		}
	}
}

// recoverDamping is how much more cautious the recovery of earlier errors is, which is a regression.
const recoverDamping = 4

// dampings are what is tried to add to the second moments, as a fraction of their mean diagonal. Few inputs say little of
// directions in which they hardly vary; a rounding that relies on those is worse on other inputs than one to nearest.
var dampings = []float64{0.01, 0.1, 0.5, 2, 10}

// leastTrials is the number of inputs from which on some can be spared to try a rounding on.
const leastTrials = 4

// damping chooses by the error on a quarter of the inputs of a rounding fitted to the others, of some output channels.
func (r *rounder) damping(exact, hat []*ir.Array, member, group, rows int) float64 {
	if len(hat) < leastTrials {
		return dampings[2]
	}
	var fitted, tried [2][]*ir.Array
	for i := range hat {
		to := &fitted
		if i%4 == 3 {
			to = &tried
		}
		to[0], to[1] = append(to[0], exact[i]), append(to[1], hat[i])
	}
	train := r.patches.measure(fitted[0], fitted[1], member, group)
	trial := r.patches.measure(tried[0], tried[1], member, group)
	step := max(1, rows/trialRows)
	best, least := 0.0, math.Inf(1)
	for _, d := range dampings {
		r.group(member, group*rows, step, rows, train, d)
		sum := 0.0
		for i := 0; i < rows; i += step {
			sum += r.miss(member, group*rows+i, trial)
		}
		if sum < least {
			best, least = d, sum
		}
	}
	return best
}

// trialRows is about how many output channels a damping is tried on.
const trialRows = 32

// miss is the mean squared error of an output channel by second moments, up to what no weights can change.
func (r *rounder) miss(member, n int, m *moments) float64 {
	e, u := make([]float64, r.site.K), make([]float64, r.site.K)
	for k := range e {
		at := r.site.At(member, n, k)
		e[k] = r.w[at] - r.fake.F[at]
		axpy(r.w[at], m.miss.row(k), u)
	}
	sum := 2 * dot(e, u)
	for k, x := range e {
		sum += float64(x * dot(m.h.row(k), e))
	}
	return sum
}

// group rounds every step-th of the rows of output channels that see the same inputs.
func (r *rounder) group(member, first, step, rows int, m *moments, damping float64) {
	var h, t, rec *square
	var order []int
	weight := make([]float64, r.site.K) // importance of each input
	for k := range weight {
		weight[k] = 1
	}
	if m != nil {
		h = m.h.damp(damping)
		for k := range weight {
			weight[k] = h.at(k, k)
		}
		if r.tech.Recover {
			rec = m.h.damp(damping * recoverDamping).factor()
		}
		if r.tech.Feedback {
			order = h.descending()
			h = h.permuted(order)
			t = h.factor()
		}
	}
	each((rows+step-1)/step, func(i int) {
		n := first + i*step
		w := make([]float64, r.site.K)
		for k := range w {
			w[k] = r.w[r.site.At(member, n, k)]
		}
		if rec != nil {
			b := make([]float64, len(w))
			for k, x := range w {
				axpy(x, m.miss.row(k), b)
			}
			axpy(1, rec.solve(b), w)
		}
		g := r.gridOf(member, n, w, weight)
		q := r.row(w, g, h, t, order)
		for k, x := range q {
			at := r.site.At(member, n, k)
			r.codes[at] = 0
			if g.steps[k] > 0 {
				r.codes[at] = r.f.Round(x/g.steps[k], true)
			}
			r.fake.F[at] = x
		}
	})
}

// row rounds one output channel.
func (r *rounder) row(w []float64, g *grid, h, t *square, order []int) []float64 {
	q := make([]float64, len(w))
	if t == nil {
		for k, x := range w {
			q[k] = g.round(x, k)
		}
		return q
	}
	// Successive rounding: each weight makes up for what the errors of those before it did to the output.
	e := make([]float64, len(w))
	for j, k := range order {
		row := t.row(j)
		carry := dot(row[:j], e[:j]) / row[j]
		q[k] = g.round(w[k]+carry, k)
		e[j] = w[k] - q[k]
	}
	r.improve(w, q, e, g, h, order)
	return q
}

// improve moves single weights to another point of their grid while that lowers eᵀ·H·e.
func (r *rounder) improve(w, q, e []float64, g *grid, h *square, order []int) {
	slope := make([]float64, len(w))
	for j := range e {
		slope[j] = dot(h.row(j), e)
	}
	for range 4 {
		moved := false
		for j, k := range order {
			d := h.at(j, j)
			to := g.round(q[k]+slope[j]/d, k)
			step := q[k] - to // change of e
			if step == 0 || float64(2*step*slope[j])+float64(step*step*d) >= -1e-12*d*w[k]*w[k] {
				continue
			}
			q[k] = to
			e[j] += step
			axpy(step, h.row(j), slope)
			moved = true
		}
		if !moved {
			return
		}
	}
}

// gridOf chooses the scales of one output channel.
func (r *rounder) gridOf(member, n int, w, weight []float64) *grid {
	g := &grid{f: r.f, steps: make([]float64, len(w))}
	at := member*r.site.N + n
	if r.blocks == nil {
		r.scales[at] = r.best(w, weight, nil, float64(float32(greatest(w, nil)/r.f.Max())), channelSteps)
		if r.scales[at] == 0 {
			r.scales[at] = 1
		}
		for k := range g.steps {
			g.steps[k] = r.scales[at]
		}
		return g
	}
	// The channel's scale makes the greatest block scale the greatest e4m3 number.
	e4m3 := minifloat.E4M3FN
	r.scales[at] = float64(float32(greatest(w, nil) / r.f.Max() / e4m3.Max() * 1.25))
	if r.scales[at] == 0 {
		r.scales[at] = 1
	}
	members := make([][]int, r.site.Blocks())
	for k := range w {
		b := r.site.Block(k)
		members[b] = append(members[b], k)
	}
	for b, ks := range members {
		top := greatest(w, ks) / r.f.Max()
		near := e4m3.Round(top/r.scales[at], true)
		if !r.tech.BlockOnly && near > 0 {
			near = r.bestBlock(w, weight, ks, near, r.scales[at])
		}
		r.blocks.F[r.site.BlockAt(member, n, b)] = near
		for _, k := range ks {
			g.steps[k] = near * r.scales[at]
		}
	}
	for k, s := range g.steps {
		if s == 0 { // a block of zeros
			g.steps[k] = 1e-30
		}
	}
	return g
}

// channelSteps are the factors tried on the scale of a channel of e4m3 weights: a floating-point grid looks the same an
// octave lower, so what matters is where in an octave the weights lie, and how much of them saturates.
var channelSteps = func() []float64 {
	var out []float64
	for j := range 13 {
		out = append(out, math.Exp2(-float64(j)/8))
	}
	return out
}()

func (r *rounder) best(w, weight []float64, ks []int, scale float64, factors []float64) float64 {
	best, least := scale, math.Inf(1)
	for _, f := range factors {
		s := float64(float32(scale * f))
		if s == 0 {
			continue
		}
		if e := r.error(w, weight, ks, s); e < least {
			best, least = s, e
		}
	}
	return best
}

// bestBlock tries the e4m3 numbers near the scale at which the greatest weight is just held.
func (r *rounder) bestBlock(w, weight []float64, ks []int, near, channel float64) float64 {
	e4m3 := minifloat.E4M3FN
	code := int(e4m3.Encode(near, true))
	best, least := near, math.Inf(1)
	for c := max(1, code-6); c <= min(0x7e, code+4); c++ {
		s := e4m3.Decode(uint32(c))
		if e := r.error(w, weight, ks, s*channel); e < least {
			best, least = s, e
		}
	}
	return best
}

func (r *rounder) error(w, weight []float64, ks []int, step float64) float64 {
	sum := 0.0
	one := func(k int) {
		d := r.f.Round(w[k]/step, true)*step - w[k]
		sum += float64(d * d * weight[k])
	}
	if ks == nil {
		for k := range w {
			one(k)
		}
		return sum
	}
	for _, k := range ks {
		one(k)
	}
	return sum
}

func greatest(w []float64, ks []int) float64 {
	top := 0.0
	if ks == nil {
		for _, x := range w {
			top = max(top, math.Abs(x))
		}
	}
	for _, k := range ks {
		top = max(top, math.Abs(w[k]))
	}
	return top
}

// layer is the result as the pass takes it.
func (r *rounder) layer() passes.Layer {
	d := ir.Float8E4M3FN
	if r.blocks != nil {
		d = ir.Float4E2M1
	}
	l := passes.Layer{Scales: slices.Clone(r.scales), Weights: ir.FromFloats(ir.Type{DType: d, Shape: slices.Clone(r.site.Weights().Type.Shape)}, r.codes)}
	if r.blocks != nil {
		l.Blocks = r.blocks.Tensor()
	}
	return l
}
