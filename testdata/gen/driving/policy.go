package driving

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

const (
	steps   = 25 // of history
	desires = 8
)

// Heads of the policy, with openpilot's names and sizes, and the numbers inside each.
var policyHeads = []head{{"plan", 990}, {"desire_state", 8}}

// policySize says how large a policy is.
type policySize struct {
	features, width, heads, depth int
	plan, desire                  int // inside the two heads
	samples                       int
}

var policySizes = map[Size]policySize{
	Full:  {512, 384, 6, 3, 512, 256, 4},
	Small: {128, 128, 4, 3, 128, 64, 8},
	Tiny:  {32, 32, 2, 1, 32, 16, 8},
}

// Policy maps a history of features to the plan, in fp16.
func Policy(size Size) *Model {
	return policyOf(size, ir.Float16)
}

func policyOf(size Size, d ir.DType) *Model {
	s := policySizes[size]
	n := newNet("main_graph", 17, d, s.samples, 0x5eed0002)
	inputs := []Input{{"desire_pulse", ir.T(n.d, 1, steps, desires), pulse}, {"traffic_convention", ir.T(n.d, 1, 2), choice},
		{"features_buffer", ir.T(n.d, 1, steps, s.features), normal}}
	desire, convention, features := n.input(inputs[0]), n.input(inputs[1]), n.input(inputs[2])
	x := n.concat("", 2, features, desire, n.expand("", convention, steps))
	last := n.transformer("", x, s)
	out := n.rename(n.policyOut("", last, s), "outputs")
	n.output(out)
	return n.model("policy", append(layout(policyHeads), onnx.Slice{Name: "pad", Start: -2, End: out.size()}), inputs...)
}

// expand repeats a row [1, d] for every step: [1, t, d]. PyTorch computes Expand's shape in the graph.
func (n *net) expand(path string, x value, t int) value {
	d := x.shape[1]
	y := n.op(path, "Unsqueeze", []string{x.name, n.ints(path, 1)})
	ones := n.op(path, "ConstantOfShape", []string{n.ints(path, 3)}, onnx.A("value", ir.Vector(1)))
	minus := n.op(path, "Constant", nil, onnx.A("value", ir.ScalarInt(ir.Int64, -1)))
	minus = n.op(path, "Mul", []string{ones, minus})
	keep := n.op(path, "Equal", []string{n.ints(path, -1, t, -1), minus})
	shape := n.op(path, "Where", []string{keep, ones, n.ints(path, -1, t, -1)})
	y = n.op(path, "Expand", []string{y, shape})
	rows := x.x.each(func(_ int, x []float32) []float32 { return slices.Repeat(x, t) })
	return n.made(y, rows, 1, t, d)
}

// transformer embeds the steps, adds positions, applies the blocks and takes the last step: [1, width].
func (n *net) transformer(path string, x value, s policySize) value {
	t, d := x.shape[1], s.width
	x = n.linear(path+"/embed", "embed", x, d, 1, n.r.normals(d, .05))
	pos := n.r.normals(t*d, .3)
	x = n.made(n.op(path, "Add", []string{x.name, n.weight("pos", pos, 1, t, d)}), x.x.shifted(pos), 1, t, d)
	for i := range s.depth {
		p, m := fmt.Sprintf("%s/blocks/blocks.%d", path, i), fmt.Sprintf("blocks.%d", i)
		a := n.selfAttention(p, m, n.layerNorm(p+"/ln1", m+".ln1", x), s.heads)
		x = n.add(p, x, a)
		z := n.layerNorm(p+"/ln2", m+".ln2", x)
		z = n.gelu(p, n.linear(p+"/up", m+".up", z, 4*d, 1, n.r.normals(4*d, .05)))
		x = n.add(p, x, n.linear(p+"/down", m+".down", z, d, .5, n.r.normals(d, .05)))
	}
	x = n.layerNorm(path+"/out_norm", "out_norm", x)
	index := n.op(path, "Constant", nil, onnx.A("value", ir.ScalarInt(ir.Int64, -1)))
	last := x.x.each(func(_ int, x []float32) []float32 { return x[(t-1)*d:] })
	return n.made(n.op(path, "Gather", []string{x.name, index}, onnx.A("axis", 1)), last, 1, d)
}

// policyOut applies the two heads and pads the vector by two zeros.
func (n *net) policyOut(path string, x value, s policySize) value {
	var out []value
	for _, h := range policyHeads {
		out = append(out, n.policyHead(path, x, h, s))
	}
	return n.concat(path, 1, append(out, n.zeros(path, x, 2))...)
}

// policyHead applies two linear layers; the first is wide for the plan.
func (n *net) policyHead(path string, x value, h head, s policySize) value {
	hidden := s.desire
	if h.name == "plan" {
		hidden = s.plan
	}
	at := func(layer int) string { return fmt.Sprintf("%s/%s/%s.%d", path, h.name, h.name, layer) }
	y := n.relu(at(1), n.gemm(at(0), h.name+".0", x, hidden, 1))
	return n.gemm(at(2), h.name+".2", y, h.size, 1)
}

// zeros is [1, count], made of the first elements of a row.
func (n *net) zeros(path string, x value, count int) value {
	axis, from, to, step := n.ints(path, 1), n.ints(path, 0), n.ints(path, count), n.ints(path, 1)
	pad := n.op(path, "Slice", []string{x.name, from, to, axis, step})
	pad = n.op(path, "Mul", []string{pad, n.scalar(path, 0)})
	zeros := x.x.each(func(int, []float32) []float32 { return make([]float32, count) })
	return n.made(pad, zeros, 1, count)
}
