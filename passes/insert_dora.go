package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// AdapterKind is what an adapter of a layer trains.
type AdapterKind string

// Kinds of adapters of a layer y = W·x + b, with the norms over all but the first dimension of W [out, …].
const (
	DoRA      AdapterKind = "dora"      // y = m/‖V‖·(V·x) + b, V = W + s·B·A (Liu and others 2024, equation 5)
	LoRA      AdapterKind = "lora"      // y = (W + s·B·A)·x + b (Hu and others 2021)
	Magnitude AdapterKind = "magnitude" // y = m/‖W‖·(W·x) + b
)

// Adapter is what insert-dora puts beside a constant weight. The graph gets inputs for it, in f32: Name.lora_A.weight
// [r, in/g, taps…], Name.lora_B.weight [out, r/g, 1…] and Name.lora_magnitude_vector [out], as far as the kind has them; a
// MatMul has neither taps nor groups g.
type Adapter struct {
	Name   string
	Weight string // of the constant in the file
	Kind   AdapterKind
	Rank   int
	Scale  float64 // s: α/r, or α/√r
	// FullNorm lets gradients pass through ‖V‖ too. The paper takes it as a constant (section 4.3).
	FullNorm bool
}

// Names of an adapter's inputs, as PEFT names tensors.
func (a *Adapter) InputA() string { return a.Name + ".lora_A.weight" }

// InputB is the input of the second factor.
func (a *Adapter) InputB() string { return a.Name + ".lora_B.weight" }

// InputM is the input of the magnitudes.
func (a *Adapter) InputM() string { return a.Name + ".lora_magnitude_vector" }

var _ = register(Pass{
	Name:    "insert-dora",
	Summary: "put adapters beside the constant weights of MatMul and Conv: graph inputs, the product of low rank, norms without forming B·A",
	Runs:    []Place{{stageTraining, computed}},
	After:   map[string]string{"widen": "adapters are f32 and compute in f32"},
	Run: func(ctx *Context, g *ir.Graph) error {
		for i := range ctx.Adapters {
			a := &ctx.Adapters[i]
			if err := insertAdapter(g, a); err != nil {
				return fmt.Errorf("adapter %s of %q: %w", a.Name, a.Weight, err)
			}
		}
		return nil
	},
})

// FileName is the name in the file of a constant that import made of an initializer.
func FileName(v *ir.Value) string { return strings.SplitN(v.Name, "~", 2)[0] }

// Adaptable reports whether insert-dora can put an adapter beside the weight of a node, and why not.
func Adaptable(n *ir.Node, input int) error {
	w := n.Inputs[input]
	switch {
	case n.Op.Name == "MatMul" && input == 1 && w.Type.Rank() == 2:
		return nil
	case n.Op.Name == "Conv" && input == 1:
		return nil
	case n.Op.Name == "MatMul" || n.Op.Name == "Conv":
		return fmt.Errorf("it is input %d, of shape %v, of node %q (%s): adapters go to the second operand, of a MatMul if it is a matrix", input, w.Type.Shape, n.Name, n.Op.Name)
	}
	return fmt.Errorf("node %q (%s) reads it: adapters go to weights of MatMul, Gemm and Conv", n.Name, n.Op.Name)
}

func insertAdapter(g *ir.Graph, a *Adapter) error {
	if slices.ContainsFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == a.InputA() || v.Name == a.InputM() }) {
		return nil // it is there
	}
	var readers []*ir.Node
	var w *ir.Value
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if v == nil || !v.IsConst() || FileName(v) != a.Weight {
				continue
			}
			if err := Adaptable(n, i); err != nil {
				return err
			}
			w = v
			readers = append(readers, n)
		}
	}
	if w == nil {
		return fmt.Errorf("no node reads a constant of that name")
	}
	first := readers[0]
	for _, n := range readers[1:] {
		if n.Op != first.Op || n.Inputs[1].Const != first.Inputs[1].Const || n.Attrs.Int("group", 1) != first.Attrs.Int("group", 1) || n.Attrs.Bool("transB") != first.Attrs.Bool("transB") {
			return fmt.Errorf("nodes %q and %q read it in different ways", first.Name, n.Name)
		}
	}
	// What does not depend on the batch is computed once, in front of the first reader.
	d := &adapting{Adapter: a, g: g}
	at := slices.Index(g.Nodes, first)
	d.parameters(first, w)
	behind := slices.Clone(g.Nodes[at:])
	g.Nodes = append(g.Nodes[:at:at], d.nodes...)
	to := map[*ir.Value]*ir.Value{}
	for _, n := range behind {
		if !slices.Contains(readers, n) {
			g.Nodes = append(g.Nodes, n)
			continue
		}
		d.nodes = nil
		old := n.Outputs[0]
		y := d.layer(n)
		if d.err != nil {
			break
		}
		y.Name, old.Name = old.Name, g.Fresh(old.Name) // an output keeps its name
		to[old] = y
		g.Nodes = append(g.Nodes, d.nodes...)
	}
	if d.err != nil {
		return d.err
	}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if w := to[v]; w != nil && !d.own[n] {
				n.Inputs[i] = w
			}
		}
	}
	for i, v := range g.Outputs {
		if w := to[v]; w != nil {
			g.Outputs[i] = w
		}
	}
	return nil
}

// adapting puts one adapter in.
type adapting struct {
	*Adapter
	g     *ir.Graph
	nodes []*ir.Node
	own   map[*ir.Node]bool // that read the plain product
	err   error

	a, b *ir.Value // nil: none
	gain *ir.Value // m/‖V‖ [out]; nil: none
}

