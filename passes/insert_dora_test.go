package passes

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// adapted adds an adapter fc of the weight w to a graph and, if losses are named, their gradients.
func adapted(t *testing.T, g *ir.Graph, a Adapter, losses ...string) *ir.Graph {
	t.Helper()
	before := len(g.Inputs)
	a.Name, a.Weight = "fc", "w"
	ctx := &Context{InsertDoRAOptions: InsertDoRAOptions{Adapters: []Adapter{a}}, DifferentiateOptions: DifferentiateOptions{Losses: losses}}
	require.NoError(t, table["insert-dora"].Run(ctx, g))
	require.NoError(t, g.Verify())
	for _, v := range g.Inputs[before:] {
		ctx.Variables = append(ctx.Variables, v.Name)
	}
	require.NoError(t, table["differentiate"].Run(ctx, g))
	require.NoError(t, g.Verify())
	return g
}

func evaluated(t *testing.T, g *ir.Graph, in map[string]*ir.Array) map[string]*ir.Array {
	t.Helper()
	out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
	require.NoError(t, err)
	return out
}

func floats(v *ir.Value, xs ...float64) *ir.Array { return &ir.Array{Type: v.Type, F: xs} }

// TestDoRAOfOneProduct: numbers worked out by hand, by equation 5 of the paper and its gradients of section 4.3.
func TestDoRAOfOneProduct(t *testing.T) {
	g, err := ir.Parse(`graph "g" {
  input %x: f32[3]
  const %w: f32[3,2] = [3, 0, 4, 0, 0, 2]
  %y: f32[2] = MatMul(%x, %w)
  const %half: f32[] = [0.5]
  %s: f32[2] = Mul(%y, %y)
  %h: f32[2] = Mul(%s, %half)
  %loss: f32[] = ReduceSum(%h) {axes=[0]}
  output %y, %loss
}`)
	require.NoError(t, err)
	adapted(t, g, Adapter{Kind: DoRA, Rank: 1, Scale: 2}, "loss")
	out := evaluated(t, g, map[string]*ir.Array{
		"x": floats(g.Inputs[0], 1, 2, 3), "fc.lora_A.weight": floats(g.Inputs[1], 1, 0, 1),
		"fc.lora_B.weight": floats(g.Inputs[2], .5, -1), "fc.lora_magnitude_vector": floats(g.Inputs[3], 5, 2),
	})
	root := math.Sqrt(33)
	assert.InDeltaSlice(t, []float64{75 / root, -2}, out["y"].F, 1e-12)
	for name, want := range map[string][]float64{
		"fc.lora_A.weight":         {15.363636363636363, 30.727272727272727, 46.09090909090909},
		"fc.lora_B.weight":         {90.9090909090909, -16},
		"fc.lora_magnitude_vector": {34.09090909090909, 2},
	} {
		assert.InEpsilonSlice(t, want, out[GradientPrefix+name].F, 1e-12, name)
	}
}

// adaptedLayers are layers of every shape that takes an adapter.
var adaptedLayers = []struct {
	op         string
	attrs      ir.Attrs
	x, w       []int
	bias       bool
	rank       int  // 0: only magnitudes
	transposed bool // w is [in, out]
}{
	{op: "MatMul", x: []int{2, 5, 6}, w: []int{6, 4}, rank: 3, transposed: true},
	{op: "MatMul", attrs: ir.Attrs{"transA": true, "transB": true}, x: []int{6, 5}, w: []int{4, 6}, rank: 2},
	{op: "MatMul", attrs: ir.Attrs{"transB": true}, x: []int{6}, w: []int{4, 6}, rank: 4},
	{op: "Conv", attrs: ir.Attrs{"dilations": []int{1, 2}, "pads": []int{1, 0, 0, 0}, "strides": []int{2, 1}}, x: []int{2, 3, 6, 7}, w: []int{4, 3, 3, 2}, bias: true, rank: 2},
	{op: "Conv", attrs: ir.Attrs{"dilations": []int{1}, "pads": []int{0, 0}, "strides": []int{1}, "group": 2}, x: []int{1, 4, 6}, w: []int{6, 2, 3}, bias: true, rank: 4},
	{op: "Conv", attrs: ir.Attrs{"dilations": []int{1}, "pads": []int{0, 0}, "strides": []int{1}, "group": 4}, x: []int{1, 4, 6}, w: []int{4, 1, 3}},
}

