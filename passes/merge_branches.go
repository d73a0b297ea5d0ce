package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "merge-branches",
	Summary: "merge a sum of convolutions of one value, the value itself and constants into one convolution",
	After: map[string]string{
		"fold-batchnorm": "a branch that is only a normalisation must be a product and a sum to match",
		"simplify":       "exporters insert additions of zero between branches",
	},
	Tolerance: 1e-5, // the merged weights are rounded to the graph's type once more
	Run: func(_ *Context, g *ir.Graph) error {
		for _, layout := range []string{"NCHW", "NHWC"} {
			if err := mergeBranchesIn(g, layout); err != nil {
				return err
			}
		}
		return nil
	},
})

// mergeBranchesIn merges the largest sums first: a node that is inside a merged sum is no root of its own.
func mergeBranchesIn(g *ir.Graph, layout string) error {
	known := linearOf(g, layout, g.Uses())
	merged := map[*ir.Node]*kernel{}
	inside := map[*ir.Node]bool{}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		l := known[n.Outputs[0]]
		if l == nil || inside[n] || len(l.terms) == 0 || len(l.nodes) < 2 {
			continue
		}
		k := l.merge(n.Outputs[0].Type.Shape, layout)
		if k == nil {
			continue
		}
		merged[n] = k
		for _, m := range l.nodes {
			inside[m] = true
		}
	}
	_, err := rewrite(g, func(s *sweep, n *ir.Node) {
		if k := merged[n]; k != nil {
			l := known[n.Outputs[0]]
			s.replace(n.Outputs[0], k.add(s, n.Name, s.resolve(l.x), l.bias))
		}
	})
	return err
}

// kernel is a convolution's weights in float64 with its geometry.
type kernel struct {
	node               *ir.Node // a convolution whose attributes and type the merged one shares
	out, in            int      // output channels, input channels of a group
	size               []int
	strides, dilations []int
	begin, end         []int // pads
	group              int
	w                  []float64 // [out, in, size…]
	codes              *ir.Codes // how a file stored them
	bias               []float64
}

func kernelOf(n *ir.Node) *kernel {
	w := n.Inputs[1].Const
	spatial := w.Rank() - 2
	pads := n.Attrs.Ints("pads")
	k := &kernel{
		node: n, out: w.Shape[0], in: w.Shape[1], size: w.Shape[2:],
		strides: n.Attrs.Ints("strides"), dilations: n.Attrs.Ints("dilations"),
		begin: pads[:spatial], end: pads[spatial:],
		group: n.Attrs.Int("group", 1),
		w:     w.Floats(),
		codes: w.Codes,
	}
	if b := n.In(2); b != nil {
		k.bias = b.Const.Floats()
	}
	return k
}

// merge combines the branches into one convolution, or returns nil if they are incompatible.
func (l *linear) merge(shape []int, layout string) *kernel {
	var sum *kernel
	for _, t := range l.terms {
		k := kernelOf(t.conv)
		if t.coef != nil {
			k.scale(t.coef)
		}
		if sum == nil {
			sum = k
			continue
		}
		if sum = sum.plus(k, l.x.Type.Shape, shape, layout); sum == nil {
			return nil
		}
	}
	if l.scale == nil {
		return sum
	}
	id := identityKernel(sum, l.scale)
	if id == nil {
		return nil
	}
	return sum.plus(id, l.x.Type.Shape, shape, layout)
}

func (k *kernel) scale(coef []float64) {
	each := len(k.w) / k.out
	for o, c := range coef {
		row := k.w[o*each : (o+1)*each]
		for i := range row {
			row[i] = float64(row[i] * c)
		}
	}
	k.codes = scaledCodes(k.codes, func(i int) float64 { return coef[i/each] })
	k.bias = mulVec(k.bias, coef)
}

