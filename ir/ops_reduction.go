package ir

// Reductions and normalisations. Axes are in [0, rank), sorted; no axes means all were listed by whoever made the node.
var _ = register(
	Op{Name: "ReduceSum", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axes", Default: []int(nil), Required: true}, {Name: "keepdims", Default: false}}, Summary: "sum over axes (none: identity)"},
	Op{Name: "ReduceMean", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axes", Default: []int(nil), Required: true}, {Name: "keepdims", Default: false}}, Summary: "mean over axes; integers truncate"},
	Op{Name: "ReduceMax", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axes", Default: []int(nil), Required: true}, {Name: "keepdims", Default: false}}, Summary: "maximum over axes; empty: least value of the type"},
	Op{Name: "ReduceMin", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axes", Default: []int(nil), Required: true}, {Name: "keepdims", Default: false}}, Summary: "minimum over axes"},
	Op{Name: "ReduceProd", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axes", Default: []int(nil), Required: true}, {Name: "keepdims", Default: false}}, Summary: "product over axes"},
	Op{Name: "ArgMax", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0}, {Name: "keepdims", Default: false}, {Name: "last", Default: false}}, Summary: "i64 index of the maximum, first or last of equals"},
	Op{Name: "ArgMin", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0}, {Name: "keepdims", Default: false}, {Name: "last", Default: false}}, Summary: "i64 index of the minimum"},
	Op{Name: "Softmax", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0, Required: true}}, Summary: "exp(x-max)/Σ along one axis"},
	Op{Name: "LogSoftmax", Kind: KindReduction, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0, Required: true}}, Summary: "log of Softmax"},
	Op{Name: "LayerNorm", Kind: KindReduction, In: []string{"x", "scale?", "bias?"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0, Required: true}, {Name: "epsilon", Default: 1e-5}}, Summary: "(x-mean)/√(var+ε)·scale+bias over dimensions axis…; scale and bias broadcast to x (ONNX LayerNormalization 17)"},
	Op{Name: "RMSNorm", Kind: KindReduction, In: []string{"x", "scale?"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0, Required: true}, {Name: "epsilon", Default: 1e-5}}, Summary: "x/√(mean(x²)+ε)·scale over dimensions axis… (ONNX RMSNormalization 23)"},
	Op{Name: "BatchNorm", Kind: KindElementwise, In: []string{"x", "scale", "bias", "mean", "var"}, Out: []string{"y"}, Attrs: []Attr{{Name: "epsilon", Default: 1e-5}, {Name: "axis", Default: 1}}, Summary: "(x-mean)/√(var+ε)·scale+bias; parameters have one element a channel, channel dimension axis (inference form of ONNX BatchNormalization)"},
	Op{Name: "CumSum", Kind: KindScan, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0, Required: true}, {Name: "exclusive", Default: false}, {Name: "reverse", Default: false}}, Summary: "prefix sums along axis"},
	Op{Name: "CumProd", Kind: KindScan, In: []string{"x"}, Out: []string{"y"}, Attrs: []Attr{{Name: "axis", Default: 0, Required: true}, {Name: "exclusive", Default: false}, {Name: "reverse", Default: false}}, Summary: "prefix products along axis"},
	Op{Name: "TopK", Kind: KindOther, In: []string{"x"}, Out: []string{"values", "indices"}, Attrs: []Attr{{Name: "k", Default: 0, Required: true}, {Name: "axis", Default: 0, Required: true}, {Name: "largest", Default: true}}, Summary: "the k largest (least) along axis in order, i64 indices; of equals the lower index first (ONNX TopK 11, sorted)"},
)
