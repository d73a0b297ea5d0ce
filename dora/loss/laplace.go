package loss

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// mixture is a part with hypotheses: means and log scales [samples, hypotheses, numbers], and how likely each is, as logits [samples,
// hypotheses, choices]; of one hypothesis without a choice, logits are nil. A choice is what the hypotheses compete for: openpilot's lead has
// one for each of three times.
type mixture struct {
	part
	mean, log, logits *ir.Value
}

func (b *builder) mixture(p part, v *ir.Value) mixture {
	row := 2*p.numbers + p.choices
	v = b.Reshape(v, b.samples, p.hypotheses, row)
	at := func(from, size int) *ir.Value {
		return b.Add("Slice", ir.Attrs{"starts": []int{0, 0, from}, "sizes": []int{b.samples, p.hypotheses, size}}, v)
	}
	m := mixture{part: p, mean: at(0, p.numbers), log: at(p.numbers, p.numbers)}
	if p.choices > 0 {
		m.logits = at(2*p.numbers, p.choices)
	}
	return m
}

// choice is the logits of one choice: [samples, hypotheses].
func (b *builder) choice(m mixture, j int) *ir.Value {
	return b.Reshape(b.Add("Slice", ir.Attrs{"starts": []int{0, 0, j}, "sizes": []int{b.samples, m.hypotheses, 1}}, m.logits), b.samples, m.hypotheses)
}

// Bounds of numerics. σ is exp(log σ) with log σ at most 11, as openpilot's parser has it for f16 (safe_exp of its parse_model_outputs). The
// likelihood's floors are those of openpilot-pipeline's loss. The divergence has one of its own, the scale that the likelihood's floor
// has where there is no error: some parts, as curvatures, are known better than to 10⁻³.
const (
	clip      = 11.0
	tightest  = 1e-3
	exact     = 1e-6
	perMetre  = 1e-3
	runnersUp = 1e-6 // weight of hypotheses that did not win
)

// laplaceNLL is ℓ = e·exp(−max(s, ln(10⁻⁶ + e/1000))) + max(s, ln 10⁻³) of each number, with e = |y − μ| and s = log σ: the negative log
// likelihood of Laplace's distribution, without ln 2, as comma shared it with openpilot-pipeline. s is clipped in the first term alone, so
// that the second one brings it down again.
func (b *builder) laplaceNLL(y, mean, log *ir.Value) *ir.Value {
	e := b.op("Abs", b.op("Sub", y, mean))
	floor := b.op("Log", b.op("Add", b.scale(e, perMetre), b.Number(exact)))
	s := b.op("Max", b.op("Min", log, b.Number(clip)), floor)
	return b.op("Add", b.op("Mul", e, b.op("Exp", b.op("Neg", s))), b.op("Max", log, b.Number(ir.Log(tightest))))
}

// laplaceKL is ln(b_s/b_t) + d/b_s + b_t/b_s·exp(−d/b_t) − 1 of each number, with d = |μ_t − μ_s|: the divergence of Laplace's
// distribution s from t.
func (b *builder) laplaceKL(s, t mixture) *ir.Value {
	bounded := func(log *ir.Value) *ir.Value {
		return b.op("Min", b.op("Max", log, b.Number(ir.Log(exact))), b.Number(clip))
	}
	ls, lt := bounded(s.log), bounded(t.log)
	d := b.op("Abs", b.op("Sub", t.mean, s.mean))
	ratio := b.op("Sub", lt, ls)
	near := b.op("Exp", b.op("Sub", ratio, b.op("Mul", d, b.op("Exp", b.op("Neg", lt)))))
	far := b.op("Mul", d, b.op("Exp", b.op("Neg", ls)))
	return b.op("Sub", b.op("Add", far, b.op("Sub", near, ratio)), b.Number(1))
}

