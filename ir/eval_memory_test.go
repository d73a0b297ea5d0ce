package ir

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// A constant of one number can stand for an array of any size.
func TestEvaluate_KeepsToItsBudget(t *testing.T) {
	add := func(g *Graph, op string, attrs Attrs, in ...*Value) *Value {
		n, err := g.Add(op, op, attrs, in...)
		require.NoError(t, err)
		return n.Outputs[0]
	}
	g := NewGraph("bomb")
	x := g.AddInput("x", T(Float32, 4))
	big := g.Constant("big", &Tensor{Type: T(Float32, 1<<20, 1<<12), Data: make([]byte, 4), Splat: true})
	sum := add(g, "ReduceSum", Attrs{"axes": []int{0, 1}}, big)
	y := add(g, "Add", nil, x, sum)
	g.Outputs = []*Value{y}
	in := []*Array{NewArray(T(Float32, 4))}
	_, err := EvaluateList(memory.With(t.Context(), 1<<30), g, in, EvalOptions{})
	require.ErrorContains(t, err, "(ReduceSum): evaluating it needs 32 GiB of memory, more than the 1 GiB that it may take (--memory)")

	// Values are freed after their last reader.
	g = NewGraph("chain")
	v := g.AddInput("x", T(Float32, 1000))
	for range 20 {
		v = add(g, "Relu", nil, v)
	}
	g.Outputs = []*Value{v}
	in = []*Array{NewArray(T(Float32, 1000))}
	_, err = EvaluateList(memory.With(t.Context(), 16_000), g, in, EvalOptions{})
	require.NoError(t, err)
	_, err = EvaluateList(memory.With(t.Context(), 15_999), g, in, EvalOptions{})
	require.ErrorContains(t, err, "15.6 KiB")
}
