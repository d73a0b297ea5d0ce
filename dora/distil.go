package dora

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Target is the input that a loss compares a value with.
func Target(name string) string { return "target:" + name }

// Match is a value of a model that distillation holds to the teacher's.
type Match struct {
	Name string
	// Spread is the mean square by which an element of the teacher's value differs from its mean over inputs. Relative to it, a
	// squared error is the part of the variation that is not explained.
	Spread float64
}

// Distil is the loss of distillation (Hinton and others 2015) from a teacher of the same layout: the parts of the variation
// that the outputs and, if there are any, inner values leave unexplained (Romero and others 2015), the mean over the
// outputs plus weight times the mean over the inner values. The teacher's are inputs called target:NAME. If forced, what
// follows an inner value reads the teacher's (Williams and Zipser 1989), so that each layer learns apart from the errors of
// those in front of it, and its gradients from those behind it.
func Distil(outputs, inner []Match, weight float64, forced bool) func(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
	return func(x *ir.Expansion, g *ir.Graph, named map[string]*ir.Value) *ir.Value {
		mean := func(list []Match, value func(string) *ir.Value) *ir.Value {
			var sum *ir.Value
			for _, m := range list {
				y := value(m.Name)
				if y == nil {
					return x.Fail("the model has no value %q to compare with the teacher's", m.Name)
				}
				part := x.Add("Mul", nil, meanSquare(x, g, m.Name, y), x.Like(y, 1/(max(m.Spread, least)*float64(len(list)))))
				if sum != nil {
					part = x.Add("Add", nil, sum, part)
				}
				sum = part
			}
			return sum
		}
		loss := mean(outputs, func(name string) *ir.Value { return named[name] })
		if len(inner) == 0 {
			return loss
		}
		more := mean(inner, func(name string) *ir.Value { return innerValue(g, name) })
		more = x.Add("Mul", nil, more, x.Like(more, weight))
		if forced {
			force(g, inner)
		}
		return x.Add("Add", nil, loss, more)
	}
}

// least keeps a value that does not vary from dividing by zero.
const least = 1e-12

// meanSquare is the mean squared difference of a value from an input of its type.
func meanSquare(x *ir.Expansion, g *ir.Graph, name string, y *ir.Value) *ir.Value {
	d := x.Add("Sub", nil, y, g.AddInput(Target(name), y.Type))
	axes := []int{}
	for i := range y.Type.Shape {
		axes = append(axes, i)
	}
	return x.Add("ReduceMean", ir.Attrs{"axes": axes}, x.Add("Mul", nil, d, d))
}

// innerValue is the value that a node of the graph computes.
func innerValue(g *ir.Graph, name string) *ir.Value {
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v.Name == name {
				return v
			}
		}
	}
	return nil
}

// force lets the nodes of a graph read the teacher's values instead of its own.
func force(g *ir.Graph, values []Match) {
	by := map[*ir.Value]*ir.Value{}
	for _, m := range values {
		i := slices.IndexFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == Target(m.Name) })
		by[innerValue(g, m.Name)] = g.Inputs[i]
	}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if to := by[v]; to != nil {
				n.Inputs[i] = to
			}
		}
	}
}

// Inner names the values that the layers give: of each weight that takes an adapter, its product with what normalises it and
// adds a bias, in the order of the graph, those with at most so many numbers.
func (m *Model) Inner(most int) ([]string, error) {
	g, err := widened(m.graph)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	uses := g.Uses()
	var names []string
	for _, n := range g.Nodes {
		if n.Op.Name != "Conv" && n.Op.Name != "MatMul" || !n.Inputs[1].IsConst() {
			continue
		}
		v := n.Outputs[0]
		for len(uses[v]) == 1 {
			next := uses[v][0].Node
			if next == nil || next.Op.Name != "BatchNorm" && next.Op.Name != "Add" || !slices.ContainsFunc(next.Inputs, (*ir.Value).IsConst) {
				break
			}
			v = next.Outputs[0]
		}
		if v.Type.Numel() <= most && !slices.Contains(names, v.Name) {
			names = append(names, v.Name)
		}
	}
	return names, nil
}

