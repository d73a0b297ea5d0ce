package onnx_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// contrib imports a node of com.microsoft. Inputs are constants, but for those that are data; nil is an absent one.
func contrib(t *testing.T, op string, in []*ir.Tensor, data []int, outputs int, attrs ...onnx.Attr) (*ir.Graph, error) {
	t.Helper()
	b := onnx.NewBuilder("g", 21)
	b.Opset("com.microsoft", 1)
	var names, outs []string
	for i, x := range in {
		name := fmt.Sprintf("in%d", i)
		if x == nil {
			name = ""
		} else {
			b.Initializer(name, x)
		}
		names = append(names, name)
	}
	for _, i := range data {
		name := names[i]
		list := b.Graph().Initializer
		for k, p := range list {
			if p.GetName() == name {
				b.Graph().Initializer = append(list[:k:k], list[k+1:]...)
			}
		}
		dims := make([]any, in[i].Rank())
		for k, d := range in[i].Shape {
			dims[k] = d
		}
		b.Input(name, in[i].DType, dims...)
	}
	for i := range outputs {
		outs = append(outs, fmt.Sprintf("out%d", i))
		b.Output(outs[i], ir.Invalid)
	}
	n := b.Node(op, names, outs, attrs...)
	domain := "com.microsoft"
	n.Domain = &domain
	for _, out := range b.Graph().Output {
		out.Type = nil
	}
	m, err := b.Model()
	require.NoError(t, err)
	return onnx.Import(m, onnx.ImportOptions{})
}

// holds evaluates a node of com.microsoft twice, with the inputs of data as constants and as data, and compares its
// outputs.
func holds(t *testing.T, op string, in []*ir.Tensor, data []int, want [][]float64, attrs ...onnx.Attr) {
	t.Helper()
	for _, data := range [][]int{nil, data} {
		g, err := contrib(t, op, in, data, len(want), attrs...)
		require.NoError(t, err)
		feed := map[string]*ir.Array{}
		for _, i := range data {
			feed[fmt.Sprintf("in%d", i)] = in[i].Array()
		}
		outs, err := ir.Evaluate(context.Background(), g, feed, ir.EvalOptions{})
		require.NoError(t, err)
		for k := range want {
			require.NoError(t, g.Verify())
			got := outs[fmt.Sprintf("out%d", k)].Tensor().Floats()
			require.InDeltaSlice(t, want[k], got, 1e-6, "output %d, data %v", k, data)
		}
	}
}

func numbers(shape []int, xs ...float64) *ir.Tensor {
	return ir.FromFloats(ir.T(ir.Float32, shape...), xs)
}

func integers(d ir.DType, shape []int, xs ...int64) *ir.Tensor {
	return ir.FromInts(ir.T(d, shape...), xs)
}

// One token after one of a cache for three. Of scores log 3 and 0 the weights are 3/4 and 1/4.
func TestGroupQueryAttention_ByHand(t *testing.T) {
	cache := []int{1, 1, 3, 2}
	in := []*ir.Tensor{
		numbers([]int{1, 1, 4}, math.Log(3), 0, 0, 0), numbers([]int{1, 1, 2}, 0, 1), numbers([]int{1, 1, 2}, 16, 32),
		numbers(cache, 1, 0, 9, 9, 9, 9), numbers(cache, 4, 8, 9, 9, 9, 9),
		integers(ir.Int32, []int{1}, 1), integers(ir.Int32, nil, 2),
	}
	keys, values := []float64{1, 0, 0, 1, 0, 0}, []float64{4, 8, 16, 32, 0, 0}
	heads := []onnx.Attr{onnx.A("num_heads", 2), onnx.A("kv_num_heads", 1), onnx.A("scale", 1.0)}
	with := func(more ...onnx.Attr) []onnx.Attr { return append(heads[:3:3], more...) }
	data := []int{0, 1, 2, 3, 4, 5}
	holds(t, "GroupQueryAttention", in, data, [][]float64{{7, 14, 10, 20}, keys, values}, heads...)
	holds(t, "GroupQueryAttention", in, data, [][]float64{{16, 32, 16, 32}, keys, values},
		with(onnx.A("local_window_size", 1))...)
	holds(t, "GroupQueryAttention", in, data, [][]float64{{5.6, 11.2, 20. / 3, 40. / 3}, keys, values},
		with(onnx.A("smooth_softmax", true))...)

	angles := append(in[:7:7], numbers([]int{2, 1}, 1, 0), numbers([]int{2, 1}, 0, 1)) // a quarter turn at position 1
	turned := []float64{1, 0, -1, 0, 0, 0}
	score := []float64{math.Exp(0), math.Exp(0)} // of the query [0, log 3] with [1, 0] and [−1, 0]
	share := score[0] / (score[0] + score[1])
	holds(t, "GroupQueryAttention", angles, data, [][]float64{
		{4*share + 16*(1-share), 8*share + 32*(1-share), 10, 20}, turned, values}, with(onnx.A("do_rotary", true))...)
}

