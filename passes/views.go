package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "views",
	Summary: "simplify view regions; those that cannot alias their operands become loops",
	After: map[string]string{
		"fuse":             "views rewrites view regions",
		"batch-isomorphic": "it makes members views of the batched value and removes Concats of members",
	},
	Needs: []string{"fuse"},
	Run:   views,
})

// views gives every view region its simplest form: a range of the value that a kernel (or the caller) wrote, or a
// Concat of values that kernels write in place. Views of everything vanish; what cannot alias becomes a loop region.
func views(_ *Context, g *ir.Graph) error {
	v := &viewer{g: g, to: map[*ir.Value]*ir.Value{}, placed: map[*ir.Value]bool{}}
	for _, n := range g.Nodes {
		for i, x := range n.Inputs {
			n.Inputs[i] = resolve(v.to, x)
		}
		m, err := v.simplify(n)
		if err != nil {
			return err
		}
		if m != nil {
			v.nodes = append(v.nodes, m)
		}
	}
	g.Nodes = v.nodes
	substitute(g, v.to)
	g.RemoveDead()
	return nil
}

type viewer struct {
	g      *ir.Graph
	nodes  []*ir.Node
	to     map[*ir.Value]*ir.Value
	placed map[*ir.Value]bool
}

// span is a run of consecutive elements of a value that is not itself such a run of another one.
type span struct {
	base       *ir.Value
	from, size int
}

// spanOf follows view regions of one operand to what they view.
func spanOf(x *ir.Value) span {
	return spanThrough(x, func(v *ir.Value) *ir.Value { return v })
}

// spanThrough is spanOf in a graph in which some values are to be read as others.
func spanThrough(x *ir.Value, resolve func(*ir.Value) *ir.Value) span {
	s := span{resolve(x), 0, x.Type.Numel()}
	for s.base.Def.IsFamily(ir.FamilyView) {
		n := s.base.Def
		in, from := viewRange(n.Region.Body.Outputs[0])
		if len(n.Inputs) != 1 || in != n.Region.Body.Inputs[0] {
			break
		}
		s.base, s.from = resolve(n.Inputs[0]), s.from+from
	}
	return s
}

// simplify returns what n becomes, or nil if it vanishes.
func (v *viewer) simplify(n *ir.Node) (*ir.Node, error) {
	if !n.IsFamily(ir.FamilyView) {
		mergeInputs(n)
		return n, nil
	}
	out := n.Outputs[0]
	if len(n.Inputs) == 1 {
		return v.view(n, spanOf(out))
	}
	parts := joinSpans(n)
	if len(parts) == 1 {
		return v.view(n, parts[0])
	}
	if !v.inPlace(parts) {
		n.Region.Family = ir.FamilyLoop
		mergeInputs(n)
		return n, nil
	}
	for _, p := range parts {
		v.placed[p.base] = true
	}
	m, err := concatRegion(v, n, parts)
	if err != nil {
		return nil, err
	}
	v.to[out] = m.Outputs[0]
	return m, nil
}

// mergeInputs merges inputs of a region that have become the same value.
func mergeInputs(n *ir.Node) {
	r := n.Region
	if r == nil {
		return
	}
	var inputs, params []*ir.Value
	var operands []ir.Operand
	to := map[*ir.Value]*ir.Value{}
	for i, v := range n.Inputs {
		same := -1
		for k, w := range inputs {
			if w == v && operands[k] == r.Operands[i] {
				same = k
			}
		}
		if same >= 0 {
			to[r.Body.Inputs[i]] = params[same]
			continue
		}
		inputs, params, operands = append(inputs, v), append(params, r.Body.Inputs[i]), append(operands, r.Operands[i])
	}
	if len(to) > 0 {
		r.Body.Substitute(to)
		n.Inputs, r.Body.Inputs, r.Operands = inputs, params, operands
	}
}

