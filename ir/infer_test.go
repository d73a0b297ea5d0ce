package ir

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInferenceRefusesWhatDoesNotFit(t *testing.T) {
	f := func(shape ...int) Type { return T(Float32, shape...) }
	i := func(shape ...int) Type { return T(Int64, shape...) }
	conv := func(group int) Attrs {
		return Attrs{"strides": []int{1}, "pads": []int{0, 0}, "dilations": []int{1}, "group": group}
	}
	for _, c := range []struct {
		op    string
		attrs Attrs
		in    []Type
		want  string
	}{
		{"Nope", nil, nil, `no op "Nope"`},
		{"Add", nil, []Type{f(2)}, "Add: 1 inputs, want [a b]"},
		{"Add", nil, []Type{f(2), i(2)}, "Add: a is f32 but b is i64: they must have one element type"},
		{"Add", nil, []Type{f(2), f(3)}, "Add: shapes [[2] [3]] do not broadcast"},
		{"Exp", nil, []Type{i(2)}, "Exp: x is i64[2], want a floating-point type"},
		{"And", nil, []Type{i(2), i(2)}, "And: a is i64[2], want bool"},
		{"Where", nil, []Type{f(2), f(2), f(2)}, "Where: cond is f32[2], want bool"},
		{"BitCast", Attrs{"to": Int8}, []Type{f(2)}, "BitCast: f32 and i8 differ in width"},
		{"Softmax", Attrs{"axis": 2}, []Type{f(2, 3)}, "Softmax: axis=2 is outside a value of rank 2"},
		{"Softmax", nil, []Type{f(2)}, `Softmax: attribute "axis" is missing`},
		{"Softmax", Attrs{"axis": 0.5}, []Type{f(2)}, `Softmax: attribute "axis" is a float64, want int`},
		{"Softmax", Attrs{"axis": 0, "beta": 1}, []Type{f(2)}, `Softmax: unknown attribute "beta"`},
		{"Reshape", Attrs{"shape": []int{5}}, []Type{f(2, 3)}, "Reshape: f32[2,3] has 6 elements, shape [5] has 5"},
		{"Reshape", Attrs{"shape": []int{-1}}, []Type{f(2, 3)}, "Reshape: shape [-1] has a negative dimension"},
		{"Expand", Attrs{"shape": []int{1 << 30, 1 << 30}}, []Type{f()}, "Expand: shape [1073741824 1073741824] has more than 2^40 elements"},
		{"Tile", Attrs{"repeats": []int{1 << 30, 1 << 9}}, []Type{f(2, 2)}, "Tile: output 0: shape [2147483648 1024] has more than 2^40 elements"},
		{"Transpose", Attrs{"perm": []int{0, 0}}, []Type{f(2, 3)}, "Transpose: perm=[0 0] is not a permutation of the 2 dimensions of f32[2,3]"},
		{"Slice", Attrs{"starts": []int{1}, "sizes": []int{3}}, []Type{f(3)}, "Slice: dimension 0: 3 elements from 1 in steps of 1 exceed [0,3)"},
		{"Slice", Attrs{"starts": []int{2}, "sizes": []int{4}, "steps": []int{-1}}, []Type{f(3)}, "Slice: dimension 0: 4 elements from 2 in steps of -1 exceed [0,3)"},
		{"Concat", Attrs{"axis": 0}, []Type{f(2, 3), f(2, 4)}, "Concat: f32[2,3] and f32[2,4] differ outside axis 0"},
		{"Pad", Attrs{"begin": []int{-3}, "end": []int{0}}, []Type{f(2)}, "Pad: dimension 0: pads -3 and 0 crop more than its 2 elements"},
		{"Gather", nil, []Type{f(2), f(2)}, "Gather: indices is f32[2], want i32 or i64"},
		{"GatherND", nil, []Type{f(2), i(2, 2)}, "GatherND: index tuples of 2 elements do not fit x f32[2]"},
		{"ReduceSum", Attrs{"axes": []int{1, 0}}, []Type{f(2, 3)}, "ReduceSum: axes=[1 0]: want ascending axes of f32[2,3]"},
		{"TopK", Attrs{"axis": 0, "k": 3}, []Type{f(2)}, "TopK: k=3 of 2 elements along axis 0"},
		{"MatMul", nil, []Type{f(2, 3), f(2, 3)}, "MatMul: f32[2,3] × f32[2,3] (transA=false, transB=false) do not multiply"},
		{"Conv", conv(3), []Type{f(1, 64, 9), f(64, 21, 3)}, "Conv: group=3 does not divide 64 input and 64 output channels"},
		{"Conv", conv(1), []Type{f(1, 4, 9), f(4, 5, 3)}, "Conv: x f32[1,4,9] has 4 channels a group, w f32[4,5,3] wants 5"},
		{"Conv", conv(1), []Type{f(1, 4, 2), f(4, 4, 3)}, "Conv: spatial dimension 0: a window of 3 is larger than the padded input of 2"},
		{"Conv", conv(1), []Type{f(1, 4, 9), f(4, 4, 3), f(5)}, "Conv: b is f32[5], want shape [4]"},
		{"Einsum", Attrs{"equation": "ij,jk->iz"}, []Type{f(2, 3), f(3, 4)}, `Einsum: equation "ij,jk->iz": output letter 'z' is repeated or not in an operand`},
		{"Einsum", Attrs{"equation": "ij,jk->ik"}, []Type{f(2, 3), f(5, 4)}, `Einsum: equation "ij,jk->ik": j is both 3 and 5`},
		{"GRU", nil, []Type{f(5, 1, 8), f(1, 12, 8), f(1, 12, 5)}, "GRU: w is f32[1,12,8], want shape [1 15 8]"},
		{"GRU", Attrs{"activations": []string{"Tanh"}}, []Type{f(5, 1, 8), f(1, 12, 8), f(1, 12, 4)}, "GRU: activations=[Tanh], want 2 names"},
		{"Resize", Attrs{"sizes": []int{4}, "scales": []float64{0}}, []Type{f(2)}, "Resize: scales=[0] must be positive"},
		{"RoiAlign", nil, []Type{f(1, 1, 4, 4), f(2, 4), i(2)}, "RoiAlign: sampling_ratio=0: the number of samples would depend on data; only a ratio > 0 is supported"},
		{"QuantizeLinear", Attrs{"to": Float16}, []Type{f(2), f()}, "QuantizeLinear: to=f16 is no quantised type"},
		{"QuantizeLinear", Attrs{"to": Int8, "axis": 0}, []Type{f(2, 3), f(3)}, "QuantizeLinear: scale is f32[3], want shape [2]"},
		{"Region", nil, []Type{f(2)}, "Region: it has no body"},
	} {
		g := NewGraph("g")
		var in []*Value
		for k, typ := range c.in {
			in = append(in, g.AddInput(fmt.Sprint("x", k), typ))
		}
		_, err := g.Add(c.op, "n", c.attrs, in...)
		assert.EqualError(t, err, c.want)
		assert.Empty(t, g.Nodes)
	}
}