func TestGroupQueryAttention_WhatIsNotSupportedIsRefused(t *testing.T) {
	x, kv := numbers([]int{2, 2, 4}, make([]float64, 16)...), numbers([]int{2, 2, 2}, make([]float64, 8)...)
	in := []*ir.Tensor{x, kv, kv, nil, nil, integers(ir.Int32, []int{2}, 1, 1), integers(ir.Int32, nil, 2)}
	attrs := []onnx.Attr{onnx.A("num_heads", 2), onnx.A("kv_num_heads", 1)}
	for _, c := range []struct {
		want string
		in   []*ir.Tensor
		data []int
		more []onnx.Attr
	}{
		{`k_quant_type="PER_TENSOR" is not supported; export it with a cache of floats`, in, nil,
			[]onnx.Attr{onnx.A("k_quant_type", "PER_TENSOR")}},
		{"sliding_window_cache is not supported; export it with a cache of all tokens", in, nil,
			[]onnx.Attr{onnx.A("sliding_window_cache", true)}},
		{"input q_norm_weight is not supported; export it with nodes for that",
			append(in[:7:7], nil, nil, nil, nil, nil, nil, nil, numbers([]int{2}, 1, 1)), nil, nil},
		{"total_sequence_length is computed from data (input 6", in, []int{6}, nil},
		{"total_sequence_length is 1, but 2 tokens are new", append(in[:6:6], integers(ir.Int32, nil, 1)), nil, nil},
		{"several tokens after cached ones in a batch of 2 are not supported; compile it for a batch of 1",
			append(in[:6:6], integers(ir.Int32, nil, 3)), nil, nil},
		{"past_key and past_value must be there both, or neither",
			append(in[:3:3], numbers([]int{2, 1, 1, 2}, 0, 0, 0, 0), nil, in[5], in[6]), nil, nil},
		{"seqlens_k is i32[1], want a number for each of 2 samples",
			append(in[:5:5], integers(ir.Int32, []int{1}, 1), in[6]), nil, nil},
	} {
		_, err := contrib(t, "GroupQueryAttention", c.in, c.data, 1, append(attrs[:2:2], c.more...)...)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, `node "out0" (com.microsoft.GroupQueryAttention, opset 1)`)
	}
}

func TestMicrosoftRotaryEmbedding_ByHand(t *testing.T) {
	x := numbers([]int{1, 2, 4}, 1, 2, 3, 4, 1, 2, 3, 4)
	cos, sin := numbers([]int{2, 2}, 1, 0, 0, 1), numbers([]int{2, 2}, 0, 1, 1, 0)
	for _, positions := range []*ir.Tensor{
		integers(ir.Int64, []int{1}, 0), integers(ir.Int64, []int{1, 2}, 0, 1),
	} {
		in := []*ir.Tensor{x, positions, cos, sin}
		holds(t, "RotaryEmbedding", in, []int{0, 1}, [][]float64{{1, -4, 3, 2, -3, 2, 1, 4}})
		holds(t, "RotaryEmbedding", in, []int{0, 1}, [][]float64{{1, 2, -4, 3, -2, 1, 3, 4}}, onnx.A("interleaved", true))
	}
}

// Bytes hold 1 to 8 in two rows of two blocks.
func TestGatherBlockQuantized_ByHand(t *testing.T) {
	in := []*ir.Tensor{
		integers(ir.Uint8, []int{2, 2}, 0x21, 0x43, 0x65, 0x87), integers(ir.Int32, []int{3}, 1, -2, 5),
		numbers([]int{2, 2}, 1, 10, 100, 1000),
	}
	block := onnx.A("block_size", 2)
	holds(t, "GatherBlockQuantized", in, []int{1},
		[][]float64{{-300, -200, -1000, 0, -7, -6, -50, -40, 0, 0, 0, 0}}, block)
	in = append(in, integers(ir.Uint8, []int{2, 1}, 0x21, 0x80))
	holds(t, "GatherBlockQuantized", in, []int{1}, [][]float64{{500, 600, -1000, 0, 0, 1, 10, 20, 0, 0, 0, 0}}, block)
	_, err := contrib(t, "GatherBlockQuantized", in, nil, 1, block, onnx.A("gather_axis", 1), onnx.A("quantize_axis", 0))
	require.ErrorContains(t, err, "gather_axis=1, along which bytes hold several elements, is not supported; "+
		"gather along another axis")
}

// Columns 1 and 3 are block 0, columns 0 and 2 block 1.
func TestMatMulNBits_ColumnsInAnotherOrder(t *testing.T) {
	in := []*ir.Tensor{
		numbers([]int{1, 4}, 1, 10, 100, 1000), integers(ir.Uint8, []int{1, 2, 1}, 0x21, 0x43), numbers([]int{1, 2}, 1, 10),
		integers(ir.Uint8, []int{1, 1}, 0x21), integers(ir.Int32, []int{4}, 1, 0, 1, 0),
	}
	attrs := []onnx.Attr{onnx.A("N", 1), onnx.A("K", 4), onnx.A("bits", 4), onnx.A("block_size", 2)}
	holds(t, "MatMulNBits", in, []int{0}, [][]float64{{4000}}, attrs...)
	in[3] = numbers([]int{1, 2}, 0.5, 20) // 20 is no code
	holds(t, "MatMulNBits", in, []int{0}, [][]float64{{-13675}}, attrs...)
	in[4] = integers(ir.Int32, []int{4}, 0, 0, 0, 1)
	_, err := contrib(t, "MatMulNBits", in, []int{0}, 1, attrs...)
	require.ErrorContains(t, err, "g_idx has block 0 for column 2, so that block 1 has not 2 columns")
	require.ErrorContains(t, err, "quantise blocks of block_size columns each")
}
