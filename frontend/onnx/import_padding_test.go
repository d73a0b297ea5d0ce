package onnx

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestPaddedAxisIsLocal changes one slice of an operand along a dimension and evaluates: if paddedAxis names a
// dimension of the outputs, only the slice of the same index there may change; a CumSum's later ones too.
func TestPaddedAxisIsLocal(t *testing.T) {
	f := func(shape ...int) ir.Type { return ir.T(ir.Float32, shape...) }
	index := func(shape ...int) ir.Type { return ir.T(ir.Int64, shape...) }
	window := ir.Attrs{"strides": []int{1}, "pads": []int{0, 0}, "dilations": []int{1}}
	with := func(a ir.Attrs, name string, v any) ir.Attrs {
		b := ir.Attrs{name: v}
		for k, x := range a {
			b[k] = x
		}
		return b
	}
	allowed := map[string]bool{}
	for _, c := range []struct {
		op    string
		attrs ir.Attrs
		in    []ir.Type
	}{
		{"Reshape", ir.Attrs{"shape": []int{2, 3, 1, 4}}, []ir.Type{f(2, 3, 4)}},
		{"Reshape", ir.Attrs{"shape": []int{6, 4}}, []ir.Type{f(2, 3, 4)}},
		{"Reshape", ir.Attrs{"shape": []int{1, 5}}, []ir.Type{f(5)}},
		{"Transpose", ir.Attrs{"perm": []int{2, 0, 1}}, []ir.Type{f(2, 3, 4)}},
		{"Expand", ir.Attrs{"shape": []int{5, 3, 4}}, []ir.Type{f(3, 1)}},
		{"Slice", ir.Attrs{"starts": []int{0, 1}, "sizes": []int{2, 2}}, []ir.Type{f(3, 4)}},
		{"Slice", ir.Attrs{"starts": []int{0, 3}, "sizes": []int{3, 4}, "steps": []int{1, -1}}, []ir.Type{f(3, 4)}},
		{"Concat", ir.Attrs{"axis": 1}, []ir.Type{f(3, 4), f(3, 2)}},
		{"Softmax", ir.Attrs{"axis": 1}, []ir.Type{f(3, 4)}},
		{"LogSoftmax", ir.Attrs{"axis": 0}, []ir.Type{f(3, 4)}},
		{"TopK", ir.Attrs{"axis": 1, "k": 2}, []ir.Type{f(3, 4)}},
		{"CumSum", ir.Attrs{"axis": 1}, []ir.Type{f(3, 4)}},
		{"CumSum", ir.Attrs{"axis": 0, "reverse": true}, []ir.Type{f(3, 4)}},
		{"LayerNorm", ir.Attrs{"axis": 1}, []ir.Type{f(3, 4, 2), f(4, 2), f(2)}},
		{"RMSNorm", ir.Attrs{"axis": 2}, []ir.Type{f(3, 4, 2), f(2)}},
		{"Pad", ir.Attrs{"begin": []int{0, 1}, "end": []int{0, 2}}, []ir.Type{f(3, 4)}},
		{"Tile", ir.Attrs{"repeats": []int{1, 2}}, []ir.Type{f(3, 4)}},
		{"Gather", ir.Attrs{"axis": 1}, []ir.Type{f(3, 4, 2), index(2, 3)}},
		{"GatherElements", ir.Attrs{"axis": 1}, []ir.Type{f(3, 4), index(3, 2)}},
		{"GatherND", nil, []ir.Type{f(3, 4, 2), index(5, 2)}},
		{"ReduceSum", ir.Attrs{"axes": []int{0, 2}}, []ir.Type{f(2, 3, 4, 2)}},
		{"ReduceMax", ir.Attrs{"axes": []int{1}, "keepdims": true}, []ir.Type{f(2, 3, 4)}},
		{"ArgMax", ir.Attrs{"axis": 0}, []ir.Type{f(2, 3, 4)}},
		{"MatMul", nil, []ir.Type{f(2, 3, 4), f(4, 5)}},
		{"MatMul", ir.Attrs{"transA": true, "transB": true}, []ir.Type{f(2, 4, 3), f(2, 5, 4)}},
		{"MatMul", nil, []ir.Type{f(3, 4), f(2, 4, 5)}},
		{"MatMul", nil, []ir.Type{f(4), f(4, 5)}},
		{"Conv", with(window, "group", 1), []ir.Type{f(2, 3, 5), f(4, 3, 2)}},
		{"Resize", ir.Attrs{"sizes": []int{2, 3, 10}, "scales": []float64{1, 1, 2}}, []ir.Type{f(2, 3, 5)}},
		{"GridSample", nil, []ir.Type{f(2, 1, 3, 3), f(2, 2, 2, 2)}},
		{"MaxPool", with(window, "kernel", []int{2}), []ir.Type{f(2, 3, 5)}},
		{"RoiAlign", ir.Attrs{"sampling_ratio": 1, "height": 2, "width": 2}, []ir.Type{f(2, 3, 5, 5), f(4, 4), index(4)}},
		{"RoiAlignWeights", ir.Attrs{"bins": 2, "size": 5}, []ir.Type{f(3, 4)}},
		{"Add", nil, []ir.Type{f(3, 4), f(4)}},
		{"Where", nil, []ir.Type{ir.T(ir.Bool, 2, 1, 4), f(3, 4), f(4)}},
		{"BatchNorm", nil, []ir.Type{f(2, 3, 4), f(3), f(3), f(3), f(3)}},
		{"ScatterND", nil, []ir.Type{f(4, 5), index(3, 1), f(3, 5)}},
		{"Einsum", ir.Attrs{"equation": "ab,bc->ac"}, []ir.Type{f(3, 4), f(4, 2)}},
	} {
		for i, x := range c.in {
			for axis := range x.Shape {
				t.Run(fmt.Sprint(c.op, c.attrs, i, x, axis), func(t *testing.T) {
					at, changes := changed(t, c.op, c.attrs, c.in, i, axis)
					if at < 0 {
						return
					}
					allowed[c.op] = true
					for k := range x.Shape[axis] {
						for _, j := range changes[k] {
							require.True(t, j == k || c.op == "CumSum" && j > k, "element %d along dimension %d of input %d changes %d along dimension %d", k, axis, i, j, at)
						}
					}
				})
			}
		}
	}
	for _, op := range []string{"Reshape", "Transpose", "Slice", "Concat", "Softmax", "CumSum", "LayerNorm", "Gather", "GatherND", "ReduceSum", "ArgMax", "MatMul", "Conv", "RoiAlign", "RoiAlignWeights", "Add", "Where"} {
		require.True(t, allowed[op], "%s lets no dimension through", op)
	}
	require.False(t, allowed["ScatterND"] || allowed["Einsum"])
}