// view replaces n by a view of a span, or by the span's base if they are the same.
func (v *viewer) view(n *ir.Node, s span) (*ir.Node, error) {
	out := n.Outputs[0]
	port := func(o *ir.Value) bool { return resolve(v.to, o) == s.base } // it has a name of its own
	if s.base.Type.Equal(out.Type) && s.base.Def != nil && !slices.ContainsFunc(v.g.Outputs, port) {
		v.to[out] = s.base
		return nil, nil
	}
	m, err := viewRegion(v.g, n.Name, s, out.Type.Shape)
	if err != nil {
		return nil, err
	}
	v.to[out] = m.Outputs[0]
	return m, nil
}

// joinSpans lists what a Concat region puts together, neighbours in one value joined.
func joinSpans(n *ir.Node) []span {
	var parts []span
	for _, operand := range concatOperands(n) {
		p := spanOf(operand)
		if k := len(parts) - 1; k >= 0 && parts[k].base == p.base && parts[k].from+parts[k].size == p.from {
			parts[k].size += p.size
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

// concatOperands lists the outer values that the Concat in n's body puts together.
func concatOperands(n *ir.Node) []*ir.Value {
	outer := map[*ir.Value]*ir.Value{}
	for i, in := range n.Region.Body.Inputs {
		outer[in] = n.Inputs[i]
	}
	var list []*ir.Value
	for _, in := range n.Region.Body.Outputs[0].Def.Inputs {
		list = append(list, outer[in])
	}
	return list
}

// inPlace reports whether kernels can write all parts where the Concat wants them.
func (v *viewer) inPlace(parts []span) bool {
	seen := map[*ir.Value]bool{}
	for _, p := range parts {
		if p.base.Def == nil || p.base.Def.IsFamily(ir.FamilyView) || p.size != p.base.Type.Numel() ||
			v.placed[p.base] || seen[p.base] || slices.Contains(v.g.Outputs, p.base) {
			return false
		}
		seen[p.base] = true
	}
	return true
}

// concatRegion is n over joined parts; parts are given the shape that the Concat's axis wants.
func concatRegion(v *viewer, n *ir.Node, parts []span) (*ir.Node, error) {
	out := n.Outputs[0].Type
	axis := n.Region.Body.Outputs[0].Def.Attrs.Int("axis", 0)
	inner := ir.Type{Shape: out.Shape[axis+1:]}.Numel()
	b := ir.NewGraph(n.Name)
	var operands, inputs []*ir.Value
	for _, p := range parts {
		shape := slices.Clone(out.Shape)
		shape[axis] = p.size / inner
		x := p.base
		if !slices.Equal(shape, x.Type.Shape) {
			m, err := viewRegion(v.g, n.Name, p, shape)
			if err != nil {
				return nil, err
			}
			v.nodes = append(v.nodes, m)
			x = m.Outputs[0]
		}
		inputs = append(inputs, x)
		operands = append(operands, b.AddInput("p"+itoa(len(operands)), x.Type))
	}
	c, err := b.Add("Concat", "v", ir.Attrs{"axis": axis}, operands...)
	if err != nil {
		return nil, err
	}
	b.Outputs = c.Outputs
	return v.g.NewRegion(ir.FamilyView, n.Name, b, inputs...)
}

// viewRegion returns a region that reads a span with the given shape.
func viewRegion(g *ir.Graph, name string, s span, shape []int) (*ir.Node, error) {
	b := ir.NewGraph(name)
	x := b.AddInput("p0", s.base.Type)
	add := func(op string, attrs ir.Attrs) error {
		n, err := b.Add(op, "v", attrs, x)
		if err == nil {
			x = n.Outputs[0]
		}
		return err
	}
	if s.size != x.Type.Numel() {
		if x.Type.Rank() != 1 {
			if err := add("Reshape", ir.Attrs{"shape": []int{x.Type.Numel()}}); err != nil {
				return nil, err
			}
		}
		if err := add("Slice", ir.Attrs{"starts": []int{s.from}, "sizes": []int{s.size}}); err != nil {
			return nil, err
		}
	}
	if !slices.Equal(x.Type.Shape, shape) || x == b.Inputs[0] {
		if err := add("Reshape", ir.Attrs{"shape": slices.Clone(shape)}); err != nil {
			return nil, err
		}
	}
	b.Outputs = []*ir.Value{x}
	return g.NewRegion(ir.FamilyView, name, b, s.base)
}
