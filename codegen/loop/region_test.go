package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

// testCase is a region of one or several nodes with data for its inputs.
type testCase struct {
	name    string
	build   body
	inputs  []ir.Type
	data    []kerneltest.Draw // of each input; nil: kerneltest.Numbers
	consts  []bool            // inputs that are constants
	members int
	batched []bool
	tol     float64 // relative L2 (of floats); 0: 2e-6 for f32, by the type for others
}

// body adds a region's nodes and returns its outputs.
type body func(r *kerneltest.Region, in []*ir.Value) []*ir.Value

// node is a body of one node.
func node(op string, attrs ir.Attrs) body {
	return func(r *kerneltest.Region, in []*ir.Value) []*ir.Value { return r.Add(op, attrs, in...).Def.Outputs }
}

// region builds the region of a case.
func (c *testCase) region(t *testing.T) *kerneltest.Region {
	t.Helper()
	r := kerneltest.New(t, ir.FamilyLoop).Members(c.members)
	var in []*ir.Value
	for i, typ := range c.inputs {
		draw := kerneltest.Numbers(typ.DType, 1)
		if i < len(c.data) && c.data[i] != nil {
			draw = c.data[i]
		}
		in = append(in, r.Fill(typ, draw, i < len(c.consts) && c.consts[i], c.members > 0 && c.batched[i]))
	}
	for d := range r.Limits {
		if c.tol > 0 {
			r.Limits[d] = c.tol
		}
	}
	r.Finish(c.build(r, in)...)
	return r
}

// check lowers the case's region, runs it on the CPU device and compares with the evaluator.
func (c *testCase) check(t *testing.T, target string) *kernel.Spec {
	t.Helper()
	r, ctx := c.region(t), kerneltest.Target(t, target)
	spec := r.Check(Family.Lower, ctx)
	again, err := Family.Lower(r.Node, ctx)
	require.NoError(t, err)
	require.Equal(t, spec.Build(ctx.Target, "k").String(), again.Build(ctx.Target, "k").String(), "lowering is not reproducible")
	return spec
}
