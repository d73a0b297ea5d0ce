package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/adapterfile"
	"github.com/spark-compile/spark-compile/ir"
)

// AdapterKind is what an adapter of a layer trains.
type AdapterKind = adapterfile.Kind

// Kinds of adapters.
const (
	DoRA      = adapterfile.DoRA
	LoRA      = adapterfile.LoRA
	Magnitude = adapterfile.Magnitude
)

// Adapter is what insert-dora adds to a constant weight. The graph gets f32 inputs for it: Name.lora_A.weight [r,
// in/g, taps…], Name.lora_B.weight [out, r/g, 1…] and Name.lora_magnitude_vector [out], those that its kind has; a
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

// Gain is the name of the value m/‖V‖ [out], which any kind but LoRA has.
func (a *Adapter) Gain() string { return a.Name + ".gain" }

// InverseNorm is the name of the value 1/‖V‖ [out], which any kind but LoRA has.
func (a *Adapter) InverseNorm() string { return a.Name + ".inverse_norm" }

var _ = register(Pass{
	Name:    "insert-dora",
	Summary: "add adapters to the constant weights of MatMul and Conv: graph inputs, the product of low rank, norms without forming B·A",
	After:   map[string]string{"promote-f32": "adapters are f32 and compute in f32"},
	Run: func(ctx *Context, g *ir.Graph) error {
		for i := range ctx.Adapters {
			a := &ctx.Adapters[i]
			if err := insertAdapter(g, a, &ctx.Base); err != nil {
				return fmt.Errorf("adapter %s of %q: %w", a.Name, a.Weight, err)
			}
		}
		return nil
	},
})

// InsertDoRAOptions say what insert-dora puts in.
type InsertDoRAOptions struct{ Adapters []Adapter }

// FileName is the name in the file of a constant that import made of an initializer.
func FileName(v *ir.Value) string { return strings.SplitN(v.Name, "~", 2)[0] }

// Adaptable reports whether insert-dora can add an adapter to the weight of a node, and why not.
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

func insertAdapter(g *ir.Graph, a *Adapter, base *Base) error {
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
	l := layerOf(first)
	if err := a.check(l, first); err != nil {
		return err
	}
	to := map[*ir.Value]*ir.Value{}
	err := g.Build(a.Name, func(x *ir.Expansion) {
		d := &adapting{Expansion: x, Adapter: a, adaptedLayer: l, values: baseValues(first, base)}
		d.parameters(g)
		for _, n := range readers {
			old, y := n.Outputs[0], d.layer(n)
			y.Name, old.Name = old.Name, g.Fresh(old.Name) // an output keeps its name
			to[old] = y
		}
	})
	if err != nil {
		return err
	}
	g.Substitute(to)
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *ir.Node) bool { return slices.Contains(readers, n) })
	return g.Toposort()
}

// adaptedLayer is a layer's weight [out, in, taps…], or of a MatMul [in, out] or transposed.
type adaptedLayer struct {
	weight         *ir.Value
	conv           bool
	transposed     bool // [in, out]
	out, in, group int
	taps           []int
}

func layerOf(n *ir.Node) adaptedLayer {
	w := n.Inputs[1]
	s := w.Type.Shape
	l := adaptedLayer{weight: w, conv: n.Op.Name == "Conv", out: s[0], in: s[1], group: n.Attrs.Int("group", 1), taps: s[2:]}
	if l.transposed = !l.conv && !n.Attrs.Bool("transB"); l.transposed {
		l.out, l.in = s[1], s[0]
	}
	return l
}

// row is the number of weights of an output.
func (l *adaptedLayer) row() int { return l.in * ir.T(ir.Bool, l.taps...).Numel() }

// ones are as many as the weight has taps.
func (l *adaptedLayer) ones() []int { return slices.Repeat([]int{1}, len(l.taps)) }

// squares are the squared norms of the weight's rows, in f64: what rounds them is a node.
func (l *adaptedLayer) squares(values []float64) *ir.Tensor {
	sums, row := make([]float64, l.out), l.row()
	for i, x := range values {
		o := i / row
		if l.transposed {
			o = i % l.out
		}
		sums[o] += float64(x * x)
	}
	return ir.FromFloats(ir.T(ir.Float64, l.out), sums)
}

// check refuses a rank that the layer cannot have.
func (a *Adapter) check(l adaptedLayer, n *ir.Node) error {
	switch most := min(l.out/l.group, l.row()) * l.group; {
	case a.Kind == Magnitude:
	case a.Rank < 1:
		return fmt.Errorf("rank %d, want at least 1", a.Rank)
	case a.Rank%l.group != 0:
		return fmt.Errorf("rank %d is no multiple of the %d groups of node %q (Conv): such a layer takes kind %s", a.Rank, l.group, n.Name, Magnitude)
	case a.Rank > most:
		return fmt.Errorf("rank %d is above %d, the smaller dimension of a weight [%d, %d]", a.Rank, most, l.out, l.row())
	}
	return nil
}

// adapting is an expansion that puts one adapter in.
type adapting struct {
	*ir.Expansion
	*Adapter
	adaptedLayer

	values []float64 // of the weight, as quantise-base will have it
	a, b   *ir.Value // nil: none
	gain   *ir.Value // m/‖V‖ [out]; nil: none
}

// least keeps a row of zeros from dividing by zero.
const least = 1e-30