// changed returns paddedAxis and, for each index along the axis of input i, the indices of the outputs that change
// with it.
func changed(t *testing.T, op string, attrs ir.Attrs, types []ir.Type, i, axis int) (int, map[int][]int) {
	g := ir.NewGraph("g")
	var in []*ir.Value
	given := map[string]*ir.Array{}
	for k, x := range types {
		v := g.AddInput(fmt.Sprint("in", k), x)
		in = append(in, v)
		given[v.Name] = drawn(x, float64(k))
	}
	n, err := g.Add(op, "n", attrs, in...)
	require.NoError(t, err)
	g.Outputs = n.Outputs
	at := paddedAxis(n, i, axis)
	if at < 0 {
		return at, nil
	}
	run := func() *ir.Array {
		outs, err := ir.Evaluate(context.Background(), g, given, ir.EvalOptions{})
		require.NoError(t, err)
		return outs[n.Outputs[0].Name]
	}
	before := run()
	changes := map[int][]int{}
	for k := range types[i].Shape[axis] {
		x := drawn(types[i], float64(i))
		given[in[i].Name] = x
		for e := range x.Len() {
			if along(types[i].Shape, axis, e) != k {
				continue
			}
			switch {
			case x.F != nil:
				x.F[e] += 3.5
			case x.DType == ir.Bool:
				x.I[e] = 1 - x.I[e]
			default:
				x.I[e] = 1 - min(x.I[e], 1)
			}
		}
		after := run()
		for e := range after.Len() {
			if j := along(after.Shape, at, e); after.Floats()[e] != before.Floats()[e] && !slices.Contains(changes[k], j) {
				changes[k] = append(changes[k], j)
			}
		}
	}
	return at, changes
}

// along is the index along a dimension of element e.
func along(shape []int, axis, e int) int { return e / product(shape[axis+1:]) % shape[axis] }

// drawn is an array of distinct floats, or of small indices.
func drawn(x ir.Type, seed float64) *ir.Array {
	a := ir.NewArray(x)
	for e := range a.Len() {
		if a.F != nil {
			a.F[e] = math.Abs(math.Sin(float64(e)*1.7+seed)) + 0.1
		} else {
			a.I[e] = int64(e % 2)
		}
	}
	return a
}
