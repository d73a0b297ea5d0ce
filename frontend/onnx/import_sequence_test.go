package onnx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

func TestSequence_MisuseIsRefused(t *testing.T) {
	for want, add := range map[string]func(b *onnx.Builder){
		"input 0 is a sequence; take a tensor out of it":         func(b *onnx.Builder) { b.Node("Relu", []string{"s"}, []string{"y"}) },
		`output "y" is a sequence; join its tensors`:             func(b *onnx.Builder) { b.Node("Identity", []string{"s"}, []string{"y"}) },
		"position 2 is out of range for a sequence of 2":         func(b *onnx.Builder) { b.Node("SequenceAt", []string{"s", "two"}, []string{"y"}) },
		"the position is computed from data (input 1, \"at\")":   func(b *onnx.Builder) { b.Node("SequenceAt", []string{"s", "at"}, []string{"y"}) },
		"input 0 is not a sequence":                              func(b *onnx.Builder) { b.Node("SequenceLength", []string{"x"}, []string{"y"}) },
		"it applies a graph to each tensor of a sequence; apply": func(b *onnx.Builder) { b.Node("SequenceMap", []string{"s"}, []string{"y"}) },
	} {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, 3)
		b.Input("at", ir.Int64)
		b.Initializer("two", ir.ScalarInt(ir.Int64, 2))
		b.Node("SequenceConstruct", []string{"x", "x"}, []string{"s"})
		add(b)
		b.Output("y", ir.Float32, 3)
		m, err := b.Model()
		require.NoError(t, err)
		_, err = onnx.Import(m, onnx.ImportOptions{})
		require.ErrorContains(t, err, want)
	}
}