// mergedWeight forms W' as the paper writes it: B·A added, rows scaled by their norms.
func mergedWeight(a Adapter, w *ir.Tensor, transposed bool, group int, factorA, factorB, m []float64) *ir.Tensor {
	out := w.Shape[0]
	if transposed {
		out = w.Shape[1]
	}
	row := w.Numel() / out
	at := func(o, i int) int {
		if transposed {
			return i*out + o
		}
		return o*row + i
	}
	v, r := w.Floats(), a.Rank/group
	for o := range out {
		norm := 0.0
		for i := range row {
			for k := range r {
				v[at(o, i)] += float64(float32(a.Scale)) * factorB[o*r+k] * factorA[(o/(out/group)*r+k)*row+i]
			}
			norm += v[at(o, i)] * v[at(o, i)]
		}
		for i := range row {
			if a.Kind != LoRA {
				v[at(o, i)] *= m[o] / math.Sqrt(norm)
			}
		}
	}
	return ir.FromFloats(ir.T(ir.Float64, w.Shape...), v)
}

// TestAnAdaptedLayerComputesWithTheMergedWeight, of every shape and kind; gradients are those of the definition, by
// differences, where the norm is no constant.
func TestAnAdaptedLayerComputesWithTheMergedWeight(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	normal := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = float64(float32(rng.NormFloat64()))
		}
		return out
	}
	for _, l := range adaptedLayers {
		for _, a := range []Adapter{{Kind: DoRA, FullNorm: true}, {Kind: DoRA}, {Kind: LoRA}, {Kind: Magnitude}} {
			if l.rank == 0 && a.Kind != Magnitude {
				continue
			}
			a.Scale = 0.75
			if a.Kind != Magnitude {
				a.Rank = l.rank
			}
			t.Run(fmt.Sprint(l.op, l.w, a.Kind, a.FullNorm), func(t *testing.T) {
				build := func(w *ir.Tensor, bias []float64) *ir.Graph {
					g := ir.NewGraph("g")
					d := w.DType
					in := []*ir.Value{g.AddInput("x", ir.T(d, l.x...)), g.Constant("w", w)}
					if l.bias {
						in = append(in, g.Constant("b", ir.FromFloats(ir.T(d, len(bias)), bias)))
					}
					n, err := g.Add(l.op, "n", l.attrs, in...)
					require.NoError(t, err)
					n.Outputs[0].Name = "y"
					g.Outputs = n.Outputs
					return g
				}
				w, bias := ir.FromFloats(ir.T(ir.Float32, l.w...), normal(ir.T(ir.Float32, l.w...).Numel())), normal(l.w[0])
				g := build(w, bias)
				// The loss is Σ c·y.
				y := g.Outputs[0]
				c := normal(y.Type.Numel())
				p, err := g.Add("Mul", "p", nil, y, g.Constant("c", ir.FromFloats(y.Type, c)))
				require.NoError(t, err)
				axes := []int{}
				for i := range y.Type.Shape {
					axes = append(axes, i)
				}
				loss, err := g.Add("ReduceSum", "loss", ir.Attrs{"axes": axes}, p.Outputs[0])
				require.NoError(t, err)
				loss.Outputs[0].Name = "loss"
				g.Outputs = append(g.Outputs, loss.Outputs[0])

				adapted(t, g, a, "loss")
				in := map[string]*ir.Array{}
				for _, v := range g.Inputs {
					in[v.Name] = floats(v, normal(v.Type.Numel())...)
				}
				part := func(name string) []float64 {
					if p := in["fc."+name]; p != nil {
						return p.F
					}
					return nil
				}
				reference := func() []float64 {
					h := build(mergedWeight(a, w, l.transposed, l.attrs.Int("group", 1), part("lora_A.weight"), part("lora_B.weight"), part("lora_magnitude_vector")), bias)
					return evaluated(t, h, map[string]*ir.Array{"x": floats(h.Inputs[0], in["x"].F...)})["y"].F
				}
				out := evaluated(t, g, in)
				assert.InDeltaSlice(t, reference(), out["y"].F, 1e-12)
				if a.Kind == DoRA && !a.FullNorm {
					return // what is called a gradient is no derivative
				}
				for _, v := range g.Inputs[1:] {
					for i, x := range in[v.Name].F {
						const h = 1e-4
						at := func(d float64) (sum float64) {
							in[v.Name].F[i] = x + d
							for k, r := range reference() {
								sum += c[k] * r
							}
							in[v.Name].F[i] = x
							return sum
						}
						want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
						assert.InDelta(t, want, out[GradientPrefix+v.Name].F[i], 1e-8*(1+math.Abs(want)), "%s[%d]", v.Name, i)
					}
				}
			})
		}
	}
}

