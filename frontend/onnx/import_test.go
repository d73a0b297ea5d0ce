package onnx_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// oneNode is a model of one node whose inputs are f32 unless they are constants, in order in0, in1 …
type oneNode struct {
	opset   int64
	op      string
	inputs  []any // []int: shape of an f32 input; *ir.Tensor: constant; nil: absent
	attrs   []onnx.Attr
	outputs int
}

func (o oneNode) model(t *testing.T) *onnx.Model {
	t.Helper()
	b := onnx.NewBuilder("test", o.opset)
	var names []string
	for i, in := range o.inputs {
		name := "in" + string(rune('0'+i))
		switch in := in.(type) {
		case nil:
			name = ""
		case []int:
			dims := make([]any, len(in))
			for j, d := range in {
				dims[j] = d
			}
			b.Input(name, ir.Float32, dims...)
		case *ir.Tensor:
			b.Initializer(name, in)
		}
		names = append(names, name)
	}
	var outs []string
	for i := range max(1, o.outputs) {
		outs = append(outs, "out"+string(rune('0'+i)))
	}
	b.Node(o.op, names, outs, o.attrs...)
	for _, name := range outs {
		// element type 0: declared without a type, so that any fits
		b.Output(name, ir.Invalid)
	}
	for _, out := range b.Graph().Output {
		out.Type = nil
	}
	m, err := b.Model()
	require.NoError(t, err)
	m.Path = "model.onnx"
	return m
}

// counting is an input of the shape with elements 0, 1, 2 …
func counting(v *ir.Value) *ir.Array {
	a := ir.NewArray(v.Type)
	for i := range a.Numel() {
		if a.F != nil {
			a.F[i] = float64(i)
		} else {
			a.I[i] = int64(i)
		}
	}
	return a
}

func evaluate(t *testing.T, g *ir.Graph) []*ir.Array {
	t.Helper()
	require.NoError(t, g.Verify())
	inputs := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		inputs[v.Name] = counting(v)
	}
	byName, err := ir.Evaluate(context.Background(), g, inputs, ir.EvalOptions{Round: true})
	require.NoError(t, err)
	var outs []*ir.Array
	for _, v := range g.Outputs {
		outs = append(outs, byName[v.Name])
	}
	return outs
}

func f32s(xs ...float64) *ir.Tensor { return ir.FromFloats(ir.T(ir.Float32, len(xs)), xs) }

