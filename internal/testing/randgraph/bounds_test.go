package randgraph

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// sequence is tanh(relu(x)·w) - x, and the values of w + 1.
func sequence(t *testing.T) *Case {
	t.Helper()
	b := onnx.NewBuilder("chain", 17)
	x := b.Input("x", ir.Float32, 4, 8)
	data := func(n int, shape ...int) *ir.Tensor {
		return tensorOf(ir.T(ir.Float32, shape...), func(i int) float64 { return float64(i*n%17-8) / 11 })
	}
	w := b.Initializer("w", data(5, 8, 8))
	y := b.Op("Sub", []string{b.Op("Tanh", []string{b.Op("MatMul", []string{b.Op("Relu", []string{x}), w})}), x})
	b.Output(y, ir.Float32, 4, 8)
	z := b.Op("Add", []string{w, b.Initializer("one", ir.ScalarFloat(ir.Float32, 1))})
	b.Output(z, ir.Float32, 8, 8)
	m, err := b.Model()
	require.NoError(t, err)
	return &Case{Name: "chain", Model: m, Inputs: map[string]*ir.Tensor{"x": data(3, 4, 8)}}
}

// TestBounds: roundings of a precision are within the bounds, and what is a few times as far is not.
func TestBounds(t *testing.T) {
	c := sequence(t)
	g, err := c.importIt()
	require.NoError(t, err)
	for precision, unit := range map[string]float64{"file": 0x1p-24, "fp16": 0x1p-11, "bf16": 0x1p-8} {
		b, err := newBounds(g, c.Inputs, roundingOf(precision), mostRuns)
		require.NoError(t, err)
		name := g.Outputs[0].Name
		for _, k := range []struct {
			units float64
			fails bool
		}{{0, false}, {2, false}, {200, true}} {
			a := b.exact[name].Tensor().Array()
			a.F[3] += k.units * unit
			if err := b.compare(name, a.Tensor()); k.fails {
				require.Error(t, err, "%s, %v units", precision, k.units)
			} else {
				require.NoError(t, err, "%s, %v units", precision, k.units)
			}
		}
	}
}

// TestShrink keeps what a fault needs, and no more.
func TestShrink(t *testing.T) {
	tanh := func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "Tanh" }
	s := Shrink(sequence(t), func(c *Case) bool { return slices.ContainsFunc(c.Model.Proto.Graph.Node, tanh) })
	require.Equal(t, []string{"Tanh"}, s.Ops)
	require.Len(t, s.Model.Proto.Graph.Output, 1)
	require.Len(t, s.Inputs, 1)
	for _, x := range s.Inputs {
		require.Equal(t, []int{1, 1}, x.Shape)
	}
	dir := t.TempDir()
	require.NoError(t, s.Save(dir, nil))
	_, err := onnx.Load(dir + "/model.onnx")
	require.NoError(t, err)
}