func TestNewRegionHoldsItsBodyAgainstItsInputs(t *testing.T) {
	body := NewGraph("body")
	a, b := body.AddInput("a", T(Float32, 2)), body.AddInput("b", T(Float32, 2))
	n, err := body.Add("Add", "add", nil, a, b)
	assert.NoError(t, err)
	body.Outputs = []*Value{n.Outputs[0], a}

	g := NewGraph("g")
	x, y := g.AddInput("x", T(Float32, 2)), g.AddInput("y", T(Float32, 3, 2))
	_, err = g.NewRegion(FamilyLoop, "r", body, x, y)
	assert.EqualError(t, err, "Region: input 1 is f32[3,2], its body wants f32[2]")
	_, err = g.NewRegion("magic", "r", body, x, x)
	assert.EqualError(t, err, `Region: family="magic", want one of [chain contraction loop view window]`)
	plain := Storage{DType: Float32}
	batched := &Region{Family: FamilyLoop, Members: 3, Body: body, Operands: []Operand{{Storage: plain}, {Batched: true, Storage: plain}}, Results: []Storage{plain, plain}}
	r, err := g.RegionNode("r", batched, x, y)
	assert.NoError(t, err)
	assert.Len(t, r.Outputs, 2)
	assert.Equal(t, T(Float32, 3, 2), r.Outputs[1].Type)
	batched.Members = -1
	_, err = g.RegionNode("r", batched, x, y)
	assert.EqualError(t, err, "Region: members=-1")
}