// parameters makes the inputs, and the gain from them.
func (d *adapting) parameters(g *ir.Graph) {
	if d.Kind != Magnitude {
		d.a = g.AddInput(d.InputA(), ir.T(ir.Float32, slices.Concat([]int{d.Rank, d.in}, d.taps)...))
		d.b = g.AddInput(d.InputB(), ir.T(ir.Float32, slices.Concat([]int{d.out, d.Rank / d.group}, d.ones())...))
	}
	if d.Kind == LoRA {
		return
	}
	m := g.AddInput(d.InputM(), ir.T(ir.Float32, d.out))
	squares := d.Add("Cast", ir.Attrs{"to": ir.Float32}, d.Constant(d.squares(d.values)))
	if d.Kind == DoRA {
		squares = d.Add("Add", nil, squares, d.change())
	}
	norm := d.Add("Sqrt", nil, d.Add("Max", nil, squares, d.Number(least)))
	if !d.FullNorm {
		norm = d.Add("Detach", nil, norm)
	}
	inverse := d.Add("Div", nil, d.Number(1), norm)
	d.gain = d.Add("Mul", nil, m, inverse)
	inverse.Name, d.gain.Name = d.InverseNorm(), d.Gain()
}

// change is ‖V‖² - ‖W‖² [out] by rows, without B·A: where a group has r rows of A,
//
//	2s·Σⱼ Bⱼ·((WAᵀ)ⱼ + s/2·Σₖ Bₖ·(AAᵀ)ⱼₖ)
//
// as one sum over j and k, which is one kernel, unless gradients of so many terms were to be kept.
func (d *adapting) change() *ir.Value {
	g, r, o := d.group, d.Rank/d.group, d.out/d.group
	rows, b := d.Reshape(d.a, g, r, d.row()), d.Reshape(d.b, g, o, r)
	gram := d.Add("MatMul", ir.Attrs{"transB": true}, rows, rows)
	cross := d.Add("Transpose", ir.Attrs{"perm": []int{1, 2, 0}}, d.Reshape(d.cross(), r, g, o))
	axes, times := []int{2}, 1.0
	var quad *ir.Value
	if d.FullNorm {
		quad = d.Add("MatMul", nil, b, gram)
	} else {
		quad = d.Add("Mul", nil, d.Reshape(b, g, o, 1, r), d.Reshape(gram, g, 1, r, r))
		b, cross = d.Reshape(b, g, o, r, 1), d.Reshape(cross, g, o, r, 1)
		axes, times = []int{2, 3}, float64(r) // cross is added for every k
	}
	quad = d.Add("Mul", nil, quad, d.Number(d.Scale/2*times))
	sum := d.Add("ReduceSum", ir.Attrs{"axes": axes}, d.Add("Mul", nil, b, d.Add("Add", nil, quad, cross)))
	return d.Add("Mul", nil, d.Reshape(sum, d.out), d.Number(2*d.Scale/times))
}

// cross is A·Wᵀ [r, out], where a group has r rows of A: the layer itself with A for its input, so that both read one
// weight. A single row is padded with a row of zeros, since a matrix-vector product would store its weights
// separately.
func (d *adapting) cross() *ir.Value {
	if d.Rank > 1 {
		return d.crossOf(d.a)
	}
	end := make([]int, d.a.Type.Rank())
	end[0] = 1
	two := d.crossOf(d.Add("Pad", ir.Attrs{"begin": make([]int, len(end)), "end": end}, d.a))
	sizes := slices.Clone(two.Type.Shape)
	sizes[0] = 1
	return d.Add("Slice", ir.Attrs{"starts": make([]int, len(sizes)), "sizes": sizes}, two)
}

// crossOf is the product of so many rows a with the weight.
func (d *adapting) crossOf(a *ir.Value) *ir.Value {
	if !d.conv {
		return d.Add("MatMul", ir.Attrs{"transB": !d.transposed}, a, d.weight)
	}
	g, r := d.group, a.Type.Shape[0]/d.group
	image := a
	if g > 1 {
		image = d.Add("Transpose", ir.Attrs{"perm": []int{1, 0, 2}}, d.Reshape(image, g, r, d.row()))
	}
	image = d.Reshape(image, slices.Concat([]int{r, g * d.in}, d.taps)...)
	return d.Add("Conv", d.point(), image, d.weight)
}

// point are the attributes of a convolution that moves nowhere.
func (d *adapting) point() ir.Attrs {
	return ir.Attrs{"strides": d.ones(), "pads": make([]int, 2*len(d.taps)), "dilations": d.ones(), "group": d.group}
}

// layer is the adapted node n.
func (d *adapting) layer(n *ir.Node) *ir.Value {
	y := d.Add(n.Op.Name, n.Attrs, n.Inputs[:2]...)
	switch {
	case d.Kind == Magnitude:
	case d.conv:
		y = d.Add("Add", nil, y, d.Add("Conv", d.point(), d.scaled(d.Add("Conv", n.Attrs, n.Inputs[0], d.a)), d.b))
	default:
		u := d.Add("MatMul", ir.Attrs{"transA": n.Attrs.Bool("transA"), "transB": true}, n.Inputs[0], d.a)
		y = d.Add("Add", nil, y, d.Add("MatMul", ir.Attrs{"transB": true}, d.scaled(u), d.b))
	}
	channels := func(v *ir.Value) *ir.Value {
		if !d.conv {
			return v
		}
		return d.Reshape(v, slices.Concat([]int{d.out}, d.ones())...)
	}
	if d.gain != nil {
		y = d.Add("Mul", nil, y, channels(d.gain))
	}
	if b := n.In(2); d.conv && b != nil {
		y = d.Add("Add", nil, y, channels(b))
	}
	return y
}

// scaled is s times the product with A: of all products the one with the fewest numbers, and the gradient of the
// others' sum is then one value.
func (d *adapting) scaled(u *ir.Value) *ir.Value { return d.Add("Mul", nil, u, d.Number(d.Scale)) }
