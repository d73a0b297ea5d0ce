package mutants

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// narrow is the model of the kernels on narrow floats: matrix products of one input, each once with 8-bit activations and
// weights, with NVFP4 of both, and with NVFP4 weights alone. One layer deep, so that what rounds differently does not spread.
const narrow = "narrow"

// deep is the model of an f16 product that is long enough for split-K to pay, between two others, since what a run before
// has left in an output is not told from what this one wrote.
const deep = "deep"

// networks are the models that are graphs of regions.
var networks = map[string]func() (*ir.Graph, error){narrow: narrowNetwork, deep: deepNetwork}

// network is a graph of regions under construction; the first error stays.
type network struct {
	g    *ir.Graph
	r    *rand.Rand
	body *ir.Graph // of the region under construction
	in   []*ir.Value
	err  error
}

func (n *network) add(op string, attrs ir.Attrs, in ...*ir.Value) []*ir.Value {
	if n.err != nil {
		return []*ir.Value{{}, {}}
	}
	x, err := n.body.Add(op, fmt.Sprintf("%s%d", op, len(n.g.Nodes)), attrs, in...)
	if err != nil {
		n.err = err
		return []*ir.Value{{}, {}}
	}
	return x.Outputs
}

func (n *network) begin() { n.body, n.in = ir.NewGraph("body"), nil }

func (n *network) read(v *ir.Value) *ir.Value {
	n.in = append(n.in, v)
	return n.body.AddInput(fmt.Sprintf("p%d", len(n.in)), v.Type)
}

// constant is an operand whose numbers draw says.
func (n *network) constant(t ir.Type, draw func() float64) *ir.Value {
	x := make([]float64, t.Numel())
	for i := range x {
		x[i] = draw()
	}
	return n.read(n.g.Constant(fmt.Sprintf("w%d.%d", len(n.g.Nodes), len(n.in)), ir.FromFloats(t, x)))
}

func (n *network) widened(v *ir.Value) *ir.Value {
	return n.add("Cast", ir.Attrs{"to": ir.Float32}, v)[0]
}

func (n *network) dequantised(axis int, v, scales *ir.Value) *ir.Value {
	return n.add("DequantizeLinear", ir.Attrs{"to": ir.Float32, "axis": axis, "block": ir.NVFP4Block}, v, scales)[0]
}

// blocks are e2m1 weights of a matrix with their scales.
func (n *network) blocks(k, cols int) *ir.Value {
	w := n.constant(ir.T(ir.Float4E2M1, k, cols), func() float64 { return 2 * n.r.NormFloat64() })
	s := n.constant(ir.T(ir.Float8E4M3FN, k/ir.NVFP4Block, cols), func() float64 { return .1 + n.r.Float64() })
	return n.dequantised(0, w, s)
}

// product multiplies and scales by channel.
func (n *network) product(a, b *ir.Value, size float64) *ir.Value {
	y := n.add("MatMul", nil, a, b)[0]
	if n.err != nil {
		return y
	}
	channels := y.Type.Shape[1]
	return n.add("Mul", nil, y, n.constant(ir.T(ir.Float32, channels), func() float64 { return size * (.2 + n.r.Float64()) }))[0]
}

func (n *network) end(outs ...*ir.Value) []*ir.Value {
	if n.err != nil {
		return []*ir.Value{{}, {}}
	}
	n.body.Outputs = outs
	node, err := n.g.NewRegion("contraction", outs[0].Def.Name, n.body, 0, nil, n.in...)
	if err != nil {
		n.err = err
		return []*ir.Value{{}, {}}
	}
	n.g.Nodes = append(n.g.Nodes, node)
	return node.Outputs
}

