package loss

import (
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/ir"
)

// Term is a part of a loss.
type Term struct {
	Name   string
	Weight float64

	value  string // output or inner value that it compares, as the file calls it
	node   string // of an inner value, that computes it
	length int    // of the value, for one sample
	part          // of the output
	form   form
	spread float64 // of squares; 0: by the teacher's own square
}

// form is what a term computes of a part, for each sample.
type form int

const (
	divergence form = iota // from the teacher's distribution
	likelihood             // of the teacher's means
	truth                  // of what was measured
)

// Terms are a loss: the sum of terms by their weights.
type Terms []Term

// Truth is the input with what was measured of a part, NaN where it is not known: of plan [samples,33,15].
func Truth(name string) string { return "truth:" + name }

// Targets are the outputs and inner values whose teacher's value the loss reads, as the input dora.Target(NAME).
func (t Terms) Targets() []string { return t.values(func(m Term) bool { return m.form != truth }) }

// Inner are those of Targets that are no outputs.
func (t Terms) Inner() []string { return t.values(func(m Term) bool { return m.node != "" }) }

func (t Terms) values(take func(Term) bool) []string {
	set := map[string]bool{}
	for _, m := range t {
		if take(m) {
			set[m.value] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Squared are what terms of squares compare of a teacher's values, by the terms' names: teacher.Variation finds their spreads.
func (t Terms) Squared(values map[string][]float32) map[string][]float32 {
	out := map[string][]float32{}
	for _, m := range t {
		if x := values[m.value]; m.part.kind == squares && len(x) >= m.part.from+m.part.size {
			out[m.Name] = x[m.part.from:][:m.part.size]
		}
	}
	return out
}

// Spread returns the terms with the spreads of what Squared gives, by name: what a squared error is related to, instead of the mean square
// of the sample's value.
func (t Terms) Spread(spreads map[string]float64) Terms {
	out := slices.Clone(t)
	for i := range out {
		if s := spreads[out[i].Name]; s > 0 {
			out[i].spread = s
		}
	}
	return out
}

// Build is a loss for dora.StepOptions: it adds the inputs and, as outputs, the terms, in f32.
func (t Terms) Build(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
	b := &builder{Expansion: x, g: g, outputs: outputs, inputs: map[string]*ir.Value{}}
	b.count(t)
	var sum *ir.Value
	for _, m := range t {
		v := b.mean(b.term(m))
		v = b.named(v, dora.Term(m.Name))
		g.Outputs = append(g.Outputs, v)
		v = b.scale(v, m.Weight)
		if sum != nil {
			v = b.op("Add", sum, v)
		}
		sum = v
	}
	if sum == nil {
		return x.Fail("the loss has no terms")
	}
	return sum
}

// builder builds terms into a graph.
type builder struct {
	*ir.Expansion
	g       *ir.Graph
	outputs map[string]*ir.Value
	inputs  map[string]*ir.Value // that were added
	samples int
}

func (b *builder) op(name string, in ...*ir.Value) *ir.Value { return b.Add(name, nil, in...) }

func (b *builder) scale(v *ir.Value, by float64) *ir.Value { return b.op("Mul", v, b.Number(by)) }

// sum adds up all axes but the first.
func (b *builder) sum(v *ir.Value) *ir.Value { return b.over("ReduceSum", v, 1) }

func (b *builder) over(op string, v *ir.Value, from int) *ir.Value {
	var axes []int
	for i := from; i < v.Type.Rank(); i++ {
		axes = append(axes, i)
	}
	return b.Add(op, ir.Attrs{"axes": axes}, v)
}

// mean is that over samples: [samples] → [].
func (b *builder) mean(v *ir.Value) *ir.Value { return b.over("ReduceMean", v, 0) }

// named gives a value of its own a name.
func (b *builder) named(v *ir.Value, name string) *ir.Value {
	v.Name = name
	return v
}

// count finds the number of samples.
func (b *builder) count(t Terms) {
	b.samples = 1
	for _, m := range t {
		if y := b.computed(m); y != nil && m.length > 0 {
			b.samples = max(1, y.Type.Numel()/m.length)
			return
		}
	}
}

// computed is a term's value in the model that is trained, or nil. Passes and batches give values other names, but nodes keep those of the
// file's: the last one computes what the file's node does.
func (b *builder) computed(m Term) *ir.Value {
	if m.node == "" {
		return b.outputs[m.value]
	}
	for _, n := range slices.Backward(b.g.Nodes) {
		if n.Name == m.node {
			return n.Outputs[0]
		}
	}
	return nil
}

// pair is a term's value, as the model computes it, [samples, numbers], and the teacher's, an input of the whole value's shape.
func (b *builder) pair(m Term) (student, teacher *ir.Value) {
	y := b.computed(m)
	if y == nil {
		return b.Fail("term %s: the model that is trained computes no value %q", m.Name, m.value), &ir.Value{}
	}
	if !y.Type.DType.IsFloat() || y.Type.Numel() != b.samples*m.length {
		return b.Fail("term %s: %q is %v in the model that is trained, want %d floats of %d samples", m.Name, m.value, y.Type, m.length, b.samples), &ir.Value{}
	}
	student = b.cut(m, y)
	if m.form != truth {
		teacher = b.cut(m, b.input(dora.Target(m.value), y.Type.Shape...))
	}
	return student, teacher
}

// input adds an input, or finds it where another term has added it.
func (b *builder) input(name string, shape ...int) *ir.Value {
	if b.inputs[name] == nil {
		b.inputs[name] = b.g.AddInput(name, ir.T(ir.Float32, shape...))
	}
	return b.inputs[name]
}

// cut is the part of a value that a term is about.
func (b *builder) cut(m Term, v *ir.Value) *ir.Value {
	if v.Type.DType != ir.Float32 {
		v = b.Add("Cast", ir.Attrs{"to": ir.Float32}, v)
	}
	v = b.Reshape(v, b.samples, v.Type.Numel()/b.samples)
	if m.part.size == m.length {
		return v
	}
	return b.Add("Slice", ir.Attrs{"starts": []int{0, m.part.from}, "sizes": []int{b.samples, m.part.size}}, v)
}

// term is what a term gives for each sample: [samples].
func (b *builder) term(m Term) *ir.Value {
	student, teacher := b.pair(m)
	if m.form == truth {
		return b.truth(m, student)
	}
	switch m.part.kind {
	case laplace:
		s, t := b.mixture(m.part, student), b.mixture(m.part, teacher)
		if m.form == likelihood {
			return b.likelihood(s, t)
		}
		return b.divergence(s, t)
	case classes:
		return b.classes(m.part, student, teacher)
	case binary:
		return b.binary(student, teacher)
	}
	return b.squares(m, student, teacher)
}

// least keeps a value of zeros from dividing by zero.
const least = 1e-12

// squares is the part of a value's variation that is not explained: the sum of squared errors over that of the teacher's squares, or over what the
// spread says of it.
func (b *builder) squares(m Term, student, teacher *ir.Value) *ir.Value {
	d := b.op("Sub", student, teacher)
	sum := b.sum(b.op("Mul", d, d))
	if m.spread > 0 {
		return b.scale(sum, 1/math.Max(m.spread*float64(student.Type.Numel()/b.samples), least))
	}
	return b.op("Div", sum, b.op("Add", b.sum(b.op("Mul", teacher, teacher)), b.Number(least)))
}