// Operators whose meaning or form changed between opsets, on inputs that count from 0.
func TestOpsetVariants(t *testing.T) {
	a := onnx.A
	in := func(xs ...any) []any { return xs }
	for name, c := range map[string]struct {
		node  oneNode
		shape []int
		want  []float64
	}{
		"Softmax 12 takes everything after axis as one row": {
			oneNode{12, "Softmax", in([]int{1, 2, 2}), nil, 1}, []int{1, 2, 2}, []float64{0.0320586, 0.0871443, 0.2368828, 0.6439143}},
		"Softmax 13 takes the last dimension": {
			oneNode{13, "Softmax", in([]int{1, 2, 2}), nil, 1}, []int{1, 2, 2}, []float64{0.2689414, 0.7310586, 0.2689414, 0.7310586}},
		"Hardmax 11 has one 1 in the flattened row": {
			oneNode{11, "Hardmax", in([]int{1, 2, 2}), nil, 1}, []int{1, 2, 2}, []float64{0, 0, 0, 1}},
		"Clip 6 has attributes":  {oneNode{9, "Clip", in([]int{4}), []onnx.Attr{a("min", 1.0), a("max", 2.0)}, 1}, []int{4}, []float64{1, 1, 2, 2}},
		"Clip 11 has inputs":     {oneNode{11, "Clip", in([]int{4}, nil, f32s(2)), nil, 1}, []int{4}, []float64{0, 1, 2, 2}},
		"Slice 1 has attributes": {oneNode{9, "Slice", in([]int{2, 3}), []onnx.Attr{a("starts", []int{1}), a("ends", []int{99}), a("axes", []int{1})}, 1}, []int{2, 2}, []float64{1, 2, 4, 5}},
		"Slice 10 walks backwards": {
			oneNode{10, "Slice", in([]int{4}, ir.Vector(-1), ir.Vector(-99), ir.Vector(0), ir.Vector(-2)), nil, 1}, []int{2}, []float64{3, 1}},
		"Squeeze 11":                             {oneNode{11, "Squeeze", in([]int{1, 2, 1}), []onnx.Attr{a("axes", []int{-1})}, 1}, []int{1, 2}, []float64{0, 1}},
		"Squeeze 13 without axes drops all ones": {oneNode{13, "Squeeze", in([]int{1, 2, 1}), nil, 1}, []int{2}, []float64{0, 1}},
		"Unsqueeze 11":                           {oneNode{11, "Unsqueeze", in([]int{2}), []onnx.Attr{a("axes", []int{0, -1})}, 1}, []int{1, 2, 1}, []float64{0, 1}},
		"Unsqueeze 13":                           {oneNode{13, "Unsqueeze", in([]int{2}, ir.Vector(1)), nil, 1}, []int{2, 1}, []float64{0, 1}},
		"ReduceSum 11 has axes as attribute":     {oneNode{11, "ReduceSum", in([]int{2, 2}), []onnx.Attr{a("axes", []int{0}), a("keepdims", 0)}, 1}, []int{2}, []float64{2, 4}},
		"ReduceSum 13 has axes as input":         {oneNode{13, "ReduceSum", in([]int{2, 2}, ir.Vector(-1)), nil, 1}, []int{2, 1}, []float64{1, 5}},
		"ReduceSum 13 may do nothing": {
			oneNode{13, "ReduceSum", in([]int{2, 2}), []onnx.Attr{a("noop_with_empty_axes", 1)}, 1}, []int{2, 2}, []float64{0, 1, 2, 3}},
		"ReduceMean 13 still has the attribute": {oneNode{13, "ReduceMean", in([]int{2, 2}), []onnx.Attr{a("axes", []int{1})}, 1}, []int{2, 1}, []float64{0.5, 2.5}},
		"ReduceL2 18 without axes": {
			oneNode{18, "ReduceL2", in([]int{2, 2}, ir.Vector()), []onnx.Attr{a("keepdims", 0)}, 1}, []int{}, []float64{3.7416574}},
		"TopK 9 has k as attribute": {oneNode{9, "TopK", in([]int{4}), []onnx.Attr{a("k", 2)}, 2}, []int{2}, []float64{3, 2}},
		"TopK 11 finds the least":   {oneNode{11, "TopK", in([]int{4}, ir.Vector(2)), []onnx.Attr{a("largest", 0)}, 2}, []int{2}, []float64{0, 1}},
		"Pad 2":                     {oneNode{9, "Pad", in([]int{2}), []onnx.Attr{a("pads", []int{1, 0}), a("value", 9.0)}, 1}, []int{3}, []float64{9, 0, 1}},
		"Pad 18 pads some axes": {
			oneNode{18, "Pad", in([]int{1, 2}, ir.Vector(0, 1), nil, ir.Vector(-1)), nil, 1}, []int{1, 3}, []float64{0, 1, 0}},
		"Split 18 leaves less for the last": {
			oneNode{18, "Split", in([]int{3}), []onnx.Attr{a("num_outputs", 2)}, 2}, []int{2}, []float64{0, 1}},
		"Scatter 9 is ScatterElements": {
			oneNode{9, "Scatter", in([]int{3}, ir.Vector(2), f32s(7)), nil, 1}, []int{3}, []float64{0, 1, 7}},
		"Upsample 7": {oneNode{7, "Upsample", in([]int{1, 2}), []onnx.Attr{a("scales", []float64{1, 2})}, 1}, []int{1, 4}, []float64{0, 0, 1, 1}},
		"Upsample 9": {oneNode{9, "Upsample", in([]int{1, 2}, f32s(1, 2)), []onnx.Attr{a("mode", "linear")}, 1}, []int{1, 4}, []float64{0, 0.5, 1, 1}},
		"Resize 10":  {oneNode{10, "Resize", in([]int{1, 4}, f32s(1, 0.5)), nil, 1}, []int{1, 2}, []float64{0, 2}},
		"Resize 10 rounds up where it shrinks": {
			oneNode{10, "Resize", in([]int{5, 2}, f32s(0.6, 2)), nil, 1}, []int{3, 4}, []float64{0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9}},
		"Resize aligns the corners of the size that it makes": {
			oneNode{18, "Resize", in([]int{1, 5}, nil, f32s(1, 0.7)), []onnx.Attr{a("mode", "linear"), a("coordinate_transformation_mode", "align_corners")}, 1},
			[]int{1, 3}, []float64{0, 2, 4}},
		"Conv SAME reads the first elements where strides leave some over": {
			oneNode{18, "Conv", in([]int{1, 1, 6}, ir.FromFloats(ir.T(ir.Float32, 1, 1, 1), []float64{1})), []onnx.Attr{a("auto_pad", "SAME_UPPER"), a("strides", []int{3})}, 1},
			[]int{1, 1, 2}, []float64{0, 3}},
		"MaxPool SAME reads those in the middle": {
			oneNode{12, "MaxPool", in([]int{1, 2, 6}), []onnx.Attr{a("auto_pad", "SAME_UPPER"), a("strides", []int{3}), a("kernel_shape", []int{1})}, 1},
			[]int{1, 2, 2}, []float64{1, 4, 7, 10}},
		"Pad wraps around what is left": {
			oneNode{19, "Pad", in([]int{5}, ir.Vector(-1, 3)), []onnx.Attr{a("mode", "wrap")}, 1}, []int{7}, []float64{1, 2, 3, 4, 1, 2, 3}},
		"GroupNormalization of a matrix": {
			oneNode{21, "GroupNormalization", in([]int{1, 4}, f32s(1, 10, 1, 10), f32s(0, 0, 0, 0)), []onnx.Attr{a("num_groups", 2), a("epsilon", 0.0)}, 1},
			[]int{1, 4}, []float64{-1, 10, -1, 10}},
		"Resize 11 to sizes": {
			oneNode{11, "Resize", in([]int{1, 2}, f32s(), f32s(), ir.Vector(1, 4)), []onnx.Attr{a("mode", "linear")}, 1}, []int{1, 4}, []float64{0, 0.25, 0.75, 1}},
		"BatchNormalization 8 by element": {
			oneNode{8, "BatchNormalization", in([]int{1, 2}, f32s(1, 2), f32s(0, 1), f32s(0, 1), f32s(1, 1)), []onnx.Attr{a("spatial", 0), a("epsilon", 0.0)}, 1},
			[]int{1, 2}, []float64{0, 1}},
		"GroupNormalization 18 scales groups": {
			oneNode{18, "GroupNormalization", in([]int{1, 4, 1}, f32s(1, 10), f32s(0, 0)), []onnx.Attr{a("num_groups", 2), a("epsilon", 0.0)}, 1},
			[]int{1, 4, 1}, []float64{-1, 1, -10, 10}},
		"GroupNormalization 21 scales channels": {
			oneNode{21, "GroupNormalization", in([]int{1, 4, 1}, f32s(1, 10, 1, 10), f32s(0, 0, 0, 0)), []onnx.Attr{a("num_groups", 2), a("epsilon", 0.0)}, 1},
			[]int{1, 4, 1}, []float64{-1, 10, -1, 10}},
		"Reshape copies with 0 and infers -1": {oneNode{13, "Reshape", in([]int{2, 3}, ir.Vector(0, -1, 1)), nil, 1}, []int{2, 3, 1}, []float64{0, 1, 2, 3, 4, 5}},
		"SAME_LOWER puts the odd pad first": {
			oneNode{11, "MaxPool", in([]int{1, 1, 3}), []onnx.Attr{a("kernel_shape", []int{2}), a("auto_pad", "SAME_LOWER")}, 1}, []int{1, 1, 3}, []float64{0, 1, 2}},
		"SAME_UPPER puts the odd pad last": {
			oneNode{11, "MaxPool", in([]int{1, 1, 3}), []onnx.Attr{a("kernel_shape", []int{2}), a("auto_pad", "SAME_UPPER")}, 1}, []int{1, 1, 3}, []float64{1, 2, 2}},
		"SAME_UPPER crops where strides are larger than the kernel": {
			oneNode{11, "MaxPool", in([]int{1, 1, 9}), []onnx.Attr{a("kernel_shape", []int{1}), a("strides", []int{3}), a("auto_pad", "SAME_UPPER")}, 1},
			[]int{1, 1, 3}, []float64{1, 4, 7}},
		"Gemm scales both parts": {
			oneNode{13, "Gemm", in([]int{1, 2}, []int{2, 1}, f32s(10)), []onnx.Attr{a("alpha", 0.5), a("beta", 2.0)}, 1}, []int{1, 1}, []float64{20.5}},
		"Resize multiplies sizes in float32": {
			oneNode{13, "Resize", in([]int{10}, nil, f32s(0.7)), []onnx.Attr{a("coordinate_transformation_mode", "asymmetric"), a("nearest_mode", "floor")}, 1},
			[]int{7}, []float64{0, 1, 2, 4, 5, 7, 8}},
		"MaxRoiPool takes the maxima of whole cells": {
			oneNode{13, "MaxRoiPool", in([]int{1, 1, 2, 4}, ir.FromFloats(ir.T(ir.Float32, 1, 5), []float64{0, 1, 0, 3, 1})), []onnx.Attr{a("pooled_shape", []int{1, 2})}, 1},
			[]int{1, 1, 1, 2}, []float64{6, 7}},
		"Einsum without an arrow sorts the letters": {
			oneNode{12, "Einsum", in([]int{1, 2}), []onnx.Attr{a("equation", "ba")}, 1}, []int{2, 1}, []float64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := onnx.Import(c.node.model(t), onnx.ImportOptions{})
			require.NoError(t, err)
			out := evaluate(t, g)[0]
			require.Equal(t, c.shape, out.Shape)
			require.InDeltaSlice(t, c.want, out.Floats(), 1e-6)
		})
	}
}

