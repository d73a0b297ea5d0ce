// Package kerneltest is the harness of every test of kernels: it builds a region, or a graph of them, with data for its
// inputs, lowers it with a kernel family, runs the kernel on the CPU device with all checks on, and compares what it wrote
// with the reference evaluator.
package kerneltest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Run executes the spec twice, so that a counter which is not reset would show, and returns what it wrote.
func Run(t testing.TB, spec *kernel.Spec, tgt *target.Target, data map[*ir.Value]*ir.Tensor) map[*ir.Value]*ir.Tensor {
	t.Helper()
	text := spec.Build(tgt, "k").String()
	require.Equal(t, text, spec.Build(tgt, "k").String(), "the text is not reproducible")
	out := map[*ir.Value]*ir.Tensor{}
	var args []any
	for _, o := range spec.Operands {
		switch {
		case o.Const != nil:
			args = append(args, emu.Const{Data: o.Const})
		case o.Value != nil && o.Write:
			x := &ir.Tensor{Type: o.Value.Type, Data: make([]byte, o.Value.Type.Bytes())}
			out[o.Value] = x
			args = append(args, emu.Out{Data: x.Data})
		case o.Value != nil && o.Value.IsConst():
			args = append(args, emu.Const{Data: o.Value.Const.Dense()})
		case o.Value != nil:
			require.NotNil(t, data[o.Value], "operand %s without data", o.Value.Name)
			args = append(args, data[o.Value].Dense())
		case o.Number != nil && strings.HasSuffix(o.Number.Type, "64"):
			args = append(args, o.Number.Bits)
		case o.Number != nil:
			args = append(args, uint32(o.Number.Bits))
		case o.Workspace > 0:
			args = append(args, bytes.Repeat([]byte{0xff}, o.Workspace)) // NaN
		default:
			args = append(args, make([]byte, o.Counter))
		}
	}
	first := map[*ir.Value][]byte{}
	for i := range 2 {
		require.NoError(t, emu.RunKernelWith(emu.Options{Check: true, CutOff: emu.CutOffs(tgt.SumBits)}, text, "k", spec.Grid, spec.Block, spec.Shared, args...))
		for v, x := range out {
			if i == 0 {
				first[v] = bytes.Clone(x.Data)
			}
			require.Equal(t, first[v], x.Data, "two runs differ")
		}
	}
	return out
}

// Reference evaluates a region, rounding where it stores and casts.
func Reference(t testing.TB, region *ir.Node, data map[*ir.Value]*ir.Tensor) []*ir.Array {
	t.Helper()
	g := ir.NewGraph("reference")
	g.Nodes, g.Outputs = []*ir.Node{region}, region.Outputs
	in := map[string]*ir.Array{}
	for v, x := range data {
		if !v.IsConst() {
			g.Inputs = append(g.Inputs, v)
			in[v.Name] = x.Array()
		}
	}
	byName, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{Round: true})
	require.NoError(t, err)
	var out []*ir.Array
	for _, v := range region.Outputs {
		out = append(out, byName[v.Name])
	}
	return out
}
