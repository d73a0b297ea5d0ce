package loop

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// testCase is a region of one or several nodes with data for its inputs.
type testCase struct {
	name    string
	build   func(g *ir.Graph, in []*ir.Value) ([]*ir.Value, error) // the body
	inputs  []ir.Type
	data    []func(r *rand.Rand, i int) float64 // of each input; nil: standard normal, or small integers
	consts  []bool                              // inputs that are constants
	members int
	stacked []bool
	tol     float64 // relative L2 (of floats); 0: 2e-6 for f32, by the type for others
}

// node is a body of one node.
func node(op string, attrs ir.Attrs) func(g *ir.Graph, in []*ir.Value) ([]*ir.Value, error) {
	return func(g *ir.Graph, in []*ir.Value) ([]*ir.Value, error) {
		n, err := g.Add(op, "n", attrs, in...)
		if err != nil {
			return nil, err
		}
		return n.Outputs, nil
	}
}

func defaultData(d ir.DType) func(r *rand.Rand, i int) float64 {
	switch {
	case d == ir.Bool:
		return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(2)) }
	case d == ir.Float8E8M0:
		return func(r *rand.Rand, _ int) float64 { return math.Ldexp(1, r.Intn(8)-4) }
	case d.IsFloat():
		return func(r *rand.Rand, _ int) float64 { return r.NormFloat64() }
	case d.IsSigned():
		return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(15) - 7) }
	}
	return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(4)) }
}

func fill(t ir.Type, f func(r *rand.Rand, i int) float64, r *rand.Rand) *ir.Tensor {
	if f == nil {
		f = defaultData(t.DType)
	}
	xs := make([]float64, t.Numel())
	is := make([]int64, t.Numel())
	for i := range xs {
		xs[i] = f(r, i)
		is[i] = int64(xs[i])
	}
	if t.DType.IsFloat() {
		return ir.FromFloats(t, xs)
	}
	return ir.FromInts(t, is)
}

func tolerance(c *testCase, d ir.DType) float64 {
	if c.tol > 0 {
		return c.tol
	}
	switch d {
	case ir.Float64:
		return 1e-12
	case ir.Float32:
		return 2e-6
	case ir.Float16:
		return 1e-3
	case ir.BFloat16:
		return 8e-3
	}
	return 5e-2 // 8-bit floats: a tie that falls the other way
}

// region builds the region of a case.
func (c *testCase) region(t *testing.T, r *rand.Rand) (*ir.Node, []*ir.Tensor) {
	t.Helper()
	body, g := ir.NewGraph("body"), ir.NewGraph("g")
	var inner, outer []*ir.Value
	var data []*ir.Tensor
	for i, typ := range c.inputs {
		inner = append(inner, body.AddInput(fmt.Sprintf("x%d", i), typ))
		whole := typ
		if c.members > 0 && c.stacked[i] {
			whole = ir.T(typ.DType, append([]int{c.members}, typ.Shape...)...)
		}
		var f func(*rand.Rand, int) float64
		if i < len(c.data) {
			f = c.data[i]
		}
		d := fill(whole, f, r)
		data = append(data, d)
		if i < len(c.consts) && c.consts[i] {
			outer = append(outer, g.Constant(fmt.Sprintf("c%d", i), d))
		} else {
			outer = append(outer, g.AddInput(fmt.Sprintf("x%d", i), whole))
		}
	}
	outs, err := c.build(body, inner)
	require.NoError(t, err)
	body.Outputs = outs
	n, err := g.NewRegion("loop", c.name, body, c.members, c.stacked, outer...)
	require.NoError(t, err)
	g.Nodes = append(g.Nodes, n)
	g.Outputs = n.Outputs
	return n, data
}

type lowering func(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error)

// check lowers the case's region, runs it on the CPU device and compares with the evaluator.
func (c *testCase) check(t *testing.T, lower lowering) *kernel.Spec {
	return c.checkFor(t, lower, "sm_121")
}

func (c *testCase) checkFor(t *testing.T, lower lowering, targetName string) *kernel.Spec {
	t.Helper()
	r := rand.New(rand.NewSource(7))
	n, data := c.region(t, r)
	tg, err := target.Lookup(targetName)
	require.NoError(t, err)
	spec, err := lower(n, &kernel.Context{Target: tg})
	require.NoError(t, err)
	text := spec.Build(tg, "k").String()
	require.Equal(t, text, spec.Build(tg, "k").String(), "the text is not reproducible")
	again, err := lower(n, &kernel.Context{Target: tg})
	require.NoError(t, err)
	require.Equal(t, text, again.Build(tg, "k").String(), "lowering is not reproducible")

	g := ir.NewGraph("g")
	g.Nodes, g.Outputs = []*ir.Node{n}, n.Outputs
	inputs := map[string]*ir.Array{}
	byValue := map[*ir.Value]*ir.Tensor{}
	for i, v := range n.Inputs {
		byValue[v] = data[i]
		if !v.IsConst() {
			g.Inputs = append(g.Inputs, v)
			inputs[v.Name] = data[i].Array()
		}
	}
	want, err := ir.Evaluate(context.Background(), g, inputs, ir.EvalOptions{Round: true})
	require.NoError(t, err)

	var args []any
	got := map[*ir.Value][]byte{}
	for _, o := range spec.Operands {
		switch {
		case o.Const != nil:
			args = append(args, emu.Const{Data: o.Const})
		case o.Write:
			b := make([]byte, max(o.Value.Type.Bytes(), 1))
			got[o.Value] = b
			args = append(args, emu.Out{Data: b})
		case o.Value.IsConst():
			args = append(args, emu.Const{Data: byValue[o.Value].Dense()})
		case o.Value != nil:
			args = append(args, byValue[o.Value].Dense())
		default:
			args = append(args, make([]byte, max(o.Workspace, o.Counter)))
		}
	}
	require.NoError(t, emu.RunKernel(text, "k", spec.Grid, spec.Block, spec.Shared, args...), "%s\n%s", spec.Schedule, text)
	for i, v := range n.Outputs {
		have, err := ir.NewTensor(v.Type, got[v][:v.Type.Bytes()])
		require.NoError(t, err)
		compare(t, c, fmt.Sprintf("output %d (%v), %s", i, v.Type, spec.Schedule), want[v.Name], have.Array())
	}
	return spec
}

func compare(t *testing.T, c *testCase, what string, want, got *ir.Array) {
	t.Helper()
	if want.F == nil {
		require.Equal(t, want.I, got.I, what)
		return
	}
	diff, norm := 0.0, 0.0
	for i, w := range want.F {
		h := got.F[i]
		if math.IsNaN(w) || math.IsNaN(h) || math.IsInf(w, 0) || math.IsInf(h, 0) {
			require.True(t, w == h || math.IsNaN(w) && math.IsNaN(h), "%s: element %d is %g, want %g", what, i, h, w)
			continue
		}
		diff += (w - h) * (w - h)
		norm += w * w
	}
	require.LessOrEqual(t, math.Sqrt(diff), tolerance(c, want.DType)*math.Sqrt(norm)+1e-30, "%s: relative L2; want %v… got %v…", what, head(want.F), head(got.F))
}

func head(x []float64) []float64 { return x[:min(len(x), 6)] }
