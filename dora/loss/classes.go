package loss

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// rarest is the least probability that is told from 0, where a model gives probabilities instead of logits: below it f16 has none.
var rarest = math.Ldexp(1, -24)

// classes is the divergence of the softmax of rows from the teacher's: the cross entropy, less the teacher's own, in nats.
func (b *builder) classes(p part, student, teacher *ir.Value) *ir.Value {
	logs := func(v *ir.Value) *ir.Value {
		v = b.Reshape(v, b.samples, p.size/p.classes, p.classes)
		if p.softmaxed {
			v = b.op("Log", b.op("Max", v, b.Number(rarest)))
		}
		return b.Add("LogSoftmax", ir.Attrs{"axis": 2}, v)
	}
	s, t := logs(student), logs(teacher)
	return b.sum(b.op("Mul", b.op("Exp", t), b.op("Sub", t, s)))
}

// binary is the divergence of the sigmoid of each number from the teacher's: the binary cross entropy, less the teacher's own, in
// nats. It is p·(t − s) + softplus(s) − softplus(t), where p is the teacher's probability.
func (b *builder) binary(student, teacher *ir.Value) *ir.Value {
	softplus := func(v *ir.Value) *ir.Value { // max(v, 0) + ln(1 + exp(−|v|))
		small := b.op("Log", b.op("Add", b.op("Exp", b.op("Neg", b.op("Abs", v))), b.Number(1)))
		return b.op("Add", b.op("Relu", v), small)
	}
	p := b.op("Sigmoid", teacher)
	linear := b.op("Mul", p, b.op("Sub", teacher, student))
	return b.sum(b.op("Add", linear, b.op("Sub", softplus(student), softplus(teacher))))
}
