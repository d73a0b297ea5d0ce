package passes

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "centre",
	Summary: "store activations less the mean of their channel, which calibration measures: rounding is relative to what is left",
	Runs:    []Place{{stageRegions, eighths}},
	Behind:  "views",
	After: map[string]string{
		"stack": "members have means of their own",
		"views": "a value that a view reads keeps its means",
	},
	Tolerance: 1e-4, // biases are rounded once more, and what is subtracted here is added there
	Run: func(ctx *Context, g *ir.Graph) error {
		if ctx.quantisedFile || len(ctx.Means) == 0 {
			return nil
		}
		for _, n := range g.Nodes {
			for k, v := range n.Outputs {
				c := &centring{g: g, value: v, means: ctx.Means[v.Name]}
				if c.means == nil || !c.possible(n) {
					continue
				}
				if err := c.apply(n, k); err != nil {
					return fmt.Errorf("region %q: %w", n.Name, err)
				}
				v.Name = g.Fresh(v.Name + "-mean")
			}
		}
		return nil
	},
})

// centring moves one value between regions by a constant for each channel, its last dimension: the region that computes it
// subtracts the constant, and those that read it add it again. A layer that multiplies it adds W·constant to its bias,
// which costs nothing and is exact, where W is rounded otherwise.
type centring struct {
	g       *ir.Graph
	value   *ir.Value
	means   []float64 // by channel, members one after another if the readers have members
	stacked bool
	readers []*ir.Node
	sites   map[*ir.Node]Site // of readers that multiply the value
}

func (c *centring) channels() int { return c.value.Type.Shape[c.value.Type.Rank()-1] }

// possible reports whether every reader can add the constant, and at least one is a layer that multiplies the value.
func (c *centring) possible(n *ir.Node) bool {
	t := c.value.Type
	if t.DType != ir.Float32 || t.Rank() < 2 || n.IsFamily(ir.FamilyView) || slices.Contains(c.g.Outputs, c.value) {
		return false
	}
	c.sites = map[*ir.Node]Site{}
	whole := 0
	for _, r := range c.g.Nodes {
		i := slices.Index(r.Inputs, c.value)
		switch {
		case i < 0:
			continue
		case r.IsFamily(ir.FamilyView) || slices.Contains(r.Inputs[i+1:], c.value):
			return false
		}
		if !r.Region.Operands[i].Stacked {
			whole++
		}
		c.readers = append(c.readers, r)
		p, a := r.Region.Body.Inputs[i], r.Region.Anchor()
		if a == nil || !slices.Contains(a.Inputs, p) {
			continue
		}
		s, ok := SiteOf(r)
		if !ok || s.X != i || a.Inputs[0] != p || !isPerPixel(s) {
			return false
		}
		c.sites[r] = s
	}
	if c.stacked = whole == 0; whole > 0 && whole < len(c.readers) {
		return false
	}
	want := c.channels()
	if c.stacked {
		want *= t.Shape[0]
	}
	return len(c.sites) > 0 && len(c.means) == want
}

// isPerPixel reports whether a layer multiplies each vector of channels alone: at a border, zeros that pad an image would
// stand for the mean.
func isPerPixel(s Site) bool {
	a := s.Anchor
	x := a.Inputs[0].Type
	switch {
	case s.Segmented() || a.ChannelAxis() != a.Outputs[0].Type.Rank()-1 || x.Shape[x.Rank()-1] != s.K:
		return false
	case a.Op.Name == "MatMul":
		return !a.Attrs.Bool("transA")
	}
	return a.Op.Name == "Conv" && a.Attrs.Int("group", 1) == 1 && a.Attrs.String("layout", "NCHW") == "NHWC" && !slices.ContainsFunc(a.Attrs.Ints("pads"), func(p int) bool { return p != 0 })
}

// apply rewrites the region that computes the value, as output k, and those that read it.
func (c *centring) apply(n *ir.Node, k int) error {
	less := make([]float64, len(c.means))
	for i, x := range c.means {
		less[i] = -x
	}
	e := &offsetter{c.g, n}
	if err := e.add(n.Region.Body.Outputs[k], c.vector(n, less)); err != nil {
		return err
	}
	for _, r := range c.readers {
		e := &offsetter{c.g, r}
		p := r.Region.Body.Inputs[slices.Index(r.Inputs, c.value)]
		s, multiplied := c.sites[r]
		if err := e.behind(p, c.vector(r, c.means)); err != nil {
			return fmt.Errorf("region %q: %w", r.Name, err)
		}
		if !multiplied {
			continue
		}
		if err := e.add(s.Anchor.Outputs[0], c.products(s)); err != nil {
			return fmt.Errorf("region %q: %w", r.Name, err)
		}
	}
	return nil
}

// vector is a number for each channel as a region adds it: that computes the value, or reads it.
func (c *centring) vector(n *ir.Node, xs []float64) *ir.Tensor {
	shape := []int{c.channels()}
	switch {
	case c.stacked && n.Region.Members > 0:
		shape = []int{n.Region.Members, c.channels()}
	case c.stacked: // members are but a dimension of it
		shape = append([]int{c.value.Type.Shape[0]}, shaped1(c.value.Type.Rank()-1, c.value.Type.Rank()-2, c.channels())...)
	}
	return ir.FromFloats(ir.Type{DType: ir.Float32, Shape: shape}, xs)
}

