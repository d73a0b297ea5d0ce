package loss

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
)

// kind is what the numbers of a part mean.
type kind int

const (
	squares kind = iota // numbers
	laplace             // means and log scales, with or without hypotheses
	classes             // logits of a softmax
	binary              // logits of sigmoids
)

// part is a named part of a model's output.
type part struct {
	name       string
	from, size int // in the output of one sample
	kind       kind

	hypotheses, numbers, choices int   // of laplace
	shape                        []int // of the numbers, where something is measured of them
	classes                      int   // in a row
	softmaxed                    bool  // the graph has taken the softmax
}

const features = "features" // the term of hidden_state

// partOf says what a slice of output_slices is.
func partOf(s onnx.Slice) (part, error) {
	p := part{name: s.Name, from: s.Start, size: s.End - s.Start}
	forms := generation.Forms(generation.Driving, p.name)
	if len(forms) == 0 {
		return p, nil
	}
	switch forms[0].Kind {
	case generation.Distribution:
		return p, p.distribution(forms)
	case generation.Sigmoids:
		p.kind = binary
	case generation.Softmax:
		p.kind, p.classes = classes, forms[0].Shape[len(forms[0].Shape)-1]
		if p.size == 0 || p.size%p.classes != 0 {
			return p, p.wrong(fmt.Sprintf("a multiple of %d", p.classes))
		}
	}
	return p, nil
}

// distribution takes the form that the size fits: of one hypothesis, or of any number of them.
func (p *part) distribution(forms []generation.Slice) error {
	p.kind = laplace
	if p.name == generation.Plan {
		p.shape = forms[0].Shape
	}
	want := "as many log scales as means"
	for _, f := range forms {
		row := 2*f.Numel() + f.Weights
		switch {
		case p.size == 0:
		case f.Hypotheses == 0 && p.size == row:
			p.hypotheses, p.numbers, p.choices = 1, f.Numel(), 0
			return nil
		case f.Hypotheses > 0 && p.size%row == 0:
			p.hypotheses, p.numbers, p.choices = p.size/row, f.Numel(), f.Weights
			return nil
		case f.Hypotheses > 0 && p.shape != nil:
			want = fmt.Sprintf("%d, or a multiple of %d with hypotheses", 2*f.Numel(), row)
		}
	}
	if p.shape != nil || p.size == 0 || p.size%2 != 0 {
		return p.wrong(want)
	}
	p.hypotheses, p.numbers, p.choices = 1, p.size/2, 0
	return nil
}

func (p *part) wrong(want string) error {
	return fmt.Errorf("the slice %q has %d numbers, want %s", p.name, p.size, want)
}

// Weights by default of what is not in nats.
const ratioWeight = 100

// Driving is the loss of a model by the output_slices of its metadata, and of one without them by its outputs. Weights are those of the
// terms that count; nil stands for the defaults. A name that is no term of the model is an error that lists them.
func Driving(file *onnx.Model, weights map[string]float64) (Terms, error) {
	g, err := imported(file)
	if err != nil {
		return nil, err
	}
	all, err := termsOf(file, g)
	if err != nil {
		return nil, fmt.Errorf("loss: %s: %w", file.Path, err)
	}
	if weights == nil {
		return all.counting(), nil
	}
	for i := range all {
		all[i].Weight = weights[all[i].Name]
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		w := weights[name]
		if math.IsNaN(w) || math.IsInf(w, 0) || w < 0 {
			return nil, fmt.Errorf("loss: the weight of %s is %v: give a number from 0 on", name, w)
		}
		if slices.ContainsFunc(all, func(m Term) bool { return m.Name == name }) {
			continue
		}
		value, ok := strings.CutPrefix(name, features+":")
		if !ok || value == "" {
			return nil, fmt.Errorf("loss: %s has no term %q: its terms are %s and %s:VALUE, of any value that it computes", file.Path, name, strings.Join(all.names(), ", "), features)
		}
		m, err := matching(g, value)
		if err != nil {
			return nil, fmt.Errorf("loss: %s: term %s: %w", file.Path, name, err)
		}
		m.Name, m.Weight = name, w
		all = append(all, m)
	}
	if all = all.counting(); len(all) == 0 {
		return nil, errors.New("loss: no term has a weight above 0")
	}
	return all, nil
}

// imported is a file's graph for one sample.
func imported(file *onnx.Model) (*ir.Graph, error) {
	g, err := onnx.Import(file, onnx.ImportOptions{})
	if err != nil { // dimensions that the file leaves open
		return onnx.Import(file, onnx.ImportOptions{Batch: 1})
	}
	return g, nil
}