// likelihood is the negative log likelihood of the teacher's means, those of its likeliest hypothesis; the mean over choices.
func (b *builder) likelihood(s, t mixture) *ir.Value {
	if s.logits == nil {
		return b.sum(b.laplaceNLL(t.mean, s.mean, s.log))
	}
	var sum *ir.Value
	for j := range s.choices {
		best := b.first("ArgMax", b.choice(t, j))
		y := b.Add("ReduceSum", ir.Attrs{"axes": []int{1}, "keepdims": true}, b.op("Where", b.Reshape(best, b.samples, s.hypotheses, 1), t.mean, b.Number(0)))
		each := b.Add("ReduceSum", ir.Attrs{"axes": []int{2}}, b.laplaceNLL(y, s.mean, s.log))
		sum = b.plus(sum, b.winner(each, b.choice(s, j)))
	}
	return b.scale(sum, 1/float64(s.choices))
}

// winner is the winner-takes-all loss of hypotheses [samples, hypotheses]: that of the best, k, with a little of the others so that
// none is forgotten, and the cross entropy −ln softmax(logits)ₖ. Of equal ones the first wins.
func (b *builder) winner(each, logits *ir.Value) *ir.Value {
	won := b.first("ArgMin", each)
	zero := b.Number(0)
	best := b.sum(b.op("Where", won, each, zero))
	others := b.sum(b.op("Where", won, zero, each))
	entropy := b.sum(b.op("Where", won, b.Add("LogSoftmax", ir.Attrs{"axis": 1}, logits), zero))
	return b.op("Sub", b.op("Add", best, b.scale(others, runnersUp)), entropy)
}

// first marks in each row of [samples, n] the first of the elements that ArgMin or ArgMax finds.
func (b *builder) first(op string, v *ir.Value) *ir.Value {
	at := b.Add(op, ir.Attrs{"axis": 1, "keepdims": true}, v)
	index := ir.NewArray(ir.T(ir.Int64, 1, v.Type.Shape[1]))
	for i := range index.I {
		index.I[i] = int64(i)
	}
	return b.op("Equal", at, b.Constant(index.Tensor()))
}

// divergence is that of the mixture s from t, hypothesis by hypothesis: the divergence of the choices plus those of the hypotheses, as
// likely as t has them, which no divergence of the mixtures exceeds (Do 2003); the mean over choices.
func (b *builder) divergence(s, t mixture) *ir.Value {
	if s.logits == nil {
		return b.sum(b.laplaceKL(s, t))
	}
	each := b.Add("ReduceSum", ir.Attrs{"axes": []int{2}}, b.laplaceKL(s, t))
	var sum *ir.Value
	for j := range s.choices {
		here, there := b.Add("LogSoftmax", ir.Attrs{"axis": 1}, b.choice(s, j)), b.Add("LogSoftmax", ir.Attrs{"axis": 1}, b.choice(t, j))
		sum = b.plus(sum, b.sum(b.op("Mul", b.op("Exp", there), b.op("Add", b.op("Sub", there, here), each))))
	}
	return b.scale(sum, 1/float64(s.choices))
}

func (b *builder) plus(sum, v *ir.Value) *ir.Value {
	if sum == nil {
		return v
	}
	return b.op("Add", sum, v)
}

// truth is the winner-takes-all loss of what was measured, an input with NaN where it is not known: only what is known counts, and a
// sample of which nothing is known gives 0.
func (b *builder) truth(m Term, student *ir.Value) *ir.Value {
	s := b.mixture(m.part, student)
	y := b.Reshape(b.input(Truth(m.part.name), slices.Concat([]int{b.samples}, m.part.shape)...), b.samples, 1, m.part.numbers)
	known := b.op("Not", b.op("IsNaN", y))
	zero := b.Number(0)
	each := b.laplaceNLL(b.op("Where", known, y, zero), s.mean, s.log)
	each = b.Add("ReduceSum", ir.Attrs{"axes": []int{2}}, b.op("Where", known, each, zero))
	if s.logits == nil {
		return b.sum(each)
	}
	some := b.over("ReduceMax", b.Add("Cast", ir.Attrs{"to": ir.Float32}, known), 1)
	return b.op("Mul", some, b.winner(each, b.choice(s, 0)))
}