// TestInsertDoRA_SkipsOtherLayers: the error says why.
func TestInsertDoRA_SkipsOtherLayers(t *testing.T) {
	for _, c := range []struct {
		a    Adapter
		body string
		want string
	}{
		{Adapter{Weight: "v"}, "%y: f32[2,2] = MatMul(%x, %w)", `adapter fc of "v": no node reads a constant of that name`},
		{Adapter{}, "%y: f32[2,2] = Add(%x, %w)", `node "y" (Add) reads it: adapters go to weights of MatMul, Gemm and Conv`},
		{Adapter{}, "%y: f32[2,2] = MatMul(%w, %x)", `it is input 0, of shape [2 2], of node "y" (MatMul)`},
		{Adapter{Kind: DoRA, Rank: 3}, "%y: f32[2,2] = MatMul(%x, %w)", "rank 3 is above 2, the smaller dimension of a weight [2, 2]"},
		{Adapter{Kind: LoRA}, "%y: f32[2,2] = MatMul(%x, %w)", "rank 0"},
		{Adapter{Kind: DoRA, Rank: 1}, "%z: f32[2,2] = MatMul(%x, %w)\n  %y: f32[2,2] = MatMul(%z, %w) {transB=true}", "read it in different ways"},
	} {
		g, err := ir.Parse("graph \"g\" {\n  input %x: f32[2,2]\n  const %w: f32[2,2] = [1, 2, 3, 4]\n  " + c.body + "\n  output %y\n}")
		require.NoError(t, err)
		for _, n := range g.Nodes {
			n.Name = n.Outputs[0].Name
		}
		c.a.Name = "fc"
		if c.a.Weight == "" {
			c.a.Weight = "w"
		}
		err = table["insert-dora"].Run(&Context{InsertDoRAOptions: InsertDoRAOptions{Adapters: []Adapter{c.a}}}, g)
		assert.ErrorContains(t, err, c.want)
	}
	g := ir.NewGraph("g")
	x := g.AddInput("x", ir.T(ir.Float32, 2))
	g.Outputs = []*ir.Value{x}
	for _, c := range []struct {
		losses, variables []string
		want              string
	}{
		{[]string{"z"}, nil, `loss: no output "z": the graph has ["x"]`}, {[]string{"x"}, []string{"y"}, `variable: no input "y"`},
		{[]string{"x"}, []string{"x"}, "%x is f32[2]: a loss is one number"},
	} {
		err := table["differentiate"].Run(&Context{DifferentiateOptions: DifferentiateOptions{Losses: c.losses, Variables: c.variables}}, g)
		assert.ErrorContains(t, err, c.want)
	}
}