// products are the sums of weights times means, by member and output channel.
func (c *centring) products(s Site) *ir.Tensor {
	w, out := s.Weights().Const.Floats(), make([]float64, s.Members*s.N)
	for m := range s.Members {
		means := c.means
		if c.stacked {
			means = c.means[m*s.K:]
		}
		for n := range s.N {
			sum := 0.0
			for k := range s.K {
				sum += float64(w[s.At(m, n, k)] * means[k])
			}
			out[m*s.N+n] = sum
		}
	}
	shape := []int{s.N}
	if s.Node.Region.Members > 0 {
		shape = []int{s.Members, s.N}
	}
	return ir.FromFloats(ir.Type{DType: ir.Float32, Shape: shape}, out)
}

// offsetter adds constants to values of a region's body.
type offsetter struct {
	g    *ir.Graph
	node *ir.Node
}

// behind makes all readers of a body's input but the anchor read the sum of it and t.
func (e *offsetter) behind(p *ir.Value, t *ir.Tensor) error {
	var only *ir.Node // the one reader, unless there are more
	count := 0
	a := e.node.Region.Anchor()
	for _, n := range e.node.Region.Body.Nodes {
		if n != a && slices.Contains(n.Inputs, p) {
			only = n
			count++
		}
	}
	switch {
	case slices.Contains(e.node.Region.Body.Outputs, p):
	case count == 0:
		return nil
	case count == 1 && only.Op.Name == "Add" && only.Inputs[0] != only.Inputs[1] && only.Outputs[0].Type.Equal(p.Type):
		return e.add(only.Outputs[0], t)
	}
	return e.insert(p, t)
}

// add makes all readers of v read the sum of it and t.
func (e *offsetter) add(v *ir.Value, t *ir.Tensor) error {
	i, ok := e.bias(e.total(v))
	if !ok || !e.node.Inputs[i].Type.Equal(t.Type) {
		return e.insert(v, t)
	}
	e.node.Inputs[i] = e.g.Constant(e.node.Inputs[i].Name, sum(e.node.Inputs[i].Const, t))
	return nil
}

// total is the end of the sums of which v is a term, all of which add as much as v does.
func (e *offsetter) total(v *ir.Value) *ir.Value {
	for _, n := range e.node.Region.Body.Nodes {
		if n.Op.Name == "Add" && slices.Contains(n.Inputs, v) && e.uses(v) == 1 && n.Outputs[0].Type.Equal(v.Type) {
			v = n.Outputs[0]
		}
	}
	return v
}

// bias finds a constant input of the region that only v's sum reads: that of the anchor, or one that is added behind it.
func (e *offsetter) bias(v *ir.Value) (input int, ok bool) {
	if v.Def == nil {
		i := slices.Index(e.node.Region.Body.Inputs, v)
		return i, i >= 0 && e.node.Inputs[i].IsConst()
	}
	from := v.Def.Inputs
	switch {
	case v.Def == e.node.Region.Anchor() && len(from) == 3 && v.Def.ChannelAxis() == v.Type.Rank()-1:
		from = from[2:]
	case v.Def.Op.Name != "Add":
		return 0, false
	}
	for _, x := range from {
		if x != nil && e.uses(x) == 1 && (x.Def == nil || x.Type.Equal(v.Type)) {
			if i, ok := e.bias(x); ok {
				return i, true
			}
		}
	}
	return 0, false
}

// uses is the number of places where a value of the body is read.
func (e *offsetter) uses(v *ir.Value) int {
	count := 0
	for _, n := range e.node.Region.Body.Nodes {
		for _, x := range n.Inputs {
			if x == v {
				count++
			}
		}
	}
	for _, x := range e.node.Region.Body.Outputs {
		if x == v {
			count++
		}
	}
	return count
}

// insert adds a node behind v, or in front of all for an input, which the anchor goes on to read as it is.
func (e *offsetter) insert(v *ir.Value, t *ir.Tensor) error {
	r, shape := e.node.Region, t.Type.Shape
	stacked := r.Members > 0 && len(shape) == 2
	if stacked {
		shape = shape[1:]
	}
	p := r.Body.AddInput(r.Body.Fresh("offset"), ir.Type{DType: ir.Float32, Shape: shape})
	r.Operands = append(r.Operands, ir.Operand{Stacked: stacked, Storage: ir.Storage{DType: ir.Float32}})
	e.node.Inputs = append(e.node.Inputs, e.g.Constant(e.node.Name, t))
	n, err := r.Body.NewNode("Add", e.node.Name, nil, v, p)
	if err != nil {
		return err
	}
	at := 0
	if v.Def != nil {
		at = slices.Index(r.Body.Nodes, v.Def) + 1
	}
	anchor := r.Anchor()
	for _, m := range r.Body.Nodes {
		for i, x := range m.Inputs {
			if x == v && (m != anchor || v.Def != nil) {
				m.Inputs[i] = n.Outputs[0]
			}
		}
	}
	for i, x := range r.Body.Outputs {
		if x == v {
			r.Body.Outputs[i] = n.Outputs[0]
		}
	}
	r.Body.Nodes = slices.Insert(r.Body.Nodes, at, n)
	return nil
}

// sum adds two constants of one type.
func sum(a, b *ir.Tensor) *ir.Tensor {
	xs := a.Floats()
	for i, y := range b.Floats() {
		xs[i] += y
	}
	return ir.FromFloats(a.Type, xs)
}

// Mean is a channel's mean as pass centre subtracts it: with 4 significant bits, since a few inputs tell no more of it.
func Mean(x float64) float64 {
	fraction, e := math.Frexp(x)
	return math.Ldexp(math.RoundToEven(fraction*16), e-4)
}