// Indices count in the image that the file pools, though a part of it is pooled here (ONNX Runtime).
func TestIndicesOfACroppedPool(t *testing.T) {
	a := onnx.A
	for order, want := range map[int][]float64{
		0: {4, 5, 5, 13, 14, 14, 22, 23, 23, 31, 32, 32},
		1: {7, 13, 13, 10, 16, 16, 25, 31, 31, 28, 34, 34},
	} {
		n := oneNode{12, "MaxPool", []any{[]int{1, 2, 6, 3}}, []onnx.Attr{a("auto_pad", "SAME_UPPER"), a("strides", []int{3, 1}), a("kernel_shape", []int{1, 2}), a("storage_order", order)}, 2}
		g, err := onnx.Import(n.model(t), onnx.ImportOptions{})
		require.NoError(t, err)
		require.Equal(t, want, evaluate(t, g)[1].Floats(), "storage_order %d", order)
	}
}

// A range of no length has scale 1 (ONNX Runtime), not 0.
func TestDynamicQuantizationOfZeros(t *testing.T) {
	g, err := onnx.Import(oneNode{11, "DynamicQuantizeLinear", []any{[]int{1}}, nil, 3}.model(t), onnx.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, []float64{1}, evaluate(t, g)[1].Floats())
}

func TestDropoutMaskTypeChangedWithOpset10(t *testing.T) {
	for opset, want := range map[int64]ir.DType{7: ir.Float32, 10: ir.Bool, 13: ir.Bool} {
		mask := []float64{0, 0} // before opset 12, ONNX Runtime's
		if opset >= 12 {
			mask = []float64{1, 1}
		}
		g, err := onnx.Import(oneNode{opset, "Dropout", []any{[]int{2}}, nil, 2}.model(t), onnx.ImportOptions{})
		require.NoError(t, err)
		require.Equal(t, want, g.Outputs[1].Type.DType, "opset %d", opset)
		require.Equal(t, mask, evaluate(t, g)[1].Floats())
	}
}