// narrowNetwork is the graph of narrow.
func narrowNetwork() (*ir.Graph, error) {
	const rows, k, hidden, cols = 48, 128, 192, 64
	n := &network{g: ir.NewGraph(narrow), r: rand.New(rand.NewPCG(1, 1))}
	x := n.g.AddInput("x", ir.T(ir.Float16, rows, k))
	half := func() *ir.Value {
		return n.widened(n.constant(ir.T(ir.Float16, k, hidden), n.r.NormFloat64))
	}
	size := 1 / math.Sqrt(k)

	n.begin()
	codes := n.end(n.add("Cast", ir.Attrs{"to": ir.Float8E4M3FN}, n.product(n.widened(n.read(x)), half(), 8*size))...)[0]
	n.begin()
	w := n.widened(n.constant(ir.T(ir.Float8E4M3FN, hidden, cols), n.r.NormFloat64))
	n.g.Outputs = n.end(n.product(n.widened(n.read(codes)), w, size/8))

	n.begin()
	q := n.end(n.add("BlockQuantize", ir.Attrs{"scale": .02}, n.product(n.widened(n.read(x)), half(), size))...)
	n.begin()
	n.g.Outputs = append(n.g.Outputs, n.end(n.product(n.dequantised(1, n.read(q[0]), n.read(q[1])), n.blocks(hidden, cols), size*.02))...)

	n.begin()
	n.g.Outputs = append(n.g.Outputs, n.end(n.product(n.widened(n.read(x)), n.blocks(k, cols), size))...)
	if n.err != nil {
		return nil, n.err
	}
	return n.g, n.g.Verify()
}

// deepNetwork is the graph of deep.
func deepNetwork() (*ir.Graph, error) {
	// The last chunk of K lies where the sums of the warps go.
	const rows, k, hidden, cols = 25, 128, 2560, 384
	n := &network{g: ir.NewGraph(deep), r: rand.New(rand.NewPCG(3, 3))}
	x := n.g.AddInput("x", ir.T(ir.Float16, rows, k))
	weights := func(k, cols int) *ir.Value {
		return n.widened(n.constant(ir.T(ir.Float16, k, cols), n.r.NormFloat64))
	}
	y := x
	layer := func(k, cols int) *ir.Value {
		n.begin()
		return n.product(n.widened(n.read(y)), weights(k, cols), 1/math.Sqrt(float64(k)))
	}
	y = n.end(n.add("Cast", ir.Attrs{"to": ir.Float16}, layer(k, hidden))...)[0]
	y = n.end(n.add("Cast", ir.Attrs{"to": ir.Float16}, layer(hidden, cols))...)[0]
	n.g.Outputs = n.end(layer(cols, k))
	if n.err != nil {
		return nil, n.err
	}
	return n.g, n.g.Verify()
}

// loadNetwork is load of one of the networks.
func loadNetwork(ctx context.Context, name string) (*model, error) {
	g, err := networks[name]()
	if err != nil {
		return nil, err
	}
	t := target.Default()
	w := codegen.NewWeights()
	r, err := codegen.Generate(g, t, codegen.Families{Contraction: contraction.Lower, Loop: loop.Lower}, w)
	if err != nil {
		return nil, err
	}
	p := &runtime.Program{Format: runtime.FormatVersion, Model: name, Precision: name, Variants: []runtime.Variant{r.Variant}, Weights: w.Bytes()}
	port := func(v *ir.Value) runtime.Port {
		return runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: v.Type.Shape}
	}
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, port(v))
	}
	for _, v := range g.Outputs {
		p.Outputs = append(p.Outputs, port(v))
	}
	draw := rand.New(rand.NewPCG(2, 2))
	numbers := make([]float64, g.Inputs[0].Type.Numel())
	for i := range numbers {
		numbers[i] = draw.NormFloat64()
	}
	x := ir.FromFloats(g.Inputs[0].Type, numbers)
	out := &model{program: p, inputs: map[string][]byte{"x": x.Dense()}, want: map[string][]float64{}}
	results, err := ir.Evaluate(ctx, g, map[string]*ir.Array{"x": x.Array()}, ir.EvalOptions{Round: true})
	for name, a := range results {
		out.want[name] = a.Floats()
	}
	return out, err
}
