package kerneltest

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Lowerings stand in for the families of kernels, by the family of a region.
type Lowerings map[string]Lowering

// Lower implements codegen.Families.
func (l Lowerings) Lower(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return l[n.Region.Family](n, ctx)
}

// Loop implements codegen.Families.
func (l Lowerings) Loop(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return l[ir.FamilyLoop](n, ctx)
}

// Refusing returns families that reject some regions, which fall back to loops, or to the parts of a fused region.
type Refusing struct {
	codegen.Families
	Refuses func(n *ir.Node) bool
}

// Lower implements codegen.Families.
func (r Refusing) Lower(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	if r.Refuses(n) {
		return nil, errors.New("not today")
	}
	return r.Families.Lower(n, ctx)
}

// Program makes a program of the graph, whose regions all get a kernel of their own family.
func (g *Graph) Program(families codegen.Families, tgt *target.Target) (*runtime.Program, *codegen.Result) {
	g.t.Helper()
	require.NoError(g.t, g.Verify())
	w := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{{Name: "run", Graph: g.Graph}}, tgt, families, w)
	require.NoError(g.t, err)
	require.Empty(g.t, r.Fallbacks)
	p := &runtime.Program{Format: runtime.FormatVersion, Model: g.Name, Variants: []runtime.Variant{r.Variant}, Weights: w.Bytes()}
	port := func(v *ir.Value) runtime.Port {
		return runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: v.Type.Shape}
	}
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, port(v))
	}
	for _, v := range g.Outputs {
		p.Outputs = append(p.Outputs, port(v))
	}
	require.NoError(g.t, p.Validate())
	return p, r
}