func TestRefusalsNameOperatorOpsetReasonAndRemedy(t *testing.T) {
	a := onnx.A
	in := func(xs ...any) []any { return xs }
	for _, c := range []struct {
		node        oneNode
		want        string
		unsupported bool
	}{
		{oneNode{17, "NonMaxSuppression", in([]int{1, 1, 4}, []int{1, 1, 1}, ir.Vector(1)), nil, 1},
			`model.onnx: node "out0" (NonMaxSuppression, opset 17): how many outputs there are depends on data; give a bound with --max-output out0=N: outputs are padded to N, and the output out0_count says how many there are`, true},
		{oneNode{17, "Frobnicate", in([]int{1}), nil, 1}, `model.onnx: node "out0" (Frobnicate, opset 17): unknown operator; express it by operators of its opset, or add a function of that name to the model`, true},
		{oneNode{17, "Gelu", in([]int{1}), nil, 1}, `model.onnx: node "out0" (Gelu, opset 17): the operator was introduced in opset 20; express it by operators of its opset, or add a function of that name to the model`, true},
		{oneNode{11, "Upsample", in([]int{1}, f32s(2)), nil, 1}, `model.onnx: node "out0" (Upsample, opset 11): the operator was removed after opset 9; express it by operators of its opset, or add a function of that name to the model`, true},
		{oneNode{13, "Tile", in([]int{2}, []int{1}), nil, 1},
			`model.onnx: node "out0" (Tile, opset 13): repeats is computed from data (input 1, "in1"), so shapes would depend on data; make it a constant`, true},
		{oneNode{17, "RandomNormal", nil, nil, 1}, `model.onnx: node "out0" (RandomNormal, opset 17): it draws random numbers; give them to the model as an input`, true},
		{oneNode{17, "Conv", in([]int{1, 64, 4, 4}, []int{32, 21, 1, 1}), []onnx.Attr{a("group", 3)}, 1},
			`model.onnx: node "out0" (Conv, opset 17): Conv: group=3 does not divide 64 input and 32 output channels`, false},
		{oneNode{17, "Conv", in([]int{1, 2, 4, 4}), nil, 1}, `model.onnx: node "out0" (Conv, opset 17): input 1 is missing`, false},
		{oneNode{17, "PRelu", in([]int{2}), nil, 1}, `model.onnx: node "out0" (PRelu, opset 17): input 1 is missing`, false},
		{oneNode{17, "Transpose", in([]int{2, 3}), []onnx.Attr{a("perm", []int{0, 0})}, 1}, `model.onnx: node "out0" (Transpose, opset 17): perm [0 0] names axis 0 twice`, false},
		{oneNode{17, "Add", in([]int{2}, []int{3}), nil, 1}, `model.onnx: node "out0" (Add, opset 17): Add: shapes [[2] [3]] do not broadcast`, false},
		{oneNode{17, "Add", in([]int{2}, ir.Vector(1)), nil, 1},
			`model.onnx: node "out0" (Add, opset 17): Add: a is f32 but b is i64: they must have one element type`, false},
		{oneNode{17, "Transpose", in([]int{2, 2}), []onnx.Attr{a("perm", []int{0, 5})}, 1},
			`model.onnx: node "out0" (Transpose, opset 17): axis 5 is out of range for a value of rank 2`, false},
		{oneNode{17, "Softmax", in([]int{2}), []onnx.Attr{a("axis", 1.5)}, 1},
			`model.onnx: node "out0" (Softmax, opset 17): attribute "axis" is of kind FLOAT, want INT`, false},
		{oneNode{17, "Concat", in([]int{2}, []int{2}), nil, 1}, `model.onnx: node "out0" (Concat, opset 17): attribute "axis" is missing`, false},
		{oneNode{13, "Reshape", in([]int{2, 3}, ir.Vector(4, -1)), nil, 1},
			`model.onnx: node "out0" (Reshape, opset 13): f32[2,3] has 6 elements, which shape [4 -1] cannot hold`, false},
		{oneNode{17, "RoiAlign", in([]int{1, 1, 4, 4}, []int{1, 4}, ir.Vector(0)), []onnx.Attr{a("mode", "max")}, 1},
			`model.onnx: node "out0" (RoiAlign, opset 17): sampling_ratio=0 with mode "max": the number of samples depends on the regions, which are data; export it with a positive sampling_ratio, or with mode "avg"`, true},
		{oneNode{17, "RoiAlign", in([]int{1, 1, 4, 4}, []int{1, 4}, ir.Vector(0)), []onnx.Attr{a("sampling_ratio", -1)}, 1},
			`model.onnx: node "out0" (RoiAlign, opset 17): sampling_ratio=-1: want a positive number, or 0 for as many samples as a bin has pixels`, false},
		{oneNode{17, "RoiAlign", in([]int{1, 1, 4, 4}, []int{2, 4}, ir.Vector(0)), nil, 1},
			`model.onnx: node "out0" (RoiAlign, opset 17): x f32[1,1,4,4], rois f32[2,4] and batch_indices i64[1] do not fit: want [N,C,H,W], [R,4] and [R]`, false},
		{oneNode{17, "RoiAlign", in([]int{1, 1, 0, 4}, []int{1, 4}, ir.Vector(0)), []onnx.Attr{a("sampling_ratio", 2)}, 1},
			`model.onnx: node "out0" (RoiAlign, opset 17): RoiAlign: x f32[1,1,0,4] has an empty spatial dimension`, false},
		{oneNode{17, "Gemm", in(ir.FromInts(ir.T(ir.Int32, 1, 1), []int64{2}), ir.FromInts(ir.T(ir.Int32, 1, 1), []int64{2})), []onnx.Attr{a("alpha", .5)}, 1},
			`model.onnx: node "out0" (Gemm, opset 17): scaling integers by alpha=0.5 and beta=1 is not supported; multiply in another node`, true},
		{oneNode{17, "Det", in([]int{129, 129}), nil, 1}, `model.onnx: node "out0" (Det, opset 17): determinants of matrices larger than 128×128 are not supported; compute it outside of the model`, true},
		{oneNode{17, "Dropout", in([]int{2}, f32s(.5), ir.FromInts(ir.T(ir.Bool), []int64{1})), nil, 1},
			`model.onnx: node "out0" (Dropout, opset 17): training_mode drops elements at random; export the model for inference`, true},
		{oneNode{17, "Range", in(ir.FromInts(ir.T(ir.Int64), []int64{0}), ir.FromInts(ir.T(ir.Int64), []int64{1 << 40}), ir.FromInts(ir.T(ir.Int64), []int64{1})), nil, 1},
			`model.onnx: node "out0" (Range, opset 17): the range from 0 to 1099511627776 by 1 has more than 65536 elements; compute it outside of the model`, true},
		{oneNode{17, "DFT", in([]int{1, 1 << 14, 1}), nil, 1}, `model.onnx: node "out0" (DFT, opset 17): a transform of 16384 elements: transforms become matrix products, of at most 2048; compute it outside of the model, or on shorter frames`, true},
		{oneNode{17, "Cast", in([]int{2}), []onnx.Attr{a("to", 8)}, 1}, `model.onnx: node "out0" (Cast, opset 17): to: element type string is not supported; export it with numbers of up to 64 bits`, true},
	} {
		t.Run(c.node.op, func(t *testing.T) {
			_, err := onnx.Import(c.node.model(t), onnx.ImportOptions{})
			var e *onnx.Error
			require.ErrorAs(t, err, &e)
			if !c.unsupported {
				c.want += "; the file breaks the rules of ONNX here, of which onnx.checker may say more: export it again"
			}
			require.Equal(t, c.want, err.Error())
			require.Equal(t, c.unsupported, e.Unsupported)
		})
	}
}