// identityKernel is scale·x as a 1×1 convolution with the groups of like, or nil if x does not line up with the output.
func identityKernel(like *kernel, scale []float64) *kernel {
	if like.out != like.in*like.group || slices.ContainsFunc(like.strides, func(s int) bool { return s != 1 }) {
		return nil
	}
	ones := slices.Repeat([]int{1}, len(like.size))
	k := &kernel{
		node: like.node, out: like.out, in: like.in, size: ones,
		strides: like.strides, dilations: like.dilations,
		begin: make([]int, len(ones)), end: make([]int, len(ones)),
		group: like.group,
		w:     make([]float64, like.out*like.in),
	}
	for o := range k.out {
		k.w[o*k.in+o%k.in] = scale[o]
	}
	return k
}

// plus adds two convolutions of the same input: each tap keeps its offset from the output position.
func (k *kernel) plus(m *kernel, x, y []int, layout string) *kernel {
	if k.group != m.group || k.out != m.out || k.in != m.in || !slices.Equal(k.strides, m.strides) {
		return nil
	}
	spatial := len(k.size)
	sum := &kernel{
		node: k.node, out: k.out, in: k.in, group: k.group, strides: k.strides,
		size: make([]int, spatial), dilations: make([]int, spatial),
		begin: make([]int, spatial), end: make([]int, spatial),
		bias: addVec(k.bias, m.bias),
	}
	first := channelAxis(layout, len(x))%(len(x)-1) + 1 // 2 for NCHW, 1 for NHWC
	taps := 1
	for i := range spatial {
		d, ok := commonDilation(k, m, i)
		if !ok {
			return nil
		}
		lo := min(-k.begin[i], -m.begin[i])
		hi := max(d*(k.size[i]-1)-k.begin[i], d*(m.size[i]-1)-m.begin[i])
		sum.dilations[i], sum.begin[i], sum.size[i] = d, -lo, (hi-lo)/d+1
		// The last output position reads up to (y-1)·stride+hi: pad so far, and check that no further position fits.
		in, out, stride := x[first+i], y[first+i], k.strides[i]
		sum.end[i] = max(0, (out-1)*stride+hi-(in-1))
		if lo > 0 || (in+sum.begin[i]+sum.end[i]-(hi-lo)-1)/stride+1 != out {
			return nil
		}
		taps *= sum.size[i]
	}
	sum.w = make([]float64, sum.out*sum.in*taps)
	sum.accumulate(k)
	sum.accumulate(m)
	return sum
}

// commonDilation is the dilation along dimension i under which both kernels' taps lie on one grid.
func commonDilation(k, m *kernel, i int) (int, bool) {
	d := k.dilations[i]
	if k.size[i] == 1 {
		d = m.dilations[i]
	}
	if m.size[i] == 1 && k.size[i] == 1 {
		d = 1
	}
	if m.size[i] > 1 && m.dilations[i] != d {
		return 0, false
	}
	return d, (k.begin[i]-m.begin[i])%d == 0
}

// accumulate adds the taps of k, whose grid is part of the sum's.
func (sum *kernel) accumulate(k *kernel) {
	taps, size := 1, 1
	for i := range k.size {
		taps *= k.size[i]
		size *= sum.size[i]
	}
	at := make([]int, taps) // tap of k → tap of the sum
	for t := range at {
		rest, stride := t, 1
		for i := len(k.size) - 1; i >= 0; i-- {
			j := rest%k.size[i] + (sum.begin[i]-k.begin[i])/sum.dilations[i]
			rest /= k.size[i]
			at[t] += j * stride
			stride *= sum.size[i]
		}
	}
	for row := range k.out * k.in {
		for t, j := range at {
			sum.w[row*size+j] += k.w[row*taps+t]
		}
	}
}

// add places the convolution of x with a further bias.
func (k *kernel) add(s *sweep, name string, x *ir.Value, bias []float64) *ir.Value {
	n := k.node
	attrs := n.Attrs.Clone()
	attrs["pads"] = slices.Concat(k.begin, k.end)
	attrs["dilations"] = k.dilations
	d := n.Inputs[1].Type.DType
	inputs := []*ir.Value{x, s.constant(name, d, slices.Concat([]int{k.out, k.in}, k.size), k.w)}
	inputs[1].Const.Codes = k.codes
	if bias = addVec(k.bias, bias); bias != nil {
		inputs = append(inputs, s.constant(name, d, []int{k.out}, bias))
	}
	return s.add("Conv", name, attrs, inputs...)
}
