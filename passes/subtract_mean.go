package passes

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "subtract-mean",
	Summary: "subtract from activations the mean of their channel, as calibration measured it: rounding is relative to what is left",
	After: map[string]string{
		"batch-isomorphic": "members have means of their own",
		"views":            "a value that a view reads keeps its means",
	},
	Needs:     []string{"views"},
	Tolerance: 1e-4, // biases are rounded once more, and what is subtracted here is added there
	Run: func(ctx *Context, g *ir.Graph) error {
		if ctx.quantisedFile || len(ctx.Means) == 0 {
			return nil
		}
		for _, n := range g.Nodes {
			for k, v := range n.Outputs {
				c := &meanSubtraction{g: g, value: v, means: ctx.Means[v.Name]}
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

// SubtractMeanOptions hold what is subtracted from values, by name: a number for each channel, members one after
// another.
type SubtractMeanOptions struct{ Means map[string][]float64 }

// meanSubtraction moves one value between regions by a constant for each channel, its last dimension: the region that
// computes it subtracts the constant, and those that read it add it again. A layer that multiplies it adds W·constant
// to its bias, which costs nothing and is exact, where W is rounded otherwise.
type meanSubtraction struct {
	g       *ir.Graph
	value   *ir.Value
	means   []float64 // by channel, members one after another if the readers have members
	batched bool
	readers []*ir.Node
	sites   map[*ir.Node]Site // of readers that multiply the value
}

func (c *meanSubtraction) channels() int { return c.value.Type.Shape[c.value.Type.Rank()-1] }

// possible reports whether every reader can add the constant, and at least one is a layer that multiplies the value.
func (c *meanSubtraction) possible(n *ir.Node) bool {
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
		if !r.Region.Operands[i].Batched {
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
	if c.batched = whole == 0; whole > 0 && whole < len(c.readers) {
		return false
	}
	want := c.channels()
	if c.batched {
		want *= t.Shape[0]
	}
	return len(c.sites) > 0 && len(c.means) == want
}

// isPerPixel reports whether a layer multiplies each vector of channels alone: at a border, zeros that pad an image
// would stand for the mean.
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
func (c *meanSubtraction) apply(n *ir.Node, k int) error {
	less := make([]float64, len(c.means))
	for i, x := range c.means {
		less[i] = -x
	}
	e := &offsetter{c.g, n}
	if err := e.add(n.Region.Body.Outputs[k], c.vector(n, less), c.isByMember(n)); err != nil {
		return err
	}
	for _, r := range c.readers {
		e := &offsetter{c.g, r}
		p := r.Region.Body.Inputs[slices.Index(r.Inputs, c.value)]
		s, multiplied := c.sites[r]
		if err := e.addAfter(p, c.vector(r, c.means), c.isByMember(r)); err != nil {
			return fmt.Errorf("region %q: %w", r.Name, err)
		}
		if !multiplied {
			continue
		}
		if err := e.add(s.Anchor.Outputs[0], c.products(s), r.Region.Members > 0); err != nil {
			return fmt.Errorf("region %q: %w", r.Name, err)
		}
	}
	return nil
}

// isByMember reports whether a region adds other numbers in each member.
func (c *meanSubtraction) isByMember(n *ir.Node) bool { return c.batched && n.Region.Members > 0 }

// vector is a number for each channel as a region adds it: that computes the value, or reads it.
func (c *meanSubtraction) vector(n *ir.Node, xs []float64) *ir.Tensor {
	shape := []int{c.channels()}
	switch {
	case c.isByMember(n):
		shape = []int{n.Region.Members, c.channels()}
	case c.batched: // members are but a dimension of it
		shape = append([]int{c.value.Type.Shape[0]}, shaped1(c.value.Type.Rank()-1, c.value.Type.Rank()-2, c.channels())...)
	}
	return ir.FromFloats(ir.Type{DType: ir.Float32, Shape: shape}, xs)
}

// products are the sums of weights times means, by member and output channel.
func (c *meanSubtraction) products(s Site) *ir.Tensor {
	w, out := s.Weights().Const.Floats(), make([]float64, s.Members*s.N)
	for m := range s.Members {
		means := c.means
		if c.batched {
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

// Mean is a channel's mean as pass subtract-mean subtracts it: with 4 significant bits, since a few inputs tell no
// more of it.
func Mean(x float64) float64 {
	fraction, e := math.Frexp(x)
	return math.Ldexp(math.RoundToEven(fraction*16), e-4)
}