// vision is a model whose Reshape computes its shape from its input's, as exporters write it.
func vision(t *testing.T, batch any) *onnx.Model {
	b := onnx.NewBuilder("g", 17)
	b.Input("img", ir.Float32, batch, 3, "h", "w")
	shape := b.Op("Shape", []string{"img"})
	n := b.Op("Gather", []string{shape, b.Initializer("zero", ir.Vector(0))})
	target := b.Op("Concat", []string{n, b.Initializer("rest", ir.Vector(-1))}, onnx.A("axis", 0))
	b.Node("Reshape", []string{"img", target}, []string{"flat"})
	b.Output("flat", ir.Float32, "b", "k")
	m, err := b.Model()
	require.NoError(t, err)
	m.Path = "vision.onnx"
	return m
}

func TestShapesAreResolvedAtImport(t *testing.T) {
	g, err := onnx.Import(vision(t, 1), onnx.ImportOptions{Shapes: map[string][]int{"img": {1, 3, 4, 5}}})
	require.NoError(t, err)
	require.Len(t, g.Nodes, 1, "shape arithmetic leaves no nodes")
	require.Equal(t, "Reshape", g.Nodes[0].Op.Name)
	require.Equal(t, ir.T(ir.Float32, 1, 60), g.Outputs[0].Type)
	require.Equal(t, "flat", g.Outputs[0].Name)

	g, err = onnx.Import(vision(t, "n"), onnx.ImportOptions{Shapes: map[string][]int{"img": {4, 3, 2, 2}}, Batch: 4})
	require.NoError(t, err)
	require.Equal(t, []int{4, 12}, g.Outputs[0].Type.Shape)
}