// Teacher computes what a model that learns from it is held to.
type Teacher struct {
	Outputs, Inner []Match

	session *runtime.Session
}

// NewTeacher compiles a model, in fp32, so that it gives the named inner values beside its outputs, and loads it. Options are
// the targets of PTX; the default target if there are none.
func NewTeacher(ctx context.Context, m *Model, inner []string, d hal.Device, targets ...string) (*Teacher, error) {
	if len(targets) == 0 {
		targets = []string{target.Default().Name}
	}
	t := &Teacher{}
	g, err := widened(m.graph)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	err = g.Build("teacher", func(x *ir.Expansion) {
		var outputs []*ir.Value
		give := func(to *[]Match, name string, v *ir.Value) {
			v = x.Add("Cast", ir.Attrs{"to": ir.Float32}, v)
			v.Name = Target(name)
			outputs, *to = append(outputs, v), append(*to, Match{Name: name, Spread: 1})
		}
		for _, v := range g.Outputs {
			if v.Type.DType.IsFloat() {
				give(&t.Outputs, v.Name, v)
			}
		}
		for _, name := range inner {
			v := innerValue(g, name)
			if v == nil {
				x.Fail("it computes no value %q", name)
				return
			}
			give(&t.Inner, name, v)
		}
		g.Outputs = outputs
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	r, err := compile.Graph(ctx, m.File.Path, g, compile.Options{Precision: precision.FP32, Targets: targets})
	if err != nil {
		return nil, err
	}
	t.session, err = runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
	return t, err
}

// Close frees what the teacher runs with.
func (t *Teacher) Close() error { return t.session.Close() }

// Run computes the teacher's values for inputs by name, as bytes of the inputs' types.
func (t *Teacher) Run(ctx context.Context, inputs map[string][]byte) error {
	for name, data := range inputs {
		if err := t.session.Set(name, data); err != nil {
			return err
		}
	}
	return t.session.Run(ctx)
}

// Value is an output or inner value of the last run.
func (t *Teacher) Value(name string) []float32 {
	return runtime.View[float32](t.session.Output(Target(name)))
}

// Values are copies of the outputs and inner values of the last run, by the step's inputs that they are for.
func (t *Teacher) Values() map[string][]byte {
	out := map[string][]byte{}
	for _, m := range slices.Concat(t.Outputs, t.Inner) {
		out[Target(m.Name)] = slices.Clone(t.session.Output(Target(m.Name)))
	}
	return out
}

// Measure runs the teacher on inputs and takes the spread of its values from them.
func (t *Teacher) Measure(ctx context.Context, inputs []map[string][]byte) error {
	lists := []*[]Match{&t.Outputs, &t.Inner}
	type moments struct{ mean, squares []float64 }
	of := map[string]*moments{}
	for k, in := range inputs {
		if err := t.Run(ctx, in); err != nil {
			return err
		}
		for _, list := range lists {
			for _, m := range *list {
				x := t.Value(m.Name)
				a := of[m.Name]
				if a == nil {
					a = &moments{make([]float64, len(x)), make([]float64, len(x))}
					of[m.Name] = a
				}
				for i, v := range x { // Welford 1962
					d := float64(v) - a.mean[i]
					a.mean[i] += d / float64(k+1)
					a.squares[i] += float64(d * (float64(v) - a.mean[i]))
				}
			}
		}
	}
	for _, list := range lists {
		for i := range *list {
			m := &(*list)[i]
			sum := 0.0
			for _, s := range of[m.Name].squares {
				sum += s
			}
			m.Spread = sum / float64(len(inputs)*len(of[m.Name].squares))
		}
	}
	return nil
}
