package ir

import "slices"

// Attributes of ops with windows: of all, and of pools.
var (
	sliding = []Attr{{Name: "strides", Default: []int(nil), Required: true}, {Name: "pads", Default: []int(nil), Required: true}, {Name: "dilations", Default: []int(nil), Required: true}, {Name: "layout", Default: "NCHW"}}
	pooling = slices.Concat(sliding, []Attr{{Name: "kernel", Default: []int(nil), Required: true}, {Name: "ceil", Default: false}})
)

// What a kernel of MatMulSum holds in shared memory from its beginning: a chunk of the second product, and the
// factors of all columns of a.
const (
	MostAdded   = 64   // columns of c
	MostFactors = 2048 // columns of a, if it has factors
)

// Contractions, windows, recurrent layers. Image layouts: "NCHW" means channels at dimension 1 whatever the number of
// spatial dimensions, "NHWC" channels last. Pads are begin of every spatial dimension, then end of every one.
var _ = register(
	Op{Name: "MatMul", Kind: KindContraction, In: "a number, b a",
		Attrs:   []Attr{{Name: "transA", Default: false}, {Name: "transB", Default: false}},
		Summary: "numpy.matmul after transposing the last two dimensions where asked; operands of one type, integers wrap",
		Grad:    gradMatMul, Batch: batchMatMul, Infer: inferMatMul, Eval: evalMatMul, Matrix: []int{0, 1}, Role: matMulRole, Weights: matMulWeights, MACs: matMulMACs},
	Op{Name: "MatMulSum", Kind: KindContraction, Unscaled: true, In: "a float, b a, c a, d a, s? a",
		Attrs:   []Attr{{Name: "transB", Default: false}, {Name: "transD", Default: false}},
		Summary: "(a ⊙ s)·b + c·d for matrices b and d, transposed where asked, rows [..., K] of a and c, and factors s of a's columns: one product whose sum goes on with other operands",
		Infer:   inferMatMulSum, Expand: expandMatMulSum, Matrix: []int{0, 1, 2, 3}, Role: matMulRole, MACs: matMulSumMACs},
	Op{Name: "Conv", Kind: KindContraction, In: "x number, w x, b? x",
		Attrs:   slices.Concat(sliding, []Attr{{Name: "group", Default: 1}}),
		Summary: "w is [out, in/group, spatial…] in either layout (ONNX Conv 11, pads resolved)",
		Grad:    gradConv, Batch: alongRows(0), Infer: inferConv, Eval: evalConv, Matrix: []int{0, 1}, Bias: 2, Moved: []string{"Transpose", "Slice"}, Role: convRole, Weights: convWeights, MACs: convMACs},
	Op{Name: "ConvTranspose", Kind: KindContraction, In: "x float, w x, b? x",
		Attrs:   slices.Concat(sliding, []Attr{{Name: "output_padding", Default: []int(nil), Required: true}, {Name: "group", Default: 1}}),
		Summary: "w is [in, out/group, spatial…] (ONNX ConvTranspose 11, pads resolved)",
		Grad:    gradConvTranspose, Batch: alongRows(0), Infer: inferConvTranspose, Eval: evalConvTranspose, Bias: 2, Weights: convTransposeWeights, MACs: convTransposeMACs},
	Op{Name: "Einsum", Kind: KindContraction, In: "x* number",
		Attrs:   []Attr{{Name: "equation", Default: "", Required: true}},
		Summary: "explicit form only, ellipsis expanded to letters: ab,bc->ac",
		Batch:   batchEinsum, Infer: inferEinsum, Expand: expandEinsum, MACs: einsumMACs},
	Op{Name: "Attention", Kind: KindContraction, Unscaled: true, Moved: []string{"Transpose", "Slice"}, In: "q float, k q, v q, mask? float",
		Attrs:   []Attr{{Name: "scale", Default: 1.0, Required: true}, {Name: "causal", Default: false}, {Name: "softcap", Default: 0.0}},
		Summary: "softmax(q·kᵀ·scale + mask)·v for q [B,H,S,D], k [B,Hk,T,D], v [B,Hk,T,Dv] (Hk divides H); mask is additive float, broadcast to [B,H,S,T]; causal masks j > i; a query with all keys masked by -∞ yields 0",
		Grad:    gradAttention, Batch: batchAttention, Infer: inferAttention, Eval: evalAttention, Matrix: []int{0, 1, 2}, Role: attentionRole, MACs: attentionMACs},
	Op{Name: "AttentionGrad", Kind: KindContraction, Unscaled: true, Moved: []string{"Transpose", "Slice"}, In: "q float, k q, v q, dy q, mask? float",
		Attrs:   []Attr{{Name: "scale", Default: 1.0, Required: true}, {Name: "causal", Default: false}},
		Summary: "gradients of the q, k and v of an Attention without softcap whose heads have keys of their own, from that of its result: y[0], y[1], y[2], each padded by zeros to [B,H,max(S,T),max(D,Dv)]",
		Infer:   inferAttentionGrad, Expand: expandAttentionGrad, Matrix: []int{0, 1, 2, 3}, Role: attentionGradRole, MACs: attentionGradMACs},

	Op{Name: "MaxPool", Kind: KindWindow, In: "x number", Out: []string{"y", "indices?"},
		Attrs:   slices.Concat(pooling, []Attr{{Name: "indices", Default: false}, {Name: "column_major", Default: false}}),
		Summary: "padding never wins; indices are i64 offsets into the whole x (ONNX MaxPool 12)",
		Grad:    gradMaxPool, Batch: batchMaxPool, Infer: pooled, Eval: evalPool, Role: windowRole},
	Op{Name: "AveragePool", Kind: KindWindow, In: "x float",
		Attrs:   slices.Concat(pooling, []Attr{{Name: "include_pad", Default: false}}),
		Summary: "ONNX AveragePool 19",
		Grad:    gradAveragePool, Batch: alongRows(0), Infer: pooled, Eval: evalPool, Role: windowRole},
	Op{Name: "LpPool", Kind: KindWindow, In: "x float",
		Attrs:   slices.Concat(pooling, []Attr{{Name: "p", Default: 2}}),
		Summary: "(Σ|x|^p)^(1/p) over the window",
		Grad:    gradLpPool, Batch: alongRows(0), Infer: pooled, Eval: evalPool, Role: windowRole},

	Op{Name: "SegmentedMatVec", Kind: KindContraction, Unscaled: true, In: "x number, w x, b? x, offset index, length offset",
		Summary: "many small matrix-vector products in one: x is a vector [L], w [N,Kmax], offset and length i32 [N]: y[j] = Σ_{k<length[j]} w[j,k]·x[offset[j]+k] + b[j]",
		Infer:   inferSegmentedMatVec, Eval: evalSegmentedMatVec, Bias: 2, Weights: segmentedMatVecWeights, MACs: segmentedMatVecMACs},
	Op{Name: "Region", Kind: KindRegion, In: "x*",
		Summary: "a fused subgraph that becomes one kernel: see the type Region",
		Infer:   inferRegion, MACs: regionMACs},
)

// Depthwise reports whether n is a Conv in which every output channel reads exactly one of several input channels:
// more than one group, and one input channel a group; there may be several output channels a group. A Conv of one
// input channel is dense.
func (n *Node) Depthwise() bool {
	return n.Op.Name == "Conv" && n.Attrs.Int("group", 1) > 1 && n.Inputs[1].Type.Shape[1] == 1
}