func TestUnresolvedAndContradictingDimensions(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  onnx.ImportOptions
		want string
	}{
		{"nothing given", onnx.ImportOptions{},
			`vision.onnx: input "img": dimension 2 ("h") is not fixed; give its shape, of 4 dimensions, with --shape img=…`},
		{"unknown input", onnx.ImportOptions{Shapes: map[string][]int{"image": {1}}},
			`vision.onnx: a shape or value is given for "image", which is not an input; the inputs are img`},
		{"wrong rank", onnx.ImportOptions{Shapes: map[string][]int{"img": {1, 3}}},
			`vision.onnx: input "img" has 4 dimensions, the given shape [1 3] has 2; give a size for each`},
		{"fixed dimension", onnx.ImportOptions{Shapes: map[string][]int{"img": {1, 4, 2, 2}}},
			`vision.onnx: input "img": dimension 1 is 3 in the model, but 4 in the given shape [1 4 2 2]; give 3, or export the model with a symbolic dimension`},
		{"overflow", onnx.ImportOptions{Shapes: map[string][]int{"img": {1, 3, 1 << 30, 1 << 30}}},
			`vision.onnx: input "img": shape [1 3 1073741824 1073741824] has more than 2^40 elements; give another one with --shape img=…`},
		{"negative", onnx.ImportOptions{Shapes: map[string][]int{"img": {1, 3, -1, 2}}},
			`vision.onnx: input "img": shape [1 3 -1 2] has a negative dimension; give another one with --shape img=…`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := onnx.Import(vision(t, 1), c.opt)
			require.EqualError(t, err, c.want)
		})
	}
}

func TestMinusOneIsASymbolicDimension(t *testing.T) {
	model := func() *onnx.Model {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, -1, 3, -1)
		b.Node("Relu", []string{"x"}, []string{"y"})
		b.Output("y", ir.Float32, -1, 3, -1)
		m, err := b.Model()
		require.NoError(t, err)
		m.Path = "model.onnx"
		return m
	}
	g, err := onnx.Import(model(), onnx.ImportOptions{Shapes: map[string][]int{"x": {2, 3, 5}}})
	require.NoError(t, err)
	require.Equal(t, []int{2, 3, 5}, g.Outputs[0].Type.Shape)
	_, err = onnx.Import(model(), onnx.ImportOptions{Batch: 4})
	require.EqualError(t, err, `model.onnx: input "x": dimension 2 is not fixed; give its shape, of 3 dimensions, with --shape x=…`)
	_, err = onnx.Import(model(), onnx.ImportOptions{})
	require.EqualError(t, err, `model.onnx: input "x": dimension 2 is not fixed; give its shape, of 3 dimensions, with --shape x=…`)
	_, err = onnx.Import(model(), onnx.ImportOptions{Shapes: map[string][]int{"x": {2, 4, 5}}})
	require.EqualError(t, err, `model.onnx: input "x": dimension 1 is 3 in the model, but 4 in the given shape [2 4 5]; give 3, or export the model with a symbolic dimension`)
}

// TestBatchWhereTheModelFixesOne: every sample gets what it gets alone.
func TestBatchWhereTheModelFixesOne(t *testing.T) {
	m := oneNode{17, "Reshape", []any{[]int{1, 6}, ir.Vector(2, 3)}, nil, 1}.model(t)
	g, err := onnx.Import(m, onnx.ImportOptions{Batch: 4})
	require.NoError(t, err)
	require.Equal(t, []int{8, 3}, g.Outputs[0].Type.Shape, "two rows a sample")
	m = oneNode{17, "Softmax", []any{[]int{1, 6}}, []onnx.Attr{onnx.A("axis", 0)}, 1}.model(t)
	g, err = onnx.Import(m, onnx.ImportOptions{Batch: 4})
	require.NoError(t, err)
	x := ir.NewArray(ir.T(ir.Float32, 4, 6))
	out, err := ir.Evaluate(context.Background(), g, map[string]*ir.Array{"in0": x}, ir.EvalOptions{})
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]float64{1}, 24), out["out0"].F, "not over the samples")
	m = oneNode{17, "Relu", []any{[]int{25, 6}}, nil, 1}.model(t)
	_, err = onnx.Import(m, onnx.ImportOptions{Batch: 2})
	require.EqualError(t, err, `model.onnx: input "in0": its leading dimension is 25, but --batch can only replace a batch of 1; leave out --batch, or export the model with a symbolic batch dimension`)
}