func (d *adapting) add(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	if d.err == nil {
		var n *ir.Node
		if n, d.err = d.g.NewNode(op, d.Name, attrs, in...); d.err == nil {
			d.nodes = append(d.nodes, n)
			return n.Outputs[0]
		}
	}
	return &ir.Value{}
}

func (d *adapting) reshape(v *ir.Value, shape ...int) *ir.Value {
	return d.add("Reshape", ir.Attrs{"shape": shape}, v)
}

func (d *adapting) number(x float64) *ir.Value {
	return d.g.Constant(d.Name, ir.ScalarFloat(ir.Float32, x))
}

// least keeps a row of zeros from dividing by zero.
const least = 1e-30

// parameters makes the inputs, and the gain from them and the weight w of node n.
func (d *adapting) parameters(n *ir.Node, w *ir.Value) {
	out, in, group, taps := w.Type.Shape[0], w.Type.Shape[1], n.Attrs.Int("group", 1), w.Type.Shape[2:]
	if n.Op.Name == "MatMul" && !n.Attrs.Bool("transB") {
		out, in = in, out
	}
	row := in * ir.T(ir.Bool, taps...).Numel()
	d.own = map[*ir.Node]bool{}
	if d.Kind != Magnitude {
		if d.Rank < 1 {
			d.err = fmt.Errorf("rank %d, want at least 1", d.Rank)
			return
		}
		if d.Rank%group != 0 {
			d.err = fmt.Errorf("rank %d is no multiple of the %d groups of node %q (Conv): such a layer takes kind %s", d.Rank, group, n.Name, Magnitude)
			return
		}
		if most := min(out/group, row) * group; d.Rank > most {
			d.err = fmt.Errorf("rank %d is above %d, the smaller dimension of a weight [%d, %d]", d.Rank, most, out, row)
			return
		}
		ones := slices.Repeat([]int{1}, len(taps))
		d.a = d.g.AddInput(d.InputA(), ir.T(ir.Float32, slices.Concat([]int{d.Rank, in}, taps)...))
		d.b = d.g.AddInput(d.InputB(), ir.T(ir.Float32, slices.Concat([]int{out, d.Rank / group}, ones)...))
	}
	if d.Kind == LoRA {
		return
	}
	m := d.g.AddInput(d.InputM(), ir.T(ir.Float32, out))
	// Rows of W by group: [g, out/g, row].
	rows := w
	if n.Op.Name == "MatMul" && !n.Attrs.Bool("transB") {
		rows = d.add("Transpose", ir.Attrs{"perm": []int{1, 0}}, w)
	}
	if d.err == nil && rows.Type.DType != ir.Float32 {
		rows = d.add("Cast", ir.Attrs{"to": ir.Float32}, rows)
	}
	rows = d.reshape(rows, group, out/group, row)
	last := ir.Attrs{"axes": []int{2}}
	squares := d.add("ReduceSum", last, d.add("Mul", nil, rows, rows))
	if d.Kind == DoRA {
		// ‖W + s·BA‖² = ‖W‖² + 2s·Σ(WAᵀ ⊙ B) + s²·Σ(B(AAᵀ) ⊙ B)
		r := d.Rank / group
		a, b := d.reshape(d.a, group, r, row), d.reshape(d.b, group, out/group, r)
		trans := ir.Attrs{"transB": true}
		cross := d.add("ReduceSum", last, d.add("Mul", nil, d.add("MatMul", trans, rows, a), b))
		quad := d.add("ReduceSum", last, d.add("Mul", nil, d.add("MatMul", nil, b, d.add("MatMul", trans, a, a)), b))
		squares = d.add("Add", nil, squares, d.add("Mul", nil, cross, d.number(2*d.Scale)))
		squares = d.add("Add", nil, squares, d.add("Mul", nil, quad, d.number(d.Scale*d.Scale)))
	}
	norm := d.add("Sqrt", nil, d.add("Max", nil, d.reshape(squares, out), d.number(least)))
	if !d.FullNorm {
		norm = d.add("Detach", nil, norm)
	}
	d.gain = d.add("Div", nil, m, norm)
}

// layer is the adapted node n.
func (d *adapting) layer(n *ir.Node) *ir.Value {
	if d.err != nil {
		return nil
	}
	conv := n.Op.Name == "Conv"
	plain := slices.Clone(n.Inputs[:2])
	y := d.add(n.Op.Name, n.Attrs, plain...)
	if d.Kind != Magnitude {
		var u *ir.Value
		if conv {
			spatial := n.Inputs[1].Type.Rank() - 2
			point := ir.Attrs{"strides": slices.Repeat([]int{1}, spatial), "pads": make([]int, 2*spatial), "dilations": slices.Repeat([]int{1}, spatial), "group": n.Attrs.Int("group", 1)}
			u = d.add("Conv", point, d.add("Conv", n.Attrs, n.Inputs[0], d.a), d.b)
		} else {
			u = d.add("MatMul", ir.Attrs{"transA": n.Attrs.Bool("transA"), "transB": true}, n.Inputs[0], d.a)
			u = d.add("MatMul", ir.Attrs{"transB": true}, u, d.b)
		}
		y = d.add("Add", nil, y, d.add("Mul", nil, u, d.number(d.Scale)))
	}
	channels := func(v *ir.Value) *ir.Value {
		if !conv {
			return v
		}
		return d.reshape(v, slices.Concat([]int{v.Type.Numel()}, slices.Repeat([]int{1}, n.Inputs[1].Type.Rank()-2))...)
	}
	if d.gain != nil {
		y = d.add("Mul", nil, y, channels(d.gain))
	}
	if b := n.In(2); conv && b != nil {
		y = d.add("Add", nil, y, channels(b))
	}
	for _, m := range d.nodes {
		d.own[m] = true
	}
	return y
}