// matching is the term of an inner value, or of an output of its own.
func matching(g *ir.Graph, value string) (Term, error) {
	of := func(v *ir.Value) Term {
		return Term{value: value, length: v.Type.Numel(), part: part{size: v.Type.Numel()}}
	}
	for _, v := range g.Outputs {
		if v.Name == value && v.Type.DType.IsFloat() {
			return of(v), nil
		}
	}
	example := ""
	for i, n := range g.Nodes {
		for _, v := range n.Outputs {
			switch {
			case v.Name != value:
			case !v.Type.DType.IsFloat():
				return Term{}, fmt.Errorf("%q is %v: only floats are compared", value, v.Type)
			case v.Index > 0 || slices.ContainsFunc(g.Nodes[i+1:], func(m *ir.Node) bool { return m.Name == n.Name }):
				return Term{}, fmt.Errorf("%q is one of several values of the node %q: name one that a node computes alone, as %q", value, n.Name, example)
			default:
				m := of(v)
				m.node = n.Name
				return m, nil
			}
		}
		if v := n.Outputs[0]; v.Type.DType.IsFloat() && !strings.Contains(v.Name, "~") && (n.Op.Name == "MatMul" || n.Op.Name == "Conv") {
			example = v.Name
		}
	}
	return Term{}, fmt.Errorf("the file has no value %q: name one as the file does, as %q", value, example)
}

// counting are the terms with a weight.
func (t Terms) counting() Terms {
	return slices.DeleteFunc(t, func(m Term) bool { return m.Weight == 0 })
}

func (t Terms) names() (out []string) {
	for _, m := range t {
		out = append(out, m.Name)
	}
	return out
}

// termsOf are all terms of a model, with their default weights.
func termsOf(file *onnx.Model, g *ir.Graph) (Terms, error) {
	var outputs []*ir.Value
	var main *ir.Value
	for _, v := range g.Outputs {
		if v.Type.DType.IsFloat() {
			outputs = append(outputs, v)
			if main == nil || v.Name == "outputs" {
				main = v
			}
		}
	}
	if main == nil {
		return nil, errors.New("it has no output of floats")
	}
	list, err := file.OutputSlices(main.Type.Numel())
	if err != nil {
		return nil, err
	}
	var all Terms
	if list == nil {
		for _, v := range outputs {
			all = append(all, Term{Name: v.Name, Weight: 1 / float64(len(outputs)), value: v.Name, length: v.Type.Numel(), part: part{size: v.Type.Numel()}})
		}
		return all, nil
	}
	for _, s := range list {
		if s.Name == generation.Padding || s.End == s.Start {
			continue
		}
		p, err := partOf(s)
		if err != nil {
			return nil, err
		}
		p.softmaxed = p.kind == classes && softmaxed(main, p.from, p.size)
		all = append(all, p.terms(Term{Name: p.name, Weight: 1, value: main.Name, length: main.Type.Numel(), part: p})...)
	}
	return all, nil
}

// terms are those of a part: the first by default.
func (p part) terms(m Term) Terms {
	switch {
	case p.name == generation.HiddenState:
		m.Name, m.Weight = features, ratioWeight
	case p.kind == squares:
		m.Weight = ratioWeight
	}
	out := Terms{m}
	if p.kind == laplace {
		m.Name, m.Weight, m.form = p.name+"_nll", 0, likelihood
		out = append(out, m)
	}
	if p.shape != nil {
		m.Name, m.form = p.name+"_truth", truth
		out = append(out, m)
	}
	return out
}

// softmaxed reports whether the graph computes a part of an output, of one sample, as a softmax: older graphs give desires so, newer ones leave it to the
// parser.
func softmaxed(v *ir.Value, from, size int) bool {
	for v.Def != nil {
		n := v.Def
		switch n.Op.Name {
		case "Softmax":
			return true
		case "Div": // spelled out
			return n.Inputs[0].Def != nil && n.Inputs[0].Def.Op.Name == "Exp"
		case "Cast", "Reshape", "Detach":
			v = n.Inputs[0]
		case "Concat":
			if v, from = concatenated(n, from, size); v == nil {
				return false
			}
		default:
			return false
		}
	}
	return false
}

// concatenated is the operand that holds a part of a concatenation of rows, and where it does; nil if none holds all of it.
func concatenated(n *ir.Node, from, size int) (*ir.Value, int) {
	axis := n.Attrs.Int("axis", 0)
	for _, d := range n.Outputs[0].Type.Shape[:axis] {
		if d != 1 {
			return nil, 0
		}
	}
	for _, in := range n.Inputs {
		if count := in.Type.Numel(); from >= count {
			from -= count
		} else if from+size <= count {
			return in, from
		} else {
			break
		}
	}
	return nil, 0
}