// A graph may hand an input through: its output needs a name of its own.
func TestAnOutputThatIsAnInput_GetsANameOfItsOwn(t *testing.T) {
	for want, outputs := range map[string][]string{
		"[x_output y]":           {"x", "y"},
		"[y x_output_ x_output]": {"y", "x", "x_output"},
	} {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, 2)
		b.Node("Relu", []string{"x"}, []string{"y"})
		b.Node("Neg", []string{"x"}, []string{"x_output"})
		for _, name := range outputs {
			b.Output(name, ir.Float32, 2)
		}
		m, err := b.Model()
		require.NoError(t, err)
		m.Path = "m.onnx"
		var warnings []string
		g, err := onnx.Import(m, onnx.ImportOptions{Warn: func(text string) { warnings = append(warnings, text) }})
		require.NoError(t, err)
		require.NoError(t, g.Verify())
		var names []string
		for _, v := range g.Outputs {
			names = append(names, v.Name)
		}
		require.Equal(t, want, fmt.Sprint(names))
		is := names[slices.Index(outputs, "x")]
		require.Equal(t, []string{fmt.Sprintf(
			`m.onnx: output "x" is an input, and a program has each name once: the output is named %q`, is)}, warnings)
		x := &ir.Array{Type: ir.T(ir.Float32, 2), F: []float64{-1, 2}}
		out, err := ir.Evaluate(t.Context(), g, map[string]*ir.Array{"x": x}, ir.EvalOptions{})
		require.NoError(t, err)
		require.Equal(t, []float64{-1, 2}, out[is].F)
	}
}

func TestShapeInputsAreThoseThatReachAShape(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, "n")
	b.Input("like", ir.Float32, 2)
	b.Input("repeats", ir.Int64, 1)
	b.Input("more", ir.Int64, 1)
	sum := b.Op("Add", []string{"repeats", "more"})
	y := b.Op("Tile", []string{"x", sum})
	b.Node("Expand", []string{y, b.Op("Shape", []string{"like"})}, []string{"y"})
	b.Output("y", ir.Float32, "m")
	m, err := b.Model()
	require.NoError(t, err)
	require.Equal(t, []string{"repeats", "more"}, onnx.ShapeInputs(m))

	g, err := onnx.Import(m, onnx.ImportOptions{
		Shapes:    map[string][]int{"x": {1}},
		Constants: map[string]*ir.Tensor{"repeats": ir.Vector(1), "more": ir.Vector(1)},
	})
	require.NoError(t, err)
	require.Len(t, g.Inputs, 2)
	require.Equal(t, []int{2}, g.Outputs[0].Type.Shape)

	_, err = onnx.Import(m, onnx.ImportOptions{Shapes: map[string][]int{"x": {1}}})
	require.ErrorContains(t, err, "repeats is computed from data")
}

func TestOutputsKeepTheirNames(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, 2)
	for _, out := range []string{"same", "again"} {
		b.Node("Identity", []string{"x"}, []string{out})
		b.Output(out, ir.Float32, 2)
	}
	b.Node("Identity", []string{b.Initializer("c", f32s(5, 6))}, []string{"constant"})
	b.Output("constant", ir.Float32, 2)
	b.Node("Relu", []string{"x"}, []string{"a~1"})
	b.Output("a~1", ir.Float32, 2)
	m, err := b.Model()
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	var names []string
	for _, v := range g.Outputs {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{"same", "again", "constant", "a~1"}, names)
	outs := evaluate(t, g)
	require.Equal(t, []float64{0, 1}, outs[1].Floats())
	require.Equal(t, []float64{5, 6}, outs[2].Floats())
}

func TestOutput_DeclaredTypeMustAgree(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, 2)
	b.Node("Relu", []string{"x"}, []string{"y"})
	b.Output("y", ir.Float16, 2)
	m, err := b.Model()
	require.NoError(t, err)
	_, err = onnx.Import(m, onnx.ImportOptions{})
	require.EqualError(t, err, `output "y" is declared as f16, but computed as f32; `+
		`the file breaks the rules of ONNX here, of which onnx.checker may say more: export it again`)
}

