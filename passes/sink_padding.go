package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "sink-padding",
	Summary: "compute what follows from zeros around few rows for these rows alone, and add the zeros after it: the gradient of a layer of whose rows a slice is read",
	After:   map[string]string{"differentiate": "the gradient of a slice is padded"},
	Run: func(_ *Context, g *ir.Graph) error {
		p := &padding{of: map[*ir.Value]padded{}}
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			p.sweep = s
			p.visit(n)
		})
		return err
	},
})

// padded says that a value is few, with zeros around it along one dimension.
type padded struct {
	few         *ir.Value
	axis, start int
}

// padding goes over a graph, operands first. What it knows to be padded is there as a Pad, too, which nothing may read.
type padding struct {
	*sweep
	of map[*ir.Value]padded
}

const (
	paddingRatio = 2       // how many times as large as what is not zero a value is at least
	fewZeros     = 1 << 14 // elements that cost nothing to compute
)

func (p *padding) visit(n *ir.Node) {
	if n.Op.Name == "Pad" {
		p.begin(n)
		return
	}
	known := -1
	for i, v := range n.Inputs {
		if v != nil && p.of[v].few != nil {
			known = i
		}
	}
	if known < 0 || len(n.Outputs) != 1 {
		return
	}
	at := p.of[n.Inputs[known]]
	switch n.Op.Name {
	case "Mul", "Add", "Sub", "Neg", "Cast":
		p.elementwise(n, at)
	case "MatMul":
		p.product(n, known, at)
	case "ReduceSum":
		if slices.Contains(n.Attrs.Ints("axes"), at.axis) {
			p.replace(n.Outputs[0], p.add("ReduceSum", n.Name, n.Attrs, at.few))
		}
	case "LayerNormGrad", "RMSNormGrad", "SoftmaxGrad":
		p.rows(n, known, at)
	case "Reshape":
		p.reshape(n, at)
	case "Transpose":
		perm := n.Attrs.Ints("perm")
		p.put(n, p.add("Transpose", n.Name, n.Attrs, at.few), padded{axis: slices.Index(perm, at.axis), start: at.start})
	}
}

// begin takes a Pad with zeros along one dimension.
func (p *padding) begin(n *ir.Node) {
	begin, end := n.Attrs.Ints("begin"), n.Attrs.Ints("end")
	at := padded{few: n.Inputs[0], axis: -1}
	for i := range begin {
		switch {
		case begin[i] == 0 && end[i] == 0:
		case begin[i] < 0 || end[i] < 0 || at.axis >= 0:
			return
		default:
			at.axis, at.start = i, begin[i]
		}
	}
	if x, y := n.Inputs[0].Type, n.Outputs[0].Type; at.axis >= 0 && y.DType.IsFloat() && n.Attrs.String("mode", "constant") == "constant" &&
		n.Attrs.Float("value", 0) == 0 && x.Numel() > 0 && y.Numel() > fewZeros && paddingRatio*x.Shape[at.axis] <= y.Shape[at.axis] {
		p.of[n.Outputs[0]] = at
	}
}

// put replaces n by few with zeros around it.
func (p *padding) put(n *ir.Node, few *ir.Value, at padded) {
	begin, end := make([]int, few.Type.Rank()), make([]int, few.Type.Rank())
	if p.err != nil {
		return
	}
	begin[at.axis] = at.start
	end[at.axis] = n.Outputs[0].Type.Shape[at.axis] - at.start - few.Type.Shape[at.axis]
	y := p.add("Pad", n.Name, ir.Attrs{"begin": begin, "end": end}, few)
	at.few = few
	p.of[y] = at
	p.replace(n.Outputs[0], y)
}

// part is operand v of n where at is not zero, axis being that dimension of v.
func (p *padding) part(n *ir.Node, v *ir.Value, axis int, at padded) *ir.Value {
	if k := p.of[v]; k.few != nil && k.axis == axis && k.start == at.start && k.few.Type.Shape[axis] == at.few.Type.Shape[at.axis] {
		return k.few
	}
	starts, sizes := make([]int, v.Type.Rank()), slices.Clone(v.Type.Shape)
	starts[axis], sizes[axis] = at.start, at.few.Type.Shape[at.axis]
	return p.add("Slice", n.Name, ir.Attrs{"starts": starts, "sizes": sizes}, v)
}

