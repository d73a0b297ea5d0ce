package codegen

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// touch is a family for tests: a kernel that names its operands and does nothing.
func touch(n *ir.Node, _ *kernel.Context) (*kernel.Spec, error) {
	s := &kernel.Spec{Stem: "touch", Family: "loop", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Emit: func(k *ptx.Kernel, _ []ptx.Sym) { k.I("ret") }}
	for _, v := range n.Outputs {
		s.Operands = append(s.Operands, kernel.Operand{Value: v, Write: true})
	}
	for _, v := range n.Inputs {
		s.Operands = append(s.Operands, kernel.Operand{Value: v})
	}
	return s, nil
}

func refuse(*ir.Node, *kernel.Context) (*kernel.Spec, error) { return nil, errors.New("not today") }

// builder wraps single ops into regions.
type builder struct {
	t *testing.T
	g *ir.Graph
}

func (b builder) region(family, op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	b.t.Helper()
	body := ir.NewGraph("body")
	var args []*ir.Value
	for i, v := range in {
		args = append(args, body.AddInput(string(rune('a'+i)), v.Type))
	}
	n, err := body.Add(op, op, attrs, args...)
	require.NoError(b.t, err)
	body.Outputs = n.Outputs
	r, err := b.g.NewRegion(family, op, body, in...)
	require.NoError(b.t, err)
	b.g.Nodes = append(b.g.Nodes, r)
	return r.Outputs[0]
}

// fakes are lowerings by the family of a region.
type fakes map[string]func(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error)

func (f fakes) Lower(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return f[n.Region.Family](n, ctx)
}

func (f fakes) Loop(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return f[ir.FamilyLoop](n, ctx)
}

func generate(t *testing.T, g *ir.Graph) *runtime.Variant {
	t.Helper()
	require.NoError(t, g.Verify())
	tg, err := target.Lookup("sm_121")
	require.NoError(t, err)
	w := NewWeights()
	r, err := Generate([]Entry{{Name: "run", Graph: g}}, tg, fakes{ir.FamilyContraction: refuse, ir.FamilyWindow: touch, ir.FamilyLoop: touch}, w)
	require.NoError(t, err)
	p := &runtime.Program{Variants: []runtime.Variant{r.Variant}, Weights: w.Bytes()}
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: v.Type.Shape})
	}
	for _, v := range g.Outputs {
		p.Outputs = append(p.Outputs, runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: v.Type.Shape})
	}
	require.NoError(t, p.Validate())
	return &r.Variant
}

// shown is what a launch touches: buffer kinds with offsets.
func shown(v *runtime.Variant, list []runtime.Access) []string {
	var out []string
	for _, a := range list {
		b := v.Buffers[a.Buffer]
		name := string(b.Kind)
		if b.Kind != runtime.ArenaBuffer && b.Kind != runtime.ConstantBuffer {
			name = b.Name
		}
		out = append(out, name+offset(a.Offset))
	}
	return out
}

func offset(n int) string {
	if n == 0 {
		return ""
	}
	return "+" + string(rune('0'+n/8)) // tests use multiples of 8 bytes
}

func TestOutputsAreWrittenInPlaceThroughViews(t *testing.T) {
	g := ir.NewGraph("g")
	b := builder{t, g}
	x := g.AddInput("x", ir.T(ir.Float32, 2, 4))
	y := b.region("loop", "Relu", nil, x)
	z := b.region("view", "Reshape", ir.Attrs{"shape": []int{8}}, y)
	z.Name = "z"
	g.Outputs = []*ir.Value{z}
	v := generate(t, g)
	l := v.Entries[0].Launches
	require.Len(t, l, 1)
	require.Equal(t, []string{"z"}, shown(v, l[0].Writes))
	require.Zero(t, v.ArenaBytes)
}

func TestConcatenatedValuesAreWrittenIntoTheirPlace(t *testing.T) {
	g := ir.NewGraph("g")
	b := builder{t, g}
	x := g.AddInput("x", ir.T(ir.Float32, 1, 2))
	p, q := b.region("loop", "Relu", nil, x), b.region("loop", "Exp", nil, x)
	c := b.region("view", "Concat", ir.Attrs{"axis": 1}, p, q)
	s := b.region("view", "Slice", ir.Attrs{"starts": []int{0, 2}, "sizes": []int{1, 2}}, c)
	o := b.region("loop", "Neg", nil, s)
	o.Name = "o"
	g.Outputs = []*ir.Value{c, o}
	c.Name = "c"
	v := generate(t, g)
	l := v.Entries[0].Launches
	require.Len(t, l, 3)
	require.Equal(t, []string{"c"}, shown(v, l[0].Writes))
	require.Equal(t, []string{"c+1"}, shown(v, l[1].Writes))
	require.Equal(t, []string{"c+1"}, shown(v, l[2].Reads))
	require.Equal(t, []int{1}, l[2].After)
}

func TestDriver_CopiesWithoutAlias(t *testing.T) {
	g := ir.NewGraph("g")
	b := builder{t, g}
	x := g.AddInput("x", ir.T(ir.Float32, 1, 2))
	p := b.region("loop", "Relu", nil, x)
	c := b.region("view", "Concat", ir.Attrs{"axis": 1}, p, p, x)
	c.Name = "c"
	g.Outputs = []*ir.Value{c, x, c}
	v := generate(t, g)
	l := v.Entries[0].Launches
	var copies [][2]string
	for _, e := range l[1:] {
		require.NotNil(t, e.Copy)
		copies = append(copies, [2]string{shown(v, e.Reads)[0], shown(v, e.Writes)[0]})
	}
	require.Equal(t, [][2]string{{"c", "c+1"}, {"x", "c+2"}, {"x", "x"}}, copies, "an output that is there twice is one buffer")
}

func TestArenaIsReusedAndEqualKernelsAreShared(t *testing.T) {
	g := ir.NewGraph("g")
	b := builder{t, g}
	v := g.AddInput("x", ir.T(ir.Float32, 100))
	for range 6 {
		v = b.region("loop", "Relu", nil, v)
	}
	v.Name = "y"
	g.Outputs = []*ir.Value{v}
	out := generate(t, g)
	require.Equal(t, 1024, out.ArenaBytes)
	require.Equal(t, 1024, out.LiveBytes)
	require.Len(t, out.Kernels, 1)
	require.Equal(t, 6, out.Kernels[0].Launches)
	l := out.Entries[0].Launches
	for i := 1; i < 6; i++ {
		require.Contains(t, l[i].After, i-1)
		require.True(t, l[i].Dependent)
	}
}

func TestARefusedRegionFallsBackToLoopAndSaysWhy(t *testing.T) {
	g := ir.NewGraph("g")
	b := builder{t, g}
	x := g.AddInput("x", ir.T(ir.Float32, 4, 4))
	w := g.Constant("w", ir.Splat(ir.T(ir.Float32, 4, 4), 2))
	y := b.region("contraction", "MatMul", nil, x, w)
	y.Name = "y"
	g.Outputs = []*ir.Value{y}
	tg, err := target.Lookup("sm_80")
	require.NoError(t, err)
	weights := NewWeights()
	r, err := Generate([]Entry{{Name: "run", Graph: g}}, tg, fakes{ir.FamilyContraction: refuse, ir.FamilyLoop: touch}, weights)
	require.NoError(t, err)
	require.Equal(t, []Fallback{{"MatMul", "contraction", "not today"}}, r.Fallbacks)
	require.Len(t, weights.Bytes(), 64, "a splat is expanded for the device")
	require.False(t, r.Variant.Entries[0].Launches[0].Dependent, "sm_80 has no dependent launch")
}