func TestOutput_AnotherDeclaredShapeIsAWarning(t *testing.T) {
	for want, dims := range map[string][]any{
		`m.onnx: output "y" is declared with shape [], but computed with [2], which counts`:    {},
		`m.onnx: output "y" is declared with shape [3], but computed with [2], which counts`:   {3},
		`m.onnx: output "y" is declared with shape [n 2], but computed with [2], which counts`: {"n", 2},
		"": {"n"},
	} {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, 2)
		b.Node("Relu", []string{"x"}, []string{"y"})
		b.Output("y", ir.Float32, dims...)
		m, err := b.Model()
		require.NoError(t, err)
		m.Path = "m.onnx"
		var warnings []string
		g, err := onnx.Import(m, onnx.ImportOptions{Warn: func(text string) { warnings = append(warnings, text) }})
		require.NoError(t, err)
		require.Equal(t, []int{2}, g.Outputs[0].Type.Shape)
		require.Equal(t, want, strings.Join(warnings, "\n"))
	}
}

// One name for dimensions of several sizes binds neither, and is a warning unless exporters give it to all dimensions.
func TestSymbolicDimension_OfSeveralSizes(t *testing.T) {
	for name, want := range map[string]string{
		"n":   `m.onnx: input "b": dimension "n" is 3, but 2 elsewhere: each input keeps the size that is given for it`,
		"?":   "",
		"unk": "",
	} {
		build := func() *onnx.Model {
			b := onnx.NewBuilder("g", 17)
			b.Input("a", ir.Float32, name, 1)
			b.Input("b", ir.Float32, name)
			b.Node("Add", []string{"a", "b"}, []string{"y"})
			b.Output("y", ir.Float32, name, name)
			m, err := b.Model()
			require.NoError(t, err)
			m.Path = "m.onnx"
			return m
		}
		var warnings []string
		warn := func(text string) { warnings = append(warnings, text) }
		g, err := onnx.Import(build(), onnx.ImportOptions{Warn: warn, Shapes: map[string][]int{"a": {2, 1}, "b": {3}}})
		require.NoError(t, err, name)
		require.Equal(t, []int{2, 3}, g.Outputs[0].Type.Shape)
		require.Equal(t, want, strings.Join(warnings, "\n"))

		m := build()
		m.Proto.Graph.Input = append(m.Proto.Graph.Input, proto.Clone(m.Proto.Graph.Input[0]).(*onnxpb.ValueInfoProto))
		m.Proto.Graph.Input[2].Name = proto.String("c")
		m.Proto.Graph.Input[2].Type.GetTensorType().Shape.Dim[1] = proto.Clone(m.Proto.Graph.Input[2].Type.GetTensorType().Shape.Dim[0]).(*onnxpb.TensorShapeProto_Dimension)
		_, err = onnx.Import(m, onnx.ImportOptions{Shapes: map[string][]int{"a": {2, 1}, "b": {3}}})
		if name == "n" { // which says nothing of c
			require.ErrorContains(t, err, `m.onnx: input "c": dimension 1`, name)
		}
		require.ErrorContains(t, err, "is not fixed; give its shape, of 2 dimensions, with --shape c=…")
	}
}

// TestSymbolicDimension_LeadingOneIsOne with a warning, wherever its name stands; others have to be given.
func TestSymbolicDimension_LeadingOneIsOne(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, "batch", 3)
	b.Input("z", ir.Float32, 3, "batch")
	b.Node("MatMul", []string{"x", "z"}, []string{"y"})
	b.Output("y", ir.Float32, "batch", "batch")
	m, err := b.Model()
	require.NoError(t, err)
	var warnings []string
	g, err := onnx.Import(m, onnx.ImportOptions{Warn: func(text string) { warnings = append(warnings, text) }})
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, g.Outputs[0].Type.Shape)
	require.Equal(t, []string{`input "x": its leading dimension is not fixed and taken as 1: give another with --batch or --shape`}, warnings)
}

// A batch is not the size of every dimension of the same unspecific name.
func TestSymbolicDimension_UnnamedIsNotTheBatch(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, "?", "?")
	b.Node("Relu", []string{"x"}, []string{"y"})
	b.Output("y", ir.Float32, "?", "?")
	m, err := b.Model()
	require.NoError(t, err)
	_, err = onnx.Import(m, onnx.ImportOptions{Batch: 4})
	require.EqualError(t, err, `input "x": dimension 1 is not fixed; give its shape, of 2 dimensions, with --shape x=…`)
}

func TestHalfCompositesRoundOnce(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float16, 3)
	b.Node("HardSwish", []string{"x"}, []string{"y"})
	b.Output("y", ir.Float16, 3)
	m, err := b.Model()
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	for i, n := range g.Nodes {
		first, last := i == 0, i == len(g.Nodes)-1
		require.Equal(t, first || last, n.Op.Name == "Cast", "node %d is %s", i, n.Op.Name)
		require.Equal(t, last, n.Outputs[0].Type.DType == ir.Float16)
	}
}

func TestOnlyTensorsAreInputs(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("s", ir.Float32)
	b.Node("SequenceAt", []string{"s"}, []string{"y"})
	b.Output("y", ir.Float32)
	b.Graph().Input[0].Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{}}
	m, err := b.Model()
	require.NoError(t, err)
	_, err = onnx.Import(m, onnx.ImportOptions{})
	require.EqualError(t, err, `input "s" is of type sequence; only tensors are supported; export it with tensors for inputs`)
}