// elementwise: a product is zero where a factor is; a sum where all terms are.
func (p *padding) elementwise(n *ir.Node, at padded) {
	y := n.Outputs[0].Type
	inputs := slices.Clone(n.Inputs)
	for i, v := range inputs {
		k := p.of[v]
		switch axis := at.axis - y.Rank() + v.Type.Rank(); {
		case k.few != nil && (k.axis != at.axis || v.Type.Rank() != y.Rank() || k.start != at.start || k.few.Type.Shape[k.axis] != at.few.Type.Shape[at.axis]):
			return
		case k.few == nil && n.Op.Name != "Mul":
			return
		case axis >= 0 && v.Type.Shape[axis] != 1:
			inputs[i] = p.part(n, v, axis, at)
		}
	}
	p.put(n, p.add(n.Op.Name, n.Name, n.Attrs, inputs...), at)
}

// product multiplies few rows, or sums over few of them.
func (p *padding) product(n *ir.Node, known int, at padded) {
	a, b := n.Inputs[0], n.Inputs[1]
	rows, sum := a.Type.Rank()-2, a.Type.Rank()-1
	if n.Attrs.Bool("transA") {
		rows, sum = sum, rows
	}
	other := b.Type.Rank() - 2 // where b has what is summed
	if n.Attrs.Bool("transB") {
		other++
	}
	switch {
	case a.Type.Rank() < 2 || b.Type.Rank() < 2:
	case known == 0 && at.axis == rows && !n.Attrs.Bool("transA"):
		x := at.few
		if b.Type.Rank() == 2 { // one matrix of the rows of all
			x = p.add("Reshape", n.Name, ir.Attrs{"shape": []int{x.Type.Numel() / x.Type.Shape[sum], x.Type.Shape[sum]}}, x)
		}
		y := p.add("MatMul", n.Name, n.Attrs, x, b)
		shape := slices.Clone(n.Outputs[0].Type.Shape)
		shape[len(shape)-2] = at.few.Type.Shape[rows]
		if y.Type.Rank() < len(shape) {
			y = p.add("Reshape", n.Name, ir.Attrs{"shape": shape}, y)
		}
		p.put(n, y, padded{axis: len(shape) - 2, start: at.start})
	case known == 0 && at.axis == sum:
		p.replace(n.Outputs[0], p.add("MatMul", n.Name, n.Attrs, at.few, p.part(n, b, other, at)))
	case known == 1 && at.axis == other:
		p.replace(n.Outputs[0], p.add("MatMul", n.Name, n.Attrs, p.part(n, a, sum, at), at.few))
	}
}

// rows handles the gradient of an op that treats each row separately: where its result's gradient is zero, so is its
// operand's.
func (p *padding) rows(n *ir.Node, known int, at padded) {
	x := n.Inputs[0]
	along := at.axis >= n.Attrs.Int("axis", 0)
	if n.Op.Name == "SoftmaxGrad" {
		along = at.axis == n.Attrs.Int("axis", 0)
	}
	if s := n.In(2); along || known != 1 || s != nil && s.Type.Rank() >= x.Type.Rank()-at.axis {
		return
	}
	inputs := slices.Clone(n.Inputs)
	inputs[0], inputs[1] = p.part(n, x, at.axis, at), at.few
	p.put(n, p.add(n.Op.Name, n.Name, n.Attrs, inputs...), at)
}

// reshape keeps the dimension of the zeros.
func (p *padding) reshape(n *ir.Node, at padded) {
	from, to := n.Inputs[0].Type.Shape, slices.Clone(n.Outputs[0].Type.Shape)
	before := ir.Type{Shape: from[:at.axis]}.Numel()
	for j := range to {
		if (ir.Type{Shape: to[:j]}).Numel() == before && to[j] == from[at.axis] {
			to[j] = at.few.Type.Shape[at.axis]
			p.put(n, p.add("Reshape", n.Name, ir.Attrs{"shape": to}, at.few), padded{axis: j, start: at.start})
			return
		}
	}
}
